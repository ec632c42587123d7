"""A look at photos before anything is trained: what cannot be read, what is there twice, what may be mislabelled."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from PIL import Image
from torch import Tensor

from foster import events
from foster.data.photos.decode import ImageError
from foster.data.photos.likeness import Sketch, alike, sketch
from foster.data.photos.pixels import image_id
from foster.data.photos.read import Photos, Unreadable, each_decoded, item_name, none_readable
from foster.data.photos.resize import typical_side
from foster.data.photos.sources import Source, find_photos
from foster.errors import DataError
from foster.learner.check_report import KINDS, CheckReport, Finding, Photo
from foster.learner.describing import Describer, describer_for
from foster.learner.duplicates import classes_of, entries_of
from foster.learner.learner import Learner
from foster.learner.suspicion import MIN_PHOTOS, Judgement, cross_validated, judge, judgeable

FEW_PHOTOS = 10
"""A class with fewer is told of: a learner wants 20 or more."""

VERY_SMALL = 32
"""Shorter sides below this are told of, where most photos are four times as large or more."""

LOOKED_AT_ONCE = 256


class _Seen(NamedTuple):
    """What one decoding of a photo gives."""

    size: tuple[int, int]
    sketch: Sketch
    image: Tensor | None


@dataclass(frozen=True, eq=False)
class _Look:
    """The readable photos of the source and then of the test folder, sketched, with what a network says of the former:
    features `[N, d]`, probabilities `[N, C]` and hashes of the resized images, where there is one."""

    photos: list[Photo]
    sketches: list[Sketch]
    sizes: list[tuple[int, int]]
    features: Tensor | None
    probability: Tensor | None
    hashes: list[str]


def check_photos(
    source: Source,
    bundle: str | Path | Learner | None = None,
    test: Source | None = None,
    *,
    has_labels_judged: bool = True,
    device: str = "auto",
    listener: events.Listener = lambda event: None,
) -> CheckReport:
    """Look at the photos of a folder, as `learn` reads it: a subfolder a class, a CSV, or images with labels.

    Labels are judged by probabilities of photos that were not trained on: the `bundle`'s for classes that it knows,
    else by cross-validation of simple discriminants of pretrained features. Photos of `test` must not be among them.
    """
    photos = find_photos(source)
    others = find_photos(test) if test is not None else None
    learner = Learner.load(bundle, device=device) if isinstance(bundle, str | Path) else bundle
    describer, remarks = describer_for(learner, device) if has_labels_judged or learner else (None, [])
    remarks = [*([photos.doubt] if photos.doubt else []), *remarks]
    look, findings = _look(photos, others, describer, listener)
    findings += _small(photos, look)
    groups = alike(look.sketches)
    findings += _doubles(look, groups)
    if learner is not None:
        findings += _kept_elsewhere(look, learner)
    if has_labels_judged and look.features is not None:
        found, said = _mislabelled(look, groups, learner)
        findings += found
        remarks += said
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
    photos: Photos, others: Photos | None, describer: Describer | None, listener: events.Listener
) -> tuple[_Look, list[Finding]]:
    """Decode every photo once; what cannot be read is found."""
    findings: list[Finding] = []
    look = _Look([], [], [], None, None, [])
    features: list[Tensor] = []
    probabilities: list[Tensor] = []
    for part, is_test in ((photos, False), *(((others, True),) if others else ())):
        images: list[Tensor] = []
        for position, seen in enumerate(_decoded(part, None if is_test else describer)):
            item = part.items[position]
            photo = Photo(item_name(item, position), part.labels[position], item, is_test)
            if isinstance(seen, ImageError):
                findings.append(Finding("unreadable", (photo,), str(seen)))
            else:
                look.photos.append(photo)
                look.sketches.append(seen.sketch)
                look.sizes.append(seen.size)
                images += [seen.image] if seen.image is not None else []
            is_last = position + 1 == len(part)
            if describer and images and (len(images) == LOOKED_AT_ONCE or is_last):
                probability, feature = describer.described(torch.stack(images))
                features.append(feature)
                probabilities += [probability] if probability is not None else []
                look.hashes.extend(map(image_id, images))
                images.clear()
            if is_last or (position + 1) % LOOKED_AT_ONCE == 0:
                listener(events.Decoding(part.title.strip("'"), position + 1, len(part)))
        if not any(photo.is_test == is_test for photo in look.photos):
            raise none_readable([Unreadable(one.photos[0].name, one.detail) for one in findings], part)
    described = torch.cat(features) if features else None
    return replace(look, features=described, probability=torch.cat(probabilities) if probabilities else None), findings


def _decoded(photos: Photos, describer: Describer | None) -> Iterator[_Seen | ImageError]:
    resizing = describer.resizing if describer else None

    def seen(picture: Image.Image) -> _Seen:
        return _Seen(picture.size, sketch(picture), resizing(picture) if resizing else None)

    return each_decoded(photos.items, seen, max(resizing.size) if resizing else 64)


def _small(photos: Photos, look: _Look) -> list[Finding]:
    """Very small photos, and classes of few photos or none."""
    findings = []
    limit = min(VERY_SMALL, typical_side(look.sizes) // 4)
    for photo, size in zip(look.photos, look.sizes, strict=True):
        if min(size) < limit:
            findings.append(Finding("tiny", (photo,), f"{size[0]} x {size[1]} pixels"))
    readable = Counter(photo.label for photo in look.photos if not photo.is_test)
    for name in photos.class_names:
        if readable[name] < FEW_PHOTOS:
            what = "photo" if readable[name] == 1 else "photos"
            findings.append(Finding("small-class", (), f"{name}: {readable[name]} {what}"))
    return findings + [Finding("empty-class", (), name) for name in photos.empty_classes]


def _doubles(look: _Look, groups: Sequence[Sequence[int]]) -> list[Finding]:
    """Photos that are the same or nearly: in one class, in several, and among the test photos."""
    findings = []
    for group in groups:
        photos = tuple(look.photos[k] for k in group)
        is_same = len({look.sketches[k].pixels for k in group}) == 1
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


def _kept_elsewhere(look: _Look, learner: Learner) -> list[Finding]:
    """Photos that the bundle keeps, pixel for pixel at the network's size, as another class than they lie in."""
    known = learner.knowledge
    if known is None:
        raise DataError("this learner has not learned anything yet; call learn first")
    kept = classes_of(entries_of(known.exemplars) | entries_of(known.held_out))
    findings = []
    for photo, image_hash in zip(look.photos, look.hashes, strict=False):
        classes = sorted(known.class_names[label] for label in kept.get(image_hash, ()))
        if classes and photo.label not in classes:
            findings.append(Finding("kept-elsewhere", (photo,), f"kept as {' and '.join(classes)}"))
    return findings


def _mislabelled(
    look: _Look, groups: Sequence[Sequence[int]], learner: Learner | None
) -> tuple[list[Finding], list[str]]:
    """Probably wrong labels: of classes that the bundle knows by its probabilities, of others by cross-validation."""
    assert look.features is not None
    labels = [photo.label for photo in look.photos if not photo.is_test]
    known = learner.class_names if learner else ()
    findings: list[Finding] = []
    remarks: list[str] = []
    if learner is not None and look.probability is not None and set(labels) & set(known):
        knowledge = learner.knowledge
        assert knowledge is not None
        trained = knowledge.exemplars.ids()
        chosen = [k for k, label in enumerate(labels) if label in known and look.hashes[k] not in trained]
        if num_trained := sum(label in known for label in labels) - len(chosen):
            remarks.append(f"labels were not judged of photos that the bundle keeps and was trained on: {num_trained}")
        if chosen:
            judgement = judge(look.probability[chosen], torch.tensor([known.index(labels[k]) for k in chosen]))
            findings += _accused(look, chosen, judgement, known)
            remarks += _doubted(judgement, "the bundle")
    group_of = {k: number for number, group in enumerate(groups) for k in group}
    alike_as = [group_of.get(k, len(groups) + k) for k in range(len(labels))]
    names = judgeable(labels, alike_as)
    if set(names) - set(known) and len(names) > 1:
        chosen = [k for k, label in enumerate(labels) if label in names]
        ids = torch.tensor([names.index(labels[k]) for k in chosen])
        judgement = judge(cross_validated(look.features[chosen], ids, [alike_as[k] for k in chosen]), ids)
        accused = _accused(look, chosen, judgement, names)
        findings += [finding for finding in accused if finding.photos[0].label not in known]
        remarks += _doubted(judgement, "a simple classifier")
    elif not findings and not set(labels) & set(known):
        remarks.append(f"labels were not judged: that takes two classes of {MIN_PHOTOS} different photos or more")
    return findings, remarks


def _accused(look: _Look, chosen: Sequence[int], judgement: Judgement, names: Sequence[str]) -> list[Finding]:
    return [
        Finding(
            "mislabelled",
            (look.photos[chosen[one.position]],),
            f"looks like {names[one.other]} ({one.other_probability:.0%}; as labelled {one.own_probability:.0%})",
            names[one.other],
        )
        for one in judgement.suspects
    ]


def _doubted(judgement: Judgement, who: str) -> list[str]:
    if judgement.is_trusted:
        return []
    agreed = f"{100 * judgement.accuracy:.0f} % of them"
    return [f"labels were not judged by {who}, which agrees with only {agreed}: they would be judged by chance"]
