"""Which feed is made: images live on the device where they fit, or where a setting says so."""

import pytest
import torch

from foster.data.augmentation.pipeline import Augmentation
from foster.data.feed import ResidentFeed, StreamedFeed, fits, make_feed
from foster.data.images import ImageSet
from foster.seeding import Address

CPU = torch.device("cpu")
REST = (Augmentation(), 4, Address(seed=1, purpose="feed"), CPU)


def black(count: int) -> ImageSet:
    """Images of 48 bytes."""
    return ImageSet(torch.zeros(count, 3, 4, 4, dtype=torch.uint8), torch.zeros(count, dtype=torch.int64), ())


@pytest.mark.parametrize(("count", "is_resident"), [(25, True), (26, False)])
def test_images_live_on_a_gpu_where_an_epoch_takes_at_most_half_of_what_is_free(
    count: int, is_resident: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """8,000 bytes are free, and torch holds 1,600 that it does not use."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (8_000, 10_000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 3_000)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 1_400)
    assert fits(black(count), torch.device("cuda", 0)) is is_resident


def test_a_setting_overrules_the_memory() -> None:
    assert type(make_feed(black(4), *REST, "off")) is StreamedFeed
    assert type(make_feed(black(4), *REST, "on")) is ResidentFeed


def test_without_a_gpu_images_stay_where_they_are() -> None:
    assert type(make_feed(black(10_000), *REST)) is ResidentFeed
