"""Images as they come: every kind of file reaches the network as the picture that a person sees."""

import io
import os
import struct
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from foster.data.photos.decode import MAX_PIXELS, MAX_SIDE, ImageError, decode, upright_size
from foster.data.photos.find import expanded, find_files, found_files, image_files, natural_order, passed_over_text
from foster.data.photos.read import measured_sizes, read_photos
from foster.data.photos.resize import Resizing, typical_side
from foster.data.photos.sources import find_photos
from foster.data.unlabeled import load_unlabeled
from foster.errors import DataError, SettingsError

RED, GREEN, WHITE = (255, 0, 0), (0, 255, 0), (255, 255, 255)
UPSIDE_DOWN, TURN_RIGHT = 3, 6


def two_tone() -> Image.Image:
    """4 x 2 pixels: the left half red, the right half green."""
    image = Image.new("RGB", (4, 2), RED)
    image.paste(GREEN, (2, 0, 4, 2))
    return image


def near(pixel: object, colour: tuple[int, int, int], tolerance: int = 0) -> bool:
    return bool(np.abs(np.asarray(pixel, dtype=int) - np.asarray(colour)).max() <= tolerance)


@pytest.mark.parametrize(
    ("suffix", "options", "tolerance"),
    [
        (".png", {}, 0),
        (".bmp", {}, 0),
        (".gif", {}, 0),
        (".tiff", {}, 0),
        (".webp", {"lossless": True}, 0),
        (".jpg", {"quality": 95, "subsampling": 0}, 12),
    ],
)
def test_every_format_gives_the_same_picture(
    tmp_path: Path, suffix: str, options: dict[str, object], tolerance: int
) -> None:
    path = tmp_path / f"a photo{suffix}"
    two_tone().resize((32, 16), Image.Resampling.NEAREST).save(path, **options)
    image = decode(path)
    assert image.mode == "RGB"
    assert image.size == (32, 16)
    assert near(image.getpixel((4, 8)), RED, tolerance)
    assert near(image.getpixel((28, 8)), GREEN, tolerance)


def test_a_rotated_photo_stands_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = TURN_RIGHT
    path = tmp_path / "phone.png"
    two_tone().save(path, exif=exif)
    image = decode(path)
    assert image.size == upright_size(path) == (2, 4)
    assert image.getpixel((0, 0)) == RED
    assert image.getpixel((0, 3)) == GREEN


def test_an_orientation_that_keeps_the_sides_is_applied_too(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = UPSIDE_DOWN
    two_tone().save(tmp_path / "a.png", exif=exif)
    assert decode(tmp_path / "a.png").getpixel((0, 0)) == GREEN
    assert upright_size(tmp_path / "a.png") == (4, 2)


def test_grey_palette_and_cmyk_become_rgb(tmp_path: Path) -> None:
    Image.new("L", (3, 3), 77).save(tmp_path / "grey.png")
    Image.new("1", (3, 3), 1).save(tmp_path / "bits.png")
    two_tone().quantize(4).save(tmp_path / "palette.png")
    Image.new("CMYK", (16, 16), (0, 255, 255, 0)).save(tmp_path / "print.jpg", quality=95)
    assert decode(tmp_path / "grey.png").getpixel((1, 1)) == (77, 77, 77)
    assert decode(tmp_path / "bits.png").getpixel((1, 1)) == WHITE
    assert decode(tmp_path / "palette.png").getpixel((3, 0)) == GREEN
    assert near(decode(tmp_path / "print.jpg").getpixel((8, 8)), RED, 6)


def test_transparent_pixels_are_white_in_every_mode(tmp_path: Path) -> None:
    Image.new("RGBA", (2, 2), (255, 0, 0, 0)).save(tmp_path / "clear.png")
    Image.new("RGBA", (2, 2), (255, 0, 0, 128)).save(tmp_path / "half.png")
    Image.new("LA", (2, 2), (0, 0)).save(tmp_path / "grey.png")
    palette = Image.new("P", (2, 2), 0)
    palette.putpalette([255, 0, 0, 0, 255, 0])
    palette.save(tmp_path / "palette.png", transparency=0)
    for name in ("clear", "grey", "palette"):
        assert decode(tmp_path / f"{name}.png").getpixel((0, 0)) == WHITE, name
    assert near(decode(tmp_path / "half.png").getpixel((0, 0)), (255, 127, 127), 1)


def test_16_bit_values_keep_their_brightness(tmp_path: Path) -> None:
    values = np.array([[0, 257 * 100, 65535, 128, 129]], dtype=np.uint16)
    Image.fromarray(values).save(tmp_path / "deep.png")
    Image.fromarray(values).save(tmp_path / "deep.tiff")
    for name in ("deep.png", "deep.tiff"):
        assert np.asarray(decode(tmp_path / name))[0, :, 0].tolist() == [0, 100, 255, 0, 1], name
    assert np.asarray(decode(values))[0, :, 0].tolist() == [0, 100, 255, 0, 1]


def test_the_first_frame_of_an_animation_counts(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (4, 4), RED), Image.new("RGB", (4, 4), GREEN)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    frames[0].save(tmp_path / "a.webp", save_all=True, append_images=frames[1:], lossless=True)
    assert decode(tmp_path / "a.gif").getpixel((0, 0)) == RED
    assert decode(tmp_path / "a.webp").getpixel((0, 0)) == RED


def test_arrays_tensors_pil_images_and_bytes_are_the_same_picture() -> None:
    image = two_tone()
    buffer = io.BytesIO()
    image.save(buffer, "png")
    array = np.asarray(image)
    tensor = torch.from_numpy(array.copy()).permute(2, 0, 1)
    for given in (image, array, array / 255.0, array.astype(np.uint16) * 257, tensor, buffer.getvalue()):
        assert np.array_equal(np.asarray(decode(given)), array)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((2, 2, 5), np.uint8), r"not of shape \(2, 2, 5\)"),
        (np.full((2, 2), 300.0), "must lie in 0 to 1, not 300 to 300"),
        (np.full((2, 2), np.nan), "must lie in 0 to 1"),
        (np.full((2, 2), -1), "int64 pixels from -1 to -1: give uint8, uint16, or floats from 0 to 1"),
        (np.array([["a.png", None]]), "must be numbers, not object"),
        (np.zeros((0, 4), np.uint8), "no pixels"),
    ],
)
def test_an_array_that_is_no_image_says_what_one_is(array: np.ndarray, message: str) -> None:
    with pytest.raises(ImageError, match=message):
        decode(array)


def png_that_claims(width: int, height: int) -> bytes:
    """A PNG of some bytes whose header promises any size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    ("width", "height"), [(20_000, 20_000), (12_500, 12_001), (MAX_SIDE + 1, 1), (1 << 30, 1 << 30)]
)
def test_an_absurd_size_is_refused_before_decoding_and_without_a_warning(width: int, height: int) -> None:
    photos = find_photos(([png_that_claims(width, height), Image.new("RGB", (4, 4))], ["a", "a"]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = read_photos(photos, Resizing(4, 4))
    assert len(found.images) == 1
    assert "too large" in found.unreadable[0].reason


def test_the_largest_size_that_is_allowed_is_a_phone_camera_photo() -> None:
    assert MAX_PIXELS > 12_000 * 9_000


def test_damaged_files_give_a_reason_and_not_a_crash(tmp_path: Path) -> None:
    whole = io.BytesIO()
    Image.effect_noise((64, 64), 50).convert("RGB").save(whole, "jpeg")
    damaged = {
        "cut.jpg": (whole.getvalue()[: len(whole.getvalue()) // 2], "truncated"),
        "empty.png": (b"", "the file is empty"),
        "text.png": (b"this is no image", "not an image of a known format"),
        "header.png": (b"\x89PNG\r\n\x1a\n\0\0\0", "damaged|not an image"),
        "script.eps": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image of a known format"),
    }
    for name, (content, reason) in damaged.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ImageError, match=reason):
            decode(tmp_path / name)
    with pytest.raises(ImageError, match="no such file"):
        decode(tmp_path / "missing.png")
    with pytest.raises(ImageError, match="folder"):
        decode(tmp_path)


def test_stretching_uses_the_whole_picture_and_cropping_its_middle() -> None:
    image = Image.new("RGB", (90, 30), RED)
    image.paste(GREEN, (30, 0, 60, 30))
    stretched, cropped = Resizing(8, 8, "stretch")(image), Resizing(8, 8, "crop")(image)
    assert stretched.shape == cropped.shape == (3, 8, 8)
    assert stretched[0, 4, 0] == 255
    assert stretched[1, 4, 4] > 245
    assert cropped[1, :, 1:-1].min() == 255
    assert cropped[0, :, 1:-1].max() == 0


def test_an_image_of_the_right_size_is_left_alone_bit_for_bit() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 5, 3), dtype=np.uint8)
    for rule in ("stretch", "crop"):
        assert np.array_equal(Resizing(6, 5, rule)(decode(pixels)).permute(1, 2, 0).numpy(), pixels)


def test_a_large_jpeg_may_be_decoded_smaller_but_never_below_twice_the_target(tmp_path: Path) -> None:
    path = tmp_path / "large.jpg"
    Image.new("RGB", (4000, 3000), RED).save(path)
    width, height = decode(path, target_side=224).size
    assert min(width, height) >= 448
    assert width < 4000
    assert decode(path).size == (4000, 3000)


@pytest.mark.parametrize(("size", "rule"), [((3, 8), "stretch"), ((8, 5000), "stretch"), ((8, 8), "squeeze")])
def test_a_resizing_that_makes_no_sense_is_refused(size: tuple[int, int], rule: str) -> None:
    with pytest.raises(SettingsError):
        Resizing(*size, rule)


def write_classes(folder: Path, **counts: int) -> Path:
    for name, count in counts.items():
        (folder / name).mkdir(parents=True)
        for k in range(count):
            Image.new("RGB", (8 + k, 6), RED).save(folder / name / f"{k}.png")
    return folder


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
    assert passed_over_text(photos.passed_over).startswith("3 .heic, ")


def test_many_endings_are_summed_up() -> None:
    text = passed_over_text({f".{k:02d}": 1 for k in range(30)} | {".heic": 9})
    assert text.startswith("9 .heic, 1 .00, ")
    assert text.endswith(", 23 others")


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


def test_a_folder_of_other_files_alone_says_what_they_are(tmp_path: Path) -> None:
    write_classes(tmp_path, cat=0)
    (tmp_path / "cat" / "a.heic").write_bytes(b"x")
    with pytest.raises(DataError, match=r"no images below .*; passed over: 1 \.heic$"):
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
    with pytest.raises(DataError, match="holds 1 images, but no subfolders"):
        find_photos(loose)
    with pytest.raises(DataError, match=r"not classes; give one part, for example '.*train'"):
        find_photos(write_classes(tmp_path / "split", train=1, test=1))
    with pytest.raises(DataError, match="no images below"):
        find_photos(write_classes(tmp_path / "bare", cat=0))
    with pytest.raises(DataError, match="there is no folder"):
        find_photos(tmp_path / "missing")
    with pytest.raises(DataError, match=r"neither a folder .* nor a \.csv"):
        find_photos(loose / "a.png")
    with pytest.raises(DataError, match="2 images, but 1 labels"):
        find_photos((np.zeros((2, 4, 4, 3), np.uint8), ["a"]))


def test_unreadable_images_are_listed_and_left_out(tmp_path: Path) -> None:
    folder = write_classes(tmp_path, cat=3, dog=3)
    (folder / "cat" / "1.png").write_bytes(b"broken")
    found = read_photos(find_photos(folder), Resizing(8, 8))
    assert found.labels == ("cat", "cat", "dog", "dog", "dog")
    assert found.images.shape == (5, 3, 8, 8)
    assert [(entry.name, entry.reason) for entry in found.unreadable] == [
        (str(folder / "cat" / "1.png"), "not an image of a known format")
    ]


def test_too_many_unreadable_images_stop_the_reading(tmp_path: Path) -> None:
    folder = write_classes(tmp_path, cat=12)
    for k in range(4):
        (folder / "cat" / f"{k}.png").write_bytes(b"broken")
    with pytest.raises(DataError, match=r"stopped at 4 unreadable of 12 images .*\(limit 3\).*raise max_unreadable"):
        read_photos(find_photos(folder), Resizing(8, 8))
    assert len(read_photos(find_photos(folder), Resizing(8, 8), max_unreadable=4).images) == 8


def test_no_readable_image_at_all_is_said_without_advice_that_does_not_help(tmp_path: Path) -> None:
    folder = write_classes(tmp_path, cat=2)
    for k in range(2):
        (folder / "cat" / f"{k}.png").write_bytes(b"broken")
    with pytest.raises(DataError, match=r"none of the 2 images in .* can be read: '.*0\.png': not an image") as error:
        read_photos(find_photos(folder), Resizing(8, 8))
    assert "max_unreadable" not in str(error.value)


def test_results_keep_the_given_order_over_many_threads_and_chunks() -> None:
    images = np.zeros((600, 4, 4, 3), np.uint8)
    images[:] = (np.arange(600) % 256)[:, None, None, None]
    found = read_photos(find_photos((images, ["a"] * 600)), Resizing(4, 4))
    assert torch.equal(found.images[:, 0, 0, 0], torch.arange(600).remainder(256).to(torch.uint8))


def test_a_set_that_cannot_fit_into_memory_is_refused_before_it_is_read() -> None:
    images = [np.zeros((4, 4), np.uint8)] * 20_000
    with pytest.raises(DataError, match=r"20,000 images of 4096 x 4096 need .* smaller image_size"):
        read_photos(find_photos((images, ["a"] * 20_000)), Resizing(4096, 4096))


def test_folders_are_walked_in_order_and_single_files_need_no_known_ending(tmp_path: Path) -> None:
    write_classes(tmp_path / "tree", b=2, a=1)
    (tmp_path / "odd.dat").write_bytes(b"")
    found = expanded([tmp_path / "odd.dat", tmp_path / "tree"])
    tree = tmp_path / "tree"
    assert found == [tmp_path / "odd.dat", tree / "a" / "0.png", tree / "b" / "0.png", tree / "b" / "1.png"]
    assert image_files(tree) == found[1:]
    (tree / "a" / "b.heic").write_bytes(b"")
    assert found_files([tmp_path / "odd.dat", tree]) == (found, {".heic": 1})


def test_the_typical_side_is_the_median_of_the_shorter_sides(tmp_path: Path) -> None:
    folder = write_classes(tmp_path, x=5)
    assert measured_sizes(find_photos(folder)) == ([(8, 6), (9, 6), (10, 6), (11, 6), (12, 6)], [])
    assert typical_side([(10, 99), (20, 30), (400, 300)]) == 20


def test_unlabeled_images_of_a_folder_go_through_the_same_reader(tmp_path: Path) -> None:
    write_classes(tmp_path, x=5)
    (tmp_path / "x" / "0.png").write_bytes(b"broken")
    found = load_unlabeled(str(tmp_path), (8, 8), None)
    assert found.images.shape == (4, 3, 8, 8)
    assert found.labels.tolist() == [-1] * 4
