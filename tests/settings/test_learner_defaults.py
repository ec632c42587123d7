"""What follows from the images where nobody says otherwise."""

from foster.settings.augmentation import AUGMENTATIONS
from foster.settings.learner_defaults import (
    PRESETS,
    augmentation_for,
    backbone_for,
    batch_size_for,
    image_side_for,
    largest_side_for,
    without_variant,
)


def test_a_small_backbone_sees_small_images() -> None:
    sides = {28: 28, 40: 32, 64: 32, 300: 32}
    assert {side: image_side_for(side, largest_side_for("resnet32", on_gpu=False)) for side in sides} == sides
    assert {largest_side_for(f"resnet{depth}", on_gpu=True) for depth in (8, 14, 20, 32, 44, 56)} == {64}
    assert {without_variant(name) for name in ("resnet32", "cosine_resnet32")} == {"resnet32"}


def test_defaults_follow_the_images() -> None:
    sides = {5: 8, 8: 8, 28: 28, 30: 32, 64: 64, 65: 96, 120: 128, 150: 160, 200: 192, 4000: 224}
    assert {side: image_side_for(side) for side in sides} == sides
    assert [image_side_for(300, largest_side_for("auto", on_gpu)) for on_gpu in (True, False)] == [224, 192]
    assert [backbone_for((side, side)) for side in (8, 64, 65)] == ["resnet32", "resnet32", "efficientnet_lite0"]
    augmentations = {8: "shift", 15: "shift", 16: "plain", 23: "plain", 24: "auto", 64: "auto", 65: "photo"}
    assert {side: augmentation_for((side, side), "standard") for side in augmentations} == augmentations
    assert augmentation_for((15, 300), "standard") == "shift", "the shorter side decides"
    named = {augmentation_for((side, side), preset) for side in range(4, 300) for preset in PRESETS}
    assert named <= AUGMENTATIONS.keys()
    assert augmentation_for((32, 32), "fast") == "plain", "no time for more"
    assert [batch_size_for(count, (32, 32)) for count in (10, 640, 2560, 50_000)] == [16, 32, 128, 128]
    assert batch_size_for(50_000, (224, 224)) == 64
