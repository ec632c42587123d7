"""Settings that runs and learners share, and how both are made from plain data."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar

from pydantic import Field, SerializeAsAny, field_validator, model_validator

from foster.errors import SettingsError, suggestion
from foster.settings.augmentation import AUGMENTATIONS, augmentation_table
from foster.settings.engine import EngineSettings
from foster.settings.fit import FitSettings, Frozen
from foster.settings.keys import (
    COMMAND_LINE,
    apply_override,
    is_part,
    keys_of,
    short,
    toml_value,
    validated,
)
from foster.settings.method import MethodSettings
from foster.settings.methods import DEFAULT_METHOD, METHOD_SETTINGS
from foster.settings.plugins import load_plugins
from foster.settings.toml import laid_over

PRETRAINED_RATE = 0.1
"""The factor on learning rates where the backbone started from pretrained weights."""


def device_problem(name: str) -> str | None:
    """Why this is not the name of a device; None where it is one."""
    is_one = re.fullmatch(r"auto|cpu|cuda(:\d+)?", name)
    return None if is_one else f"choose from auto, cpu, cuda or cuda:N, not {short(name)}"


class CommonSettings(Frozen):
    """Settings that runs and learners share. `options` holds those of the chosen method."""

    listing: ClassVar[str]
    """The command that prints all keys, for messages."""
    named: ClassVar[Mapping[str, Mapping[str, Any]]]
    """Keys whose value must be a name in a table, with that table."""
    usual_augmentation: ClassVar[str]
    """The name that stands for the default augmentation."""
    untrained: ClassVar[tuple[str, ...]] = ()
    """Words for `method` that are no trained method: the options are then those of the default method."""

    method: str = DEFAULT_METHOD
    """The algorithm; `foster list methods` lists all."""
    seed: int = Field(default=1993, ge=0, lt=2**32)
    """The seed of all random choices."""
    weights: str = ""
    """A .safetensors file with pretrained weights of the backbone."""
    learning_rate_scale: float | None = Field(default=None, gt=0, le=1e6)
    """The factor on every learning rate; by default 0.1 for a pretrained backbone, else 1."""
    memory_total: int | None = Field(default=None, ge=1)
    """How many exemplars the memory holds in all."""
    memory_per_class: int | None = Field(default=None, ge=1)
    """How many exemplars the memory holds of each class, in place of memory_total."""
    selection: Literal["herding", "random"] = "herding"
    """How exemplars are selected."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N; auto takes a GPU where there is one."""
    checkpoint_minutes: float = Field(default=5.0, ge=0)
    """How often unfinished training is saved, so that it can be continued; 0 means after every epoch."""
    recipe: str = Field(default="", max_length=100)
    """The recipe that was laid over the preset: one of ours (`foster list presets`), or a TOML file of your own. In a
    settings file, the path starts from that file, or else from the current folder."""
    plugins: tuple[str, ...] = ()
    """Python modules or files that register methods, datasets or backbones."""
    engine: EngineSettings = EngineSettings()
    options: SerializeAsAny[MethodSettings]

    @field_validator("device")
    @classmethod
    def _is_a_device(cls, name: str) -> str:
        if wrong := device_problem(name):
            raise ValueError(wrong)
        return name

    @model_validator(mode="after")
    def _has_one_budget(self) -> Self:
        if self.memory_total is not None and self.memory_per_class is not None:
            raise ValueError(
                f"memory_total = {self.memory_total} and memory_per_class = {self.memory_per_class}: "
                "set one budget, not both (key=none takes one away)"
            )
        return self

    @property
    def section(self) -> str:
        """The name of the table that holds the options."""
        return DEFAULT_METHOD if self.method in self.untrained else self.method

    @property
    def unlabeled_key(self) -> str:
        """The dotted key of the setting that names unlabeled images."""
        return f"{self.section}.{self.options.unlabeled_key}"

    def why_unused(self, key: str) -> str:
        """Why a dotted key has no effect: it is another method's, or needs another setting. Empty where it has one."""
        section, _, own_key = key.partition(".")
        if section in METHOD_SETTINGS and section != self.section:
            return f"the method is {self.method}"
        lacking = self.options.lacking(own_key) if section == self.section else ""
        return f"it needs {lacking}" if lacking else ""

    def scheduled(self, epochs_factor: float, is_pretrained: bool, rate: float = 1.0) -> MethodSettings:
        """The method's settings with the epochs and learning rates to be used.

        Without `learning_rate_scale`, rates are `rate` times the published ones, and a tenth of that for a pretrained
        backbone.
        """
        options, given = self.options.scaled(epochs_factor), self.learning_rate_scale

        def with_rate(name: str, fit: FitSettings) -> FitSettings:
            is_gentle = is_pretrained and name not in options.head_schedules
            factor = rate * (PRETRAINED_RATE if is_gentle else 1) if given is None else given
            return fit.model_copy(update={"learning_rate": factor * fit.learning_rate})

        return options.with_schedules(with_rate)

    def complete(self) -> dict[str, Any]:
        """All settings as plain data, in the layout of a settings file: the options stand under the method's name."""
        data = self.model_dump(mode="json", exclude={"options"} if self.plugins else {"options", "plugins"})
        return {**data, self.section: self.options.model_dump(mode="json")}

    @classmethod
    def augmentation_asked(cls, data: Mapping[str, Any]) -> Any:
        """The augmentation that plain data asks for."""
        return data.get("augmentation", cls.usual_augmentation)


Model = TypeVar("Model", bound=CommonSettings)


def keys_for(model: type[CommonSettings]) -> list[str]:
    """Every dotted key of a settings class, with those of all methods."""
    if clash := model.model_fields.keys() & METHOD_SETTINGS.keys():
        raise SettingsError(f"a method cannot be called '{min(clash)}', which is a setting of its own")
    sections = [f"{name}.{key}" for name, options in METHOD_SETTINGS.items() for key in keys_of(options)]
    return [*keys_of(model, skip="options"), *sections]


def apply_overrides(
    model: type[CommonSettings], data: dict[str, Any], overrides: Sequence[str], origin: str, asked: str = COMMAND_LINE
) -> None:
    """Set every `key=value` in plain data; `asked` names their place in messages.

    Parts of an augmentation are set last: they change the augmentation that the others have chosen.
    """
    keys = keys_for(model)
    for override in sorted(overrides, key=lambda override: is_part(override, "augmentation")):
        if is_part(override, "augmentation"):
            data["augmentation"] = augmentation_table(model.augmentation_asked(data), origin)
        apply_override(data, override, keys, model.listing, asked)


def check_used(overrides: Sequence[str], settings: CommonSettings, asked: str = COMMAND_LINE) -> None:
    """Refuse a `key=value` without effect, unless it sets the default; `asked` names its place in messages."""
    for key in (override.partition("=")[0].strip() for override in overrides):
        section, _, own_key = key.partition(".")
        is_usual = section == settings.section and own_key.partition(".")[0] not in settings.options.without_effect()
        if (reason := settings.why_unused(key)) and not is_usual:
            raise SettingsError(f"{key} has no effect: {reason} ({asked})")


def import_plugins(
    data: dict[str, Any], overrides: Sequence[str], more: Iterable[str], origin: str, folder: Path | None = None
) -> list[str]:
    """Import the plug-ins that plain data in `folder`, the overrides and `more` name, before anything is checked.

    In `data` they get names that work from any folder. Returns the other overrides.
    """
    key = "plugins="
    given = [override for override in overrides if override.startswith(key)]
    if given:
        data["plugins"], folder = toml_value(given[-1].removeprefix(key)), None
    imported = [*load_plugins(plugins_asked(data, origin), folder), *load_plugins(list(more))]
    data.update({"plugins": list(dict.fromkeys(imported))} if imported else {})
    return [override for override in overrides if override not in given]


def plugins_asked(data: Mapping[str, Any], origin: str) -> list[str]:
    """The plug-ins that plain data names."""
    asked = data.get("plugins", [])
    if not isinstance(asked, list | tuple) or not all(isinstance(name, str) for name in asked):
        raise SettingsError(f"plugins: this is a list of modules such as ['my_lab'], not {short(asked)} (in {origin})")
    return list(asked)


def make(model: type[Model], data: Mapping[str, Any], origin: str) -> Model:
    """Checked settings from plain data in the layout of a settings file; `origin` names it in messages."""
    data = dict(data)
    method = data.get("method", model.model_fields["method"].default)
    _check_name("method", method, [*model.untrained, *METHOD_SETTINGS], origin)
    section = DEFAULT_METHOD if method in model.untrained else method
    tables = {name: data.pop(name) for name in METHOD_SETTINGS if name in data}
    checked = {name: method_section(name, table, origin) for name, table in tables.items()}
    for key, table in model.named.items():
        if data.get(key) is not None:
            _check_name(key, data[key], table, origin)
    augmentation = data["augmentation"] = model.augmentation_asked(data)
    if isinstance(augmentation, str) and augmentation != model.usual_augmentation:
        _check_name("augmentation", augmentation, [*AUGMENTATIONS, model.usual_augmentation], origin)
    return validated(model, {**data, "options": checked.get(section) or _usual_options(section)}, origin)


def _usual_options(method: str) -> MethodSettings:
    """The defaults of a method; a plug-in's settings class may lack some, which is an error."""
    return validated(
        METHOD_SETTINGS[method], {}, f"the settings class of '{method}': each needs a default", f"{method}."
    )


def check_section(data: Mapping[str, Any], origin: str) -> None:
    """Refuse an unknown method that has a section of its own: the message names the method, not the section."""
    method = data.get("method")
    if isinstance(method, str) and method in data:
        _check_name("method", method, METHOD_SETTINGS, origin)


def _check_name(key: str, name: Any, known: Iterable[str], origin: str) -> None:
    known = list(known)
    if not isinstance(name, str) or name not in known:
        hint = suggestion(str(name), known)
        if key in ("method", "dataset") and "did you mean" not in hint:
            hint += ", or name the plug-in that has it (--plugin, or from Python plugins=[...])"
        raise SettingsError(f"unknown {key} {short(str(name))}{hint} ({key} in {origin})")


def method_section(name: str, section: Any, origin: str) -> MethodSettings:
    """A method's settings: `section` laid over the defaults, inside schedules as well."""
    if not isinstance(section, Mapping):
        raise SettingsError(f"{name}: this is a table of settings, not {short(section)} (in {origin})")
    merged = laid_over(_usual_options(name).model_dump(), section)
    for key, value in section.items():
        if isinstance(value, Mapping) and value.get("schedule") == "cosine":
            merged[key] = {**merged[key], "milestones": value.get("milestones", ())}
    return validated(METHOD_SETTINGS[name], merged, origin, prefix=f"{name}.")
