"""What a learner knows between two `learn` calls."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from types import MappingProxyType
from typing import Any

import torch

from foster.bundle.folder import ImageFiles
from foster.bundle.manifest import Preprocessing
from foster.data.images import ImageSet
from foster.data.memory import NO_IMAGES, ExemplarMemory
from foster.data.photos.decode import Resizing
from foster.data.photos.reading import memory_of_files
from foster.evaluation.predict import class_means
from foster.learner.classifier import Classifier
from foster.learner.familiarity import Familiarity
from foster.learner.feature_store import Entry, FeatureStore
from foster.learner.reports import LearnReport
from foster.networks.network import Network
from foster.settings.learner import CLOSED_FORM
from foster.settings.methods import METHOD_SETTINGS
from foster.version import __version__


@dataclass(frozen=True, eq=False)
class KeptImages:
    """Images that are kept of each class id, as image files."""

    files: Sequence[ImageFiles]
    resizing: Resizing

    @classmethod
    def of_memory(cls, memory: ExemplarMemory, num_classes: int, resizing: Resizing) -> "KeptImages":
        stacks = [memory.stack_of(k) if k < memory.num_classes else NO_IMAGES for k in range(num_classes)]
        return cls([tuple(zip(stack.ids(), stack.files(), strict=True)) for stack in stacks], resizing)

    @cached_property
    def memory(self) -> ExemplarMemory:
        """The images to train on; decoded when they are needed."""
        return memory_of_files(self.files, self.resizing)

    def entries(self) -> set[Entry]:
        """Class id and image id of all images."""
        return {(class_id, photo_id) for class_id, files in enumerate(self.files) for photo_id, _ in files}

    @property
    def num_images(self) -> int:
        return sum(map(len, self.files))


@dataclass(frozen=True, eq=False)
class Knowledge:
    """Classes in order of arrival, the network, and the photos and features that are kept.

    `task_sizes` are the numbers of classes by which the network grew. Knowledge is never changed: a `learn` returns a
    new object.
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
    """Features of photos and sums over all, by the pretrained backbone, if there is one."""

    def entries(self) -> set[Entry]:
        """Class id and image id of all photos of which something is kept."""
        kept = self.exemplars.entries() | self.held_out.entries()
        return kept | self.store.entries() if self.store else kept

    def learned_ids(self) -> set[str]:
        """The ids of the exemplars and of the photos in the store: all were learned from."""
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

    def classifier(self, device: torch.device) -> Classifier:
        """The network on `device`, in single precision, classifying by head or nearest mean, as its method does."""
        # A copy, since a classifier may go to another device.
        classifier = Classifier(copy.deepcopy(self.network), self.preprocessing, self.temperature).to(device)
        if not self.is_closed_form and METHOD_SETTINGS[self.method].classifies_by == "nearest_mean":
            exemplars = self.images_of(self.exemplars)
            means = class_means(classifier.features(exemplars.stack), exemplars.labels, self.num_classes)
            classifier.class_means = means.to(device)
        return classifier

    def keeping(self, exemplars: Sequence[ImageFiles], held_out: Sequence[ImageFiles]) -> "Knowledge":
        """The same knowledge with other kept images."""
        return replace(
            self,
            exemplars=KeptImages(exemplars, self.resizing),
            held_out=KeptImages(held_out, self.resizing),
        )

    def with_entry(self, record: Mapping[str, Any]) -> "Knowledge":
        """The same knowledge with one more entry in its history, dated now."""
        when = datetime.now(UTC).isoformat(timespec="seconds")
        threshold = self.familiarity.threshold if self.familiarity else None
        entry = {"when": when, "foster": __version__, "unknown_threshold": threshold, **record}
        return replace(self, history=(*self.history, entry))

    def learned(
        self, source: str, report: LearnReport, device: torch.device, facts: Mapping[str, Any] = MappingProxyType({})
    ) -> "Knowledge":
        """The same knowledge with the entry of a `learn` in its history, with the last name of the source's path."""
        entry = {"source": source.strip("'").rsplit("/", 1)[-1], "method": self.method, **facts, "device": str(device)}
        return self.with_entry({**entry, **report.record()})

    def images_of(self, kept: KeptImages) -> ImageSet:
        """The exemplars or the held-out images, possibly none."""
        images = kept.memory.exemplars(self.class_names)
        return no_images(self.preprocessing.size, self.class_names) if images is None else images


def no_images(image_size: tuple[int, int], class_names: tuple[str, ...]) -> ImageSet:
    empty = torch.empty(0, 3, *image_size, dtype=torch.uint8)
    return ImageSet(empty, torch.empty(0, dtype=torch.int64), class_names)
