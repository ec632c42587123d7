"""All that a learn decides, foresees and refuses before anything is trained."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from photo_folders import write_photos
from PIL import Image
from small_learners import digits, planned, small_learner

import foster
from foster.data.photos.find import Photos, find_photos
from foster.data.photos.reading import ReadPhotos, read_for_training
from foster.errors import DataError, DeviceError, SettingsError
from foster.events import Event, LearnPlanned, PhaseStarted
from foster.learner import training_plan
from foster.learner.learner import Learner
from foster.learner.plan import make_plan
from foster.learner.reports import LearnReport, SharedPhotos
from foster.learner.training_plan import TrainingPlan, plan_training
from foster.settings.learner import learner_settings
from foster.system.signals import Stopped, StopRequest


def test_image_size_backbone_and_normalisation_follow_the_first_images() -> None:
    learner = foster.Learner("foster", epochs_scale=0.001, memory_total=10, device="cpu")
    rng = np.random.default_rng(0)
    images = [rng.integers(100, 156, (21, 30, 3), dtype=np.uint8) for _ in range(12)]
    learner.learn(images, labels=["a", "b"] * 6)
    facts = learner.knowledge.preprocessing
    assert (facts.height, facts.width, learner.knowledge.backbone) == (20, 20, "resnet32")
    assert facts.mean == pytest.approx((0.5, 0.5, 0.5), abs=0.01)
    assert 0.01 <= facts.std[0] < 0.07


def test_a_small_backbone_that_is_asked_for_sees_small_images_for_good() -> None:
    learner = foster.Learner(backbone="resnet8", epochs_scale=0.001, memory_total=40, device="cpu")
    images = np.random.default_rng(0).integers(0, 256, (16, 70, 100, 3), dtype=np.uint8)
    learner.learn([*images[:8]], labels=["a", "b"] * 4)
    assert (learner.knowledge.backbone, learner.knowledge.resizing.size) == ("resnet8", (32, 32))
    learner.learn([*images[8:]], labels=["c", "d"] * 4, backbone="resnet8")
    assert learner.class_names == ("a", "b", "c", "d")
    with pytest.raises(SettingsError, match=r"backbone.*'resnet8'"):
        learner.configure(backbone="resnet14")


@pytest.mark.parametrize(
    ("asked", "size", "expected"),
    [
        ("auto", "auto", ("closed_form", "efficientnet_lite0", 192)),
        ("auto", 64, ("closed_form", "efficientnet_lite0", 64)),
        ("foster", "auto", ("foster", "resnet32", 32)),
        ("foster", 64, ("foster", "resnet32", 64)),
    ],
)
def test_small_images_are_enlarged_for_a_frozen_backbone_and_trained_as_they_are(
    asked: str, size: str | int, expected: tuple[str, str, int]
) -> None:
    photos = find_photos(np.zeros((8, 32, 32), np.uint8), ["a", "b"] * 4)
    settings = foster.Learner(asked, image_size=size, device="cpu").settings
    chosen = make_plan(None, settings, photos)
    assert (chosen.settings.method, chosen.backbone.name, chosen.resizing.height) == expected


def test_a_frozen_backbone_sees_no_smaller_images_than_it_can_tell_apart() -> None:
    photos = find_photos(np.zeros((8, 32, 32), np.uint8), ["a", "b"] * 4)
    with pytest.raises(SettingsError, match=r"image_size.*32.*16 x 64"):
        make_plan(None, foster.Learner(image_size="16x64", device="cpu").settings, photos)


def test_wrong_settings_are_found_before_any_photo_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = small_learner(foster={"beta_boost": [0.9]})
    learner.learn(digits("zero", "one", last=4))
    learner.learn(digits("two", last=4))
    num_read: list[int] = []

    def counting(photos: Photos, *rest: Any) -> ReadPhotos:
        num_read.append(len(photos))
        return read_for_training(photos, *rest)

    monkeypatch.setattr(training_plan, "read_for_training", counting)
    two = digits("zero", "one", last=4)
    with pytest.raises(SettingsError, match="'resnet33'"):
        small_learner(backbone="resnet33").learn(two)
    with pytest.raises(SettingsError, match=r"memory_total.*2.*3"):
        small_learner(memory_total=2).learn(digits("zero", "one", "two"))
    with pytest.raises(SettingsError, match=r"foster\.beta_boost: 1 values"):
        learner.learn(digits("three"))
    learner.configure(memory_total=3)
    with pytest.raises(SettingsError, match=r"memory_total.*3.*4"):
        learner.learn(digits("three"))
    with pytest.raises(DataError, match="labels"):
        learner.learn(tmp_path, labels=["a"])
    with pytest.raises(DeviceError, match="'cuda:99'"):
        small_learner(device="cuda:99").learn(two)
    with pytest.raises(DeviceError, match=r"engine\.compile=on"):
        small_learner(engine={"compile": "on"}).learn(two)
    with pytest.raises(SettingsError, match=r"foster\.unlabeled"):
        small_learner(foster={"unlabeled": "cifar10"}).learn(two)
    assert num_read == []
    small_learner().learn(two)
    assert num_read == [8]
    with pytest.raises(DataError, match=r"limit 0.*max_unreadable"):
        small_learner(max_unreadable=0).learn([torch.zeros(3, 2, 2, dtype=torch.uint8), *two[0]], ["zero", *two[1]])


def test_a_black_square_that_hides_the_whole_image_is_refused_before_training() -> None:
    learner = small_learner(augmentation="auto")
    with pytest.raises(SettingsError, match=r"16 x 16.*8 x 8"):
        learner.learn(digits("zero", "one"))
    small_learner(augmentation="auto", image_size=16).learn(digits("zero", "one"))
    small_learner().learn(digits("zero", "one"))


def plan_of_two() -> TrainingPlan:
    """Of 80 photos, 8 of them held out."""
    return planned(small_learner(epochs_scale=0.1, validation_share=0.1), digits("zero", "one"))


def test_steps_and_quotas_are_those_of_the_photos_that_are_there() -> None:
    plan = plan_of_two()
    assert (len(plan.held_out), plan.num_training_images) == (8, 72)
    assert (plan.batch_size, plan.steps_per_epoch) == (64, 1), "8 of the 72 wait for another epoch"
    stop, told = StopRequest(), list[Event]()

    def listener(event: Event) -> None:
        told.append(event)
        if isinstance(event, PhaseStarted):
            stop.set()

    with pytest.raises(Stopped):
        small_learner(validation_share=0.1).learn(digits("zero", "one"), listener=listener, stop=stop)
    assert [event.steps for event in told if isinstance(event, PhaseStarted)] == [1], "as planned"
    assert LearnPlanned(plan.summary()) in told
    assert plan.quotas == (27, 3), "60 exemplars for two classes"
    assert all(fact in plan.summary()[0] for fact in ("2 new classes (zero, one)", "72 photos", "8 "))


def test_images_that_are_already_stored_are_passed_over(learner: Learner) -> None:
    images, names = digits("zero", "one")
    report = learner.learn((torch.cat([images, digits("two", last=9)[0]]), names + ["two"] * 9))
    stored = 30 * 2
    assert report.num_repeated == stored
    assert sum(report.more_of.values()) == 80 - stored


def test_a_folder_that_brings_nothing_new_is_refused(learner: Learner) -> None:
    known = learner.knowledge.images_of(learner.knowledge.exemplars)
    with pytest.raises(DataError, match="earlier learns"):
        learner.learn(known)


def test_held_out_photos_are_measured_as_the_bundle_keeps_them(tmp_path: Path) -> None:
    photos = find_photos(write_photos(tmp_path / "photos", 2, 6, sides=(90, 120)))
    settings = {"method": "foster", "backbone": "resnet18", "image_size": 72, "device": "cpu"}
    plan = make_plan(None, learner_settings(validation_share=0.4, **settings), photos)
    held_out, cpu = plan_training(plan).held_out.stack, torch.device("cpu")
    assert len(held_out) == 4
    assert torch.equal(held_out.on_device(cpu), held_out.owned().on_device(cpu))


def found(folder: Path) -> LearnReport:
    settings = learner_settings(method="foster", backbone="resnet8", image_size=8)
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
