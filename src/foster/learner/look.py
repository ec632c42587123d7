"""The photos of a `learn` whose network is trained: read, compared with what is known, and a part held out.

Pictures that stand in more than one class, pixel for pixel, are found in what is learned and in what is kept of before.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from foster.bundle.history import trained_positions
from foster.data.herding import positions_by_class
from foster.data.images import ImageSet, ids_of
from foster.data.memory import ExemplarMemory
from foster.data.photos.decode import Resizing, typical_side
from foster.data.photos.find import Photos, item_name
from foster.data.photos.read import learner_loader, measured_sizes, none_readable, read_for_training
from foster.errors import DataError
from foster.experiment.parts import place_for_photos
from foster.learner.knowledge import Knowledge
from foster.learner.reports import Inventory, KeptElsewhere, SharedPhotos
from foster.settings.learner import LearnerSettings
from foster.settings.learner_defaults import image_side_for, largest_side_for, resize_rule_for
from foster.training.engine import find_device


@dataclass(frozen=True, eq=False)
class Intake:
    """The images of one `learn`, with ids for all classes known afterwards."""

    train: ImageSet
    held_out: ImageSet
    num_known: int
    num_new: int
    inventory: Inventory
    trained_from: Mapping[str, float]
    """For each class of this `learn`, the smallest position (`look.position`) of its images in `train`."""

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.train.class_names


class Entry(NamedTuple):
    """A picture in a class: the class's id and the hash of the pixels."""

    label: int
    image_hash: str


def choose_resizing(photos: Photos, settings: LearnerSettings, knowledge: Knowledge | None) -> Resizing:
    """The size of the network's images: as it is known, as the settings say, or as the photos suggest."""
    if knowledge is not None:
        return knowledge.resizing
    size = settings.image_size
    if size == "auto":
        sizes, unreadable = measured_sizes(photos)
        if not sizes:
            raise none_readable(unreadable, photos)
        on_gpu = find_device(settings.device).type == "cuda"
        typical = typical_side(sizes)
        side = image_side_for(typical, largest_side_for(settings.backbone, on_gpu))
        size = side, side
    return Resizing(*size, resize_rule_for(size) if settings.resize == "auto" else settings.resize)


def take_in(photos: Photos, resizing: Resizing, settings: LearnerSettings, knowledge: Knowledge | None) -> Intake:
    """Read all photos; leave out what is already stored; hold out a part of every class."""
    loader = learner_loader(resizing, find_device(settings.device), *place_for_photos(settings.engine))
    read = read_for_training(photos, resizing, settings.max_unreadable, loader)
    known = knowledge.class_names if knowledge else ()
    readable = set(read.labels)
    names = (*known, *(name for name in photos.class_names if name in readable and name not in known))
    ids = {name: k for k, name in enumerate(names)}
    images = ImageSet(read.stack, torch.tensor([ids[name] for name in read.labels]), names)
    entries = [Entry(*entry) for entry in zip(images.labels.tolist(), ids_of(images.stack), strict=True)]
    spared = entries_of(knowledge.held_out) if knowledge else set()
    stored = spared | (entries_of(knowledge.exemplars) if knowledge else set())
    is_fresh = torch.tensor([entry not in stored for entry in entries])
    fresh = images.select(is_fresh)
    if not len(fresh):
        raise DataError(f"all {len(images)} images in {photos.title} are kept from earlier learns: nothing to learn")
    fresh_entries = [entry for entry in entries if entry not in stored]
    hashes = [entry.image_hash for entry in fresh_entries]
    trained_before = _trained_before(knowledge, {*entries, *stored}, names)
    mask = is_held_out(fresh, hashes, settings.held_out_share, trained_before, {entry.image_hash for entry in spared})
    train = fresh.select(~mask)
    elsewhere = kept_elsewhere(fresh_entries, stored, names)
    _check_trainable(fresh, train, len(known), elsewhere)
    trained = [image_hash for image_hash, is_spared in zip(hashes, mask.tolist(), strict=True) if not is_spared]
    again = Counter(names[label] for label in fresh.labels.tolist() if label < len(known))
    inventory = Inventory(
        more_of=dict(again),
        num_repeated=len(images) - len(fresh),
        kept_elsewhere=elsewhere,
        shared=shared_photos(entries, names, [item_name(photos.items[k], k) for k in read.positions]),
        empty_classes=(*photos.empty_classes, *(name for name in photos.class_names if name not in readable)),
        passed_over=photos.passed_over,
        unreadable=read.unreadable,
    )
    trained_from = {names[label]: position for label, position in smallest_positions(train, trained).items()}
    held_out = fresh.select(mask)
    # Encoded as a bundle keeps them: whoever loads the bundle measures the same.
    held_out = replace(held_out, stack=held_out.stack.owned())
    return Intake(train, held_out, len(known), len(names) - len(known), inventory, trained_from)


def _trained_before(knowledge: Knowledge | None, entries: set[Entry], class_names: Sequence[str]) -> dict[int, float]:
    """For each class whose photos were learned before, under its name or another, the smallest position trained on.

    Few of the photos that were trained on are kept. Where a class has one picture in common with a known class, others
    of it may have been trained on as that class, too.
    """
    if knowledge is None:
        return {}
    positions = trained_positions(knowledge.history) | knowledge.trained_from  # also of those that were forgotten
    known = {label: positions[name] for label, name in enumerate(class_names) if name in positions}
    before_of = {label: [known[k] for k in others if k in known] for label, others in relatives(entries).items()}
    return known | {label: min(before) for label, before in before_of.items() if before}


def _check_trainable(fresh: ImageSet, train: ImageSet, num_known: int, elsewhere: Sequence[KeptElsewhere]) -> None:
    """Refuse a new class, or a source, of which every photo is kept as another class to be measured on."""
    names, trainable = fresh.class_names, set(train.labels.tolist())
    for label in fresh.labels.unique().tolist():
        if label not in trainable and (label >= num_known or not trainable):
            other = next(entry.kept_as for entry in elsewhere if entry.name == names[label])
            raise DataError(
                f"every photo of '{names[label]}' is already held out as '{other}', so that none may be trained on; "
                f"give more photos of '{names[label]}', or remove these from the bundle (foster forget --image)"
            )


def entries_of(memory: ExemplarMemory) -> set[Entry]:
    """All pictures that a memory keeps."""
    return {Entry(class_id, own) for class_id in range(memory.num_classes) for own in ids_of(memory.stack_of(class_id))}


def classes_of(entries: Iterable[Entry]) -> dict[str, set[int]]:
    """For each picture, the classes it stands in."""
    by_hash: dict[str, set[int]] = defaultdict(set)
    for label, image_hash in entries:
        by_hash[image_hash].add(label)
    return dict(by_hash)


def relatives(entries: Iterable[Entry]) -> dict[int, set[int]]:
    """For each class, all that have a picture in common with it, and itself."""
    by_label: dict[int, set[int]] = defaultdict(set)
    for labels in classes_of(entries).values():
        for label in labels:
            by_label[label] |= labels
    return dict(by_label)


def kept_elsewhere(fresh: Iterable[Entry], kept: Iterable[Entry], names: Sequence[str]) -> tuple[KeptElsewhere, ...]:
    """Which classes of `fresh` hold pictures that are kept as another class, those with most of them first."""
    keepers = classes_of(kept)
    counts = Counter(
        (label, other) for label, image_hash in fresh for other in keepers.get(image_hash, set()) - {label}
    )
    return tuple(
        KeptElsewhere(names[label], names[other], count)
        for (label, other), count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    )


def shared_photos(entries: Sequence[Entry], names: Sequence[str], photo_names: Sequence[str]) -> SharedPhotos | None:
    """What lies in several classes of one source; `photo_names` has the name of each entry's photo."""
    shared = {image_hash: labels for image_hash, labels in classes_of(entries).items() if len(labels) > 1}
    if not shared:
        return None
    position = next(position for position, entry in enumerate(entries) if entry.image_hash in shared)
    labels = shared[entries[position].image_hash]
    return SharedPhotos(len(shared), photo_names[position], tuple(names[label] for label in sorted(labels)))


FEWEST_IMAGES = 3
"""A class with fewer images holds none out."""


def position(image_hash: str) -> float:
    """Where a picture stands between 0 and 1 by the hash of its pixels: it keeps this position for life."""
    return int(image_hash, 16) / 16.0 ** len(image_hash)


def smallest_positions(images: ImageSet, ids: Sequence[str]) -> dict[int, float]:
    """For each class among `images`, the smallest position of its images."""
    smallest: dict[int, float] = {}
    for label, image_hash in zip(images.labels.tolist(), ids, strict=True):
        smallest[label] = min(smallest.get(label, 1.0), position(image_hash))
    return smallest


def is_held_out(
    images: ImageSet,
    ids: Sequence[str],
    share: float,
    trained_from: Mapping[int, float] | None = None,
    spared: Set[str] = frozenset(),
) -> Tensor:
    """A mask `[N]`: of a new class about `share`, at least one image of three or more and never all.

    The choice goes by the hash of the pixels, lowest first: it does not depend on file names, and equal pictures always
    stand on the same side. One that lies in several classes is held out where all of them choose it. `trained_from`
    holds, for every class of which photos were learned before, the smallest position of any that was trained on. Of
    such a class only pictures below that position, and below `share`, are held out: a photo that comes again is never
    measured on once it was trained on. Nor is it trained on once it is kept to be measured on: `spared` are the
    pictures that are held out whatever their class, even all of them.
    """
    members: dict[int, set[str]] = defaultdict(set)
    for label, image_hash in zip(images.labels.tolist(), ids, strict=True):
        members[label].add(image_hash)
    trained: set[str] = set()
    for label, hashes in members.items():
        others = hashes - spared
        trained |= others - _chosen(others, share, (trained_from or {}).get(label))
    return torch.tensor([image_hash not in trained for image_hash in ids], dtype=torch.bool)


def _chosen(hashes: Set[str], share: float, trained_from: float | None) -> set[str]:
    """Those of one class's different pictures that it would hold out."""
    if share == 0 or len(hashes) < FEWEST_IMAGES:
        return set()
    count = max(1, round(len(hashes) * share))
    if trained_from is not None:
        count = sum(position(image_hash) < min(share, trained_from) for image_hash in hashes)
    return set(sorted(hashes)[: min(count, len(hashes) - 1)])


def held_out_quota(quota: int | None, share: float) -> int | None:
    """How many of the `quota` images that a class may keep are held out; None for no limit."""
    if share == 0:
        return 0
    if quota is None:
        return None
    return min(max(1, round(quota * share)), quota - 1)


def fair_quota(total: int, trained: Sequence[int], held_out: Sequence[int], share: float) -> int:
    """How many images each class may keep of `total`, with so many of each class to train on and to hold out: what
    small classes cannot fill goes to the others."""

    def num_kept(quota: int) -> int:
        spared = held_out_quota(quota, share) or 0
        return sum(min(count, quota - spared) for count in trained) + sum(min(count, spared) for count in held_out)

    # The more a class may keep, the more is kept in all.
    candidates = range(total // len(trained), total + 1)
    return candidates[max(0, bisect_right(candidates, total, key=num_kept) - 1)]


def kept_held_out(images: ImageSet, quota: int | None) -> ExemplarMemory:
    """Up to `quota` different images of each class, by the order of their hashes: the same ones every time."""
    memory, ids = ExemplarMemory(), ids_of(images.stack)
    for class_id, positions in enumerate(positions_by_class(images.labels, range(images.num_classes))):
        by_hash = {ids[position]: position for position in positions.tolist()}
        chosen = [by_hash[entry] for entry in sorted(by_hash)][:quota]
        memory.remember(class_id, images.stack[torch.tensor(chosen, dtype=torch.int64)])
    return memory
