"""From photos to what is learned: read, compared with what is known, and a part held out."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from foster.bundle.folder import image_id
from foster.data.images import ImageSet
from foster.data.photos import Photos, Unreadable, measured_sizes, read_photos
from foster.data.resizing import Resizing, typical_side
from foster.errors import DataError
from foster.learner_settings import LearnerSettings, image_side_for, resize_rule_for
from foster.learning.held_out import is_held_out, smallest_places
from foster.learning.knowledge import Knowledge


@dataclass(frozen=True, eq=False)
class Intake:
    """The images of one `learn`, with ids for all classes known afterwards."""

    train: ImageSet
    held_out: ImageSet
    num_known: int
    num_new: int
    more_of: Mapping[str, int]
    num_repeated: int
    trained_from: Mapping[str, float]
    """For each class of this `learn`, the smallest place (`held_out.place`) of its images in `train`."""
    empty_classes: tuple[str, ...]
    passed_over: Mapping[str, int]
    unreadable: tuple[Unreadable, ...]

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.train.class_names


def choose_resizing(photos: Photos, settings: LearnerSettings, knowledge: Knowledge | None) -> Resizing:
    """The size of the network's images: as it is known, as the settings say, or as the photos suggest."""
    if knowledge is not None:
        return knowledge.resizing
    size = settings.image_size
    if size == "auto":
        sizes = measured_sizes(photos)
        if not sizes:
            raise DataError(f"none of the images in {photos.place} can be read")
        side = image_side_for(typical_side(sizes))
        size = side, side
    return Resizing(*size, resize_rule_for(size) if settings.resize == "auto" else settings.resize)


def take_in(photos: Photos, resizing: Resizing, settings: LearnerSettings, knowledge: Knowledge | None) -> Intake:
    """Read all photos; leave out what is already stored; hold out a part of every class."""
    read = read_photos(photos, resizing, settings.max_unreadable)
    known = knowledge.class_names if knowledge else ()
    readable = set(read.labels)
    names = (*known, *(name for name in photos.class_names if name in readable and name not in known))
    ids = {name: k for k, name in enumerate(names)}
    images = ImageSet(read.images, torch.tensor([ids[name] for name in read.labels]), names)
    hashes = [image_id(image) for image in images.images]
    stored = _stored(knowledge) if knowledge else set()
    is_fresh = torch.tensor([entry not in stored for entry in zip(images.labels.tolist(), hashes, strict=True)])
    fresh = images.select(is_fresh)
    if not len(fresh):
        raise DataError(f"all {len(images)} images in {photos.place} are already among the exemplars: nothing to learn")
    fresh_hashes = [entry for entry, is_wanted in zip(hashes, is_fresh.tolist(), strict=True) if is_wanted]
    trained_before = {ids[name]: place for name, place in knowledge.trained_from.items()} if knowledge else {}
    mask = is_held_out(fresh, fresh_hashes, settings.held_out_share, trained_before)
    trained = [entry for entry, is_spared in zip(fresh_hashes, mask.tolist(), strict=True) if not is_spared]
    train = fresh.select(~mask)
    again = Counter(names[label] for label in fresh.labels.tolist() if label < len(known))
    return Intake(
        train=train,
        held_out=fresh.select(mask),
        num_known=len(known),
        num_new=len(names) - len(known),
        more_of=dict(again),
        num_repeated=len(images) - len(fresh),
        trained_from={names[label]: place for label, place in smallest_places(train, trained).items()},
        empty_classes=(*photos.empty_classes, *(name for name in photos.class_names if name not in readable)),
        passed_over=photos.passed_over,
        unreadable=read.unreadable,
    )


def _stored(knowledge: Knowledge) -> set[tuple[int, str]]:
    """Class id and hash of every image that is kept."""
    return {
        (class_id, image_id(image))
        for memory in (knowledge.exemplars, knowledge.held_out)
        for class_id in range(memory.num_classes)
        for image in memory.of_class(class_id)
    }
