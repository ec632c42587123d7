import pytest

from foster.settings.foster import FosterSettings


def test_betas_lie_between_0_and_1() -> None:
    for betas in (0.0, 1.0, (0.0, 1.0)):
        assert FosterSettings(beta_boost=betas).problem(3) is None
    for wrong in (-0.1, 1.1, (0.5, 1.1)):
        with pytest.raises(ValueError, match="beta_boost"):
            FosterSettings(beta_boost=wrong)


def test_probabilities_are_summed_only_where_the_network_is_compressed() -> None:
    assert FosterSettings(sums="probabilities").problem(3) is None
    assert str(FosterSettings(sums="probabilities", compression=False).problem(3)).startswith("foster.sums: ")
