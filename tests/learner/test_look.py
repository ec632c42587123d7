"""From photos to what is learned: their size, what is known already, and what cannot be read."""

from pathlib import Path

import numpy as np
import pytest
import torch
from photo_folders import write_photos
from PIL import Image
from small_learners import digits, longer_learner

from foster.data.photos.decode import Resizing
from foster.data.photos.find import Source, find_photos
from foster.data.photos.read import read_photos
from foster.errors import DataError
from foster.learner.learner import Learner
from foster.learner.plan import (
    Entry,
    choose_resizing,
    classes_of,
    kept_elsewhere,
    make_plan,
    shared_photos,
)
from foster.learner.reports import KeptElsewhere, LearnReport, SharedPhotos
from foster.learner.train import plan_training
from foster.settings.learner import learner_settings

NAMES = ("cat", "dog", "owl", "feline")


def refusal(source: Source) -> str:
    with pytest.raises(DataError) as refused:
        choose_resizing(find_photos(source), learner_settings(), None)
    return str(refused.value)


def test_pixels_of_a_wrong_range_are_the_reason() -> None:
    images = np.random.default_rng(0).uniform(2, 16, (10, 8, 8))
    images[:, 0, :2] = 0, 16
    reason = "'image 0': floating-point pixels must lie in 0 to 1, not 0 to 16"
    assert refusal((images, ["a"] * 10)).startswith(f"none of the 10 images in the arguments can be read: {reason}; ")


def test_where_not_all_images_were_tried_the_message_says_so() -> None:
    images = np.full((450, 4, 4), 2.0)
    message = refusal((images, ["a"] * 450))
    assert message.startswith("none of 225 images tried of the 450 in the arguments can be read: 'image 0': floating")
    assert "'image 2': " in message
    assert "'image 1': " not in message


def write_images(folder: Path) -> None:
    folder.mkdir(parents=True)
    for k in range(3):
        Image.new("RGB", (9, 9)).save(folder / f"{k}.png")


def test_a_path_in_a_csv_is_relative_to_its_folder_and_a_missing_file_is_named(tmp_path: Path) -> None:
    write_images(tmp_path / "images")
    (tmp_path / "photos.csv").write_text("path,label\nlists/images/0.png,a\n")
    message = refusal(tmp_path / "photos.csv")
    assert f"'{tmp_path}/lists/images/0.png': there is no such file" in message


def test_a_column_of_image_paths_may_have_that_name(tmp_path: Path) -> None:
    write_images(tmp_path / "images")
    (tmp_path / "photos.csv").write_text("id,image_path,label\n0,images/0.png,a\n1,images/1.png,b\n")
    photos = find_photos(tmp_path / "photos.csv")
    assert photos.labels == ("a", "b")
    assert choose_resizing(photos, learner_settings(image_size=8), None).size == (8, 8)
    assert len(read_photos(photos, Resizing(8, 8)).images) == 2


def test_images_that_are_already_stored_are_passed_over(learner: Learner) -> None:
    images, names = digits("zero", "one")
    report = learner.learn((torch.cat([images, digits("two", last=9)[0]]), names + ["two"] * 9))
    stored = 30 * 2
    assert report.num_repeated == stored
    assert sum(report.more_of.values()) == 80 - stored


def test_a_folder_that_brings_nothing_new_is_refused(learner: Learner) -> None:
    assert learner.knowledge is not None
    known = learner.knowledge.images_of(learner.knowledge.exemplars)
    with pytest.raises(DataError, match="kept from earlier learns: nothing to learn"):
        learner.learn(known)


def test_a_class_without_a_readable_image_is_left_out_and_named(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for k, image in enumerate(digits("two" if name == "a" else "three", last=9)[0]):
            Image.fromarray(image[0].numpy()).save(tmp_path / name / f"{k}.png")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "broken.png").write_bytes(b"broken")
    learner = longer_learner()
    report = learner.learn(tmp_path)
    assert learner.class_names == ("a", "b")
    assert report.empty_classes == ("c",)


def test_held_out_photos_are_measured_as_the_bundle_keeps_them(tmp_path: Path) -> None:
    photos = find_photos(write_photos(tmp_path / "photos", 2, 6, sides=(90, 120)))
    settings = {"method": "foster", "backbone": "resnet18", "image_size": 72, "resize": "crop", "device": "cpu"}
    plan = make_plan(None, learner_settings(validation_share=0.4, **settings), photos)
    held_out, cpu = plan_training(plan).held_out.stack, torch.device("cpu")
    assert len(held_out) == 4
    assert torch.equal(held_out.on_device(cpu), held_out.owned().on_device(cpu))


def entries(*texts: str) -> list[Entry]:
    """`0a` is the picture a in class 0."""
    return [Entry(int(text[0]), text[1:]) for text in texts]


def test_the_classes_of_a_picture() -> None:
    given = entries("0a", "0b", "1b", "1c", "2c", "3d", "3d")
    assert classes_of(given) == {"a": {0}, "b": {0, 1}, "c": {1, 2}, "d": {3}}


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


def found(folder: Path) -> LearnReport:
    settings = learner_settings(method="foster", backbone="resnet8", image_size=4)
    return plan_training(make_plan(None, settings, find_photos(folder))).report


def test_the_photo_that_is_named_is_the_one_whatever_cannot_be_read(tmp_path: Path) -> None:
    for name, shades in (("cat", (1, 2, 3)), ("dog", (4, 2, 5))):
        (tmp_path / name).mkdir()
        for k, shade in enumerate(shades):
            Image.new("RGB", (4, 4), (shade, 0, 0)).save(tmp_path / name / f"{k}.png")
    assert found(tmp_path).shared == SharedPhotos(1, str(tmp_path / "cat" / "1.png"), ("cat", "dog"))
    (tmp_path / "cat" / "0.png").write_bytes(b"broken")
    assert found(tmp_path).shared == SharedPhotos(1, str(tmp_path / "cat" / "1.png"), ("cat", "dog"))
    Image.new("RGB", (4, 4), (9, 0, 0)).save(tmp_path / "dog" / "1.png")
    assert found(tmp_path).shared is None
