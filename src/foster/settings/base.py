"""Settings that runs and learners share, and how both are made from plain data.

Plain data comes from a TOML file. Recipes are laid over it, then `key=value` overrides, and the result is checked. Keys
are dotted: `foster.boost.epochs` is the key `epochs` in the table `boost` of the table `foster`.
"""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, reduce
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar, get_args

from pydantic import Field, SerializeAsAny, ValidationError, field_validator, model_validator

from foster.errors import SettingsError, short, suggestion
from foster.settings.augmentation import AUGMENTATIONS, augmentation_table
from foster.settings.engine import EngineSettings, device_problem
from foster.settings.fit import Frozen
from foster.settings.method import MethodSettings
from foster.settings.methods import DEFAULT_METHOD, METHOD_SETTINGS
from foster.settings.plugins import load_plugins
from foster.settings.toml import laid_over, packaged_names, path_named_in, read_named, toml_value

Model = TypeVar("Model", bound=Frozen)
Common = TypeVar("Common", bound="CommonSettings")

PRETRAINED_RATE = 0.1
"""The factor on learning rates for a pretrained backbone."""

COMMAND_LINE = "on the command line"
"""The usual place of overrides, in messages."""

MEMORY_KEYS = frozenset({"memory_total", "memory_per_class", "selection"})
"""Settings without effect for a method without a memory."""

FREE_SETTINGS = ("data", "device", "checkpoint_minutes", "keep_networks", "first_task_from", "engine", "plugins")
"""Settings that may change when a run is resumed: they change where and how the run computes, not what it learns."""

UNION_MEMBER = re.compile(r"Augmentation|str|float|(tuple|literal)\[.*|constrained-.*")
"""Parts that pydantic adds to the location of an error if a value may have several types."""

KINDS = {
    "int": "this is a whole number",
    "float": "this is a number",
    "bool": "this is true or false",
    "string": "this is a text",
    "tuple": 'this is a list, such as ["a", "b"] or [1, 2]',
    "model": "this is a table of settings",
}
"""The type of a value in plain words; pydantic's messages contain Python terms and class names."""


class CommonSettings(Frozen):
    """Settings that runs and learners share. `options` holds those of the chosen method."""

    listing: ClassVar[str]
    """The command that prints all keys, for messages."""
    named: ClassVar[Mapping[str, Mapping[str, Any]]]
    """Keys whose value must be a name in a table, with that table."""
    usual_augmentation: ClassVar[str]
    """The name that stands for the default augmentation."""
    untrained: ClassVar[tuple[str, ...]] = ()
    """Values of `method` that name no trained method; the options are then those of the default method."""

    method: str = DEFAULT_METHOD
    """The algorithm; `foster list methods` lists all."""
    seed: int = Field(default=1993, ge=0, lt=2**32)
    """The seed of all random choices."""
    weights: str = ""
    """A .safetensors file with pretrained weights of the backbone."""
    learning_rate_scale: float | None = Field(default=None, gt=0, le=1e6)
    """The factor on every learning rate; by default 0.1 for a pretrained backbone, else 1."""
    memory_total: int | None = Field(default=None, ge=1)
    """The most exemplars in the memory, of all classes together."""
    memory_per_class: int | None = Field(default=None, ge=1)
    """The most exemplars of each class in the memory, in place of memory_total."""
    selection: Literal["herding", "random"] = "herding"
    """How exemplars are selected."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N; auto is a GPU if there is one."""
    checkpoint_minutes: float = Field(default=5.0, ge=0)
    """How often unfinished training is saved, so that it can be continued; 0 means after every epoch."""
    recipe: str = Field(default="", max_length=100)
    """The recipe that was laid over the preset: one of ours (`foster list recipes`), or a TOML file of your own. A
    relative path in a settings file is looked up in the folder of that file, then in the current folder."""
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
                "set one budget, not both (key=none unsets one)"
            )
        return self

    @property
    def section(self) -> str:
        """The name of the table that holds the options."""
        return DEFAULT_METHOD if self.method in self.untrained else self.method

    def why_unused(self, key: str) -> str:
        """The reason why a dotted key has no effect: it belongs to another method, or this method has a default of its
        own for it. Empty if the key has an effect."""
        section, _, rest = key.partition(".")
        if section not in METHOD_SETTINGS:
            return ""
        if section not in sections_of(self.section):
            return f"the method is {self.method}"
        if rest and not reads(self.section, section, rest.partition(".")[0]):
            return f"{self.section}.{rest} has a default of its own"
        return ""

    def scheduled(self, epochs_factor: float, is_pretrained: bool, rate: float = 1.0) -> MethodSettings:
        """The method's settings with the epochs and learning rates to be used.

        Without `learning_rate_scale`, rates are `rate` times the published ones, and a tenth of that for a pretrained
        backbone.
        """
        options, given = self.options.scaled(epochs_factor), self.learning_rate_scale
        factor = rate * (PRETRAINED_RATE if is_pretrained else 1) if given is None else given
        return options.with_schedules(lambda fit: fit.model_copy(update={"learning_rate": factor * fit.learning_rate}))

    def complete(self) -> dict[str, Any]:
        """All settings as plain data, in the layout of a settings file: the options stand under the method's name."""
        data = self.model_dump(mode="json", exclude={"options"} if self.plugins else {"options", "plugins"})
        return {**data, self.section: self.options.model_dump(mode="json")}

    @classmethod
    def augmentation_in(cls, data: Mapping[str, Any]) -> Any:
        """The augmentation in plain data, or the usual one."""
        return data.get("augmentation", cls.usual_augmentation)


@cache
def keys_of(model: type[Frozen], skip: str = "") -> Mapping[str, bool]:
    """Every dotted key of a settings class, with those of nested settings; and whether it may be None."""
    keys: dict[str, bool] = {}
    for name, field in model.model_fields.items():
        if name == skip:
            continue
        kinds = [field.annotation, *get_args(field.annotation)]  # of `Table | None` and `str | Table`, both members
        tables = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Frozen)]
        keys |= {} if tables == kinds else {name: type(None) in kinds}
        keys |= {f"{name}.{key}": is_optional for table in tables for key, is_optional in keys_of(table).items()}
    return keys


def flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted key."""
    by_key: dict[str, Any] = {}
    for key, value in data.items():
        by_key |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return by_key


def key_hint(key: str, keys: Sequence[str], listing: str = "", method: str = DEFAULT_METHOD) -> str:
    """The nearest key, also by its last part: `num_proxies` -> `podnet.num_proxies`.

    Keys of the same section, or of `method`, are preferred. Where no key is near, the hint names the command `listing`.
    """
    last = key.rsplit(".", 1)[-1]
    same_end = [known for known in keys if known.rsplit(".", 1)[-1] == last]
    home = key.split(".")[0] if "." in key else method
    at_home = [known for known in same_end if known.startswith(f"{home}.")]
    if same_end:
        return f"; did you mean '{difflib.get_close_matches(key, at_home or same_end, n=1, cutoff=0)[0]}'?"
    hint = suggestion(key, keys)
    return hint if "did you mean" in hint or not listing else f"; '{listing}' prints all keys"


def validated(model: type[Model], data: Any, origin: str, prefix: str = "") -> Model:
    """Make a `model` from `data`. Raises SettingsError, which names the key, the value and what it should be."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        # An unknown key explains a missing one; if a value may have several types, the deepest error fits best.
        first = max(error.errors(), key=lambda each: (each["type"] == "extra_forbidden", len(each["loc"])))
    key = prefix + ".".join(str(part) for part in first["loc"] if not UNION_MEMBER.fullmatch(str(part)))
    message = first["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    kind, separator, fault = first["type"].partition("_")
    if kind in KINDS and separator and fault in ("type", "parsing", "from_float"):
        message = KINDS[kind]
    if first["type"] == "missing":
        raise SettingsError(f"{key}: this key is missing (in {origin})")
    if first["type"] == "extra_forbidden":
        if issubclass(model, CommonSettings):
            hint = key_hint(key, [*keys_for(model)], model.listing)
        else:
            hint = key_hint(key, [prefix + known for known in keys_of(model)])
        raise SettingsError(f"unknown key '{key}'{hint} (in {origin})")
    if not first["loc"]:
        raise SettingsError(f"{message} (in {origin})")
    if first["type"] == "value_error":
        raise SettingsError(f"{key}: {message} (in {origin})")
    raise SettingsError(f"{key}: {message}, not {short(first['input'])} (in {origin})")


def read_recipe(recipe: str) -> dict[str, Any]:
    """The settings of a recipe, by the name of one of ours or by the path of a TOML file."""
    return read_named("recipes", "recipe", recipe)


def take_recipes(overrides: Sequence[str], recipe: str | None = None) -> tuple[list[str], list[str]]:
    """The given `recipe`, or else those of the `recipe=NAME` overrides, in order; and the other overrides."""
    given = [override for override in overrides if override.partition("=")[0].strip() == "recipe"]
    named = [toml_value(each.partition("=")[2].strip()) for each in given] if recipe is None else [recipe]
    recipes = [str(each) for each in named if each not in ("none", "")]
    return recipes, [each for each in overrides if each not in given]


def with_recipes(data: Mapping[str, Any], recipes: Sequence[str]) -> dict[str, Any]:
    """Plain data, with the recipes laid over it one after the other."""
    merged = reduce(laid_over, map(read_recipe, recipes), dict(data))
    return {**merged, "recipe": "+".join(Path(recipe).stem for recipe in recipes)} if recipes else merged


def with_own_recipe(data: Mapping[str, Any], folder: Path | None) -> dict[str, Any]:
    """Plain data of a settings file in `folder`, laid over the recipe that it names.

    The settings of a run already have all keys. If the recipe was a file, they have only its name, and no recipe is
    read.
    """
    recipe = str(data.get("recipe", ""))
    if recipe.endswith(".toml"):
        recipe = str(path_named_in(folder, recipe))
    elif recipe not in packaged_names("recipes"):
        return dict(data)
    return {**laid_over(read_recipe(recipe), data), "recipe": Path(recipe).stem}


def keys_for(model: type[CommonSettings]) -> dict[str, bool]:
    """Every dotted key of a settings class, with those of all methods; and whether it may be None."""
    sections = {name: keys_of(options) for name, options in METHOD_SETTINGS.items()}
    return {**keys_of(model, skip="options"), **flat(sections)}


def apply_overrides(
    model: type[CommonSettings], data: dict[str, Any], overrides: Sequence[str], origin: str, place: str = COMMAND_LINE
) -> None:
    """Set every `key=value` in plain data; messages say that the overrides are at this `place`.

    A value is TOML, else plain text; `none` unsets an optional key. Parts of an augmentation, such as
    `augmentation.flip=false`, are set last: they change the augmentation that the other overrides have chosen.
    """
    keys = keys_for(model)
    parts = [override for override in overrides if override.lstrip().startswith("augmentation.")]
    for override in [*(each for each in overrides if each not in parts), *parts]:
        key, separator, text = (part.strip() for part in override.partition("="))
        if not separator or not key:
            raise SettingsError(f"'{override}' is not of the form key=value")
        if key not in keys and not any(known.startswith(f"{key}.") for known in keys):
            method = str(data.get("method", DEFAULT_METHOD))
            raise SettingsError(f"unknown key '{key}'{key_hint(key, [*keys], model.listing, method)} ({place})")
        if override in parts:
            data["augmentation"] = augmentation_table(model.augmentation_in(data), origin)
        table = data
        *parents, last = key.split(".")
        for parent in parents:
            if not isinstance(table.get(parent), dict):
                table[parent] = {}
            table = table[parent]
        # The key is set to None, not removed: `data` may be laid over settings that have a value for it.
        table[last] = None if text == "none" and keys.get(key) else toml_value(text)


def check_used(overrides: Sequence[str], settings: CommonSettings, place: str = COMMAND_LINE) -> None:
    """Refuse a `key=value` without effect; the message says that it is at this `place`."""
    for key in (override.partition("=")[0].strip() for override in overrides):
        if reason := settings.why_unused(key):
            raise SettingsError(f"{key} has no effect: {reason} ({place})")


def import_plugins(
    data: dict[str, Any], overrides: Sequence[str], more: Iterable[str], origin: str, folder: Path | None = None
) -> list[str]:
    """Import the plug-ins that plain data from `folder`, the overrides and `more` name. This comes before any check.

    The names in `data` are replaced by names that work from any folder. Returns the other overrides.
    """
    key = "plugins="
    given = [override for override in overrides if override.startswith(key)]
    if given:
        data["plugins"], folder = toml_value(given[-1].removeprefix(key)), None
    imported = [*load_plugins(named_plugins(data, origin), folder), *load_plugins(list(more))]
    data.update({"plugins": list(dict.fromkeys(imported))} if imported else {})
    return [override for override in overrides if override not in given]


def named_plugins(data: Mapping[str, Any], origin: str) -> list[str]:
    names = data.get("plugins", [])
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise SettingsError(f"plugins: this is a list of modules such as ['my_lab'], not {short(names)} (in {origin})")
    return list(names)


def make(model: type[Common], data: Mapping[str, Any], origin: str) -> Common:
    """Checked settings from plain data in the layout of a settings file; `origin` names it in messages."""
    data = dict(data)
    method = data.get("method", model.model_fields["method"].default)
    _check_name("method", method, [*model.untrained, *METHOD_SETTINGS], origin)
    section = DEFAULT_METHOD if method in model.untrained else method
    tables = {name: data.pop(name) for name in METHOD_SETTINGS if name in data}
    for name, table in tables.items():
        method_section(name, table, origin)  # the sections of other methods are checked, too
    for key, table in model.named.items():
        if data.get(key) is not None:
            _check_name(key, data[key], table, origin)
    augmentation = data["augmentation"] = model.augmentation_in(data)
    if isinstance(augmentation, str) and augmentation != model.usual_augmentation:
        _check_name("augmentation", augmentation, [*AUGMENTATIONS, model.usual_augmentation], origin)
    options: dict[str, Any] = {}
    for name in sections_of(section):
        table = tables.get(name, {})
        options = laid_over(options, {key: value for key, value in table.items() if reads(section, name, key)})
    return validated(model, {**data, "options": method_section(section, options, origin)}, origin)


def sections_of(method: str) -> list[str]:
    """The sections of a settings file that a method reads: those of the methods from which its settings class is
    derived, then its own. Later sections override earlier ones."""
    names = [name for name, options in METHOD_SETTINGS.items() if issubclass(METHOD_SETTINGS[method], options)]
    return sorted(names, key=lambda name: len(METHOD_SETTINGS[name].__mro__))


def reads(method: str, section: str, key: str) -> bool:
    """Whether a method reads this key of one of its sections. From the section of another method, it reads only the
    keys that have the same default in both settings classes."""
    ours, theirs = (METHOD_SETTINGS[name].model_fields[key] for name in (method, section))
    return bool(ours.default == theirs.default)


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
    merged = laid_over(METHOD_SETTINGS[name]().model_dump(), section)
    for key, value in section.items():
        if isinstance(value, Mapping) and value.get("schedule") == "cosine":
            merged[key] = {**merged[key], "milestones": value.get("milestones", ())}
    return validated(METHOD_SETTINGS[name], merged, origin, prefix=f"{name}.")
