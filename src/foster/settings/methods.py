"""The settings of every method, with the schedules that its authors and the field use as defaults; without torch."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from foster.settings.fit import DistillationWeight, FitSettings, Options, Temperature, cosine, with_milestones
from foster.settings.students import StudentSettings

FIELD_FIRST_TASK = with_milestones(200, 60, 120, 170, weight_decay=5e-4)
"""How the field trains the first task of most baselines."""


class MethodSettings(Options):
    """What every method has: how the first task is trained, and all that others must know of the method."""

    built_by: ClassVar[str | type[Any]]
    """The class that tells its story, or where that is to be imported from: `module:Class`."""
    summary: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    look: ClassVar[tuple[str, str] | None] = None
    """Colour and marker of its curves. Ours are after Okabe and Ito, and three after Tol, that colour-blind people can
    tell apart; markers help in print."""
    classifies_by: ClassVar[Literal["head", "nearest_mean"]] = "head"
    """Which classifier gives the method's result."""
    published_augmentation: ClassVar[str] = "plain"
    uses_memory: ClassVar[bool] = True
    keeps_all_images: ClassVar[bool] = False
    """Whether nothing is ever forgotten, for want of any budget."""
    starts_anew: ClassVar[bool] = False
    """Whether every task begins with a fresh backbone, which may be a pretrained one."""
    refreshes_by_phases: ClassVar[bool] = False
    """Whether more images of known classes, without a new class, are learned by its phases (else: methods/refresh)."""
    fixed_options: ClassVar[tuple[str, ...]] = ()
    """The settings that shape the network, which a learner cannot change later."""
    head_schedules: ClassVar[tuple[str, ...]] = ()
    """Those of phases that train no backbone, and so need not be gentle with a pretrained one."""
    pretrained_values: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """What a learner whose backbone begins with pretrained weights takes for settings that are auto."""
    unlabeled_key: ClassVar[str] = ""
    """The setting that names extra images without labels, a dataset or a folder, where there is one."""

    first: FitSettings = FIELD_FIRST_TASK

    @property
    def first_task_options(self) -> tuple[str, ...] | None:
        """The settings on which its first task depends; None for all."""
        return None

    @property
    def unlabeled_source(self) -> str:
        """A dataset's name or a folder of extra images without labels; empty where there are none."""
        return getattr(self, self.unlabeled_key) if self.unlabeled_key else ""

    def scaled(self, factor: float) -> Self:
        """The same settings with every schedule stretched by `factor`."""
        fits = {name: value.scaled(factor) for name, value in self if isinstance(value, FitSettings)}
        return self.model_copy(update=fits)

    def problem(self, num_tasks: int) -> str | None:
        """What is wrong with these settings for a scenario of `num_tasks` tasks, as `key: reason`, or None."""
        return None

    def remarks(self, num_tasks: int) -> list[str]:
        """What may not be meant, as `key: remark`, without the method's name."""
        idle = [f"{key}: this has no effect without {needed}" for key, needed in self.without_effect().items()]
        fits = {name: value for name, value in self if isinstance(value, FitSettings)}
        return idle + [f"{name}.{fit.remark}" for name, fit in fits.items() if fit.remark]


class FosterSettings(StudentSettings, MethodSettings):
    """FOSTER. The defaults do what the published code does; the alternatives are those of the paper."""

    built_by = "foster.methods.foster:Foster"
    summary = "boost a new branch on what the old network gets wrong, then compress both into one backbone"
    paper = "Wang, Zhou, Ye, Zhan: FOSTER: Feature Boosting and Compression for Class-Incremental Learning. ECCV 2022"
    look = ("#D55E00", "o")
    refreshes_by_phases = True
    fixed_options = ("compression",)
    pretrained_values = MappingProxyType({"beta_boost": 0.8, "beta_compress": 0.94})  # the published favour old classes
    unlabeled_key = "unlabeled"
    published_augmentation = "auto"

    first: FitSettings = cosine(200)
    boost: FitSettings = cosine(170)
    compress: FitSettings = cosine(130, weight_decay=0)

    beta_boost: float | tuple[float, ...] | Literal["auto"] = "auto"
    """beta of logits alignment, one number or one a task after the first: 0 is off, 1 counts images, auto is 0.95."""
    beta_compress: Annotated[float, Field(ge=0, le=1)] | Literal["auto"] = "auto"
    """beta of balanced distillation; 0 gives plain distillation, auto is 0.97."""
    temperature: Temperature = 2.0
    alignment: Literal["logits", "weights", "none"] = "logits"
    """Against the bias to new classes while boosting: scaled logits, weight alignment afterwards, or nothing."""
    gamma: Literal["code", "paper"] = "code"
    """The scales of logits alignment as the code has them, or as the paper prints them."""
    feature_enhancement: bool = Field(True, description="L_FE: the new branch alone tells all classes apart, too.")
    distillation: bool = Field(True, description="L_KD: the old network is distilled while boosting.")
    distillation_weight: DistillationWeight = 1.0
    new_on_old: Literal["finetune", "zero", "zero_with_bias"] = "finetune"
    """The paper's O, the new classes' weights on the old features: trained, held at 0, or that with a trained bias."""
    sums: Literal["logits", "probabilities"] = "logits"
    """What old and new features add up: logits, S(. + .), or probabilities, S(.) + S(.) (the paper's supplement I)."""
    train_old_block: bool = True
    """Train the old classes' weights on the old features; the paper freezes them."""
    compression: bool = True
    """False keeps the boosted network, which then grows by a backbone a task."""
    align_teacher: bool = Field(False, description="Weight alignment of the boosted network before compression.")
    align_student: bool = Field(False, description="Weight alignment of the compressed network.")
    align_exponent_base: float = Field(default=1.0, gt=0)
    """The aligned rows are further multiplied by base^(known/new)."""
    herding_features: Literal["boosted", "compressed"] = "boosted"
    """The network by whose features exemplars are chosen."""
    boost_branches: int = Field(default=1, ge=1, le=8)
    """New branches that are trained one after the other on the same frozen network; their mean is compressed."""
    unlabeled: str = ""
    """Extra unlabeled images for compression: a dataset name or a folder of images."""

    @property
    def first_task_options(self) -> tuple[str, ...] | None:
        return ("first",) if self.first_branches == 1 else None

    def beta_boost_of(self, task: int) -> float:
        """beta for logits alignment in task `task` (the first boosted task is 1)."""
        beta = self.beta_boost[task - 1] if isinstance(self.beta_boost, tuple) else self.beta_boost
        return 0.95 if beta == "auto" else beta

    @property
    def beta_of_compression(self) -> float:
        return 0.97 if self.beta_compress == "auto" else self.beta_compress

    def problem(self, num_tasks: int) -> str | None:
        betas = self.beta_boost if isinstance(self.beta_boost, tuple) else (self.beta_boost_of(1),)
        if not all(0 <= beta <= 1 for beta in betas):
            return f"foster.beta_boost: each beta must lie in 0 <= beta <= 1 (got {self.beta_boost})"
        if self.sums == "probabilities" and not self.compression:
            return "foster.sums: probabilities can only be summed where the network is compressed (foster.compression)"
        for key in ("boost_branches", "first_branches"):
            if getattr(self, key) > 1 and (not self.compression or self.sums == "probabilities"):
                return (
                    f"foster.{key}: the mean of several branches' logits is compressed into one; "
                    "with compression=false or sums=probabilities it must be 1"
                )
        if isinstance(self.beta_boost, tuple) and len(betas) < num_tasks - 1:
            return (
                f"foster.beta_boost: {len(betas)} values, but the scenario boosts in {num_tasks - 1} tasks; "
                "give one number or one value for each"
            )
        return None

    def remarks(self, num_tasks: int) -> list[str]:
        remarks = super().remarks(num_tasks)
        if isinstance(self.beta_boost, tuple) and len(self.beta_boost) > num_tasks - 1:
            remarks.append(
                f"beta_boost: {len(self.beta_boost)} values, of which {num_tasks - 1} tasks use the first ones; "
                "another cut of the classes has other published values ('foster presets')"
            )
        return remarks


class FinetuneSettings(MethodSettings):
    built_by = "foster.methods.finetune:Finetune"
    summary = "train on the new classes alone: the lower bound, forgets everything"
    paper = "baseline of every class-incremental paper"
    look = ("#7F7F7F", "v")
    uses_memory = False
    later: FitSettings = with_milestones(80, 40, 70)


class ReplaySettings(MethodSettings):
    built_by = "foster.methods.replay:Replay"
    summary = "fine-tune on the new classes together with the exemplars in memory"
    paper = "Chaudhry et al.: On Tiny Episodic Memories in Continual Learning. 2019"
    look = ("#0072B2", "s")
    later: FitSettings = with_milestones(70, 30, 50)


class LwfSettings(MethodSettings):
    built_by = "foster.methods.lwf:LearningWithoutForgetting"
    summary = "keep the old outputs on new images by distillation, without any memory"
    paper = "Li, Hoiem: Learning without Forgetting. ECCV 2016"
    look = ("#332288", "p")
    uses_memory = False
    first: FitSettings = with_milestones(200, 60, 120, 160, weight_decay=5e-4)
    later: FitSettings = with_milestones(250, 60, 120, 180, 220)
    temperature: Temperature = 2.0
    distillation_weight: DistillationWeight = 3.0


class IcarlSettings(MethodSettings):
    built_by = "foster.methods.icarl:Icarl"
    summary = "replay with distillation, classified by the nearest mean of exemplars"
    paper = "Rebuffi, Kolesnikov, Sperl, Lampert: iCaRL. CVPR 2017"
    look = ("#56B4E9", "P")
    classifies_by = "nearest_mean"
    later: FitSettings = with_milestones(170, 80, 120)
    temperature: Temperature = 2.0


class BicSettings(MethodSettings):
    built_by = "foster.methods.bic:BiasCorrection"
    summary = "replay with distillation, then two numbers a task correct the bias to new classes"
    paper = "Wu et al.: Large Scale Incremental Learning (BiC). CVPR 2019"
    look = ("#CC79A7", "X")
    head_schedules = ("correction",)
    first: FitSettings = with_milestones(170, 60, 100, 140)
    later: FitSettings = with_milestones(170, 60, 100, 140)
    correction: FitSettings = with_milestones(170, 60, 100, 140)
    temperature: Temperature = 2.0
    validation_share: float = Field(default=0.1, gt=0, lt=0.5)
    """The share of the memory that is held out, balanced over all classes, to fit the correction."""


class WaSettings(MethodSettings):
    built_by = "foster.methods.wa:WeightAlignment"
    summary = "replay with distillation, then align the norms of the new head rows to the old ones"
    paper = "Zhao et al.: Maintaining Discrimination and Fairness in Class Incremental Learning (WA). CVPR 2020"
    look = ("#E69F00", "^")
    needs = MappingProxyType({"distillation_weight": ("weighting=fixed",)})
    later: FitSettings = with_milestones(170, 60, 100, 140)
    temperature: Temperature = 2.0
    weighting: Literal["fixed", "share"] = "fixed"
    """CE + 2 KD as in the field's runs, or (1-l) CE + l KD with l = known/total as the WA paper prints it."""
    distillation_weight: DistillationWeight = 2.0


class PodnetSettings(MethodSettings):
    built_by = "foster.methods.podnet:Podnet"
    summary = "distil pooled feature maps of every stage; cosine head with several proxies a class"
    paper = "Douillard et al.: PODNet: Pooled Outputs Distillation for Small-Tasks Incremental Learning. ECCV 2020"
    look = ("#AA9C00", "<")
    fixed_options = ("num_proxies",)
    needs = MappingProxyType({"margin": ("hinge=true",)})
    classifies_by = "nearest_mean"
    first: FitSettings = cosine(160)
    later: FitSettings = cosine(160)
    finetune: FitSettings = cosine(20, learning_rate=0.005)
    num_proxies: int = Field(default=10, ge=1, le=1000, description="Vectors that stand for a class.")
    spatial_weight: float = Field(default=5.0, ge=0, description="The weight of distances between pooled maps.")
    flat_weight: float = Field(default=1.0, ge=0, description="The weight of distances between features.")
    margin: float = Field(default=0.6, ge=0)
    """By how much, in cosines, a class must win before its loss is 0."""
    hinge: bool = True
    """The loss of PODNet's authors; false is the public toolkit's, which is never 0."""


class CoilSettings(MethodSettings):
    built_by = "foster.methods.coil:Coil"
    summary = "transport classifiers between old and new classes by optimal transport"
    paper = "Zhou, Ye, Zhan: Co-Transport for Class-Incremental Learning (COIL). ACM MM 2021"
    look = ("#882255", ">")
    classifies_by = "nearest_mean"
    first: FitSettings = with_milestones(160, 80, 120, weight_decay=5e-4)
    later: FitSettings = with_milestones(160, 80, 120, weight_decay=5e-4)
    temperature: Temperature = 2.0
    sinkhorn: float = Field(default=0.464, gt=0, description="How much a transport is smoothed.")
    norm: float = Field(default=3.0, ge=1, description="The norm by which class centres are compared.")
    transport_weight: float = Field(default=1e-3, ge=0, description="The weight of both transports.")


class DerSettings(MethodSettings):
    built_by = "foster.methods.der:DynamicallyExpandable"
    summary = "Dynamically Expandable Representation: add a backbone a task and freeze the old ones"
    paper = "Yan, Xie, He: DER: Dynamically Expandable Representation for Class Incremental Learning. CVPR 2021"
    look = ("#009E73", "D")
    later: FitSettings = with_milestones(170, 80, 120, 150)
    align: bool = True
    """Align the head's row norms after each task, as the field's code does."""


class JointSettings(MethodSettings):
    built_by = "foster.methods.joint:Joint"
    summary = "train from scratch on all data of all classes seen: the upper bound, keeps everything"
    paper = "upper bound of every class-incremental paper"
    look = ("#000000", "*")
    keeps_all_images = True
    starts_anew = True
    uses_memory = False
    published_augmentation = "auto"
    first: FitSettings = cosine(200)


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

DEFAULT_METHOD = "foster"
