"""What a trunk makes of images is computed once for each image and view, and is what the trunk itself gives."""

import errno
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from foster.data.augmentation.pipeline import Normaliser
from foster.data.images import ImageSet
from foster.data.photos.decode import Resizing
from foster.data.photos.store import PhotoStack, learner_loader
from foster.errors import FolderError
from foster.networks import build_backbone
from foster.networks.boosted import BoostedNetwork
from foster.networks.freezing import freeze
from foster.networks.network import Network
from foster.networks.trunk import Tail, Trunk, cut
from foster.seeding import Address
from foster.settings.augmentation import Augmentation
from foster.system.processes import ProcessGroup
from foster.training import views as module
from foster.training.views import TrunkViews, ViewFeed, recalled_features, room

CPU = torch.device("cpu")
NORMALISER = Normaliser((0.5, 0.5, 0.5), (0.25, 0.25, 0.25), CPU)


class CountingTrunk(Trunk):
    """Counts the images that it sees."""

    num_seen = 0

    def forward(self, images: Tensor) -> Tensor:
        self.num_seen += len(images)
        return super().forward(images)


@pytest.fixture
def trunk() -> CountingTrunk:
    torch.manual_seed(3)
    return CountingTrunk(list(cut(build_backbone("resnet8"), 2, "resnet8")[0].parts))


@pytest.fixture
def images() -> Tensor:
    return torch.randint(256, (11, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def test_the_maps_of_plain_images_are_those_of_the_trunk(trunk: CountingTrunk, images: Tensor) -> None:
    views = TrunkViews(trunk, NORMALISER, CPU)
    expected = trunk(NORMALISER(images))
    torch.testing.assert_close(views.plain(images), expected, rtol=1e-3, atol=1e-3)


def test_no_image_is_seen_twice_in_one_view(trunk: CountingTrunk, images: Tensor) -> None:
    views = TrunkViews(trunk, NORMALISER, CPU)
    first = views.plain(images[:7])
    again = views.plain(images[3:])
    assert trunk.num_seen == 11
    assert torch.equal(again[:4], first[3:])
    assert torch.equal(views.plain(images.flip(0)), views.plain(images).flip(0))


def test_photos_that_have_ids_are_cut_out_once(
    trunk: CountingTrunk, images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    album = PhotoStack.of_tensor(images, learner_loader(Resizing(16, 16, "crop")))
    views = TrunkViews(trunk, NORMALISER, CPU)
    maps = views.plain(album)
    monkeypatch.setattr(PhotoStack, "on_device", None)
    assert torch.equal(views.plain(album[torch.arange(11).flip(0)]), maps.flip(0))
    assert trunk.num_seen == 11


def test_an_epoch_shows_every_image_once_in_views_that_differ(trunk: CountingTrunk, images: Tensor) -> None:
    data = ImageSet(images, torch.arange(11), tuple("abcdefghijk"))
    views = TrunkViews(trunk, NORMALISER, CPU, Augmentation(flip=True, crop_padding=2), num_views=3, seed=1)
    feed = ViewFeed(data, views, 4, Address(1, "feed"), CPU)
    assert trunk.num_seen == 33
    epochs = [list(feed.batches(epoch)) for epoch in (0, 1, 0)]
    labels = [torch.cat([batch.labels for batch in epoch]) for epoch in epochs]
    assert all(torch.equal(found.sort().values, torch.arange(11)) for found in labels)
    maps = [
        torch.cat([batch.images for batch in epoch])[order.argsort()]
        for epoch, order in zip(epochs, labels, strict=True)
    ]
    assert torch.equal(maps[0], maps[2])
    assert not torch.equal(maps[0], maps[1])
    assert maps[0].dtype == feed.sample.dtype == torch.float32
    assert maps[0].shape[1:] == feed.sample.shape[1:]
    later = list(feed.batches(1, first_step=2))
    assert torch.equal(later[0].images, epochs[1][2].images)
    assert trunk.num_seen == 33


def test_each_of_two_processes_makes_its_share_of_the_maps(
    trunk: CountingTrunk, images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = {"augmentation": Augmentation(flip=True, crop_padding=2), "num_views": 3, "seed": 1}
    alone, shared = (TrunkViews(trunk, NORMALISER, CPU, **how) for _ in range(2))  # type: ignore[arg-type]
    expected = [alone.gathered(slots) for slots in alone.slots(images, 3).unbind(1)]
    others = iter([maps[6:].half() for maps in expected])
    monkeypatch.setattr(module, "gathered", lambda own, counts: [own, next(others)] if counts == [6, 5] else [])
    shared.plain(images[8:])  # what one process alone has made does not bring them out of step
    trunk.num_seen = 0
    found = [shared.gathered(slots) for slots in shared.slots(images, 3, ProcessGroup(0, 2)).unbind(1)]
    assert trunk.num_seen == 3 * 6
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)
    shared.slots(images, 3, ProcessGroup(0, 2))
    assert trunk.num_seen == 3 * 6


def test_maps_that_are_much_of_the_memory_are_kept_in_a_file(
    trunk: CountingTrunk, images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_memory = TrunkViews(trunk, NORMALISER, CPU).plain(images)
    monkeypatch.setattr(module, "main_memory", lambda: 400)
    assert torch.equal(TrunkViews(trunk, NORMALISER, CPU).plain(images), in_memory)
    assert [room((5, numbers)).untyped_storage().filename is None for numbers in (10, 11)] == [True, False]

    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module.os, "posix_fallocate", full)
    with pytest.raises(FolderError, match=r"cannot write '.*': No space left on device"):
        room((5, 11))


def test_only_what_was_shown_last_is_known_by_its_rows(trunk: CountingTrunk, images: Tensor) -> None:
    data = ImageSet(images, torch.arange(11), ())
    feed = ViewFeed(data, TrunkViews(trunk, NORMALISER, CPU, num_views=2), 4, Address(1, "feed"), CPU)
    assert feed.rows_of(torch.zeros(1)) is None, "before the first batch"
    for batch in feed.batches(0):
        rows = feed.rows_of(batch.images)
        assert rows is not None
        assert torch.equal(rows // 2, batch.labels)
        assert torch.equal(torch.cat(list(feed.all_maps()))[rows], batch.images)
        assert feed.rows_of(batch.images.clone()) is None


class CountingTail(Tail):
    num_images = 0

    def stages(self, images: torch.Tensor) -> list[torch.Tensor]:
        self.num_images += len(images)
        return super().stages(images)


@pytest.fixture
def feed() -> ViewFeed:
    torch.manual_seed(0)
    data = ImageSet(torch.randint(256, (10, 3, 8, 8), dtype=torch.uint8), torch.arange(10) % 2, ("a", "b"))
    trunk = Trunk([nn.Conv2d(3, 4, 3, padding=1)])
    normaliser = Normaliser((0.5,) * 3, (0.5,) * 3, CPU)
    views = TrunkViews(trunk, normaliser, CPU, Augmentation(flip=True), num_views=2, seed=1)
    return ViewFeed(data, views, 4, Address(1, "feed"), CPU)


def boosted() -> BoostedNetwork:
    return BoostedNetwork.expand(Network.create(CountingTail([nn.Conv2d(4, 6, 3)], 6), 2), 1)


def test_frozen_branches_see_every_view_once_and_say_the_same(feed: ViewFeed) -> None:
    network = boosted()
    old, new = network.old.branches[0], network.new_branch
    batches = [batch.images for epoch in range(4) for batch in feed.batches(epoch)]
    expected = [network(images).features for images in batches]
    old.num_images = new.num_images = 0
    found = []
    with recalled_features([network], feed, num_epochs=4):
        for epoch in range(4):
            found += [network(batch.images).features for batch in feed.batches(epoch)]
        assert old.num_images == 20, "ten images in two views, and not 40"
        assert new.num_images == 40, "what is trained is never looked up"
        network(batches[0] + 1)
        assert old.num_images == 24, "what is not the feed's is computed"
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)
    assert "forward" not in vars(old), "all is as before"
    freeze(network)
    with recalled_features([network], feed, num_epochs=4):
        assert "forward" in vars(new), "a teacher's branches are all frozen"


@pytest.mark.parametrize("reason", ["short", "large"])
def test_nothing_is_looked_up_where_it_does_not_pay(
    feed: ViewFeed, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason == "large":
        monkeypatch.setattr(module, "RECALLED_BYTES", 100)
    network: Any = boosted()
    with recalled_features([network], feed, num_epochs=2 if reason == "short" else 9):
        assert "forward" not in vars(network.old.branches[0])
