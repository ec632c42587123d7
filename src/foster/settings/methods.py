"""The settings of all methods, and the table of methods; without torch.

The defaults are the schedules of a method's authors or of the public toolkits.
"""

from collections.abc import Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import Field

from foster.settings.fit import FitSettings, cosine, with_milestones
from foster.settings.method import DistillationWeight, MethodSettings, Temperature, Turns

Beta = Annotated[float, Field(ge=0, le=1)]

FEW_NEW = 0.1
"""`recall_first` has an effect in tasks with fewer new classes than this share of the known ones."""


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
    first: FitSettings = with_milestones(170, 60, 100, 140)
    later: FitSettings = with_milestones(170, 60, 100, 140)
    correction: FitSettings = with_milestones(170, 60, 100, 140)
    temperature: Temperature = 2.0
    validation_share: float = Field(default=0.1, gt=0, lt=0.5)
    """The share of the memory, balanced over all classes, that is held out to fit the correction."""


class WaSettings(MethodSettings):
    built_by = "foster.methods.wa:WeightAlignment"
    summary = "replay with distillation, then align the norms of the new head rows to the old ones"
    paper = "Zhao et al.: Maintaining Discrimination and Fairness in Class Incremental Learning (WA). CVPR 2020"
    look = ("#E69F00", "^")
    later: FitSettings = with_milestones(170, 60, 100, 140)
    temperature: Temperature = 2.0
    weighting: Literal["fixed", "share"] = "fixed"
    """fixed: CE + distillation_weight KD, as in the public toolkits; share: (1-l) CE + l KD with l = known/total, as
    the WA paper prints it."""
    distillation_weight: DistillationWeight = 2.0


class PodnetSettings(MethodSettings):
    built_by = "foster.methods.podnet:Podnet"
    summary = "distil pooled feature maps of every stage; cosine head with several proxies a class"
    paper = "Douillard et al.: PODNet: Pooled Outputs Distillation for Small-Tasks Incremental Learning. ECCV 2020"
    look = ("#AA9C00", "<")
    fixed_options = ("num_proxies",)
    classifies_by = "nearest_mean"
    first: FitSettings = cosine(160)
    later: FitSettings = cosine(160)
    finetune: FitSettings = cosine(20, learning_rate=0.005)
    num_proxies: int = Field(default=10, ge=1, le=1000, description="The number of weight vectors of each class.")
    spatial_weight: float = Field(default=5.0, ge=0, description="The weight of distances between pooled maps.")
    flat_weight: float = Field(default=1.0, ge=0, description="The weight of distances between features.")
    margin: float = Field(default=0.6, ge=0)
    """With `hinge`: the margin that is subtracted from the cosine similarity of the true class."""
    hinge: bool = False
    """Use the loss of PODNet's paper, which is 0 beyond the margin; false uses the loss of the published runs."""


class CoilSettings(MethodSettings):
    built_by = "foster.methods.coil:Coil"
    summary = "transport classifiers between old and new classes by optimal transport"
    paper = "Zhou, Ye, Zhan: Co-Transport for Class-Incremental Learning (COIL). ACM MM 2021"
    look = ("#882255", ">")
    classifies_by = "nearest_mean"
    first: FitSettings = with_milestones(160, 80, 120, weight_decay=5e-4)
    later: FitSettings = with_milestones(160, 80, 120, weight_decay=5e-4)
    temperature: Temperature = 2.0
    sinkhorn: float = Field(default=0.464, gt=0, description="The entropic regularisation of the transport.")
    norm: float = Field(default=3.0, ge=1, description="The norm by which class centres are compared.")
    transport_weight: float = Field(default=1e-3, ge=0, description="The weight of both transports.")


class DerSettings(MethodSettings):
    built_by = "foster.methods.der:DynamicallyExpandable"
    summary = "Dynamically Expandable Representation: add a backbone a task and freeze the old ones"
    paper = "Yan, Xie, He: DER: Dynamically Expandable Representation for Class Incremental Learning. CVPR 2021"
    look = ("#009E73", "D")
    later: FitSettings = with_milestones(170, 80, 120, 150)
    align: bool = True
    """Align the head's row norms after each task, as the public toolkits do."""


class FosterSettings(MethodSettings):
    """FOSTER. The defaults do what the published code does; the alternatives are those of the paper."""

    built_by = "foster.methods.foster:Foster"
    summary = "boost a new branch on what the old network gets wrong, then compress both into one backbone"
    paper = "Wang, Zhou, Ye, Zhan: FOSTER: Feature Boosting and Compression for Class-Incremental Learning. ECCV 2022"
    look = ("#D55E00", "o")
    plain_words = MappingProxyType(
        {
            "boost": "learning the new classes beside the known ones",
            "compress": "compressing both into one network",
            "boosted": "before compression",
            "compressed": "after compression",
        }
    )
    grown_variant = "boosted"
    first_task_options = ("first", "first_turns")
    first_variant = "boosted"
    refreshes_by_phases = True
    fixed_options = ("compression",)
    auto_values = MappingProxyType({"beta_boost": 0.95, "beta_compress": 0.97})
    pretrained_values = MappingProxyType(
        {"beta_boost": 0.8, "beta_compress": 0.94}
    )  # the published values favour old classes
    published_augmentation = "auto"

    first: FitSettings = cosine(200)
    first_turns: Turns = "none"
    boost: FitSettings = cosine(170)
    boost_turns: Turns = "none"
    compress: FitSettings = cosine(130, weight_decay=0)

    beta_boost: Beta | tuple[Beta, ...] | Literal["auto"] = "auto"
    """beta of logits alignment: one number, or one for each task after the first. 0 switches it off, 1 weighs classes
    by their number of images, auto is 0.95."""
    beta_compress: Beta | Literal["auto"] = "auto"
    """beta of balanced distillation; 0 gives plain distillation, auto is 0.97."""
    temperature: Temperature = 2.0
    alignment: Literal["logits", "weights", "none"] = "logits"
    """The correction of the bias to new classes while boosting: scaled logits, weight alignment afterwards, or none."""
    gamma: Literal["code", "paper"] = "code"
    """The scales of logits alignment: those of the published code, or those of the paper."""
    feature_enhancement: bool = Field(True, description="L_FE: the new branch alone learns all classes, too.")
    distillation: bool = Field(True, description="L_KD: the old network is distilled while boosting.")
    new_on_old: Literal["finetune", "zero", "zero_with_bias"] = "finetune"
    """The paper's O, the weights of the new classes on the old features: trained, fixed at 0, or fixed at 0 with a
    trained bias."""
    sums: Literal["logits", "probabilities"] = "logits"
    """Whether the branches add logits, S(. + .), or probabilities, S(.) + S(.) (supplement I of the paper)."""
    train_old_block: bool = True
    """Train the old classes' weights on the old features; the paper freezes them."""
    compression: bool = True
    """False keeps the boosted network, which then grows by a backbone a task."""
    herding_features: Literal["boosted", "compressed"] = "boosted"
    """The network whose features select exemplars."""
    boost_branches: int = Field(default=1, ge=1, le=8)
    """How many new branches are trained, one after the other, on the same frozen network; their mean is compressed."""
    unlabeled: str = ""
    """Another dataset, whose training images are used for compression, without labels."""
    compress_with: Literal["balanced", "paper", "plain"] = "balanced"
    """Balanced distillation as in the code, as the paper prints it, or plain distillation."""
    compress_cutmix: float = Field(default=0.0, ge=0, le=1)
    """The share of images with CutMix while compressing; the teacher sees the same mixed images."""
    compress_old_weight: float = Field(default=0.0, ge=0)
    """The weight of a second distillation while compressing, from the old network on the known classes."""
    recall_first: bool = False
    """Keep the network of the first task. In tasks with fewer new classes than a tenth of the known ones, the teacher's
    probability of all classes of the first task is divided among them as that network predicts.
    `foster learn` keeps only its newest network, so there it has no effect."""

    @staticmethod
    def has_few_new(num_new: int, num_known: int) -> bool:
        """Whether `recall_first` has an effect in a task."""
        return num_new < FEW_NEW * num_known

    @classmethod
    def without_effect(cls, task_sizes: Sequence[int]) -> frozenset[str]:
        later = zip(task_sizes[1:], accumulate(task_sizes), strict=False)
        return frozenset() if any(cls.has_few_new(*task) for task in later) else frozenset({"recall_first"})

    def beta_boost_of(self, task: int) -> float:
        """beta for logits alignment in task `task` (the first boosted task is 1)."""
        beta = self.beta_boost[task - 1] if isinstance(self.beta_boost, tuple) else self.beta_boost
        return self.auto_values["beta_boost"] if beta == "auto" else beta

    @property
    def beta_of_compression(self) -> float:
        return self.auto_values["beta_compress"] if self.beta_compress == "auto" else self.beta_compress

    def problem(self, num_tasks: int) -> str | None:
        # Only sums of logits are linear, and only one branch is kept for the next task.
        kinds = {
            "boost_branches > 1": self.boost_branches > 1,
            "sums=probabilities": self.sums == "probabilities",
            "compression=false": not self.compression,
        }
        if len(chosen := [kind for kind, is_chosen in kinds.items() if is_chosen]) > 1:
            return f"foster.{chosen[0]} cannot be combined with foster.{chosen[1]}"
        if isinstance(self.beta_boost, tuple) and len(self.beta_boost) < num_tasks - 1:
            return (
                f"foster.beta_boost: {len(self.beta_boost)} values, but the scenario boosts in {num_tasks - 1} tasks; "
                "give one number or one value for each"
            )
        return None

    def remarks(self, num_tasks: int) -> list[str]:
        remarks = super().remarks(num_tasks)
        if isinstance(self.beta_boost, tuple) and len(self.beta_boost) > num_tasks - 1:
            remarks.append(
                f"beta_boost: {len(self.beta_boost)} values, but only the first {num_tasks - 1} are used, one a task; "
                "the published values differ between scenarios ('foster list presets')"
            )
        return remarks


class JointSettings(MethodSettings):
    built_by = "foster.methods.joint:Joint"
    summary = "train from scratch on all data of all classes seen: the upper bound, keeps everything"
    paper = "upper bound of every class-incremental paper"
    look = ("#000000", "*")
    keeps_all_images = True
    uses_memory = False
    published_augmentation = "auto"
    first: FitSettings = cosine(200)


class ClosedFormSettings(MethodSettings):
    """A backbone trained in the first task alone, and a head that is computed from statistics of its features."""

    uses_memory = False
    refreshes_by_phases = True
    first_task_options = ("first", "first_turns")
    first_variant = "trained"
    published_augmentation = "auto"
    first: FitSettings = cosine(200)
    first_turns: Turns = "none"
    train_backbone: bool = True
    """False keeps the backbone as it is, for example a pretrained one, and trains nothing at all."""
    num_stages: int = Field(default=2, ge=1, le=8)
    """The number of the backbone's last stages from which features are taken."""
    grid: int = Field(default=2, ge=1, le=16)
    """Feature maps are averaged over grid x grid cells; 1 gives the usual pooled features."""
    mirror: bool = True
    """Add the mirror image of every image to the statistics."""


class SldaSettings(ClosedFormSettings):
    built_by = "foster.methods.slda:StreamingDiscriminants"
    summary = "after the first task train nothing: linear discriminants from class means and one covariance"
    paper = "Hayes, Kanan: Lifelong Machine Learning with Deep Streaming Linear Discriminant Analysis. CVPRW 2020"
    look = ("#44AA99", "h")
    fixed_options = ("num_stages", "grid")
    shrinkage: float = Field(default=0.3, gt=0, le=1)
    """The share of the covariance that is replaced by a multiple of the identity; 1 gives nearest class means."""


class RidgeSettings(ClosedFormSettings):
    built_by = "foster.methods.ridge:RandomFeatureRidge"
    summary = "after the first task train nothing: ridge regression on random features, solved from sums"
    paper = "Zhuang et al.: ACIL. NeurIPS 2022. McDonnell et al.: RanPAC. NeurIPS 2023"
    look = ("#CC6677", "d")
    fixed_options = ("num_stages", "grid", "num_features")
    num_stages: int = Field(default=3, ge=1, le=8)
    """The number of the backbone's last stages from which features are taken."""
    num_features: int = Field(default=8192, ge=1, le=65536)
    """The number of random features. The sums take 8 bytes for each pair of them."""
    penalty: float = Field(default=100.0, gt=0)
    """lambda, which is added to the diagonal of the second moment of the random features."""


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
    "slda": SldaSettings,
    "ridge": RidgeSettings,
}
"""All methods, in the order in which they are listed."""

DEFAULT_METHOD = "foster"


def facts_of(method: str) -> type[MethodSettings]:
    """The settings class of a method; the base class for one that is not known here, such as that of a plug-in."""
    return METHOD_SETTINGS.get(method, MethodSettings)
