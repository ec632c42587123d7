"""Runs and bundles, read for figures and reports. Parts are read when they are used."""

import tempfile
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from foster.bundle.folder import MANIFEST, read_manifest
from foster.data.download import complete_folder
from foster.data.images import ImageSet, Stack
from foster.data.photos.stack import PhotoStack
from foster.data.photos.store import PhotoLoader
from foster.data.scenario import Scenario
from foster.errors import DataError, FosterError
from foster.events import EpochEnded
from foster.experiment.artifacts import Predictions, kept_networks, read_predictions
from foster.experiment.event_log import FollowedRun
from foster.experiment.folder import SETTINGS, RunFolder
from foster.experiment.parts import chosen_backbone, load_scenario, normalisation
from foster.experiment.plan import idle_method
from foster.experiment.results import RESULTS, RunResult, find_results, without_notes
from foster.learner.calibration import probabilities
from foster.learner.classifier import one_thread
from foster.learner.closed_form import solve
from foster.learner.feature_store import FeatureStore
from foster.learner.knowledge import Knowledge
from foster.learner.learner import Learner
from foster.methods.refresh import grown_sizes
from foster.networks.network import Network, Output
from foster.reports.groups import run_names
from foster.settings.engine import EngineSettings
from foster.settings.experiment import Settings
from foster.system.documents import read_tensors
from foster.system.files import user_path
from foster.system.output import printable
from foster.training.checkpoint import Checkpoint, explained_misfit
from foster.training.engine import Engine, find_device
from foster.training.fit import restore_trained
from foster.training.task import TaskState


class RunArchive:
    """A run's folder, or its results file alone, from which fewer figures can be drawn. `data` is the folder of its
    data."""

    kept_images = "exemplars"

    def __init__(self, result: RunResult, data: Path | None = None) -> None:
        self.result = result
        self.method = result.method
        self.name = f"{self.method} {result.recipe}".rstrip()
        self.class_names, self.task_sizes = result.classes, result.task_sizes
        self.path = result.path.parent if (result.path.parent / SETTINGS).is_file() else result.path
        self._data = data

    @property
    def title(self) -> str:
        return f"{self.name}, {self.result.scenario}"

    @property
    def folder(self) -> Path:
        if not self.path.is_dir():
            raise DataError(f"'{self.path}' is a results file alone; this needs the folder of the run")
        return self.path

    @cached_property
    def settings(self) -> Settings:
        # A stranger's settings may name any folder, so pixels are kept in the system's temporary folder.
        computing = EngineSettings(photo_cache=tempfile.gettempdir())
        settings = RunFolder(self.folder).settings().model_copy(update={"engine": computing})
        return settings.model_copy(update={"data": str(self._data)}) if self._data else settings

    @cached_property
    def epochs(self) -> list[EpochEnded]:
        """All epochs in order; for an epoch that was trained again after a crash, the later one."""
        run = FollowedRun(self.folder)
        run.read_events()
        return list(run.progress.trained.values())

    @cached_property
    def all_predictions(self) -> Predictions:
        return self.predictions_after()

    def predictions_after(self, task: int | None = None) -> Predictions:
        """The predictions of all variants, by default after the last task."""
        kept = read_predictions(self.folder, task)
        ids = np.concatenate([kept.labels, *kept.by_variant.values()])
        num_known = min(len(self.class_names), sum(self.task_sizes))
        are_known = bool(((ids >= 0) & (ids < num_known)).all())
        if not are_known or not 0 <= kept.task < len(self.task_sizes):
            raise DataError(
                f"the predictions in '{self.folder}' are of other classes or tasks than its results; if it is running, "
                "wait for the end of its task"
            )
        return kept

    @cached_property
    def scenario(self) -> Scenario:
        dataset, published = self.settings.dataset_settings, self.settings.facts.published
        try:
            if published and not complete_folder(published, dataset.folder):
                raise DataError(f"no files of {self.settings.dataset} in '{dataset.folder}'")
            return load_scenario(self.settings)
        except FosterError as error:
            raise DataError(
                f"the images of '{self.folder}' are missing: {error}; set their folder with --data, in Python data=..."
            ) from None

    def predictions(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """True and predicted class ids `[N]` of all test images so far."""
        kept = self.all_predictions
        if self.result.result not in kept.by_variant:
            raise DataError(f"'{self.folder}' keeps no predictions of its result, '{self.result.result}'")
        return kept.labels, kept.by_variant[self.result.result]

    @property
    def tested(self) -> ImageSet:
        """The images of `predictions`."""
        return self.scenario.test_up_to(self.all_predictions.task)

    @cached_property
    def _checkpoint(self) -> Checkpoint:
        checkpoint = RunFolder(self.folder).checkpoints.load(lambda message: None, is_read_only=True)
        if checkpoint is None or "network" not in checkpoint.parts:
            raise DataError(f"there is no checkpoint in '{self.folder}' of a task that was learned")
        return checkpoint

    def network(self) -> Network:
        """The network that is the result."""
        with explained_misfit(), torch.random.fork_rng(devices=[]):
            method, num_tasks = idle_method(self.settings), TaskState.of(self._checkpoint).task
            network = method.new_network(grown_sizes(method, self.task_sizes[:num_tasks]))
        restore_trained(network, self._checkpoint.parts["network"])
        return network

    def network_after(self, task: int, variant: str | None = None) -> nn.Module:
        """A kept network, of the result or of another variant."""
        variant = self.result.result if variant is None else variant
        kept = kept_networks(self.folder)
        if (task, variant) not in kept:
            names = ", ".join(sorted({f"'{name}'" for _, name in kept}))
            num_tasks = len({task for task, _ in kept})
            advice = f"it keeps {names} of {num_tasks} tasks" if kept else "run it with keep_networks=true"
            raise DataError(f"'{self.folder}' keeps no network '{variant}' of task {task + 1}; {advice}")
        weights = read_tensors(kept[task, variant])
        with explained_misfit(), torch.random.fork_rng(devices=[]):
            method = idle_method(self.settings)
            return method.network_of(variant, grown_sizes(method, self.task_sizes[: task + 1]), weights)

    def engine(self, device: torch.device) -> Engine:
        """An engine that normalises images as the run did."""
        return Engine(device, *normalisation(chosen_backbone(self.settings, is_trained=True), self.scenario))

    def infer(self, network: nn.Module, images: Stack) -> Output:
        """Logits and features of images, on the CPU."""
        device = find_device("auto")
        out = self.engine(device).infer(network.to(device), images)
        return Output(out.logits.cpu(), out.features.cpu())

    def exemplars(self) -> ImageSet:
        memory, photos = idle_method(self.settings).memory, self.settings.photos
        memory.kind = PhotoStack.of([], PhotoLoader(photos.image_size, photos.kept_side))
        if "memory" in self._checkpoint.parts:
            memory.load_state(self._checkpoint.parts["memory"])
        images = memory.exemplars(self.class_names)
        if images is None:
            raise DataError(f"'{self.folder}' keeps no exemplars: method {self.result.method} has no memory")
        return images


class BundleArchive:
    """A bundle, whose held-out images take the place of test images.

    In closed form no image is held out: each photo is predicted by a classifier of all others (leave-one-out).
    """

    kept_images = "kept photos"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = self.title = printable(folder.resolve().name)  # the link 'current' may lead to another bundle later
        self.manifest = read_manifest(folder)
        self.method = self.manifest.method
        self.class_names, self.task_sizes = self.manifest.classes, self.manifest.task_sizes

    @cached_property
    def learner(self) -> Learner:
        return Learner.load(self.folder)

    @property
    def _knowledge(self) -> Knowledge:
        knowledge = self.learner.knowledge
        assert knowledge is not None, "a loaded bundle has knowledge"
        return knowledge

    @property
    def _store(self) -> FeatureStore:
        store = self._knowledge.store
        assert store is not None, "a bundle in closed form has features"
        return store

    @property
    def is_closed_form(self) -> bool:
        return self._knowledge.is_closed_form

    @cached_property
    def tested(self) -> ImageSet:
        """The held-out images; in closed form, the kept photos."""
        if self.is_closed_form:
            return self.exemplars()
        images = self._knowledge.images_of(self._knowledge.held_out)
        if not len(images):
            raise DataError(f"bundle '{self.folder}' has no held-out images; training=fast and standard hold some out")
        return images

    @cached_property
    def probabilities(self) -> NDArray[np.float32]:
        """Probabilities of the held-out images, `[N, num_classes]`."""
        if self.is_closed_form:
            raise DataError(f"bundle '{self.folder}' has no held-out images: it is learned in closed form")
        values: NDArray[np.float32] = self.learner.classifier().probabilities(self.tested.stack).numpy()
        return values

    def predictions(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if not self.is_closed_form:
            return self.tested.labels.numpy(), self.probabilities.argmax(1)
        is_measured = self._store.answers >= 0
        if not bool(is_measured.any()):
            raise DataError(f"bundle '{self.folder}' keeps no features, without which its accuracy cannot be measured")
        return self._store.labels[is_measured].numpy(), self._store.answers[is_measured].numpy()

    def tested_answers(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The predicted class ids of the images of `tested`, and their probabilities.

        In closed form, each photo is predicted by a classifier of all others; -1 and NaN if there is none.
        """
        if not self.is_closed_form:
            return self.probabilities.argmax(1), self.probabilities.max(1)
        store = self._store
        with one_thread():
            solved = solve(store.statistics, store.features, store.kept_labels, store.kept_ids)
        answers = np.append(store.answers.numpy(), -1)  # the last row is for photos that the store does not have
        confidence = np.full(len(answers), np.nan, dtype=np.float32)
        confidence[store.rows[solved.positions]] = probabilities(solved.scores, self._knowledge.temperature).amax(1)
        row_of = {entry: row for row, entry in enumerate(zip(store.labels.tolist(), store.ids, strict=True))}
        photos = zip(self.tested.labels.tolist(), self.tested.stack.ids(), strict=True)
        rows = [row_of.get(photo, -1) for photo in photos]
        return answers[rows], confidence[rows]

    def network(self) -> Network:
        return self.learner.classifier().network

    def exemplars(self) -> ImageSet:
        images = self._knowledge.images_of(self._knowledge.exemplars)
        if not len(images):
            raise DataError(f"bundle '{self.folder}' keeps no photos")
        return images


Archive = RunArchive | BundleArchive
"""A run or a bundle: its classes in order of arrival, its predictions and its network."""


def accuracy_of(archive: Archive) -> float:
    """Accuracy in percent on all images of `predictions`."""
    labels, predicted = archive.predictions()
    return 100 * float((labels == predicted).mean())


def open_archives(paths: Iterable[Path | str], data: Path | None = None) -> list[Archive]:
    """The bundle at each path, the run of a results file, or all runs in or below a folder."""
    archives: list[Archive] = []
    for path in without_notes(user_path(path) for path in paths):
        if any((folder / MANIFEST).exists() for folder in (path, path / "current")):
            archives.append(BundleArchive(path))  # for a folder of bundles, the error names its link 'current'
        else:
            archives += [RunArchive(result, data) for result in find_results([path])]
    names = [archive.name for archive in archives]
    # Runs of one method are named by their settings and seeds, or by their files if these are equal.
    alike = [run for run in archives if isinstance(run, RunArchive) and names.count(run.name) > 1]
    names = run_names([run.result for run in alike])
    for run, name in zip(alike, names, strict=True):
        file = run.result.path
        of_file = file.parent.name if file.name == RESULTS else file.stem
        run.name = printable(of_file) if names.count(name) > 1 else name
    return archives
