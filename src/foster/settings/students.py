"""What the student of a compression starts from, what it sees and what it is to learn. All of it is off by default."""

from types import MappingProxyType
from typing import Literal

from pydantic import Field

from foster.settings.fit import Options

IN_COMPRESSION = ("compression=true",)


class StudentSettings(Options):
    """How one backbone is distilled from the boosted network."""

    needs = MappingProxyType(
        {
            "compress_with": IN_COMPRESSION,
            "compress_cutmix": IN_COMPRESSION,
            "compress_start": IN_COMPRESSION,
            "compress_old_weight": IN_COMPRESSION,
            "align_student": IN_COMPRESSION,
            "unlabeled": IN_COMPRESSION,
            "align_exponent_base": ("alignment=weights", "align_teacher=true", "align_student=true"),
            "distillation_weight": ("distillation=true",),
            "gamma": ("alignment=logits",),
        }
    )
    retired = MappingProxyType(
        {
            "others_weight": 1.0,
            "compress_temperature": 0.0,
            "compress_mixup": 0.0,
            "compress_unmixed": 0.0,
            "compress_repeats": 1,
            "compress_residual": False,
            "first_cutmix": 0.0,
            "first_teachers": 0,
            "first_distil": ...,
        }
    )

    compress_with: Literal["balanced", "paper", "plain"] = "balanced"
    """Balanced distillation as in the code, as the paper prints it, or plain distillation."""
    compress_cutmix: float = Field(default=0.0, ge=0, le=1)
    """The share of images that have a rectangle of another one while compressing; the teacher sees the same mix."""
    compress_start: float = Field(default=1.0, ge=0, le=1)
    """The student's first weights: this share of the old network's, and for the rest the mean of the new branches'."""
    compress_old_weight: float = Field(default=0.0, ge=0)
    """The weight of a second distillation while compressing: what the old network says of the known classes."""
    first_branches: int = Field(default=1, ge=1, le=8)
    """Networks that learn the first task, one after the other; the mean of several is compressed into one."""
