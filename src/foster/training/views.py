"""What a frozen trunk makes of images, computed once: each as it is, and in some augmented views; and what frozen
branches make of that, computed once a phase."""

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from foster.data.augmentation.pipeline import Changes, Normaliser
from foster.data.feed import Batch, Feed
from foster.data.images import ImageSet, Stack, as_stack, ids_of, on_device
from foster.networks.freezing import is_frozen
from foster.networks.network import Backbone
from foster.networks.trunk import Trunk
from foster.seeding import Address, generator
from foster.settings.augmentation import Augmentation
from foster.system.files import written
from foster.system.memory import main_memory
from foster.system.processes import ALONE, ProcessGroup, gathered, process_group
from foster.training.distributed import shares_of

IMAGES_AT_ONCE = {"cpu": 8, "cuda": 64}
"""A trunk sees so many images at a time: on a CPU what it makes of a few still fits into the cache."""

MAPS_AT_ONCE = 64
"""Of a trunk's maps, which are small, so many are seen at a time."""

SHARE_OF_MEMORY = 0.25
"""Maps that take more than this share of the machine's memory are kept in a file that is gone when they are."""

RECALLED_BYTES = 2**28
"""Features of one branch that would take more are computed in every step."""

Key = tuple[str, int]
"""An image's id and the number of the view: 0 for the image as it is."""


@dataclass(eq=False)
class TrunkViews:
    """Maps of a trunk in half precision, by image and view. Those of equal images are made once."""

    trunk: Trunk
    normaliser: Normaliser
    device: torch.device
    augmentation: Augmentation = field(default_factory=Augmentation)
    num_views: int = 1
    seed: int = 0
    _blocks: list[Tensor] = field(default_factory=list, repr=False)
    _slots: dict[Key, tuple[int, int]] = field(default_factory=dict, repr=False)
    _shared: set[Key] = field(default_factory=set, repr=False)
    """What all processes have."""

    def plain(self, images: Stack | Tensor) -> Tensor:
        """The maps of images as they are, float32 `[N, C, h, w]` on the device."""
        return self.gathered(self.slots(images, 1)[:, 0])

    def slots(self, images: Stack | Tensor, num_views: int, team: ProcessGroup = ALONE) -> Tensor:
        """Where the views of each image are kept, int64 `[N, num_views, 2]`; those that are not known yet are made. A
        `team` asks for the same ones together, and each process makes its share."""
        images = as_stack(images)
        names, known = ids_of(images), self._slots if team.is_alone else self._shared
        for view in range(num_views):
            missing = [k for k, name in enumerate(names) if (name, view) not in known]
            if missing:
                self._keep([(names[k], view) for k in missing], images[torch.tensor(missing)], view, team)
        locations = [self._slots[name, view] for name in names for view in range(num_views)]
        return torch.tensor(locations, dtype=torch.int64).view(len(images), num_views, 2)

    def gathered(self, slots: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """The maps at `slots` `[n, 2]`, in this order, on the device."""
        blocks, rows = slots[:, 0], slots[:, 1]
        used = blocks.unique().tolist()
        if len(used) == 1:
            maps = self._blocks[used[0]][rows]
        else:
            maps = torch.empty(len(slots), *self._blocks[0].shape[1:], dtype=torch.float16)
            for block in used:
                maps[blocks == block] = self._blocks[block][rows[blocks == block]]
        sent: Tensor = maps.to(self.device, dtype, memory_format=torch.channels_last)
        return sent

    @torch.no_grad()
    def _keep(self, keys: Sequence[Key], images: Stack, view: int, team: ProcessGroup) -> None:
        size = IMAGES_AT_ONCE.get(self.device.type, IMAGES_AT_ONCE["cpu"])
        shares = shares_of(images, team)
        own = shares[team.rank].numpy()
        random = generator(Address(self.seed, "view", epoch=view))
        changes = Changes(self.augmentation if view else Augmentation(), images.shape, random)
        block: Tensor | None = None
        for start in range(0, len(own), size):
            part = own[start : start + size]
            seen = on_device(images[torch.from_numpy(part)], self.device)
            maps = self.trunk(self.normaliser(changes.done_to(seen, part)))
            if block is None:
                block = room((len(images), *maps.shape[1:]))
            block[part] = maps.to(block)
        assert block is not None, "there is at least one image"
        if len(own) < len(images):
            parts = gathered(block[own], [len(share) for share in shares])
            for share, others in zip(shares, parts, strict=True):
                block[share] = others
        for row, key in enumerate(keys):
            self._slots.setdefault(key, (len(self._blocks), row))
        self._shared.update(() if team.is_alone else keys)
        self._blocks.append(block)


class ViewFeed(Feed):
    """The batches of every epoch as maps of a trunk: of each image one of its views, drawn anew in every epoch."""

    def __init__(
        self, data: ImageSet, views: TrunkViews, batch_size: int, address: Address, device: torch.device
    ) -> None:
        super().__init__(data, Augmentation(), batch_size, address, device)
        self._views, self.num_views = views, views.num_views
        self._slots = views.slots(data.stack, views.num_views, self.team)
        # On a GPU they travel in half of the bytes; a CPU computes with what it gathers.
        self._dtype = torch.float32 if device.type == "cpu" else torch.float16
        self._shown = torch.empty(0), torch.empty(0)

    @property
    def sample(self) -> Tensor:
        return self._views.gathered(self._slots[:1, 0], self._dtype)[:0]

    @property
    def num_rows(self) -> int:
        """All views of all images."""
        return len(self._slots) * self.num_views

    def all_maps(self) -> Iterator[Tensor]:
        """The maps of every view of the first image, then of the second, and so on, some at a time."""
        for slots in self._slots.flatten(0, 1).split(MAPS_AT_ONCE):
            yield self._views.gathered(slots, self._dtype)

    def rows_of(self, maps: Tensor) -> Tensor | None:
        """Where the last batch's maps stand among all, `[B]`; None for any other tensor."""
        shown, rows = self._shown
        return rows if maps is shown else None

    def batches(self, epoch: int, first_step: int = 0) -> Iterator[Batch]:
        random = generator(self.address(epoch))
        order = torch.randperm(len(self.data), generator=random)[: self.num_images]
        chosen = torch.randint(self.num_views, (len(order),), generator=random)
        slots, labels, rows = self._slots[order, chosen], self.data.labels[order], order * self.num_views + chosen
        for start in range(first_step * self.batch_size, self.num_images, self.batch_size):
            part = self.team.part_of(slice(start, min(start + self.batch_size, self.num_images)))
            maps = self._views.gathered(slots[part], self._dtype)
            self._shown = maps, rows[part]
            yield Batch(maps, labels[part].to(self.device, non_blocking=True))


def room(shape: tuple[int, ...]) -> Tensor:
    """Float16 of this shape on the CPU: in memory, or in a file without a name where that would be much of it."""
    num_bytes = 2 * torch.Size(shape).numel()
    if num_bytes <= SHARE_OF_MEMORY * (main_memory() or 2**33):
        return torch.empty(shape, dtype=torch.float16)
    with written(Path(tempfile.gettempdir())), tempfile.NamedTemporaryFile() as file:
        # Reserved now: a full disk is an error here, and not the end of the process when a page is written.
        os.posix_fallocate(file.fileno(), 0, num_bytes)
        return torch.from_file(file.name, shared=True, size=num_bytes // 2, dtype=torch.float16).view(shape)


@contextmanager
def recalled_features(modules: Iterable[nn.Module], feed: Feed, num_epochs: int) -> Iterator[None]:
    """Inside, frozen branches of `modules` look up the features of what `feed` shows, on a CPU and where that is less
    work. Any other input, such as a mix of two images, they see as ever.

    All features are computed beforehand, always in the same batches: a phase that goes on in the middle finds the same.
    """
    if (
        not isinstance(feed, ViewFeed)
        or feed.device.type != "cpu"
        or num_epochs <= feed.num_views
        or not process_group().is_alone
    ):
        yield
        return
    inside = (part for module in modules for part in module.modules())
    frozen = {part for part in inside if isinstance(part, Backbone) and is_frozen(part)}
    branches = [part for part in frozen if 4 * feed.num_rows * part.feature_size <= RECALLED_BYTES]
    for branch in branches:
        branch.forward = _recalling(branch, feed)  # type: ignore[assignment]
    try:
        yield
    finally:
        for branch in branches:
            del branch.forward


def _recalling(branch: Backbone, feed: ViewFeed) -> Callable[[Tensor], Tensor]:
    """The branch's `forward`, which knows what it makes of every view."""
    compute = branch.forward
    with torch.no_grad():
        table = torch.cat([compute(maps) for maps in feed.all_maps()])

    def forward(images: Tensor) -> Tensor:
        rows = feed.rows_of(images)
        return compute(images) if rows is None else table[rows]

    return forward
