"""The base class of the settings of methods, with the facts about a method that other code needs. No torch here."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from foster.settings.fit import FitSettings, Frozen, with_milestones

Temperature = Annotated[float, Field(gt=0, description="The temperature of distillation, by which logits are divided.")]
DistillationWeight = Annotated[float, Field(ge=0, description="The weight of distillation.")]
Turns = Annotated[
    Literal["none", "beside"],
    Field(description="beside: also train on each image turned by one to three quarters, and predict how many."),
]


USUAL_FIRST_TASK = with_milestones(200, 60, 120, 170, weight_decay=5e-4)
"""The schedule of the first task of most methods."""


class MethodSettings(Frozen):
    """Settings that every method has, and the facts that other code needs of a method."""

    built_by: ClassVar[str | type[Any]]
    """The class of the method, or where to import it from: `module:Class`."""
    summary: ClassVar[str] = ""
    """A description in one line, for `foster list methods`."""
    paper: ClassVar[str] = ""
    """Its publication."""
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
    """Joint training: all images are kept, without a budget, and every task of a run starts with a new backbone."""
    refreshes_by_phases: ClassVar[bool] = False
    """Whether a task without new classes is learned by its own phases, and not by methods/refresh."""
    fixed_options: ClassVar[tuple[str, ...]] = ()
    """The settings that shape the network, which a learner cannot change later."""
    auto_values: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """The values that `auto` stands for, by setting."""
    pretrained_values: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """The values of settings that are `auto`, in a learner with a pretrained backbone."""

    first_task_options: ClassVar[tuple[str, ...] | None] = None
    """The settings on which the first task depends; None for all. Methods with `first` and `first_turns` train the
    same network in their first task, so that one can take it over from another."""
    first_variant: ClassVar[str] = ""
    """The variant that is the network trained in the first task; empty for that of `classifies_by`."""

    first: FitSettings = USUAL_FIRST_TASK

    @property
    def unlabeled_source(self) -> str:
        """The dataset of unlabeled images, by the setting `unlabeled` of methods that have it; empty for none."""
        return getattr(self, "unlabeled", "")

    @property
    def schedules(self) -> dict[str, FitSettings]:
        """The schedule of each phase, by its key."""
        return {key: value for key, value in self if isinstance(value, FitSettings)}

    def scaled(self, factor: float) -> Self:
        """The same settings with every schedule stretched by `factor`."""
        return self.with_schedules(lambda fit: fit.scaled(factor))

    def with_schedules(self, change: Callable[[FitSettings], FitSettings]) -> Self:
        return self.model_copy(update={key: change(fit) for key, fit in self.schedules.items()})

    def problem(self, num_tasks: int) -> str | None:
        """Why these settings do not fit a scenario of `num_tasks` tasks, as `key: reason`, or None."""
        return None

    @classmethod
    def without_effect(cls, task_sizes: Sequence[int]) -> frozenset[str]:
        """The settings that change no prediction in a scenario with these numbers of new classes."""
        return frozenset()

    def remarks(self, num_tasks: int) -> list[str]:
        """Warnings about settings that are probably a mistake, as `key: warning`, without the method's name."""
        return [f"{key}.{fit.remark}" for key, fit in self.schedules.items() if fit.remark]
