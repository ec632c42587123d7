import numpy as np
import pytest

from foster.evaluation.metrics import (
    average_incremental_accuracy,
    evaluate,
    forgetting,
)

MATRIX = [
    [90.0],
    [70.0, 80.0],
    [75.0, 60.0, 50.0],
    [40.0, 65.0, 45.0, 95.0],
]


def test_uneven_tasks_are_measured_by_their_own_classes() -> None:
    # Tasks: classes 0-2, class 3, classes 4-6. Correct: 3 of 4, 1 of 2, 1 of 4.
    labels = [0, 1, 2, 2, 3, 3, 4, 5, 6, 6]
    ranks = [0, 0, 0, 4, 0, 5, 0, 1, 5, 6]
    result = evaluate(ranks, labels, [3, 1, 3])
    assert result.accuracy == 50.0
    assert result.top5 == 70.0
    assert result.old_accuracy == pytest.approx(100 * 4 / 6)
    assert result.new_accuracy == 25.0
    assert result.per_task == (75.0, 50.0, 25.0)


def test_the_first_task_has_no_old_classes() -> None:
    result = evaluate(np.array([0, 1, 0, 0]), np.array([0, 1, 2, 3]), [4])
    assert result.old_accuracy is None
    assert result.accuracy == result.new_accuracy == 75.0
    assert result.per_task == (75.0,)


def test_with_fewer_than_five_classes_top5_means_any_of_them() -> None:
    # Rank 3 of three classes is the rank of a true class that was not predicted at all.
    result = evaluate([0, 2, 1, 3], [0, 1, 2, 2], [2, 1])
    assert result.top5 == 75.0
    assert evaluate([0, 1], [0, 1], [2]).top5 == 100.0


def test_top5_counts_the_best_five_and_not_six() -> None:
    assert evaluate([4, 5, 0, 9], [0, 1, 2, 3], [10]).top5 == 50.0


def test_classes_without_test_images_have_no_accuracy() -> None:
    result = evaluate([0, 1], [0, 2], [1, 1, 1])
    assert (result.per_task, result.accuracy) == ((100.0, None, 0.0), 50.0)
    assert evaluate([0, 1], [0, 0], [1, 1]).new_accuracy is None


def test_average_incremental_accuracy_includes_the_first_task_and_does_not_round() -> None:
    assert average_incremental_accuracy([90.0, 75.0, 61.234567]) == pytest.approx(226.234567 / 3, abs=1e-12)
    assert average_incremental_accuracy([88.5]) == 88.5
    with pytest.raises(ValueError, match="at least one"):
        average_incremental_accuracy([])


def test_forgetting_compares_with_the_best_before_the_last_task() -> None:
    # Task 0: 90 - 40, task 1: 80 - 65, task 2: 50 - 45.
    assert forgetting(MATRIX) == pytest.approx((50 + 15 + 5) / 3)
    # After three tasks the best of task 0 is 90, though it was 70 just before; task 1: 80 - 60.
    assert forgetting(MATRIX[:3]) == pytest.approx((15 + 20) / 2)
    # The best of task 0 may come after its own task: 75 - 70, and 50 - 40.
    assert forgetting([[60.0], [75.0, 50.0], [70.0, 40.0, 90.0]]) == pytest.approx((5 + 10) / 2)


def test_forgetting_is_negative_where_an_old_task_becomes_better_than_ever() -> None:
    assert forgetting([[60.0], [75.0, 50.0]]) == -15.0


def test_tasks_without_test_images_do_not_count() -> None:
    assert forgetting([[60.0], [50.0, None], [40.0, None, 90.0]]) == 20.0


def test_a_single_task_forgets_nothing() -> None:
    assert forgetting([[90.0]]) == 0.0
