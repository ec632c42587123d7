import pytest
import torch

from foster.bundle.folder import image_id
from foster.data.images import ImageSet
from foster.learning.held_out import held_out_quota, is_held_out, kept_held_out


def random_images(*counts: int, seed: int = 0) -> ImageSet:
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    chance = torch.Generator().manual_seed(seed)
    images = torch.randint(256, (len(labels), 3, 4, 4), dtype=torch.uint8, generator=chance)
    return ImageSet(images, labels, tuple(f"class {k}" for k in range(len(counts))))


def mask_of(images: ImageSet, share: float) -> torch.Tensor:
    return is_held_out(images, [image_id(image) for image in images.images], share)


def test_every_class_spares_its_share_but_never_its_last_images() -> None:
    images = random_images(1, 2, 3, 10, 100)
    held_out = images.select(mask_of(images, 0.1)).class_counts()
    assert held_out.tolist() == [0, 0, 1, 1, 10]
    assert images.select(mask_of(images, 0.5)).class_counts().tolist() == [0, 0, 2, 5, 50]
    assert not mask_of(images, 0.0).any()


def test_the_choice_depends_on_the_pixels_alone() -> None:
    images = random_images(50)
    order = torch.randperm(50, generator=torch.Generator().manual_seed(3))
    assert torch.equal(mask_of(images.select(order), 0.2), mask_of(images, 0.2)[order])


def test_equal_pictures_stand_on_the_same_side() -> None:
    once = random_images(20)
    twice = once.select(torch.arange(20).repeat(2))
    mask = mask_of(twice, 0.2)
    assert torch.equal(mask[:20], mask[20:])
    assert int(mask.sum()) == 8


def test_one_picture_many_times_is_one_picture() -> None:
    images = random_images(1).select(torch.zeros(10, dtype=torch.int64))
    assert not mask_of(images, 0.5).any()


@pytest.mark.parametrize(
    ("quota", "share", "expected"),
    [(20, 0.1, 2), (5, 0.1, 1), (2, 0.5, 1), (1, 0.5, 0), (20, 0.0, 0), (None, 0.1, None)],
)
def test_held_out_images_take_their_share_of_the_quota(quota: int | None, share: float, expected: int | None) -> None:
    assert held_out_quota(quota, share) == expected


def test_what_is_kept_of_fewer_is_kept_of_more() -> None:
    images = random_images(10, 4)
    two, five = kept_held_out(images, 2), kept_held_out(images, 5)
    assert two.counts.tolist() == [2, 2]
    assert five.counts.tolist() == [5, 4]
    assert torch.equal(five.of_class(0)[:2], two.of_class(0))
    assert kept_held_out(images, None).num_images == 14
