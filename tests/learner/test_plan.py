"""What a plan says of a learn: its steps, its quotas, and its schedules within a time."""

import pytest
from small_learners import digits, planned, small_learner

from foster.learner.train import Plan


def plan_of_two() -> Plan:
    """Of 80 photos, 8 of them held out."""
    return planned(small_learner(epochs_scale=0.1, validation_share=0.1), digits("zero", "one"))


def test_steps_and_quotas_are_those_of_the_photos_that_are_there() -> None:
    plan = plan_of_two()
    assert (len(plan.held_out), plan.num_training_images) == (8, 72)
    assert (plan.batch_size, plan.steps_per_epoch) == (64, 2)
    assert (plan.quota, plan.held_out_quota, plan.exemplar_quota) == (30, 3, 27), "60 exemplars for two classes"
    assert plan.lines()[0] == "2 new classes (zero, one): 72 photos, 8 more held out to measure"


@pytest.mark.parametrize(("seconds", "scale"), [(60, 0.05), (20, 1e-4), (2000, 1.0)])
def test_schedules_are_cut_to_the_time_that_is_left_and_never_longer_than_the_published(
    seconds: float, scale: float
) -> None:
    plan = plan_of_two().within(seconds, seconds_beside=20, seconds_of_training=80)
    assert plan.settings.epochs_scale == pytest.approx(scale)
