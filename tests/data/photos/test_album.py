"""Albums: photos of many sizes from files, memory and the disk cache, kept in several places."""

import gc
import io
import os
import signal
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from photo_folders import photo, write_photos
from PIL import Image

from foster import events
from foster.data.download import Follower
from foster.data.images import ImageSet, concatenate, on_device
from foster.data.memory import ExemplarMemory
from foster.data.photos import darkroom as darkroom_module
from foster.data.photos import pixels
from foster.data.photos.album import Album
from foster.data.photos.darkroom import Darkroom, place_for
from foster.data.photos.encoded import PhotoBytes, PhotoFiles
from foster.data.photos.find import image_files
from foster.errors import DataError

CPU = torch.device("cpu")


def files_of(folder: Path) -> PhotoFiles:
    folders = sorted(path for path in folder.iterdir() if path.is_dir())
    return PhotoFiles.of(folders, [[path.name for path in image_files(own)] for own in folders])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_photos(tmp_path / "photos", 3, 5, broken=1)


def test_a_list_of_files_gives_back_every_path_and_takes_few_bytes(folder: Path) -> None:
    files = files_of(folder)
    paths = [path for own in sorted(folder.iterdir()) for path in image_files(own)]
    assert [files.path(k) for k in range(len(files))] == paths
    some = files.select(np.array([7, 0, 11]))
    assert [some.path(k) for k in range(3)] == [paths[7], paths[0], paths[11]]
    assert files.nbytes <= 40 * len(files)


@pytest.mark.parametrize("has_simplejpeg", [True, False])
@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_a_photo_is_upright_and_small_whatever_decodes_it(
    has_simplejpeg: bool, orientation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_simplejpeg:
        monkeypatch.setattr(pixels, "_simplejpeg", lambda: None)
    plain = Image.open(io.BytesIO(photo(3, 5, (200, 400))))
    found = pixels.pixels_of(photo(3, 5, (200, 400), orientation), 100)
    assert min(found.shape[:2]) == 100
    width, height = pixels.shrunk_size(plain.size, 100)
    expected = np.asarray(plain.resize((width, height), Image.Resampling.BILINEAR)).astype(int)
    assert found.shape == expected.shape
    assert np.abs(found - expected).mean() < 6


def test_what_cannot_be_read_is_left_out_and_told(folder: Path) -> None:
    told: list[events.Event] = []
    album = Album.of(files_of(folder), Darkroom(32, 40, follower=Follower(told.append)), "task 1")
    assert album.developed().tolist() == [True] * 4 + [False] + [True] * 10
    (warning,) = [event for event in told if isinstance(event, events.Warned)]
    assert "1 of 15 photos of task 1 cannot be read" in warning.message
    (decoded,) = [event for event in told if isinstance(event, events.PhotosDecoded)]
    assert (decoded.num_photos, decoded.num_unreadable, decoded.place) == (15, 1, "host")
    assert isinstance(told[0], events.Decoding)


def test_too_many_broken_photos_stop_it_with_their_names(tmp_path: Path) -> None:
    folder = write_photos(tmp_path / "photos", 2, 5, broken=4)
    with pytest.raises(DataError, match=r"stopped at 4 unreadable of 10 photos.*class 0/1\.jpg.*photos\.max_unread"):
        Album.of(files_of(folder), Darkroom(32, 40)).developed()
    assert Album.of(files_of(folder), Darkroom(32, 40, max_unreadable=4)).developed().sum() == 6


def test_selected_and_joined_albums_share_pixels_and_give_the_same_images(folder: Path) -> None:
    first, second = (Album.of(files_of(folder), Darkroom(32, 40)) for _ in range(2))
    both = first.joined(second)[torch.tensor([2, 17, 29, 2])]
    whole = on_device(first[torch.tensor([2, 14])], CPU)
    assert torch.equal(on_device(both, CPU), whole[torch.tensor([0, 0, 1, 0])])
    assert both.shape == (4, 3, 32, 32)


def test_the_disk_cache_gives_the_same_pixels_and_decodes_nothing_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Album.of(files_of(folder), Darkroom(32, 40))
    readable = plain.developed()
    room = Darkroom(32, 40, place="disk", cache=tmp_path / "cache")
    num_bytes = room.prepare(files_of(folder), "the photos")
    assert num_bytes == int(3 * plain.sizes.prod(1).sum())
    monkeypatch.setattr(darkroom_module, "pixels_of", lambda *_: pytest.fail("it was decoded again"))
    for place in ("disk", "host"):
        cached = Album.of(files_of(folder), Darkroom(32, 40, place=place, cache=tmp_path / "cache"))
        assert torch.equal(cached.developed(), readable)
        assert torch.equal(on_device(cached[readable], CPU), on_device(plain[readable], CPU))
    assert room.prepare(files_of(folder), "the photos") == num_bytes


def test_a_changed_file_or_strip_is_decoded_again_when_the_cache_is_prepared(folder: Path, tmp_path: Path) -> None:
    room = Darkroom(32, 40, place="disk", cache=tmp_path / "cache")
    room.prepare(files_of(folder), "the photos")
    changed = folder / "class 1" / "0.jpg"
    changed.write_bytes(photo(2, 77))
    strip = next((tmp_path / "cache").rglob("*.pixels"))
    strip.write_bytes(bytes(len(strip.read_bytes())))
    room.prepare(files_of(folder), "the photos")
    cached, plain = Album.of(files_of(folder), room), Album.of(files_of(folder), Darkroom(32, 40))
    readable = plain.developed()
    assert torch.equal(cached.developed(), readable)
    assert torch.equal(on_device(cached[readable], CPU), on_device(plain[readable], CPU))


def test_a_killed_preparation_goes_on_where_it_stopped(folder: Path, tmp_path: Path) -> None:
    script = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(__file__).parents[2] / "support")!r})
from pathlib import Path
from foster.data.photos import cache
from foster.data.photos.darkroom import Darkroom
from foster.data.photos.encoded import PhotoFiles
from foster.data.photos.find import image_files
folders = sorted(Path({str(folder)!r}).iterdir())
files = PhotoFiles.of(folders, [[path.name for path in image_files(own)] for own in folders])
write = cache.write_json
def killed(path, facts):
    write(path, facts)
    if len(list(path.parent.glob("*.json"))) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
cache.write_json = killed
Darkroom(32, 40, place="disk", cache=Path({str(tmp_path / "cache")!r})).prepare(files, "the photos")
"""
    done = subprocess.run([sys.executable, "-c", script], env=os.environ, timeout=60)
    assert done.returncode == -signal.SIGKILL
    strips = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.json")}
    assert len(strips) == 2
    Darkroom(32, 40, place="disk", cache=tmp_path / "cache").prepare(files_of(folder), "the photos")
    assert len(list((tmp_path / "cache").rglob("*.json"))) == 3
    assert all(path.stat().st_mtime_ns == time for path, time in strips.items())


def test_the_memory_keeps_encoded_files_and_loads_them_again(folder: Path) -> None:
    room = Darkroom(32, 40)
    album = Album.of(files_of(folder), room)
    album.developed()
    memory = ExemplarMemory(per_class=3, darkroom=room)
    for class_id in range(3):
        memory.remember(class_id, album[torch.arange(5 * class_id, 5 * class_id + 3)])
    content = (folder / "class 1" / "1.jpg").read_bytes()
    for path in folder.rglob("*.jpg"):
        path.unlink()
    state = memory.state()
    assert state.keys() == {"contents", "lengths", "counts"}
    again = ExemplarMemory(per_class=3, darkroom=room)
    again.load_state(state)
    kept, loaded = (found.exemplars(("a", "b", "c")) for found in (memory, again))
    assert kept is not None
    assert loaded is not None
    assert isinstance(loaded.stack, Album)
    assert loaded.stack.contents()[4] == content
    assert again.num_bytes == memory.num_bytes == len(state["contents"])
    assert torch.equal(on_device(kept.stack, CPU), on_device(album[torch.tensor([0, 1, 2, 5, 6, 7, 10, 11, 12])], CPU))
    again.trim(3)
    damaged = state | {"lengths": state["lengths"] + 1}
    with pytest.raises(DataError, match="damaged"):
        again.load_state(damaged)


def test_pixels_go_when_nobody_needs_their_task_any_more(folder: Path) -> None:
    whole = Album.of(files_of(folder), Darkroom(32, 40))
    task = ImageSet(whole[torch.arange(5, 15)], torch.arange(10), tuple("abcdefghij"))
    own = ImageSet(task.stack.apart("task 1"), task.labels, task.class_names).readable()  # type: ignore[union-attr]
    both = concatenate(own, own)
    assert len(both) == 20
    store = weakref.ref(own.stack._stores[0])  # type: ignore[union-attr]
    assert not whole._stores[0].is_developed.any()
    del own, both
    gc.collect()
    assert store() is None


def test_photos_go_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(darkroom_module, "_available_memory", lambda: 1000.0)
    assert place_for(600, CPU, has_cache=False) == "host"
    assert place_for(800, CPU, has_cache=True) == "disk"
    with pytest.raises(DataError, match=r"engine\.photo_cache=FOLDER"):
        place_for(800, CPU, has_cache=False)


def test_kept_photos_need_no_files() -> None:
    album = Album.of(PhotoBytes([photo(0, k) for k in range(3)]), Darkroom(16, 20))
    assert on_device(album, CPU).shape == (3, 3, 16, 16)
