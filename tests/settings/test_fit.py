"""How one phase is trained: schedules that are stretched, and milestones that belong to them."""

from typing import Any

import pytest

from foster.settings.fit import FitSettings, with_milestones


def test_a_schedule_is_stretched_with_its_milestones_and_keeps_an_epoch() -> None:
    schedule = FitSettings(epochs=200, schedule="milestones", milestones=(60, 120, 170))
    assert schedule.scaled(0.1) == FitSettings(epochs=20, schedule="milestones", milestones=(6, 12, 17))
    assert schedule.scaled(1) == schedule
    assert FitSettings(epochs=10).scaled(0.29).epochs == 3
    assert FitSettings(epochs=20, warmup_epochs=5).scaled(0.2).warmup_epochs == 1
    assert FitSettings(epochs=20, warmup_epochs=19).scaled(0.05).warmup_epochs == 0
    short = schedule.scaled(0.001)
    assert (short.epochs, short.milestones) == (1, (1,))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schedule": "milestones"}, "needs milestones"),
        ({"milestones": (3,)}, "add schedule=milestones"),
        ({"epochs": 0}, "greater than or equal to 1"),
        ({"learning_rate": float("nan")}, "finite"),
        ({"warmup_epochs": 10}, "fewer than the 10 epochs"),
        ({"optimizer": "adamw", "nesterov": True}, "needs optimizer = 'sgd'"),
        ({"momentum": 0, "nesterov": True}, "momentum above 0"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FitSettings(**{"epochs": 10, **changes})


def test_a_rate_that_may_not_be_meant_is_remarked() -> None:
    assert with_milestones(60, 59, 100).remark == ""
    assert with_milestones(60, 60).remark.startswith("milestones: ")
    assert FitSettings(epochs=1, optimizer="adam", learning_rate=0.001).remark == ""
    assert FitSettings(epochs=1, optimizer="adamw").remark.startswith("learning_rate: 0.1 ")
