"""Task: what a method trains on, and from which images exemplars are chosen."""

import torch

from foster.data.images import ImageSet
from foster.data.task import Task


def images_with_labels(labels: list[int], names: tuple[str, ...]) -> ImageSet:
    images = torch.zeros(len(labels), 3, 2, 2, dtype=torch.uint8)
    return ImageSet(images, torch.tensor(labels, dtype=torch.int64), names)


def test_a_task_trains_on_the_new_images_followed_by_the_exemplars() -> None:
    new = images_with_labels([3, 2, 3, 3], ("ant", "bee", "cat", "dog"))
    task = Task(
        index=1, num_known=2, num_new=2, new_images=new, exemplars=images_with_labels([0, 1, 1], ("ant", "bee"))
    )
    assert task.training.labels.tolist() == [3, 2, 3, 3, 0, 1, 1]
    assert task.training.class_names == task.class_names == ("ant", "bee", "cat", "dog")
    assert task.class_counts.tolist() == [1, 2, 1, 3]
    assert task.training is task.training
    assert (task.num_total, task.is_first) == (4, False)


def test_a_first_task_trains_on_its_own_images_without_a_copy() -> None:
    new = images_with_labels([0, 1, 1], ("ant", "bee"))
    task = Task(index=0, num_known=0, num_new=2, new_images=new)
    assert task.is_first
    assert task.training is new
    assert task.class_counts.tolist() == [1, 2]


def test_a_known_class_that_comes_again_is_selected_anew_from_all_its_images() -> None:
    new = images_with_labels([2, 1, 2], ("ant", "bee", "cat"))
    task = Task(1, 2, 1, new, exemplars=images_with_labels([0, 1, 1], ("ant", "bee")))
    assert task.class_ids == (1, 2)
    assert task.candidates.labels.tolist() == [2, 1, 2, 1, 1]
    assert task.class_counts.tolist() == [1, 3, 2]


def test_without_a_class_that_comes_again_only_new_images_are_candidates() -> None:
    new = images_with_labels([2, 2], ("ant", "bee", "cat"))
    task = Task(1, 2, 1, new, exemplars=images_with_labels([0, 1], ("ant", "bee")))
    assert task.class_ids == (2,)
    assert task.candidates.labels.tolist() == [2, 2]
    assert Task(1, 2, 1, new).candidates is new
