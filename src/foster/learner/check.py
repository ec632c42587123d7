"""Photos are checked before they are learned: unreadable files, duplicates, labels that are probably wrong."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from PIL import Image
from torch import Tensor

from foster import events
from foster.data.photos.decode import ImageLike, Resizing, decoded_by, image_id, typical_side
from foster.data.photos.duplicates import Sketch, alike, sketch
from foster.data.photos.find import Photos, Source, find_photos, similar_names
from foster.data.photos.store import none_readable
from foster.learner.classifier import Classifier
from foster.learner.closed_form import frozen_network
from foster.learner.knowledge import Knowledge
from foster.learner.learner import Learner
from foster.learner.plan import classes_of
from foster.learner.suspicion import MIN_PHOTOS, are_suspect, judgeable, left_out_probabilities
from foster.networks.adapted import choose_backbone
from foster.settings.learner_defaults import PRETRAINED, frozen_side_for
from foster.system.counts import counted
from foster.training.engine import find_device

FEW_PHOTOS = 10
"""A class with fewer photos is reported; 20 or more are better."""

VERY_SMALL = 32
"""Photos with a shorter side are reported if most photos are at least four times as large."""

SKETCHED_SIDE = 64
"""The side at which photos are decoded if no network is used."""

LEAST_ACCURACY = 0.6
"""A classifier that agrees with fewer labels than this share cannot judge them."""


class Kind(NamedTuple):
    """A kind of finding. A problem should be mended before learning; anything else is a remark for people to judge."""

    title: str
    is_problem: bool


KINDS = {
    "unreadable": Kind("cannot be read", True),
    "two-classes": Kind("the same photo, or nearly, in two classes", True),
    "in-test": Kind("test photos among the training photos, or nearly the same", True),
    "kept-elsewhere": Kind("already kept in the bundle as another class", True),
    "mislabelled": Kind("probably in the wrong class", False),
    "duplicate": Kind("the same photo several times in a class", False),
    "near-duplicate": Kind("nearly the same photo several times in a class", False),
    "tiny": Kind("very small", False),
    "similar-names": Kind("class names that differ only in case or in how words are joined", False),
    "small-class": Kind("classes with few photos", False),
    "empty-class": Kind("class folders without a photo", False),
}
"""In the order of the report."""


@dataclass(frozen=True, eq=False)
class Photo:
    """A photo by its name, with its class, and the item that it can be decoded from."""

    name: str
    label: str
    item: ImageLike
    is_test: bool = False

    def record(self) -> dict[str, Any]:
        return {"image": self.name, "label": self.label, **({"part": "test"} if self.is_test else {})}


@dataclass(frozen=True, eq=False)
class Finding:
    """One thing that was found, and the photos that it concerns."""

    kind: str
    photos: tuple[Photo, ...]
    detail: str
    looks_like: str | None = None
    """The class that a mislabelled photo probably belongs to."""

    @property
    def is_problem(self) -> bool:
        return KINDS[self.kind].is_problem

    def record(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "kind": self.kind,
            "is_problem": self.is_problem,
            "detail": self.detail,
            **({"looks_like": self.looks_like} if self.looks_like is not None else {}),
            "photos": [photo.record() for photo in self.photos],
        }


@dataclass(frozen=True, eq=False)
class CheckReport:
    """All `findings`, each with its `kind`, `photos` and `detail`, by kind in the order of KINDS."""

    title: str
    class_counts: Mapping[str, int]
    """How many photos each class has, readable or not."""
    num_test_photos: int
    passed_over: Mapping[str, int]
    """How many files were skipped, by the ending of their names or by their kind."""
    findings: tuple[Finding, ...]
    remarks: tuple[str, ...] = ()
    """What was not checked, and why."""

    @property
    def num_photos(self) -> int:
        return sum(self.class_counts.values())

    @property
    def problems(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.is_problem)

    def of_kind(self, kind: str) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.kind == kind)

    def __str__(self) -> str:
        others = len(self.findings) - len(self.problems)
        what = f"{counted(self.num_photos, 'photo')} of {counted(len(self.class_counts), 'class')}"
        return f"{what}: {counted(len(self.problems), 'problem')} and {counted(others, 'remark')}"

    def record(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "source": self.title,
            "photos": self.num_photos,
            "test_photos": self.num_test_photos,
            "classes": dict(self.class_counts),
            "passed_over": dict(self.passed_over),
            "problems": len(self.problems),
            "findings": [finding.record() for finding in self.findings],
            "remarks": list(self.remarks),
        }


@dataclass(frozen=True, eq=False)
class _Seen:
    """A readable photo with its sketch and, if there is a network, the hash of the resized image, a bundle's
    probabilities `[C]` and features `[d]`."""

    photo: Photo
    size: tuple[int, int]
    sketch: Sketch
    image_hash: str
    probability: Tensor
    features: Tensor


def classifier_for(learner: Learner | None, device: str) -> Classifier:
    """The classifier of the bundle; without a bundle, the pretrained backbone, which has no classes."""
    if learner is not None:
        return learner.classifier()
    side = frozen_side_for(on_gpu=False)  # the same findings on every device
    resizing = Resizing(side, side)
    network, preprocessing = frozen_network(choose_backbone(PRETRAINED, resizing.size), resizing)
    return Classifier(network, preprocessing).to(find_device(device))


def check_photos(
    source: Source,
    bundle: str | Path | Learner | None = None,
    test: Source | None = None,
    *,
    has_labels_judged: bool = True,
    device: str = "auto",
    listener: events.Listener = events.ignore,
) -> CheckReport:
    """Check photos from any source that `learn` accepts: a folder with a subfolder a class, a CSV, labelled images.

    ```python
    for finding in foster.check_photos("photos/february", bundle="bundles/current").findings:
        print(finding.kind, finding.detail, [photo.name for photo in finding.photos])
    ```

    Labels of classes that the `bundle` knows are judged by its probabilities. Other labels, and those of photos that
    the bundle has learned, are judged by discriminants of the other photos. Photos of `test` that are also in `source`
    are reported.
    """
    photos = find_photos(source)
    others = find_photos(test) if test is not None else None
    learner = Learner.load(bundle, device=device) if isinstance(bundle, str | Path) else bundle
    classifier = classifier_for(learner, device) if has_labels_judged or learner else None
    # The same side for both: large JPEGs are decoded at a size that depends on it, and copies must be found.
    side = max(classifier.image_size) if classifier else SKETCHED_SIDE
    seen, findings = _look(photos, side, classifier, listener)
    tests, unreadable = _look(others, side, None, listener, is_test=True) if others else ([], [])
    everything = [*seen, *tests]
    findings += [*unreadable, *_small(photos, everything)]
    known = learner.knowledge if learner else None
    for names in similar_names(photos.class_names, known.class_names if known else ()):
        findings.append(Finding("similar-names", (), " and ".join(names)))
    groups = alike([one.sketch for one in everything])
    findings += _doubles(everything, groups)
    if known is not None:
        findings += _kept_elsewhere(seen, known)
    mislabelled, remarks = _mislabelled(seen, groups, known) if has_labels_judged else ([], [])
    findings += mislabelled
    order = list(KINDS)
    return CheckReport(
        photos.title.strip("'"),
        Counter(photos.labels),
        len(others) if others else 0,
        photos.passed_over,
        tuple(sorted(findings, key=lambda finding: order.index(finding.kind))),
        tuple(remarks),
    )


def _look(
    photos: Photos, side: int, classifier: Classifier | None, listener: events.Listener, is_test: bool = False
) -> tuple[list[_Seen], list[Finding]]:
    """Decode every photo once; unreadable ones become findings."""
    resizing = Resizing(*classifier.image_size) if classifier else None

    def look(picture: Image.Image) -> tuple[tuple[int, int], Sketch, Tensor | None]:
        return picture.size, sketch(picture), resizing(picture) if resizing else None

    def photo(position: int) -> Photo:
        return Photo(photos.name(position), photos.labels[position], photos.items[position], is_test)

    seen: list[_Seen] = []
    reasons: dict[int, str] = {}
    for batch in decoded_by(photos.items, look, side):
        reasons |= batch.unreadable
        images = [image for _, _, image in batch.results.values() if image is not None]
        hashes = [image_id(image) for image in images] or [""] * len(batch.results)
        nothing = torch.empty(len(batch.results), 0)
        described = classifier.described(torch.stack(images)) if classifier and images else (nothing, nothing)
        for (k, (size, drawn, _)), *facts in zip(batch.results.items(), hashes, *described, strict=True):
            seen.append(_Seen(photo(k), size, drawn, *facts))
        listener(events.Decoding(photos.title.strip("'"), batch.num_done, len(photos)))
    if not seen:
        raise none_readable(photos.unreadable(reasons), photos.title)
    return seen, [Finding("unreadable", (photo(k),), reason) for k, reason in reasons.items()]


def _small(photos: Photos, seen: Sequence[_Seen]) -> list[Finding]:
    """Very small photos, and classes of few photos or none."""
    limit = min(VERY_SMALL, typical_side([one.size for one in seen]) // 4)
    readable = Counter(one.photo.label for one in seen if not one.photo.is_test)
    few = {name: counted(readable[name], "photo") for name in photos.class_names if readable[name] < FEW_PHOTOS}
    tiny = [(one.photo, f"{one.size[0]} x {one.size[1]} pixels") for one in seen if min(one.size) < limit]
    return [
        *(Finding("tiny", (photo,), size) for photo, size in tiny),
        *(Finding("small-class", (), f"{name}: {count}") for name, count in few.items()),
        *(Finding("empty-class", (), name) for name in photos.empty_classes),
    ]


def _doubles(seen: Sequence[_Seen], groups: Sequence[Sequence[int]]) -> list[Finding]:
    """Groups of equal or nearly equal photos: in one class, in several, or among the test photos."""
    findings = []
    for group in groups:
        photos = tuple(seen[k].photo for k in group)
        is_same = len({seen[k].sketch.pixels for k in group}) == 1
        same = "the same" if is_same else "nearly the same"
        trained = tuple(photo for photo in photos if not photo.is_test)
        labels = list(dict.fromkeys(photo.label for photo in trained))
        if len(trained) < len(photos) and trained:
            findings.append(Finding("in-test", photos, f"{same} photo"))
        if len(labels) > 1:
            findings.append(Finding("two-classes", trained, f"{same} photo in {' and '.join(labels)}"))
        elif len(trained) > 1:
            kind = "duplicate" if is_same else "near-duplicate"
            findings.append(Finding(kind, trained, f"{same} photo {len(trained)} times in {labels[0]}"))
    return findings


def _kept_elsewhere(seen: Sequence[_Seen], known: Knowledge) -> list[Finding]:
    """Photos that the bundle keeps under another class, compared pixel by pixel at the network's size."""
    kept = classes_of(known.entries())
    findings = []
    for one in seen:
        classes = sorted(known.class_names[label] for label in kept.get(one.image_hash, ()))
        if classes and one.photo.label not in classes:
            findings.append(Finding("kept-elsewhere", (one.photo,), f"kept as {' and '.join(classes)}"))
    return findings


def _mislabelled(
    seen: Sequence[_Seen], groups: Sequence[Sequence[int]], knowledge: Knowledge | None
) -> tuple[list[Finding], list[str]]:
    """Labels that are probably wrong. The bundle judges photos of classes that it knows, except photos that it has
    learned; the others are judged by the rest of the photos."""
    labels = [one.photo.label for one in seen]
    known = knowledge.class_names if knowledge else ()
    learned = knowledge.learned_ids() if knowledge else set()
    findings: list[Finding] = []
    remarks: list[str] = []
    by_bundle = [one for one in seen if one.photo.label in known and one.image_hash not in learned]
    if by_bundle:
        probability = torch.stack([one.probability for one in by_bundle])
        findings, remarks = _judged([one.photo for one in by_bundle], probability, known, "the bundle")
    others = {one.photo for one in seen} - {one.photo for one in by_bundle}
    group_of = {k: number for number, group in enumerate(groups) for k in group}
    alike_as = [group_of.get(k, len(groups) + k) for k in range(len(labels))]
    names = judgeable(labels, alike_as)
    if len(names) > 1 and any(photo.label in names for photo in others):
        positions = [k for k, label in enumerate(labels) if label in names]
        features = torch.stack([seen[k].features for k in positions])
        ids = torch.tensor([names.index(labels[k]) for k in positions])
        probability = left_out_probabilities(features, ids, [alike_as[k] for k in positions])
        accused, doubts = _judged([seen[k].photo for k in positions], probability, names, "a simple classifier")
        findings += [finding for finding in accused if finding.photos[0] in others]
        remarks += doubts
    elif others:
        needed = f"two classes of {MIN_PHOTOS} different photos or more"
        remarks.append(f"labels of {counted(len(others), 'photo')} were not judged: that needs {needed}")
    return findings, remarks


def _judged(
    photos: Sequence[Photo], probability: Tensor, names: Sequence[str], judge_name: str
) -> tuple[list[Finding], list[str]]:
    """Labels that are improbable by probabilities `[N, C]` of the classes `names`, the least probable first; and the
    reason, if they were not judged."""
    labels = torch.tensor([names.index(photo.label) for photo in photos])
    accuracy = float((probability.argmax(1) == labels).double().mean())
    if accuracy < LEAST_ACCURACY:
        agreed = f"which agrees with only {100 * accuracy:.0f} % of them"
        return [], [f"labels were not judged by {judge_name}, {agreed}: they would be judged by chance"]
    as_labelled = probability.gather(1, labels[:, None])[:, 0]
    highest, best = probability.max(1)
    suspects = are_suspect(probability, labels).nonzero()[:, 0]
    accused = [
        Finding(
            "mislabelled",
            (photos[k],),
            f"looks like {names[int(best[k])]} ({100 * highest[k]:.0f} %; as labelled {100 * as_labelled[k]:.0f} %)",
            names[int(best[k])],
        )
        for k in suspects[(as_labelled - highest)[suspects].argsort()].tolist()
    ]
    return accused, []
