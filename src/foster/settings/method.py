"""The base class of the settings of methods, with the facts about a method that other code needs. No torch here."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from foster.settings.fit import FitSettings, Frozen, with_milestones

Temperature = Annotated[float, Field(gt=0, description="The temperature of distillation, by which logits are divided.")]
DistillationWeight = Annotated[float, Field(ge=0, description="The weight of distillation.")]
Turns = Annotated[
    Literal["none", "beside"],
    Field(description="beside: the phase also sees each image turned by quarters, and learns by how many."),
]


class Needs:
    """Annotation of a setting that has an effect only with this `key=value`."""

    def __init__(self, other: str) -> None:
        self.other = other


FIELD_FIRST_TASK = with_milestones(200, 60, 120, 170, weight_decay=5e-4)
"""How the field trains the first task of most baselines."""


class MethodSettings(Frozen):
    """Settings that every method has, and the facts that other code needs of a method."""

    built_by: ClassVar[str | type[Any]]
    """The class of the method, or where to import it from: `module:Class`."""
    summary: ClassVar[str] = ""
    """What it does, in a line for `foster list methods`."""
    paper: ClassVar[str] = ""
    """Where it was published."""
    look: ClassVar[tuple[str, str] | None] = None
    """Colour and marker of its curves. Our colours are from colour-blind safe palettes (Okabe and Ito; Tol)."""
    classifies_by: ClassVar[Literal["head", "nearest_mean"]] = "head"
    """Which classifier gives the method's result."""
    plain_words: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Names of its phases and variants for users who have not read the paper."""
    grown_variant: ClassVar[str] = ""
    """The variant whose network has new branches beside the frozen ones of earlier tasks; empty if there is none."""
    published_augmentation: ClassVar[str] = "plain"
    """The augmentation of its published results."""
    uses_memory: ClassVar[bool] = True
    """Whether it keeps exemplars of known classes."""
    keeps_all_images: ClassVar[bool] = False
    """Whether all images are kept, without a budget."""
    starts_anew: ClassVar[bool] = False
    """Whether every task starts with a new backbone, which may be pretrained."""
    refreshes_by_phases: ClassVar[bool] = False
    """Whether a task without new classes is learned by its own phases, and not by methods/refresh."""
    fixed_options: ClassVar[tuple[str, ...]] = ()
    """The settings that shape the network, which a learner cannot change later."""
    head_schedules: ClassVar[tuple[str, ...]] = ()
    """Schedules of phases that train no backbone: their learning rate is not lowered for a pretrained one."""
    auto_values: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """The values that `auto` stands for, by setting."""
    pretrained_values: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """The values of settings that are `auto`, in a learner with a pretrained backbone."""
    unlabeled_key: ClassVar[str] = ""
    """The setting that names unlabeled images, a dataset or a folder; empty if the method uses none."""

    first_task_options: ClassVar[tuple[str, ...] | None] = None
    """The settings on which the first task depends; None for all. Methods with `first` and `first_turns` train the
    same network in their first task, so that one can take it over from another."""
    first_variant: ClassVar[str] = ""
    """The variant that is the network trained in the first task; empty for that of `classifies_by`."""

    first: FitSettings = FIELD_FIRST_TASK

    @property
    def unlabeled_source(self) -> str:
        """A dataset's name or a folder of unlabeled images; empty if there are none."""
        return getattr(self, self.unlabeled_key) if self.unlabeled_key else ""

    @classmethod
    def needs(cls) -> dict[str, str]:
        """The settings that have an effect only together with another one, with the `key=value` that each needs."""
        notes = [(key, note) for key, field in cls.model_fields.items() for note in field.metadata]
        return {key: note.other for key, note in notes if isinstance(note, Needs)}

    def lacking(self, key: str) -> str:
        """The `key=value` without which the setting of the dotted `key` has no effect; empty if it has one."""
        needed = self.needs().get(key.partition(".")[0], "")
        name, _, value = needed.partition("=")
        return "" if not needed or getattr(self, name) == (value == "true" or value) else needed

    def without_effect(self) -> dict[str, str]:
        """The settings that were changed without effect, with what each needs."""
        changed = [key for key in self.needs() if getattr(self, key) != type(self).model_fields[key].get_default()]
        return {key: lacking for key in changed if (lacking := self.lacking(key))}

    def scaled(self, factor: float) -> Self:
        """The same settings with every schedule stretched by `factor`."""
        return self.with_schedules(lambda _, fit: fit.scaled(factor))

    def with_schedules(self, change: Callable[[str, FitSettings], FitSettings]) -> Self:
        """The same settings with every schedule changed, also in tables and lists. `change` gets the name of a setting
        and its schedule."""
        return self.model_copy(update={name: _changed(value, partial(change, name)) for name, value in self})

    def problem(self, num_tasks: int) -> str | None:
        """Why these settings do not fit a scenario of `num_tasks` tasks, as `key: reason`, or None."""
        return None

    def remarks(self, num_tasks: int) -> list[str]:
        """Warnings about settings that are probably a mistake, as `key: warning`, without the method's name."""
        idle = [f"{key}: this has no effect without {needed}" for key, needed in self.without_effect().items()]
        return idle + [f"{name}.{fit.remark}" for name, fit in _schedules(self) if fit.remark]


def _changed(value: Any, change: Callable[[FitSettings], FitSettings]) -> Any:
    """A setting's value, with every schedule in it changed."""
    if isinstance(value, FitSettings):
        return change(value)
    if isinstance(value, Frozen):
        return value.model_copy(update={name: _changed(part, change) for name, part in value})
    if isinstance(value, list | tuple):
        return type(value)(_changed(part, change) for part in value)
    return value


def _schedules(table: Frozen) -> Iterator[tuple[str, FitSettings]]:
    """Every schedule in a table of settings, by its dotted key."""
    for name, value in table:
        if isinstance(value, FitSettings):
            yield name, value
        elif isinstance(value, Frozen):
            yield from ((f"{name}.{key}", fit) for key, fit in _schedules(value))
