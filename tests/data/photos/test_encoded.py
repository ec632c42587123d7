"""Photos as they were encoded: files in folders, and bytes."""

import os
from pathlib import Path

import numpy as np
from photo_folders import files_of

from foster.data.photos.encoded import PhotoBytes, PhotoFiles
from foster.data.photos.find import find_files


def test_a_list_of_files_gives_back_every_path_and_takes_few_bytes(folder: Path) -> None:
    files = files_of(folder)
    paths = [path for own in sorted(folder.iterdir()) for path in find_files(own).images]
    assert [files.path(k) for k in range(len(files))] == paths
    some = files.select(np.array([7, 0, 11]))
    assert [some.path(k) for k in range(3)] == [paths[7], paths[0], paths[11]]
    assert files.names.nbytes + files.folder_ids.nbytes <= 40 * len(files)


def test_photos_in_memory_are_selected_in_the_given_order_and_counted_in_bytes() -> None:
    photos = PhotoBytes([b"one", b"three", b"seven"])
    some = photos.select(np.array([2, 0]))
    assert [some.content(k) for k in range(len(some))] == [b"seven", b"one"]


def test_a_name_that_is_no_unicode_leads_to_its_file(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.jpg")
    (tmp_path / name).write_bytes(b"content")
    (tmp_path / "zoo.jpg").write_bytes(b"other")
    files = PhotoFiles.of([tmp_path], [[name, "zoo.jpg"]])
    assert (files.content(0), files.content(1)) == (b"content", b"other")
