import pytest
import torch

from foster.data.images import ImageSet, concatenate
from foster.data.photos.decode import image_id
from foster.learner.plan import fair_quota, held_out_quota
from foster.learner.train import is_held_out, kept_held_out, position


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


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_equal_pictures_of_different_classes_stand_on_the_same_side(share: float) -> None:
    """The second class holds the first one and as many pictures more, so that its tenth is another."""
    images = random_images(40, 40)
    copied = ImageSet(images.images[:40], torch.ones(40, dtype=torch.int64), images.class_names)
    everything = concatenate(images, copied)
    alone = [mask_of(everything.of_classes(k, k + 1), share) for k in (0, 1)]
    assert not torch.equal(alone[0], alone[1][40:]), "each class would choose for itself"
    mask = mask_of(everything, share)
    assert torch.equal(mask[:40], mask[80:])
    assert torch.equal(mask[:40], alone[0] & alone[1][40:])
    assert mask[:40].any()
    assert mask[40:80].any()


def test_one_picture_many_times_is_one_picture() -> None:
    images = random_images(1).select(torch.zeros(10, dtype=torch.int64))
    assert not mask_of(images, 0.5).any()


def test_of_a_known_class_pictures_below_both_limits_are_held_out_but_never_all() -> None:
    images = random_images(200)
    places = torch.tensor([position(image_id(image)) for image in images.images])
    hashes = [image_id(image) for image in images.images]
    assert torch.equal(is_held_out(images, hashes, 0.3, {0: 0.12}), places < 0.12)
    assert torch.equal(is_held_out(images, hashes, 0.1, {0: 0.5}), places < 0.1)
    assert not is_held_out(images, hashes, 0.3, {0: 0.0}).any()
    low = images.select(places < 0.1)
    mask = is_held_out(low, [image_id(image) for image in low.images], 0.5, {0: 1.0})
    assert int((~mask).sum()) == 1
    assert places[places < 0.1][~mask].item() == places[places < 0.1].max().item()


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
    assert torch.equal(five.stack_of(0).tensor[:2], two.stack_of(0).tensor)
    assert kept_held_out(images, None).num_images == 14


def kept(total: int, trained: list[int], held_out: list[int], share: float) -> int:
    quota = fair_quota(total, trained, held_out, share)
    spared = held_out_quota(quota, share) or 0
    return sum(min(count, quota - spared) for count in trained) + sum(min(count, spared) for count in held_out)


def test_large_classes_take_what_small_ones_leave() -> None:
    assert fair_quota(100, [10, 10, 500], [0, 0, 0], 0.0) == 80
    assert kept(100, [10, 10, 500], [0, 0, 0], 0.0) == 100


def test_the_budget_is_never_exceeded_and_nearly_used() -> None:
    trained, held_out = [51] * 20 + [400] * 4, [9] * 20 + [60] * 4
    assert 1960 <= kept(2000, trained, held_out, 0.15) <= 2000


def test_equal_classes_share_it_equally() -> None:
    assert fair_quota(60, [100, 100, 100], [20, 20, 20], 0.1) == 20
    assert fair_quota(60, [5, 5], [1, 1], 0.1) == 60, "all of it fits"
