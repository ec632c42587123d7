from foster.settings.foster import FosterSettings


def test_betas_from_0_to_1_are_taken_and_others_are_a_problem() -> None:
    for betas in (0.0, 1.0, (0.0, 1.0)):
        assert FosterSettings(beta_boost=betas).problem(3) is None
    for wrong in (-0.1, 1.1, (0.5, 1.1)):
        assert str(FosterSettings(beta_boost=wrong).problem(3)).startswith("foster.beta_boost: ")


def test_probabilities_are_summed_only_where_the_network_is_compressed() -> None:
    assert FosterSettings(sums="probabilities").problem(3) is None
    assert str(FosterSettings(sums="probabilities", compression=False).problem(3)).startswith("foster.sums: ")
