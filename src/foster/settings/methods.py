"""The settings of every method, with the schedules that its authors and the field use as defaults.

No torch here: the command lists methods and checks settings before anything heavy is imported.
"""

from typing import ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Frozen(BaseModel):
    """Settings are checked once, never changed, and know all their keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)


class FitSettings(Frozen):
    """How one phase is trained: SGD with a cosine or a milestone schedule, stepped once an epoch."""

    epochs: int = Field(ge=1)
    learning_rate: float = Field(default=0.1, gt=0)
    weight_decay: float = Field(default=5e-4, ge=0)
    momentum: float = Field(default=0.9, ge=0, lt=1)
    schedule: Literal["cosine", "milestones"] = "cosine"
    milestones: tuple[int, ...] = ()
    decay: float = Field(default=0.1, gt=0, le=1)

    @model_validator(mode="after")
    def _milestones_belong_to_their_schedule(self) -> "FitSettings":
        if (self.schedule == "milestones") != bool(self.milestones):
            raise ValueError("milestones are given exactly when schedule = 'milestones'")
        if list(self.milestones) != sorted(set(self.milestones)):
            raise ValueError(f"milestones must rise, but are {list(self.milestones)}")
        if self.milestones and self.milestones[0] < 1:
            raise ValueError(f"milestones are numbers of epochs from 1 on, not {self.milestones[0]}")
        return self

    def scaled(self, factor: float) -> "FitSettings":
        """The same schedule over `factor` times as many epochs."""
        if factor == 1:
            return self
        epochs = max(1, round(self.epochs * factor))
        milestones = sorted({max(1, round(milestone * factor)) for milestone in self.milestones})
        return self.model_copy(update={"epochs": epochs, "milestones": tuple(milestones)})


def _cosine(epochs: int, learning_rate: float = 0.1, weight_decay: float = 5e-4) -> FitSettings:
    return FitSettings(epochs=epochs, learning_rate=learning_rate, weight_decay=weight_decay)


def _steps(epochs: int, *milestones: int, weight_decay: float = 2e-4) -> FitSettings:
    return FitSettings(epochs=epochs, weight_decay=weight_decay, schedule="milestones", milestones=milestones)


FIELD_FIRST_TASK = _steps(200, 60, 120, 170, weight_decay=5e-4)
"""How the field trains the first task of most baselines."""


class MethodSettings(Frozen):
    """What every method has: how the first task is trained, and facts for `foster methods`."""

    summary: ClassVar[str]
    paper: ClassVar[str]
    classifies_by: ClassVar[Literal["head", "nearest_mean"]] = "head"
    """Which classifier gives the method's result."""
    published_augmentation: ClassVar[str] = "plain"
    uses_memory: ClassVar[bool] = True

    first: FitSettings = FIELD_FIRST_TASK

    def scaled(self, factor: float) -> Self:
        """The same settings with every schedule stretched by `factor`."""
        fits = {name: value.scaled(factor) for name, value in self if isinstance(value, FitSettings)}
        return self.model_copy(update=fits)

    @property
    def unlabeled_source(self) -> str:
        """Extra unlabeled images that the method trains on: a dataset's name or a folder; empty for none."""
        return ""

    def problem(self, num_tasks: int) -> str | None:
        """What is wrong with these settings for a scenario of `num_tasks` tasks, as `key: reason`, or None."""
        return None

    def remarks(self, num_tasks: int) -> list[str]:
        """What may not be meant, as `key: remark`, without the method's name."""
        fits = {name: value for name, value in self if isinstance(value, FitSettings)}
        return [
            f"{name}.milestones: {list(fit.milestones)} lie beyond its {fit.epochs} epochs; the rate never falls"
            for name, fit in fits.items()
            if fit.milestones and fit.milestones[0] >= fit.epochs
        ]


class FosterSettings(MethodSettings):
    """FOSTER. The defaults do what the published code does; the alternatives are those of the paper."""

    summary = "boost a new branch on what the old network gets wrong, then compress both into one backbone"
    paper = "Wang, Zhou, Ye, Zhan: FOSTER: Feature Boosting and Compression for Class-Incremental Learning. ECCV 2022"
    published_augmentation = "auto"

    first: FitSettings = _cosine(200)
    boost: FitSettings = _cosine(170)
    compress: FitSettings = _cosine(130, weight_decay=0)

    beta_boost: float | tuple[float, ...] = 0.95
    """beta of logits alignment: one number, or one for each task after the first; 0 switches it off."""
    beta_compress: float = Field(default=0.97, ge=0, lt=1)
    """beta of balanced distillation; 0 gives plain distillation."""
    temperature: float = Field(default=2.0, gt=0)
    alignment: Literal["logits", "weights", "none"] = "logits"
    """Against the bias to new classes while boosting: scaled logits, weight alignment afterwards, or nothing."""
    gamma: Literal["code", "paper"] = "code"
    feature_enhancement: bool = True
    distillation: bool = True
    distillation_weight: float = Field(default=1.0, ge=0)
    new_on_old: Literal["finetune", "zero", "zero_with_bias"] = "finetune"
    """The paper's O, the new classes' weights on the old features: trained, held at 0, or that with a trained bias."""
    train_old_block: bool = True
    """Train the old classes' weights on the old features; the paper freezes them."""
    compression: bool = True
    """False keeps the boosted network, which then grows by a backbone a task."""
    compress_with: Literal["balanced", "paper", "plain"] = "balanced"
    """Balanced distillation as in the code, as the paper prints it, or plain distillation."""
    align_teacher: bool = False
    align_student: bool = False
    align_exponent_base: float = Field(default=1.0, gt=0)
    """The aligned rows are further multiplied by base^(known/new)."""
    herding_features: Literal["boosted", "compressed"] = "boosted"
    unlabeled: str = ""
    """Extra unlabeled images for compression: a dataset name or a folder of images."""

    @property
    def unlabeled_source(self) -> str:
        return self.unlabeled

    def beta_boost_of(self, task: int) -> float:
        """beta for logits alignment in task `task` (the first boosted task is 1)."""
        return self.beta_boost[task - 1] if isinstance(self.beta_boost, tuple) else self.beta_boost

    def problem(self, num_tasks: int) -> str | None:
        betas = self.beta_boost if isinstance(self.beta_boost, tuple) else (self.beta_boost,)
        if not all(0 <= beta < 1 for beta in betas):
            return f"foster.beta_boost: each beta must lie in 0 <= beta < 1 (got {self.beta_boost})"
        if isinstance(self.beta_boost, tuple) and len(betas) < num_tasks - 1:
            return (
                f"foster.beta_boost: {len(betas)} values, but the scenario boosts in {num_tasks - 1} tasks; "
                "give one number or one value for each"
            )
        return None

    def remarks(self, num_tasks: int) -> list[str]:
        found = super().remarks(num_tasks)
        if isinstance(self.beta_boost, tuple) and len(self.beta_boost) > num_tasks - 1:
            found.append(
                f"beta_boost: {len(self.beta_boost)} values, of which {num_tasks - 1} tasks use the first ones; "
                "another cut of the classes has other published values ('foster presets')"
            )
        return found


class FinetuneSettings(MethodSettings):
    summary = "train on the new classes alone: the lower bound, forgets everything"
    paper = "baseline of every class-incremental paper"
    uses_memory = False
    later: FitSettings = _steps(80, 40, 70)


class ReplaySettings(MethodSettings):
    summary = "fine-tune on the new classes together with the exemplars in memory"
    paper = "Chaudhry et al.: On Tiny Episodic Memories in Continual Learning. 2019"
    later: FitSettings = _steps(70, 30, 50)


class LwfSettings(MethodSettings):
    summary = "keep the old outputs on new images by distillation, without any memory"
    paper = "Li, Hoiem: Learning without Forgetting. ECCV 2016"
    uses_memory = False
    first: FitSettings = _steps(200, 60, 120, 160, weight_decay=5e-4)
    later: FitSettings = _steps(250, 60, 120, 180, 220)
    temperature: float = Field(default=2.0, gt=0)
    distillation_weight: float = Field(default=3.0, ge=0)


class IcarlSettings(MethodSettings):
    summary = "replay with distillation, classified by the nearest mean of exemplars"
    paper = "Rebuffi, Kolesnikov, Sperl, Lampert: iCaRL. CVPR 2017"
    classifies_by = "nearest_mean"
    later: FitSettings = _steps(170, 80, 120)
    temperature: float = Field(default=2.0, gt=0)


class BicSettings(MethodSettings):
    summary = "replay with distillation, then two numbers a task correct the bias to new classes"
    paper = "Wu et al.: Large Scale Incremental Learning (BiC). CVPR 2019"
    first: FitSettings = _steps(170, 60, 100, 140)
    later: FitSettings = _steps(170, 60, 100, 140)
    correction: FitSettings = _steps(170, 60, 100, 140)
    temperature: float = Field(default=2.0, gt=0)
    validation_share: float = Field(default=0.1, gt=0, lt=0.5)
    """The share of the memory that is held out, balanced over all classes, to fit the correction."""


class WaSettings(MethodSettings):
    summary = "replay with distillation, then align the norms of the new head rows to the old ones"
    paper = "Zhao et al.: Maintaining Discrimination and Fairness in Class Incremental Learning (WA). CVPR 2020"
    later: FitSettings = _steps(170, 60, 100, 140)
    temperature: float = Field(default=2.0, gt=0)
    weighting: Literal["fixed", "share"] = "fixed"
    """CE + 2 KD as in the field's runs, or (1-l) CE + l KD with l = known/total as the WA paper prints it."""
    distillation_weight: float = Field(default=2.0, ge=0)


class PodnetSettings(MethodSettings):
    summary = "distil pooled feature maps of every stage; cosine head with several proxies a class"
    paper = "Douillard et al.: PODNet: Pooled Outputs Distillation for Small-Tasks Incremental Learning. ECCV 2020"
    classifies_by = "nearest_mean"
    first: FitSettings = _cosine(160)
    later: FitSettings = _cosine(160)
    finetune: FitSettings = _cosine(20, learning_rate=0.005)
    num_proxies: int = Field(default=10, ge=1)
    spatial_weight: float = Field(default=5.0, ge=0)
    flat_weight: float = Field(default=1.0, ge=0)
    margin: float = Field(default=0.6, ge=0)


class CoilSettings(MethodSettings):
    summary = "transport classifiers between old and new classes by optimal transport"
    paper = "Zhou, Ye, Zhan: Co-Transport for Class-Incremental Learning (COIL). ACM MM 2021"
    classifies_by = "nearest_mean"
    first: FitSettings = _steps(160, 80, 120, weight_decay=5e-4)
    later: FitSettings = _steps(160, 80, 120, weight_decay=5e-4)
    temperature: float = Field(default=2.0, gt=0)
    sinkhorn: float = Field(default=0.464, gt=0)
    norm: float = Field(default=3.0, ge=1)
    transport_weight: float = Field(default=1e-3, ge=0)


class DerSettings(MethodSettings):
    summary = "Dynamically Expandable Representation: add a backbone a task and freeze the old ones"
    paper = "Yan, Xie, He: DER: Dynamically Expandable Representation for Class Incremental Learning. CVPR 2021"
    later: FitSettings = _steps(170, 80, 120, 150)
    align: bool = True
    """Align the head's row norms after each task, as the field's code does."""


class JointSettings(MethodSettings):
    summary = "train from scratch on all data of all classes seen: the upper bound, keeps everything"
    paper = "upper bound of every class-incremental paper"
    uses_memory = False
    published_augmentation = "auto"
    first: FitSettings = _cosine(200)


METHOD_SETTINGS: dict[str, type[MethodSettings]] = {
    "finetune": FinetuneSettings,
    "replay": ReplaySettings,
    "lwf": LwfSettings,
    "icarl": IcarlSettings,
    "bic": BicSettings,
    "wa": WaSettings,
    "podnet": PodnetSettings,
    "coil": CoilSettings,
    "der": DerSettings,
    "foster": FosterSettings,
    "joint": JointSettings,
}
"""The one table of methods, in the order in which they are listed."""

MEMORY_KEYS = frozenset({"memory_total", "memory_per_class", "selection"})
"""Settings of a run that change nothing for a method without a memory."""
