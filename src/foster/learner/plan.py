"""The plan of one `learn` before the photos are read: the image size, the backbone and the method.

The plan also finds photos that are known already or are in several classes. `quotas` limits the photos of a class.
"""

import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from foster import events
from foster.data.photos.decode import Resizing
from foster.data.photos.find import Photos, Unreadable, similar_names
from foster.data.photos.reading import typical_photo_side
from foster.errors import DataError, SettingsError
from foster.learner.feature_store import Entry
from foster.learner.knowledge import Knowledge
from foster.learner.prediction import check_not_unknown
from foster.learner.reports import LearnReport, SharedPhotos
from foster.learner.work_folder import WorkFolder
from foster.methods import method_class
from foster.networks.adapted import TIMM_PREFIX, BackboneChoice, ModuleLike, choose_backbone
from foster.settings.augmentation import AUGMENTATIONS, Augmentation
from foster.settings.learner import AUTO, CLOSED_FORM, LearnerSettings
from foster.settings.learner_defaults import (
    PRETRAINED,
    SMALLEST_FROZEN_SIDE,
    augmentation_for,
    backbone_for,
    frozen_side_for,
    image_side_for,
    largest_side_for,
)
from foster.settings.methods import DEFAULT_METHOD
from foster.system.counts import counted
from foster.system.output import listed
from foster.system.signals import StopRequest
from foster.training.engine import find_device

Label = TypeVar("Label")
Photo = TypeVar("Photo")


@dataclass(frozen=True, eq=False)
class Found:
    """The photos of a source that are not known yet, the first of equal ones, and the names of all classes known
    afterwards."""

    class_names: tuple[str, ...]
    ids: tuple[str, ...]
    labels: Tensor
    """int64 `[N]`."""
    positions: tuple[int, ...]
    """Their positions among the photos that could be read."""
    report: LearnReport


@dataclass(frozen=True, eq=False)
class Plan:
    """The arguments of a `learn` (photos, listener, work folder), and the choices before photos are read: the size of
    the images, the backbone, and `settings.method`, which is no longer `auto`."""

    before: Knowledge | None
    settings: LearnerSettings
    photos: Photos
    resizing: Resizing
    backbone: BackboneChoice
    listener: events.Listener
    stop: StopRequest
    work: WorkFolder | None
    began: float
    """The monotonic time at which the learn began."""

    @property
    def known(self) -> tuple[str, ...]:
        """The classes known before."""
        return self.before.class_names if self.before else ()

    @property
    def trained(self) -> Knowledge | None:
        """The knowledge before this `learn`, if its network was trained; None for a closed form."""
        return None if self.before is None or self.before.is_closed_form else self.before

    @property
    def augmentation(self) -> Augmentation:
        wanted = self.settings.augmentation
        if wanted == "by_size":
            wanted = augmentation_for(self.resizing.size, self.settings.training)
        return wanted if isinstance(wanted, Augmentation) else AUGMENTATIONS[wanted]

    def warn(self, message: str) -> None:
        self.listener(events.Warned(message))

    def found(
        self, positions: Sequence[int], ids: Sequence[str], stored: Set[Entry], unreadable: Sequence[Unreadable]
    ) -> "Found":
        """The new photos of the source. Its photos at `positions` could be read and have these `ids`; the `stored` ones
        are known from earlier learns. Raises DataError if no photo is new."""
        photos, num_known = self.photos, len(self.known)
        readable = {photos.labels[k] for k in positions}
        class_names = tuple(dict.fromkeys((*self.known, *(name for name in photos.class_names if name in readable))))
        class_ids = {name: k for k, name in enumerate(class_names)}
        entries = [(class_ids[photos.labels[k]], photo_id) for k, photo_id in zip(positions, ids, strict=True)]
        fresh: dict[Entry, int] = {}
        for k, entry in enumerate(entries):
            if entry not in stored:
                fresh.setdefault(entry, k)
        if not fresh:
            raise DataError(f"all {len(ids)} images in {photos.title} are known from earlier learns: nothing to learn")
        if len(class_names) == 1:
            self.warn(f"every answer is '{class_names[0]}' until a second class is learned")
        report = LearnReport(
            more_of=dict(Counter(class_names[label] for label, _ in fresh if label < num_known)),
            num_repeated=len(entries) - len(fresh),
            shared=shared_photos(entries, stored, class_names, [photos.name(k) for k in positions]),
            empty_classes=(*photos.empty_classes, *(name for name in photos.class_names if name not in readable)),
            passed_over=photos.passed_over,
            unreadable=tuple(unreadable),
            new_classes=class_names[num_known:],
            similar_names=tuple(similar_names(class_names[num_known:], self.known)),
        )
        labels = torch.tensor([label for label, _ in fresh])
        return Found(class_names, tuple(photo_id for _, photo_id in fresh), labels, tuple(fresh.values()), report)

    def lines(self, new: Sequence[str], photos: str, network: str, how: str) -> tuple[str, str]:
        """The plan as two lines of text: the classes and photos, then the network and how it learns."""
        what = f"{counted(len(new), 'new class')} ({listed(new)})" if new else "no new class"
        size = f"images of {self.resizing.height} x {self.resizing.width}, fixed for all later learns"
        return f"{what}: {photos}", f"{self.backbone.name} ({network}), {size}; {how}"


def make_plan(
    before: Knowledge | None,
    settings: LearnerSettings,
    photos: Photos,
    backbone: ModuleLike | None = None,
    *,
    listener: events.Listener | None = None,
    stop: StopRequest | None = None,
    work: WorkFolder | None = None,
) -> Plan:
    """Choose the method, the backbone and the size of its images."""
    began = time.monotonic()
    for name in photos.class_names:
        check_not_unknown(name, f"in {photos.title}")
    wanted = settings.backbone if backbone is None else backbone
    has_weights = isinstance(wanted, str) and (wanted in ("auto", PRETRAINED) or wanted.startswith(TIMM_PREFIX))
    method = settings.method
    if before and method in LearnerSettings.untrained:
        method = before.method
    elif method == AUTO:
        method = CLOSED_FORM if has_weights or settings.weights else DEFAULT_METHOD
    is_frozen = method == CLOSED_FORM
    if wanted == "auto" and is_frozen:
        wanted = PRETRAINED
    resizing = before.resizing if before else choose_resizing(photos, settings, is_frozen and has_weights)
    if wanted == "auto":
        wanted = backbone_for(resizing.size)
    if is_frozen and before is None and wanted == PRETRAINED and min(resizing.size) < SMALLEST_FROZEN_SIDE:
        raise SettingsError(
            f"image_size: the pretrained {wanted} needs {SMALLEST_FROZEN_SIDE} pixels or more a side, not "
            f"{resizing.height} x {resizing.width}; smaller images are enlarged (method=foster trains a network of "
            "that size)"
        )
    if not is_frozen and isinstance(wanted, str):
        wanted = method_class(method).backbone_name(wanted)
    choice = choose_backbone(wanted, resizing.size, settings.weights)
    settings = settings.model_copy(update={"method": method})
    listener, stop = listener or _pass_on_warnings, stop or StopRequest()
    return Plan(before, settings, photos, resizing, choice, listener, stop, work, began)


def _pass_on_warnings(event: events.Event) -> None:
    """Without a listener, warnings are issued with Python's `warnings`."""
    if isinstance(event, events.Warned):
        warnings.warn(event.message, stacklevel=5)  # for the settings without effect, the line that calls learn


def choose_resizing(photos: Photos, settings: LearnerSettings, is_frozen: bool) -> Resizing:
    """The size of the network's images: that of the settings, of a frozen backbone, or one that suits the photos."""
    size = settings.image_size
    if size == "auto":
        on_gpu = find_device(settings.device).type == "cuda"
        side = frozen_side_for(on_gpu)
        if not is_frozen:
            side = image_side_for(typical_photo_side(photos), largest_side_for(settings.backbone, on_gpu))
        size = side, side
    return Resizing(*size)


def classes_of(entries: Iterable[tuple[Label, Photo]]) -> dict[Photo, set[Label]]:
    """For each photo, or group of photos, the classes it is in."""
    classes: dict[Photo, set[Label]] = defaultdict(set)
    for label, photo in entries:
        classes[photo].add(label)
    return dict(classes)


def shared_photos(
    entries: Sequence[Entry], known: Iterable[Entry], names: Sequence[str], photo_names: Sequence[str]
) -> SharedPhotos | None:
    """The photos of `entries` that are in several classes, counting the classes of the `known` entries, too;
    `photo_names` has the name of each entry's photo."""
    classes = classes_of([*entries, *known])
    shared = [position for position, (_, image_hash) in enumerate(entries) if len(classes[image_hash]) > 1]
    if not shared:
        return None
    hashes = [entries[position][1] for position in shared]
    labels = sorted(classes[hashes[0]])
    return SharedPhotos(len(set(hashes)), photo_names[shared[0]], tuple(names[label] for label in labels))


def quotas(quota: int | None, share: float) -> tuple[int | None, int | None]:
    """How many exemplars and how many held-out images of a class are kept, if it may keep `quota` in all; None for no
    limit. `share` is the share of held-out images."""
    if quota is None:
        return None, None if share else 0
    num_held_out = min(max(1, round(quota * share)), quota - 1) if share else 0
    return quota - num_held_out, num_held_out
