"""Which photos there are, and of which classes: folders, CSV files, lists, arrays with labels; what is refused."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from photo_folders import write_classes
from PIL import Image

from foster.data.images import ImageSet
from foster.data.photos.decode import ImageError, Resizing, decode
from foster.data.photos.find import (
    as_items,
    check_are_classes,
    find_files,
    find_photos,
    found_files,
    inner_folders,
    natural_order,
    passed_over_text,
    similar_names,
)
from foster.data.photos.reading import read_photos
from foster.errors import DataError

SIZE = Resizing(4, 4)
CLASSES = ("cat", "dog")


def test_what_is_passed_over_in_a_folder_is_counted(tmp_path: Path) -> None:
    folder = write_classes(tmp_path, cat=2, dog=1, empty=0, phone=0)
    for name in ("cat/a.DNG", "cat/b.dng", "cat/IMG_0001", "phone/c.dng", "notes.txt", "loose.png", ".hidden.dng"):
        (folder / name).write_bytes(b"x")
    (folder / "cat" / "link").symlink_to(tmp_path.parent)
    photos = find_photos(folder)
    assert photos.labels == ("cat", "cat", "dog")
    assert photos.empty_classes == ("empty", "phone")
    assert photos.passed_over == {
        ".dng": 3,
        "without an ending": 1,
        "linked folder(s)": 1,
        "outside the class folders": 2,
    }
    assert passed_over_text(photos.passed_over) == (
        "3 .dng, 2 outside the class folders, 1 linked folder(s), 1 without an ending"
    )


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
        inner(cat=("garden", "house"), dog=()),
    ],
)
def test_folders_that_look_like_classes_are_classes(folders: dict[Path, Sequence[str]]) -> None:
    check_are_classes(folders, "'photos'")


@pytest.mark.parametrize(
    ("folders", "line"),
    [
        (inner(test=(), train=()), "'photos/train'"),
        (inner(test=CLASSES), "'photos/test'"),
        (
            inner(january=CLASSES, test=CLASSES),
            "'photos/january'",
        ),
        (
            inner(cat=(), dog=(), test=CLASSES),
            "'photos/test' holds folders (cat, dog)",
        ),
        (inner(phone=CLASSES, camera=("fox",)), "(phone, camera)"),
        (inner(phone=CLASSES, camera=("fox",)), "'photos/phone'"),
        (inner(all=CLASSES), "'photos/all'"),
        (inner(alice=CLASSES, bob=CLASSES), "'photos/alice'"),
    ],
)
def test_parts_of_a_dataset_and_groups_of_classes_are_no_classes(folders: dict[Path, Sequence[str]], line: str) -> None:
    with pytest.raises(DataError) as error:
        check_are_classes(folders, "'photos'")
    assert line in str(error.value)


@pytest.mark.parametrize("names", [("2024-01", "2024-02"), ("January", "February"), ("100CANON",)])
def test_dates_above_classes_are_refused_and_the_first_is_named(names: tuple[str, ...]) -> None:
    with pytest.raises(DataError) as error:
        check_are_classes(inner(**dict.fromkeys(names, CLASSES)), "'photos'")
    assert f"({', '.join(names)}), one level above the classes" in str(error.value)
    assert f"if the classes are cat, dog, give 'photos/{names[0]}'" in str(error.value)


@pytest.mark.parametrize("kind", [str, object])
def test_an_array_of_paths_is_a_list_of_paths(kind: type, tmp_path: Path) -> None:
    paths = [tmp_path / f"{k}.png" for k in range(3)]
    for path in paths:
        Image.new("RGB", (4, 4)).save(path)
    given = np.array([str(path) for path in paths], dtype=kind)
    assert as_items(given) == paths
    assert as_items(given[1:2].reshape(())) == paths[1:2]
    assert len(read_photos(find_photos((given, ["a"] * 3)), SIZE).stack) == 3


@pytest.mark.parametrize("given", [None, 5])
def test_what_is_no_image_is_refused(given: Any) -> None:
    with pytest.raises(ImageError, match=f"{type(given).__name__}$"):
        decode(as_items([given])[0])  # a number is no open file


@pytest.mark.parametrize(
    "source",
    [
        np.zeros((2, 4, 4), np.uint8),
        [np.zeros((2, 4, 4), np.uint8), [0, 1]],
        ["a.png", "b.png"],
        ("a.png", "b.png"),
        (np.zeros((3, 4, 4), np.uint8), "cat"),
        Image.new("RGB", (4, 4)),
    ],
)
def test_images_without_labels_are_refused_with_what_to_give(source: object) -> None:
    with pytest.raises(DataError, match=r"^labels"):
        find_photos(source)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.eye(3, dtype=int), r"label 0 is \[1, 0, 0\]: .*argmax"),
        (list(torch.eye(3)), r"label 0 is tensor"),
        (["a", None, "b"], "label 1 is None"),
        (np.array([0.0, np.nan, 1.0]), "label 1 is nan"),
        ([b"a", b"b", b"c"], "label 0 is b'a'"),
    ],
)
def test_labels_that_name_no_class_are_refused_in_one_line(labels: object, message: str) -> None:
    with pytest.raises(DataError, match=message) as refused:
        find_photos((np.zeros((3, 4, 4), np.uint8), labels))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "labels",
    [
        (3, 1, 2),
        ["3", "1", " 2"],
        torch.tensor([3, 1, 2]),
        list(np.array([3, 1, 2])),
        np.array([3, 1, "2"], object),
    ],
)
def test_the_same_labels_in_any_form_are_the_same_classes(labels: object) -> None:
    found = find_photos((np.zeros((3, 4, 4), np.uint8), labels))
    assert found.labels == ("3", "1", "2")


def test_three_axes_are_one_image_where_the_channels_are_in_their_place_else_grey_images() -> None:
    shapes = {(3, 4, 5): 3, (4, 5, 3): 1}
    assert {shape: len(as_items(np.zeros(shape, np.uint8))) for shape in shapes} == shapes
    assert [len(as_items(torch.zeros(shape))) for shape in ((3, 4, 5), (5, 4, 5))] == [1, 5]


def test_an_image_set_keeps_the_class_of_each_image() -> None:
    images = ImageSet(torch.zeros(3, 3, 4, 4, dtype=torch.uint8), torch.tensor([1, 0, 1]), ("cat", "dog"))
    assert find_photos(images).labels == ("dog", "cat", "dog")


def test_a_folder_gives_one_class_a_subfolder_in_natural_order(tmp_path: Path) -> None:
    folder = write_classes(tmp_path, class10=1, class2=2)
    photos = find_photos(folder)
    assert photos.class_names == ("class2", "class10")
    assert photos.labels == ("class2", "class2", "class10")
    assert sorted(["a10", "a9", "b", "9", "10"], key=natural_order) == ["9", "10", "a9", "a10", "b"]


def test_a_folder_of_other_files_alone_says_what_they_are(tmp_path: Path) -> None:
    write_classes(tmp_path, cat=0)
    (tmp_path / "cat" / "a.mov").write_bytes(b"x")
    with pytest.raises(DataError, match=r"1 \.mov$"):
        find_photos(tmp_path)


def test_one_word_in_two_spellings_is_one_class(tmp_path: Path) -> None:
    for spelling, count in (("caf\u00e9", 1), ("cafe\u0301", 2)):
        (tmp_path / spelling).mkdir()
        for k in range(count):
            Image.new("RGB", (4, 4)).save(tmp_path / spelling / f"{k}.png")
    photos = find_photos(tmp_path)
    assert photos.class_names == ("caf\u00e9",)
    assert len(photos) == 3


def test_names_that_differ_in_case_or_joints_are_named_together_where_one_is_new() -> None:
    assert similar_names(["Red Fox", "owl", "red_fox", "1", "11"]) == [("Red Fox", "red_fox")]
    assert similar_names(["Apple", "pear"], known=["apple", "pear", "Fig", "fig"]) == [("apple", "Apple")]


def test_a_csv_names_paths_relative_to_itself_with_or_without_a_header(tmp_path: Path) -> None:
    folder = write_classes(tmp_path / "images", x=3)
    expected = [folder / "x" / f"{k}.png" for k in range(3)]
    rows = [f"images/x/{k}.png" for k in range(3)]
    (tmp_path / "plain.csv").write_text("".join(f"{row},{label}\n" for row, label in zip(rows, "bab", strict=True)))
    (tmp_path / "header.csv").write_text(
        "\ufefflabel;split;path\n"
        + "".join(f"{label};t;{row}\n" for row, label in zip(rows, "bab", strict=True))
        + "\n"
    )
    for name in ("plain.csv", "header.csv"):
        photos = find_photos(tmp_path / name)
        assert list(photos.items) == expected, name
        assert photos.labels == ("b", "a", "b")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no images"),
        ("path,label\n", "names no images"),
        ("a.png,cat\nb.png\n", "line 2 of"),
        ("a.png,\n", "class name is empty"),
        ("a.png,a\x07b\n", "control characters"),
    ],
)
def test_a_csv_that_cannot_be_understood_names_the_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "list.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        find_photos(path)


def test_wrong_folders_say_what_is_expected(tmp_path: Path) -> None:
    loose, bundle = write_classes(tmp_path, loose=1) / "loose", write_classes(tmp_path / "bundle", exemplars=1)
    (bundle / "bundle.json").write_text("{}")
    for source, fact in (
        (loose, "1 image"),
        (write_classes(tmp_path / "split", train=1, test=1), f"'{tmp_path}/split/train'"),
        (bundle, f"foster learn PHOTOS --from {bundle}"),
        (write_classes(tmp_path / "bare", cat=0), f"'{tmp_path}/bare'"),
        (tmp_path / "missing", f"'{tmp_path}/missing'"),
        (loose / "0.png", ".csv"),
        ((np.zeros((2, 4, 4, 3), np.uint8), ["a"]), "2 images, but 1 label"),
    ):
        with pytest.raises(DataError, match=re.escape(fact)):
            find_photos(source)


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
    assert found.passed_over == {"unreadable folder(s)": 1}
