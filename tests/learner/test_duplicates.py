from pathlib import Path

from PIL import Image

from foster.data.photos.resize import Resizing
from foster.data.photos.sources import find_photos
from foster.learner.duplicates import (
    Entry,
    KeptElsewhere,
    SharedPhotos,
    classes_of,
    kept_elsewhere,
    relatives,
    shared_photos,
)
from foster.learner.intake import Intake, take_in
from foster.settings.learner import learner_settings

NAMES = ("cat", "dog", "owl", "feline")


def entries(*texts: str) -> list[Entry]:
    """`0a` is the picture a in class 0."""
    return [Entry(int(text[0]), text[1:]) for text in texts]


def test_the_classes_of_a_picture_and_their_relatives() -> None:
    given = entries("0a", "0b", "1b", "1c", "2c", "3d", "3d")
    assert classes_of(given) == {"a": {0}, "b": {0, 1}, "c": {1, 2}, "d": {3}}
    assert relatives(given) == {0: {0, 1}, 1: {0, 1, 2}, 2: {1, 2}, 3: {3}}


def test_photos_that_are_kept_as_another_class_are_counted_the_most_first() -> None:
    kept = entries("0a", "0b", "1b", "2c")
    found = kept_elsewhere(entries("3a", "3b", "3b", "3x", "1c", "2c"), kept, NAMES)
    assert found == (
        KeptElsewhere("feline", "cat", 3),
        KeptElsewhere("feline", "dog", 2),
        KeptElsewhere("dog", "owl", 1),
    )


def test_a_photo_in_two_classes_is_named_and_one_that_is_twice_in_a_class_is_not() -> None:
    given = entries("0a", "0b", "0b", "1c", "2c", "2b", "1b")
    found = shared_photos(given, NAMES, [f"{k}.png" for k in range(7)])
    assert found == SharedPhotos(2, "1.png", ("cat", "dog", "owl"))
    assert shared_photos(entries("0a", "0a", "1b"), NAMES, ["x", "y", "z"]) is None


def taken(folder: Path) -> Intake:
    return take_in(find_photos(folder), Resizing(4, 4), learner_settings(), None)


def test_the_photo_that_is_named_is_the_one_whatever_cannot_be_read(tmp_path: Path) -> None:
    for name, shades in (("cat", (1, 2, 3)), ("dog", (4, 2, 5))):
        (tmp_path / name).mkdir()
        for k, shade in enumerate(shades):
            Image.new("RGB", (4, 4), (shade, 0, 0)).save(tmp_path / name / f"{k}.png")
    assert taken(tmp_path).inventory.shared == SharedPhotos(1, str(tmp_path / "cat" / "1.png"), ("cat", "dog"))
    (tmp_path / "cat" / "0.png").write_bytes(b"broken")
    assert taken(tmp_path).inventory.shared == SharedPhotos(1, str(tmp_path / "cat" / "1.png"), ("cat", "dog"))
    Image.new("RGB", (4, 4), (9, 0, 0)).save(tmp_path / "dog" / "1.png")
    assert taken(tmp_path).inventory.shared is None
