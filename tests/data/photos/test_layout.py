"""A folder of photos that lies one level too high is noticed."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from foster.data.photos.layout import doubt_of, inner_folders
from foster.errors import DataError

CLASSES = ("cat", "dog")


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
