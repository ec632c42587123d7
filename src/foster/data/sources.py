"""How datasets are read, and the two that need no data files. The table of datasets is in settings/datasets.py."""

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from foster.data.download import Follower
from foster.data.herding import positions_by_class
from foster.data.images import ImageSet
from foster.data.photos.store import PhotoLoader
from foster.errors import DataError
from foster.seeding import Address, generator
from foster.settings.datasets import CATALOGUE, USUAL, ChannelValues, DatasetFacts, DatasetSettings, dataset_facts
from foster.settings.plugins import register


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test images of the same classes; `mean` and `std` belong to pixel values from 0 to 1."""

    train: ImageSet
    test: ImageSet
    mean: ChannelValues
    std: ChannelValues

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.train.class_names


@dataclass(frozen=True)
class Request(DatasetSettings):
    """All that a source may need to read or draw its images."""

    facts: DatasetFacts = field(kw_only=True)
    follower: Follower | None = None
    loader: PhotoLoader | None = None
    """The loader of photos of many sizes."""


def load(
    name: str, settings: DatasetSettings = USUAL, follower: Follower | None = None, loader: PhotoLoader | None = None
) -> Dataset:
    """The dataset `name`. `follower` gets the progress of a download, and `loader` decodes photos."""
    facts = dataset_facts(name, settings)
    train, test = _read(facts, Request(**vars(settings), follower=follower, loader=loader, facts=facts))
    return Dataset(train, test, facts.mean, facts.std)


def load_unlabeled(
    name: str, image_size: tuple[int, int], data_dir: Path | None = None, follower: Follower | None = None
) -> ImageSet:
    """The training images of a dataset, resized to `image_size`, with label -1."""
    images = load(name, DatasetSettings(data_dir=data_dir), follower).train.images
    if tuple(images.shape[2:]) != image_size:
        smooth = interpolate(images.float(), size=image_size, mode="bilinear", antialias=True, align_corners=False)
        images = smooth.round().clamp(0, 255).to(torch.uint8)
    return ImageSet(images, torch.full((len(images),), -1), ())


def _read(facts: DatasetFacts, request: Request) -> tuple[ImageSet, ImageSet]:
    read = facts.read_by
    if isinstance(read, str):
        module, _, name = read.partition(":")
        read = getattr(importlib.import_module(module), name)
    sets = read(request)
    if not isinstance(sets, list | tuple) or [isinstance(images, ImageSet) for images in sets] != [True, True]:
        raise DataError(
            f"dataset '{facts.name}': its function must return two foster.ImageSet, training and test images"
        )
    train, test = sets
    names = train.class_names
    present = set(train.labels.tolist())
    without = [name for class_id, name in enumerate(names) if class_id not in present]
    labels, sizes = torch.cat([train.labels, test.labels]), (train.image_size, test.image_size)
    problems = {
        "the training and the test images name different classes": names != test.class_names,
        "two of its classes have the same name": len(set(names)) < len(names),
        f"the training and the test images are of two sizes, {sizes}": sizes[0] != sizes[1],
        f"it has {len(names)} classes, not {facts.num_classes} as announced": facts.num_classes not in (0, len(names)),
        f"the labels must lie in 0 to {len(names) - 1}": bool(((labels < 0) | (labels >= len(names))).any()),
        f"there is no training image of the classes {without[:5]}": bool(without),
    }
    for problem, is_there in problems.items():
        if is_there:
            raise DataError(f"dataset '{facts.name}': {problem}")
    return train, test


def with_counts(facts: DatasetFacts, settings: DatasetSettings) -> DatasetFacts:
    """The facts with the numbers of classes and images, counted in the files; photos are not decoded."""
    train, test = _read(facts, Request(**vars(settings), facts=facts))
    return replace(
        facts,
        num_classes=len(train.class_names),
        num_train=len(train),
        num_test=len(test),
        image_size=train.image_size[1],
        tasks=task_counts(train),
        class_names=train.class_names,
    )


def arrivals(train: ImageSet) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The classes in order of arrival in the dataset's own tasks, and the number of new classes of each task."""
    if "task" not in train.beside:
        raise DataError(
            "tasks=given: the dataset has no tasks of its own, such as folders tasks/1/CLASS, tasks/2/CLASS"
        )
    tasks = train.beside["task"]
    first = torch.stack([tasks[train.labels == k].min() for k in range(train.num_classes)])
    order = torch.sort(first, stable=True).indices
    return tuple(order.tolist()), tuple(torch.bincount(first, minlength=int(tasks.max()) + 1).tolist())


def task_counts(train: ImageSet) -> tuple[tuple[int, ...], ...]:
    """For each of the dataset's own tasks, its number of images of each class seen so far; empty without tasks."""
    if "task" not in train.beside:
        return ()
    order, sizes = arrivals(train)
    ordered = train.with_class_order(order)
    by_task = [ordered.labels[ordered.beside["task"] == task] for task in range(len(sizes))]
    return tuple(
        tuple(torch.bincount(labels, minlength=num_seen).tolist())
        for labels, num_seen in zip(by_task, accumulate(sizes), strict=True)
    )


Reader = TypeVar("Reader", bound=Callable[[Request], tuple[ImageSet, ImageSet]])


def register_dataset(
    name: str,
    *,
    num_classes: int = 0,
    num_train: int = 0,
    num_test: int = 0,
    image_size: int = 0,
    mean: ChannelValues = (0.5, 0.5, 0.5),
    std: ChannelValues = (0.25, 0.25, 0.25),
) -> Callable[[Reader], Reader]:
    """A decorator for a function that takes a `Request` and returns training and test images, an `ImageSet` each.

    ```python
    @foster.register_dataset("mine", mean=(0.5, 0.5, 0.5), std=(0.3, 0.3, 0.3))
    def read_mine(request):
        return read_images(request.folder / "train"), read_images(request.folder / "test")
    ```

    Without the numbers, a plan reads all images to count them. `mean` and `std` are those of pixel values from 0 to 1.
    The first line of the function's docstring describes the dataset in lists.
    """

    def enter(read: Reader) -> Reader:
        numbers = (num_classes, num_train, num_test, image_size)
        text = (read.__doc__ or name).strip().splitlines()[0]
        facts = DatasetFacts(name, text, *numbers, mean, std, read_by=read)
        register("dataset", CATALOGUE, name, facts, read)
        return read

    return enter


def read_digits(request: Request) -> tuple[ImageSet, ImageSet]:
    """Scikit-learn's digits `[1797, 3, 8, 8]` in grey; every fifth image of each class is a test image."""
    # From its file: to import scikit-learn takes longer than a small run.
    package = importlib.util.find_spec("sklearn")
    assert package is not None
    assert package.origin is not None
    file = Path(package.origin).with_name("datasets") / "data" / "digits.csv.gz"
    rows = torch.from_numpy(np.loadtxt(file, delimiter=","))
    grey = rows[:, :-1].reshape(-1, 1, 8, 8).mul(255 / 16).round().to(torch.uint8)
    labels = rows[:, -1].to(torch.int64)
    names = request.facts.class_names
    digits = ImageSet(grey.repeat(1, 3, 1, 1), labels, names)
    is_test = torch.zeros(len(digits), dtype=torch.bool)
    for members in positions_by_class(labels, range(len(names))):
        is_test[members[4::5]] = True
    return digits.select(~is_test), digits.select(is_test)


def draw_synthetic(request: Request) -> tuple[ImageSet, ImageSet]:
    """One smooth random pattern a class; each image is its pattern, disturbed smoothly and pixel by pixel.

    The images of a class depend on the seed, the class, their size and their number, not on the other classes.
    """
    shape = request.synthetic
    names = request.facts.class_names
    patterns = [_smooth(1, shape.image_size, request.seed, f"synthetic {k}") for k in range(shape.num_classes)]

    def draw(split: str, num_per_class: int) -> ImageSet:
        images = torch.empty(shape.num_classes, num_per_class, 3, shape.image_size, shape.image_size, dtype=torch.uint8)
        for k, pattern in enumerate(patterns):
            purpose = f"synthetic {split} {k}"
            smooth = _smooth(num_per_class, shape.image_size, request.seed, f"{purpose} smooth")
            random = generator(Address(request.seed, f"{purpose} noise"))
            noise = torch.randn(smooth.shape, generator=random)
            values = 0.5 + 0.3 * pattern + 0.15 * smooth + 0.1 * noise
            images[k] = values.clamp(0, 1).mul(255).round().to(torch.uint8)
        labels = torch.arange(shape.num_classes).repeat_interleave(num_per_class)
        return ImageSet(images.flatten(0, 1), labels, names)

    return draw("train", shape.train_per_class), draw("test", shape.test_per_class)


def _smooth(count: int, image_size: int, seed: int, purpose: str) -> Tensor:
    """`[count, 3, image_size, image_size]`: coarse normal noise, blurred up to the image's size."""
    coarse = torch.randn(count, 3, 4, 4, generator=generator(Address(seed, purpose)))
    return interpolate(coarse, size=(image_size, image_size), mode="bilinear", align_corners=False)
