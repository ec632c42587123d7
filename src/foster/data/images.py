"""ImageSet: images as they are kept everywhere in the library, uint8 with labels and class names."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import cast

import torch
from torch import Tensor

from foster.data.photos.album import Album
from foster.data.photos.pixels import image_id

Stack = Tensor | Album
"""Images uint8 `[N, 3, H, W]` of one size, or photos of many sizes that become such images when they are needed."""


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images `[N, 3, H, W]` uint8, labels `[N]` int64, and the name of every class id.

    `class_names[label]` names an image's class. A label of -1 means "unlabeled".
    A set is never changed in place: every verb returns a new one.
    """

    stack: Stack
    labels: Tensor
    class_names: tuple[str, ...]

    def __post_init__(self) -> None:
        stack = self.stack
        if isinstance(stack, Tensor) and (stack.dtype != torch.uint8 or stack.ndim != 4 or stack.shape[1] != 3):
            raise ValueError(f"images must be uint8 [N, 3, H, W], not {stack.dtype} {tuple(stack.shape)}")
        if self.labels.shape != (len(stack),):
            raise ValueError(f"{len(stack)} images but labels of shape {tuple(self.labels.shape)}")
        if self.labels.dtype != torch.int64:
            raise ValueError(f"labels must be int64, not {self.labels.dtype}")

    @property
    def images(self) -> Tensor:
        """The pixels of images of one size. Photos of many sizes have none to show as a whole."""
        if not isinstance(self.stack, Tensor):
            raise ValueError("photos of many sizes are not one tensor of images")
        return self.stack

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def num_classes(self) -> int:
        """Of all names, with images or without."""
        return len(self.class_names)

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width."""
        return self.stack.shape[2], self.stack.shape[3]

    def select(self, index: Tensor) -> "ImageSet":
        """The images at `index` (positions or a mask), in that order."""
        return ImageSet(self.stack[index], self.labels[index], self.class_names)

    def of_classes(self, first: int, last: int) -> "ImageSet":
        """The images whose class id lies in `first <= id < last`."""
        return self.select((self.labels >= first) & (self.labels < last))

    def class_counts(self, num_classes: int | None = None) -> Tensor:
        """How many images each class id holds, `[num_classes]` int64 on the CPU.

        Unlabeled images and ids from `num_classes` on are not counted.
        """
        count = self.num_classes if num_classes is None else num_classes
        labels = self.labels[(self.labels >= 0) & (self.labels < count)].cpu()
        return torch.bincount(labels, minlength=count)

    def to(self, device: torch.device | str) -> "ImageSet":
        """The same set on `device`; photos stay where they are kept."""
        stack = self.stack.to(device) if isinstance(self.stack, Tensor) else self.stack
        return ImageSet(stack, self.labels.to(device), self.class_names)

    def readable(self) -> "ImageSet":
        """The images that can be read: photos are decoded now, where they are not yet, and broken ones left out."""
        if isinstance(self.stack, Tensor):
            return self
        is_readable = self.stack.developed()
        return self if bool(is_readable.all()) else self.select(is_readable.to(self.labels.device))

    def with_class_order(self, order: Sequence[int]) -> "ImageSet":
        """The same images with class ids renumbered so that old id `order[k]` becomes `k`; -1 stays -1."""
        if sorted(order) != list(range(self.num_classes)):
            raise ValueError(f"a class order must hold each number from 0 to {self.num_classes - 1} once")
        position = torch.empty(self.num_classes + 1, dtype=torch.int64)
        position[torch.as_tensor(order, dtype=torch.int64)] = torch.arange(len(order))
        position[-1] = -1  # where an unlabeled image's -1 points to
        names = tuple(self.class_names[k] for k in order)
        return ImageSet(self.stack, position.to(self.labels.device)[self.labels], names)


def concatenate(first: ImageSet, second: ImageSet) -> ImageSet:
    """Both sets as one, on the device of the first, with the longer list of class names.

    The lists must agree as far as both go, or the same id would mean two classes; a set that is only unlabeled
    images has no class names.
    """
    if any(a != b for a, b in zip(first.class_names, second.class_names, strict=False)):
        raise ValueError("cannot concatenate image sets that give the same id to different classes")
    names = max(first.class_names, second.class_names, key=len)
    labels = torch.cat([first.labels, second.labels.to(first.labels.device)])
    return ImageSet(joined([first.stack, second.stack]), labels, names)


def joined(stacks: Sequence[Stack]) -> Stack:
    """All of them as one, on the device of the first: either all tensors of images of one size, or all photos."""
    filled = [stack for stack in stacks if len(stack)] or stacks[:1]
    if isinstance(filled[0], Album):
        return reduce(Album.joined, cast(Sequence[Album], filled))
    return torch.cat([stack.to(filled[0].device) for stack in cast(Sequence[Tensor], filled)])


def ids_of(images: Stack) -> list[str]:
    """The id of each image, by the pixels that a network sees; a photo keeps the one that it had when it was read."""
    return images.ids() if isinstance(images, Album) else [image_id(image) for image in images]


def on_device(images: Stack, device: torch.device) -> Tensor:
    """What a network in inference sees of some images: uint8 `[N, 3, H, W]` on `device`, of photos the middle."""
    return images.to(device, non_blocking=True) if isinstance(images, Tensor) else images.centre_crops(device)
