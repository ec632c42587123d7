"""TOML and key=value pairs -> validated, frozen settings. No torch here, so that `foster --help` is instant."""

import os
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SerializeAsAny, model_validator

from foster.errors import SettingsError, suggestion
from foster.settings import toml as toml_text
from foster.settings.augmentation import AUGMENTATIONS, AugmentationSettings, augmentation_table
from foster.settings.datasets import CATALOGUE, scenario_name, task_sizes
from foster.settings.fit import Frozen
from foster.settings.keys import COMMAND_LINE, apply_override, check_keys, is_part, keys_of, short, validated
from foster.settings.methods import DEFAULT_METHOD, METHOD_SETTINGS, MethodSettings
from foster.system.files import read_plain

Choice = Literal["auto", "on", "off"]

MAX_FILE_BYTES = 2**24

LISTING = "foster presets --show NAME"
"""The command that prints all keys."""


class SyntheticSettings(Frozen):
    """The size of the `synthetic` dataset."""

    num_classes: int = Field(default=10, ge=2, le=100_000)
    train_per_class: int = Field(default=40, ge=1, le=1_000_000)
    test_per_class: int = Field(default=10, ge=1, le=1_000_000)
    image_size: int = Field(default=16, ge=8, le=4096)


class EngineSettings(Frozen):
    """How the training step is made fast. `auto` uses each accelerator where it can work; `on` where it cannot is an
    error."""

    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    compile: Choice = "auto"
    capture: Choice = "auto"
    """Record the whole step as one CUDA graph."""
    kernels: Choice = "auto"
    """Use our own kernels for the blocks of narrow networks."""
    resident: Choice = "auto"
    """Keep all training images on the device; off: in the host's memory, sent some batches at a time."""
    deterministic: bool = False
    """The same numbers in every run on the same GPU, at some cost; on a CPU they are the same anyway."""
    threads: int = Field(default=0, ge=0, le=1024)
    """CPU threads; 0 leaves the choice to torch."""


class Settings(Frozen):
    """Everything that decides what a run does. `options` holds the chosen method's own settings."""

    method: str = DEFAULT_METHOD
    seed: int = Field(default=1993, ge=0, lt=2**32)
    dataset: str
    data: str = ""
    """The folder of the data files; empty means $FOSTER_DATA or ./data."""
    base_classes: int = Field(default=0, ge=0)
    """Classes of the first task; 0 means as many as in the others."""
    increment: int = Field(ge=1)
    order_seed: int | None = Field(default=None, ge=0, lt=2**32)
    """The seed of the class order; the run's seed where it is not given."""
    class_order: tuple[str, ...] = ()
    """All class names in order of arrival, in place of an order from the seed."""
    validation_share: float = Field(default=0.0, ge=0, lt=1)
    """Above 0: evaluate on this share of the training images, held out, and leave the test set alone."""
    backbone: str = "resnet32"
    batch_size: int = Field(default=128, ge=2)
    epochs_scale: float = Field(default=1.0, gt=0, le=1000)
    """Multiplies the epochs of every phase, milestones included."""
    memory_total: int | None = Field(default=None, ge=1)
    memory_per_class: int | None = Field(default=None, ge=1)
    selection: Literal["herding", "random"] = "herding"
    augmentation: str | AugmentationSettings = "published"
    """A name, a table, or `published`: what the method's published results used. What a table does not name is off;
    `augmentation.flip=false` on the command line changes that part alone."""
    device: str = Field(default="auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    checkpoint_minutes: float = Field(default=5.0, ge=0)
    """A checkpoint is written at least this often while training; 0 writes one after every epoch."""
    keep_networks: bool = False
    """Keep the weights of each evaluated network after every task, which t-SNE and Grad-CAM figures need."""
    engine: EngineSettings = EngineSettings()
    synthetic: SyntheticSettings = SyntheticSettings()
    options: SerializeAsAny[MethodSettings]

    @model_validator(mode="after")
    def _fits_together(self) -> "Settings":
        side = self.synthetic.image_size if self.dataset == "synthetic" else CATALOGUE[self.dataset].image_size
        problem = self.options.problem(len(self.task_sizes)) or self.augmentation_settings.problem((side, side))
        if problem:
            raise ValueError(problem)
        if self.options.unlabeled_source == self.dataset:
            raise ValueError(
                f"{self.method}.{self.options.unlabeled_key}: '{self.dataset}' is the run's own dataset: images of "
                "later tasks, and those held out, would be trained on"
            )
        if self.memory_total is not None and self.memory_per_class is not None:
            raise ValueError(
                f"memory_total = {self.memory_total} and memory_per_class = {self.memory_per_class}: "
                "set one budget, not both (key=none takes one away)"
            )
        if self.options.uses_memory:
            if self.memory_total is None and self.memory_per_class is None:
                raise ValueError(f"method '{self.method}' needs a memory: set memory_total or memory_per_class")
            if self.memory_total is not None and self.memory_total < self.num_classes:
                raise ValueError(
                    f"memory_total: {self.memory_total} exemplars cannot hold one of each of {self.num_classes} classes"
                )
        return self

    @property
    def num_classes(self) -> int:
        return self.synthetic.num_classes if self.dataset == "synthetic" else CATALOGUE[self.dataset].num_classes

    @property
    def task_sizes(self) -> tuple[int, ...]:
        return task_sizes(self.num_classes, self.base_classes, self.increment)

    @property
    def scenario(self) -> str:
        """The short name of the scenario, e.g. `cifar100-b0-inc10`."""
        return scenario_name(self.dataset, self.base_classes, self.increment)

    @property
    def run_name(self) -> str:
        """The default name of the run's folder; it tells the augmentation where that is not the published one."""
        is_published = self.augmentation == self.options.published_augmentation
        method = self.method if is_published else f"{self.method}-{self.augmentation_name}"
        return f"{self.scenario}-{method}-s{self.seed}"

    @property
    def augmentation_name(self) -> str:
        return self.augmentation if isinstance(self.augmentation, str) else "custom"

    @property
    def augmentation_settings(self) -> AugmentationSettings:
        return (
            self.augmentation
            if isinstance(self.augmentation, AugmentationSettings)
            else AUGMENTATIONS[self.augmentation]
        )

    @property
    def remarks(self) -> list[str]:
        """What may not be meant, a line each."""
        return [f"{self.method}.{remark}" for remark in self.options.remarks(len(self.task_sizes))]

    def nested(self) -> dict[str, Any]:
        """The settings as plain data in the layout of a settings file, the options under the method's name."""
        data = self.model_dump(mode="json", exclude={"options"})
        if self.dataset != "synthetic":
            del data["synthetic"]
        return {**data, self.method: self.options.model_dump(mode="json")}

    def published(self) -> dict[str, Any]:
        """The same without paths: where files lie is nobody's business where results are published."""
        data = {key: value for key, value in self.nested().items() if key != "data"}
        source = self.options.unlabeled_source
        if source not in CATALOGUE and source:
            data[self.method][self.options.unlabeled_key] = Path(source).name
        return data

    def toml(self) -> str:
        return toml_text.dumps(self.nested())


def preset_names() -> list[str]:
    folder = resources.files("foster") / "presets"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def preset_text(name: str) -> str:
    return (resources.files("foster") / "presets" / f"{name}.toml").read_text(encoding="utf-8")


def load_settings(
    source: str | None, overrides: Sequence[str] = (), *, asked: str = COMMAND_LINE, **given: Any
) -> Settings:
    """Settings from a preset's name, a TOML file or nothing, then `key=value` overrides, then keywords that are not
    None. `asked` tells in messages where the overrides stand."""
    data, place = _read_source(source)
    keys = all_keys()
    check_keys(data, keys, place, LISTING)
    # The parts of an augmentation come last: by then it is known which one they change.
    parts = [override for override in overrides if is_part(override, "augmentation")]
    for override in overrides:
        if override not in parts:
            apply_override(data, override, keys, LISTING, asked)
    data.update({key: value for key, value in given.items() if value is not None})
    if parts:
        data["augmentation"] = augmentation_table(_augmentation(data), place)
    for override in parts:
        apply_override(data, override, keys, LISTING, asked)
    return make_settings(data, f"{place} or {asked}" if overrides and source else place)


def is_used(key: str, settings: Settings) -> bool:
    """Whether the key stands in the settings that a run has: other methods' sections do not."""
    section = key.split(".")[0]
    if section == "synthetic":
        return settings.dataset == "synthetic"
    return section not in METHOD_SETTINGS or section == settings.method


def check_used(overrides: Sequence[str], settings: Settings, asked: str = COMMAND_LINE) -> None:
    """Refuse a `key=value` that changes nothing; `asked` says where it stands."""
    for key in (override.partition("=")[0].strip() for override in overrides):
        if not is_used(key, settings):
            decider = "dataset" if key.startswith("synthetic.") else "method"
            raise SettingsError(f"{key} has no effect: the {decider} is {getattr(settings, decider)} ({asked})")


def make_settings(data: Mapping[str, Any], place: str) -> Settings:
    """Checked settings from plain data in the layout of a settings file; `place` names it in messages."""
    data = dict(data)
    method = data.get("method", DEFAULT_METHOD)
    if not isinstance(method, str) or method not in METHOD_SETTINGS:
        raise SettingsError(f"unknown method '{method}'{suggestion(str(method), METHOD_SETTINGS)} (method in {place})")
    sections = {name: data.pop(name) for name in METHOD_SETTINGS if name in data}
    checked = {name: method_section(name, section, place) for name, section in sections.items()}
    dataset = data.get("dataset")
    if dataset is not None and (not isinstance(dataset, str) or dataset not in CATALOGUE):
        raise SettingsError(f"unknown dataset '{dataset}'{suggestion(str(dataset), CATALOGUE)} (dataset in {place})")
    options = checked.get(method) or METHOD_SETTINGS[method]()
    augmentation = data["augmentation"] = _augmentation(data)
    if isinstance(augmentation, str) and augmentation not in AUGMENTATIONS:
        hint = suggestion(augmentation, [*AUGMENTATIONS, "published"])
        raise SettingsError(f"unknown augmentation '{augmentation}'{hint} (augmentation in {place})")
    settings = validated(Settings, {**data, "options": options}, place)
    _check_class_order(settings.class_order, settings.num_classes, place)
    return settings


def _augmentation(data: Mapping[str, Any]) -> Any:
    """What is asked for, with the method's own in place of `published`."""
    asked = data.get("augmentation", "published")
    options = METHOD_SETTINGS.get(str(data.get("method", DEFAULT_METHOD)), MethodSettings)
    return options.published_augmentation if asked == "published" else asked


def method_section(name: str, section: Any, place: str) -> MethodSettings:
    """A method's settings, where `section` gives only what differs from the defaults, inside schedules as well."""
    if not isinstance(section, Mapping):
        raise SettingsError(f"{name}: this is a table of settings, not {short(section)} (in {place})")
    merged = dict(METHOD_SETTINGS[name]().model_dump(exclude_defaults=False))
    for key, value in section.items():
        default = merged.get(key)
        if not (isinstance(default, dict) and isinstance(value, Mapping)):
            merged[key] = value
            continue
        merged[key] = {**default, **value}
        if value.get("schedule") == "cosine" and "milestones" not in value:
            merged[key]["milestones"] = ()
    return validated(METHOD_SETTINGS[name], merged, place, prefix=f"{name}.")


def _read_source(source: str | None) -> tuple[dict[str, Any], str]:
    if source is None:
        return {}, "the keywords"
    # A preset's name means the preset, even where a folder of the same name lies about.
    if source in preset_names():
        return tomllib.loads(preset_text(source)), f"preset {source}"
    path = Path(source)
    try:
        if path.is_dir():
            path = path / "settings.toml"
        elif not (source.endswith(".toml") or os.sep in source):
            hint = suggestion(source, preset_names())
            raise SettingsError(f"unknown preset '{source}'{hint} (a settings file ends in .toml)")
        content = read_plain(path, max_bytes=MAX_FILE_BYTES, may_be_link=True)
        return tomllib.loads(content.decode()), str(path)
    except OSError as error:
        raise SettingsError(f"cannot read settings file '{path}': {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"cannot read settings file '{path}': not UTF-8 text") from None
    except (ValueError, RecursionError) as error:
        # Not only TOMLDecodeError: Python itself refuses overlong numbers, and NUL in a path.
        raise SettingsError(f"'{path}' is not valid TOML: {error}") from None


def all_keys(method: str | None = None) -> list[str]:
    """Every dotted key that a settings file or the command line may hold."""
    methods = [method] if method else list(METHOD_SETTINGS)
    keys = keys_of(Settings, skip={"options"})
    keys += [f"augmentation.{key}" for key in AugmentationSettings.model_fields]
    return keys + [f"{name}.{key}" for name in methods for key in keys_of(METHOD_SETTINGS[name])]


def _check_class_order(order: Sequence[str], num_classes: int, place: str) -> None:
    repeated = sorted({name for name in order if order.count(name) > 1})
    if repeated:
        raise SettingsError(f"class_order: '{repeated[0]}' stands in it more than once (in {place})")
    if order and len(order) != num_classes:
        raise SettingsError(f"class_order: {len(order)} names, but the dataset has {num_classes} classes (in {place})")
