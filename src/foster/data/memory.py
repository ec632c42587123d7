"""ExemplarMemory: the images of known classes that a learner keeps, within a budget, and how they are selected."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from foster.data.herding import herding_by_class, positions_by_class, random_selection
from foster.data.images import ImageSet, Stack, ids_of, joined
from foster.data.photos.album import Album
from foster.data.photos.darkroom import Darkroom
from foster.data.photos.encoded import PhotoBytes
from foster.errors import DataError, words_of
from foster.networks.layout import on_host

FeaturesOf = Callable[[Stack], Tensor]
"""Images -> features `[N, d]`."""


class ExemplarMemory:
    """One stack of images per class id, in selection order; ids count up from 0 in order of arrival.

    `total` images are shared by all classes, or every class may keep `per_class`; with neither, there is no limit.
    The memory owns copies of its images on the CPU: the data that they came from may be deleted. Photos of many sizes
    are kept as their encoded files, which `darkroom` decodes again.
    """

    def __init__(
        self, total: int | None = None, per_class: int | None = None, darkroom: Darkroom | None = None
    ) -> None:
        self.total = total
        self.per_class = per_class
        self.darkroom = darkroom
        self._stacks: list[Stack] = []
        self._together: Stack | None = None

    @property
    def num_classes(self) -> int:
        return len(self._stacks)

    @property
    def num_images(self) -> int:
        return sum(len(stack) for stack in self._stacks)

    @property
    def num_bytes(self) -> int:
        return sum(stack.nbytes for stack in self._stacks)

    @property
    def counts(self) -> Tensor:
        """How many exemplars each class holds, `[num_classes]` int64."""
        return torch.tensor([len(stack) for stack in self._stacks], dtype=torch.int64)

    def stack_of(self, class_id: int) -> Stack:
        """The exemplars of one class in selection order."""
        if not 0 <= class_id < self.num_classes:
            raise DataError(f"class {class_id} is not in memory, which holds {self.num_classes} classes from 0")
        return self._stacks[class_id]

    def ids(self) -> set[str]:
        """The ids of all exemplars (`ids_of`)."""
        return {one for stack in self._stacks for one in ids_of(stack)}

    def hold_those_of(self, other: "ExemplarMemory") -> None:
        """Hold what another memory holds; the budget stays this one's own."""
        self._hold(other._stacks)

    def quota(self, num_classes: int) -> int | None:
        """How many images a class may keep when there are `num_classes`; None for no limit."""
        return self.per_class if self.total is None else self.total // num_classes

    def trim(self, num_classes: int) -> None:
        """Make room for `num_classes`: every class keeps its first `quota(num_classes)` images."""
        quota = self.quota(num_classes)
        if quota is not None:
            # A slice alone would keep the trimmed images alive.
            self._hold([self._own(stack[:quota]) if len(stack) > quota else stack for stack in self._stacks])

    def remember(self, class_id: int, images: Stack) -> None:
        """Keep `images`, in selection order, for the next class id or in place of a known one's.

        The budget is a promise: make room with `trim` first.
        """
        if not 0 <= class_id <= self.num_classes:
            raise ValueError(f"class id {class_id} is neither known nor the next one, {self.num_classes}")
        own = len(self._stacks[class_id]) if class_id < self.num_classes else 0
        self._check_budget(class_id, len(images), self.num_images - own)
        self._stacks[class_id : class_id + 1] = [self._own(images)]
        self._together = None

    def exemplars(self, class_names: Sequence[str]) -> ImageSet | None:
        """All exemplars, by class id and then in selection order; None where there are none."""
        if self.num_images == 0:
            return None
        labels = torch.repeat_interleave(torch.arange(self.num_classes), self.counts)
        return ImageSet(self._all_images(), labels, tuple(class_names))

    def state(self) -> dict[str, Tensor]:
        """`images` uint8 `[num_images, 3, H, W]` by class id, and `counts` int64 `[num_classes]`.

        In place of images, photos have `contents`, their encoded files one after the other, and `lengths`, their bytes.
        """
        images = self._all_images()
        return ({"images": images} if isinstance(images, Tensor) else _packed(images)) | {"counts": self.counts}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Hold exactly what `state()` returned; the budget stays this memory's own."""
        try:
            counts, images = state["counts"], self._unpacked(state)
            if int(counts.sum()) != len(images) or bool((counts < 0).any()):
                raise ValueError(f"{len(images)} images for classes of {counts.tolist()}")
        except (KeyError, RuntimeError, ValueError) as error:
            raise DataError(f"exemplar memory is damaged: {words_of(error)}") from None
        ends = counts.cumsum(0).tolist()
        self._hold([self._own(images[end - count : end]) for end, count in zip(ends, counts.tolist(), strict=True)])

    def _unpacked(self, state: Mapping[str, Tensor]) -> Stack:
        """All images of a state."""
        pixels = state["contents"] if "contents" in state else state["images"]
        if pixels.dtype != torch.uint8 or (pixels.ndim != 4 and pixels is not state.get("contents")):
            raise ValueError(f"{pixels.dtype} of shape {tuple(pixels.shape)}")
        if "contents" not in state:
            return pixels
        if self.darkroom is None:
            raise ValueError("it holds photos, and the run has images of one size")
        files = [part.numpy().tobytes() for part in pixels.split(state["lengths"].tolist())]
        return Album.of(PhotoBytes(files), self.darkroom, "the exemplars")

    def _own(self, images: Stack) -> Stack:
        """A compact copy on the CPU that shares nothing with `images`."""
        return images.owned() if isinstance(images, Album) else on_host(images)

    def _hold(self, stacks: Sequence[Stack]) -> None:
        self._stacks = list(stacks)
        self._together = None

    def _all_images(self) -> Stack:
        if self._together is None:
            together = joined(self._stacks) if self._stacks else torch.empty(0, 3, 0, 0, dtype=torch.uint8)
            # Photos of one list: they are decoded together, once for all who ask.
            self._together = self._own(together) if isinstance(together, Album) else together
        return self._together

    def _check_budget(self, class_id: int, num_new: int, num_others: int) -> None:
        over_total = self.total is not None and num_others + num_new > self.total
        over_per_class = self.per_class is not None and num_new > self.per_class
        if over_total or over_per_class:
            budget = f"{self.total} in all" if over_total else f"{self.per_class} a class"
            raise ValueError(
                f"{num_new} images for class {class_id} beside {num_others} others exceed {budget}; "
                f"trim the memory and select at most quota(num_classes) images"
            )


class BorrowedMemory(ExemplarMemory):
    """What another memory holds, to try something with: nothing is copied, and nothing is encoded."""

    def __init__(self, other: ExemplarMemory) -> None:
        super().__init__(other.total, other.per_class, other.darkroom)
        self.hold_those_of(other)

    def _own(self, images: Stack) -> Stack:
        return images


def _packed(photos: Album) -> dict[str, Tensor]:
    """The encoded files of photos in one piece, and the bytes of each."""
    contents = photos.contents()
    whole = torch.frombuffer(bytearray(b"".join(contents)), dtype=torch.uint8) if contents else torch.empty(0).byte()
    return {"contents": whole, "lengths": torch.tensor([len(content) for content in contents], dtype=torch.int64)}


def select(
    features_of: FeaturesOf,
    images: ImageSet,
    class_ids: Sequence[int],
    quota: int | None,
    selection: str,
    generator: torch.Generator,
) -> dict[int, Stack]:
    """For each class id, up to `quota` of its images, in selection order: by herding, or at random.

    `features_of` is called at most once, on the images of these classes alone. Without a quota, every image is kept
    in its given order.
    """
    is_wanted = torch.isin(images.labels, torch.as_tensor(class_ids, device=images.labels.device))
    wanted = images if bool(is_wanted.all()) else images.select(is_wanted)
    chosen = positions_by_class(wanted.labels, class_ids)
    if quota is not None and selection == "herding":
        chosen = herding_by_class(features_of(wanted.stack), wanted.labels, class_ids, quota)
    elif quota is not None:
        chosen = [own[random_selection(len(own), quota, generator).to(own.device)] for own in chosen]
    device = wanted.stack.device
    return {class_id: wanted.stack[positions.to(device)] for class_id, positions in zip(class_ids, chosen, strict=True)}
