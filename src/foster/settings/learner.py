"""The settings of a learner, and the defaults that follow from the data. No torch: the command checks them first."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from pydantic import Field, field_validator

from foster.errors import SettingsError
from foster.settings.augmentation import Augmentation, augmentation_table
from foster.settings.base import (
    CommonSettings,
    apply_overrides,
    check_used,
    import_plugins,
    make,
    take_recipes,
    with_recipes,
)
from foster.settings.fit import FitSettings
from foster.settings.learner_defaults import PRESETS, SIDES, without_variant
from foster.settings.method import MethodSettings
from foster.settings.plugins import plugins_of
from foster.settings.toml import laid_over
from foster.system.counts import counted

DEFAULT_MEMORY_TOTAL = 2000
PUBLISHED_BATCH_SIZE = 128
PRETRAINED_MAX_GRADIENT = 1.0

AUTO, CLOSED_FORM = "auto", "closed_form"
"""Values of `method` that do not name a method."""

KEPT_FROM_THE_FIRST_LEARN = ("method", "backbone", "image_size")
"""Settings that the first learn fixes, besides the pretrained weights. A closed form may be trained later."""

REPLACED = {
    "training": ("epochs_scale", "validation_share"),
    "memory_total": ("memory_per_class",),
    "memory_per_class": ("memory_total",),
}
"""For each setting, the other settings that return to their defaults when it is changed."""

MACHINE_KEYS = ("device", "engine", "max_unreadable", "checkpoint_minutes", "plugins")
"""Settings of the machine or of one call, which a bundle does not keep."""


class LearnerSettings(CommonSettings):
    """All settings of a learner. None means that `training` or the data decide."""

    listing = "foster learn --keys"
    named = MappingProxyType({"training": PRESETS})
    usual_augmentation = "by_size"
    untrained = (AUTO, CLOSED_FORM)

    method: str = AUTO
    """How photos are learned. `closed_form`: the pretrained backbone is frozen, and the head is computed from sums over
    the features of all photos. A method such as `foster` trains the network. `auto` is the closed form if the backbone
    is pretrained, else foster."""
    training: Literal["fast", "standard", "paper"] = "standard"
    """How long to train, and how much to hold out."""
    backbone: str = "auto"
    """A name, `timm:NAME`, or `auto`: the pretrained efficientnet_lite0, or resnet32 if a method trains images of up to
    64 pixels."""
    weights: str = ""
    """A .safetensors file with pretrained weights of the backbone; only the first learn needs it, or with method=joint
    every learn."""
    features_per_class: int = Field(default=1000, ge=0)
    """Photos of each class whose features (2.5 KB a photo) are kept beside the sums over all; 0 keeps only the sums."""
    image_size: Literal["auto"] | tuple[int, int] = "auto"
    """Height and width of the network's images, such as `192` or `96x128`; other shapes are stretched to it."""
    memory_total: int | None = Field(default=None, ge=0)
    """How many images are kept in all, including held-out ones; 2000 if memory_per_class is not given either. In closed
    form it may be 0: no photo is kept."""
    validation_share: float | None = Field(default=None, ge=0, le=0.5)
    """The share of the new images that is never trained on, to measure accuracy and to calibrate confidence."""
    learning_rate_scale: float | None = Field(default=None, gt=0, le=1e6)
    """The factor on every learning rate; by default 0.1 for a pretrained backbone, else batch_size / 128."""
    epochs_scale: float | None = Field(default=None, gt=0, le=1e6)
    """The factor on the epochs of every phase; by default it follows from `training` and the number of images."""
    batch_size: int | None = Field(default=None, ge=2)
    """Images in one optimizer step; by default 16 to 128, so that an epoch has at least 20 steps."""
    augmentation: str | Augmentation = "by_size"
    """none, shift, plain, auto, photo or photo-auto. All but none and shift mirror images: not for text or digits,
    unless augmentation.flip=false is added."""
    max_unreadable: int | None = Field(default=None, ge=0)
    """Stop if more images than this cannot be read; by default 10 %, but at least 3 and at most 100."""

    @field_validator("image_size", mode="before")
    @classmethod
    def _reads_a_side_or_two(cls, value: Any) -> Any:
        sides = re.fullmatch(r"(\d+)\s*[xX×]\s*(\d+)", value) if isinstance(value, str) else None
        if sides:
            value = tuple(map(int, sides.groups()))
        if isinstance(value, int):
            value = (value, value)
        is_pair = isinstance(value, list | tuple) and len(value) == 2 and all(type(side) is int for side in value)
        if value != "auto" and not is_pair:
            raise ValueError("this is a side such as 64, a height and width such as 96x128, or auto")
        if is_pair and not (SIDES[0] <= min(value) and max(value) <= SIDES[1]):
            raise ValueError(f"a side must lie in {SIDES[0]} to {SIDES[1]}, not {value[0]} x {value[1]}")
        return value

    @property
    def memory_budget(self) -> int:
        """How many images are kept in all, if memory_per_class is not set."""
        return DEFAULT_MEMORY_TOTAL if self.memory_total is None else self.memory_total

    @property
    def held_out_share(self) -> float:
        return PRESETS[self.training].validation_share if self.validation_share is None else self.validation_share

    def quota(self, num_classes: int) -> int | None:
        """How many images are kept of each of `num_classes`, exemplars and held-out ones; None for no limit."""
        if self.options.keeps_all_images:
            return None
        if self.memory_per_class is not None:
            return self.memory_per_class
        total = self.memory_budget
        if total < num_classes:
            raise SettingsError(
                f"memory_total: {counted(total, 'exemplar')} cannot hold one of each of {num_classes} classes, which "
                f"method {self.method} needs; "
                f"set memory_total={num_classes} or more, or memory_per_class"
            )
        return total // num_classes

    def epochs_factor(self, steps_per_epoch: int, is_pretrained: bool = False) -> float:
        """The factor on the method's published epochs, for this many steps an epoch."""
        if self.epochs_scale is not None:
            return self.epochs_scale
        preset = PRESETS[self.training]
        length = preset.pretrained if is_pretrained else preset.from_scratch
        needed = length.min_steps / (steps_per_epoch * self.options.first.epochs)
        return max(length.epochs_scale, min(1.0, needed))

    def scaled_options(self, steps_per_epoch: int, is_pretrained: bool, batch_size: int) -> MethodSettings:
        """The method's settings with the epochs and learning rates to be used, and without `auto`.

        Published rates are for batches of 128. From scratch, the rate of smaller batches is reduced in proportion."""
        rate = 1.0 if is_pretrained else min(1.0, batch_size / PUBLISHED_BATCH_SIZE)
        factor = self.epochs_factor(steps_per_epoch, is_pretrained)
        options = self.scheduled(factor, is_pretrained, rate)
        wanted = options.pretrained_values if is_pretrained else {}
        decided = {name: value for name, value in wanted.items() if getattr(options, name) == "auto"}
        if is_pretrained:
            options = options.with_schedules(_bounded)
        return options.model_copy(update=decided)

    def nested(self) -> dict[str, Any]:
        """As `complete`, without settings of the machine; with only the name of the weights' file, and only the
        plug-ins that a bundle needs."""
        data = {key: value for key, value in self.complete().items() if key not in MACHINE_KEYS}
        needed = plugins_of({"method": self.method, "backbone": self.backbone})
        plugins = {"plugins": list(needed)} if needed else {}
        return {**data, **plugins, "weights": Path(self.weights).name}


def _bounded(fit: FitSettings) -> FitSettings:
    """Clip gradients: the first steps of a new head could undo the pretraining."""
    return fit if fit.max_gradient is not None else fit.model_copy(update={"max_gradient": PRETRAINED_MAX_GRADIENT})


def learner_settings(
    overrides: Sequence[str] = (),
    base: LearnerSettings | None = None,
    origin: str = "the arguments",
    has_learned: bool = True,
    **given: Any,
) -> LearnerSettings:
    """Settings from keywords that are not None and `key=value` overrides, over those of `base`.

    With a base, only the given keys change, inside tables as well, and those that they replace (`REPLACED`). If the
    base has learned, settings that its first `learn` fixed cannot change.
    """
    before: dict[str, Any] = {} if base is None else base.complete()
    changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if "epochs" in changes or any(override.partition("=")[0].strip() == "epochs" for override in overrides):
        raise SettingsError(
            "epochs: a learner has no such setting; --minutes M (in Python minutes=M) fits the training to a time, and "
            f"epochs_scale=F multiplies the published epochs (in {origin})"
        )
    overrides = import_plugins(changes, overrides, (), origin)
    recipes, overrides = take_recipes(overrides, changes.pop("recipe", None))
    has_parts = any(override.lstrip().startswith("augmentation.") for override in overrides)
    if has_parts:
        changes.setdefault("augmentation", LearnerSettings.augmentation_in(before))
    apply_overrides(LearnerSettings, changes, overrides, origin)
    if base is not None and has_learned and changes.get("backbone") == without_variant(base.backbone):
        del changes["backbone"]  # the first learn replaced it by a variant
    requested = laid_over(with_recipes({}, recipes), changes)
    origin = " or ".join([origin, *(f"recipe {recipe}" for recipe in recipes)])
    replaced = {old for new, others in REPLACED.items() if requested.get(new) is not None for old in others}
    kept = {key: value for key, value in before.items() if key not in replaced}
    if kept and not has_parts and isinstance(requested.get("augmentation"), Mapping):
        kept["augmentation"] = augmentation_table(kept["augmentation"], origin)
    settings = make(LearnerSettings, laid_over(kept, requested), origin)
    check_used(overrides, settings)
    if base is not None and has_learned:
        _check_kept(base, settings, origin)
    return settings


def _check_kept(base: LearnerSettings, settings: LearnerSettings, origin: str) -> None:
    if base.method == CLOSED_FORM and settings.method not in LearnerSettings.untrained:
        base = base.model_copy(update={"method": settings.method, "options": settings.options})  # may begin to train
    kept = [(key, getattr(base, key), getattr(settings, key)) for key in KEPT_FROM_THE_FIRST_LEARN]
    if not base.options.keeps_all_images:
        kept.append(("weights", Path(base.weights).name, Path(settings.weights).name))
    if base.method == settings.method:
        kept += [
            (f"{base.method}.{key}", getattr(base.options, key), getattr(settings.options, key))
            for key in base.options.fixed_options
        ]
    for key, before, after in kept:
        if before != after:
            raise SettingsError(
                f"{key}: the first learn of this learner fixed {before!r}, so it cannot become {after!r} (in {origin})"
                "; to change it, learn all photos into a new bundle"
            )
