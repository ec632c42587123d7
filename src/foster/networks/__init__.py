"""Networks: backbones and heads, and the networks that grow. This file holds the one table of backbones."""

from collections.abc import Callable
from functools import partial

from foster.errors import SettingsError, suggestion
from foster.networks.network import Backbone
from foster.networks.resnet18 import fine_stem, full_size_stem, resnet18
from foster.networks.resnet_cifar import cifar_resnet, cosine_resnet32

BACKBONES: dict[str, Callable[[], Backbone]] = {
    "resnet8": partial(cifar_resnet, 8),
    "resnet14": partial(cifar_resnet, 14),
    "resnet20": partial(cifar_resnet, 20),
    "resnet32": partial(cifar_resnet, 32),
    "resnet44": partial(cifar_resnet, 44),
    "resnet56": partial(cifar_resnet, 56),
    "cosine_resnet32": cosine_resnet32,
    "resnet18": resnet18,
    "resnet18_fine_stem": partial(resnet18, stem=fine_stem),
    "resnet18_small_images": partial(resnet18, stem=full_size_stem),
    "cosine_resnet18": partial(resnet18, has_last_relu=False),
}
"""Name to builder. The numbers in the first names are depths of the family for small images."""


def build_backbone(name: str) -> Backbone:
    """A fresh backbone by name, with weights from torch's global generator."""
    if name not in BACKBONES:
        raise SettingsError(f"unknown backbone '{name}'{suggestion(name, BACKBONES)}")
    return BACKBONES[name]()
