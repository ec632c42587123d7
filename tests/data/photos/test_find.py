"""Image files in folders: in natural order, and what is passed over is counted."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from photo_folders import write_classes

from foster.data.photos.find import doubt_of, find_files, find_photos, found_files, inner_folders, passed_over_text
from foster.errors import DataError

RED, GREEN, WHITE = (255, 0, 0), (0, 255, 0), (255, 255, 255)

CLASSES = ("cat", "dog")


def test_what_is_passed_over_in_a_folder_is_counted(tmp_path: Path) -> None:
    elsewhere, folder = (
        write_classes(tmp_path / "a", more=3),
        write_classes(tmp_path / "b", cat=2, dog=1, empty=0, phone=0),
    )
    for name in ("cat/a.DNG", "cat/b.dng", "cat/IMG_0001", "phone/c.dng", "notes.txt", "loose.png", ".hidden.dng"):
        (folder / name).write_bytes(b"x")
    (folder / "cat" / "link").symlink_to(elsewhere / "more")
    photos = find_photos(folder)
    assert photos.labels == ("cat", "cat", "dog")
    assert photos.empty_classes == ("empty", "phone")
    assert photos.passed_over == {
        ".dng": 3,
        "without an ending": 1,
        "linked folders": 1,
        "beside the class folders": 2,
    }
    assert passed_over_text(photos.passed_over) == (
        "3 .dng (to use them, save as JPEG), 2 beside the class folders, 1 linked folder, 1 without an ending"
    )


def test_many_endings_are_summed_up() -> None:
    text = passed_over_text({f".{k:02d}": 1 for k in range(30)} | {".mov": 9})
    assert text.startswith("9 .mov, 1 .00, ")
    assert text.endswith(", 23 others")


def test_one_of_a_kind_is_told_as_one() -> None:
    counts = {"beside the class folders": 1, "unreadable folders": 1, ".nef": 1}
    expected = "1 beside the class folders, 1 unreadable folder, 1 .nef (to use it, save as JPEG)"
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
    (tree / "a" / "b.mov").write_bytes(b"")
    assert found_files([tmp_path / "odd.dat", tree]) == (found, {".mov": 1})


def inner(**folders: Sequence[str]) -> dict[Path, Sequence[str]]:
    return {Path("photos", name): names for name, names in folders.items()}


def test_the_folders_inside_a_folder_are_those_that_hold_its_images() -> None:
    folder = Path("photos/january")
    deep = [folder / "cat/1.jpg", folder / "cat/old/2.jpg", folder / "dog/3.jpg"]
    assert inner_folders(folder, deep) == CLASSES
    assert inner_folders(folder, [*deep, folder / "4.jpg"]) == (), "what holds an image itself is a class"


@pytest.mark.parametrize(
    "folders",
    [
        inner(cat=(), dog=()),
        inner(cat=(), dog=("old", "new")),
        inner(cat=("images",), dog=("images",)),
        inner(cat=("2023", "2024-05"), dog=("100CANON",)),
        inner(cat=(), test=()),
    ],
)
def test_classes_are_not_doubted(folders: dict[Path, Sequence[str]]) -> None:
    assert doubt_of(folders, "'photos'") == ""


def test_folders_of_folders_are_doubted_and_the_place_of_the_classes_is_named() -> None:
    assert doubt_of(inner(phone=CLASSES, camera=("fox",)), "'photos'") == (
        "'photos' holds only folders of folders, and phone, camera are taken for the classes; if the classes are "
        "cat, dog, give 'photos/phone' in its place"
    )
    one_each = doubt_of({Path("photos", f"2024-0{month}"): ("cat",) for month in (1, 2)}, "'photos'")
    assert "2024-01, 2024-02 are taken for the classes; if the classes are cat, give 'photos/2024-01'" in one_each


def test_dates_inside_dates_are_only_doubted() -> None:
    folders = {Path("photos", f"2024-0{month}"): ("cat", "2024-05") for month in (1, 2)}
    assert "2024-01, 2024-02 are taken for the classes" in doubt_of(folders, "'photos'")


@pytest.mark.parametrize(
    ("folders", "line"),
    [
        (inner(test=(), train=()), "(test, train), not classes; give one part, for example 'photos/train'"),
        (inner(test=CLASSES), "(test), not classes; give one part, for example 'photos/test'"),
        (
            inner(january=CLASSES, test=CLASSES),
            "(january, test), not classes; give one part, for example 'photos/january'",
        ),
        (
            inner(cat=(), dog=(), test=CLASSES),
            "'photos/test' holds folders (cat, dog), so it is no class but a part of",
        ),
    ],
)
def test_the_parts_of_a_dataset_are_no_classes(folders: dict[Path, Sequence[str]], line: str) -> None:
    with pytest.raises(DataError) as error:
        doubt_of(folders, "'photos'")
    assert line in str(error.value)


@pytest.mark.parametrize("names", [("2024-01", "2024-02"), ("January", "February"), ("100CANON",)])
def test_dates_above_classes_are_refused_and_the_first_is_named(names: tuple[str, ...]) -> None:
    with pytest.raises(DataError) as error:
        doubt_of(inner(**dict.fromkeys(names, CLASSES)), "'photos'")
    assert f"are dates ({', '.join(names)}), and the classes (cat, dog) lie inside them" in str(error.value)
    assert f"one date at a time, 'photos/{names[0]}' first" in str(error.value)
