"""Feed: one epoch at a time, shuffled and augmented as whole tensors."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from foster.data.augmentation import Augmentation, augment
from foster.data.images import ImageSet
from foster.seeding import Address, generator


@dataclass(frozen=True)
class Batch:
    """Images `[B, 3, H, W]` uint8 and labels `[B]`, on the feed's device."""

    images: Tensor
    labels: Tensor


def images_of_epoch(num_images: int, batch_size: int) -> int:
    """How many of `num_images` take part in an epoch: all but a single left-over one."""
    is_lone = num_images > 1 and num_images % batch_size == 1
    return num_images - is_lone


class ResidentFeed:
    """The whole training set on one device; the order and the augmentation depend on seed, task, phase and epoch.

    The last batch of an epoch holds what is left over. A single left-over image sits the epoch out: BatchNorm has
    no statistics of one image, and the next epoch's order leaves out another.
    """

    def __init__(
        self, data: ImageSet, augmentation: Augmentation, batch_size: int, address: Address, device: torch.device
    ) -> None:
        self._data = data.to(device)
        self._augmentation = augmentation
        self._address = address
        self._device = device
        self.batch_size = batch_size
        self.num_images = images_of_epoch(len(data), batch_size)
        self.last_size = self.num_images % batch_size or batch_size
        self.num_steps = -(-self.num_images // batch_size)

    def batches(self, epoch: int, first_step: int = 0) -> Iterator[Batch]:
        """The batches of one epoch, from `first_step` on: the same ones whenever they are asked for."""
        address = Address(self._address.seed, self._address.purpose, self._address.task, self._address.phase, epoch)
        chance = generator(address)
        order = torch.randperm(len(self._data), generator=chance)[: self.num_images].to(self._device)
        images = augment(self._data.images[order], self._augmentation, chance)
        labels = self._data.labels[order]
        for start in range(first_step * self.batch_size, self.num_images, self.batch_size):
            end = start + self.batch_size
            yield Batch(images[start:end], labels[start:end])
