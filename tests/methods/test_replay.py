"""Replay: exemplars beside the new images, a loss over all classes, and what that saves."""

import pytest
from pattern_course import FIRST, LATER, accuracy, course, cross_entropy, losses_of, starts_from_the_network_before


def test_it_has_one_phase_a_task_with_its_two_schedules() -> None:
    found = [(learned.phase.name, learned.phase.fit, learned.task.num_total) for learned in course("replay")[1:]]
    assert found == [("learn", FIRST, 3), ("learn", LATER, 5)]
    assert course("replay").second.after["head.weight"].shape == (5, 64)


def test_it_sees_exemplars_of_known_classes_and_keeps_its_quota_of_all() -> None:
    data = [learned.phase.data.class_counts(5).tolist() for learned in course("replay")[1:]]
    assert data == [[12, 12, 12, 0, 0], [4, 4, 4, 12, 12]]
    assert course("replay").method.memory.counts.tolist() == [4] * 5


def test_a_later_task_starts_from_the_network_of_the_one_before_with_new_rows() -> None:
    assert starts_from_the_network_before("replay")


def test_its_loss_is_cross_entropy_over_all_classes() -> None:
    found, logits, labels = losses_of("replay")
    over_all = cross_entropy(logits, labels)
    assert found == {"L_CE": pytest.approx(over_all, rel=1e-3, abs=1e-5)}
    assert over_all != pytest.approx(cross_entropy(logits[:, 3:], labels - 3), rel=1e-2)


def test_fine_tuning_forgets_and_replay_remembers_more() -> None:
    forgetful, careful = course("finetune").method.network, course("replay").method.network
    assert accuracy(forgetful, 3, 5) > 0.9
    assert accuracy(careful, 3, 5) > 0.9
    assert accuracy(careful, 0, 3) > accuracy(forgetful, 0, 3) + 0.3
