"""Feeds: one epoch at a time, shuffled and augmented as whole tensors, from images on the device or on the host."""

import functools
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, Literal

import torch
from torch import Tensor

from foster.data.augmentation.pipeline import Changes, PhotoChanges
from foster.data.images import ImageSet
from foster.data.photos.album import Album
from foster.data.photos.store import most_strata, num_strata, strata
from foster.errors import SettingsError
from foster.seeding import Address, generator
from foster.settings.augmentation import Augmentation
from foster.system.crew import ALONE, Crew, check_divides, crew

COPIES_OF_AN_EPOCH = 4
"""What an epoch of resident images takes at its peak, in copies: the data, the shuffled ones, and their changes."""

SHARE_OF_FREE_MEMORY = 0.5
"""How much of a device's free memory images may take, so that the network has its place, too."""

STREAMED_PIXELS = 1 << 22
"""A streamed feed sends at most this many pixels at a time, but at least one batch."""

PARTS_AHEAD = 2
"""How many such parts a streamed feed prepares while the device trains on one."""


@dataclass(frozen=True)
class Batch:
    """Images `[B, 3, H, W]` uint8 and labels `[B]`, on the feed's device."""

    images: Tensor
    labels: Tensor


def images_of_epoch(num_images: int, batch_size: int) -> int:
    """How many of `num_images` take part in an epoch: all but a single left-over one."""
    is_lone = num_images > 1 and num_images % batch_size == 1
    return num_images - is_lone


@dataclass(eq=False)
class Feed:
    """The batches of every epoch. Order and augmentation depend on seed, task, phase and epoch alone, which begin at
    the address `start`: all kinds of feeds give the same ones.

    The last batch of an epoch holds what is left over. A single left-over image sits the epoch out: BatchNorm has
    no statistics of one image, and the next epoch's order leaves out another.
    """

    data: ImageSet
    augmentation: Augmentation
    batch_size: int
    start: Address
    device: torch.device

    def __post_init__(self) -> None:
        check_divides(self.batch_size)
        self.team = self._sharing(crew())
        self.num_images = self._images_of_epoch()
        self.num_steps = -(-self.num_images // self.batch_size)

    @property
    def full_size(self) -> int:
        """The images of a full batch in this process; the largest there is."""
        return min(self.batch_size, self.num_images) // self.team.size

    @property
    def last_size(self) -> int:
        """Those of the last batch of an epoch."""
        return (self.num_images % self.batch_size or self.batch_size) // self.team.size

    def _sharing(self, team: Crew) -> Crew:
        """Who of the `team` share the batches: of too few images every process has all."""
        return team if len(self.data) >= team.size else ALONE

    def _images_of_epoch(self) -> int:
        """Processes share every batch equally: what the last one has over sits the epoch out."""
        num_images = images_of_epoch(len(self.data), self.batch_size)
        return num_images - num_images % self.batch_size % self.team.size

    def batches(self, epoch: int, first_step: int = 0) -> Iterator[Batch]:
        """The batches of one epoch, from `first_step` on: the same ones whenever they are asked for."""
        raise NotImplementedError

    @property
    def sample(self) -> Tensor:
        """A batch of none, as `batches` gives them."""
        return torch.empty(0, 3, *self.data.image_size, dtype=torch.uint8, device=self.device)

    def address(self, epoch: int) -> Address:
        """Where the random choices of an epoch are made."""
        return replace(self.start, epoch=epoch)

    def _drawn(self, epoch: int) -> tuple[Tensor, Changes]:
        """Which images an epoch has in which order, on the CPU, and what is done to them."""
        random = generator(self.address(epoch))
        order = self._order(random)
        return order, self._changes(order, random)

    def _order(self, random: torch.Generator) -> Tensor:
        return torch.randperm(len(self.data), generator=random)[: self.num_images]

    def _changes(self, order: Tensor, random: torch.Generator) -> Changes:
        return Changes(self.augmentation, torch.Size((len(order), 3, *self.data.image_size)), random)


class ResidentFeed(Feed):
    """All images live on the device, and an epoch is augmented there as one tensor.

    On a GPU this happens in a stream of its own: the host is about an epoch ahead, so an epoch is augmented beside the
    training of the one before.
    """

    def __post_init__(self) -> None:
        self.data = self.data.to(self.device)
        super().__post_init__()
        if self.device.type == "cuda":
            self._arrival = torch.cuda.current_stream(self.device).record_event()

    def batches(self, epoch: int, first_step: int = 0) -> Iterator[Batch]:
        if self.device.type == "cuda":
            _side_stream(self.device).wait_event(self._arrival)
            images, labels = _beside(self.device, lambda: self._prepared(epoch))
        else:
            images, labels = self._prepared(epoch)
        for start in range(first_step * self.batch_size, self.num_images, self.batch_size):
            end = start + self.batch_size
            yield Batch(images[start:end], labels[start:end])

    def _prepared(self, epoch: int) -> tuple[Tensor, Tensor]:
        """The images and labels of a whole epoch."""
        order, changes = self._drawn(epoch)
        if self.device.type == "cuda":
            order = order.pin_memory().to(self.device, non_blocking=True)  # the host does not wait for pinned memory
        return changes.done_to_all(self.data.images[order]), self.data.labels[order]


def _beside(device: torch.device, prepare: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """What `prepare` computes: beside what the current stream still has to do, and there for what comes next in it."""
    main, side = torch.cuda.current_stream(device), _side_stream(device)
    with torch.cuda.stream(side):
        prepared = prepare()
    main.wait_stream(side)
    for tensor in prepared:
        tensor.record_stream(main)
    return prepared


@functools.cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """One for all feeds: memory that is freed in a stream is used again only there."""
    return torch.cuda.Stream(device)


class StreamedFeed(Feed):
    """The images stay in the host's memory. Some batches at a time travel to the device and are augmented there, on a
    GPU beside the training of those before; a second thread gathers the next ones meanwhile."""

    def batches(self, epoch: int, first_step: int = 0) -> Iterator[Batch]:
        order, changes = self._drawn(epoch)
        parts = self._parts(first_step)
        begun: deque[torch.cuda.Event] = deque()
        with ThreadPoolExecutor(max_workers=1) as gathering:
            coming = deque(gathering.submit(self._gathered, order[part]) for part in parts[:1])
            for part, following in zip_longest(parts, parts[1:]):
                gathered = coming.popleft().result()
                if following is not None:
                    coming.append(gathering.submit(self._gathered, order[following]))
                prepare = functools.partial(self._sent, gathered, changes, part)
                if self.device.type == "cuda":
                    self._keep_close(begun)
                    images, labels = _beside(self.device, prepare)
                else:
                    images, labels = prepare()
                yield from map(Batch, images.split(self.batch_size), labels.split(self.batch_size))

    def _keep_close(self, begun: deque[torch.cuda.Event]) -> None:
        """Wait until the device is no more than `PARTS_AHEAD` parts behind: else they would fill its memory."""
        begun.append(torch.cuda.Event(blocking=True))
        begun[-1].record(torch.cuda.current_stream(self.device))
        if len(begun) > PARTS_AHEAD:
            begun.popleft().synchronize()

    def _sent(self, gathered: Any, changes: Changes, part: slice) -> tuple[Tensor, Tensor]:
        images, labels = (tensor.to(self.device, non_blocking=True) for tensor in gathered)
        return changes.done_to(images, part), labels

    def _parts(self, first_step: int) -> list[slice]:
        """The epoch in pieces of whole batches, from `first_step` on."""
        height, width = self.data.image_size
        team = self.team
        size = self.batch_size * (max(1, STREAMED_PIXELS // (self.batch_size * height * width)) if team.is_alone else 1)
        starts = range(first_step * self.batch_size, self.num_images, size)
        whole = [slice(start, min(start + size, self.num_images)) for start in starts]
        return [team.part_of(part) for part in whole]

    def _gathered(self, rows: Tensor) -> Any:
        """The images and labels `rows`, in memory from which the device can copy while the host goes on."""
        is_pinned = self.device.type == "cuda"
        gathered = []
        for values in (self.data.images, self.data.labels):
            room = torch.empty((len(rows), *values.shape[1:]), dtype=values.dtype, pin_memory=is_pinned)
            gathered.append(torch.index_select(values, 0, rows, out=room))
        return gathered


class PhotoFeed(StreamedFeed):
    """Photos of many sizes: each is cut, resized and mirrored on the device, then changed as any image is.

    Photos that are kept on the device are read there; others travel as a streamed feed's images do.
    """

    def __post_init__(self) -> None:
        assert isinstance(self.data.stack, Album)
        self._album = self.data.stack
        self._album.developed()
        self._strata = strata(self._album.homes(), num_strata(len(self.data), self.batch_size))
        super().__post_init__()
        own = self._strata[self.team.part_of(slice(0, len(self._strata)))]
        self._album[torch.cat(own)].develop_here()

    def _sharing(self, team: Crew) -> Crew:
        most = most_strata(self.batch_size)
        if most % team.size:
            raise SettingsError(
                f"{team.size} processes cannot share photos in batches of {self.batch_size} equally; "
                f"start as many as divide {most}"
            )
        return ALONE if len(self._strata) % team.size else team

    def _images_of_epoch(self) -> int:
        count = len(self._strata)
        return images_of_epoch(len(self.data), self.batch_size) if count == 1 else count * (len(self.data) // count)

    def _order(self, random: torch.Generator) -> Tensor:
        """Of every batch equal parts from all strata, one after the other: so the processes, which have some strata
        each, find the same batches however many they are."""
        size = self.num_images // len(self._strata)
        shuffled = [own[torch.randperm(len(own), generator=random)][:size] for own in self._strata]
        parts = zip(*(own.split(self.batch_size // len(self._strata)) for own in shuffled), strict=True)
        return torch.cat([torch.cat(part) for part in parts])

    def _changes(self, order: Tensor, random: torch.Generator) -> Changes:
        shape = torch.Size((len(order), 3, *self.data.image_size))
        frames = self._album.darkroom.frames
        return PhotoChanges(self.augmentation, self._album.sizes[order], shape, random, frames)

    def _gathered(self, rows: Tensor) -> Any:
        labels = self.data.labels[rows]
        is_pinned = self.device.type == "cuda"
        return self._album[rows].gathered(self.device), labels.pin_memory() if is_pinned else labels

    def _sent(self, gathered: Any, changes: Changes, part: slice) -> tuple[Tensor, Tensor]:
        assert isinstance(changes, PhotoChanges)
        photos, labels = gathered
        boxes, is_mirrored = changes.boxes[part], changes.is_mirrored[part]
        images = photos.crops(boxes, is_mirrored, self.data.image_size, self.device)
        return changes.done_to(images, part), labels.to(self.device, non_blocking=True)


def make_feed(
    data: ImageSet,
    augmentation: Augmentation,
    batch_size: int,
    address: Address,
    device: torch.device,
    resident: Literal["auto", "on", "off", "disk"] = "auto",
) -> Feed:
    """A resident feed, or a streamed one where `resident` says so or, by itself, where the images do not fit; where
    photos of many sizes are kept is their darkroom's business."""
    if isinstance(data.stack, Album):
        return PhotoFeed(data, augmentation, batch_size, address, device)
    is_resident = (fits(data, device) if resident == "auto" else resident == "on") and crew().is_alone
    return (ResidentFeed if is_resident else StreamedFeed)(data, augmentation, batch_size, address, device)


def fits(data: ImageSet, device: torch.device) -> bool:
    """Whether the memory that is free on `device` has room for training on resident images."""
    if device.type != "cuda":
        return True  # the images are there already
    free = torch.cuda.mem_get_info(device)[0]
    # What torch holds without using it is free for its tensors, too.
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return COPIES_OF_AN_EPOCH * data.images.nbytes <= SHARE_OF_FREE_MEMORY * free
