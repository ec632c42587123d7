"""Feeds: the batches of an epoch, shuffled and augmented as whole tensors, from images on the device or on the host."""

import functools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from foster.data.augmentation.pipeline import Changes
from foster.data.images import Gather, ImageSet
from foster.seeding import Address, generator
from foster.settings.augmentation import Augmentation
from foster.system.processes import ALONE, ProcessGroup, check_divides, process_group

STREAMED_PIXELS = 1 << 22
"""A streamed feed sends at most this many pixels at a time, and at least one batch."""

PARTS_AHEAD = 2
"""How many of these parts a streamed feed prepares ahead of the device."""


@dataclass(frozen=True)
class Batch:
    """Images `[B, 3, H, W]` and labels `[B]` on the device: uint8 from a feed, normalised for an objective."""

    images: Tensor
    labels: Tensor
    beside: Mapping[str, Tensor] = field(default_factory=dict)
    """Further tensors with a row for each image: `ImageSet.beside`, and `index`."""
    other_views: tuple[Tensor, ...] = ()
    """The same images, augmented again, if the phase has `num_views` above 1."""
    replay: "Batch | None" = None
    """A batch of the phase's replay images, drawn for this step; None without replay."""

    @property
    def index(self) -> Tensor:
        """The position of each image in the phase's data (of a replay batch: in its replay images), `[B]` int64."""
        return self.beside["index"]

    @property
    def exemplar(self) -> Tensor:
        """Whether each image comes from the memory, bool `[B]`."""
        return self.beside["exemplar"]

    @property
    def views(self) -> tuple[Tensor, ...]:
        return (self.images, *self.other_views)

    def tensors(self) -> list[Tensor]:
        """All tensors, in the same order for all batches of a feed."""
        replay = self.replay.tensors() if self.replay else []
        return [*self.views, self.labels, *self.beside.values(), *replay]

    def prepared(self, prepare: Callable[[Tensor], Tensor]) -> "Batch":
        """The batch with `prepare` applied to all images."""
        images, *others = map(prepare, self.views)
        replay = self.replay.prepared(prepare) if self.replay else None
        return replace(self, images=images, other_views=tuple(others), replay=replay)


def images_of_epoch(num_images: int, batch_size: int, smallest_batch: int = 2) -> int:
    """The number of images of an epoch: all, except a last batch of fewer than `smallest_batch` images."""
    last = num_images % batch_size
    return num_images - last if last < smallest_batch and num_images > batch_size else num_images


@dataclass(eq=False)
class Feed:
    """The batches of every epoch. Order and augmentation depend only on the address `start` (seed, task, phase) and the
    epoch, so all kinds of feeds give the same batches.

    The last batch of an epoch may be smaller. One of fewer than `smallest_batch` images is left out: BatchNorm has no
    statistics of one image, and a full step on a few costs accuracy. The next epoch leaves out others.
    """

    data: ImageSet
    augmentation: Augmentation
    batch_size: int
    start: Address
    device: torch.device
    num_views: int = 1
    """How many times each image of a batch is augmented, with different random numbers."""
    has_rows: bool = False
    """Whether batches have rows `beside` their images, such as the index of each image."""
    num_draws: int = 0
    """If above 0, an epoch has this many full batches, each drawn at random from all images."""
    replay: "Feed | None" = None
    """The feed of the replay batches."""
    smallest_batch: int = 2

    def __post_init__(self) -> None:
        check_divides(self.batch_size)
        self._rows: dict[str, Tensor] = {}
        if self.has_rows:
            index = torch.arange(len(self.data), device=self.data.labels.device)
            self._rows = {"index": index, "exemplar": torch.zeros_like(index, dtype=torch.bool), **self.data.beside}
        self.team = self._sharing(process_group())
        self.num_images = self._images_of_epoch()
        self.num_steps = -(-self.num_images // self.batch_size)

    @property
    def full_size(self) -> int:
        """The size of a full batch in this process."""
        return min(self.batch_size, self.num_images) // self.team.size

    @property
    def last_size(self) -> int:
        """The size of the last batch of an epoch in this process."""
        return (self.num_images % self.batch_size or self.batch_size) // self.team.size

    def _sharing(self, team: ProcessGroup) -> ProcessGroup:
        """The processes that divide the batches. With fewer images than processes, each process has all images."""
        return team if len(self.data) >= team.size else ALONE

    def _images_of_epoch(self) -> int:
        """The number of images of an epoch. Processes divide every batch equally; the remainder of the last one is left
        out."""
        if self.num_draws:
            return self.num_draws * self.batch_size
        num_images = images_of_epoch(len(self.data), self.batch_size, self.smallest_batch)
        return num_images - num_images % self.batch_size % self.team.size

    def batches(self, epoch: int, first_step: int = 0) -> Iterator[Batch]:
        """The batches of one epoch, from `first_step` on; repeated calls give the same batches."""
        if self.replay is None:
            return self._batches(epoch, first_step)
        pairs = zip(self._batches(epoch, first_step), self.replay._batches(epoch, first_step), strict=True)
        return (replace(batch, replay=drawn) for batch, drawn in pairs)

    def _batches(self, epoch: int, first_step: int) -> Iterator[Batch]:
        """The same without the replay batches."""
        raise NotImplementedError

    def noise(self, size: int) -> Batch:
        """A batch of random pixels and zero labels and rows, for recording a step."""
        shape = (size, 3, *self.data.image_size)
        views = [torch.randint(256, shape, device=self.device).to(torch.uint8) for _ in range(self.num_views)]
        rows = [row.new_zeros((size, *row.shape[1:]), device=self.device) for row in self._columns()]
        drawn = self.replay.noise(self.replay.full_size) if self.replay else None
        return replace(self._batch([*views, *rows]), replay=drawn)

    def _columns(self) -> list[Tensor]:
        return [self.data.labels, *self._rows.values()]

    def _batch(self, tensors: Sequence[Tensor]) -> Batch:
        """The batch of these tensors: views, labels and rows."""
        images, *others = tensors[: self.num_views]
        labels, *rows = tensors[self.num_views :]
        return Batch(images, labels, dict(zip(self._rows, rows, strict=True)), tuple(others))

    def address(self, epoch: int) -> Address:
        return replace(self.start, epoch=epoch)

    def _other_views(self, epoch: int) -> list[torch.Generator]:
        """The generators of the augmentation of all views but the first."""
        purposes = [f"{self.start.purpose} view {number}" for number in range(2, self.num_views + 1)]
        return [generator(replace(self.address(epoch), purpose=purpose)) for purpose in purposes]

    def _order(self, random: torch.Generator) -> Tensor:
        """The positions of an epoch's images in order, on the CPU."""
        return self._shuffled(len(self.data), self.num_images, random)

    def _shuffled(self, num_images: int, count: int, random: torch.Generator) -> Tensor:
        """`count` random positions among `num_images`: a permutation, or drawn for each batch if `num_draws` is set."""
        if not self.num_draws:
            return torch.randperm(num_images, generator=random)[:count]
        size = count // self.num_draws
        if size > num_images:
            return torch.randint(num_images, (count,), generator=random)
        return torch.cat([torch.randperm(num_images, generator=random)[:size] for _ in range(self.num_draws)])


class ResidentFeed(Feed):
    """A feed whose images are on the device, where an epoch is augmented as one tensor.

    On a GPU, augmentation has its own stream. The host is about an epoch ahead, so an epoch is augmented while the
    previous one is trained.
    """

    def __post_init__(self) -> None:
        self.data = self.data.to(self.device)
        super().__post_init__()
        if self.device.type == "cuda":
            self._arrival = torch.cuda.current_stream(self.device).record_event()

    def _batches(self, epoch: int, first_step: int) -> Iterator[Batch]:
        if self.device.type == "cuda":
            _side_stream(self.device).wait_event(self._arrival)
            tensors = _beside(self.device, lambda: self._prepared(epoch))
        else:
            tensors = self._prepared(epoch)
        for start in range(first_step * self.batch_size, self.num_images, self.batch_size):
            yield self._batch([tensor[start : start + self.batch_size] for tensor in tensors])

    def _prepared(self, epoch: int) -> list[Tensor]:
        """The views, labels and rows of a whole epoch."""
        random = generator(self.address(epoch))
        order = self._order(random)
        shape = torch.Size((len(order), 3, *self.data.image_size))
        changes = [Changes(self.augmentation, shape, each) for each in (random, *self._other_views(epoch))]
        if self.device.type == "cuda":
            order = order.pin_memory().to(self.device, non_blocking=True)  # asynchronous only from pinned memory
        images = self.data.images[order]
        return [*(each.done_to_all(images) for each in changes), *(column[order] for column in self._columns())]


def _beside(device: torch.device, prepare: Callable[[], list[Tensor]]) -> list[Tensor]:
    """Run `prepare` in a side stream; the current stream, not the host, waits for the result."""
    main, side = torch.cuda.current_stream(device), _side_stream(device)
    with torch.cuda.stream(side):
        prepared = prepare()
    main.wait_stream(side)
    for tensor in prepared:
        tensor.record_stream(main)
    return prepared


@functools.cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """One stream for all feeds: memory that was freed in a stream is reused only there."""
    return torch.cuda.Stream(device)


class StreamedFeed(Feed):
    """A feed whose images stay in the host's memory, on disk or, for photos of different sizes, on the device. Some
    batches at a time are sent to the device and augmented there, while a GPU trains on the previous ones. A second
    thread gathers the next ones.

    Every batch has equal parts of all strata (`Stack.strata`), in order, and each process has some of the strata, so
    the batches are the same for any number of processes. A single stratum is divided by images.
    """

    def __post_init__(self) -> None:
        check_divides(self.batch_size)
        self._strata = self.data.stack.strata(self.batch_size, process_group().size)
        super().__post_init__()
        share = slice(0, len(self._strata))
        strata = self._strata[self.team.part_of(share)] if len(self._strata) > 1 else self._strata
        self.data.stack[torch.cat(strata)].load()

    def _sharing(self, team: ProcessGroup) -> ProcessGroup:
        if len(self._strata) == 1:
            return super()._sharing(team)
        return ALONE if len(self._strata) % team.size else team

    def _images_of_epoch(self) -> int:
        count = len(self._strata)
        if count == 1 or self.num_draws:
            return super()._images_of_epoch()
        return images_of_epoch(count * (len(self.data) // count), self.batch_size, self.smallest_batch)

    def _order(self, random: torch.Generator) -> Tensor:
        size = self.num_images // len(self._strata)
        shuffled = [stratum[self._shuffled(len(stratum), size, random)] for stratum in self._strata]
        parts = zip(*(stratum.split(self.batch_size // len(self._strata)) for stratum in shuffled), strict=True)
        return torch.cat([torch.cat(part) for part in parts])

    def _batches(self, epoch: int, first_step: int) -> Iterator[Batch]:
        random = generator(self.address(epoch))
        order = self._order(random)
        randoms = (random, *self._other_views(epoch))
        views = [self.data.stack.epoch(order, self.augmentation, each) for each in randoms]
        begun: deque[torch.cuda.Event] = deque()
        coming: Future[Callable[[], list[Tensor]]] | None = None
        with ThreadPoolExecutor(max_workers=1) as thread:
            # One part ahead: the first round only begins to gather, the last one only receives.
            for part in (*self._parts(first_step), None):
                gathered, coming = coming, thread.submit(self._gather, part, order, views) if part else None
                if gathered is None:
                    continue
                send = gathered.result()
                if self.device.type == "cuda":
                    self._keep_close(begun)
                    tensors = _beside(self.device, send)
                else:
                    tensors = send()
                yield from map(self._batch, zip(*(tensor.split(self.batch_size) for tensor in tensors), strict=True))

    def _gather(self, part: slice, order: Tensor, views: Sequence[Gather]) -> Callable[[], list[Tensor]]:
        """Gather images, labels and rows on the host; the returned function sends them to the device."""
        images = [view(part, self.device) for view in views]
        columns = [column[order[part]] for column in self._columns()]
        columns = [column.pin_memory() for column in columns] if self.device.type == "cuda" else columns
        return lambda: [send() for send in images] + [each.to(self.device, non_blocking=True) for each in columns]

    def _keep_close(self, begun: deque[torch.cuda.Event]) -> None:
        """Wait until the device is at most `PARTS_AHEAD` parts behind; otherwise parts would fill its memory."""
        begun.append(torch.cuda.Event(blocking=True))
        begun[-1].record(torch.cuda.current_stream(self.device))
        if len(begun) > PARTS_AHEAD:
            begun.popleft().synchronize()

    def _parts(self, first_step: int) -> list[slice]:
        """The epoch in slices of whole batches, from `first_step` on."""
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
    num_views: int = 1,
    has_rows: bool = False,
    replay: ImageSet | None = None,
    smallest_batch: int = 2,
) -> Feed:
    """A resident feed, or a streamed one if `resident` says so or, with `auto`, if the images do not fit on the device.

    With `replay`, each batch has a second batch of `batch_size` of these images.
    """

    def kind(images: ImageSet) -> type[Feed]:
        is_resident = process_group().is_alone and images.stack.is_resident(device, resident)
        return ResidentFeed if is_resident else StreamedFeed

    settings = (augmentation, batch_size)
    feed = kind(data)(data, *settings, address, device, num_views, has_rows, smallest_batch=smallest_batch)
    if replay is not None:
        again = replace(address, purpose=f"{address.purpose} replay")
        feed.replay = kind(replay)(replay, *settings, again, device, num_views, has_rows, feed.num_steps)
    return feed
