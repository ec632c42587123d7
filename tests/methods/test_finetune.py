"""Fine-tuning: new images alone, a loss over new classes alone, and what that forgets."""

import pytest
import torch
from pattern_course import FIRST, LATER, course, cross_entropy, losses_of, starts_from_the_network_before


def test_it_has_one_phase_a_task_with_its_two_schedules() -> None:
    found = [(learned.phase.name, learned.phase.fit, learned.task.num_total) for learned in course("finetune")[1:]]
    assert found == [("learn", FIRST, 3), ("learn", LATER, 5)]
    assert course("finetune").second.after["head.weight"].shape == (5, 64)


def test_it_sees_new_images_alone_and_keeps_none() -> None:
    data = [learned.phase.data.class_counts(5).tolist() for learned in course("finetune")[1:]]
    assert data == [[12, 12, 12, 0, 0], [0, 0, 0, 12, 12]]
    assert course("finetune").method.memory.counts.tolist() == []


def test_a_later_task_starts_from_the_network_of_the_one_before_with_new_rows() -> None:
    assert starts_from_the_network_before("finetune")


def test_its_loss_is_cross_entropy_over_the_new_classes() -> None:
    found, logits, labels = losses_of("finetune")
    over_new = cross_entropy(logits[:, 3:], labels - 3)
    assert found == {"L_CE": pytest.approx(over_new, rel=1e-3, abs=1e-5)}
    assert over_new != pytest.approx(cross_entropy(logits, labels), rel=1e-2)


def test_the_old_rows_of_the_head_are_left_to_weight_decay_alone() -> None:
    second = course("finetune").second
    for name in ("head.weight", "head.bias"):
        ratio = second.after[name][:3] / second.before[name][:3]
        assert torch.allclose(ratio, ratio.mean().expand_as(ratio), atol=1e-4), "all shrink by the same factor"
        assert 0.9 < ratio.mean() < 1
