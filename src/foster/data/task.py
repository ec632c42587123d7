"""Task: the images that a method gets when new classes arrive."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from foster.data.images import ImageSet, concatenate


@dataclass(frozen=True, eq=False)
class Task:
    """The images of the new classes and the exemplars of the known ones.

    `index` counts tasks from 0. `num_known` classes were learned before the task, and `num_new` are new. Class ids are
    in the order of arrival: the new ones are `num_known` to `num_known + num_new - 1`. The new images may also have
    images of known classes; exemplars of these classes are then selected again.
    """

    index: int
    num_known: int
    num_new: int
    new_images: ImageSet
    exemplars: ImageSet | None = None

    @property
    def num_total(self) -> int:
        """The number of classes after this task."""
        return self.num_known + self.num_new

    @property
    def is_first(self) -> bool:
        return self.index == 0

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of all classes up to this task."""
        return self.new_images.class_names

    @cached_property
    def class_ids(self) -> tuple[int, ...]:
        """The classes of the new images: all new classes, and known ones that come again."""
        return tuple(self.new_images.labels.unique(sorted=True).tolist())

    @cached_property
    def candidates(self) -> ImageSet:
        """The images from which exemplars are selected: the new ones, and the exemplars of classes that come again."""
        if self.exemplars is None:
            return self.new_images
        labels = self.exemplars.labels
        comes_again = torch.isin(labels, self.new_images.labels.unique().to(labels.device))
        return concatenate(self.new_images, self.exemplars.select(comes_again))

    @cached_property
    def training(self) -> ImageSet:
        """All training images: the new images, followed by the exemplars."""
        return self.new_images if self.exemplars is None else concatenate(self.new_images, self.exemplars)

    @cached_property
    def class_counts(self) -> Tensor:
        """The number of images of each class in `training`, `[num_total]` int64 on the CPU."""
        return self.training.class_counts()
