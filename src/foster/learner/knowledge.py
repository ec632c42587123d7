"""What a learner knows between two `learn` calls; saved as a bundle and loaded from one."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from foster.bundle.folder import BundleError, read_bundle, write_bundle
from foster.bundle.history import trained_positions
from foster.bundle.manifest import Manifest, Preprocessing, Use
from foster.data.images import ImageSet
from foster.data.memory import ExemplarMemory
from foster.data.photos.decode import Resizing
from foster.errors import FosterError, words_of
from foster.evaluation.predict import class_means
from foster.learner.classifier import Classifier
from foster.learner.familiarity import PREFIX as FAMILIARITY
from foster.learner.familiarity import Familiarity
from foster.learner.features import FeatureStore
from foster.learner.reports import LearnReport
from foster.methods import method_class
from foster.methods.base import Context, Method
from foster.networks.adapted import ModuleLike, choose_backbone
from foster.networks.heads import RootHead
from foster.networks.network import Network
from foster.seeding import Address, initialisation
from foster.settings.base import make
from foster.settings.learner import CLOSED_FORM, LearnerSettings
from foster.settings.methods import METHOD_SETTINGS
from foster.settings.plugins import check_imported, load_plugins
from foster.system.files import user_path
from foster.training.engine import Engine
from foster.version import __version__


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
    memories: Callable[[], tuple[ExemplarMemory, ExemplarMemory]]
    """Gives the images to learn from again, and the held-out ones. A prediction needs neither, so they are made on
    demand."""
    temperature: float
    num_calibration_images: int
    history: tuple[Mapping[str, Any], ...]
    familiarity: Familiarity | None = None
    """What is usual for photos of known things, where enough photos were measured."""
    store: FeatureStore | None = None
    """Features of photos and sums over all, by the pretrained backbone, where there is one."""

    @property
    def exemplars(self) -> ExemplarMemory:
        """The images that are learned from again."""
        return self._memories[0]

    @property
    def held_out(self) -> ExemplarMemory:
        """The images that are never trained on."""
        return self._memories[1]

    @cached_property
    def _memories(self) -> tuple[ExemplarMemory, ExemplarMemory]:
        return self.memories()

    def learned_ids(self) -> set[str]:
        """The ids of all photos that are known to have been learned from."""
        return self.exemplars.ids() | (set(self.store.ids) if self.store else set())

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
    def trained_from(self) -> dict[str, float]:
        """For each class, the smallest position (`train.position`) of any image of it that was trained on; 0 where the
        history does not tell."""
        smallest = trained_positions(self.history)
        return {name: smallest.get(name, 0.0) for name in self.class_names}

    @property
    def held_out_share(self) -> float:
        """The share of the memory for held-out images: that of the last `learn` that held some out."""
        shares = [float(entry.get("held_out_share", 0.0)) for entry in self.history]
        return next((share for share in reversed(shares) if share), 0.0) if self.held_out.num_images else 0.0

    def classifier(
        self, device: torch.device, temperature: float | None = None, means: Tensor | None = None
    ) -> Classifier:
        """The network on `device`, in single precision, answering as its method says: by head or by nearest mean, of
        which the class means `[C, d]` may be known already."""
        calibrated = self.temperature if temperature is None else temperature
        # A copy, since a classifier may go to another device.
        classifier = Classifier(copy.deepcopy(self.network), self.preprocessing, calibrated).to(device)
        if not self.is_closed_form and METHOD_SETTINGS[self.method].classifies_by == "nearest_mean":
            if means is None:
                exemplars = self.images_of(self.exemplars)
                means = class_means(classifier.features(exemplars.stack), exemplars.labels, self.num_classes)
            classifier.class_means = means.to(device)
        return classifier

    def with_entry(self, record: Mapping[str, Any]) -> "Knowledge":
        """The same with one more entry in its history, of now."""
        entry = {"when": datetime.now(UTC).isoformat(timespec="seconds"), "foster": __version__, **record}
        return replace(self, history=(*self.history, entry))

    def learned(
        self, source: str, report: LearnReport, device: torch.device, facts: Mapping[str, Any] = MappingProxyType({})
    ) -> "Knowledge":
        """The same with the entry of a `learn` in its history. Of the source's path, only the name is told."""
        entry = {"source": source.strip("'").rsplit("/", 1)[-1], "method": self.method, **facts, "device": str(device)}
        threshold = self.familiarity.threshold if self.familiarity else None
        return self.with_entry({**entry, "unknown_threshold": threshold, **report.record()})

    def images_of(self, memory: ExemplarMemory) -> ImageSet:
        """The images of one of the two memories, possibly none."""
        images = memory.exemplars(self.class_names)
        return no_images(self.preprocessing.size, self.class_names) if images is None else images


def no_images(image_size: tuple[int, int], class_names: tuple[str, ...]) -> ImageSet:
    empty = torch.empty(0, 3, *image_size, dtype=torch.uint8)
    return ImageSet(empty, torch.empty(0, dtype=torch.int64), class_names)


def save_knowledge(folder: Path, settings: LearnerSettings, knowledge: Knowledge) -> Path:
    """Write a bundle, whole or not at all."""
    folder = user_path(folder)
    facts = {
        "method": knowledge.method,
        "backbone": knowledge.backbone,
        "settings": settings.nested(),
        "classes": knowledge.class_names,
        "task_sizes": knowledge.task_sizes,
        "preprocessing": knowledge.preprocessing,
        "temperature": knowledge.temperature,
        "num_calibration_images": knowledge.num_calibration_images,
        "history": tuple(dict(entry) for entry in knowledge.history),
    }
    memories: dict[Use, ExemplarMemory] = {"exemplars": knowledge.exemplars, "held-out": knowledge.held_out}
    weights = dict(knowledge.network.state_dict())
    if knowledge.familiarity is not None:
        weights |= knowledge.familiarity.tensors(has_statistics=not knowledge.is_closed_form)
    features = knowledge.store.tensors() if knowledge.store else {}
    write_bundle(folder, facts, weights, memories, features)
    return folder


def load_knowledge(folder: Path, backbone: ModuleLike | None) -> tuple[LearnerSettings, Knowledge]:
    """The settings and the knowledge of a bundle that is whole; images are decoded when they are needed."""
    bundle, title = read_bundle(user_path(folder)), str(folder)
    facts = bundle.manifest
    try:
        load_plugins(())
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
    knowledge = Knowledge(
        class_names=facts.classes,
        task_sizes=facts.task_sizes,
        method=settings.method,
        backbone=facts.backbone,
        preprocessing=facts.preprocessing,
        network=network,
        memories=cache(
            lambda: (
                bundle.memory("exemplars", is_tried=settings.method != CLOSED_FORM),
                bundle.memory("held-out"),
            )
        ),
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
