"""A validation part of the training images."""

import pytest
import torch

from foster.data.images import ImageSet
from foster.data.validation import hold_out
from foster.errors import DataError


def numbered(*counts: int) -> ImageSet:
    """`counts[c]` images of class c, in mixed order; the first pixels of each image give its number."""
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))]
    images = torch.zeros(len(labels), 3, 2, 2, dtype=torch.uint8)
    images[:, 0, 0, 0] = torch.arange(len(labels)) % 256
    return ImageSet(images, labels, tuple(f"class {k}" for k in range(len(counts))))


def numbers(images: ImageSet) -> set[int]:
    return set(images.images[:, 0, 0, 0].tolist())


@pytest.mark.parametrize(
    ("share", "held_out"), [(0.1, [2, 1, 1]), (0.5, [10, 2, 1]), (0.25, [5, 1, 1]), (0.99, [19, 4, 1])]
)
def test_every_class_gives_its_share_at_least_one_image_and_never_all(share: float, held_out: list[int]) -> None:
    train, validation = hold_out(numbered(20, 5, 2), share, seed=3)
    assert validation.class_counts().tolist() == held_out
    assert train.class_counts().tolist() == [20 - held_out[0], 5 - held_out[1], 2 - held_out[2]]


def test_the_two_parts_are_the_whole_and_share_nothing() -> None:
    images = numbered(20, 30)
    train, validation = hold_out(images, 0.3, seed=3)
    assert not numbers(train) & numbers(validation)
    assert numbers(train) | numbers(validation) == numbers(images)
    for part in (train, validation):
        assert part.class_names == images.class_names
        positions = part.images[:, 0, 0, 0].long()
        assert torch.equal(part.labels, images.labels[positions])


def test_the_choice_depends_on_the_seed_alone() -> None:
    images = numbered(40, 40)
    first = numbers(hold_out(images, 0.3, seed=3)[1])
    torch.rand(5)
    assert numbers(hold_out(images, 0.3, seed=3)[1]) == first
    assert numbers(hold_out(images, 0.3, seed=4)[1]) != first


def test_a_class_with_one_image_cannot_give_one() -> None:
    with pytest.raises(DataError, match="class 'class 1' has 1 images, too few to hold one out"):
        hold_out(numbered(3, 1), 0.1, seed=0)
