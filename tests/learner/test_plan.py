"""What a plan says of a learn: its steps, its quotas, and its schedules within a time."""

from types import SimpleNamespace

import pytest
from small_learners import digits, planned, small_learner

from foster.learner import train
from foster.learner.train import Forecast, TimedPhase, TrainingPlan, fitted


def plan_of_two() -> TrainingPlan:
    """Of 80 photos, 8 of them held out."""
    return planned(small_learner(epochs_scale=0.1, validation_share=0.1), digits("zero", "one"))


def test_steps_and_quotas_are_those_of_the_photos_that_are_there() -> None:
    plan = plan_of_two()
    assert (len(plan.held_out), plan.num_training_images) == (8, 72)
    assert (plan.batch_size, plan.steps_per_epoch) == (64, 2)
    assert (plan.quota, plan.held_out_quota, plan.exemplar_quota) == (30, 3, 27), "60 exemplars for two classes"
    assert plan.summary()[0] == "2 new classes (zero, one): 72 photos, 8 more held out to measure"


@pytest.mark.parametrize(("minutes", "scale"), [(1, 0.05), (1 / 3, 1e-4), (40, 1.0)])
def test_schedules_are_cut_to_the_time_that_is_left_and_never_longer_than_the_published(
    minutes: float, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five seconds of the time are over, and all beside the training takes 15."""
    plan = plan_of_two()
    monkeypatch.setattr(train, "time", SimpleNamespace(monotonic=lambda: plan.began + 5))
    ahead = Forecast((TimedPhase("boost", 2, 30.0), TimedPhase("compress", 4, 5.0)), 1, seconds_beside=15)
    assert fitted(plan, ahead, minutes).settings.epochs_scale == pytest.approx(scale)
