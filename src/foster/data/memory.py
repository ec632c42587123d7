"""ExemplarMemory: the images of known classes that a method keeps within a budget, and their selection."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from foster.data.herding import herding_by_class, positions_by_class, random_selection
from foster.data.images import ImageSet, Stack, TensorStack, as_stack, joined, joined_rows
from foster.errors import DataError, words_of
from foster.networks.modules import on_host

NO_IMAGES = TensorStack(torch.empty(0, 3, 0, 0, dtype=torch.uint8))

BESIDE = "beside."
"""The prefix, in a checkpoint, of the names of tensors that are kept beside the exemplars."""


class ExemplarMemory:
    """One stack of images for each class id, in selection order.

    The budget is `total` images for all classes, or `per_class` for each; with neither, there is no limit. The memory
    has copies of its images on the CPU, so the original data may be deleted. Photos of different sizes are kept as
    their encoded files. `load_state` restores a stack of the same kind as `kind`, which may be empty. `keep` stores
    further tensors, with a row for each image; their rows are trimmed, selected and saved with the images.
    """

    def __init__(self, total: int | None = None, per_class: int | None = None, kind: Stack = NO_IMAGES) -> None:
        self.total = total
        self.per_class = per_class
        self.kind = kind
        self._stacks: list[Stack] = []
        self._rows: list[Mapping[str, Tensor]] = []
        """The tensors beside the images of each class."""
        self._together: Stack | None = None

    @property
    def num_classes(self) -> int:
        return len(self._stacks)

    @property
    def num_images(self) -> int:
        return sum(len(stack) for stack in self._stacks)

    @property
    def num_bytes(self) -> int:
        """The bytes of the images and of the tensors beside them."""
        beside = sum(tensor.nbytes for rows in self._rows for tensor in rows.values())
        return sum(stack.nbytes for stack in self._stacks) + beside

    @property
    def counts(self) -> Tensor:
        """The number of exemplars of each class, `[num_classes]` int64."""
        return torch.tensor([len(stack) for stack in self._stacks], dtype=torch.int64)

    def stack_of(self, class_id: int) -> Stack:
        """The exemplars of one class in selection order."""
        return self._stacks[class_id]

    def hold_those_of(self, other: "ExemplarMemory") -> None:
        """Replace the content by that of another memory; the budget does not change."""
        self._hold(other._stacks, other._rows)

    def quota(self, num_classes: int) -> int | None:
        """The number of images that each of `num_classes` may keep; None for no limit."""
        return self.per_class if self.total is None else self.total // num_classes

    def trim(self, num_classes: int) -> None:
        """Keep only the first `quota(num_classes)` images of every class."""
        quota = self.quota(num_classes)
        if quota is not None:
            # A slice would keep the trimmed images in memory; copy it.
            stacks = [stack[:quota].owned() if len(stack) > quota else stack for stack in self._stacks]
            self._hold(stacks, [_owned({name: rows[:quota] for name, rows in kept.items()}) for kept in self._rows])

    def remember(self, class_id: int, images: Stack | Tensor, beside: Mapping[str, Tensor] | None = None) -> None:
        """Keep `images`, in selection order, for the next class id, or replace those of a known class. `beside` has
        further tensors to keep, with a row for each image.

        Raises ValueError if the budget is exceeded: call `trim` first.
        """
        if not 0 <= class_id <= self.num_classes:
            raise ValueError(f"class id {class_id} is neither known nor the next one, {self.num_classes}")
        num_replaced = len(self._stacks[class_id]) if class_id < self.num_classes else 0
        is_over_total = self.total is not None and self.num_images - num_replaced + len(images) > self.total
        if is_over_total or (self.per_class is not None and len(images) > self.per_class):
            raise ValueError(
                f"{len(images)} images for class {class_id} exceed the budget; "
                "trim the memory and select at most quota(num_classes) images"
            )
        self._stacks[class_id : class_id + 1] = [as_stack(images).owned()]
        self._rows[class_id : class_id + 1] = [_owned(beside or {})]
        self._together = None

    def keep(self, /, **tensors: Tensor) -> None:
        """Keep tensors beside the exemplars: after `memory.keep(logits=logits)`, `exemplars(...)` has
        `beside["logits"]`. Each tensor has a row for each exemplar, in the order of `exemplars`."""
        parts = {name: tensor.split(self.counts.tolist()) for name, tensor in tensors.items()}
        self._rows = [
            {**rows, **_owned({name: part[k] for name, part in parts.items()})} for k, rows in enumerate(self._rows)
        ]

    def exemplars(self, class_names: Sequence[str]) -> ImageSet | None:
        """All exemplars, by class id and then in selection order; None if there are none."""
        if self.num_images == 0:
            return None
        labels = torch.repeat_interleave(torch.arange(self.num_classes), self.counts)
        beside = {"exemplar": torch.ones(len(labels), dtype=torch.bool), **self._all_rows()}
        return ImageSet(self._all_images(), labels, tuple(class_names), beside)

    def state(self) -> dict[str, Tensor]:
        """The images by class id (`Stack.state`), `counts` int64 `[num_classes]`, and the tensors beside the images."""
        beside = {BESIDE + name: rows for name, rows in self._all_rows().items()}
        return self._all_images().state() | {"counts": self.counts} | beside

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Replace the content by what `state()` returned; the budget does not change."""
        try:
            counts, images = state["counts"], self.kind.restored(state)
            beside = {name.removeprefix(BESIDE): state[name] for name in state if name.startswith(BESIDE)}
            sizes = {len(images), *(len(rows) for rows in beside.values())}
            if sizes != {int(counts.sum())} or bool((counts < 0).any()):
                raise ValueError(f"{len(images)} images for classes of {counts.tolist()}")
            ends = counts.cumsum(0).tolist()
            stacks = [images[end - size : end].owned() for end, size in zip(ends, counts.tolist(), strict=True)]
            self._hold(stacks, [{} for _ in stacks])
            self.keep(**beside)
        except (KeyError, RuntimeError, ValueError) as error:
            raise DataError(f"exemplar memory is damaged: {words_of(error)}") from None

    def _hold(self, stacks: Sequence[Stack], rows: Sequence[Mapping[str, Tensor]]) -> None:
        self._stacks, self._rows = list(stacks), list(rows)
        self._together = None

    def _all_rows(self) -> dict[str, Tensor]:
        return joined_rows([(len(stack), rows) for stack, rows in zip(self._stacks, self._rows, strict=True)])

    def _all_images(self) -> Stack:
        if self._together is None:
            # A copy has all photos in one store, where they are decoded only once.
            self._together = (joined(self._stacks) if self._stacks else NO_IMAGES).owned()
        return self._together


def select(
    features_of: Callable[[Stack], Tensor],
    images: ImageSet,
    class_ids: Sequence[int],
    quota: int | None,
    selection: str,
    generator: torch.Generator,
) -> dict[int, ImageSet]:
    """For each class id, up to `quota` of its images in selection order, by herding or at random.

    `features_of` gives features `[N, d]`. It is called at most once, on the images of these classes. Without a quota,
    all images are selected, in the given order.
    """
    is_wanted = torch.isin(images.labels, torch.as_tensor(class_ids, device=images.labels.device))
    wanted = images if bool(is_wanted.all()) else images.select(is_wanted)
    chosen = positions_by_class(wanted.labels, class_ids)
    if quota is not None and selection == "herding":
        chosen = herding_by_class(features_of(wanted.stack), wanted.labels, class_ids, quota)
    elif quota is not None:
        chosen = [where[random_selection(len(where), quota, generator).to(where.device)] for where in chosen]
    device = wanted.labels.device
    return {k: wanted.select(positions.to(device)) for k, positions in zip(class_ids, chosen, strict=True)}


def _owned(rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies of `rows` on the CPU."""
    return {name: on_host(tensor) for name, tensor in rows.items() if name != "exemplar"}
