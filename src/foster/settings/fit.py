"""What every settings class is, and how one phase is trained."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Frozen(BaseModel):
    """Settings are checked once, never changed, and know all their keys."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class FitSettings(Frozen):
    """How one phase is trained: SGD with a cosine or a milestone schedule, stepped once an epoch."""

    epochs: int = Field(ge=1)
    """How often all images are seen, before epochs_scale."""
    learning_rate: float = Field(default=0.1, gt=0, le=1e30)
    """The rate of the first epoch."""
    weight_decay: float = Field(default=5e-4, ge=0, le=1e6)
    """By which share of themselves, times the rate, all weights shrink in a step, BatchNorm's and biases included."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """The share of the step before that is kept."""
    max_gradient: float | None = Field(default=None, ge=0)
    """The norm of all gradients together to which longer ones are shortened. 0 leaves them as they are, and so does
    None, except where a learner's backbone began pretrained: there it is 1."""
    schedule: Literal["cosine", "milestones"] = "cosine"
    """The rate falls to 0 along a cosine, or is multiplied by `decay` at milestones."""
    milestones: tuple[int, ...] = ()
    """The epochs after which it falls."""
    decay: float = Field(default=0.1, gt=0, le=1)
    """What the rate is multiplied by at a milestone."""

    @model_validator(mode="after")
    def _milestones_belong_to_their_schedule(self) -> "FitSettings":
        if (self.schedule == "milestones") != bool(self.milestones):
            raise ValueError("milestones are given exactly when schedule = 'milestones'")
        if list(self.milestones) != sorted(set(self.milestones)):
            raise ValueError(f"milestones must rise, but are {list(self.milestones)}")
        if self.milestones and self.milestones[0] < 1:
            raise ValueError(f"milestones are numbers of epochs from 1 on, not {self.milestones[0]}")
        return self

    @property
    def remark(self) -> str:
        """What may not be meant, as `key: remark`; empty where all is well."""
        if not self.milestones or self.milestones[0] < self.epochs:
            return ""
        return f"milestones: {list(self.milestones)} lie beyond its {self.epochs} epochs; the rate never falls"

    def scaled(self, factor: float) -> "FitSettings":
        """The same schedule over `factor` times as many epochs."""
        if factor == 1:
            return self
        epochs = max(1, round(self.epochs * factor))
        milestones = sorted({max(1, round(milestone * factor)) for milestone in self.milestones})
        return self.model_copy(update={"epochs": epochs, "milestones": tuple(milestones)})


def cosine(epochs: int, learning_rate: float = 0.1, weight_decay: float = 5e-4) -> FitSettings:
    """A rate that falls to 0 along a cosine."""
    return FitSettings(epochs=epochs, learning_rate=learning_rate, weight_decay=weight_decay)


def with_milestones(epochs: int, *milestones: int, weight_decay: float = 2e-4) -> FitSettings:
    """A rate of 0.1 that falls to a tenth at each milestone."""
    return FitSettings(epochs=epochs, weight_decay=weight_decay, schedule="milestones", milestones=milestones)
