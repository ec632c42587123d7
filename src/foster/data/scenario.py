"""Scenario: a dataset divided into an ordered list of tasks. `hold_out` divides training images into a training and a
validation part."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from foster.data.herding import positions_by_class, random_selection
from foster.data.images import ImageSet, Stack
from foster.data.sources import Dataset
from foster.data.task import Task
from foster.errors import DataError, SettingsError, suggestion
from foster.seeding import Address, generator
from foster.system.counts import counted


class Scenario:
    """A list of tasks. The images of a task are gathered when the task is requested, and not kept here.

    Classes arrive in `class_order`, `task_sizes[k]` new ones in task k. A dataset is divided by classes, or has tasks
    of its own (`is_given`), in which classes may come again.
    """

    def __init__(
        self, dataset: Dataset, name: str, class_order: Sequence[int], task_sizes: Sequence[int], is_given: bool = False
    ) -> None:
        self.name, self.task_sizes, self.class_order = name, tuple(task_sizes), tuple(class_order)
        self.mean, self.std = dataset.mean, dataset.std
        sets = [images.with_class_order(self.class_order) for images in (dataset.train, dataset.test)]
        self._train, self._test = sets if is_given else [_with_tasks(images, self.task_sizes) for images in sets]
        if not bool((self._test.beside["task"] == 0).any()):
            raise DataError(f"no class of the first task of '{self.name}' has a test image: {self.class_names[0]}, ...")

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of all classes, in the order of arrival."""
        return self._train.class_names

    @property
    def task_names(self) -> list[list[str]]:
        """The names of the new classes of every task."""
        ends = np.cumsum(self.task_sizes).tolist()
        return [list(self.class_names[end - size : end]) for end, size in zip(ends, self.task_sizes, strict=True)]

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width."""
        return self._train.image_size

    @property
    def kind(self) -> Stack:
        """An empty stack of the kind of its images."""
        return self._train.stack[:0]

    def __len__(self) -> int:
        return len(self.task_sizes)

    def __getitem__(self, index: int) -> Task:
        """The task `index` with its new images, without exemplars. Photos are decoded once for the whole task; those
        that cannot be read are left out."""
        num_known, num_new = sum(self.task_sizes[:index]), self.task_sizes[index]
        images = self._seen(self._train, index, self._train.beside["task"] == index)
        images = replace(images, beside={name: rows for name, rows in images.beside.items() if name != "task"})
        decoded = replace(images, stack=images.stack.for_task(f"task {index + 1}")).readable()
        counts = images.class_counts(), decoded.class_counts()
        for name, before, after in zip(images.class_names, *(count.tolist() for count in counts), strict=True):
            if before and not after:
                raise DataError(f"none of the {before} photos of class '{name}' can be read")
        return Task(index, num_known, num_new, decoded)

    def test_up_to(self, index: int) -> ImageSet:
        """The test images of all tasks up to `index`, with the task of each (`beside["task"]`)."""
        return self._seen(self._test, index, self._test.beside["task"] <= index).readable()

    def _seen(self, images: ImageSet, index: int, is_wanted: Tensor) -> ImageSet:
        """The selected images, with the names of the classes up to task `index`."""
        num_seen = sum(self.task_sizes[: index + 1])
        return replace(images.select(is_wanted), class_names=images.class_names[:num_seen])


def _with_tasks(images: ImageSet, sizes: Sequence[int]) -> ImageSet:
    """The images with the task of their class as `beside["task"]`."""
    tasks = torch.searchsorted(torch.tensor(sizes).cumsum(0), images.labels, right=True)
    return replace(images, beside={**images.beside, "task": tasks})


def class_order_from_seed(num_classes: int, seed: int) -> tuple[int, ...]:
    """The class order of published protocols, which use the seed 1993."""
    # Published protocols use this legacy generator; NumPy guarantees that its numbers do not change.
    return tuple(np.random.RandomState(seed).permutation(num_classes).tolist())


def class_order_from_names(names: Sequence[str], class_names: Sequence[str]) -> tuple[int, ...]:
    """The class ids of `names`, a permutation of `class_names` or, if none of these is there, of the ids themselves."""
    known = {name: k for k, name in enumerate(class_names)}
    if known.keys().isdisjoint(names):
        known = {str(k): k for k in range(len(class_names))}
    for name in names:
        if name not in known:
            raise SettingsError(f"unknown class '{name}' in the class order{suggestion(name, class_names)}")
    return tuple(known[name] for name in names)


def hold_out(images: ImageSet, share: float, seed: int, is_given: bool = False) -> tuple[ImageSet, ImageSet]:
    """Divide `images` into two parts; the second has `share` of every class (at least one image, never all). If the
    dataset has tasks of its own (`is_given`), it has `share` of every class in each task."""
    random = generator(Address(seed, "validation"))
    is_given = is_given and "task" in images.beside
    tasks = images.beside["task"] if is_given else torch.zeros_like(images.labels)
    is_held_out = torch.zeros(len(images), dtype=torch.bool)
    for task in tasks.unique().tolist():
        of_task = (tasks == task).nonzero().squeeze(1)
        for class_id, members in enumerate(positions_by_class(images.labels[of_task], range(images.num_classes))):
            if len(members) == 1 or (not len(members) and not is_given):
                where = f" in task {task + 1}" if is_given else ""
                found = f"class '{images.class_names[class_id]}' has {counted(len(members), 'image')}{where}"
                raise DataError(f"{found}, too few to hold one out")
            count = num_held_out(len(members), share)
            is_held_out[of_task[members[random_selection(len(members), count, random)]]] = True
    return images.select(~is_held_out), images.select(is_held_out)


def num_held_out(num_images: int, share: float) -> int:
    """The number of held-out images of a class: `share` of them, at least one, never all; 0 of 0."""
    return max(0, min(max(1, round(num_images * share)), num_images - 1))
