"""A `learn` with a frozen backbone, in the order in which it happens.

The features of each new photo are computed once and added to the sums over all photos. The head is computed from the
sums. Each photo is measured with the head of all other photos.
"""

import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from PIL import Image
from torch import Tensor

from foster import events
from foster.bundle.folder import ImageFiles
from foster.bundle.manifest import Preprocessing
from foster.data.images import digest
from foster.data.photos.decode import Resizing, decoded_by, image_id, jpeg_of, png_of, shrunk
from foster.data.photos.find import Unreadable
from foster.data.photos.reading import keeps_photos, kept_side
from foster.data.photos.store import none_readable, refuse_too_many
from foster.errors import SettingsError
from foster.learner.calibration import USUAL_SPREAD, fit_temperature, probabilities, spread_of
from foster.learner.classifier import Classifier, one_thread
from foster.learner.familiarity import Familiarity
from foster.learner.feature_store import NOT_MEASURED, FeatureStore, with_smallest_ids
from foster.learner.knowledge import KeptImages, Knowledge
from foster.learner.plan import Found, Plan
from foster.learner.reports import LearnReport, UpdateCheck, compare
from foster.learner.work_folder import WorkFolder
from foster.networks.adapted import BackboneChoice
from foster.networks.heads import RootHead
from foster.networks.network import Network
from foster.networks.statistics import Statistics, discriminants_of_few, left_out_scores, unit_roots
from foster.settings.learner import CLOSED_FORM, LearnerSettings
from foster.system.counts import counted
from foster.training.engine import find_device

TRAINING_KEYS = ("training", "epochs_scale", "learning_rate_scale", "augmentation")
"""Settings that have an effect only if a network is trained."""

MOST_MEASURED = 2000
"""The most photos that are measured, divided equally among classes, but at least one of each: more would hardly change
the accuracy."""


def _without_effect(plan: Plan) -> list[str]:
    """The settings that were changed, but have an effect only if a network is trained."""
    settings, usual = plan.settings, type(plan.settings.options)()
    changed = [key for key in TRAINING_KEYS if getattr(settings, key) != LearnerSettings.model_fields[key].default]
    return changed + [f"{settings.section}.{key}" for key, value in settings.options if value != getattr(usual, key)]


def learn_in_closed_form(plan: Plan) -> tuple[Knowledge, LearnReport]:
    """Compute features, add them, solve, measure."""
    before, settings, known = plan.before, plan.settings, plan.known
    if before is None:
        network, preprocessing = frozen_network(plan.backbone, plan.resizing)
    else:
        network, preprocessing = before.network, before.preprocessing
    classifier = Classifier(network, preprocessing).to(find_device(settings.device))
    quota = settings.memory_per_class
    if quota is None:
        quota = settings.memory_budget // len({*known, *plan.photos.class_names})
    if unused := _without_effect(plan):
        plan.warn(f"nothing is trained in closed form; without effect: {', '.join(unused)} (method=foster trains)")
    plan.listener(_planned(plan))
    found, new_features, files = compute_features(plan, classifier, quota)
    class_names, num_classes = found.class_names, len(found.class_names)
    with one_thread():
        store = before.store if before and before.store else FeatureStore.empty(network.feature_size)
        last_answers = torch.cat([store.answers, _answers_before(before, found.labels, new_features)])
        store = store.added(new_features, found.labels, found.ids, num_classes, settings.features_per_class)
        rows, features = store.measurable(new_features)
        labels = store.labels[rows]
        solved = solve(store.statistics, features, labels, tuple(store.ids[k] for k in rows.tolist()))
        measured = rows[solved.positions]
        check = compared(last_answers[measured], labels[solved.positions], solved.answers, class_names, len(known))
    kept = _kept(before, class_names, files, quota)
    after = Knowledge(
        class_names=class_names,
        task_sizes=(num_classes,),
        method=CLOSED_FORM,
        backbone=plan.backbone.name,
        preprocessing=preprocessing,
        network=Network(network.frozen_branches(), solved.head),
        exemplars=KeptImages(kept, plan.resizing),
        held_out=KeptImages([()] * num_classes, plan.resizing),
        temperature=solved.temperature or 1.0,
        num_calibration_images=len(measured) if solved.temperature else 0,
        history=before.history if before else (),
        familiarity=solved.familiarity,
        store=store.with_answers(measured, solved.answers),
    )
    report = replace(
        found.report,
        num_trained=len(found.ids),
        num_exemplars=sum(map(len, kept)),
        seconds=round(time.monotonic() - plan.began, 1),
        temperature=after.temperature,
        checks=(check,) if check.classes else (),
        uncompared=tuple(name for name in known if name not in {entry.name for entry in check.classes}),
    )
    return after.learned(plan.photos.title, report, classifier.device), report


def frozen_network(choice: BackboneChoice, resizing: Resizing) -> tuple[Network, Preprocessing]:
    """A pretrained backbone with a head without classes, and the preprocessing of its images."""
    mean, std = choice.mean, choice.std
    if mean is None or std is None:
        raise SettingsError(
            f"method: the closed form needs a pretrained backbone, and '{choice.name}' starts from random "
            "weights; give weights=FILE.safetensors, or method=foster, which trains it"
        )
    backbone = choice.make()
    preprocessing = Preprocessing.model_validate({**vars(resizing), "mean": mean, "std": std})
    return Network([backbone], RootHead(backbone.feature_size, 0)), preprocessing


def _planned(plan: Plan) -> events.LearnPlanned:
    photos, known = plan.photos, plan.known
    new = [name for name in photos.class_names if name not in known]
    beside = f"; {counted(len(known), 'class')} known" if known else ""
    what = f"{counted(len(photos), 'photo')}{beside}"
    lines = plan.lines(new, what, "pretrained, frozen", "the head is computed from the features of all photos")
    return events.LearnPlanned(lines)


class Seen(NamedTuple):
    """A photo as the network sees it, uint8 `[3, H, W]`, with its id, and encoded as it is kept."""

    image: Tensor
    id: str
    content: bytes


def compute_features(
    plan: Plan, classifier: Classifier, quota: int
) -> tuple[Found, Tensor, dict[str, dict[str, bytes]]]:
    """Decode every photo once, some at a time, and compute the features of those that are not known yet.

    Returns these photos, their features as they are stored, float16 `[N, d]`, and of each class up to `quota` photos by
    their ids, encoded as they are kept.
    """
    source, resizing = plan.photos, plan.resizing
    store = plan.before.store if plan.before else None
    stored = store.entries() if store else set()
    taken = {(plan.known[label], photo_id) for label, photo_id in stored}
    backbone_key = digest(classifier.network.branches.state_dict()) if plan.work else ""
    positions: list[int] = []
    ids: list[str] = []
    features: list[Tensor] = []
    files: dict[str, dict[str, bytes]] = {}
    unreadable: list[Unreadable] = []

    def see(picture: Image.Image) -> Seen:
        plan.stop.raise_if_set()  # a batch of large photos takes long
        image = resizing(picture)
        return Seen(image, image_id(image), _encoded(picture, image, resizing) if quota else b"")

    for batch in decoded_by(source.items, see, max(resizing.size)):
        unreadable += source.unreadable(batch.unreadable)
        refuse_too_many(unreadable, len(source), source.title, plan.settings.max_unreadable)
        positions += batch.results
        new: list[Seen] = []
        for position, seen in batch.results.items():
            ids.append(seen.id)
            photo = source.labels[position], seen.id
            if photo not in taken:
                taken.add(photo)
                new.append(seen)
                if quota:  # photos with the smallest ids are kept: a sample that does not depend on their order
                    kept = files.setdefault(source.labels[position], {})
                    kept[seen.id] = seen.content
                    if len(kept) > quota:
                        del kept[max(kept)]
        if new:
            features.append(_features_of(new, classifier, plan.work, backbone_key))
        plan.listener(events.Decoding(source.title.strip("'"), batch.num_done, len(source)))
        plan.stop.raise_if_set()
    if not ids:
        raise none_readable(unreadable, source.title)
    found = plan.found(positions, ids, stored, unreadable)
    return found, torch.cat(features), files


def _encoded(picture: Image.Image, image: Tensor, resizing: Resizing) -> bytes:
    """A photo as it is kept: a JPEG a seventh larger than the network's image or, if that is small, a PNG of it."""
    if keeps_photos(resizing):
        return jpeg_of(shrunk(picture, kept_side(resizing)))
    return png_of(image.permute(1, 2, 0).numpy())


def _features_of(photos: Sequence[Seen], classifier: Classifier, work: WorkFolder | None, backbone_key: str) -> Tensor:
    """Stored features `[n, d]` of photos; those that an interrupted learn has saved are read."""
    images = torch.stack([photo.image for photo in photos])
    if work is None:
        return stored_features(classifier.features(images))
    key = digest({}, backbone_key, [photo.id for photo in photos])[:32]
    saved = work.saved_features(key)
    if saved is None:
        saved = stored_features(classifier.features(images))
        work.save_features(key, saved)
    return saved


def _answers_before(before: Knowledge | None, labels: Tensor, features: Tensor) -> Tensor:
    """The answer of the classifier before this learn for each new photo of a known class, int64 `[N]`; else
    NOT_MEASURED."""
    answers = torch.full_like(labels, NOT_MEASURED)
    if before is not None:
        is_known = labels < len(before.class_names)
        head = before.network.head
        assert isinstance(head, RootHead)
        weight, bias = head.weight.detach().cpu(), head.bias.detach().cpu()
        answers[is_known] = (features[is_known].float() @ weight.T + bias).argmax(1)
    return answers


def compared(before: Tensor, labels: Tensor, after: Tensor, class_names: Sequence[str], num_known: int) -> UpdateCheck:
    """Accuracy by class of the answers `before` and `after`, all `[n]`. A photo of a known class that was not measured
    before does not count."""
    counts = (labels >= num_known) | (before != NOT_MEASURED)
    return compare("held-out", labels[counts], before[counts], after[counts], class_names, num_known)


def _kept(
    before: Knowledge | None, class_names: Sequence[str], new: Mapping[str, Mapping[str, bytes]], quota: int
) -> list[ImageFiles]:
    """Up to `quota` photos of each class: those with the smallest ids among the kept and the new ones."""
    kept = before.exemplars.files if before else ()
    by_class = []
    for class_id, name in enumerate(class_names):
        files = dict(kept[class_id]) if class_id < len(kept) else {}
        files |= new.get(name, {})
        by_class.append(tuple(sorted(files.items())[:quota]))
    return by_class


def stored_features(features: Tensor) -> Tensor:
    """Features `[N, d]` as they are remembered and summed: roots of unit length, in half precision, on the CPU."""
    return unit_roots(features).half().cpu()


@dataclass(frozen=True, eq=False)
class Solved:
    """A head, and the scores of photos by leave-one-out: each is scored by the head of all others."""

    head: RootHead
    positions: Tensor
    """Which of the photos given were measured, int64 `[n]`."""
    scores: Tensor
    """Their scores `[n, C]`, on the scale of the head."""
    temperature: float | None
    familiarity: Familiarity | None
    """The temperature and the familiarity are None if too few photos were measured."""

    @property
    def answers(self) -> Tensor:
        """The predicted class ids of these photos, int64 `[n]`."""
        return self.scores.argmax(1)


def solve(
    statistics: Statistics, features: Tensor, labels: Tensor, ids: tuple[str, ...], scale: float | None = None
) -> Solved:
    """The head computed from `statistics`, which include the photos of stored `features` `[n, d]`; each of these is
    measured by the head of all other photos. A photo without another one of its class is not measured.

    Scores are divided by `scale`. The default gives the scores of left-out photos the usual spread, so that a
    temperature of 1 is a good guess.
    """
    positions = _measured(labels, ids, statistics.num_classes)
    scores, is_judged = left_out_scores(statistics, features[positions], labels[positions])
    positions, scores = positions[is_judged], scores[is_judged]
    weight, bias = discriminants_of_few(statistics)
    weight, bias = weight - weight.mean(0), bias - bias.mean()
    if scale is None or not scale > 0:
        scale = spread_of(scores) / USUAL_SPREAD if len(scores) else 0.0
    if not scale > 0:
        scale = float(weight.norm()) or 1.0
    head = RootHead.from_values((weight / scale).float(), (bias / scale).float())
    scores, labels = (scores / scale).float(), labels[positions]
    temperature = fit_temperature(scores, labels)
    familiarity = None
    if temperature:
        probability = probabilities(scores, temperature)
        familiarity = Familiarity.left_out(statistics, features[positions], labels, probability)
    return Solved(head, positions, scores, temperature, familiarity)


def scale_of(statistics: Statistics, head: RootHead) -> float:
    """The scale by which the scores of `head` were divided when it was computed from these statistics."""
    weight, _ = discriminants_of_few(statistics)
    return float((weight - weight.mean(0)).norm()) / max(float(head.weight.detach().norm()), 1e-12)


def _measured(labels: Tensor, ids: tuple[str, ...], num_classes: int) -> Tensor:
    """Positions of up to MOST_MEASURED photos, ascending."""
    sizes = torch.bincount(labels, minlength=num_classes)
    # Larger classes get what small classes do not use.
    quotas = range(MOST_MEASURED + 1)
    quota = max(1, bisect_right(quotas, MOST_MEASURED, key=lambda most: int(sizes.clamp_max(most).sum())) - 1)
    return with_smallest_ids(labels, ids, quota)
