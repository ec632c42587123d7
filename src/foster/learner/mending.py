"""Mending a classifier without training: rename a class, merge several into one, forget some, remove photos.

In closed form the features and sums are changed, and the head is computed from them again. A trained network keeps its
backbone; rows of its head are combined or removed.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from foster.bundle.folder import ImageFiles
from foster.bundle.history import with_names, without_names
from foster.data.images import ImageSet, concatenate
from foster.data.photos.decode import ImageError, decode_photo, image_id
from foster.data.photos.find import class_name, folder_name
from foster.errors import DataError, suggestion
from foster.learner.calibration import fit_temperature, probabilities
from foster.learner.classifier import Classifier, one_thread
from foster.learner.closed_form import compared, scale_of, solve
from foster.learner.feature_store import Entry
from foster.learner.knowledge import KeptImages, Knowledge
from foster.learner.plan import quotas
from foster.learner.prediction import check_not_unknown
from foster.learner.reports import MendReport, UpdateCheck, compare
from foster.methods import method_class
from foster.methods.base import Method
from foster.networks.closed_form import ClosedFormHead
from foster.networks.heads import Head, RootHead
from foster.networks.network import Network
from foster.settings.learner import LearnerSettings
from foster.system.files import user_path
from foster.training.engine import find_device


@dataclass(frozen=True)
class Regrouping:
    """For each class afterwards, the ids of the classes that it is made of, and its name. Classes in no group are left
    out, and the ids after them become smaller.
    """

    groups: tuple[tuple[int, ...], ...]
    class_names: tuple[str, ...]

    def task_sizes(self, before: Sequence[int]) -> tuple[int, ...]:
        """The number of classes that are left of each task; it may be 0."""
        ends = torch.tensor(before).cumsum(0)
        homes = torch.searchsorted(ends, torch.tensor([group[0] for group in self.groups]), right=True)
        return tuple(torch.bincount(homes, minlength=len(before)).tolist())

    def summed(self, probability: Tensor) -> Tensor:
        """The probabilities `[N, C]` before, summed for each class afterwards, followed by those of the classes left
        out."""
        staying = {k for group in self.groups for k in group}
        gone = [(k,) for k in range(probability.shape[1]) if k not in staying]
        return torch.stack([probability[:, list(group)].sum(1) for group in (*self.groups, *gone)], dim=1)


def rename(knowledge: Knowledge, old: str, new: str) -> tuple[Knowledge, MendReport]:
    """Rename the class `old` to `new`, in the history, too; nothing else changes."""
    class_id, name = _known_id(knowledge, old), _new_name(new, "the new name")
    old = knowledge.class_names[class_id]
    if name in knowledge.class_names:
        raise DataError(f"there is a class '{name}' already; merge makes one class of two")
    names = [name if k == class_id else known for k, known in enumerate(knowledge.class_names)]
    renamed = replace(knowledge, class_names=tuple(names), history=with_names(knowledge.history, {old: name}))
    # The history does not keep the old name.
    return renamed.with_entry({"renamed": {name: name}}), MendReport(renamed={old: name})


def merge(
    knowledge: Knowledge, settings: LearnerSettings, names: Sequence[str], into: str
) -> tuple[Knowledge, MendReport]:
    """Several classes become one, named `into`, in the place of the first."""
    ids = sorted({_known_id(knowledge, name) for name in names})
    if len(ids) < 2:
        raise DataError("merge needs two different classes or more; to change one name, use rename")
    name = _new_name(into, "the merged class")
    if name in knowledge.class_names and knowledge.class_names.index(name) not in ids:
        raise DataError(f"there is a class '{name}' already; name it among the classes to merge, or choose another")
    groups = [tuple(ids) if k == ids[0] else (k,) for k in range(knowledge.num_classes) if k not in ids[1:]]
    class_names = [name if group[0] == ids[0] else knowledge.class_names[group[0]] for group in groups]
    report = MendReport(renamed={knowledge.class_names[k]: name for k in ids})
    return _regrouped(knowledge, settings, Regrouping(tuple(groups), tuple(class_names)), report)


def forget(knowledge: Knowledge, settings: LearnerSettings, names: Sequence[str]) -> tuple[Knowledge, MendReport]:
    """Remove classes, everything that is kept of them, and their names."""
    gone = sorted({_known_id(knowledge, name) for name in names})
    staying = [k for k in range(knowledge.num_classes) if k not in gone]
    if not staying:
        raise DataError("no class would be left; delete the bundle instead")
    regrouping = Regrouping(tuple((k,) for k in staying), tuple(knowledge.class_names[k] for k in staying))
    names = tuple(knowledge.class_names[k] for k in gone)
    store = knowledge.store
    is_estimated = store is not None and any(
        int((store.kept_labels == k).sum()) < int(store.statistics.counts[k]) for k in gone
    )
    report = MendReport({}, forgotten=names, is_estimated=is_estimated)
    after, report = _regrouped(knowledge, settings, regrouping, report)
    return replace(after, history=without_names(after.history, names, after.class_names)), report


def remove_photos(
    knowledge: Knowledge, settings: LearnerSettings, wanted: Sequence[str]
) -> tuple[Knowledge, MendReport]:
    """Remove kept photos. In closed form their features are subtracted from the sums; a trained network is kept.

    A photo is given by its file or by its id. If several classes have it, the id follows the class id and a slash.
    """
    chosen = {_photo_named(text, knowledge) for text in wanted}
    if knowledge.is_closed_form and knowledge.store:
        kept = set(zip(knowledge.store.kept_labels.tolist(), knowledge.store.kept_ids, strict=True))
        for label, photo in sorted(chosen - kept):
            raise DataError(
                f"the features of photo {photo} are not kept (features_per_class), so it cannot be removed from the "
                f"sums; 'foster forget' removes the whole class '{knowledge.class_names[label]}'"
            )

    def left(kept: KeptImages) -> list[ImageFiles]:
        return [
            tuple((photo_id, file) for photo_id, file in files if (class_id, photo_id) not in chosen)
            for class_id, files in enumerate(kept.files)
        ]

    exemplars, held_out = left(knowledge.exemplars), left(knowledge.held_out)
    store = knowledge.store.without(chosen) if knowledge.store else None
    after = replace(knowledge, store=store).keeping(exemplars, held_out)
    for class_id, _ in chosen:
        name = knowledge.class_names[class_id]
        is_last = (
            not int(store.statistics.counts[class_id])
            if knowledge.is_closed_form and store
            else settings.options.uses_memory and not exemplars[class_id]
        )
        if is_last:
            raise DataError(f"this is the last photo of class '{name}'; 'foster forget' removes the class")
    checks: tuple[UpdateCheck, ...] = ()
    if knowledge.is_closed_form:
        after, checks = _solved_again(knowledge, after)
    report = MendReport({}, removed=tuple(sorted(photo_id for _, photo_id in chosen)), checks=checks)
    return after.with_entry(report.record()), report


def _photo_named(text: str, knowledge: Knowledge) -> Entry:
    """The photo that a text names: by its file, or by its id, which may follow the class id and a slash."""
    wanted, file, resizing = text, user_path(Path(text)), knowledge.resizing
    if file.is_file():
        try:
            wanted = image_id(resizing(decode_photo(file, max(resizing.size))))
        except ImageError as error:
            raise DataError(f"'{text}' cannot be read: {error}") from None
    entries = sorted(knowledge.entries())
    meant = [entry for entry in entries if wanted in (entry[1], f"{entry[0]:04d}/{entry[1]}")]
    if len(meant) == 1:
        return meant[0]
    listed = ", ".join(f"{label:04d}/{photo_id} ('{knowledge.class_names[label]}')" for label, photo_id in meant)
    if meant:
        problem = f"several classes have it; name one of {listed}"
    elif file.is_file():
        problem = "the bundle has no such photo"
    else:
        problem = "there is no such file, and no kept photo with this id"
    raise DataError(f"cannot remove '{text}': {problem}")


def _regrouped(
    knowledge: Knowledge, settings: LearnerSettings, regrouping: Regrouping, report: MendReport
) -> tuple[Knowledge, MendReport]:
    num_exemplars, num_held_out = quotas(settings.memory_per_class, knowledge.held_out_share)
    after = knowledge.keeping(
        files_together(knowledge.exemplars.files, regrouping.groups, num_exemplars),
        files_together(knowledge.held_out.files, regrouping.groups, num_held_out),
    )
    after = replace(
        after,
        class_names=regrouping.class_names,
        task_sizes=regrouping.task_sizes(knowledge.task_sizes),
        store=knowledge.store.regrouped(regrouping.groups) if knowledge.store else None,
    )
    is_trained = not knowledge.is_closed_form
    if is_trained:
        after, checks = _with_network_of_groups(knowledge, after, settings, regrouping)
    else:
        after, checks = _solved_again(knowledge, after)
    report = replace(report, checks=checks, is_trained=is_trained)
    return after.with_entry(report.record()), report


@one_thread()
def _solved_again(before: Knowledge, after: Knowledge) -> tuple[Knowledge, tuple[UpdateCheck, ...]]:
    """`after` with a head computed from its features and sums, and the accuracy before and after on photos with kept
    features. If there are none, the confidence does not change."""
    assert before.store is not None
    assert after.store is not None
    store, head = after.store, before.network.head
    assert isinstance(head, RootHead)
    features, labels, ids = store.features, store.kept_labels, store.kept_ids
    scale = None if len(features) else scale_of(before.store.statistics, head)
    solved = solve(store.statistics, features, labels, ids, scale)
    measured, familiarity = store.rows[solved.positions], solved.familiarity
    if not solved.temperature and before.familiarity is not None and after.num_classes > 1:
        familiarity = replace(before.familiarity, statistics=store.statistics)
    # A photo whose last answer is a class that is gone was wrong before.
    last, right = store.answers[measured], labels[solved.positions]
    check = compared(last, right, solved.answers, after.class_names, after.num_classes)
    after = replace(
        after,
        network=Network(before.network.frozen_branches(), solved.head),
        temperature=solved.temperature or before.temperature,
        num_calibration_images=len(measured) if solved.temperature else before.num_calibration_images,
        familiarity=familiarity,
        store=store.with_answers(measured, solved.answers) if len(measured) else store,
    )
    return after, (check,) if check.classes else ()


def files_together(
    by_class: Sequence[ImageFiles], groups: Sequence[Sequence[int]], quota: int | None
) -> list[ImageFiles]:
    """The images of each group of classes. The classes take turns, so that the first images are some of each; equal
    images are kept once, and `quota` in all."""
    result = []
    for group in groups:
        members = [by_class[k] for k in group]
        turns = itertools.chain.from_iterable(itertools.zip_longest(*members))
        result.append(members[0] if len(members) == 1 else tuple(dict(filter(None, turns)).items())[:quota])
    return result


def _new_name(text: str, origin: str) -> str:
    """A new class name, which must also be valid as the name of a folder."""
    name = folder_name(text, origin)
    check_not_unknown(name, origin)
    return name


def _known_id(knowledge: Knowledge, name: str) -> int:
    wanted = class_name(name, "the arguments")
    if wanted not in knowledge.class_names:
        raise DataError(f"class '{wanted}' is not known{suggestion(wanted, knowledge.class_names)}")
    return knowledge.class_names.index(wanted)


def _with_network_of_groups(
    before: Knowledge, after: Knowledge, settings: LearnerSettings, regrouping: Regrouping
) -> tuple[Knowledge, tuple[UpdateCheck, ...]]:
    """`after` with a trained network in which rows of the head are combined or removed, calibrated again, and the
    accuracy before and after on all images that are kept."""
    device, learned = find_device(settings.device), before.images_of(before.exemplars)
    kept = concatenate(learned, before.images_of(before.held_out)).stack
    old = before.classifier(device)
    rows = old.features(kept)  # the backbone does not change
    position = {photo_id: k for k, photo_id in enumerate(kept.ids())}

    def features_of(images: ImageSet) -> Tensor:
        return rows[[position[photo_id] for photo_id in images.stack.ids()]]

    after = replace(after, network=_network_of_groups(before, regrouping, learned, features_of))
    new = after.classifier(device)
    held_out, exemplars = after.images_of(after.held_out), after.images_of(after.exemplars)
    features = features_of(held_out)
    fitted = fit_temperature(new.scores_on_cpu(features), held_out.labels)
    new.temperature = fitted or before.temperature
    checks = []
    for kind, images in (("held-out", held_out), ("exemplar", exemplars)):
        if len(images):
            then = regrouping.summed(_probabilities(old, features_of(images))).argmax(1)
            now = _probabilities(new, features_of(images)).argmax(1)
            checks.append(compare(kind, images.labels, then, now, after.class_names, after.num_classes))
    familiarity = before.familiarity and before.familiarity.regrouped(
        regrouping.groups, (_probabilities(new, features), features)
    )
    after = replace(
        after,
        temperature=new.temperature,
        num_calibration_images=len(held_out) if fitted else before.num_calibration_images,
        familiarity=familiarity,
    )
    return after, tuple(checks)


def _network_of_groups(
    knowledge: Knowledge, regrouping: Regrouping, exemplars: ImageSet, features_of: Callable[[ImageSet], Tensor]
) -> Network:
    before, method = knowledge.network, knowledge.method
    # Other networks and heads, and those of a plug-in, may have further tensors with a row for each class.
    is_usual = method_class(method).new_network is Method.new_network
    is_linear = is_usual and (type(before), type(before.head)) == (Network, Head)
    if not is_linear and not isinstance(before.head, ClosedFormHead):
        raise DataError(f"method '{method}' has a network of its own kind, whose classes cannot be merged or forgotten")
    network = before.regrouped(regrouping.groups)
    for class_id, group in enumerate(regrouping.groups):
        if len(group) > 1 and not len(exemplars) and not isinstance(before.head, ClosedFormHead):
            raise DataError(
                f"method '{method}' keeps no exemplars, which are needed to merge classes; "
                "use method=foster or another that does"
            )
        if len(group) > 1 and isinstance(before.head, Head) and isinstance(network.head, Head):
            features, temperature = features_of(exemplars), knowledge.temperature
            row = merged_row(before.head.weight, before.head.bias, features, exemplars.labels, group, temperature)
            with torch.no_grad():
                network.head.weight[class_id], network.head.bias[class_id] = row
    return network


def merged_row(
    weight: Tensor, bias: Tensor, features: Tensor, labels: Tensor, members: Sequence[int], temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Weight `[d]` and bias `[]` of the class that `members` become, for a head of weight `[C, d]` and bias `[C]`.

    Its probability should be the sum of theirs. The logit of that sum, T log sum exp(z / T), is not linear: it is
    fitted by least squares on features `[N, d]` with labels `[N]`, among which every class counts the same. The row is
    a combination of the present rows, so that few photos suffice.
    """
    rows, offsets = weight.detach().cpu().double(), bias.detach().cpu().double()
    logits = features.cpu().double() @ rows.T + offsets
    wanted = temperature * (logits[:, list(members)] / temperature).logsumexp(1, keepdim=True)
    known = torch.cat((logits, torch.ones_like(wanted)), dim=1)
    share = torch.bincount(labels, minlength=len(rows))[labels].double().rsqrt()[:, None]
    *mixture, shift = torch.linalg.lstsq(share * known, share * wanted, driver="gelsy").solution[:, 0]
    factors = torch.stack(mixture)
    return (factors @ rows).to(weight), (factors @ offsets + shift).to(bias)


def _probabilities(classifier: Classifier, features: Tensor) -> Tensor:
    return probabilities(classifier.scores_on_cpu(features), classifier.temperature)
