"""All that a learn decides before anything is trained, and what it refuses by then."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_learners import digits, longer_learner, small_learner
from torch import Tensor

import foster
from foster.data.photos.find import Photos, find_photos
from foster.data.photos.read import ReadPhotos, read_for_training
from foster.errors import DataError, DeviceError, SettingsError
from foster.learner import train
from foster.learner.plan import make_plan
from foster.networks import BACKBONES
from foster.networks.network import Backbone


def test_image_size_backbone_and_normalisation_follow_the_first_images() -> None:
    learner = foster.Learner("foster", epochs_scale=0.001, memory_total=10, device="cpu")
    rng = np.random.default_rng(0)
    images = [rng.integers(100, 156, (21, 30, 3), dtype=np.uint8) for _ in range(12)]
    learner.learn(images, labels=["a", "b"] * 6)
    assert learner.knowledge is not None
    facts = learner.knowledge.preprocessing
    assert (facts.height, facts.width, facts.rule, learner.knowledge.backbone) == (20, 20, "stretch", "resnet32")
    assert facts.mean == pytest.approx((0.5, 0.5, 0.5), abs=0.01)
    assert 0.01 <= facts.std[0] < 0.07


def test_a_small_backbone_that_is_asked_for_sees_small_images_for_good() -> None:
    learner = foster.Learner(backbone="resnet8", epochs_scale=0.001, memory_total=40, device="cpu")
    images = np.random.default_rng(0).integers(0, 256, (16, 70, 100, 3), dtype=np.uint8)
    learner.learn([*images[:8]], labels=["a", "b"] * 4)
    assert learner.knowledge is not None
    assert (learner.knowledge.backbone, learner.resizing.size) == ("resnet8", (32, 32))
    learner.learn([*images[8:]], labels=["c", "d"] * 4, backbone="resnet8")
    assert learner.class_names == ("a", "b", "c", "d")
    with pytest.raises(SettingsError, match="backbone: this learner has 'resnet8' from its first learn"):
        learner.configure(backbone="resnet14")


@pytest.mark.parametrize(
    ("device", "settings", "num_photos", "method"),
    [
        ("cpu", {"backbone": "efficientnet_lite0"}, 50_000, "closed_form"),
        ("cuda", {"backbone": "efficientnet_lite0"}, 499, "closed_form"),
        ("cuda", {"backbone": "efficientnet_lite0"}, 500, "foster"),
        ("cpu", {"backbone": "resnet18"}, 50_000, "foster"),
        ("cpu", {"backbone": "efficientnet_lite0", "method": "foster"}, 10, "foster"),
        ("cuda", {"backbone": "efficientnet_lite0", "method": "closed_form"}, 50_000, "closed_form"),
    ],
)
def test_a_pretrained_backbone_is_trained_on_a_gpu_with_enough_photos_and_where_a_method_is_asked_for(
    device: str, settings: dict[str, Any], num_photos: int, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foster.learner.plan.find_device", lambda name: torch.device(device))
    photos = Photos([None] * num_photos, ("a",) * num_photos, "nothing")  # type: ignore[list-item]
    wanted = foster.Learner(image_size=192, resize="crop", **settings).settings
    assert make_plan(None, wanted, photos).settings.method == method


@pytest.mark.parametrize(("method", "expected"), [("auto", ("efficientnet_lite0", 192)), ("foster", ("resnet32", 32))])
def test_small_images_are_enlarged_for_a_frozen_backbone_and_trained_as_they_are(
    method: str, expected: tuple[str, int]
) -> None:
    photos = find_photos(np.zeros((8, 32, 32), np.uint8), ["a", "b"] * 4)
    settings = foster.Learner(method, device="cpu").settings
    chosen = make_plan(None, settings, photos)
    assert (chosen.backbone.name, chosen.resizing.height) == expected


class Wrong(Backbone):
    """Gives the 3 channels of its images as features."""

    feature_size = 64

    def stages(self, images: Tensor) -> list[Tensor]:
        return [images]


def test_wrong_settings_are_found_before_any_photo_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = longer_learner(foster={"beta_boost": [0.9]})
    learner.learn(digits("zero", "one"))
    learner.learn(digits("two"))
    num_read: list[int] = []

    def counting(photos: Photos, *rest: Any) -> ReadPhotos:
        num_read.append(len(photos))
        return read_for_training(photos, *rest)

    monkeypatch.setattr(train, "read_for_training", counting)
    two = digits("zero", "one")
    with pytest.raises(SettingsError, match="unknown backbone 'resnet33'; did you mean"):
        longer_learner(backbone="resnet33").learn(two)
    monkeypatch.setitem(BACKBONES, "wrong", Wrong)
    with pytest.raises(SettingsError, match=r"backbone 'wrong' has feature_size = 64, .* but gives \[2, 3\]"):
        longer_learner(backbone="wrong").learn(two)
    with pytest.raises(SettingsError, match="2 exemplars cannot hold one of each of 3 classes"):
        longer_learner(memory_total=2).learn(digits("zero", "one", "two"))
    with pytest.raises(SettingsError, match=r"foster\.beta_boost: 1 values"):
        learner.learn(digits("three"))
    with pytest.raises(DataError, match="labels belong to images or arrays"):
        learner.learn(tmp_path, labels=["a"])
    with pytest.raises(DeviceError, match="device 'cuda:99' was asked for"):
        longer_learner(device="cuda:99").learn(two)
    with pytest.raises(DeviceError, match=r"engine\.compile=on cannot be had here: it needs a GPU"):
        longer_learner(engine={"compile": "on"}).learn(two)
    with pytest.raises(SettingsError, match=r"foster\.unlabeled: 'nothing' is neither a folder nor a dataset"):
        longer_learner(foster={"unlabeled": "nothing"}).learn(two)
    with pytest.raises(DataError, match=r"foster\.unlabeled: no images"):
        longer_learner(foster={"unlabeled": str(tmp_path)}).learn(two)
    assert num_read == []
    longer_learner(epochs_scale=0.001).learn(two)
    assert num_read == [80]


def test_a_black_square_that_hides_the_whole_image_is_refused_before_training() -> None:
    learner = small_learner(augmentation="auto")
    with pytest.raises(SettingsError, match="a black square of 16 x 16 hides images of 8 x 8 pixels"):
        learner.learn(digits("zero", "one"))
    small_learner(augmentation="auto", image_size=16).learn(digits("zero", "one"))
    small_learner().learn(digits("zero", "one"))
