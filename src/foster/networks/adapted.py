"""Backbones from outside: any torch module, a timm model by name, and pretrained weights from a file."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn

from foster.errors import SettingsError, words_of
from foster.networks import BACKBONES, build_backbone
from foster.networks.modules import evaluating
from foster.networks.network import Backbone
from foster.networks.pretrained import PACKAGED_MEAN, PACKAGED_STD, load_weights, packaged_weights, read_weights
from foster.settings.learner_defaults import PRETRAINED
from foster.settings.plugins import is_registered

TIMM_PREFIX = "timm:"
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
NUM_TRIAL_IMAGES = 2
"""More than one, so that a missing batch dimension is noticed."""

ModuleLike = nn.Module | Callable[[], nn.Module]
"""A module, which is copied, or a function that makes one.

Random numbers that it draws from torch's generators in training are the same in every run and after a resume; those
from Python's or NumPy's generators are not.
"""


@dataclass(frozen=True)
class BackboneChoice:
    """A chosen backbone: its name, the function that makes a new one, and the normalisation of its images.

    `mean` and `std` are those of pretrained weights; None means those of the data.
    """

    name: str
    make: Callable[[], Backbone]
    mean: tuple[float, float, float] | None = None
    std: tuple[float, float, float] | None = None
    is_pretrained: bool = False
    """Whether its initial weights were pretrained; such backbones are trained with lower learning rates."""
    is_builtin: bool = True
    """Whether it is a built-in backbone, which training may compile."""


class ModuleBackbone(Backbone):
    """A wrapper of any module that maps images `[N, 3, H, W]` to features `[N, d]` or maps `[N, d, h, w]`."""

    def __init__(self, module: nn.Module, feature_size: int) -> None:
        super().__init__()
        self.module = module
        self.feature_size = feature_size

    def stages(self, images: Tensor) -> list[Tensor]:
        out: Tensor = self.module(images)
        return [out[:, :, None, None] if out.ndim == 2 else out]


def choose_backbone(
    choice: str | ModuleLike,
    image_size: tuple[int, int],
    weights: str = "",
    is_trained: bool = False,
) -> BackboneChoice:
    """The backbone by name, as `timm:NAME`, or as a module from Python.

    Pretrained weights are downloaded or read when a backbone is made. If trained weights will be loaded into it
    (`is_trained`), they are not read.
    """
    if isinstance(choice, str) and choice.startswith(TIMM_PREFIX):
        chosen = _from_timm(choice, image_size, is_pretrained=not weights, is_trained=is_trained)
    else:
        chosen = _without_weights(choice, image_size)
    if not weights and chosen.name != PRETRAINED:
        return chosen
    from_file = cache(lambda: read_weights(Path(weights)))

    def make() -> Backbone:
        made = chosen.make()
        if weights:
            load_weights(made.module if isinstance(made, ModuleBackbone) else made, from_file(), weights)
        else:  # zip leaves out the classifier, which comes last
            made.load_state_dict(dict(zip(made.state_dict(), packaged_weights(), strict=False)))
        return made

    return replace(
        chosen,
        make=chosen.make if is_trained else make,
        mean=chosen.mean or IMAGENET_MEAN,
        std=chosen.std or IMAGENET_STD,
        is_pretrained=True,
    )


def _without_weights(choice: str | ModuleLike, image_size: tuple[int, int]) -> BackboneChoice:
    """The backbone by name or as a module, without pretrained weights."""
    if not isinstance(choice, str):
        kind = type(choice).__name__
        name = f"custom:{kind if isinstance(choice, nn.Module) else getattr(choice, '__name__', kind)}"
        return BackboneChoice(name, lambda: as_backbone(_fresh(choice), image_size, name), is_builtin=False)
    if choice == PRETRAINED:
        return BackboneChoice(choice, lambda: build_backbone(choice), PACKAGED_MEAN, PACKAGED_STD, is_pretrained=True)
    if is_registered("backbone", choice):
        make = BACKBONES[choice]
        return BackboneChoice(choice, lambda: as_backbone(_fresh(make), image_size, choice), is_builtin=False)
    return BackboneChoice(choice, lambda: build_backbone(choice))


def as_backbone(module: nn.Module, image_size: tuple[int, int], name: str) -> Backbone:
    """`module` itself if it is a Backbone; otherwise a wrapper.

    A forward pass shows the number of features, and whether the module takes images of this size.
    """
    out = _trial(module, image_size, name)
    if isinstance(module, Backbone):
        return module
    if not isinstance(out, Tensor) or out.ndim not in (2, 4) or len(out) != NUM_TRIAL_IMAGES:
        found = list(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise SettingsError(
            f"backbone '{name}' must return features [N, d] or maps [N, d, h, w], not {found}; remove its head first"
        )
    return ModuleBackbone(module, out.shape[1])


def _trial(module: nn.Module, image_size: tuple[int, int], name: str) -> object:
    """The output of a module on the CPU for black images.

    torch's `meta` device, which computes only shapes, takes longer than a small network.
    """
    try:
        with torch.no_grad(), evaluating(module):
            return module(torch.zeros(NUM_TRIAL_IMAGES, 3, *image_size))
    except Exception as error:
        height, width = image_size
        raise SettingsError(f"backbone '{name}' cannot take images of {height} x {width}: {words_of(error)}") from None


def _fresh(choice: ModuleLike) -> nn.Module:
    """A new module on the CPU."""
    made = copy.deepcopy(choice) if isinstance(choice, nn.Module) else choice()
    return made.cpu()


def _from_timm(choice: str, image_size: tuple[int, int], is_pretrained: bool, is_trained: bool) -> BackboneChoice:
    name = choice.removeprefix(TIMM_PREFIX)
    try:
        import timm
    except Exception as error:  # torchvision raises other errors if it does not match torch
        raise SettingsError(
            f"backbone '{choice}' needs timm, which cannot be imported ({words_of(error)}); pip install timm"
        ) from None
    if not timm.is_model(name):
        close = timm.list_models(f"*{name}*")[:5]
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise SettingsError(f"timm has no model '{name}'{hint} (backbone)")

    def make() -> Backbone:
        try:
            module = timm.create_model(name, pretrained=is_pretrained and not is_trained, num_classes=0)
        except Exception as error:
            raise SettingsError(
                f"cannot make backbone '{choice}': {words_of(error)}; weights=FILE reads them from disk"
            ) from None
        return as_backbone(module, image_size, choice)

    facts = timm.get_pretrained_cfg(name)
    mean = tuple(getattr(facts, "mean", None) or IMAGENET_MEAN)
    std = tuple(getattr(facts, "std", None) or IMAGENET_STD)
    return BackboneChoice(choice, make, mean, std, is_pretrained, is_builtin=False)
