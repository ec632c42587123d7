"""Photos as a stack of images: a network sees crops of them, cut and resized on the device.

Batches have equal parts of 32 strata of photos, and each process has some strata: so the batches do not depend on the
number of processes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foster.data.augmentation.operations import send
from foster.data.augmentation.pipeline import PhotoChanges
from foster.data.images import Gather, Stack, TensorStack
from foster.data.photos.crops import crops_of
from foster.data.photos.decode import DECODED_AT_ONCE, ImageLike, image_id
from foster.data.photos.store import CPU, NUM_STRATA, PhotoLoader, PhotoStore, owners_of
from foster.errors import SettingsError
from foster.kernels.operations import can_crop, crop_and_resize
from foster.settings.augmentation import Augmentation

FEWEST_IN_A_STRATUM = 8


class _Crops(NamedTuple):
    """The data with which a device crops some photos: their sizes, and where each begins: in the memory of the device
    or, for photos that `are_sent`, in `pixels`, which are sent to it."""

    sizes: Tensor
    starts: Tensor
    are_sent: Tensor
    pixels: Tensor

    def cut(self, boxes: Tensor, is_mirrored: Tensor, out_size: tuple[int, int], device: torch.device) -> Tensor:
        """uint8 `[n, 3, *out_size]` on `device`."""
        pixels = self.pixels.to(device, non_blocking=True) if len(self.pixels) else self.pixels
        if device.type == "cuda" and can_crop():
            addresses = self.starts + pixels.data_ptr() * self.are_sent
            rows = torch.cat((self.sizes[:, 1:], boxes, is_mirrored[:, None]), dim=1).to(torch.int32)
            addresses, rows = send([addresses.numpy(), rows.numpy()], device)
            return crop_and_resize(addresses, rows, out_size)
        photos = [
            pixels[start : start + 3 * height * width].view(height, width, 3)
            for start, (height, width) in zip(self.starts.tolist(), self.sizes.tolist(), strict=True)
        ]
        return crops_of(photos, boxes, is_mirrored, out_size)


class PhotoStack(Stack):
    """Some photos of one or more stores, in order. Selecting and joining do not copy pixels."""

    def __init__(self, stores: Sequence[PhotoStore], store_ids: NDArray[np.int16], numbers: NDArray[np.int64]) -> None:
        self.loader = stores[0].loader
        self.stores = tuple(stores)
        self._store_ids = store_ids
        self._numbers = numbers

    @classmethod
    def of(
        cls, items: Iterable[ImageLike], loader: PhotoLoader, title: str = "the photos", ids: Sequence[str] = ()
    ) -> "PhotoStack":
        """The photos in a new store, with their earlier `ids`, if they had any."""
        store = PhotoStore(items, loader, title, ids)
        return cls([store], np.zeros(len(store), np.int16), np.arange(len(store)))

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def shape(self) -> torch.Size:
        return torch.Size((len(self), 3, *self.loader.out_size))

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

    def is_readable(self) -> Tensor:
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

    def owners(self, num_processes: int) -> Tensor:
        return torch.from_numpy(owners_of(self._numbers, num_processes))

    def strata(self, batch_size: int, num_processes: int) -> list[Tensor]:
        most = num_strata(FEWEST_IN_A_STRATUM * NUM_STRATA, batch_size)
        if most % num_processes:
            raise SettingsError(
                f"{num_processes} processes cannot share photos in batches of {batch_size} equally; "
                f"start as many as divide {most}"
            )
        self.is_readable()
        return strata(torch.from_numpy(self._numbers % NUM_STRATA), num_strata(len(self), batch_size))

    def epoch(self, order: Tensor, augmentation: Augmentation, random: torch.Generator) -> Gather:
        """The photos of one epoch. Each is cropped, resized and mirrored on the device, then augmented like any
        image."""
        out_size = self.loader.out_size
        shape = torch.Size((len(order), 3, *out_size))
        changes = PhotoChanges(augmentation, self.sizes[order], shape, random, self.loader.frames)

        def gather(part: slice, device: torch.device) -> Callable[[], Tensor]:
            crops = self[order[part]].crops(device)
            boxes, is_mirrored = changes.boxes[part], changes.is_mirrored[part]
            return lambda: changes.done_to(crops.cut(boxes, is_mirrored, out_size, device), part)

        return gather

    def is_resident(self, device: torch.device, asked: str) -> bool:
        return False  # the loader keeps pixels on the device

    def crops(self, device: torch.device) -> _Crops:
        """The data with which `device` crops the photos, which must be decoded; on a GPU in pinned memory."""
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
        """Each store with the positions of its photos in this stack."""
        for number, store in enumerate(self.stores):
            positions = np.flatnonzero(self._store_ids == number)
            if len(positions):
                yield store, positions


def num_strata(num_photos: int, batch_size: int) -> int:
    """The number of strata of photos: a power of two that divides the batch, with at least eight photos in each."""
    count = NUM_STRATA
    while count > 1 and (batch_size % count or num_photos < FEWEST_IN_A_STRATUM * count):
        count //= 2
    return count


def strata(homes: Tensor, count: int) -> list[Tensor]:
    """Positions in `count` groups of the same size, or one more. A photo is in the group of its number in `homes`
    `[N]`, which is below `NUM_STRATA`, unless that group is full."""
    size = len(homes) // count
    at_home = [(homes * count // NUM_STRATA == group).nonzero().squeeze(1) for group in range(count)]
    over = torch.cat([positions[size:] for positions in at_home])
    groups = []
    for positions in at_home:
        short = max(0, size - len(positions))
        groups.append(torch.cat((positions[:size], over[:short])))
        over = over[short:]
    return [torch.cat((positions, over[k : k + 1])) for k, positions in enumerate(groups)]
