"""Networks: backbones, heads, and networks that grow. This file has the table of backbones."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar, cast

from torch import nn

from foster.errors import SettingsError, suggestion
from foster.networks.efficientnet_lite import EfficientNetLite
from foster.networks.network import Backbone
from foster.networks.resnet import cifar_resnet, fine_stem, projection, resnet18, small_stem, standard_stem
from foster.settings.plugins import register

_SMALL = {f"resnet{depth}": depth for depth in (8, 14, 20, 32, 44, 56)}
_LARGE: dict[str, Callable[[], nn.Module]] = {
    "resnet18": standard_stem,
    "resnet18_fine_stem": fine_stem,
    "resnet18_small_images": partial(small_stem, 64),
}

BACKBONES: dict[str, Callable[[], Backbone]] = {
    **{name: partial(cifar_resnet, depth) for name, depth in _SMALL.items()},
    **{name: partial(resnet18, stem) for name, stem in _LARGE.items()},
    "efficientnet_lite0": EfficientNetLite,
    **{f"cosine_{name}": partial(cifar_resnet, depth, projection, False) for name, depth in _SMALL.items()},
    **{f"cosine_{name}": partial(resnet18, stem, False) for name, stem in _LARGE.items()},
}
"""Builders by name: ResNets for small images, ResNets for large images, and EfficientNet-Lite for photos. The `cosine_`
variants of ResNets, for cosine heads, have no last ReLU."""


Maker = TypeVar("Maker", bound=Callable[[], nn.Module])


def register_backbone(name: str) -> Callable[[Maker], Maker]:
    """A decorator for a class or a function that makes a backbone: a `Backbone`, or any module that maps images
    `[N, 3, H, W]` to features `[N, d]` or maps `[N, d, h, w]`.

    ```python
    @foster.register_backbone("tiny")
    def tiny():
        return nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    ```
    """

    def enter(make: Maker) -> Maker:
        # A module that is not a Backbone is wrapped when it is chosen.
        register("backbone", BACKBONES, name, cast("Callable[[], Backbone]", make), make)
        return make

    return enter


def build_backbone(name: str) -> Backbone:
    """A new backbone by name, initialised from torch's global generator."""
    if name not in BACKBONES:
        raise SettingsError(f"unknown backbone '{name}'{suggestion(name, BACKBONES)} (backbone in the settings)")
    return BACKBONES[name]()


def cosine_variant(name: str) -> str:
    """The name of the variant without the last ReLU, whose features may be negative; `name` if there is none."""
    return f"cosine_{name}" if f"cosine_{name}" in BACKBONES else name
