"""The settings of FOSTER; without torch."""

from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import Field

from foster.settings.fit import FitSettings, cosine
from foster.settings.method import MethodSettings, Temperature, Turns

Beta = Annotated[float, Field(ge=0, le=1)]


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
    """The scales of logits alignment as the code has them, or as the paper prints them."""
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
        if len(asked := [kind for kind, is_asked in kinds.items() if is_asked]) > 1:
            return f"foster.{asked[0]} cannot be combined with foster.{asked[1]}"
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
                f"beta_boost: {len(self.beta_boost)} values, of which {num_tasks - 1} tasks use the first ones; "
                "another cut of the classes has other published values ('foster list presets')"
            )
        return remarks
