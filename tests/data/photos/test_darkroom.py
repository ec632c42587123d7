"""Photos are developed where there is room; what cannot be read is left out and told."""

from pathlib import Path

import pytest
import torch
from photo_folders import files_of, write_photos

from foster import events
from foster.data.download import Follower
from foster.data.photos import darkroom as darkroom_module
from foster.data.photos.album import Album
from foster.data.photos.darkroom import Darkroom, place_for
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
