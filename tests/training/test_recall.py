"""Frozen branches look up what they made of a trunk's maps; nothing else changes."""

from typing import Any

import pytest
import torch
from torch import nn

from foster.data.augmentation.pipeline import Normaliser
from foster.data.images import ImageSet
from foster.networks.boosted import BoostedNetwork
from foster.networks.freezing import freeze
from foster.networks.network import Network
from foster.networks.trunk import Tail, Trunk
from foster.seeding import Address
from foster.settings.augmentation import Augmentation
from foster.training import recall
from foster.training.recall import recalled_features
from foster.training.views import TrunkViews, ViewFeed

CPU = torch.device("cpu")


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
        monkeypatch.setattr(recall, "MOST_BYTES", 100)
    network: Any = boosted()
    with recalled_features([network], feed, num_epochs=2 if reason == "short" else 9):
        assert "forward" not in vars(network.old.branches[0])
