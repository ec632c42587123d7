"""Folders that are whole or not there, and files that are what their hash says."""

from pathlib import Path

import pytest

from foster.bundle.files import (
    SAFE_PATH,
    BundleError,
    check_outside,
    folder_bytes,
    read_checked,
    real_folder,
    remove_unfinished,
    sha256,
    writing_folder,
)
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


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with writing_folder(tmp_path / "v1") as temporary:
            (temporary / "a").touch()
            raise OSError(28, "No space left on device")

    with pytest.raises(FolderError, match="No space left"):
        fail()
    assert not list(tmp_path.iterdir())


def test_only_what_killed_writers_of_this_bundle_left_is_taken_away(tmp_path: Path) -> None:
    names = [".v1.ab12_xyz.part", ".v10.ab12_xyz.part", ".v1.notes.part", ".v1.AB12_XYZ.part", "v1.ab12_xyz.part"]
    for name in names:
        (tmp_path / name).mkdir()
    remove_unfinished(tmp_path / "v1")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[1:])


def test_nothing_is_written_inside_a_bundle(tmp_path: Path) -> None:
    bundle = tmp_path / "v1"
    bundle.mkdir()
    (bundle / "bundle.json").touch()
    check_outside(bundle / "deep" / "v2")
    (bundle / "network.safetensors").touch()
    with pytest.raises(FolderError, match="inside"):
        check_outside(bundle / "deep" / "v2")


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


def test_a_link_stands_for_the_folder_behind_it(tmp_path: Path) -> None:
    (tmp_path / "v1").mkdir()
    (tmp_path / "current").symlink_to("v1")
    assert real_folder(tmp_path / "current") == (tmp_path / "v1").resolve()
    (tmp_path / "file").touch()
    for name, message in (("nothing", "there is no bundle"), ("file", "is not a bundle folder")):
        with pytest.raises(BundleError, match=message):
            real_folder(tmp_path / name)


@pytest.mark.parametrize("name", ["../x", "/x", "a//b", "a/../b", ".hidden", "a/.b", "", "a b", "a\n"])
def test_a_name_that_may_lead_elsewhere_is_no_safe_one(name: str) -> None:
    assert not SAFE_PATH.fullmatch(name)
    assert SAFE_PATH.fullmatch("exemplars/0-cat/12.png")
