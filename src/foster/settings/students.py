"""How one network is distilled from others: in compression, and in a first task. All of it is off by default."""

from types import MappingProxyType
from typing import Literal

from pydantic import Field

from foster.settings.fit import FitSettings, Options, cosine

IN_COMPRESSION = ("compression=true",)
IN_ANY_STUDENT = (*IN_COMPRESSION, "first_teachers=N")


class StudentSettings(Options):
    """What the student starts from, what it sees, and what it is to learn of what its teacher says."""

    needs = MappingProxyType(
        {
            "compress_with": IN_ANY_STUDENT,
            "compress_temperature": IN_ANY_STUDENT,
            "compress_cutmix": IN_ANY_STUDENT,
            "compress_mixup": IN_ANY_STUDENT,
            "compress_unmixed": ("compress_cutmix=N", "compress_mixup=N"),
            "others_weight": ("compress_with=decoupled",),
            "first_distil": ("first_teachers=N",),
            # These are about the old network or its exemplars.
            "compress_repeats": IN_COMPRESSION,
            "compress_start": IN_COMPRESSION,
            "compress_old_weight": IN_COMPRESSION,
            "compress_residual": IN_COMPRESSION,
            "align_student": IN_COMPRESSION,
            "unlabeled": IN_COMPRESSION,
            "align_exponent_base": ("alignment=weights", "align_teacher=true", "align_student=true"),
            "distillation_weight": ("distillation=true",),
            "gamma": ("alignment=logits",),
        }
    )

    compress_with: Literal["balanced", "paper", "plain", "decoupled"] = "balanced"
    """Balanced distillation as in the code, as the paper prints it, plain distillation, or the balanced one in two
    terms (Zhao et al., CVPR 2022): how sure the teacher is of its first choice, and what it says of all others."""
    others_weight: float = Field(default=1.0, ge=0)
    """The weight of the other classes' term in decoupled distillation. In the others it is 1 - p of the first choice,
    next to nothing where the teacher is sure."""
    compress_temperature: float = Field(default=0.0, ge=0)
    """The temperature of compression, where it is another one than `temperature`; gradients keep their size. 0: it is
    that one. The loss as the paper prints it has none."""
    compress_cutmix: float = Field(default=0.0, ge=0, le=1)
    """The share of images that have a rectangle of another one while compressing; the teacher sees the same mix."""
    compress_mixup: float = Field(default=0.0, ge=0, le=1)
    """The share of images that are mixed with another one as a whole while compressing; it comes beside CutMix's."""
    compress_unmixed: float = Field(default=0.0, ge=0, le=1)
    """The last share of the epochs of compression, in which no image is mixed any more."""
    compress_repeats: int = Field(default=1, ge=1, le=50)
    """How often an exemplar is seen in an epoch of compression, in which a new image is seen once."""
    compress_start: float = Field(default=1.0, ge=0, le=1)
    """The student's first weights: this share of the old network's, and for the rest the mean of the new branches'."""
    compress_old_weight: float = Field(default=0.0, ge=0)
    """The weight of a second distillation while compressing: what the old network says of the known classes."""
    compress_residual: bool = False
    """Two BatchNorms before the student's head, one trained and one held as the old features were; the head takes their
    sum, and afterwards is one linear head again (Chen and Chang, ICCV 2023)."""

    first_cutmix: float = Field(default=0.0, ge=0, le=1)
    """The share of images of the first task that have a rectangle of another one, and both labels by their areas."""
    first_teachers: int = Field(default=0, ge=0, le=8)
    """So many networks learn the first task from labels, and their mean is distilled into a fresh one, which sees what
    a student sees in compression. 0: the one that learned from labels stays."""
    first_distil: FitSettings = cosine(200)
    """How that fresh network is trained."""

    @property
    def first_task_options(self) -> tuple[str, ...]:
        """The settings on which the first task depends: where it has no student, none of what a student learns."""
        by_labels = ("first", "first_cutmix", "first_teachers")
        of_students = {key for key, needed in self.needs.items() if needed == IN_ANY_STUDENT}
        shared = {"first_distil", "temperature", "beta_compress", "others_weight", "compress_unmixed", *of_students}
        return (*by_labels, *sorted(shared)) if self.first_teachers else by_labels

    @property
    def num_first_phases(self) -> int:
        """One for each network that learns from labels, and one for the student that stays, where there is one."""
        return 1 + self.first_teachers

    def student_problem(self) -> str | None:
        """What is wrong with these settings together, as `key: reason`, or None."""
        shares = self.compress_cutmix + self.compress_mixup
        if shares > 1:
            return (
                "foster.compress_mixup: an image is mixed in one way alone; "
                f"compress_cutmix and compress_mixup together must be at most 1 (got {shares:g})"
            )
        if self.compress_with == "paper" and self.compress_temperature:
            return (
                "foster.compress_temperature: the loss as the paper prints it has no temperature; "
                "leave it at 0, or choose another compress_with than paper"
            )
        return None
