"""FOSTER's analytic teacher: sums of every image, which teach the student beside the boosted network."""

from pathlib import Path

import pytest
import torch
from small_course import SHORT, learn, new_method, task_of, train
from tiny_runs import Interruption, assert_same, interrupted, outcome, resume, start, tiny_settings

from foster.events import PhaseStarted
from foster.methods.foster import Foster
from foster.networks.closed_form_network import MixedTeacher, NetworkWithAnalyticTeacher, standardised_as
from foster.settings.foster import FosterSettings
from foster.training.phase import Evaluate, Phase

SETTINGS = FosterSettings(first=SHORT, boost=SHORT, compress=SHORT, analytic_features=64)


def learned(num_tasks: int, **changes: float) -> Foster:
    method = new_method(Foster, SETTINGS.model_copy(update=changes))
    learn(method, num_tasks)
    assert isinstance(method, Foster)
    return method


def test_it_counts_every_image_and_its_mirror_image_of_all_tasks_and_keeps_the_first_backbone() -> None:
    first, third = learned(1).network, learned(3).network
    assert isinstance(first, NetworkWithAnalyticTeacher)
    assert isinstance(third, NetworkWithAnalyticTeacher)
    counts = [int(n) for index in range(3) for n in task_of(learned(0), index).new_images.class_counts() if n]
    assert third.analytic.head.counts.tolist() == [2 * count for count in counts]
    for key, value in first.branches.state_dict().items():
        torch.testing.assert_close(third.analytic.branches.state_dict()[key], value)
    assert any(
        not torch.equal(value, third.branches.state_dict()[key]) for key, value in first.branches.state_dict().items()
    )


def test_the_network_that_is_shipped_is_no_larger_and_what_is_kept_is_counted() -> None:
    with_teacher, without = learned(2).network, learned(2, analytic_features=0).network
    assert with_teacher.num_parameters() == without.num_parameters()
    assert with_teacher.statistics_bytes > 8 * 64 * 64 > without.statistics_bytes == 0


def test_its_weight_is_the_share_of_classes_that_its_backbone_has_learned() -> None:
    method = learned(1)
    task = task_of(method, 1)
    assert method.analytic_weight(task) == pytest.approx(task.num_known / task.num_total)


def test_without_weight_the_student_is_as_without_the_teacher() -> None:
    weightless, without = learned(2, analytic_weight=0.0).network, learned(2, analytic_features=0).network
    for key, value in without.state_dict().items():
        torch.testing.assert_close(weightless.state_dict()[key], value)


def test_what_is_distilled_is_evaluated_as_the_mixture_of_both_teachers() -> None:
    method = learned(1)
    task = task_of(method, 1)
    mixed = None
    for part in method.phases(task):
        if isinstance(part, Phase):
            train(part, task)
        if isinstance(part, Evaluate) and part.variant == "teacher":
            mixed = part.network
    assert isinstance(mixed, MixedTeacher)
    images = torch.randn(5, 3, 8, 8)
    boosted, analytic = mixed.teacher(images).logits, mixed.analytic(images).logits
    expected = (1 - mixed.weight) * boosted + mixed.weight * standardised_as(analytic, boosted)
    torch.testing.assert_close(mixed(images).logits, expected)


def test_scores_get_the_mean_and_the_deviation_of_each_row_of_the_logits() -> None:
    chance = torch.Generator().manual_seed(0)
    logits, scores = 3 * torch.randn(6, 9, generator=chance) + 1, torch.rand(6, 9, generator=chance)
    out = standardised_as(scores, logits)
    torch.testing.assert_close(out.mean(1), logits.mean(1))
    torch.testing.assert_close(out.std(1), logits.std(1))
    assert out.argsort(1).equal(scores.argsort(1))
    assert standardised_as(torch.zeros(1, 3), torch.tensor([[1.0, 2.0, 6.0]])).tolist() == [[3.0, 3.0, 3.0]]


@pytest.mark.parametrize("phase", ["boost", "compress"])
def test_a_run_that_was_stopped_in_a_phase_ends_as_one_that_was_not(phase: str, tmp_path: Path) -> None:
    settings = tiny_settings("foster", "foster.analytic_features=32")
    start(settings, tmp_path / "whole")
    is_there = Interruption(
        lambda event: isinstance(event, PhaseStarted) and (event.task, event.phase) == (1, phase), num_steps=2
    )
    interrupted(settings, tmp_path / "parted", is_there)
    resume(tmp_path / "parted")
    assert_same(outcome(tmp_path / "parted"), outcome(tmp_path / "whole"))
