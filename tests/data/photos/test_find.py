"""Image files in folders: in natural order, and what is passed over is counted."""

import os
from pathlib import Path

import pytest
from photo_folders import write_classes

from foster.data.photos.find import find_files, found_files, passed_over_text
from foster.data.photos.sources import find_photos

RED, GREEN, WHITE = (255, 0, 0), (0, 255, 0), (255, 255, 255)


def test_what_is_passed_over_in_a_folder_is_counted(tmp_path: Path) -> None:
    elsewhere, folder = (
        write_classes(tmp_path / "a", more=3),
        write_classes(tmp_path / "b", cat=2, dog=1, empty=0, phone=0),
    )
    for name in ("cat/a.HEIC", "cat/b.heic", "cat/IMG_0001", "phone/c.heic", "notes.txt", "loose.png", ".hidden.heic"):
        (folder / name).write_bytes(b"x")
    (folder / "cat" / "link").symlink_to(elsewhere / "more")
    photos = find_photos(folder)
    assert photos.labels == ("cat", "cat", "dog")
    assert photos.empty_classes == ("empty", "phone")
    assert photos.passed_over == {
        ".heic": 3,
        "without an ending": 1,
        "linked folders": 1,
        "beside the class folders": 2,
    }
    assert passed_over_text(photos.passed_over) == (
        "3 .heic (to use them, save as JPEG), 2 beside the class folders, 1 linked folder, 1 without an ending"
    )


def test_many_endings_are_summed_up() -> None:
    text = passed_over_text({f".{k:02d}": 1 for k in range(30)} | {".mov": 9})
    assert text.startswith("9 .mov, 1 .00, ")
    assert text.endswith(", 23 others")


def test_one_of_a_kind_is_told_as_one() -> None:
    counts = {"beside the class folders": 1, "unreadable folders": 1, ".heif": 1}
    expected = "1 beside the class folders, 1 unreadable folder, 1 .heif (to use it, save as JPEG)"
    assert passed_over_text(counts) == expected


def test_a_folder_that_cannot_be_read_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_classes(tmp_path, open=1, closed=1)
    scan = os.scandir

    def refusing(path: str | os.PathLike[str]) -> object:
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied")
        return scan(path)

    monkeypatch.setattr(os, "scandir", refusing)
    found = find_files(tmp_path)
    assert found.images == [tmp_path / "open" / "0.png"]
    assert found.passed_over == {"unreadable folders": 1}


def test_folders_are_walked_in_order_and_single_files_need_no_known_ending(tmp_path: Path) -> None:
    write_classes(tmp_path / "tree", b=2, a=1)
    (tmp_path / "odd.dat").write_bytes(b"")
    found = found_files([tmp_path / "odd.dat", tmp_path / "tree"]).images
    tree = tmp_path / "tree"
    assert found == [tmp_path / "odd.dat", tree / "a" / "0.png", tree / "b" / "0.png", tree / "b" / "1.png"]
    assert find_files(tree).images == found[1:]
    (tree / "a" / "b.heic").write_bytes(b"")
    assert found_files([tmp_path / "odd.dat", tree]) == (found, {".heic": 1})
