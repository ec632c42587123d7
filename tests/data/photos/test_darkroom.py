"""Photos are developed where there is room; what cannot be read is left out and told."""

import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from photo_folders import files_of, write_photos

from foster import events
from foster.data.download import Follower
from foster.data.photos import darkroom as darkroom_module
from foster.data.photos.album import Album
from foster.data.photos.darkroom import Darkroom, place_for
from foster.data.photos.encoded import PhotoBytes
from foster.errors import DataError

CPU = torch.device("cpu")


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


def test_photos_go_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(darkroom_module, "_available_memory", lambda: 1000.0)
    assert place_for(600, CPU, has_cache=False) == "host"
    assert place_for(800, CPU, has_cache=True) == "disk"
    with pytest.raises(DataError, match=r"engine\.photo_cache=FOLDER"):
        place_for(800, CPU, has_cache=False)


class Slow(PhotoBytes):
    """Photos of which all but the first wait until they may be decoded."""

    def __init__(self, contents: Sequence[bytes]) -> None:
        super().__init__(contents)
        self.is_decoded, self.may_go_on = threading.Event(), threading.Event()
        self.asked: list[int] = []

    def pixels(self, position: int, short_side: int) -> NDArray[np.uint8]:
        self.asked.append(position)
        if position == 0:
            self.is_decoded.set()
        else:
            self.may_go_on.wait(timeout=60)
        return super().pixels(position, short_side)


def test_what_is_not_wanted_any_more_ends_after_the_photos_in_hand(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(darkroom_module, "DEVELOPED_TOGETHER", 1)
    photos = Slow([(folder / "class 1" / "0.jpg").read_bytes()] * 9)
    coming = Darkroom(32, 40, num_threads=2).ahead(photos)
    assert coming is not None
    assert photos.is_decoded.wait(timeout=60)  # before anybody asks
    coming.cancel()
    photos.may_go_on.set()
    with pytest.raises(CancelledError):
        list(coming)
    assert photos.asked in ([0], [0, 1])
