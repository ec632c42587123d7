"""Folders that are whole or not there, and files that are what their hash says."""

from pathlib import Path

import pytest

from foster.bundle.folder import (
    BundleError,
    folder_bytes,
    read_checked,
    remove_unfinished,
    writing_folder,
)
from foster.bundle.manifest import sha256
from foster.errors import FolderError


def test_a_folder_takes_its_name_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "v1"
    with writing_folder(target) as temporary:
        (temporary / "a").write_bytes(b"12345")
        assert not target.exists()
        itself = temporary.stat().st_ino
    assert target.stat().st_ino == itself, "it is renamed, which happens at once, and not copied"
    assert [path.name for path in target.iterdir()] == ["a"]
    assert folder_bytes(target) == 5
    assert [path.name for path in target.parent.iterdir()] == ["v1"]
    with pytest.raises(FolderError, match="already exists"), writing_folder(target):
        pytest.fail("it was written over")


def test_only_what_killed_writers_of_this_bundle_left_is_taken_away(tmp_path: Path) -> None:
    names = [".v1.ab12_xyz.part", ".v10.ab12_xyz.part", ".v1.notes.part", ".v1.AB12_XYZ.part", "v1.ab12_xyz.part"]
    for name in names:
        (tmp_path / name).mkdir()
    remove_unfinished(tmp_path / "v1")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[1:])


def test_a_file_is_read_where_it_is_whole_unchanged_and_inside(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"content")
    digest = sha256(b"content")
    assert read_checked(tmp_path, "a", 7, digest) == b"content"
    for size, other, message in ((8, digest, "truncated"), (6, digest, "changed: 7 bytes"), (7, sha256(b""), "hash")):
        with pytest.raises(BundleError, match=message):
            read_checked(tmp_path, "a", size, other)
    with pytest.raises(BundleError, match="'b' is missing"):
        read_checked(tmp_path, "b", 7, digest)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    with pytest.raises(BundleError, match="link"):
        read_checked(tmp_path, "link", 7, digest)
