"""Pictures that stand in more than one class, pixel for pixel: in what is learned, and in what is kept of before."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from foster.data.images import ids_of
from foster.data.memory import ExemplarMemory


class Entry(NamedTuple):
    """A picture in a class: the class's id and the hash of the pixels."""

    label: int
    image_hash: str


@dataclass(frozen=True)
class KeptElsewhere:
    """How many photos of one class are already kept as another."""

    name: str
    kept_as: str
    num_photos: int


@dataclass(frozen=True)
class SharedPhotos:
    """How many different photos of one source lie in more than one class, and which one does, for example."""

    num_photos: int
    example: str
    class_names: tuple[str, ...]
    """The classes of the example."""


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
