"""The catalogue of datasets: plain facts that are known before any data is read, without torch."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import Field

from foster.errors import SettingsError
from foster.settings.fit import Frozen
from foster.system.files import user_path

ChannelValues = tuple[float, float, float]


@dataclass(frozen=True)
class Published:
    """An archive on the web, and the files by which a complete folder is recognised, each with its published MD5 sum,
    or an empty text if it has none."""

    address: str
    archive_md5: str
    folder: str
    files: Mapping[str, str]

    @property
    def archive(self) -> str:
        """The archive's file name, the last part of its address."""
        return self.address.rsplit("/", 1)[-1]


class SyntheticSettings(Frozen):
    """The size of the dataset `synthetic`."""

    num_classes: int = Field(default=10, ge=2, le=100_000, description="The number of classes.")
    train_per_class: int = Field(default=40, ge=1, le=1_000_000, description="Training images of each class.")
    test_per_class: int = Field(default=10, ge=1, le=1_000_000, description="Test images of each class.")
    image_size: int = Field(default=16, ge=8, le=4096, description="The side of an image in pixels.")


class PhotoSettings(Frozen):
    """The datasets `imagenet1000`, `imagenet100` and `folder`: where their photos are, and their sizes."""

    image_size: int = Field(default=224, ge=8, le=1024)
    """The side of the network's images in pixels."""
    short_side: int | None = Field(default=None, ge=0, le=4096)
    """Photos are stored with a shorter side of at most this many pixels; 0 keeps their size. The default is 8/7 of
    image_size, as usual for evaluation: 256 for 224."""
    test_share: float = Field(default=0.0, ge=0, lt=1)
    """dataset=folder: the share of each class's photos that are used for testing, drawn with the seed, if there is no
    test folder."""
    max_unreadable: int | None = Field(default=None, ge=0)
    """How many unreadable photos are tolerated; by default 10 %, but at least 3 and at most 100."""

    @property
    def kept_side(self) -> int:
        """The shorter side of stored photos; 0 for any."""
        return round(self.image_size * 8 / 7) if self.short_side is None else self.short_side


@dataclass(frozen=True)
class DatasetFacts:
    """One dataset: images are `image_size` x `image_size`, `mean` and `std` belong to pixel values from 0 to 1.

    A number is 0 if it is not known before the files of the dataset are read.
    """

    name: str
    description: str
    num_classes: int
    num_train: int
    num_test: int
    image_size: int
    mean: ChannelValues
    std: ChannelValues
    read_by: str | Callable[..., Any]
    """The function that reads training and test images, or where to import it from: `module:function`."""
    tasks: tuple[tuple[int, ...], ...] = ()
    """For a dataset with its own tasks: the training images of each task, counted for each class seen so far."""
    class_names: tuple[str, ...] = ()
    """The names of the classes; empty if they are not known before images are read."""
    published: Published | None = None
    photo_augmentations: tuple[tuple[str, str], ...] = ()
    """For photos of many sizes: pairs of an augmentation for small images and the one that replaces it."""
    keeps_last_batch: bool = False
    """Whether the last batch of an epoch is trained on however small it is, as in the code of published protocols."""
    adapted: Callable[["DatasetFacts", "DatasetSettings"], "DatasetFacts"] | None = None
    """A function that adapts the facts to the settings; it reads no file."""

    @property
    def is_complete(self) -> bool:
        """Whether all numbers are known before any file is read."""
        return bool(self.num_classes and self.num_train and self.num_test and self.image_size)


@dataclass(frozen=True)
class DatasetSettings:
    """The settings of a run that concern its dataset."""

    synthetic: SyntheticSettings = field(default_factory=SyntheticSettings)
    data_dir: Path | None = None
    photos: PhotoSettings = field(default_factory=PhotoSettings)
    seed: int = 1993

    @property
    def folder(self) -> Path:
        """The given folder, else that of the environment variable FOSTER_DATA, else `data`."""
        return user_path(self.data_dir or os.environ.get("FOSTER_DATA") or "data")


USUAL = DatasetSettings()


def _synthetic_facts(facts: DatasetFacts, settings: DatasetSettings) -> DatasetFacts:
    shape = settings.synthetic
    digits = max(2, len(str(shape.num_classes - 1)))
    return replace(
        facts,
        class_names=tuple(f"class {k:0{digits}d}" for k in range(shape.num_classes)),
        num_classes=shape.num_classes,
        num_train=shape.num_classes * shape.train_per_class,
        num_test=shape.num_classes * shape.test_per_class,
        image_size=shape.image_size,
    )


_CIFAR10_FILES = Published(
    address="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    archive_md5="c58f30108f718f92721af3b95e74349a",
    folder="cifar-10-batches-py",
    files={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
        "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
    },
)

_CIFAR100_FILES = Published(
    address="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    archive_md5="eb9058c3a382ffc7106e4002c42a8d85",
    folder="cifar-100-python",
    files={
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        "meta": "7973b15100ade9c7d40fb424638fde48",
    },
)

_CIFAR100 = DatasetFacts(
    name="cifar100",
    description="CIFAR-100, 60,000 photographs of 100 classes, 32 x 32",
    num_classes=100,
    num_train=50_000,
    num_test=10_000,
    image_size=32,
    mean=(0.5071, 0.4867, 0.4408),
    std=(0.2675, 0.2565, 0.2761),
    read_by="foster.data.cifar:read_cifar",
    published=_CIFAR100_FILES,
    keeps_last_batch=True,
)

_TINY_IMAGENET_FILES = Published(
    address="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    archive_md5="90528d7ca1a48142e341f4ef8d21d0de",
    folder="tiny-imagenet-200",
    files={"wnids.txt": "", "val/val_annotations.txt": ""},
)

_IMAGENET = DatasetFacts(
    name="imagenet1000",
    description="ImageNet (ILSVRC 2012), 1.28 million photos of 1,000 classes, from its published files",
    num_classes=1000,
    num_train=1_281_167,
    num_test=50_000,
    image_size=224,
    mean=(0.485, 0.456, 0.406),
    std=(0.229, 0.224, 0.225),
    read_by="foster.data.imagenet:read_trees",
    photo_augmentations=(("plain", "imagenet"), ("auto", "photo-auto")),
    keeps_last_batch=True,
    adapted=lambda facts, settings: replace(facts, image_size=settings.photos.image_size),
)

CATALOGUE: dict[str, DatasetFacts] = {
    facts.name: facts
    for facts in (
        DatasetFacts(
            name="digits",
            description="handwritten digits, 8 x 8, embedded in scikit-learn: nothing to download",
            num_classes=10,
            num_train=1442,
            num_test=355,
            image_size=8,
            mean=(0.3052, 0.3052, 0.3052),
            std=(0.3760, 0.3760, 0.3760),
            read_by="foster.data.sources:read_digits",
            class_names=("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
        ),
        replace(
            _CIFAR100,
            name="cifar10",
            description="CIFAR-10, 60,000 photographs of 10 classes, 32 x 32",
            num_classes=10,
            mean=(0.4914, 0.4822, 0.4465),
            std=(0.2470, 0.2435, 0.2616),
            published=_CIFAR10_FILES,
        ),
        _CIFAR100,
        DatasetFacts(
            name="tinyimagenet",
            description="Tiny ImageNet, 110,000 photos of 200 classes of ImageNet, 64 x 64",
            num_classes=200,
            num_train=100_000,
            num_test=10_000,
            image_size=64,
            mean=(0.4802, 0.4481, 0.3975),
            std=(0.2764, 0.2689, 0.2816),
            read_by="foster.data.tiny_imagenet:read_tiny_imagenet",
            published=_TINY_IMAGENET_FILES,
            keeps_last_batch=True,
        ),
        _IMAGENET,
        replace(
            _IMAGENET,
            name="imagenet100",
            description="ImageNet-100: the first 100 classes of ImageNet in the random order of seed 1993",
            num_classes=100,
            num_train=128_856,
            num_test=5_000,
            photo_augmentations=(("plain", "imagenet100"), ("auto", "photo-auto")),
        ),
        replace(
            _IMAGENET,
            name="folder",
            description="photos of your own: train/CLASS/... and test/CLASS/..., or one tree and photos.test_share; or "
            "the same for each task, in tasks/1, tasks/2, ... (tasks=given)",
            num_classes=0,
            num_train=0,
            num_test=0,
            keeps_last_batch=False,
        ),
        DatasetFacts(
            name="synthetic",
            description="seeded random patterns of any size, one pattern a class: for trials and tests",
            num_classes=10,
            num_train=400,
            num_test=100,
            image_size=16,
            mean=(0.5, 0.5, 0.5),
            std=(0.25, 0.25, 0.25),
            read_by="foster.data.sources:draw_synthetic",
            adapted=_synthetic_facts,
        ),
    )
}


def dataset_facts(name: str, settings: DatasetSettings) -> DatasetFacts:
    """The facts of a dataset from the catalogue and the settings; no file is read."""
    facts = CATALOGUE[name]
    return facts.adapted(facts, settings) if facts.adapted else facts


def task_sizes(num_classes: int, base_classes: int, increment: int, given: Sequence[int] = ()) -> tuple[int, ...]:
    """The number of new classes of each task: as `given`, or the base, then `increment` per task; the last one has the
    remainder.

    `base_classes = 0` means that the first task is as large as the others.
    """
    if given:
        if sum(given) != num_classes:
            raise SettingsError(f"task_sizes: {list(given)} are {sum(given)} classes, but there are {num_classes}")
        return tuple(given)
    base = base_classes or increment
    if base > num_classes:
        setting = "base_classes" if base_classes else "increment"
        raise SettingsError(f"{setting} is {base}, but there are only {num_classes} classes; choose fewer")
    num_full, remainder = divmod(num_classes - base, increment)
    return (base, *[increment] * num_full, *([remainder] if remainder else []))
