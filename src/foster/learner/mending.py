"""Mending a classifier without training: rename a class, merge several into one, forget some."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from foster.data.images import ImageSet, concatenate, ids_of
from foster.data.photos.find import class_name
from foster.errors import DataError, suggestion
from foster.evaluation.predict import class_means, nearest_mean_scores
from foster.learner.calibration import fit_temperature, probabilities
from foster.learner.classifier import Classifier
from foster.learner.knowledge import Change, Knowledge
from foster.learner.regrouping import Regrouping, regrouped
from foster.learner.reports import UNKNOWN, MendReport, Remains
from foster.learner.update_check import UpdateCheck, compare, problem
from foster.settings.learner import LearnerSettings
from foster.training.engine import find_device

MAX_DROP = 1.0
"""By how many points the classes may fall where nobody says it."""


def rename(knowledge: Knowledge, old: str, new: str) -> Change[MendReport]:
    """The class `old` is called `new` from now on; nothing else changes."""
    class_id, name = _known_id(knowledge, old), _folder_name(new, "the new name")
    if name == knowledge.class_names[class_id]:
        raise DataError(f"'{name}' is the class's name already")
    if name in knowledge.class_names:
        raise DataError(f"there is a class '{name}' already; merge makes one class of two")
    names = list(knowledge.class_names)
    names[class_id] = name
    report = MendReport(renamed={knowledge.class_names[class_id]: name})
    return Change(replace(knowledge, class_names=tuple(names)).with_entry(report.record()), report)


def _folder_name(text: str, origin: str) -> str:
    """A name for a class that a folder of its photos can have, too."""
    name = class_name(text, origin)
    if "/" in name or "\\" in name or name.startswith("."):
        raise DataError(
            f"no folder of photos can be called '{name}' ({origin}); choose one without slashes or a first dot"
        )
    if name == UNKNOWN:
        raise DataError(
            f"photos of things never learned are called '{name}', in answers and in test folders; choose another name "
            f"({origin})"
        )
    return name


def merging(knowledge: Knowledge, names: Sequence[str], into: str) -> Regrouping:
    """How classes are grouped where some of them become one, named `into`, in the place of the first; a DataError where
    they cannot."""
    ids = sorted({_known_id(knowledge, name) for name in names})
    if len(ids) < 2:
        raise DataError("merge takes two different classes or more; rename gives one class another name")
    name = _folder_name(into, "the merged class")
    if name in knowledge.class_names and knowledge.class_names.index(name) not in ids:
        raise DataError(f"there is a class '{name}' already; name it among the classes to merge, or choose another")
    groups = [tuple(ids) if k == ids[0] else (k,) for k in range(knowledge.num_classes) if k not in ids[1:]]
    class_names = [name if group[0] == ids[0] else knowledge.class_names[group[0]] for group in groups]
    return Regrouping(tuple(groups), tuple(class_names))


def merge(
    knowledge: Knowledge, settings: LearnerSettings, names: Sequence[str], into: str, max_drop: float | None
) -> Change[MendReport]:
    """Several classes become one; its probability is the sum of theirs, as nearly as one row of the head gives it."""
    regrouping = merging(knowledge, names, into)
    seen = _Seen(knowledge, settings)
    after = regrouped(knowledge, settings, regrouping, seen.features)
    (merged_id,) = regrouping.merged
    report = MendReport(
        renamed={knowledge.class_names[k]: after.class_names[merged_id] for k in regrouping.groups[merged_id]},
        num_exemplars=len(after.exemplars.stack_of(merged_id)),
        num_held_out=len(after.held_out.stack_of(merged_id)) if after.held_out.num_classes else 0,
    )
    return _measured(seen, after, regrouping, report, max_drop)


def forgetting(knowledge: Knowledge, names: Sequence[str]) -> Regrouping:
    """The classes without some of them; a DataError where they cannot go."""
    ids = {_known_id(knowledge, name) for name in names}
    if not ids:
        raise DataError("name a class to forget")
    staying = [k for k in range(knowledge.num_classes) if k not in ids]
    if not staying:
        last = f"'{knowledge.class_names[0]}' is the last class" if len(ids) == 1 else "no class would be left"
        raise DataError(f"{last}: a classifier knows one at least; delete the bundle instead")
    return Regrouping(tuple((k,) for k in staying), tuple(knowledge.class_names[k] for k in staying))


def forget(
    knowledge: Knowledge, settings: LearnerSettings, names: Sequence[str], max_drop: float | None
) -> Change[MendReport]:
    """Classes are gone, with their outputs, their means and all images that were kept of them."""
    regrouping = forgetting(knowledge, names)
    seen = _Seen(knowledge, settings)
    after = regrouped(knowledge, settings, regrouping, seen.features)
    gone = [k for k in range(knowledge.num_classes) if (k,) not in regrouping.groups]
    num_gone = [
        sum(len(memory.stack_of(k)) for k in gone if k < memory.num_classes)
        for memory in (knowledge.exemplars, knowledge.held_out)
    ]
    names = tuple(knowledge.class_names[k] for k in gone)
    report = MendReport({}, forgotten=names, num_exemplars=num_gone[0], num_held_out=num_gone[1])
    return _measured(seen, after, regrouping, report, max_drop)


class _Seen:
    """What the backbone, which stays as it is, makes of all images that are kept: each is looked at once."""

    def __init__(self, knowledge: Knowledge, settings: LearnerSettings) -> None:
        self.knowledge = knowledge
        self.device = find_device(settings.device)
        self.exemplars, self.held_out = (
            knowledge.images_of(memory) for memory in (knowledge.exemplars, knowledge.held_out)
        )
        images = concatenate(self.exemplars, self.held_out).stack
        plain = knowledge.classifier(self.device, means=torch.empty(0))
        self._features = plain.features(images)
        self._position = {own: k for k, own in enumerate(ids_of(images))}

    def features(self, images: ImageSet) -> Tensor:
        """`[N, d]` on the CPU, of some of these images."""
        return self._features[[self._position[own] for own in ids_of(images.stack)]]

    def classifier(self, knowledge: Knowledge, temperature: float | None = None) -> Classifier:
        """That of before or after, without looking at the exemplars again."""
        exemplars = knowledge.images_of(knowledge.exemplars)
        means = class_means(self.features(exemplars), exemplars.labels, knowledge.num_classes)
        return knowledge.classifier(self.device, temperature, means)


def _measured(
    seen: _Seen, after: Knowledge, regrouping: Regrouping, report: MendReport, max_drop: float | None
) -> Change[MendReport]:
    """What was done, compared with what was known on all images that are kept, and calibrated again."""
    before = seen.knowledge
    old, new = seen.classifier(before), seen.classifier(after, temperature=1.0)
    held_out, exemplars = after.images_of(after.held_out), after.images_of(after.exemplars)
    features = seen.features(held_out)
    fitted = fit_temperature(new.scores_on_cpu(features), held_out.labels)
    new.temperature = fitted or before.temperature
    checks, differences = [], []
    for kind, images in (("held-out", held_out), ("exemplar", exemplars)):
        if len(images):
            check, difference = _compared(kind, images, seen.features(images), regrouping, old, new)
            checks.append(check)
            differences.append(difference)
    report = replace(
        report,
        checks=tuple(checks),
        mean_difference=float(differences[0].mean()) if differences and regrouping.merged else None,
        largest_difference=float(differences[0].max()) if differences and regrouping.merged else None,
        remains=_remains(seen, after, report.forgotten, new),
    )
    familiarity = before.familiarity and before.familiarity.regrouped(
        regrouping.groups, (_probabilities(new, features), features)
    )
    after = replace(
        after,
        temperature=new.temperature,
        num_calibration_images=len(held_out) if fitted else before.num_calibration_images,
        familiarity=familiarity,
    )
    entry = {**report.record(), "unknown_threshold": familiarity.threshold if familiarity else None}
    wrong = None if max_drop is None else problem(checks, max_drop)
    return Change(after.with_entry(entry), report, wrong)


def _probabilities(classifier: Classifier, features: Tensor) -> Tensor:
    return probabilities(classifier.scores_on_cpu(features), classifier.temperature)


def _compared(
    kind: str, images: ImageSet, features: Tensor, regrouping: Regrouping, old: Classifier, new: Classifier
) -> tuple[UpdateCheck, Tensor]:
    """Answers before and after, and how far the probability of a merged class is from the sum of its parts', `[N]`."""
    then, now = regrouping.summed(_probabilities(old, features)), _probabilities(new, features)
    names = images.class_names
    check = compare(kind, images.labels.numpy(), then.argmax(1).numpy(), now.argmax(1).numpy(), names, len(names))
    merged = regrouping.merged
    return check, (then[:, merged] - now[:, merged]).abs().sum(1)


def _remains(seen: _Seen, after: Knowledge, forgotten: Sequence[str], new: Classifier) -> tuple[Remains, ...]:
    """Of each forgotten class that had images: by the features, which are as they were, how many are still told."""
    before, exemplars = seen.knowledge, seen.exemplars
    means = class_means(seen.features(exemplars), exemplars.labels, before.num_classes)
    remains = []
    for name in forgotten:
        class_id = before.class_names.index(name)
        kind, images = "held-out", seen.held_out.select(seen.held_out.labels == class_id)
        if not len(images):
            kind, images = "exemplar", exemplars.select(exemplars.labels == class_id)
        if len(images):
            features = seen.features(images)
            is_near = nearest_mean_scores(features, means).argmax(1) == class_id
            num_near = int(is_near.sum()) if bool(means[class_id].isfinite().all()) else None
            answers = Counter(after.class_names[k] for k in _probabilities(new, features).argmax(1).tolist())
            remains.append(Remains(name, kind, len(images), num_near, dict(answers.most_common())))
    return tuple(remains)


def _known_id(knowledge: Knowledge, name: str) -> int:
    wanted = class_name(name, "the arguments")
    if wanted not in knowledge.class_names:
        raise DataError(f"class '{wanted}' is not known{suggestion(wanted, knowledge.class_names)}")
    return knowledge.class_names.index(wanted)
