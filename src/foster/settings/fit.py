"""The base class of all settings, and the settings of one training phase."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Frozen(BaseModel):
    """Settings that are checked once, cannot be changed, and refuse unknown keys. The docstring below a field is its
    description."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


def smallest_batch_for(batch_size: int) -> int:
    """The fewest images of a last batch that is trained on: a step on fewer costs accuracy
    (results/notes/last-batch.md)."""
    return max(2, batch_size // 4)


USUAL_RATE_OF_ADAM = 0.01
"""A higher learning rate is probably a mistake for Adam."""


class FitSettings(Frozen):
    """How one phase is trained: the optimizer, and a cosine or a milestone schedule, stepped once an epoch."""

    epochs: int = Field(ge=1)
    """Number of epochs, before epochs_scale."""
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    """torch's SGD, Adam or AdamW."""
    learning_rate: float = Field(default=0.1, gt=0, le=1e30)
    """The learning rate of the first epoch, or of the first one after the warm-up."""
    head_rate: float = Field(default=1.0, gt=0, le=1e6)
    """The learning rate of the head, as a multiple of that of the backbone."""
    weight_decay: float = Field(default=5e-4, ge=0, le=1e6)
    """Weight decay (L2) of all weights, those of BatchNorm and biases included."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """The momentum of SGD; the first beta of Adam and AdamW."""
    nesterov: bool = False
    """Nesterov momentum, for sgd."""
    max_gradient: float | None = Field(default=None, ge=0)
    """Gradients are clipped to this norm, taken over all weights. 0 and None: no clipping, except that None is 1 for a
    learner with a pretrained backbone."""
    schedule: Literal["cosine", "milestones"] = "cosine"
    """The learning rate falls to 0 along a cosine, or is multiplied by `decay` at milestones."""
    milestones: tuple[int, ...] = ()
    """The epochs after which the learning rate is multiplied by `decay`."""
    decay: float = Field(default=0.1, gt=0, le=1)
    """The factor on the learning rate at a milestone."""
    warmup_epochs: int = Field(default=0, ge=0)
    """Number of epochs in which the learning rate rises linearly, before epochs_scale; the schedule follows."""

    @model_validator(mode="after")
    def _parts_fit_together(self) -> "FitSettings":
        if self.milestones and self.schedule != "milestones":
            raise ValueError("milestones have no effect on a cosine schedule; add schedule=milestones")
        if self.schedule == "milestones" and not self.milestones:
            raise ValueError("schedule=milestones needs milestones, for example milestones=[80, 120]")
        if self.warmup_epochs >= self.epochs:
            raise ValueError(f"warmup_epochs must be fewer than the {self.epochs} epochs, not {self.warmup_epochs}")
        if self.nesterov and (self.optimizer != "sgd" or not self.momentum):
            raise ValueError("nesterov = true needs optimizer = 'sgd' and momentum above 0")
        return self

    @property
    def remark(self) -> str:
        """A warning about a schedule that is probably a mistake, as `key: warning`; else empty."""
        if self.optimizer != "sgd" and self.learning_rate > USUAL_RATE_OF_ADAM:
            return f"learning_rate: {self.learning_rate:g} is high for {self.optimizer}, whose usual rate is 0.001"
        if not self.milestones or min(self.milestones) < self.epochs:
            return ""
        return f"milestones: {list(self.milestones)} lie beyond its {self.epochs} epochs; the rate never falls"

    def scaled(self, factor: float) -> "FitSettings":
        """The same schedule over `factor` times as many epochs."""
        if factor == 1:
            return self
        epochs = max(1, round(self.epochs * factor))
        milestones = sorted({max(1, round(milestone * factor)) for milestone in self.milestones})
        warmup = min(epochs - 1, round(self.warmup_epochs * factor))
        return self.model_copy(update={"epochs": epochs, "milestones": tuple(milestones), "warmup_epochs": warmup})


def cosine(epochs: int, learning_rate: float = 0.1, weight_decay: float = 5e-4) -> FitSettings:
    """A learning rate that falls to 0 along a cosine."""
    return FitSettings(epochs=epochs, learning_rate=learning_rate, weight_decay=weight_decay)


def with_milestones(epochs: int, *milestones: int, weight_decay: float = 2e-4) -> FitSettings:
    """A learning rate of 0.1 that is divided by 10 at each milestone."""
    return FitSettings(epochs=epochs, weight_decay=weight_decay, schedule="milestones", milestones=milestones)
