"""Images and labels as a program gives them: the range of pixels, lists in every guise, labels that are none."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from photo_folders import write_classes
from PIL import Image

from foster.data.photos.decode import ImageError, Resizing, decode, decoded
from foster.data.photos.find import as_items, find_photos, natural_order
from foster.data.photos.store import read_photos
from foster.errors import DataError

GREYS = np.array([[0, 1, 128, 255]])
SIZE = Resizing(4, 4)


def greys(given: object) -> list[int]:
    """The first row of the decoded picture, where all three channels are the same."""
    picture = np.asarray(decode(given))  # type: ignore[arg-type]
    assert (picture == picture[:, :, :1]).all()
    return picture[0, :, 0].tolist()


@pytest.mark.parametrize("kind", ["int64", "int32", "int16", "uint32", ">i4", "uint64"])
def test_integers_up_to_255_are_taken_as_they_are(kind: str) -> None:
    assert greys(GREYS.astype(kind)) == [0, 1, 128, 255]
    if not kind.startswith(">"):
        assert greys(torch.from_numpy(GREYS.astype(kind))) == [0, 1, 128, 255]


@pytest.mark.parametrize("kind", ["<u2", ">u2"])
def test_only_unsigned_16_bits_have_a_range_of_16_bits(kind: str) -> None:
    assert greys((257 * GREYS).astype(kind)) == [0, 1, 128, 255]
    assert greys(GREYS.astype(kind)) == [0, 0, 0, 1], "the range belongs to the type, not to the values"
    for other in ("int32", "int64"):
        with pytest.raises(ImageError, match=f"^{other} pixels from 0 to 65535: give uint8, uint16, or floats"):
            decode((257 * GREYS).astype(other))


def test_true_is_white() -> None:
    assert greys(GREYS > 1) == greys(torch.from_numpy(GREYS > 1)) == [0, 0, 255, 255]


def test_a_pil_image_of_32_bits_has_the_range_of_where_it_comes_from(tmp_path: Path) -> None:
    in_memory = Image.fromarray(GREYS.astype(np.int32))
    assert in_memory.mode == "I"
    assert greys(in_memory) == [0, 1, 128, 255]
    with pytest.raises(ImageError, match=r"mode I from 0 to 4095: .* 0 to 255; give mode L or I;16"):
        decode(Image.fromarray(np.array([[0, 4095]], np.int32)))
    path = tmp_path / "deep.pgm"
    path.write_bytes(b"P5 4 1 65535\n" + (257 * GREYS).astype(">u2").tobytes())
    with Image.open(path) as opened:
        assert opened.mode == "I"
        assert greys(opened) == greys(path) == [0, 1, 128, 255]
    Image.fromarray(np.array([[0, 70_000]], np.int32)).save(tmp_path / "deeper.tiff")
    with pytest.raises(ImageError, match="0 to 70000: they must lie in 0 to 65535"):
        decode(tmp_path / "deeper.tiff")


@pytest.mark.parametrize("form", [np.asarray, torch.from_numpy, list])
def test_the_range_of_integers_is_that_of_the_whole_batch(form: object) -> None:
    """The dark image of twelve bits would pass for one of eight."""
    batch = np.full((9, 4, 4), 200)
    assert read_photos(find_photos((form(batch), ["a"] * 9)), SIZE).images.min() == 200  # type: ignore[operator]
    batch[7] = 4095
    with pytest.raises(DataError, match=r"^int64 pixels from \d+ to 4095: give uint8"):
        find_photos((form(batch), ["a"] * 9))  # type: ignore[operator]


def test_a_batch_to_be_predicted_has_one_range_too_and_a_single_image_its_reason() -> None:
    batch = np.full((2, 8, 8), 200)
    batch[1] = 4095
    with pytest.raises(DataError, match="int64 pixels from 200 to 4095"):
        as_items(batch)
    (found,) = decoded(as_items(batch[1]), SIZE)
    assert isinstance(found, ImageError)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float64, torch.float8_e4m3fn])
def test_tensors_of_every_floating_point_type_are_pictures(kind: torch.dtype) -> None:
    batch = torch.tensor([0.0, 1.0]).to(kind)[None, None, None].expand(2, 3, 1, 2)
    pictures = [decode(item) for item in as_items(batch)]
    assert [np.asarray(picture)[0, :, 0].tolist() for picture in pictures] == [[0, 255]] * 2


def test_a_tensor_that_numpy_cannot_hold_is_refused_with_a_reason() -> None:
    with pytest.raises(ImageError):
        decode(torch.zeros(3, 4, 4).to_sparse())


@pytest.mark.parametrize("kind", [str, object])
def test_an_array_of_paths_is_a_list_of_paths(kind: type, tmp_path: Path) -> None:
    paths = [tmp_path / f"{k}.png" for k in range(3)]
    for path in paths:
        Image.new("RGB", (4, 4)).save(path)
    given = np.array([str(path) for path in paths], dtype=kind)
    assert as_items(given) == paths
    assert as_items(given[1:2].reshape(())) == paths[1:2]
    assert len(read_photos(find_photos((given, ["a"] * 3)), SIZE).images) == 3


@pytest.mark.parametrize("given", [None, 5])
def test_what_is_no_image_is_refused_with_what_may_be_given(given: Any) -> None:
    with pytest.raises(DataError, match=f"^images are paths, PIL images or arrays, one or many, not {given}$"):
        as_items(given)
    with pytest.raises(DataError, match=f"^labels are {given}: there must be one name or number for each image"):
        find_photos(([], given))
    with pytest.raises(ImageError, match=f"^neither a path nor an image, but {type(given).__name__}$"):
        decode(as_items([given])[0])  # a number is no open file


def test_an_array_of_images_of_several_sizes_is_a_list_of_images() -> None:
    given = np.empty(2, dtype=object)
    given[:] = [np.zeros((4, 4), np.uint8), np.zeros((6, 5, 3), np.uint8)]
    assert [decode(item).size for item in as_items(given)] == [(4, 4), (5, 6)]


@pytest.mark.parametrize(
    "source",
    [
        np.zeros((2, 4, 4), np.uint8),
        torch.zeros(2, 3, 4, 4),
        [np.zeros((2, 4, 4), np.uint8), [0, 1]],
        ["a.png", "b.png"],
        ("a.png", "b.png"),
        (np.zeros((3, 4, 4), np.uint8), "cat"),
        (["a.png"], ["a"], ["b"]),
        Image.new("RGB", (4, 4)),
        None,
    ],
)
def test_images_without_labels_are_refused_with_what_to_give(source: object) -> None:
    with pytest.raises(DataError, match=r"^labels are missing: give images with a label each"):
        find_photos(source)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.eye(3), r"labels of shape \(3, 3\): .* of one-hot rows, give the argmax"),
        (torch.eye(3), r"labels of shape \(3, 3\): .* of one-hot rows, give the argmax"),
        (np.eye(3, dtype=int).tolist(), r"label 0 is \[1, 0, 0\]: .* give the argmax"),
        (list(torch.eye(3)), r"label 0 is tensor"),
        (np.array(1), r"labels of shape \(\)"),
        (["a", None, "b"], "label 1 is None: there must be one name or number for each image"),
        (["a", "b", float("nan")], "label 2 is nan"),
        (np.array([0.0, np.nan, 1.0]), "label 1 is nan"),
        (np.array(["a", None, "b"]), "label 1 is None"),
        ([b"a", b"b", b"c"], "label 0 is b'a'"),
    ],
)
def test_labels_that_name_no_class_are_refused_in_one_line(labels: object, message: str) -> None:
    with pytest.raises(DataError, match=message) as refused:
        find_photos((np.zeros((3, 4, 4), np.uint8), labels))  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "labels",
    [
        (3, 1, 2),
        ["3", "1", " 2"],
        np.array([3, 1, 2]),
        torch.tensor([3, 1, 2]),
        list(np.array([3, 1, 2])),
        list(torch.tensor([3, 1, 2])),
        np.array(["3", "1", "2"]),
        np.array([3, 1, "2"], object),
    ],
)
def test_the_same_labels_in_any_form_are_the_same_classes(labels: object) -> None:
    found = find_photos((np.zeros((3, 4, 4), np.uint8), labels))  # type: ignore[arg-type]
    assert found.labels == ("3", "1", "2")


def test_a_folder_gives_one_class_a_subfolder_in_natural_order(tmp_path: Path) -> None:
    folder = write_classes(tmp_path, class10=1, class2=2)
    photos = find_photos(folder)
    assert photos.class_names == ("class2", "class10")
    assert photos.labels == ("class2", "class2", "class10")
    assert sorted(["a10", "a9", "b", "9", "10"], key=natural_order) == ["9", "10", "a9", "a10", "b"]


def test_images_in_deeper_folders_belong_to_the_class_and_other_files_are_passed_over(tmp_path: Path) -> None:
    write_classes(tmp_path / "cat", deeper=2)
    write_classes(tmp_path, dog=1)
    (tmp_path / "dog" / "Thumbs.db").write_bytes(b"x")
    (tmp_path / "dog" / ".hidden.png").write_bytes(b"x")
    write_classes(tmp_path, **{".cache": 1})
    photos = find_photos(tmp_path)
    assert photos.labels == ("cat", "cat", "dog")


def test_a_folder_of_other_files_alone_says_what_they_are(tmp_path: Path) -> None:
    write_classes(tmp_path, cat=0)
    (tmp_path / "cat" / "a.mov").write_bytes(b"x")
    with pytest.raises(DataError, match=r"no images below .*; passed over: 1 \.mov$"):
        find_photos(tmp_path)


@pytest.mark.parametrize("names", [(b"bad\xff", b"bad\xfe"), (b"cat", b" cat")])
def test_two_folders_are_never_one_class_by_accident(tmp_path: Path, names: tuple[bytes, bytes]) -> None:
    for name in names:
        folder = os.fsencode(tmp_path) + b"/" + name
        os.mkdir(folder)  # noqa: PTH102 (a name that is no valid text)
        Image.new("RGB", (4, 4)).save(os.fsdecode(folder + b"/a.png"))
    with pytest.raises(DataError, match=r"would both be class '.*'; rename one") as refused:
        find_photos(tmp_path)
    str(refused.value).encode()


def test_names_of_any_script_with_spaces_are_class_names(tmp_path: Path) -> None:
    names = ["a  cat", "猫 一", "кот", "قطة", "cafe\u0301"]
    write_classes(tmp_path, **dict.fromkeys(names, 1))
    found = find_photos(tmp_path).class_names
    assert set(found) == {"a  cat", "猫 一", "кот", "قطة", "caf\u00e9"}


def test_one_word_in_two_spellings_is_one_class(tmp_path: Path) -> None:
    for spelling, count in (("caf\u00e9", 1), ("cafe\u0301", 2)):
        (tmp_path / spelling).mkdir()
        for k in range(count):
            Image.new("RGB", (4, 4)).save(tmp_path / spelling / f"{k}.png")
    photos = find_photos(tmp_path)
    assert photos.class_names == ("caf\u00e9",)
    assert len(photos) == 3


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
        ("", "is empty"),
        ("path,label\n", "has a header, but no images"),
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
    loose = tmp_path / "loose"
    loose.mkdir()
    Image.new("RGB", (4, 4)).save(loose / "a.png")
    with pytest.raises(DataError, match="holds 1 image, but no subfolders"):
        find_photos(loose)
    with pytest.raises(DataError, match=r"not classes; give one part, for example '.*train'"):
        find_photos(write_classes(tmp_path / "split", train=1, test=1))
    bundle = write_classes(tmp_path / "bundle", exemplars=1)
    (bundle / "bundle.json").write_text("{}")
    with pytest.raises(
        DataError,
        match=r"is a bundle, not photos; to teach it more, give photos and begin with it: foster learn PHOTOS --from",
    ):
        find_photos(bundle)
    with pytest.raises(DataError, match="no images below"):
        find_photos(write_classes(tmp_path / "bare", cat=0))
    with pytest.raises(DataError, match="there is no folder"):
        find_photos(tmp_path / "missing")
    with pytest.raises(DataError, match=r"neither a folder .* nor a \.csv"):
        find_photos(loose / "a.png")
    with pytest.raises(DataError, match="2 images, but 1 labels"):
        find_photos((np.zeros((2, 4, 4, 3), np.uint8), ["a"]))
