"""What a learner knows between two `learn` calls: everything that a bundle holds."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from foster.bundle.folder import resizing_of
from foster.bundle.history import trained_positions
from foster.bundle.manifest import Preprocessing
from foster.data.images import ImageSet
from foster.data.memory import ExemplarMemory
from foster.data.photos.decode import Resizing
from foster.evaluation.predict import class_means
from foster.learner.classifier import Classifier
from foster.learner.familiarity import Familiarity
from foster.networks.network import Network
from foster.networks.trunk import Trunk
from foster.settings.learner import LearnerSettings
from foster.settings.methods import METHOD_SETTINGS
from foster.version import __version__

Report = TypeVar("Report", covariant=True)
"""What there is to tell of a change."""

USUAL_HELD_OUT_SHARE = 0.1
"""Where images are held out, but the history does not tell how many were to be."""


class Memories:
    """The images that are kept: `exemplars` are trained on again, `held_out` never are.

    They are made when they are first asked for: a prediction needs neither.
    """

    def __init__(self, exemplars: Callable[[], ExemplarMemory], held_out: Callable[[], ExemplarMemory]) -> None:
        self._make_exemplars = exemplars
        self._make_held_out = held_out

    @cached_property
    def exemplars(self) -> ExemplarMemory:
        return self._make_exemplars()

    @cached_property
    def held_out(self) -> ExemplarMemory:
        return self._make_held_out()


@dataclass(frozen=True, eq=False)
class Knowledge:
    """Classes in order of arrival, the network that tells them apart, and the images that are kept of them.

    `task_sizes` says how the network grew. None of it is changed by learning: a `learn` gives a new one.
    """

    class_names: tuple[str, ...]
    task_sizes: tuple[int, ...]
    method: str
    backbone: str
    preprocessing: Preprocessing
    network: Network
    trunk: Trunk | None
    """What stands before the network and is never trained, if anything."""
    memories: Memories
    temperature: float
    num_calibration_images: int
    history: tuple[Mapping[str, Any], ...]
    familiarity: Familiarity | None = None
    """What is usual for photos of known things, where enough were held out to say it."""

    @property
    def exemplars(self) -> ExemplarMemory:
        return self.memories.exemplars

    @property
    def held_out(self) -> ExemplarMemory:
        return self.memories.held_out

    @property
    def resizing(self) -> Resizing:
        return resizing_of(self.preprocessing)

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def trained_from(self) -> dict[str, float]:
        """For each class, the smallest position (`held_out.position`) of any image of it that was trained on.

        It is 0 where the history does not tell, so that no image can be taken for one that was never trained on.
        """
        smallest = trained_positions(self.history)
        return {name: smallest.get(name, 0.0) for name in self.class_names}

    @property
    def held_out_share(self) -> float:
        """The share of the memory that belongs to held-out images: that of the last `learn` that held some out."""
        if not self.held_out.num_images:
            return 0.0
        shares = [float(entry.get("held_out_share", 0.0)) for entry in self.history]
        return next((share for share in reversed(shares) if share), USUAL_HELD_OUT_SHARE)

    def classifier(
        self, device: torch.device, temperature: float | None = None, means: Tensor | None = None
    ) -> Classifier:
        """The network on `device`, in single precision, answering as its method says: by head or by nearest mean, of
        which the class means `[C, d]` may be known already."""
        preprocessing = self.preprocessing
        calibrated = self.temperature if temperature is None else temperature
        # A copy, since a classifier may go to another device; in one layout, since layouts round differently.
        network = copy.deepcopy(self.network).to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        trunk = copy.deepcopy(self.trunk)
        classifier = Classifier(network, preprocessing.mean, preprocessing.std, calibrated, trunk).to(device)
        if METHOD_SETTINGS[self.method].classifies_by == "nearest_mean":
            if means is None:
                exemplars = self.images_of(self.exemplars)
                means = class_means(classifier.features(exemplars.stack), exemplars.labels, self.num_classes)
            classifier.class_means = means.to(device)
        return classifier

    def with_entry(self, record: Mapping[str, Any]) -> "Knowledge":
        """The same with one more entry in its history, of now."""
        entry = {"when": datetime.now(UTC).isoformat(timespec="seconds"), "foster": __version__, **record}
        return replace(self, history=(*self.history, entry))

    def images_of(self, memory: ExemplarMemory) -> ImageSet:
        """The images of one of the two memories, possibly none."""
        images = memory.exemplars(self.class_names)
        return no_images(self.preprocessing.size, self.class_names) if images is None else images


@dataclass(frozen=True, eq=False)
class Change(Generic[Report]):
    """What comes of a `learn`, or of mending classes; nothing of what was known before is changed."""

    knowledge: Knowledge
    report: Report
    problem: str | None = None
    """Why it must not take the place of what was known, where it lost too much."""
    settings: LearnerSettings | None = None
    """Those from now on, where they change."""


def no_images(image_size: tuple[int, int], class_names: tuple[str, ...]) -> ImageSet:
    empty = torch.empty(0, 3, *image_size, dtype=torch.uint8)
    return ImageSet(empty, torch.empty(0, dtype=torch.int64), class_names)
