from itertools import combinations
from typing import Any

import pytest

from foster.settings.methods import FosterSettings


def test_betas_lie_between_0_and_1() -> None:
    for betas in (0.0, 1.0, (0.0, 1.0)):
        assert FosterSettings(beta_boost=betas).problem(3) is None
    for wrong in (-0.1, 1.1, (0.5, 1.1)):
        with pytest.raises(ValueError, match="beta_boost"):
            FosterSettings(beta_boost=wrong)


@pytest.mark.parametrize(
    ("first", "second"),
    list(combinations([("boost_branches", 2), ("sums", "probabilities"), ("compression", False)], 2)),
)
def test_several_branches_sums_of_probabilities_and_no_compression_exclude_each_other(
    first: tuple[str, Any], second: tuple[str, Any]
) -> None:
    for one in (first, second):
        assert FosterSettings(**dict([one])).problem(3) is None
    problem = str(FosterSettings(**dict([first, second])).problem(3))
    assert f"foster.{first[0]}" in problem
    assert f"foster.{second[0]}" in problem
