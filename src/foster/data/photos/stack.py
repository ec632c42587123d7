"""Photos of many sizes as one stack of images, and all photos of a source as a learner reads them.

A network sees crops of photos, cut and resized on the device. Batches have equal parts of 32 strata of photos, and each
process has some strata: so the batches do not depend on the number of processes that share the photos.

A learner reads small images as one tensor of the network's size. Photos are kept a seventh larger than the network sees
them, so that crops stay sharp.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foster.data.augmentation.pipeline import PhotoChanges
from foster.data.download import Follower
from foster.data.images import Epoch, Stack, TensorStack
from foster.data.photos.crops import crops_at, crops_of
from foster.data.photos.decode import (
    DECODED_AT_ONCE,
    ImageError,
    ImageLike,
    Resizing,
    decoded,
    image_id,
    quiet_pillow,
    upright_size,
)
from foster.data.photos.find import Photos, item_name
from foster.data.photos.store import (
    CPU,
    NUM_STRATA,
    Decoded,
    PhotoLoader,
    PhotoStore,
    Place,
    Unreadable,
    listed,
    owners_of,
    refuse_too_many,
)
from foster.errors import DataError, SettingsError
from foster.kernels.operations import can_crop
from foster.settings.augmentation import Augmentation
from foster.settings.learner_defaults import SMALL_SIDE
from foster.system.memory import main_memory

COPIES_OF_PHOTOS = 2
"""The memory of photos that are kept larger than the network's images, in copies of these images."""

FEWEST_IN_A_STRATUM = 8

NUM_MEASURED = 200
"""Of so many photos a learner looks at the size before it reads all."""


class _Crops(NamedTuple):
    """What a device needs to cut some photos: their sizes and where they begin, in its memory or, of those that
    `are_sent`, in the `pixels` that travel there."""

    sizes: Tensor
    starts: Tensor
    are_sent: Tensor
    pixels: Tensor

    def cut(self, boxes: Tensor, is_mirrored: Tensor, out_size: tuple[int, int], device: torch.device) -> Tensor:
        """uint8 `[n, 3, *out_size]` on `device`."""
        pixels = self.pixels.to(device, non_blocking=True) if len(self.pixels) else self.pixels
        if device.type == "cuda" and can_crop():
            addresses = self.starts + pixels.data_ptr() * self.are_sent
            addresses, sizes, boxes, is_mirrored = _sent((addresses, self.sizes, boxes, is_mirrored), device)
            return crops_at(addresses, sizes, boxes, is_mirrored, out_size)
        photos = [
            pixels[start : start + 3 * height * width].view(height, width, 3)
            for start, (height, width) in zip(self.starts.tolist(), self.sizes.tolist(), strict=True)
        ]
        return crops_of(photos, boxes, is_mirrored, out_size)


class PhotoStack(Stack):
    """Some photos of one or more stores, in order. Selecting and joining touches no pixel."""

    num_copies = COPIES_OF_PHOTOS

    def __init__(self, stores: Sequence[PhotoStore], store_ids: NDArray[np.int16], numbers: NDArray[np.int64]) -> None:
        self.loader = stores[0].loader
        self.stores = tuple(stores)
        self._store_ids = store_ids
        self._numbers = numbers

    @classmethod
    def of(
        cls, items: Iterable[ImageLike], loader: PhotoLoader, title: str = "the photos", ids: Sequence[str] = ()
    ) -> "PhotoStack":
        """Photos in a store of their own, with the ids that they have had before, where they had any."""
        store = PhotoStore(items, loader, title, ids)
        return cls([store], np.zeros(len(store), np.int16), np.arange(len(store)))

    @classmethod
    def of_tensor(cls, images: Tensor, loader: PhotoLoader) -> "PhotoStack":
        """Images uint8 `[N, 3, H, W]` of the network's size as photos of that size."""
        images = images.cpu()
        stack = cls.of(list(images), loader, ids=[image_id(image) for image in images])
        pixels = [image.permute(1, 2, 0).contiguous().numpy() for image in images]
        stack.stores[0].keep(Decoded.of(np.arange(len(images)), pixels))
        return stack

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def shape(self) -> torch.Size:
        return torch.Size((len(self), 3, *self.loader.out_size))

    @property
    def device(self) -> torch.device:
        return CPU

    @property
    def nbytes(self) -> int:
        return sum(map(len, self.files()))

    @property
    def tensor(self) -> Tensor:
        raise ValueError("photos of many sizes are not one tensor of images")

    @property
    def sizes(self) -> Tensor:
        """Height and width of every photo as it is kept, `[N, 2]` int64; 0 where it could not be read."""
        sizes = np.zeros((len(self), 2), np.int64)
        for store, positions in self._by_store():
            sizes[positions] = store.sizes[self._numbers[positions]]
        return torch.from_numpy(sizes)

    def __getitem__(self, index: Tensor | slice) -> "PhotoStack":
        chosen = index if isinstance(index, slice) else index.cpu().numpy()
        return PhotoStack(self.stores, self._store_ids[chosen], self._numbers[chosen])

    def followed_by(self, others: Sequence[Stack]) -> "PhotoStack":
        stacks = [self, *cast("Sequence[PhotoStack]", others)]
        stores = list(dict.fromkeys(store for stack in stacks for store in stack.stores))
        ids = [np.array([stores.index(store) for store in stack.stores], np.int16) for stack in stacks]
        store_ids = np.concatenate([new[stack._store_ids] for new, stack in zip(ids, stacks, strict=True)])
        return PhotoStack(stores, store_ids, np.concatenate([stack._numbers for stack in stacks]))

    def to(self, device: torch.device | str) -> "PhotoStack":
        return self

    def on_device(self, device: torch.device) -> Tensor:
        self.load()
        crops = self.crops(device)
        boxes = self.loader.frames(crops.sizes)
        return crops.cut(boxes, torch.zeros(len(self), dtype=torch.int64), self.loader.out_size, device)

    def ids(self) -> list[str]:
        ids = [store.ids[number] for store, number in self._stored()]
        if all(ids):
            return ids
        return [image_id(image) for part in self.split(DECODED_AT_ONCE) for image in part.on_device(CPU)]

    def load(self) -> None:
        for store, positions in self._by_store():
            store.load(self._numbers[positions])

    def readable(self) -> Tensor:
        for store, positions in self._by_store():
            store.survey(self._numbers[positions])
        return self.sizes.amin(1) > 0

    def for_task(self, title: str) -> "PhotoStack":
        (store,) = self.stores
        numbers = self._numbers.tolist()
        items, ids = [store.items[k] for k in numbers], [store.ids[k] for k in numbers]
        return PhotoStack.of(items, store.loader, title, ids)

    def owned(self) -> "PhotoStack":
        ids = [store.ids[number] for store, number in self._stored()]
        return PhotoStack.of(self.files(), self.loader, "the exemplars", ids)

    def in_one_store(self) -> "PhotoStack":
        return self.owned()

    def files(self) -> list[bytes]:
        return [store.content(number) for store, number in self._stored()]

    def state(self) -> dict[str, Tensor]:
        """`contents`, the encoded files one after the other, and `lengths`, their bytes."""
        files = self.files()
        whole = torch.frombuffer(bytearray(b"".join(files)), dtype=torch.uint8) if files else torch.empty(0).byte()
        return {"contents": whole, "lengths": torch.tensor([len(file) for file in files], dtype=torch.int64)}

    def restored(self, state: Mapping[str, Tensor]) -> Stack:
        if "contents" not in state:  # of a memory without images
            return TensorStack(state["images"])
        contents = state["contents"]
        if contents.dtype != torch.uint8:
            raise ValueError(f"{contents.dtype} of shape {tuple(contents.shape)}")
        files = [part.numpy().tobytes() for part in contents.split(state["lengths"].tolist())]
        return PhotoStack.of(files, self.loader, "the exemplars")

    def follow(self, follower: Follower) -> None:
        self.loader.follower = follower

    def alike(self, images: Tensor) -> "PhotoStack":
        return PhotoStack.of_tensor(images, self.loader)

    def owners(self, num_processes: int) -> Tensor:
        return torch.from_numpy(owners_of(self._numbers, num_processes))

    def strata(self, batch_size: int, num_processes: int) -> list[Tensor]:
        most = num_strata(FEWEST_IN_A_STRATUM * NUM_STRATA, batch_size)
        if most % num_processes:
            raise SettingsError(
                f"{num_processes} processes cannot share photos in batches of {batch_size} equally; "
                f"start as many as divide {most}"
            )
        self.readable()
        return strata(torch.from_numpy(self._numbers % NUM_STRATA), num_strata(len(self), batch_size))

    def epoch(self, order: Tensor, augmentation: Augmentation, random: torch.Generator) -> Epoch:
        return _PhotoEpoch(self, order, augmentation, random)

    def is_resident(self, device: torch.device, asked: str) -> bool:
        return False  # the loader keeps pixels on the device

    def crops(self, device: torch.device) -> _Crops:
        """What `device` needs of the photos, which are all decoded; in memory from which it can copy by itself."""
        sizes, are_sent = self.sizes, torch.ones(len(self), dtype=torch.bool)
        starts = torch.zeros(len(self), dtype=torch.int64)
        for store, positions in self._by_store() if device.type == "cuda" and can_crop() else ():
            addresses = store.addresses(self._numbers[positions], device)
            if addresses is not None:
                starts[positions], are_sent[positions] = torch.from_numpy(addresses), False
        lengths = 3 * sizes.prod(1) * are_sent
        ends = lengths.cumsum(0)
        pixels = torch.empty(int(ends[-1]) if len(ends) else 0, dtype=torch.uint8, pin_memory=device.type == "cuda")
        for (store, number), end, length in zip(self._stored(), ends.tolist(), lengths.tolist(), strict=True):
            if length:
                pixels[end - length : end] = store.pixels(number).reshape(-1)
        starts = torch.where(are_sent, ends - lengths, starts)
        return _Crops(sizes, starts, are_sent, pixels)

    def _stored(self) -> list[tuple[PhotoStore, int]]:
        pairs = zip(self._store_ids.tolist(), self._numbers.tolist(), strict=True)
        return [(self.stores[store], number) for store, number in pairs]

    def _by_store(self) -> Iterator[tuple[PhotoStore, NDArray[np.int64]]]:
        """Each store, and where its photos stand here."""
        for number, store in enumerate(self.stores):
            positions = np.flatnonzero(self._store_ids == number)
            if len(positions):
                yield store, positions


class _PhotoEpoch(Epoch):
    """Each photo is cut, resized and mirrored on the device, then changed as any image is."""

    def __init__(self, photos: PhotoStack, order: Tensor, augmentation: Augmentation, random: torch.Generator) -> None:
        self._photos = photos
        self._order = order
        shape = torch.Size((len(order), 3, *photos.loader.out_size))
        self._changes = PhotoChanges(augmentation, photos.sizes[order], shape, random, photos.loader.frames)

    def gathered(self, part: slice, device: torch.device) -> Callable[[], Tensor]:
        crops = self._photos[self._order[part]].crops(device)

        def cut() -> Tensor:
            boxes, is_mirrored = self._changes.boxes[part], self._changes.is_mirrored[part]
            return self._changes.done_to(crops.cut(boxes, is_mirrored, self._photos.loader.out_size, device), part)

        return cut


def _sent(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Small tables on the device, without waiting for their arrival."""
    return [tensor.contiguous().pin_memory().to(device, non_blocking=True) for tensor in tensors]


def num_strata(num_photos: int, batch_size: int) -> int:
    """Into how many strata photos are divided: a power of two that divides the batch, of eight photos or more each."""
    count = NUM_STRATA
    while count > 1 and (batch_size % count or num_photos < FEWEST_IN_A_STRATUM * count):
        count //= 2
    return count


def strata(homes: Tensor, count: int) -> list[Tensor]:
    """Positions in `count` groups of equal size, one more in some: each in the group of its home, `[N]` below
    `NUM_STRATA`, unless that is full."""
    size = len(homes) // count
    at_home = [(homes * count // NUM_STRATA == group).nonzero().squeeze(1) for group in range(count)]
    over = torch.cat([positions[size:] for positions in at_home])
    groups = []
    for positions in at_home:
        short = max(0, size - len(positions))
        groups.append(torch.cat((positions[:size], over[:short])))
        over = over[short:]
    return [torch.cat((positions, over[k : k + 1])) for k, positions in enumerate(groups)]


@dataclass(frozen=True, eq=False)
class ReadPhotos:
    """The images that could be read, with a class name each, and those that could not."""

    stack: Stack
    positions: tuple[int, ...]
    """Where those that could be read stand among all photos."""
    labels: tuple[str, ...]
    unreadable: tuple[Unreadable, ...]

    @property
    def images(self) -> Tensor:
        """uint8 `[N, 3, H, W]`, where they were read at one size."""
        return self.stack.tensor


def read_photos(photos: Photos, resizing: Resizing, max_unreadable: int | None = None) -> ReadPhotos:
    """All images at one size. Unreadable ones are listed and left out, up to a limit beyond which it stops.

    Photos for which the memory has no room are refused before any is read.
    """
    check_room(len(photos), resizing, Stack.num_copies)
    images = torch.empty(len(photos), 3, resizing.height, resizing.width, dtype=torch.uint8)
    unreadable: list[Unreadable] = []
    kept: list[int] = []
    for position, image in enumerate(decoded(photos.items, resizing)):
        if isinstance(image, ImageError):
            note_unreadable(str(image), position, photos, max_unreadable, unreadable)
        else:
            images[len(kept)] = image
            kept.append(position)
    return _read(TensorStack(images[: len(kept)]), kept, photos, unreadable)


def read_for_training(photos: Photos, resizing: Resizing, loader: PhotoLoader) -> ReadPhotos:
    """The same for a learner. Photos above the size of small images are kept a seventh larger than the network sees
    them, by `loader`; each gets the id of what the network sees."""
    if not keeps_photos(resizing):
        return read_photos(photos, resizing, loader.max_unreadable)
    if loader.place != "disk":
        check_room(len(photos), resizing, COPIES_OF_PHOTOS)
    stack = PhotoStack.of(photos.items, loader, photos.title)
    is_readable = stack.readable()
    (store,) = stack.stores
    unreadable = [Unreadable(item_name(photos.items[k], k), reason) for k, reason in sorted(store.unreadable.items())]
    return _read(stack[is_readable], is_readable.nonzero()[:, 0].tolist(), photos, unreadable)


def _read(stack: Stack, kept: Sequence[int], photos: Photos, unreadable: list[Unreadable]) -> ReadPhotos:
    if not kept:
        raise none_readable(unreadable, photos)
    return ReadPhotos(stack, tuple(kept), tuple(photos.labels[k] for k in kept), tuple(unreadable))


def note_unreadable(
    reason: str, position: int, photos: Photos, max_unreadable: int | None, unreadable: list[Unreadable]
) -> None:
    """Add an image to those that cannot be read. Raises DataError where they are too many."""
    unreadable.append(Unreadable(item_name(photos.items[position], position), reason))
    refuse_too_many(unreadable, len(photos), photos.title, max_unreadable)


def none_readable(unreadable: list[Unreadable], photos: Photos) -> DataError:
    """The error for photos of which all that were tried are unreadable."""
    is_all = len(unreadable) == len(photos)
    tried = f"the {len(photos)} images" if is_all else f"{len(unreadable)} images tried of the {len(photos)}"
    return DataError(f"none of {tried} in {photos.title} can be read: {listed(unreadable)}")


def measured_sizes(photos: Photos) -> tuple[list[tuple[int, int]], list[Unreadable]]:
    """Width and height of some 200 images, spread evenly over all, and those of them that could not be read."""
    sizes: list[tuple[int, int]] = []
    unreadable: list[Unreadable] = []
    with quiet_pillow():
        for position in range(0, len(photos), max(1, len(photos) // NUM_MEASURED)):
            item = photos.items[position]
            try:
                sizes.append(upright_size(item))
            except ImageError as error:
                unreadable.append(Unreadable(item_name(item, position), str(error)))
    return sizes, unreadable


def check_room(num_images: int, resizing: Resizing, num_copies: int) -> None:
    """Refuse images that the memory cannot hold: a system that runs out of it kills the process without a message."""
    total = main_memory()
    needed = num_copies * num_images * 3 * resizing.height * resizing.width
    if needed > 0.9 * total:
        raise DataError(
            f"{num_images:,} images of {resizing.height} x {resizing.width} need {needed / 2**30:.1f} GiB of memory, "
            f"but there are {total / 2**30:.1f}; choose a smaller image_size or learn the classes in several calls"
        )


def keeps_photos(resizing: Resizing) -> bool:
    """Whether a learner keeps photos larger than the network sees them at this size; small images are kept as seen."""
    return max(resizing.size) > SMALL_SIDE


def learner_loader(
    resizing: Resizing,
    device: torch.device = CPU,
    place: Place = "host",
    cache: Path | None = None,
    max_unreadable: int | None = None,
) -> PhotoLoader:
    """How a learner keeps photos: a seventh larger than its network sees them, so that crops stay sharp. Exemplars are
    encoded at that size."""
    side = max(resizing.size)
    kept = round(side * 8 / 7)
    return PhotoLoader(side, kept, device, place, cache, max_unreadable, resizing=resizing, reencodes=True)


def stack_for_learner(images: Tensor, resizing: Resizing) -> Stack:
    """Images of the network's size, kept as a learner keeps images of that size."""
    return PhotoStack.of_tensor(images, learner_loader(resizing)) if keeps_photos(resizing) else TensorStack(images)


def stack_of_files(files: Mapping[str, bytes], ids: Sequence[str], resizing: Resizing, is_tried: bool = True) -> Stack:
    """Images that a learner kept as files (`Stack.files`), by their names. Raises DataError with the name of one that
    cannot be read or has another size; a large image is not decoded. Photos that are not `is_tried` are looked at when
    they are needed."""
    if keeps_photos(resizing) and not is_tried:
        return PhotoStack.of(files.values(), learner_loader(resizing), "the exemplars", ids)
    for name, content in files.items():
        try:
            width, height = upright_size(content)
        except ImageError as error:
            raise DataError(f"'{name}' cannot be read: {error}") from None
        is_photo = keeps_photos(resizing) and name.endswith(".jpg")
        if is_photo and min(width, height) <= learner_loader(resizing).short_side:
            continue
        if (height, width) != resizing.size:
            raise DataError(f"'{name}' is not {resizing.width} x {resizing.height}")
    if keeps_photos(resizing):
        stack: Stack = PhotoStack.of(files.values(), learner_loader(resizing), "the exemplars", ids)
        is_readable = stack.readable()
        if not bool(is_readable.all()):
            raise DataError(f"'{[*files][int((~is_readable).nonzero()[0])]}' cannot be read")
        return stack
    images = torch.empty(len(files), 3, *resizing.size, dtype=torch.uint8)
    for k, (name, image) in enumerate(zip(files, decoded([*files.values()], resizing), strict=True)):
        if isinstance(image, ImageError):
            raise DataError(f"'{name}' cannot be read: {image}")
        images[k] = image
    return TensorStack(images)
