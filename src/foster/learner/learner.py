"""Learner: a classifier that learns new classes, and more photos of known ones, again and again."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from foster import events
from foster.bundle.folder import BundleError
from foster.data.photos.decode import ImageLike, decoded
from foster.data.photos.find import Images, Labels, Source, as_items, find_photos, item_name
from foster.errors import DataError
from foster.events import Listener
from foster.experiment.engine import check_engine
from foster.learner import mending
from foster.learner.assessment import EvaluationReport, assess
from foster.learner.calibration import UNCALIBRATED
from foster.learner.classifier import Classifier
from foster.learner.closed_form import learn_in_closed_form
from foster.learner.familiarity import UNFAMILIAR, Unknown
from foster.learner.knowledge import Knowledge
from foster.learner.plan import make_plan
from foster.learner.prediction import CalibrationWarning, Prediction
from foster.learner.reports import LearnReport, MendReport, UpdateError, problem
from foster.learner.saving import load_knowledge, save_knowledge
from foster.learner.train import learn_by_training
from foster.learner.work_folder import WorkFolder, opened
from foster.networks.adapted import ModuleLike
from foster.settings.learner import AUTO, CLOSED_FORM, LearnerSettings, learner_settings
from foster.settings.plugins import load_plugins
from foster.system.counts import counted
from foster.system.signals import StopRequest
from foster.training.engine import find_device
from foster.training.memory_errors import explained_memory_errors

if TYPE_CHECKING:
    from foster.learner.export import ExportReport


class Learner:
    """A classifier that learns classes from folders of photos and is saved as a bundle.

    ```python
    learner = foster.Learner(memory_total=2000)
    learner.learn("photos/january")       # one subfolder a class
    learner.save("bundles/january")       # the photos may be deleted
    learner = foster.load("bundles/january")
    learner.learn("photos/february")      # new classes, and more images of known ones
    learner.predict(["a.jpg", "b.jpg"])
    ```
    """

    def __init__(
        self,
        method: str = AUTO,
        *,
        backbone: str | ModuleLike = "auto",
        image_size: str | int | tuple[int, int] = "auto",
        memory_total: int | None = None,
        memory_per_class: int | None = None,
        training: str = "standard",
        device: str = "auto",
        **settings: Any,
    ) -> None:
        """`method` is `auto`, `closed_form` or a method that trains the network, such as `foster`. `backbone` is a name
        or a torch module; `auto` chooses it, and the size, by the first photos.

        A bundle keeps `memory_total` photos in all (2,000 by default; 0 for none, in closed form) or `memory_per_class`
        of each class. `training` is how long a network is trained: fast, standard or paper. `settings` takes every
        other key that `foster learn --keys` lists, tables as mappings: `foster={...}`.
        """
        checked = learner_settings(
            method=method,
            backbone=backbone if isinstance(backbone, str) else "auto",
            image_size=image_size,
            memory_total=memory_total,
            memory_per_class=memory_per_class,
            training=training,
            device=device,
            **settings,
        )
        self._begin(checked, None, None if isinstance(backbone, str) else backbone)

    @classmethod
    def from_settings(
        cls, settings: LearnerSettings, knowledge: Knowledge | None = None, backbone: ModuleLike | None = None
    ) -> "Learner":
        """A learner with checked settings, and with `knowledge` if something was learned already."""
        learner = cls.__new__(cls)
        learner._begin(settings, knowledge, backbone)
        return learner

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        device: str = "auto",
        backbone: ModuleLike | None = None,
        plugins: Sequence[str] = (),
    ) -> "Learner":
        """A learner as it was saved. Give `backbone` if it was a torch module, and `plugins` if the method or the
        backbone comes from plug-ins: a bundle names its plug-ins, but they are imported only if you name them here."""
        load_plugins(plugins)
        settings, knowledge = load_knowledge(Path(folder), backbone)
        return cls.from_settings(learner_settings(base=settings, device=device), knowledge, backbone)

    def _begin(self, settings: LearnerSettings, knowledge: Knowledge | None, backbone: ModuleLike | None) -> None:
        self.settings = settings
        self.knowledge = knowledge
        self._backbone = backbone
        self._classifier: Classifier | None = None

    def configure(self, overrides: Sequence[str] = (), **changes: Any) -> None:
        """Change settings from now on, by `key=value` texts or by keywords."""
        has_learned = self.knowledge is not None
        self.settings = learner_settings(overrides, base=self.settings, has_learned=has_learned, **changes)
        self._classifier = None

    def __repr__(self) -> str:
        if self.knowledge is None:
            return f"<Learner: {self.settings.method}, has learned nothing yet>"
        known, size = self.knowledge, self.knowledge.preprocessing
        what = f"{known.method} with {known.backbone} at {size.height} x {size.width}"
        kept = counted(known.exemplars.num_images, "exemplar")
        return f"<Learner: {what}, {counted(known.num_classes, 'class')}, {kept}>"

    @property
    def class_names(self) -> tuple[str, ...]:
        """All classes in order of arrival; a class's position is its id."""
        return self.knowledge.class_names if self.knowledge else ()

    def learn(
        self,
        source: Source | Images,
        labels: Labels | None = None,
        *,
        max_drop: float | None = None,
        listener: Listener | None = None,
        stop: StopRequest | None = None,
        work_folder: str | Path | WorkFolder | None = None,
        **changes: Any,
    ) -> LearnReport:
        """Learn a folder with a subfolder a class, a CSV of path and label, or images with `labels`. Returns a report
        with the accuracy of each class before and after.

        Classes may be new or known. If anything fails, the learner is unchanged. With `max_drop`, UpdateError is raised
        if the known classes lose more points than that on the images that are kept of them; `uncompared` of the report
        names the classes without such images. `changes` are settings for this and later learns, such as
        `training="fast"`.

        With a `work_folder`, progress is saved there from time to time, and the same call continues after an
        interruption. The folder is removed when the learn ends, unless it is a WorkFolder that is still open. A
        `listener` gets the plan, and then the progress.
        """
        settings = self.settings
        if changes:
            settings = learner_settings(base=settings, has_learned=self.knowledge is not None, **changes)
        photos = find_photos(source, labels)
        check_engine(settings.engine, settings.device)
        with opened(work_folder) as work, explained_memory_errors(find_device(settings.device)):
            plan = make_plan(self.knowledge, settings, photos, self._backbone, listener=listener, stop=stop, work=work)
            learn = learn_in_closed_form if plan.settings.method == CLOSED_FORM else learn_by_training
            knowledge, report = learn(plan)
        decided = {"method": knowledge.method, "backbone": knowledge.backbone, "image_size": knowledge.resizing.size}
        settings = settings.model_copy(update=decided)
        lost = None if max_drop is None else problem(report.checks, max_drop)
        if lost:
            raise UpdateError(lost, report, Learner.from_settings(settings, knowledge, self._backbone))
        self._begin(settings, knowledge, self._backbone)
        return report

    def predict(self, images: ImageLike | Images, top: int = 5, unknown_below: Unknown = None) -> list[Prediction]:
        """The best `top` classes of each image, in the order of the images, as `label`, `confidence` and `top`.

        Images are paths (a folder means all images below it), PIL images or arrays, one or many. An array
        with three axes is one image if its shape is `[H, W, 1|3|4]` (a tensor: `[1|3|4, H, W]`), else grey images
        `[N, H, W]`. An image that cannot be read gets an entry with an `error`. With `unknown_below`, an image whose
        best class has a smaller probability is "unknown"; "auto" compares confidence and nearness to the classes with
        those of held-out images, so that about 95 % of the images of known classes are answered. A CalibrationWarning
        is issued if the confidence is not calibrated.
        """
        return list(self.predicted(as_items(images), top, unknown_below))

    def predicted(
        self, items: Sequence[ImageLike], top: int = 5, unknown_below: Unknown = None
    ) -> Iterator[Prediction]:
        """As `predict`, one by one while images are still being read: the memory does not grow with their number."""
        if top < 1:
            raise DataError(f"top is a number of classes from 1, not {top}")
        if unknown_below == "auto":
            if self.known.familiarity is None:
                raise DataError(UNFAMILIAR)
        elif unknown_below is not None:
            if not 0 <= unknown_below <= 1:
                raise DataError(f"unknown_below is a probability from 0 to 1, or 'auto', not {unknown_below!r}")
            if not self.known.num_calibration_images:
                warnings.warn(UNCALIBRATED, CalibrationWarning, stacklevel=2)
        return self._predictions(items, top, unknown_below)

    def _predictions(self, items: Sequence[ImageLike], top: int, unknown_below: Unknown) -> Iterator[Prediction]:
        for batch in decoded(items, self.known.resizing):
            images = list(batch.results.values())
            answers = self.answers(torch.stack(images), top, unknown_below) if images else []
            predictions = dict(zip(batch.results, answers, strict=True))
            predictions |= {position: Prediction("", error=reason) for position, reason in batch.unreadable.items()}
            for position in sorted(predictions):
                yield replace(predictions[position], name=item_name(items[position], position))

    def answers(self, images: Tensor, top: int = 5, unknown_below: Unknown = None) -> list[Prediction]:
        """As `predict`, for images that are decoded: uint8 `[N, 3, H, W]` at the network's size."""
        rows, features = self.classifier().described(images)
        if not bool(rows.isfinite().all()):
            raise BundleError("the network's answers are not numbers: its weights are damaged or far too large")
        familiarity = self.known.familiarity
        if unknown_below == "auto" and familiarity is not None:
            is_unknown = familiarity.scores(rows, features) < familiarity.threshold
        else:
            is_unknown = rows.amax(1) < float(unknown_below or 0.0)
        return [
            Prediction.of(f"image {k}", self.class_names, row, top, unknown)
            for k, (row, unknown) in enumerate(zip(rows, is_unknown.tolist(), strict=True))
        ]

    def try_out(self) -> None:
        """Predict two images, a black one and one of noise. Raises BundleError if the probabilities are not numbers, or
        if the test for unknown images fails."""
        noise = torch.randint(256, (1, 3, *self.known.resizing.size), generator=torch.Generator().manual_seed(0))
        images = torch.cat((torch.zeros_like(noise), noise)).to(torch.uint8)
        try:
            self.answers(images, unknown_below="auto" if self.known.familiarity else None)
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
            raise BundleError("the test for unknown photos in the bundle is damaged") from None

    def evaluate(
        self, source: Source | Images, labels: Labels | None = None, *, listener: Listener = events.ignore
    ) -> EvaluationReport:
        """Accuracy on labelled images, class by class; those labelled "unknown" should not be recognised. A `listener`
        gets the progress."""
        return assess(self.known, self.classifier(), find_photos(source, labels), listener)

    def rename(self, old: str, new: str) -> MendReport:
        """Give a class another name."""
        return self._mended(*mending.rename(self.known, old, new))

    def merge(self, names: Sequence[str], into: str) -> MendReport:
        """Merge several classes into one."""
        return self._mended(*mending.merge(self.known, self.settings, names, into))

    def forget(self, *names: str) -> MendReport:
        """Remove classes, everything that is kept of them, and their names."""
        return self._mended(*mending.forget(self.known, self.settings, names))

    def remove_photos(self, *photos: str | Path) -> MendReport:
        """Remove kept photos, given by file or id. In closed form the sums no longer have them."""
        texts = [str(photo) for photo in photos]
        return self._mended(*mending.remove_photos(self.known, self.settings, texts))

    def _mended(self, knowledge: Knowledge, report: MendReport) -> MendReport:
        self._begin(self.settings, knowledge, self._backbone)
        return report

    def save(self, folder: str | Path) -> Path:
        """Write a bundle, whole or not at all. The folder must not exist yet."""
        return save_knowledge(Path(folder), self.settings, self.known)

    def export(self, file: str | Path) -> "ExportReport":
        """Write the network for another program, as ONNX, if its probabilities agree with those of PyTorch."""
        from foster.learner.export import export_classifier

        return export_classifier(self.known, Path(file))

    def classifier(self) -> Classifier:
        """The classifier, on the learner's device."""
        if self._classifier is None:
            with explained_memory_errors(device := find_device(self.settings.device)):
                self._classifier = self.known.classifier(device)
        return self._classifier

    @property
    def known(self) -> Knowledge:
        """What was learned so far. Raises DataError if there is nothing."""
        if self.knowledge is None:
            raise DataError("this learner has not learned anything yet; call learn first")
        return self.knowledge


load = Learner.load
"""`foster.load("bundles/january")` is `Learner.load`: a learner as it was saved."""
