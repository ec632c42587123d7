"""The settings of a run, from TOML files and key=value pairs. No torch here, so that `foster --help` is fast."""

import os
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from foster.errors import SettingsError, short, suggestion, words_of
from foster.settings import toml as toml_text
from foster.settings.augmentation import AUGMENTATIONS, Augmentation
from foster.settings.base import (
    COMMAND_LINE,
    CommonSettings,
    apply_overrides,
    flat,
    import_plugins,
    make,
    named_plugins,
    read_recipe,
    take_recipes,
    with_own_recipe,
    with_recipes,
)
from foster.settings.datasets import (
    CATALOGUE,
    DatasetFacts,
    DatasetSettings,
    PhotoSettings,
    SyntheticSettings,
    dataset_facts,
    task_sizes,
)
from foster.settings.fit import smallest_batch_for
from foster.settings.methods import DEFAULT_METHOD, facts_of
from foster.settings.plugins import Kind, check_imported
from foster.settings.toml import MAX_FILE_BYTES, packaged_names, packaged_text, path_named_in, read_toml
from foster.system.counts import counted
from foster.system.files import read_limited


class Settings(CommonSettings):
    """All settings of a run."""

    listing = "foster list presets NAME"
    named = MappingProxyType({"dataset": CATALOGUE})
    usual_augmentation = "published"

    dataset: str
    """The dataset, one of `foster list datasets`: digits, cifar100, tinyimagenet, folder, ..., or a plug-in's."""
    data: str = ""
    """The folder of the data files; empty means $FOSTER_DATA or ./data."""
    base_classes: int = Field(default=0, ge=0)
    """Classes of the first task; 0 means as many as in each later task."""
    increment: int = Field(ge=1)
    """Classes of each later task; the last one has the remainder."""
    task_sizes: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """Classes of every task, in place of base_classes and increment, for example [50, 5, 5, 20, 20]."""
    tasks: Literal["classes", "given"] = "classes"
    """`classes`: tasks are cut by classes. `given`: the dataset's own tasks, such as the folders tasks/1, tasks/2, ...;
    classes may come again."""
    order_seed: int | None = Field(default=None, ge=0, lt=2**32)
    """The seed of the class order; by default the run's seed."""
    class_order: tuple[Annotated[str, Field(coerce_numbers_to_str=True)], ...] = ()
    """All class names in order of arrival, or all class ids of the dataset, counted from 0, in place of an order from
    the seed; or a text file with one of them a line."""
    validation_share: float = Field(default=0.0, ge=0, lt=1)
    """Above 0: evaluate on this share of the training images, which is held out, and not on the test set."""
    backbone: str = "resnet32"
    """A name, or `timm:NAME`."""
    batch_size: int = Field(default=128, ge=2)
    """Images per optimizer step, of all processes together."""
    smallest_batch: Annotated[int, Field(ge=2)] | Literal["auto"] = "auto"
    """The fewest images of an epoch's last batch; fewer are left out, others in each epoch. `auto` is a quarter of a
    batch, and 2 on the datasets of the published protocols, whose code trains on them."""
    epochs_scale: float = Field(default=1.0, gt=0, le=1000)
    """The factor on the epochs and milestones of every phase."""
    augmentation: str | Augmentation = "published"
    """A name, a table, or `published`: the augmentation of the method's published results. Parts that a table does not
    name are off; `augmentation.flip=false` on the command line changes that part alone."""
    keep_networks: bool = False
    """Keep the weights of each evaluated network after every task, for t-SNE and Grad-CAM figures."""
    first_task_from: str = ""
    """The folder of a run with the same first task and keep_networks=true: the network of its first task is used, not
    trained again. The result is the same, and the time of that training is counted."""
    synthetic: SyntheticSettings = SyntheticSettings()
    photos: PhotoSettings = PhotoSettings()

    @model_validator(mode="after")
    def _fits_together(self) -> "Settings":
        source = self.options.unlabeled_source
        small = [name for name, facts in CATALOGUE.items() if not facts.photo_augmentations]
        # The run's own dataset has images of later tasks, and held-out ones.
        if source and (source == self.dataset or source not in small or self.dataset not in small):
            raise ValueError(
                f"{self.method}.unlabeled: '{source}' and '{self.dataset}', the dataset of the run, must be two "
                f"datasets with images of one size: {', '.join(small)}"
            )
        if self.tasks == "given" and (self.task_sizes or self.class_order):
            raise ValueError("tasks: 'given' tasks have their own classes: leave out task_sizes and class_order")
        if repeated := sorted(name for name, count in Counter(self.class_order).items() if count > 1):
            raise ValueError(f"class_order: '{repeated[0]}' is named more than once")
        if self.options.uses_memory and self.memory_total is None and self.memory_per_class is None:
            raise ValueError(f"method '{self.method}' needs a memory: set memory_total or memory_per_class")
        if problem := self.problem(self.facts):
            raise ValueError(problem)
        return self

    def problem(self, facts: DatasetFacts) -> str | None:
        """Why the settings do not fit a dataset with these facts, or None. Unknown numbers are not checked."""
        side, num_classes = facts.image_size, facts.num_classes
        if side and (problem := self.augmentation_settings.problem((side, side))):
            return problem
        if not num_classes or (self.tasks == "given" and not facts.tasks):
            return None
        if problem := self.options.problem(len(self.sizes_of_tasks(facts))):
            return problem
        if self.class_order and len(self.class_order) != num_classes:
            return f"class_order: {len(self.class_order)} names, but the dataset has {num_classes} classes"
        if self.options.uses_memory and self.memory_total is not None and self.memory_total < num_classes:
            exemplars = counted(self.memory_total, "exemplar")
            return f"memory_total: {exemplars} cannot hold one of each of {num_classes} classes"
        return None

    @property
    def fewest_in_a_batch(self) -> int:
        """`smallest_batch`, or what `auto` stands for on this dataset."""
        if self.smallest_batch != "auto":
            return self.smallest_batch
        return 2 if self.facts.keeps_last_batch else smallest_batch_for(self.batch_size)

    @property
    def dataset_settings(self) -> DatasetSettings:
        """The settings that concern the dataset."""
        return DatasetSettings(self.synthetic, Path(self.data) if self.data else None, self.photos, self.seed)

    @property
    def plugin_names(self) -> dict[Kind, str]:
        """The names that plug-ins may have registered."""
        return {"method": self.method, "dataset": self.dataset, "backbone": self.backbone}

    @property
    def has_own_images(self) -> bool:
        """Whether the images depend on the data folder: photos of the user, or the dataset of a plug-in."""
        return self.dataset == "folder" or callable(self.facts.read_by)

    @property
    def facts(self) -> DatasetFacts:
        """The facts of the dataset that follow from the settings; no file is read."""
        return dataset_facts(self.dataset, self.dataset_settings)

    def sizes_of_tasks(self, facts: DatasetFacts | None = None) -> tuple[int, ...]:
        """The number of new classes of each task. Give the dataset's `facts` if they come from its files."""
        facts = facts or self.facts
        if self.tasks == "given":
            return tuple(len(now) - len(before) for before, now in pairwise(((), *facts.tasks)))
        return task_sizes(facts.num_classes, self.base_classes, self.increment, self.task_sizes)

    @property
    def scenario(self) -> str:
        """The short name of the scenario: `cifar100-b50-inc5`, with `b0` for equal tasks; `cifar100-50-5x2-20x2` for
        `task_sizes`; `folder-birds-tasks` for given tasks, of photos in the folder `birds`."""
        dataset = self.dataset
        if dataset == "folder" or (self.data and self.has_own_images):  # images of another folder are another dataset
            dataset += "-" + re.sub(r"[^\w.]+", "_", self.dataset_settings.folder.absolute().name)
        if self.tasks == "given":
            return f"{dataset}-tasks"
        if self.task_sizes:
            counts = [(size, len(list(run))) for size, run in groupby(self.task_sizes)]
            return "-".join([dataset, *(f"{size}x{count}" if count > 1 else str(size) for size, count in counts)])
        base = 0 if self.base_classes == self.increment else self.base_classes
        return f"{dataset}-b{base}-inc{self.increment}"

    @property
    def run_name(self) -> str:
        """The default name of the run's folder, with the recipe, and the augmentation if it is not the published
        one."""
        is_published = self.augmentation == self.augmentation_in({"method": self.method, "dataset": self.dataset})
        parts = [self.scenario, self.method, self.recipe, "" if is_published else self.augmentation_name]
        return "-".join(filter(None, [*parts, f"s{self.seed}"]))

    @property
    def augmentation_name(self) -> str:
        return self.augmentation if isinstance(self.augmentation, str) else "custom"

    @property
    def augmentation_settings(self) -> Augmentation:
        return AUGMENTATIONS[self.augmentation] if isinstance(self.augmentation, str) else self.augmentation

    def why_unused(self, key: str) -> str:
        section = key.partition(".")[0]
        if section in DATASET_SECTIONS:
            return "" if DATASET_SECTIONS[section](self.dataset) else f"the dataset is {self.dataset}"
        return super().why_unused(key)

    def remarks(self, num_tasks: int) -> list[str]:
        """Warnings about settings that are probably a mistake in a scenario of `num_tasks` tasks, one line each."""
        return [f"{self.method}.{remark}" for remark in self.options.remarks(num_tasks)]

    def nested(self) -> dict[str, Any]:
        """As `complete`, the scenario first, without empty optional keys and without sections of other datasets."""
        data = self.complete()
        omitted = [key for key in ("weights", "learning_rate_scale", "first_task_from", "task_sizes") if not data[key]]
        omitted += [section for section in DATASET_SECTIONS if self.why_unused(section)]
        order = sorted(data, key=lambda key: key in CommonSettings.model_fields or key == self.method)
        return {key: data[key] for key in order if key not in omitted}

    def published(self) -> dict[str, Any]:
        """As `nested`, without the paths of files, for results that are published."""
        data = {key: value for key, value in self.nested().items() if key not in ("data", "first_task_from", "plugins")}
        if self.weights:
            data["weights"] = Path(self.weights).name
        data["engine"] = {key: value for key, value in data["engine"].items() if key != "photo_cache"}
        return data

    def toml(self) -> str:
        return toml_text.dumps(self.nested())

    @classmethod
    def augmentation_in(cls, data: Mapping[str, Any]) -> Any:
        """The augmentation in plain data, with that of the method in place of `published`."""
        augmentation = super().augmentation_in(data)
        if augmentation != cls.usual_augmentation:
            return augmentation
        facts = CATALOGUE.get(str(data.get("dataset")))
        published = facts_of(str(data.get("method", DEFAULT_METHOD))).published_augmentation
        return dict(facts.photo_augmentations).get(published, published) if facts else published


DATASET_SECTIONS: dict[str, Callable[[str], bool]] = {
    "synthetic": lambda dataset: dataset == "synthetic",
    "photos": lambda dataset: bool(CATALOGUE[dataset].photo_augmentations),
}
"""Sections that only some datasets use; the function is true for the name of such a dataset."""


def load_settings(
    source: str | None,
    overrides: Sequence[str] = (),
    *,
    place: str = COMMAND_LINE,
    plugins: Sequence[str] | None = None,
    trusts_plugins: bool | None = None,
    **given: Any,
) -> Settings:
    """Settings from a preset's name, a TOML file or nothing, then recipes (a keyword, or each as `recipe=NAME`), then
    `key=value` overrides, then keywords that are not None. Messages say that the overrides are at this `place`.

    `plugins`, and those that the source names, are imported first. Plug-ins that a run folder names are imported only
    if `trusts_plugins` is True, because a stranger may have made the folder; otherwise they must be imported already.
    """
    data, origin, folder = _read_source(source)
    if trusts_plugins is None:
        trusts_plugins = source is None or folder is None or not _is_of_run(Path(source))
    named = [] if trusts_plugins else named_plugins(data, origin)
    if named:
        del data["plugins"]
    either = f"{origin} or {place}" if overrides and source else origin
    overrides = import_plugins(data, overrides, plugins or (), either, folder)
    also = "; run, resume, plan and sweep also take --trust-plugins"
    if found := check_imported(named, f"'{origin}'", trusted_by=also):
        data["plugins"] = list(dict.fromkeys([*data.get("plugins", []), *found]))
    recipes, overrides = take_recipes(overrides, given.pop("recipe", None))
    data = with_recipes(data, recipes) if recipes else with_own_recipe(data, folder)
    apply_overrides(Settings, data, overrides, origin, place)
    data.update({key: value for key, value in given.items() if value is not None})
    origins = [origin, *(f"recipe {recipe}" for recipe in recipes), *([place] if overrides and source else [])]
    if isinstance(order := data.get("class_order"), str) and order:
        data["class_order"] = _names_in(order, folder, " or ".join(origins))
    settings = make(Settings, data, " or ".join(origins))
    for recipe in recipes:
        reasons = [settings.why_unused(key) for key in flat(read_recipe(recipe))]
        if all(reasons):
            raise SettingsError(f"recipe {recipe} has no effect: {reasons[0] if reasons else 'it is empty'} ({place})")
    return settings


def _names_in(file: str, folder: Path | None, origin: str) -> list[str]:
    """The names in a text file, one a line."""
    if file.startswith("["):
        raise SettingsError(f"""class_order: names need quotes, such as '["one", "two"]', unlike {short(file)}""")
    try:
        lines = read_limited(path_named_in(folder, file), MAX_FILE_BYTES).decode().splitlines()
    except (OSError, ValueError) as error:  # ValueError: it is not UTF-8, or the path has a NUL
        raise SettingsError(f"class_order: cannot read {short(file)}: {words_of(error)} (in {origin})") from None
    names = [line.strip() for line in lines if line.strip()]
    if not names:
        raise SettingsError(f"class_order: {short(file)} is empty; write one class name a line (in {origin})")
    return names


def _is_of_run(path: Path) -> bool:
    """Whether `path` is a folder, or the settings file in the folder of a run."""
    return path.is_dir() or (path.name == "settings.toml" and (path.parent / "events.jsonl").exists())


def _read_source(source: str | None) -> tuple[dict[str, Any], str, Path | None]:
    """Plain data, its name in messages, and the folder of its file."""
    if source is None:
        return {}, "the keywords", None
    # A preset's name means the preset, even if there is a folder of the same name.
    if source in packaged_names("presets"):
        return tomllib.loads(packaged_text("presets", source)), f"preset {source}", None
    path = Path(source)
    if path.is_dir():
        path = path / "settings.toml"
    elif not (source.endswith(".toml") or os.sep in source):
        if "=" in source:
            raise SettingsError(f"'{source}' is a setting: name a preset or a .toml file before it, such as 'digits'")
        hint = suggestion(source, packaged_names("presets"))
        raise SettingsError(f"unknown preset '{source}'{hint} (a settings file ends in .toml)")
    return read_toml(path), str(path), path.parent
