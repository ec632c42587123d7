"""Many photos: read at one size, or kept in their own sizes on the device, in memory or on disk."""

import io
import os
import resource
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from photo_folders import files_of, photo, write_classes, write_photos
from PIL import Image

from foster import events
from foster.data.download import Follower
from foster.data.memory import ExemplarMemory
from foster.data.photos import reading
from foster.data.photos import store as store_module
from foster.data.photos.decode import Resizing, file_pixels, typical_side
from foster.data.photos.find import Unreadable, find_photos
from foster.data.photos.reading import (
    learner_loader,
    memory_of_files,
    read_for_training,
    read_photos,
    typical_photo_side,
)
from foster.data.photos.stack import PhotoStack, num_strata, strata
from foster.data.photos.store import LOADED_TOGETHER, NUM_STRATA, Decoded, PhotoLoader, PhotoStore, owners_of
from foster.errors import DataError, FolderError
from foster.settings.augmentation import Augmentation
from foster.system.processes import ProcessGroup
from foster.system.signals import Stopped

CPU = torch.device("cpu")
SIDE = 72


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos of mixed sizes and orientations, one of them cut short."""
    return write_photos(tmp_path_factory.mktemp("photos") / "all", 2, 8, sides=(90, 160), broken=1)


# Read at one size


def test_unreadable_images_are_listed_and_left_out(tmp_path: Path) -> None:
    folder = write_classes(tmp_path, cat=4, dog=3)
    (folder / "cat" / "1.png").write_bytes(b"broken")
    Image.new("RGB", (1, 1)).save(folder / "cat" / "2.png")
    found = read_photos(find_photos(folder), Resizing(8, 8))
    assert found.positions == (0, 3, 4, 5, 6)
    assert found.stack.tensor.shape == (5, 3, 8, 8)
    assert [(entry.name, entry.reason) for entry in found.unreadable] == [
        (str(folder / "cat" / "1.png"), "not an image of a known format"),
        (str(folder / "cat" / "2.png"), "too small to show anything: 1 x 1 pixels"),
    ]


@pytest.mark.parametrize("size", [8, SIDE])
def test_too_many_unreadable_images_stop_the_reading(size: int, tmp_path: Path) -> None:
    folder = write_classes(tmp_path, cat=12)
    for k in range(4):
        (folder / "cat" / f"{k}.png").write_bytes(b"broken")
    photos, resizing = find_photos(folder), Resizing(size, size)
    with pytest.raises(DataError, match=r"stopped at 4 unreadable of 12 .*\(limit 3\).*raise max_unreadable"):
        read_for_training(photos, resizing, learner_loader(resizing))
    assert len(read_for_training(photos, resizing, replace(learner_loader(resizing), max_unreadable=4)).stack) == 8
    with pytest.raises(DataError, match="limit 100"):
        store_module.refuse_too_many([Unreadable("1.png", "broken")] * 101, 5000, "many", None)


def test_no_readable_image_at_all_is_said_without_advice_that_does_not_help(tmp_path: Path) -> None:
    folder = write_classes(tmp_path, cat=2)
    for k in range(2):
        (folder / "cat" / f"{k}.png").write_bytes(b"broken")
    with pytest.raises(DataError, match=r"no image .*0\.png") as error:
        read_photos(find_photos(folder), Resizing(8, 8))
    assert "max_unreadable" not in str(error.value)
    # More than the usual limit: pixels from 0 to 16 in an array, say.
    with pytest.raises(DataError, match=r"no image of the arguments .*must lie in 0 to 1, not 0 to 16$"):
        read_photos(find_photos((np.full((9, 8, 8), [0.0, 16.0] * 4), ["a"] * 9)), Resizing(8, 8))


def test_results_keep_the_given_order_over_many_threads_and_chunks() -> None:
    images = np.zeros((600, 4, 4, 3), np.uint8)
    images[:] = (np.arange(600) % 256)[:, None, None, None]
    found = read_photos(find_photos((images, ["a"] * 600)), Resizing(4, 4))
    assert torch.equal(found.stack.tensor[:, 0, 0, 0], torch.arange(600).remainder(256).to(torch.uint8))


def test_a_set_that_cannot_fit_into_memory_is_refused_before_it_is_read() -> None:
    images = [np.zeros((4, 4), np.uint8)] * 20_000
    with pytest.raises(DataError, match=r"20,000 images of 4096 x 4096 need .* smaller image_size"):
        read_photos(find_photos((images, ["a"] * 20_000)), Resizing(4096, 4096))


def test_the_typical_side_is_the_median_of_the_shorter_sides(tmp_path: Path) -> None:
    folder = write_classes(tmp_path, x=5)
    (folder / "x" / "broken.png").write_bytes(b"no image")
    assert typical_photo_side(find_photos(folder)) == 6
    with pytest.raises(DataError, match="no image"):
        typical_photo_side(find_photos(([b"no image"], ["x"])))
    assert typical_side([(10, 99), (20, 30), (400, 300)]) == 20


# Read for a learner


def test_a_photo_has_the_id_of_what_the_network_sees_and_looks_like_it(large: Path) -> None:
    resizing = Resizing(SIDE, 2 * SIDE)
    plain = read_photos(find_photos(large), resizing)
    kept = read_for_training(find_photos(large), resizing, learner_loader(resizing))
    assert (kept.positions, kept.unreadable) == (plain.positions, plain.unreadable)
    assert len(kept.unreadable) == 1
    assert kept.stack.ids() == plain.stack.ids()
    seen = kept.stack.on_device(CPU)
    assert seen.shape == plain.stack.tensor.shape
    assert (seen.float() - plain.stack.tensor.float()).abs().mean() < 3


@pytest.mark.parametrize("size", [(16, 12), (SIDE, 60)])
def test_kept_files_give_the_same_images_and_ids_again(large: Path, size: tuple[int, int]) -> None:
    resizing = Resizing(*size)
    kept = read_for_training(find_photos(large), resizing, learner_loader(resizing)).stack.owned()
    files = list(zip(kept.ids(), kept.files(), strict=True))
    again = memory_of_files([files], resizing).stack_of(0)
    assert again.ids() == kept.ids()
    assert torch.equal(again.on_device(CPU), kept.on_device(CPU))
    assert again.shape == (len(files), 3, *size)
    with pytest.raises(DataError, match=r"can(not)? be read"):
        memory_of_files([[(photo_id, file[:200]) for photo_id, file in files]], resizing)
    with pytest.raises(DataError, match=f"{kept.ids()[0]} is not 6 x 8"):
        memory_of_files([files], Resizing(8, 6))


@pytest.mark.parametrize("side", [16, SIDE])
def test_a_kept_image_that_claims_many_pixels_is_refused_before_any_is_decoded(
    side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = io.BytesIO()
    Image.new("RGB", (1024, 1024)).save(large, "png" if side == 16 else "jpeg")
    monkeypatch.setattr(reading.PhotoStack, "of", lambda *given: pytest.fail("something was decoded"))
    with pytest.raises(DataError, match=f"is not {side} x {side}"):
        memory_of_files([[("0123456789ab", large.getvalue())]], Resizing(side, side))


def test_photos_are_kept_a_seventh_larger_than_the_network_sees_them() -> None:
    assert learner_loader(Resizing(224, 224)).short_side == 256


def test_kept_photos_that_are_narrow_and_very_long_need_room(monkeypatch: pytest.MonkeyPatch) -> None:
    long = io.BytesIO()
    Image.new("L", (SIDE, 50 * SIDE)).save(long, "jpeg")
    monkeypatch.setattr(reading.PhotoStack, "of", lambda *given: pytest.fail("something was decoded"))
    monkeypatch.setattr(reading, "main_memory", lambda: 40 * 3 * SIDE * SIDE)
    with pytest.raises(DataError, match="need"):
        memory_of_files([[("0123456789ab", long.getvalue())]], Resizing(SIDE, SIDE))


# Stacks of photos


def test_what_cannot_be_read_is_left_out_and_told(folder: Path) -> None:
    told: list[events.Event] = []
    photos = PhotoStack.of(files_of(folder), PhotoLoader(32, 40, follower=Follower(told.append)), "task 1")
    assert photos.is_readable().tolist() == [True] * 4 + [False] + [True] * 10
    (warning,) = [event for event in told if isinstance(event, events.Warned)]
    assert "1 of 15 photos of task 1 cannot be read" in warning.message
    (decoded,) = [event for event in told if isinstance(event, events.PhotosDecoded)]
    assert (decoded.num_photos, decoded.place) == (15, "host")
    assert isinstance(told[0], events.Decoding)


def test_photos_go_where_there_is_room_for_all(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "main_memory", lambda: 1000)
    assert store_module._available_memory() == 1000, "of the container"
    monkeypatch.setattr(store_module, "_available_memory", lambda: 1000)
    assert PhotoLoader(32, 40).choose(600) == "host"
    assert PhotoLoader(32, 40, cache=Path()).choose(800) == "disk"
    with pytest.raises(DataError, match=r"engine\.photo_cache=FOLDER"):
        PhotoLoader(32, 40).choose(800)
    monkeypatch.setattr(store_module, "LOADED_AT_ONCE", 5)
    needed: list[int] = []
    monkeypatch.setattr(PhotoLoader, "choose", lambda loader, num_bytes: needed.append(num_bytes) or "host")
    photos = PhotoStack.of(files_of(folder), PhotoLoader(32, 40))
    photos.is_readable()
    assert needed == [pytest.approx(3 * photos.stores[0].sizes.prod(1).sum(), rel=0.5)]


def test_selected_and_joined_stacks_share_pixels_and_give_the_same_images(folder: Path) -> None:
    first, second = (PhotoStack.of(files_of(folder), PhotoLoader(32, 40)) for _ in range(2))
    both = first.followed_by([second])[torch.tensor([2, 17, 29, 2])]
    whole = first[torch.tensor([2, 14])].on_device(CPU)
    assert torch.equal(both.on_device(CPU), whole[torch.tensor([0, 0, 1, 0])])
    assert both.shape == (4, 3, 32, 32)
    order = torch.tensor([3, 2, 1])
    in_an_epoch = both.epoch(order, Augmentation(), torch.Generator())(slice(1, 3), CPU)()
    assert torch.equal(in_an_epoch, both.on_device(CPU)[order[1:]])


def test_the_memory_keeps_encoded_files_and_loads_them_again(folder: Path) -> None:
    photos = PhotoStack.of(files_of(folder), PhotoLoader(32, 40))
    photos.is_readable()
    memory = ExemplarMemory(per_class=3, kind=photos[:0])
    for class_id in range(3):
        memory.remember(class_id, photos[torch.arange(5 * class_id, 5 * class_id + 3)])
    content = (folder / "class 1" / "1.jpg").read_bytes()
    for path in folder.rglob("*.jpg"):
        path.unlink()
    state = memory.state()
    assert state.keys() == {"contents", "lengths", "counts"}
    again = ExemplarMemory(per_class=3, kind=photos[:0])
    again.load_state(state)
    kept, loaded = (found.exemplars(("a", "b", "c")) for found in (memory, again))
    assert loaded.stack.files()[4] == content
    assert again.num_bytes == memory.num_bytes == len(state["contents"])
    assert torch.equal(kept.stack.on_device(CPU), photos[torch.tensor([0, 1, 2, 5, 6, 7, 10, 11, 12])].on_device(CPU))
    again.trim(3)
    damaged = state | {"lengths": state["lengths"] + 1}
    with pytest.raises(DataError, match="damaged"):
        again.load_state(damaged)
    with pytest.raises(DataError, match="damaged"):
        ExemplarMemory().load_state(state)


def test_a_task_without_a_readable_photo_is_refused() -> None:
    photos = PhotoStack.of([b"broken"], PhotoLoader(32, 40), "task 1")
    with pytest.raises(DataError, match=r"no image of task 1 can be read .*'image 0'"):
        photos.is_readable()


def test_reading_stops_after_the_photos_at_hand_when_it_is_asked_to(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower, decoded, files = Follower(), list[int](), files_of(folder)

    def decode(content: bytes, short_side: int) -> NDArray[np.uint8]:
        decoded.append(short_side)
        follower.stop.set()
        return file_pixels(content, short_side)

    monkeypatch.setattr(store_module, "file_pixels", decode)
    with pytest.raises(Stopped):
        PhotoStack.of(files, PhotoLoader(32, 40, follower=follower)).is_readable()
    assert 0 < len(decoded) <= -(-len(files) // LOADED_TOGETHER) < len(files)


def test_a_name_that_is_no_unicode_leads_to_its_file(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.jpg")
    path.write_bytes(photo(0, 0))
    assert PhotoStack.of([str(path)], PhotoLoader(16, 20)).on_device(CPU).shape == (1, 3, 16, 16)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_photos_on_the_device_and_on_the_host_are_cut_together(folder: Path) -> None:
    device = torch.device("cuda", 0)
    there, here = (PhotoStack.of(files_of(folder), PhotoLoader(32, 40, device, place)) for place in ("device", "host"))
    for photos in (there, here):
        photos.is_readable()
    chosen = torch.tensor([2, 17, 29, 2, 14, 16])
    mixed, plain = there.followed_by([here])[chosen], here.followed_by([here])[chosen]
    assert torch.equal(mixed.on_device(device), plain.on_device(device))
    assert mixed.crops(device).are_sent.tolist() == [False, True, True, False, False, True]
    assert torch.equal(mixed.on_device(CPU), plain.on_device(CPU))


# Stores


class Chunk:
    """Pixels somewhere in the memory of a device, as far as a store asks."""

    def __init__(self, address: int, device: str = "cuda:0") -> None:
        self.address = address
        self.device = torch.device(device)

    def data_ptr(self) -> int:
        return self.address


def test_the_address_of_a_photo_is_where_its_chunk_begins_also_after_more_have_come(folder: Path) -> None:
    store, there = PhotoStore(files_of(folder), PhotoLoader(32, 40)), torch.device("cuda", 0)

    def keep(positions: list[int], offsets: list[int], chunk: Chunk) -> None:
        rows = np.array(positions)
        store.keep(Decoded(rows, np.full((len(rows), 2), 4), np.array(offsets), chunk, {}))

    first = Chunk(1000)
    keep([4, 0], [0, 48], first)
    assert store.addresses(np.array([4]), torch.device("cuda", 1)) is None
    assert store.addresses(np.array([0, 4, 0]), there).tolist() == [1048, 1000, 1048]
    keep([2], [96], first)
    keep([7, 1], [0, 48], Chunk(5000))
    assert store.addresses(np.array([1, 2, 7]), there).tolist() == [5048, 1096, 5000]
    keep([3], [0], Chunk(7000, "cpu"))
    assert store.addresses(np.array([1]), there) is None, "not all are there"


@pytest.mark.parametrize("rank", [0, 1])
def test_each_of_two_processes_decodes_its_share_and_knows_all_sizes(
    rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = files_of(write_photos(tmp_path / "photos", 2, 20, broken=1))
    numbers = np.arange(len(files))
    alone, store = (PhotoStore(files, PhotoLoader(32, 40)) for _ in range(2))
    alone.load(numbers)
    shares = [np.flatnonzero(owners_of(numbers, 2) == owner) for owner in range(2)]
    sizes = [torch.from_numpy(alone.sizes[share]) for share in shares]

    def gathered(found: torch.Tensor, counts: Sequence[int]) -> list[torch.Tensor]:
        assert torch.equal(found, sizes[rank])
        assert counts == [len(share) for share in shares]
        return sizes

    monkeypatch.setattr(store_module, "process_group", lambda: ProcessGroup(rank, 2))
    monkeypatch.setattr(store_module, "gathered", gathered)
    store.survey(numbers)
    assert np.array_equal(store.sizes, alone.sizes)
    assert store.is_known.all()
    assert np.flatnonzero(store.is_loaded).tolist() == shares[rank].tolist()


def test_of_several_processes_none_stops_alone_while_it_reads(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    follower, numbers = Follower(), np.arange(4)
    follower.stop.set()
    store = PhotoStore(files_of(folder), PhotoLoader(32, 40, follower=follower))
    monkeypatch.setattr(store_module, "process_group", lambda: ProcessGroup(0, 2))
    store.load(numbers)  # the other process may not read at this time
    assert store.is_loaded[numbers].all()
    with pytest.raises(Stopped):
        store.survey(np.arange(len(store)))  # all processes do this together


@pytest.mark.parametrize(
    ("num_photos", "batch_size", "expected"),
    [(10_000, 128, 32), (10_000, 48, 16), (10_000, 7, 1), (255, 128, 16), (15, 128, 1), (16, 128, 2)],
)
def test_there_are_as_many_strata_as_divide_the_batch_and_hold_eight_photos(
    num_photos: int, batch_size: int, expected: int
) -> None:
    assert num_strata(num_photos, batch_size) == expected


@pytest.mark.parametrize("count", [1, 2, 8, 32])
@pytest.mark.parametrize("num_photos", [32, 67, 100])
def test_every_photo_is_in_one_stratum_and_the_strata_are_equal(num_photos: int, count: int) -> None:
    for homes in (
        torch.randint(NUM_STRATA, (num_photos,), generator=torch.Generator().manual_seed(0)),
        torch.zeros(num_photos, dtype=torch.int64),
    ):
        groups = strata(homes, count)
        assert sorted(torch.cat(groups).tolist()) == list(range(num_photos))
        sizes = [len(group) for group in groups]
        assert max(sizes) - min(sizes) <= 1


def test_a_photo_stays_in_its_stratum_where_there_is_room() -> None:
    homes = torch.arange(NUM_STRATA).repeat(4)
    for group, positions in enumerate(strata(homes, 8)):
        assert (homes[positions] * 8 // NUM_STRATA == group).all()


# On disk


def test_photos_on_disk_are_the_same_and_their_files_are_gone(
    folder: Path, large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "LOADED_AT_ONCE", 12)
    monkeypatch.setattr(store_module, "LOADED_TOGETHER", 4)
    resizing, cache = Resizing(SIDE, SIDE), tmp_path / "cache"
    cache.mkdir()
    kept = learner_loader(resizing)
    plain, on_disk = (
        [
            PhotoStack.of(files_of(folder), PhotoLoader(32, 40, CPU, place, cache)),
            read_for_training(find_photos(large), resizing, replace(kept, place=place, cache=cache)).stack,
        ]
        for place in ("host", "disk")
    )
    for first, second in zip(plain, on_disk, strict=True):
        assert torch.equal(first.is_readable(), second.is_readable())
        assert torch.equal(first[first.is_readable()].on_device(CPU), second[first.is_readable()].on_device(CPU))
    assert list(cache.iterdir()) == []


def test_a_full_disk_is_called_so(folder: Path, tmp_path: Path) -> None:
    photos = PhotoStack.of(files_of(folder), PhotoLoader(32, 40, place="disk", cache=tmp_path))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(FolderError, match=f"cannot write '{tmp_path}': File too large"):
            photos.is_readable()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
