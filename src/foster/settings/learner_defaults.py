"""The defaults of a learner: its presets, and values that depend on the size and the number of the images."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Length:
    """How long to train: a multiple of the published epochs, and the fewest steps of the first phase."""

    epochs_scale: float
    min_steps: int


@dataclass(frozen=True)
class Preset:
    """How long to train and how much to hold out. `augmentation` is that of small images, which are trained from
    scratch."""

    summary: str
    from_scratch: Length
    pretrained: Length
    validation_share: float
    augmentation: str = "auto"


PRESETS: dict[str, Preset] = {
    "fast": Preset(
        "a first look: a sixteenth of the paper's epochs, from a pretrained backbone a fiftieth",
        Length(0.06, 600),
        Length(0.02, 60),
        validation_share=0.15,
        augmentation="plain",
    ),
    "standard": Preset(
        "about a third of the paper's epochs, from a pretrained backbone a sixteenth",
        Length(0.3, 2000),
        Length(0.06, 200),
        validation_share=0.1,
    ),
    "paper": Preset(
        "the method's published schedule, on every image: nothing is held out",
        Length(1.0, 0),
        Length(1.0, 0),
        validation_share=0.0,
    ),
}

SIDES = (8, 1024)
"""The shortest and the longest side that images of a network may have."""

SMALLEST_FROZEN_SIDE = 32
"""The pretrained backbones halve the side five times, so the last maps of smaller images would be empty."""

SMALL_SIDE = 64
"""Images of up to this many pixels a side are icons, digits and thumbnails; larger ones are photos."""

SMALLEST_BATCH = 16
PHOTO_SIDES = (96, 128, 160, 192, 224)
SMALL_BACKBONES = tuple(f"resnet{depth}" for depth in (8, 14, 20, 32, 44, 56))
"""Backbones for small images: at the size of photos they are too slow."""

PRETRAINED = "efficientnet_lite0"
"""The backbone whose pretrained weights come with the installation."""


def image_side_for(typical_side: int, largest: int = 224) -> int:
    """The side of the network's images: a small typical side itself, rounded; for photos one of PHOTO_SIDES."""
    if min(typical_side, largest) <= SMALL_SIDE:
        return max(8, min(SMALL_SIDE, largest, 4 * round(typical_side / 4)))
    sides = [side for side in PHOTO_SIDES if side <= largest]
    return min(sides, key=lambda side: abs(side - typical_side))


def largest_side_for(backbone: str, on_gpu: bool) -> int:
    """The largest default side of the network's images, by backbone and device."""
    if backbone in SMALL_BACKBONES:
        return SMALL_SIDE if on_gpu else SMALL_SIDE // 2
    return 224 if on_gpu else 192


def without_variant(backbone: str) -> str:
    """The name of a backbone as users give it, for the variant that a method uses, such as cosine_resnet32."""
    return backbone.removeprefix("cosine_")


def backbone_for(image_size: tuple[int, int]) -> str:
    """The default backbone by image size: pretrained for photos."""
    return "resnet32" if max(image_size) <= SMALL_SIDE else PRETRAINED


def frozen_side_for(on_gpu: bool) -> int:
    """The side of the images that a frozen backbone sees. Small images are enlarged, because the backbone was
    pretrained on objects of that size (results/notes/photo-heads.md)."""
    return 224 if on_gpu else 192


def augmentation_for(image_size: tuple[int, int], preset: str) -> str:
    """The default augmentation: only shifts for small images, and a weak augmentation for a short training."""
    side = min(image_size)
    limits = {16: "shift", 24: "plain", 65: PRESETS[preset].augmentation}
    return next((name for limit, name in limits.items() if side < limit), "photo")


def batch_size_for(num_images: int, image_size: tuple[int, int]) -> int:
    """The largest power of two that gives at least 20 steps an epoch: from 16 to 128, for photos to 64."""
    largest = 128 if max(image_size) <= 64 else 64
    return next((size for size in (128, 64, 32) if size <= largest and num_images >= 20 * size), SMALLEST_BATCH)
