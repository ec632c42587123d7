"""What a learner knows between two `learn` calls; saved as a bundle and loaded from one."""

import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from itertools import compress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foster.bundle.folder import BundleError, ImageFiles, read_bundle, write_bundle
from foster.bundle.manifest import Manifest, Preprocessing, Use
from foster.data.images import ImageSet
from foster.data.memory import ExemplarMemory
from foster.data.photos.decode import ID_LENGTH, Resizing
from foster.data.photos.reading import memory_of_files
from foster.errors import FosterError, words_of
from foster.evaluation.predict import class_means
from foster.learner.classifier import Classifier
from foster.learner.familiarity import PREFIX as FAMILIARITY
from foster.learner.familiarity import Familiarity
from foster.learner.reports import LearnReport
from foster.methods import method_class
from foster.methods.base import Context, Method
from foster.networks.adapted import ModuleLike, choose_backbone
from foster.networks.heads import RootHead
from foster.networks.network import Network
from foster.networks.statistics import Statistics
from foster.seeding import Address, initialisation
from foster.settings.base import make
from foster.settings.learner import CLOSED_FORM, LearnerSettings
from foster.settings.methods import METHOD_SETTINGS
from foster.settings.plugins import check_imported
from foster.system.files import user_path
from foster.training.engine import Engine
from foster.version import __version__

ID_BYTES = ID_LENGTH // 2

NOT_MEASURED, GONE = -1, -2
"""Values in place of an answer: the photo was not measured, or its answer was a class that has been forgotten since."""


Entry = tuple[int, str]
"""A photo in a class: the class id, and the hash of the pixels."""


@dataclass(frozen=True, eq=False)
class KeptImages:
    """Images that are kept of each class id, as image files and as a memory to train on. Either form is made from the
    other when it is asked for."""

    files: Callable[[], Sequence[ImageFiles]]
    memory: Callable[[], ExemplarMemory]

    @classmethod
    def of_files(cls, files: Callable[[], Sequence[ImageFiles]], resizing: Resizing) -> "KeptImages":
        return cls(files, cache(lambda: memory_of_files(files(), resizing)))

    @classmethod
    def of_memory(cls, memory: ExemplarMemory) -> "KeptImages":
        stacks = [memory.stack_of(class_id) for class_id in range(memory.num_classes)]
        return cls(
            cache(lambda: [tuple(zip(stack.ids(), stack.files(), strict=True)) for stack in stacks]), lambda: memory
        )

    def entries(self) -> set[Entry]:
        """Class id and image id of all images."""
        return {(class_id, photo_id) for class_id, files in enumerate(self.files()) for photo_id, _ in files}

    @property
    def num_images(self) -> int:
        return sum(map(len, self.files()))


NOTHING_KEPT = KeptImages.of_memory(ExemplarMemory())


@dataclass(frozen=True, eq=False)
class FeatureStore:
    """Photos in the order in which they were learned, by id and class; the features of some; sums over all.

    The sums are of the features as they are stored, so that a photo whose features are kept can be taken out of them
    exactly. Nothing is changed in place: every verb returns a new store.
    """

    ids: tuple[str, ...]
    """The id of each photo (the start of the hash of its pixels), N in all."""
    labels: Tensor
    """The class id of each photo, int64 `[N]`."""
    answers: Tensor
    """The class id of the last answer for each photo, int64 `[N]`; or NOT_MEASURED or GONE."""
    rows: Tensor
    """Which of the photos have their features kept, int64 `[M]`, ascending."""
    features: Tensor
    """The features of these, float16 `[M, d]`."""
    statistics: Statistics

    @classmethod
    def empty(cls, num_features: int) -> "FeatureStore":
        nothing = torch.empty(0, dtype=torch.int64)
        features = torch.empty(0, num_features, dtype=torch.float16)
        return cls((), nothing, nothing, nothing, features, Statistics.empty(0, num_features))

    @property
    def num_photos(self) -> int:
        return len(self.ids)

    @property
    def num_features(self) -> int:
        return self.features.shape[1]

    @property
    def kept_labels(self) -> Tensor:
        """The class ids of the photos whose features are kept, `[M]`."""
        return self.labels[self.rows]

    @property
    def kept_ids(self) -> tuple[str, ...]:
        return tuple(map(self.ids.__getitem__, self.rows.tolist()))

    def entries(self) -> set[Entry]:
        """Class id and photo id of all photos."""
        return set(zip(self.labels.tolist(), self.ids, strict=True))

    def added(
        self, features: Tensor, labels: Tensor, ids: Sequence[str], num_classes: int, per_class: int
    ) -> "FeatureStore":
        """With new photos of stored features `[n, d]`. Of each class, old and new together, the features of the first
        `per_class` photos are kept."""
        statistics = self.statistics.grown(num_classes - self.statistics.num_classes).added(features, labels)
        all_labels = torch.cat((self.labels, labels))
        rows = torch.cat((self.rows, torch.arange(self.num_photos, len(all_labels))))
        counts: Counter[int] = Counter()
        is_kept = []
        for label in all_labels[rows].tolist():
            is_kept.append(counts[label] < per_class)
            counts[label] += 1
        chosen = torch.tensor(is_kept, dtype=torch.bool)
        return FeatureStore(
            (*self.ids, *ids),
            all_labels,
            torch.cat((self.answers, torch.full_like(labels, NOT_MEASURED))),
            rows[chosen],
            torch.cat((self.features, features))[chosen],
            statistics,
        )

    def with_answers(self, positions: Tensor, answers: Tensor) -> "FeatureStore":
        """With `answers` for the photos at `positions`; all other photos become NOT_MEASURED."""
        known = torch.full_like(self.answers, NOT_MEASURED)
        known[positions] = answers
        return replace(self, answers=known)

    def regrouped(self, groups: Sequence[Sequence[int]]) -> "FeatureStore":
        """One class for each group of present classes; classes in no group are removed.

        Where the features of all photos of such a class are kept, the sums become exactly those of the others.
        """
        new_ids = torch.full((self.statistics.num_classes,), GONE, dtype=torch.int64)
        for new, group in enumerate(groups):
            new_ids[list(group)] = new
        statistics, order = self.statistics, list(range(self.statistics.num_classes))
        for gone in (new_ids < 0).nonzero()[:, 0].tolist():
            features = self.features[self.kept_labels == gone]
            is_whole = len(features) == int(self.statistics.counts[gone])
            statistics = statistics.without(order.index(gone), features if is_whole else None)
            order.remove(gone)
        statistics = statistics.regrouped([[order.index(k) for k in group] for group in groups])
        answers = torch.where(self.answers < 0, self.answers, new_ids[self.answers.clamp_min(0)])
        store = replace(self, labels=new_ids[self.labels], answers=answers, statistics=statistics)
        return store._rows_where(store.labels >= 0)

    def without(self, entries: set[Entry]) -> "FeatureStore":
        """Without some photos, by class id and photo id. Those whose features are not kept stay in the sums."""
        is_meant = torch.tensor([entry in entries for entry in zip(self.labels.tolist(), self.ids, strict=True)])
        is_taken = torch.zeros_like(is_meant)
        is_taken[self.rows] = is_meant[self.rows]
        is_chosen = is_meant[self.rows]
        empty = Statistics.empty(self.statistics.num_classes, self.num_features)
        taken = empty.added(self.features[is_chosen], self.kept_labels[is_chosen])
        return replace(self, statistics=less(self.statistics, taken))._rows_where(~is_taken)

    def _rows_where(self, is_kept: Tensor) -> "FeatureStore":
        """The photos where `is_kept` `[N]`; the sums as they are."""
        if bool(is_kept.all()):
            return self
        positions = is_kept.cumsum(0) - 1
        is_chosen = is_kept[self.rows]
        return replace(
            self,
            ids=tuple(compress(self.ids, is_kept.tolist())),
            labels=self.labels[is_kept],
            answers=self.answers[is_kept],
            rows=positions[self.rows[is_chosen]],
            features=self.features[is_chosen],
        )

    def tensors(self) -> dict[str, Tensor]:
        """For a bundle's file."""
        ids = np.frombuffer(bytearray.fromhex("".join(self.ids)), np.uint8)  # torch's takes no empty buffer
        return {
            "ids": torch.from_numpy(ids).view(-1, ID_BYTES),
            "labels": self.labels.int(),
            "answers": self.answers.int(),
            "rows": self.rows,
            "features": self.features,
            "counts": self.statistics.counts,
            "sums": self.statistics.sums,
            "second_moment": self.statistics.second_moment,
        }

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], num_classes: int, title: str) -> "FeatureStore | None":
        """The store that `tensors` wrote; None if it is empty. Raises BundleError if its parts do not fit together."""
        if not tensors:
            return None
        try:
            digits = tensors["ids"].numpy().tobytes().hex()
            ids = [digits[k : k + ID_LENGTH] for k in range(0, len(digits), ID_LENGTH)]
            labels, answers = tensors["labels"].long(), tensors["answers"].long()
            rows, features = tensors["rows"], tensors["features"]
            statistics = Statistics(*(tensors[name] for name in ("counts", "sums", "second_moment")))
            fits = (
                tensors["ids"].shape == (len(ids), ID_BYTES)
                and labels.shape == answers.shape == (len(ids),)
                and (features.ndim, len(rows)) == (2, len(features))
                and features.shape[1] == statistics.num_features
                and statistics.num_classes == num_classes
                and _is_within(labels, 0, num_classes)
                and _is_within(answers, GONE, num_classes)
                and _is_within(rows, 0, len(ids))
                and (features.dtype, rows.dtype) == (torch.float16, torch.int64)
                and statistics.sums.dtype == statistics.second_moment.dtype == torch.float64
            )
        except (KeyError, ValueError, TypeError, RuntimeError):
            fits = False
        if not fits:
            raise BundleError(f"the features in bundle '{title}' do not fit its classes")
        return cls(tuple(ids), labels, answers, rows, features, statistics)


def less(whole: Statistics, part: Statistics) -> Statistics:
    """The sums over the images of `whole` that are not in `part`."""
    return Statistics(whole.counts - part.counts, whole.sums - part.sums, whole.second_moment - part.second_moment)


def _is_within(values: Tensor, first: int, end: int) -> bool:
    return not len(values) or (int(values.min()) >= first and int(values.max()) < end)


@dataclass(frozen=True, eq=False)
class Knowledge:
    """Classes in order of arrival, the network, and what is kept of the photos.

    `task_sizes` are the numbers of classes by which the network grew. It is never changed: a `learn` returns a new one.
    """

    class_names: tuple[str, ...]
    task_sizes: tuple[int, ...]
    method: str
    backbone: str
    preprocessing: Preprocessing
    network: Network
    exemplars: KeptImages
    """The images that are learned from again."""
    held_out: KeptImages
    """The images that are never trained on."""
    temperature: float
    num_calibration_images: int
    history: tuple[Mapping[str, Any], ...]
    familiarity: Familiarity | None = None
    """How confident and near photos of known classes are; None if too few photos were measured."""
    store: FeatureStore | None = None
    """Features of photos and sums over all, by the pretrained backbone, where there is one."""

    def entries(self) -> set[Entry]:
        """Class id and image id of all photos of which something is kept."""
        kept = self.exemplars.entries() | self.held_out.entries()
        return kept | self.store.entries() if self.store else kept

    def learned_ids(self) -> set[str]:
        """The ids of all photos that are known to have been learned from."""
        return {photo_id for _, photo_id in self.exemplars.entries()} | (set(self.store.ids) if self.store else set())

    @property
    def is_closed_form(self) -> bool:
        return self.method == CLOSED_FORM

    @property
    def resizing(self) -> Resizing:
        return Resizing(*self.preprocessing.size)

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def held_out_share(self) -> float:
        """The share of the memory for held-out images: that of the last `learn` that held some out."""
        shares = [float(entry.get("held_out_share", 0.0)) for entry in self.history]
        return next((share for share in reversed(shares) if share), 0.0) if self.held_out.num_images else 0.0

    def classifier(
        self, device: torch.device, temperature: float | None = None, means: Tensor | None = None
    ) -> Classifier:
        """The network on `device`, in single precision. It answers as its method says, by head or by nearest mean; give
        the class means `[C, d]` if they are known already."""
        calibrated = self.temperature if temperature is None else temperature
        # A copy, since a classifier may go to another device.
        classifier = Classifier(copy.deepcopy(self.network), self.preprocessing, calibrated).to(device)
        if not self.is_closed_form and METHOD_SETTINGS[self.method].classifies_by == "nearest_mean":
            if means is None:
                exemplars = self.images_of(self.exemplars)
                means = class_means(classifier.features(exemplars.stack), exemplars.labels, self.num_classes)
            classifier.class_means = means.to(device)
        return classifier

    def keeping(self, exemplars: Sequence[ImageFiles], held_out: Sequence[ImageFiles]) -> "Knowledge":
        """The same with other images."""
        return replace(
            self,
            exemplars=KeptImages.of_files(lambda: exemplars, self.resizing),
            held_out=KeptImages.of_files(lambda: held_out, self.resizing),
        )

    def with_entry(self, record: Mapping[str, Any]) -> "Knowledge":
        """The same with one more entry in its history, dated now."""
        when = datetime.now(UTC).isoformat(timespec="seconds")
        threshold = self.familiarity.threshold if self.familiarity else None
        entry = {"when": when, "foster": __version__, "unknown_threshold": threshold, **record}
        return replace(self, history=(*self.history, entry))

    def learned(
        self, source: str, report: LearnReport, device: torch.device, facts: Mapping[str, Any] = MappingProxyType({})
    ) -> "Knowledge":
        """The same with the entry of a `learn` in its history. Of the source's path, only the last name is stored."""
        entry = {"source": source.strip("'").rsplit("/", 1)[-1], "method": self.method, **facts, "device": str(device)}
        return self.with_entry({**entry, **report.record()})

    def images_of(self, kept: KeptImages) -> ImageSet:
        """The exemplars or the held-out images, possibly none."""
        images = kept.memory().exemplars(self.class_names)
        return no_images(self.preprocessing.size, self.class_names) if images is None else images


def no_images(image_size: tuple[int, int], class_names: tuple[str, ...]) -> ImageSet:
    empty = torch.empty(0, 3, *image_size, dtype=torch.uint8)
    return ImageSet(empty, torch.empty(0, dtype=torch.int64), class_names)


def save_knowledge(folder: Path, settings: LearnerSettings, knowledge: Knowledge) -> Path:
    """Write a bundle, whole or not at all."""
    folder = user_path(folder)
    told = settings.nested()
    if knowledge.is_closed_form:  # it has no use for the settings of a training, and should not depend on them
        told = {key: value for key, value in told.items() if key not in METHOD_SETTINGS}
    facts = {
        "method": knowledge.method,
        "backbone": knowledge.backbone,
        "settings": told,
        "classes": knowledge.class_names,
        "task_sizes": knowledge.task_sizes,
        "preprocessing": knowledge.preprocessing,
        "temperature": knowledge.temperature,
        "num_calibration_images": knowledge.num_calibration_images,
        "history": tuple(dict(entry) for entry in knowledge.history),
    }
    images: dict[Use, Sequence[ImageFiles]] = {
        "exemplars": knowledge.exemplars.files(),
        "held-out": knowledge.held_out.files(),
    }
    weights = dict(knowledge.network.state_dict())
    if knowledge.familiarity is not None:
        weights |= knowledge.familiarity.tensors(has_statistics=not knowledge.is_closed_form)
    features = knowledge.store.tensors() if knowledge.store else {}
    write_bundle(folder, facts, weights, images, features)
    return folder


def load_knowledge(folder: Path, backbone: ModuleLike | None) -> tuple[LearnerSettings, Knowledge]:
    """The settings and the knowledge of a bundle that is whole; images are decoded when they are needed."""
    bundle, title = read_bundle(user_path(folder)), str(folder)
    facts = bundle.manifest
    try:
        check_imported(facts.plugins, "it")
        settings = make(LearnerSettings, facts.settings, f"bundle '{title}'")
        if settings.method != facts.method:
            raise BundleError(
                f"bundle '{title}' is of method '{facts.method}', its settings are of '{settings.method}'"
            )
        weights = {name: tensor for name, tensor in bundle.weights.items() if not name.startswith(FAMILIARITY)}
        network = _network(facts, settings, backbone, weights, title)
        store = FeatureStore.of(bundle.features, len(facts.classes), title)
        sums = store.statistics if store and settings.method == CLOSED_FORM else None
        familiarity = Familiarity.of(bundle.weights, sums)
        if settings.method == CLOSED_FORM and (store is None or store.num_features != network.feature_size):
            raise BundleError(f"bundle '{title}' has no sums of features that fit its network")
    except BundleError:
        raise
    except FosterError as error:
        raise BundleError(f"bundle '{title}' cannot be used here: {error}") from None
    resizing = Resizing(*facts.preprocessing.size)
    knowledge = Knowledge(
        class_names=facts.classes,
        task_sizes=facts.task_sizes,
        method=settings.method,
        backbone=facts.backbone,
        preprocessing=facts.preprocessing,
        network=network,
        # Unpacked when they are needed: a prediction needs none.
        exemplars=KeptImages.of_files(lambda: bundle.files("exemplars"), resizing),
        held_out=KeptImages.of_files(lambda: bundle.files("held-out"), resizing),
        temperature=facts.temperature,
        num_calibration_images=facts.num_calibration_images,
        history=facts.history,
        familiarity=familiarity,
        store=store,
    )
    return settings, knowledge


def _network(
    facts: Manifest,
    settings: LearnerSettings,
    backbone: ModuleLike | None,
    weights: Mapping[str, Tensor],
    title: str,
) -> Network:
    """The network with a bundle's weights in it, on the CPU."""
    if facts.backbone.startswith("custom:") and backbone is None:
        raise BundleError(
            f"bundle '{title}' has a backbone that was given as a torch module ({facts.backbone}); "
            "load it from Python: foster.load(folder, backbone=...)"
        )
    preprocessing = facts.preprocessing
    chosen = facts.backbone if backbone is None else backbone
    choice = choose_backbone(chosen, preprocessing.size, is_trained=True)
    with initialisation(Address(settings.seed, "frame for saved weights")):
        if settings.method == CLOSED_FORM:
            whole = choice.make()
            if weights.get("head.weight", torch.empty(0)).shape != (len(facts.classes), whole.feature_size):
                raise BundleError(f"the weights in bundle '{title}' do not fit its network: another number of classes")
            network = Network([whole], RootHead(whole.feature_size, len(facts.classes)))
        else:
            cpu = torch.device("cpu")
            engine = Engine(cpu, preprocessing.mean, preprocessing.std)
            context = Context(choice.make, settings.seed, engine.infer, cpu)
            method = method_class(settings.method)(settings.options, ExemplarMemory(), context)
            _check_form(method, facts, weights, title)
            network = method.new_network(facts.task_sizes)
    try:
        network.load_state_dict(dict(weights))
    except RuntimeError as error:
        reason = words_of(error)
        raise BundleError(f"the weights in bundle '{title}' do not fit its network: {reason}") from None
    return network


def _check_form(method: Method[Any], facts: Manifest, weights: Mapping[str, Tensor], title: str) -> None:
    """Refuse weights of another network before one is made: what a manifest claims may have any size."""
    num_branches = len({name.split(".")[1] for name in weights if name.startswith("branches.")})
    parts = {name.removeprefix("head."): part.to("meta") for name, part in weights.items() if name.startswith("head.")}
    num_features = max((part.shape[-1] for part in parts.values() if part.ndim > 1), default=0)
    try:
        with torch.device("meta"):
            method.new_head(max(1, num_features), facts.task_sizes).load_state_dict(parts)
        # A module from outside may hold no weights at all.
        is_possible = num_branches in (0, method.num_branches(len(facts.task_sizes)))
    except RuntimeError:
        is_possible = False
    if not is_possible:
        raise BundleError(f"the weights in bundle '{title}' do not fit its network: another number of tasks or classes")
