"""All that one `learn` decides before anything is trained: sizes, backbone, quotas, and which images are held out."""

from dataclasses import dataclass, replace
from functools import cached_property

from foster.bundle.manifest import Preprocessing
from foster.data.images import ImageSet, concatenate
from foster.data.photos.find import some
from foster.learner.held_out import fair_quota, held_out_quota
from foster.learner.intake import Intake
from foster.learner.knowledge import Knowledge, no_images
from foster.networks.adapted import BackboneChoice
from foster.networks.trunk import Trunk
from foster.settings.augmentation import AUGMENTATIONS, Augmentation
from foster.settings.learner import DEFAULT_MEMORY_TOTAL, LearnerSettings
from foster.settings.learner_defaults import augmentation_for, batch_size_for
from foster.settings.method import MethodSettings
from foster.system.counts import counted

NUM_SHOWN = 8
MANY_STEPS = 5000
"""From so many steps a phase on, searching and compiling a GPU's fastest convolutions takes less than it gives."""


@dataclass(frozen=True, eq=False)
class Plan:
    """All that is decided before anything is trained."""

    before: Knowledge | None
    settings: LearnerSettings
    backbone: BackboneChoice
    preprocessing: Preprocessing
    intake: Intake
    unlabeled: ImageSet | None
    trunk: Trunk | None = None

    @cached_property
    def exemplars_before(self) -> ImageSet:
        """What the memory holds of the known classes."""
        return self.before.images_of(self.before.exemplars) if self.before else self._none

    @cached_property
    def held_out(self) -> ImageSet:
        """All images that were never trained on: those of this `learn` and those kept from earlier ones."""
        kept = self.before.images_of(self.before.held_out) if self.before else self._none
        return concatenate(self.intake.held_out, kept)

    @cached_property
    def uncompared(self) -> tuple[str, ...]:
        """The known classes of which there is no image, so that nobody can say what they lose."""
        seen = {*self.held_out.labels.tolist(), *self.exemplars_before.labels.tolist()}
        names = self.before.class_names if self.before else ()
        return tuple(name for k, name in enumerate(names) if k not in seen)

    @property
    def _none(self) -> ImageSet:
        return no_images(self.preprocessing.size, ())

    @property
    def num_training_images(self) -> int:
        return len(self.intake.train) + len(self.exemplars_before)

    @property
    def batch_size(self) -> int:
        size = self.preprocessing.size
        return self.settings.batch_size or batch_size_for(self.num_training_images, size)

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.num_training_images // self.batch_size)

    @property
    def options(self) -> MethodSettings:
        """The method's settings as they are used."""
        return self.settings.scaled_options(self.steps_per_epoch, self.backbone.is_pretrained, self.batch_size)

    @property
    def is_short(self) -> bool:
        """Whether the training is over before a search for its fastest code would pay."""
        return self.options.first.epochs * self.steps_per_epoch < MANY_STEPS

    def within(self, seconds: float, seconds_before: float, seconds_of_training: float) -> "Plan":
        """The same plan with schedules that take this long, where that much is before them and so much they would take;
        never more than the published ones."""
        factor = self.settings.epochs_factor(self.steps_per_epoch, self.backbone.is_pretrained)
        share = max(0.0, seconds - seconds_before) / max(seconds_of_training, 1e-6)
        return self.with_epochs_scale(round(min(1.0, max(1e-4, factor * share)), 4))

    def with_epochs_scale(self, scale: float) -> "Plan":
        return replace(self, settings=self.settings.model_copy(update={"epochs_scale": scale}))

    def lines(self) -> tuple[str, ...]:
        """What is about to be done, for people."""
        intake, size = self.intake, self.preprocessing
        new = intake.class_names[intake.num_known :]
        photos = f"{counted(len(intake.train), 'photo')}, {len(intake.held_out):,} more held out to measure"
        known = (
            f"; {counted(len(self.exemplars_before), 'kept photo')} of {counted(intake.num_known, 'known class')}"
            if intake.num_known
            else ""
        )
        start = "pretrained" if self.backbone.is_pretrained else "from scratch"
        trunk = f", its first {self.backbone.num_frozen} parts frozen" if self.backbone.num_frozen else ""
        what = f"{counted(len(new), 'new class')} ({some(new, NUM_SHOWN)})" if new else "no new class"
        return (
            f"{what}: {photos}{known}",
            f"{self.backbone.name} ({start}{trunk}), images of {size.height} x {size.width} for the bundle's life",
        )

    @property
    def num_views(self) -> int:
        """In how many views a trunk sees each photo; without an augmentation all would be the same."""
        return self.settings.num_views(self.options.first.epochs) if self.augmentation != Augmentation() else 1

    @property
    def augmentation(self) -> Augmentation:
        return augmentation_of(self.settings, self.preprocessing.size)

    @cached_property
    def quota(self) -> int | None:
        """How many images each class may keep; what a small class cannot fill of it, others do."""
        num_classes = self.intake.num_known + self.intake.num_new
        quota = self.settings.quota(num_classes)
        if quota is None or self.settings.memory_per_class is not None:
            return quota
        sets = (concatenate(self.intake.train, self.exemplars_before), self.held_out)
        trained, held_out = (images.class_counts(num_classes).tolist() for images in sets)
        return fair_quota(self.settings.memory_total or DEFAULT_MEMORY_TOTAL, trained, held_out, self._kept_share)

    @property
    def _kept_share(self) -> float:
        """A `learn` that holds out nothing still keeps what earlier ones held out, within the share of then."""
        return self.settings.held_out_share or (self.before.held_out_share if self.before else 0.0)

    @property
    def held_out_quota(self) -> int | None:
        return held_out_quota(self.quota, self._kept_share)

    @property
    def exemplar_quota(self) -> int | None:
        """What is left of a class's quota for images that are trained on again."""
        return None if self.quota is None else self.quota - (self.held_out_quota or 0)

    @property
    def task_sizes(self) -> tuple[int, ...]:
        return self.before.task_sizes if self.before else ()

    def resolved(self) -> LearnerSettings:
        """The settings with what the first `learn` decides for good."""
        return self.settings.model_copy(
            update={
                "backbone": self.backbone.name,
                "image_size": self.preprocessing.size,
                "resize": self.preprocessing.rule,
                "trunk": self.backbone.num_frozen or "none",
            }
        )


def augmentation_of(settings: LearnerSettings, image_size: tuple[int, int]) -> Augmentation:
    """What is done to images of this height and width."""
    by_size = augmentation_for(image_size, settings.training)
    wanted = by_size if settings.augmentation == "by_size" else settings.augmentation
    return wanted if isinstance(wanted, Augmentation) else AUGMENTATIONS[wanted]
