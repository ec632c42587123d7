"""Augmentation of training images, and the named combinations."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from foster.errors import SettingsError, suggestion
from foster.settings.fit import Frozen

Share = Annotated[float, Field(gt=0, le=1)]


class Augmentation(Frozen):
    """The augmentation of each training image, in this order; the defaults do nothing."""

    resized_crop: tuple[Share, Share] | None = None
    """A random crop, resized to the full size, whose share of the area lies in this range; it replaces the shift."""
    crop_padding: int = Field(default=0, ge=0, le=64)
    """The image is shifted by at most this many pixels in each direction; the border is black."""
    flip: bool = False
    """Mirror an image with probability 1/2."""
    brightness: float = Field(default=0.0, ge=0, le=1)
    """The largest relative change of brightness."""
    policy: Literal["none", "cifar10", "imagenet"] = "none"
    """The AutoAugment policy."""
    cutout: int = Field(default=0, ge=0, multiple_of=2)
    """The side of a black square at a random position, in pixels."""

    def problem(self, image_size: tuple[int, int]) -> str | None:
        """Why this does not fit images of this height and width; None if it does."""
        if self.cutout <= min(image_size):
            return None
        height, width = image_size
        return (
            f"augmentation: a black square of {self.cutout} x {self.cutout} hides images of {height} x {width} pixels; "
            "choose augmentation=shift or another, or a smaller augmentation.cutout"
        )


_PLAIN = Augmentation(crop_padding=4, flip=True, brightness=63 / 255)
AUGMENTATIONS: dict[str, Augmentation] = {
    "none": Augmentation(),
    "shift": Augmentation(crop_padding=1),
    "plain": _PLAIN,
    "auto": _PLAIN.model_copy(update={"policy": "cifar10", "cutout": 16}),
    "imagenet": Augmentation(resized_crop=(0.08, 1.0), flip=True, brightness=63 / 255),
    "imagenet100": Augmentation(resized_crop=(0.08, 1.0), flip=True),
    "photo": Augmentation(resized_crop=(0.25, 1.0), flip=True, brightness=63 / 255),
    "photo-auto": Augmentation(resized_crop=(0.08, 1.0), flip=True, brightness=63 / 255, policy="imagenet"),
}
"""`plain` is what the published baselines used on CIFAR, `imagenet` and `imagenet100` on ImageNet and its subset;
`auto` and `photo-auto` are what FOSTER used."""


def augmentation_table(augmentation: Any, origin: str) -> Any:
    """An augmentation that is given by name or as a table, as a table whose parts can be changed."""
    if isinstance(augmentation, str):
        if augmentation not in AUGMENTATIONS:
            raise SettingsError(
                "only a named augmentation has parts that can be changed, as in 'augmentation=auto "
                f"augmentation.flip=false', not '{augmentation}'{suggestion(augmentation, AUGMENTATIONS)} (in {origin})"
            )
        augmentation = AUGMENTATIONS[augmentation]
    return dict(augmentation) if isinstance(augmentation, Augmentation | Mapping) else augmentation
