"""Task: what a method sees of the data when new classes arrive."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from foster.data.images import ImageSet, concatenate


@dataclass(frozen=True, eq=False)
class Task:
    """The images of the new classes and the exemplars of the known ones; no test images, no later classes.

    `index` counts tasks from 0, `num_known` classes were learned before it and `num_new` come with it. Class ids
    are the order of arrival: the new ones are `num_known` to `num_known + num_new - 1`. Among the new images there may
    be more images of known classes; then those classes are selected anew, too.
    """

    index: int
    num_known: int
    num_new: int
    new_images: ImageSet
    exemplars: ImageSet | None = None

    @property
    def num_total(self) -> int:
        """How many classes are seen once this task is learned."""
        return self.num_known + self.num_new

    @property
    def is_first(self) -> bool:
        return self.index == 0

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of all classes seen so far."""
        return self.new_images.class_names

    @cached_property
    def class_ids(self) -> tuple[int, ...]:
        """The classes that bring new images: all new ones, and known ones that come again."""
        return tuple(self.new_images.labels.unique(sorted=True).tolist())

    @cached_property
    def candidates(self) -> ImageSet:
        """The images among which exemplars are chosen: the new ones, and the exemplars of classes that come again."""
        if self.exemplars is None:
            return self.new_images
        labels = self.exemplars.labels
        comes_again = torch.isin(labels, self.new_images.labels.unique().to(labels.device))
        return concatenate(self.new_images, self.exemplars.select(comes_again))

    @cached_property
    def training(self) -> ImageSet:
        """All there is to train on: the new images, followed by the exemplars."""
        return self.new_images if self.exemplars is None else concatenate(self.new_images, self.exemplars)

    @cached_property
    def class_counts(self) -> Tensor:
        """How many images each class has in `training`, `[num_total]` int64 on the CPU."""
        return self.training.class_counts(self.num_total)
