"""The plan of a training: the settings are checked, the photos are read, and a part of them is held out."""

import copy
from collections import defaultdict
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import torch
from torch import Tensor

from foster import events
from foster.bundle.folder import ImageFiles
from foster.bundle.manifest import Preprocessing
from foster.data.download import Follower
from foster.data.feed import images_of_epoch
from foster.data.herding import positions_by_class
from foster.data.images import ImageSet, Stack, as_stack, concatenate
from foster.data.photos.reading import learner_loader, read_for_training
from foster.errors import DataError, SettingsError
from foster.experiment.engine import place_for_photos
from foster.learner.knowledge import Knowledge, no_images
from foster.learner.plan import Plan, quotas
from foster.learner.reports import LearnReport
from foster.networks.network import Backbone
from foster.settings.fit import smallest_batch_for
from foster.settings.learner_defaults import batch_size_for
from foster.settings.method import MethodSettings
from foster.system.counts import counted
from foster.training.engine import find_device

FEWEST_IMAGES = 3
"""No image is held out of a class with fewer images."""

MANY_STEPS = 5000
"""With at least this many steps in a phase, compiling and cuDNN's benchmark save more time than they take."""

SMALLEST_STD = 0.01
NUM_IMAGES_FOR_STATISTICS = 10_000


@dataclass(frozen=True, eq=False)
class TrainingPlan(Plan):
    """The plan of a training, once its photos are read."""

    train: ImageSet
    """The new photos to train on, with ids for all classes known afterwards."""
    new_held_out: ImageSet
    num_known: int
    """How many classes the network has been trained on. A bundle in closed form has none: its kept photos are in
    `train`."""
    preprocessing: Preprocessing
    report: LearnReport
    """The report so far: what was found in the source."""

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.train.class_names

    @property
    def num_new(self) -> int:
        return len(self.class_names) - self.num_known

    @cached_property
    def exemplars_before(self) -> ImageSet:
        """The exemplars of the known classes."""
        none = no_images(self.preprocessing.size, ())
        return self.trained.images_of(self.trained.exemplars) if self.trained else none

    @cached_property
    def held_out(self) -> ImageSet:
        """All images that were never trained on: those of this `learn` and those kept from earlier ones."""
        if self.trained is None:
            return self.new_held_out
        return concatenate(self.new_held_out, self.trained.images_of(self.trained.held_out))

    @cached_property
    def uncompared(self) -> tuple[str, ...]:
        """The known classes without an image: their loss cannot be measured."""
        seen = {*self.held_out.labels.tolist(), *self.exemplars_before.labels.tolist()}
        return tuple(name for k, name in enumerate(self.known) if k not in seen)

    @property
    def num_training_images(self) -> int:
        return len(self.train) + len(self.exemplars_before)

    @property
    def batch_size(self) -> int:
        return self.settings.batch_size or batch_size_for(self.num_training_images, self.preprocessing.size)

    @property
    def steps_per_epoch(self) -> int:
        smallest = smallest_batch_for(self.batch_size)
        return -(-images_of_epoch(self.num_training_images, self.batch_size, smallest) // self.batch_size)

    @property
    def options(self) -> MethodSettings:
        """The method's settings with the epochs and learning rates of this learn."""
        return self.settings.scaled_options(self.steps_per_epoch, self.backbone.is_pretrained, self.batch_size)

    @property
    def is_short(self) -> bool:
        """Whether the training is too short for compiling and cuDNN's benchmark."""
        return self.options.first.epochs * self.steps_per_epoch < MANY_STEPS

    def summary(self) -> tuple[str, str]:
        """The plan as two lines of text."""
        photos = f"{counted(len(self.train), 'photo')}, {len(self.new_held_out):,} more held out to measure"
        if self.num_known:
            kept = counted(len(self.exemplars_before), "kept photo")
            photos += f"; {kept} of {counted(self.num_known, 'known class')}"
        start = "pretrained" if self.backbone.is_pretrained else "from scratch"
        return self.lines(self.report.new_classes, photos, start, f"trained by {self.settings.method}")

    @property
    def quotas(self) -> tuple[int | None, int | None]:
        """How many exemplars and held-out images of each class are kept; None for no limit. A `learn` that holds out
        nothing keeps the held-out images of earlier ones."""
        share = self.settings.held_out_share or (self.trained.held_out_share if self.trained else 0.0)
        return quotas(self.settings.quota(len(self.class_names)), share)

    @property
    def task_sizes(self) -> tuple[int, ...]:
        return self.trained.task_sizes if self.trained else ()


def plan_training(plan: Plan) -> TrainingPlan:
    """Check the settings, then read all photos, leave out those that are kept already, and hold out a part of every
    class."""
    before, trained, settings, photos, known = plan.before, plan.trained, plan.settings, plan.photos, plan.known
    closed_form = before if trained is None else None
    if closed_form is not None:
        _check_kept_photos(closed_form)
        # Its backbone still has the pretrained weights.
        backbone = closed_form.network.branches[0]
        choice = replace(plan.backbone, make=lambda: cast(Backbone, copy.deepcopy(backbone)))
        plan = replace(plan, backbone=choice)
    _check(plan)
    place, folder = place_for_photos(settings.engine)
    # Without warnings: photos that cannot be read are in the report.
    quiet = Follower(lambda event: None if isinstance(event, events.Warned) else plan.listener(event), plan.stop)
    loader = replace(
        learner_loader(plan.resizing),
        device=find_device(settings.device),
        place=place,
        cache=folder,
        max_unreadable=settings.max_unreadable,
        follower=quiet,
    )
    read = read_for_training(photos, plan.resizing, loader)
    stored = before.held_out.entries() | before.exemplars.entries() if before else set()
    found = plan.found(read.positions, read.stack.ids(), stored, read.unreadable)
    fresh = ImageSet(read.stack[torch.tensor(found.positions)], found.labels, found.class_names)
    learned = before.learned_ids() if before else set()
    if before is not None and before.store is None:  # its list of learned photos is not complete
        pairs = zip(found.labels.tolist(), found.ids, strict=True)
        learned |= {photo_id for label, photo_id in pairs if label < len(known)}
    num_known = trained.num_classes if trained else 0
    mask = is_held_out(fresh, found.ids, settings.held_out_share, num_known, learned)
    train, held_out = fresh.select(~mask), fresh.select(mask)
    # Encoded as a bundle keeps them, so that a loaded bundle measures the same.
    held_out = replace(held_out, stack=held_out.stack.owned())
    if closed_form is not None:
        train = concatenate(train, closed_form.images_of(closed_form.exemplars))
    if before is not None:
        preprocessing = before.preprocessing
    else:
        choice = plan.backbone
        mean, std = (choice.mean, choice.std) if choice.mean and choice.std else channel_statistics(train.stack)
        preprocessing = Preprocessing.model_validate({**vars(plan.resizing), "mean": mean, "std": std})
    return TrainingPlan(
        **vars(plan),
        train=train,
        new_held_out=held_out,
        num_known=num_known,
        preprocessing=preprocessing,
        report=found.report,
    )


def is_held_out(
    images: ImageSet, ids: Sequence[str], share: float, num_known: int = 0, learned: Set[str] = frozenset()
) -> Tensor:
    """A mask `[N]`. About `share` of the photos of each class is held out: of a new class with three photos or more at
    least one, and never all. Class ids below `num_known` have held-out photos already, so that none is needed.

    The photos of the lowest hashes are held out: the choice does not depend on file names, and equal photos are treated
    alike. A photo in several classes is held out only if all of them choose it. Photos that were `learned` before are
    never held out, because accuracy on them would be too high.
    """
    members: dict[int, set[str]] = defaultdict(set)
    for label, image_hash in zip(images.labels.tolist(), ids, strict=True):
        members[label] |= {image_hash} - learned
    trained = set(learned)
    for label, hashes in members.items():
        least = int(label >= num_known)
        count = max(least, round(len(hashes) * share)) if share and len(hashes) >= FEWEST_IMAGES else 0
        trained |= set(sorted(hashes)[min(count, len(hashes) - 1) :])
    return torch.tensor([image_hash not in trained for image_hash in ids], dtype=torch.bool)


def kept_held_out(images: ImageSet, quota: int | None) -> list[ImageFiles]:
    """Up to `quota` different images of each class, by the order of their hashes: the same ones every time."""
    files = list(zip(images.stack.ids(), images.stack.files(), strict=True))
    members = positions_by_class(images.labels, range(images.num_classes))
    by_class = [dict(files[position] for position in positions.tolist()) for positions in members]
    return [tuple(sorted(by_hash.items())[:quota]) for by_hash in by_class]


def _check_kept_photos(closed_form: Knowledge) -> None:
    """Refuse to train on a bundle in closed form that keeps no photo of a class."""
    for name, kept in zip(closed_form.class_names, closed_form.exemplars.files, strict=True):
        if not kept:
            raise DataError(
                f"no photo is kept of '{name}', so the network cannot be trained on it; leave out method=..., or "
                "start a new bundle from photos of all classes"
            )


def _check(plan: Plan) -> None:
    """Refuse settings with which these photos cannot be learned."""
    trained, settings, options, names = plan.trained, plan.settings, plan.settings.options, plan.photos.class_names
    known = trained.class_names if trained else ()
    again = [name for name in names if name in known]
    if trained is None or (options.keeps_all_images and len(again) < len(names)):
        plan.backbone.make()  # a module of the user is tried, and weights are read
    if options.unlabeled_source:
        raise SettingsError(f"{settings.section}.unlabeled: only experiments take unlabeled images")
    settings.quota(len({*known, *names}))
    if wrong := options.problem(len(trained.task_sizes) + 1 if trained else 1):
        raise SettingsError(wrong)
    if again and not (options.uses_memory or options.keeps_all_images or options.refreshes_by_phases):
        raise DataError(
            f"method '{settings.method}' keeps no exemplars, so it cannot learn more images of known classes "
            f"('{again[0]}'); use method=foster or another that does"
        )
    if wrong := plan.augmentation.problem(plan.resizing.size):
        raise SettingsError(wrong)


def channel_statistics(images: Stack | Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel of uint8 images `[N, 3, H, W]`, for values from 0 to 1."""
    stride = -(-len(images) // NUM_IMAGES_FOR_STATISTICS)
    count, total, squares = torch.zeros(3, 3, dtype=torch.float64)
    for chunk in as_stack(images)[::stride].split(16):  # more images as doubles would take too much memory
        values = chunk.on_device(torch.device("cpu")).double()
        count += values[:, 0].numel()
        total += values.sum(dim=(0, 2, 3))
        squares += values.square().sum(dim=(0, 2, 3))
    mean = total / count
    std = (squares / count - mean.square()).clamp_min(0).sqrt() / 255
    rounded = [[round(value, 4) for value in values.tolist()] for values in (mean / 255, std.clamp_min(SMALLEST_STD))]
    return tuple(rounded[0]), tuple(rounded[1])
