"""Stack: images as one tensor, or photos of many sizes. ImageSet: a stack with labels and class names."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from foster.data.augmentation.pipeline import Changes
from foster.data.photos.decode import image_id, png_of
from foster.networks.modules import on_host
from foster.settings.augmentation import Augmentation

COPIES_OF_AN_EPOCH = 4
"""The peak memory of an epoch of resident images, in copies of the images: original, shuffled, and augmented."""

SHARE_OF_FREE_MEMORY = 0.5
"""The share of a device's free memory that images may take; the network needs the rest."""


Gather = Callable[[slice, torch.device], Callable[[], Tensor]]
"""A function that collects a part of an epoch's images on the host, for a device. It returns a function that sends them
to the device and augments them there: uint8 `[n, 3, H, W]`."""


class Stack(ABC):
    """uint8 images `[N, 3, H, W]` as a network sees them. Small images are one tensor (`TensorStack`); photos of many
    sizes are one buffer with an offset and a size each (`PhotoStack`). A stack is never changed in place.

    Methods that are not abstract are implemented for images in one tensor.
    """

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def shape(self) -> torch.Size: ...

    @property
    @abstractmethod
    def nbytes(self) -> int: ...

    @property
    @abstractmethod
    def tensor(self) -> Tensor:
        """The pixels as one tensor `[N, 3, H, W]`. Photos of many sizes have none: ValueError."""

    @abstractmethod
    def __getitem__(self, index: Tensor | slice) -> "Stack": ...

    def split(self, size: int) -> "Iterator[Stack]":
        """Parts of `size` images, at least one part."""
        for first in range(0, max(1, len(self)), size):
            yield self[first : first + size]

    @abstractmethod
    def followed_by(self, others: "Sequence[Stack]") -> "Stack":
        """This stack and others of the same kind as one."""

    @abstractmethod
    def to(self, device: torch.device | str) -> "Stack":
        """The same images on `device`; photos are not moved."""

    @abstractmethod
    def on_device(self, device: torch.device) -> Tensor:
        """The images for inference, uint8 `[N, 3, H, W]` on `device`; photos are cropped to their middle."""

    @abstractmethod
    def ids(self) -> list[str]:
        """The id of each image, by the pixels that a network sees. A photo keeps the id that it got when first read."""

    def load(self) -> None:
        """Decode the photos that this process needs and has not decoded yet."""
        return

    def is_readable(self) -> Tensor:
        """Which images can be read, bool `[N]`; photos are decoded now."""
        return torch.ones(len(self), dtype=torch.bool)

    def for_task(self, title: str) -> "Stack":
        """The same images for one task: the pixels of its photos are freed with it."""
        return self

    @abstractmethod
    def owned(self) -> "Stack":
        """A compact copy on the CPU, so that the original data may be deleted. Photos are copied as encoded files, into
        one store."""

    @abstractmethod
    def files(self) -> list[bytes]:
        """Each image as an image file: a PNG, or the encoded file of a photo."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """The images as tensors, for a checkpoint."""

    @abstractmethod
    def restored(self, state: Mapping[str, Tensor]) -> "Stack":
        """The images of a `state`, in a stack of this kind. Raises KeyError, ValueError or RuntimeError if it is
        damaged."""

    def owners(self, num_processes: int) -> Tensor:
        """The rank of the process that works on each image, `[N]`."""
        return torch.arange(len(self)) * num_processes // max(1, len(self))

    def strata(self, batch_size: int, num_processes: int) -> list[Tensor]:
        """Groups of positions. Every batch has equal parts of all groups, so that processes can share photos."""
        return [torch.arange(len(self))]

    @abstractmethod
    def epoch(self, order: Tensor, augmentation: Augmentation, random: torch.Generator) -> Gather:
        """The images of one epoch in `order`. All random numbers of their augmentation are drawn now."""

    @abstractmethod
    def is_resident(self, device: torch.device, asked: str) -> bool:
        """Whether training keeps all images on `device` as one tensor; `asked` is the value of `engine.resident`."""


class TensorStack(Stack):
    """Images of one size as a tensor."""

    def __init__(self, tensor: Tensor) -> None:
        if tensor.dtype != torch.uint8 or tensor.ndim != 4 or tensor.shape[1] != 3:
            raise ValueError(
                f"images must be uint8 [N, 3, H, W], not {tensor.dtype} {tuple(tensor.shape)}; for pixels from 0 to 1: "
                "(255 * images).round().byte(), for grey images: images.expand(-1, 3, -1, -1)"
            )
        self._tensor = tensor

    def __len__(self) -> int:
        return len(self._tensor)

    @property
    def shape(self) -> torch.Size:
        return self._tensor.shape

    @property
    def nbytes(self) -> int:
        return self._tensor.nbytes

    @property
    def tensor(self) -> Tensor:
        return self._tensor

    def __getitem__(self, index: Tensor | slice) -> "TensorStack":
        return TensorStack(self._tensor[index])

    def followed_by(self, others: Sequence[Stack]) -> "TensorStack":
        return TensorStack(torch.cat([self._tensor, *(other.tensor.to(self._tensor.device) for other in others)]))

    def to(self, device: torch.device | str) -> "TensorStack":
        return TensorStack(self._tensor.to(device))

    def on_device(self, device: torch.device) -> Tensor:
        return self._tensor.to(device, non_blocking=True)

    def ids(self) -> list[str]:
        return [image_id(image) for image in self._tensor.cpu()]

    def owned(self) -> "TensorStack":
        return TensorStack(on_host(self._tensor))

    def files(self) -> list[bytes]:
        return [png_of(image.permute(1, 2, 0).numpy()) for image in self._tensor.cpu()]

    def state(self) -> dict[str, Tensor]:
        return {"images": self._tensor}

    def restored(self, state: Mapping[str, Tensor]) -> "TensorStack":
        return TensorStack(state["images"])

    def epoch(self, order: Tensor, augmentation: Augmentation, random: torch.Generator) -> Gather:
        changes = Changes(augmentation, torch.Size((len(order), *self.shape[1:])), random)

        def gather(part: slice, device: torch.device) -> Callable[[], Tensor]:
            rows = order[part]
            room = torch.empty((len(rows), *self.shape[1:]), dtype=torch.uint8, pin_memory=device.type == "cuda")
            gathered = torch.index_select(self._tensor, 0, rows, out=room)
            return lambda: changes.done_to(gathered.to(device, non_blocking=True), part)

        return gather

    def is_resident(self, device: torch.device, asked: str) -> bool:
        if asked != "auto":
            return asked == "on"
        if device.type != "cuda":
            return True  # the images are there already
        return COPIES_OF_AN_EPOCH * self.nbytes <= SHARE_OF_FREE_MEMORY * free_memory(device)


def free_memory(device: torch.device) -> int:
    """The free bytes of a GPU. What torch holds without using it is free for its tensors, too."""
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def as_stack(images: Stack | Tensor | NDArray[Any]) -> Stack:
    """A tensor or an array of images as a stack; a stack as it is."""
    return images if isinstance(images, Stack) else TensorStack(torch.as_tensor(images))


@dataclass(frozen=True, eq=False, init=False)
class ImageSet:
    """Images `[N, 3, H, W]` uint8, labels `[N]` int64, both tensors or arrays, and the name of every class id.

    `class_names[label]` names an image's class. A label of -1 means "unlabeled". `beside` has further tensors by name,
    with a row for each image, such as `exemplar`: whether it comes from a memory.
    A set is never changed in place: every method returns a new one.
    """

    stack: Stack
    labels: Tensor
    class_names: tuple[str, ...]
    beside: Mapping[str, Tensor]

    def __init__(
        self,
        stack: Stack | Tensor | NDArray[Any],
        labels: Tensor | NDArray[Any],
        class_names: Sequence[str],
        beside: Mapping[str, Tensor] = MappingProxyType({}),
    ) -> None:
        labels = torch.as_tensor(labels)
        if labels.shape != (len(stack),):
            raise ValueError(f"{len(stack)} images but labels of shape {tuple(labels.shape)}")
        if labels.dtype != torch.int64:
            raise ValueError(f"labels must be int64, not {labels.dtype}")
        for name, rows in beside.items():
            if len(rows) != len(stack):
                raise ValueError(f"{len(stack)} images but {len(rows)} rows of '{name}'")
        object.__setattr__(self, "stack", as_stack(stack))
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "class_names", tuple(class_names))
        object.__setattr__(self, "beside", dict(beside))

    @property
    def images(self) -> Tensor:
        """The pixels of images of one size, `[N, 3, H, W]`. Photos of many sizes have none: ValueError."""
        return self.stack.tensor

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def num_classes(self) -> int:
        """The number of class names, including classes without images."""
        return len(self.class_names)

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width."""
        return self.stack.shape[2], self.stack.shape[3]

    def select(self, index: Tensor) -> "ImageSet":
        """The images at `index` (positions or a mask), in that order."""
        beside = {name: rows[index] for name, rows in self.beside.items()}
        return ImageSet(self.stack[index], self.labels[index], self.class_names, beside)

    def of_classes(self, first: int, last: int) -> "ImageSet":
        """The images whose class id lies in `first <= id < last`."""
        return self.select((self.labels >= first) & (self.labels < last))

    def class_counts(self) -> Tensor:
        """The number of images of each class, `[num_classes]` int64 on the CPU; all images must have a label."""
        return torch.bincount(self.labels.cpu(), minlength=self.num_classes)

    def to(self, device: torch.device | str) -> "ImageSet":
        """The same set on `device`; photos are not moved."""
        beside = {name: rows.to(device) for name, rows in self.beside.items()}
        return ImageSet(self.stack.to(device), self.labels.to(device), self.class_names, beside)

    def readable(self) -> "ImageSet":
        """The images that can be read. Photos that are not decoded yet are decoded now; broken ones are left out."""
        is_readable = self.stack.is_readable()
        return self if bool(is_readable.all()) else self.select(is_readable.to(self.labels.device))

    def with_class_order(self, order: Sequence[int]) -> "ImageSet":
        """The same images with class ids renumbered so that old id `order[k]` becomes `k`; all must have a label."""
        position = torch.tensor(order, device=self.labels.device).argsort()
        return replace(self, labels=position[self.labels], class_names=tuple(self.class_names[k] for k in order))


def concatenate(first: ImageSet, second: ImageSet) -> ImageSet:
    """Both sets as one, on the device of the first, with the longer list of class names.

    A class id that both lists name must have the same name in both. A set of unlabeled images has no class names. Rows
    `beside` the images of one set alone are zeros for the other.
    """
    if any(a != b for a, b in zip(first.class_names, second.class_names, strict=False)):
        raise ValueError("cannot concatenate image sets that give the same id to different classes")
    names = max(first.class_names, second.class_names, key=len)
    labels = torch.cat([first.labels, second.labels.to(first.labels.device)])
    moved = {name: rows.to(first.labels.device) for name, rows in second.beside.items()}
    beside = joined_rows([(len(first), first.beside), (len(second), moved)])
    return ImageSet(joined([first.stack, second.stack]), labels, names, beside)


def joined_rows(parts: Sequence[tuple[int, Mapping[str, Tensor]]]) -> dict[str, Tensor]:
    """Join the rows of several sets of images. Each part is a number of images and their rows; a part without rows of a
    name that another part has gets zeros."""
    kinds = {name: rows for _, part in parts for name, rows in part.items()}
    return {
        name: torch.cat([part[name] if name in part else kind.new_zeros(size, *kind.shape[1:]) for size, part in parts])
        for name, kind in kinds.items()
    }


def joined(stacks: Sequence[Stack]) -> Stack:
    """Several stacks of one kind as one stack, on the device of the first."""
    first, *others = [stack for stack in stacks if len(stack)] or stacks[:1]
    return first.followed_by(others) if others else first


def images_digest(images: ImageSet | None) -> str:
    """A hash of the images, their size and their labels; empty where there are none."""
    if images is None:
        return ""
    ids = torch.tensor([*"".join(images.stack.ids()).encode()], dtype=torch.uint8)
    return digest({"images": ids, "size": torch.tensor(images.image_size), "labels": images.labels})


def digest(tensors: Mapping[str, Tensor], *facts: object) -> str:
    """A hash of tensors by their names and of plain facts."""
    hashed = hashlib.sha256(json.dumps(facts).encode())
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        hashed.update(json.dumps([name, str(plain.dtype), list(plain.shape)]).encode())
        hashed.update(plain.flatten().view(torch.uint8).numpy().data)
    return hashed.hexdigest()
