"""The disk cache of decoded photos: the same pixels, decoded once, whatever happens to files and processes."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from photo_folders import files_of, photo

from foster import events
from foster.data.download import Follower
from foster.data.images import on_device
from foster.data.photos import encoded
from foster.data.photos.album import Album
from foster.data.photos.darkroom import Darkroom
from foster.data.photos.developing import learners_darkroom, read_stack
from foster.data.photos.resize import Resizing
from foster.data.photos.sources import find_photos
from foster.errors import FolderError
from foster.reports.progress_texts import decoding

CPU = torch.device("cpu")


def test_the_disk_cache_gives_the_same_pixels_and_decodes_nothing_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Album.of(files_of(folder), Darkroom(32, 40))
    readable = plain.developed()
    told: list[events.Event] = []
    room = Darkroom(32, 40, place="disk", cache=tmp_path / "cache", follower=Follower(told.append))
    num_bytes = room.prepare(files_of(folder), "the photos")
    assert num_bytes == int(3 * plain.sizes.prod(1).sum())
    monkeypatch.setattr(encoded, "pixels_of", lambda *_: pytest.fail("it was decoded again"))
    for place in ("disk", "host"):
        cached = Album.of(files_of(folder), Darkroom(32, 40, place=place, cache=tmp_path / "cache"))
        assert torch.equal(cached.developed(), readable)
        assert torch.equal(on_device(cached[readable], CPU), on_device(plain[readable], CPU))
    assert room.prepare(files_of(folder), "the photos") == num_bytes
    words = [decoding(event) for event in told if isinstance(event, events.Decoding)]
    half = len(words) // 2
    assert words == ["decoding the photos"] * half + ["checking the photos"] * half


def test_a_full_disk_is_called_so(folder: Path, tmp_path: Path) -> None:
    resizing = Resizing(72, 72)
    on_disk = learners_darkroom(resizing, place="disk", cache=tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(FolderError, match="pixels': File too large"):
            Darkroom(32, 40, place="disk", cache=tmp_path / "cache").prepare(files_of(folder), "the photos")
        with pytest.raises(FolderError, match=f"cannot write '{tmp_path}': File too large"):
            read_stack(find_photos(folder), resizing, max_unreadable=9, darkroom=on_disk)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


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
from foster.data.photos.find import find_files
folders = sorted(Path({str(folder)!r}).iterdir())
files = PhotoFiles.of(folders, [[path.name for path in find_files(own).images] for own in folders])
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
