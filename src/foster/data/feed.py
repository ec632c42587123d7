"""Feeds: one epoch at a time, shuffled and augmented as whole tensors, from images on the device or on the host."""

import functools
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from foster.data.augmentation.pipeline import Changes
from foster.data.images import ImageSet
from foster.seeding import Address, generator
from foster.settings.augmentation import Augmentation
from foster.system.processes import ALONE, ProcessGroup, check_divides, process_group

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
    """The batches of every epoch. Order and augmentation depend only on seed, task, phase and epoch, which begin at the
    address `start`: all kinds of feeds give the same batches.

    The last batch of an epoch holds what is left over. A single left-over image is left out of the epoch: BatchNorm has
    no statistics of one image, and the next epoch's order leaves out another.
    """

    data: ImageSet
    augmentation: Augmentation
    batch_size: int
    start: Address
    device: torch.device

    def __post_init__(self) -> None:
        check_divides(self.batch_size)
        self.team = self._sharing(process_group())
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

    def _sharing(self, team: ProcessGroup) -> ProcessGroup:
        """Who of the `team` share the batches: of too few images every process has all."""
        return team if len(self.data) >= team.size else ALONE

    def _images_of_epoch(self) -> int:
        """Processes share every batch equally: images of the last batch beyond that are left out of the epoch."""
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

    def _order(self, random: torch.Generator) -> Tensor:
        """Which images an epoch has in which order, on the CPU."""
        return torch.randperm(len(self.data), generator=random)[: self.num_images]


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
        random = generator(self.address(epoch))
        order = self._order(random)
        changes = Changes(self.augmentation, torch.Size((len(order), 3, *self.data.image_size)), random)
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
    """The images stay where they are kept: in the host's memory, on disk or, of photos of many sizes, on the device.
    Some batches at a time are sent to the device and augmented there, on a GPU while it trains on those before. A
    second thread gathers the next ones.

    Every batch has equal parts of all strata (`Stack.strata`), one after the other, and each process has some strata.
    So the batches are the same for any number of processes. A single stratum is shared image by image.
    """

    def __post_init__(self) -> None:
        check_divides(self.batch_size)
        self._strata = self.data.stack.strata(self.batch_size, process_group().size)
        super().__post_init__()
        share = slice(0, len(self._strata))
        own = self._strata[self.team.part_of(share)] if len(self._strata) > 1 else self._strata
        self.data.stack[torch.cat(own)].load()

    def _sharing(self, team: ProcessGroup) -> ProcessGroup:
        if len(self._strata) == 1:
            return super()._sharing(team)
        return ALONE if len(self._strata) % team.size else team

    def _images_of_epoch(self) -> int:
        count = len(self._strata)
        return super()._images_of_epoch() if count == 1 else count * (len(self.data) // count)

    def _order(self, random: torch.Generator) -> Tensor:
        size = self.num_images // len(self._strata)
        shuffled = [own[torch.randperm(len(own), generator=random)][:size] for own in self._strata]
        parts = zip(*(own.split(self.batch_size // len(self._strata)) for own in shuffled), strict=True)
        return torch.cat([torch.cat(part) for part in parts])

    def batches(self, epoch: int, first_step: int = 0) -> Iterator[Batch]:
        random = generator(self.address(epoch))
        order = self._order(random)
        images = self.data.stack.epoch(order, self.augmentation, random)
        parts = self._parts(first_step)
        begun: deque[torch.cuda.Event] = deque()

        def gather(part: slice) -> Callable[[], tuple[Tensor, Tensor]]:
            """Collect images and labels on the host; the returned function sends them to the device."""
            send, labels = images.gathered(part, self.device), self.data.labels[order[part]]
            labels = labels.pin_memory() if self.device.type == "cuda" else labels
            return lambda: (send(), labels.to(self.device, non_blocking=True))

        with ThreadPoolExecutor(max_workers=1) as gathering:
            coming = deque(gathering.submit(gather, part) for part in parts[:1])
            for following in (*parts[1:], *[None] * bool(parts)):
                prepare = coming.popleft().result()
                if following is not None:
                    coming.append(gathering.submit(gather, following))
                if self.device.type == "cuda":
                    self._keep_close(begun)
                    prepared = _beside(self.device, prepare)
                else:
                    prepared = prepare()
                yield from map(Batch, *(tensor.split(self.batch_size) for tensor in prepared))

    def _keep_close(self, begun: deque[torch.cuda.Event]) -> None:
        """Wait until the device is no more than `PARTS_AHEAD` parts behind: else they would fill its memory."""
        begun.append(torch.cuda.Event(blocking=True))
        begun[-1].record(torch.cuda.current_stream(self.device))
        if len(begun) > PARTS_AHEAD:
            begun.popleft().synchronize()

    def _parts(self, first_step: int) -> list[slice]:
        """The epoch in pieces of whole batches, from `first_step` on."""
        height, width = self.data.image_size
        team = self.team
        size = self.batch_size * (max(1, STREAMED_PIXELS // (self.batch_size * height * width)) if team.is_alone else 1)
        starts = range(first_step * self.batch_size, self.num_images, size)
        whole = [slice(start, min(start + size, self.num_images)) for start in starts]
        return [team.part_of(part) for part in whole]


def make_feed(
    data: ImageSet,
    augmentation: Augmentation,
    batch_size: int,
    address: Address,
    device: torch.device,
    resident: Literal["auto", "on", "off", "disk"] = "auto",
) -> Feed:
    """A resident feed, or a streamed one where `resident` says so or, on `auto`, where the images do not fit."""
    is_resident = process_group().is_alone and data.stack.is_resident(device, resident)
    return (ResidentFeed if is_resident else StreamedFeed)(data, augmentation, batch_size, address, device)
