"""The feed: which images come in which batch, and that nothing but their address decides it."""

import threading
from collections import Counter
from dataclasses import replace
from itertools import chain, combinations

import pytest
import torch

from foster.data import feed as feed_module
from foster.data.feed import Batch, Feed, ResidentFeed, StreamedFeed, images_of_epoch, make_feed
from foster.data.images import ImageSet, TensorStack, concatenate
from foster.data.photos.decode import Resizing
from foster.data.photos.reading import learner_loader
from foster.data.photos.stack import PhotoStack
from foster.errors import SettingsError
from foster.seeding import Address
from foster.settings.augmentation import AUGMENTATIONS, Augmentation
from foster.system.processes import ProcessGroup

CPU = torch.device("cpu")
ADDRESS = Address(seed=1, purpose="feed", task=2, phase="boost")
SHIFT = Augmentation(crop_padding=1, flip=True, brightness=0.2)


resident_alone = pytest.mark.parametrize("kind", ["resident"], indirect=True)


def numbered(count: int) -> ImageSet:
    """Image k is the colour k everywhere and has the label k."""
    numbers = torch.arange(count)
    return ImageSet(numbers.to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 4, 4).contiguous(), numbers, ())


@pytest.fixture(params=["resident", "streamed in one piece", "streamed in pieces of two batches"], autouse=True)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test here is made with each kind of feed."""
    kind: str = request.param
    monkeypatch.setattr(feed_module, "STREAMED_PIXELS", 2 * 4 * 16 if "two" in kind else 1 << 22)
    is_resident = TensorStack.is_resident
    monkeypatch.setattr(
        TensorStack,
        "is_resident",
        lambda stack, device, asked: kind == "resident" if asked == "auto" else is_resident(stack, device, asked),
    )
    return kind


def feed_of(
    count: int, batch_size: int = 4, augmentation: Augmentation | None = None, address: Address = ADDRESS
) -> Feed:
    return make_feed(numbered(count), augmentation or Augmentation(), batch_size, address, CPU)


def labels(batches: list[Batch]) -> list[int]:
    return torch.cat([batch.labels for batch in batches]).tolist()


def same(first: list[Batch], second: list[Batch]) -> bool:
    return len(first) == len(second) and all(
        torch.equal(a.images, b.images) and torch.equal(a.labels, b.labels) for a, b in zip(first, second, strict=True)
    )


@pytest.mark.parametrize("count", [4, 6, 8, 11, 100])
def test_every_image_comes_exactly_once_an_epoch_with_its_own_label(count: int) -> None:
    feed = feed_of(count)
    for epoch in range(3):
        batches = list(feed.batches(epoch))
        assert sorted(labels(batches)) == list(range(count))
        assert all(torch.equal(batch.images[:, 0, 0, 0].long(), batch.labels) for batch in batches)


@pytest.mark.parametrize(
    ("count", "sizes"),
    [(8, [4, 4]), (10, [4, 4, 2]), (11, [4, 4, 3]), (9, [4, 4]), (5, [4]), (3, [3]), (2, [2]), (1, [1])],
)
def test_the_last_batch_holds_what_is_left_and_a_single_left_over_image_waits(count: int, sizes: list[int]) -> None:
    feed = feed_of(count)
    batches = list(feed.batches(0))
    assert [len(batch.labels) for batch in batches] == sizes
    assert feed.num_steps == len(sizes)
    assert feed.num_images == sum(sizes)
    assert feed.last_size == sizes[-1]


@pytest.mark.parametrize(
    ("count", "sizes"), [(16, [8, 8]), (17, [8, 8]), (19, [8, 8]), (20, [8, 8, 4]), (8, [8]), (3, [3])]
)
def test_a_last_batch_of_fewer_images_than_the_smallest_one_waits_unless_it_is_the_only_one(
    count: int, sizes: list[int]
) -> None:
    feed = make_feed(numbered(count), Augmentation(), 8, ADDRESS, CPU, smallest_batch=4)
    assert [len(batch.labels) for batch in feed.batches(0)] == sizes
    assert images_of_epoch(count, 8, 4) == feed.num_images == sum(sizes)


def test_another_image_waits_in_another_epoch() -> None:
    feed = feed_of(5)
    waiting = Counter(({0, 1, 2, 3, 4} - set(labels(list(feed.batches(epoch))))).pop() for epoch in range(60))
    assert set(waiting) == {0, 1, 2, 3, 4}


def test_resident_and_streamed_feeds_give_the_same_batches() -> None:
    feeds = (of(numbered(20), SHIFT, 4, ADDRESS, CPU, 2, has_rows=True) for of in (ResidentFeed, StreamedFeed))
    for first, second in zip(*(feed.batches(1) for feed in feeds), strict=True):
        assert all(torch.equal(*pair) for pair in zip(first.tensors(), second.tensors(), strict=True))


def test_order_and_augmentation_depend_on_seed_task_phase_and_epoch_alone() -> None:
    feed = feed_of(40, augmentation=SHIFT)
    first = list(feed.batches(3))
    torch.rand(10)
    list(feed.batches(7))
    assert same(list(feed_of(40, augmentation=SHIFT).batches(3)), first)
    others = [
        feed.batches(4),
        feed_of(40, augmentation=SHIFT, address=Address(2, "feed", 2, "boost")).batches(3),
        feed_of(40, augmentation=SHIFT, address=Address(1, "feed", 3, "boost")).batches(3),
        feed_of(40, augmentation=SHIFT, address=Address(1, "feed", 2, "compress")).batches(3),
    ]
    for other in others:
        found = list(other)
        assert labels(found) != labels(first)
        assert not same(found, first)


@pytest.mark.parametrize("first_step", [0, 1, 5, 9, 10])
def test_an_epoch_that_is_entered_in_the_middle_goes_on_with_the_same_batches(first_step: int) -> None:
    feed = feed_of(39, augmentation=SHIFT)
    whole = list(feed.batches(2))
    assert same(list(feed_of(39, augmentation=SHIFT).batches(2, first_step)), whole[first_step:])


def test_images_are_augmented_and_the_data_stays_as_it_was() -> None:
    data = numbered(16)
    before = data.images.clone()
    feed = make_feed(data, Augmentation(brightness=0.9), 16, ADDRESS, CPU)
    (one,), (other,) = list(feed.batches(0)), list(feed.batches(1))
    in_order = [batch.images[batch.labels.argsort()] for batch in (one, other)]
    assert not torch.equal(in_order[0], before)
    assert not torch.equal(in_order[0], in_order[1]), "each epoch has its own augmentation"
    assert torch.equal(data.images, before)


@pytest.mark.parametrize("name", ["plain", "auto", "photo-auto"])
@pytest.mark.parametrize("first_step", [0, 1])
def test_streamed_images_are_those_of_a_resident_feed(name: str, first_step: int) -> None:
    augmentation = AUGMENTATIONS[name]
    pixels = torch.randint(256, (23, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    data = ImageSet(pixels, torch.arange(23), ())
    resident, found = (
        list(kind(data, augmentation, 5, ADDRESS, CPU).batches(1, first_step)) for kind in (ResidentFeed, StreamedFeed)
    )
    assert same(found, resident)
    assert all(len(batch.images) == len(batch.labels) for batch in found)


def test_an_epoch_that_is_left_early_leaves_no_thread_behind() -> None:
    running = threading.active_count()
    batches = feed_of(40, batch_size=2).batches(0)
    next(batches)
    batches.close()
    assert threading.active_count() == running


def test_batches_tell_which_images_they_hold_where_that_is_asked_for() -> None:
    exemplars = replace(numbered(5), beside={"exemplar": torch.ones(5, dtype=torch.bool), "rank": torch.arange(5.0)})
    data = concatenate(numbered(7), exemplars)
    for batch in make_feed(data, SHIFT, 4, ADDRESS, CPU, "auto", 1, True).batches(1):
        assert torch.equal(batch.labels, data.labels[batch.index])
        assert torch.equal(batch.exemplar, batch.index >= 7)
        assert torch.equal(batch.beside["rank"], torch.where(batch.exemplar, batch.labels, 0).float())
    assert not any(batch.beside for batch in make_feed(data, SHIFT, 4, ADDRESS, CPU).batches(1))


def test_a_second_view_is_augmented_by_other_numbers_and_leaves_the_first_as_it_was() -> None:
    feed = make_feed(numbered(11), SHIFT, 4, ADDRESS, CPU, "auto", 3)
    found = list(feed.batches(3))
    assert same(found, list(feed_of(11, augmentation=SHIFT).batches(3)))
    seconds, thirds = zip(*(batch.other_views for batch in found), strict=True)
    assert [len(images) for images in seconds] == [4, 4, 3]
    for views in zip((batch.images for batch in found), seconds, thirds, strict=True):
        assert not any(torch.equal(one, other) for one, other in combinations(views, 2))
    again = [batch.other_views[0] for batch in feed.batches(3, 1)]
    assert all(map(torch.equal, again, seconds[1:]))


@pytest.mark.parametrize("count", [30, 4, 3])
def test_each_step_draws_a_replay_batch_that_its_epoch_and_number_decide(count: int) -> None:
    def drawn(epoch: int, first_step: int = 0) -> list[Batch]:
        feed = make_feed(numbered(10), SHIFT, 4, ADDRESS, CPU, "auto", 1, True, numbered(count))
        return [batch.replay for batch in feed.batches(epoch, first_step) if batch.replay]

    whole = drawn(0)
    assert [len(batch.labels) for batch in whole] == [4, 4, 4], "full, beside the last batch, too"
    assert all(torch.equal(batch.labels, batch.index) for batch in whole)
    assert count < 4 or all(len(batch.labels.unique()) == 4 for batch in whole)
    assert count < 30 or len({tuple(batch.labels.tolist()) for batch in whole}) == 3
    assert same(drawn(0, 1), whole[1:])
    assert not same(drawn(1), whole)


def test_a_replay_batch_is_not_drawn_by_the_numbers_that_order_the_images() -> None:
    feed = make_feed(numbered(8), Augmentation(), 8, ADDRESS, CPU, "auto", 1, True, numbered(8))
    for epoch in range(3):
        (batch,) = feed.batches(epoch)
        assert not torch.equal(batch.index, batch.replay.index)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_gets_the_batches_of_the_cpu() -> None:
    found = list(make_feed(numbered(39), SHIFT, 4, ADDRESS, torch.device("cuda")).batches(2))
    on_cpu = [Batch(batch.images.cpu(), batch.labels.cpu()) for batch in found]
    assert all(batch.images.is_cuda and batch.labels.is_cuda for batch in found)
    assert same(on_cpu, list(feed_of(39, augmentation=SHIFT).batches(2)))


@resident_alone
def test_a_setting_overrules_the_memory() -> None:
    assert type(make_feed(numbered(4), Augmentation(), 4, ADDRESS, CPU, "off")) is StreamedFeed
    assert type(make_feed(numbered(4), Augmentation(), 4, ADDRESS, CPU, "on")) is ResidentFeed


def test_each_of_several_processes_has_its_part_of_a_batch_but_all_of_too_few_images(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    members = [ProcessGroup(rank, size=4) for rank in range(4)]
    parts = {count: [labels_in(monkeypatch, member, count) for member in members] for count in (11, 4, 3)}
    assert [len(part) for part in parts[11]] == [2] * 4
    assert len({label for part in parts[11] for label in part}) == 8
    feed = feed_of(20, batch_size=8)
    assert (feed.full_size, feed.last_size) == (2, 1), "of 8 and of 4"
    counts = {count: feed_of(count, batch_size=8) for count in (11, 22)}
    assert {count: (feed.num_images, feed.num_steps) for count, feed in counts.items()} == {11: (8, 1), 22: (20, 3)}
    assert sorted(part[0] for part in parts[4]) == [0, 1, 2, 3], "four images are enough for four processes"
    assert [sorted(part) for part in parts[3]] == [[0, 1, 2]] * 4


def test_processes_share_a_replay_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(member: ProcessGroup) -> list[list[int]]:
        monkeypatch.setattr(feed_module, "process_group", lambda: member)
        feed = make_feed(numbered(10), SHIFT, 4, ADDRESS, CPU, "auto", 1, True, numbered(9))
        return [batch.replay.index.tolist() for batch in feed.batches(0) if batch.replay]

    parts = [drawn(ProcessGroup(rank, 2)) for rank in range(2)]
    assert [first + second for first, second in zip(*parts, strict=True)] == drawn(ProcessGroup())


def labels_in(monkeypatch: pytest.MonkeyPatch, member: ProcessGroup, count: int) -> list[int]:
    """What one of several processes sees of `count` images in an epoch."""
    monkeypatch.setattr(feed_module, "process_group", lambda: member)
    return labels(list(feed_of(count, batch_size=8).batches(0)))


def photos(count: int) -> ImageSet:
    """The same as photos."""
    stack = PhotoStack.of(list(numbered(count).images), learner_loader(Resizing(4, 4)))
    return replace(numbered(count), stack=stack)


@resident_alone
def test_a_batch_of_photos_has_equal_parts_of_all_strata_and_processes_share_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data, batch_size = photos(70), 16
    groups = [set(group.tolist()) for group in data.stack.strata(batch_size, 1)]
    assert len(groups) == 8

    def epoch(member: ProcessGroup, number: int) -> list[list[int]]:
        monkeypatch.setattr(feed_module, "process_group", lambda: member)
        feed = make_feed(data, Augmentation(), batch_size, ADDRESS, CPU)
        return [batch.labels.tolist() for batch in feed.batches(number)]

    epochs = [epoch(ProcessGroup(), number) for number in range(20)]
    for batches in epochs:
        assert [len(batch) for batch in batches] == [16, 16, 16, 16]
        assert len({label for batch in batches for label in batch}) == 64
        for batch in batches:
            assert all(set(batch[2 * k : 2 * k + 2]) <= group for k, group in enumerate(groups))
    assert {label for batches in epochs for batch in batches for label in batch} == set(range(70)), "all take turns"
    for size in (2, 4, 8):
        parts = [epoch(ProcessGroup(rank, size), 3) for rank in range(size)]
        assert [[*chain(*of_all)] for of_all in zip(*parts, strict=True)] == epochs[3]


@resident_alone
def test_a_small_last_batch_of_photos_waits_too() -> None:
    feed = make_feed(photos(70), Augmentation(), 24, ADDRESS, CPU, smallest_batch=20)
    assert [len(batch.labels) for batch in feed.batches(0)] == [24, 24], "16 of 64 wait"


@resident_alone
def test_photos_are_shared_by_as_many_as_divide_the_strata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "process_group", lambda: ProcessGroup(0, 8))
    assert make_feed(photos(70), Augmentation(), 16, ADDRESS, CPU).team.size == 8
    assert make_feed(photos(40), Augmentation(), 16, ADDRESS, CPU).team.is_alone, "four strata for eight processes"
    monkeypatch.setattr(feed_module, "process_group", lambda: ProcessGroup(0, 3))
    with pytest.raises(SettingsError, match=r"3 processes .* 24 .* 8"):
        make_feed(photos(70), Augmentation(), 24, ADDRESS, CPU)
