"""The bundle that answers. It is loaded, tried out, and exchanged without a pause when the link `current` moves."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from foster.bundle.folder import MANIFEST, BundleError
from foster.bundle.promotion import LINK
from foster.data.photos.decode import decode_photo, image_file
from foster.evaluation.gradcam import grad_cam
from foster.learner.familiarity import Unknown
from foster.learner.learner import Learner
from foster.learner.prediction import Prediction
from foster.system.files import sha256_of
from foster.training.engine import exact_convolutions

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
RETRY_SECONDS = 5.0
MOST_CLASSES = 100
"""How many classes an answer may list."""

UNSURE_BELOW = 0.5
VERSION_LENGTH = 12
HEAT_COLOURS = "viridis"
"""A map from dark to bright, readable for the colour-blind."""


@dataclass(frozen=True, eq=False)
class Served:
    """A learner that answers, the name of its bundle's folder, and the start of the hash of its `bundle.json`.

    `bundle.json` has the classes and the hash of every other file, so different bundles have different versions.
    """

    learner: Learner
    name: str
    version: str
    unknown_below: Unknown

    @classmethod
    def load(cls, folder: Path, device: str, unknown_below: Unknown) -> "Served":
        """Load the bundle in `folder`, which is no link, and try it out: BundleError if its answers are not numbers.

        If the bundle has no test for unknown photos, "auto" means a confidence below `UNSURE_BELOW`.
        """
        learner = Learner.load(folder, device=device)
        version = sha256_of(folder / MANIFEST)[:VERSION_LENGTH]
        if unknown_below == "auto" and learner.known.familiarity is None:
            unknown_below = UNSURE_BELOW
        learner.try_out()
        return cls(learner, folder.name, version, unknown_below)

    def answers(self, images: Tensor) -> list[Prediction]:
        """Predictions for images uint8 `[N, 3, H, W]`, each with its `MOST_CLASSES` most probable classes."""
        return self.learner.answers(images, MOST_CLASSES, self.unknown_below)

    def decoded(self, content: bytes) -> Tensor:
        """An image file as uint8 `[3, H, W]` at the network's size. Raises ImageError."""
        resizing = self.learner.known.resizing
        return resizing(decode_photo(content, max(resizing.size)))

    def heat_map(self, image: Tensor, label: str | None) -> tuple[str, bytes]:
        """A heat map (Grad-CAM) of a known class, by default the best one. Returns the class and a translucent PNG to
        lay over the picture."""
        classifier, names = self.learner.classifier(), self.learner.class_names
        images = image[None]
        if label is None:
            label = self.answers(images)[0].top[0].label
        class_ids = torch.tensor([names.index(label)], device=classifier.device)
        with torch.no_grad():
            seen = classifier.prepared(images.to(classifier.device))
        with exact_convolutions():
            heat = grad_cam(classifier.network, seen, class_ids, classifier.scores_of)
        return label, _as_png(heat[0].cpu())


def _as_png(heat: Tensor) -> bytes:
    """Heat `[H, W]` from 0 to 1 as a translucent PNG."""
    from matplotlib import colormaps

    values = heat.numpy()
    pixels = colormaps[HEAT_COLOURS](values, bytes=True)
    pixels[..., 3] = np.rint(60 + 120 * values)
    return image_file(Image.fromarray(pixels), "PNG")


def find_link(path: Path) -> Path | None:
    """The link to watch: `path` itself, or `current` inside it; None if `path` is a bundle."""
    inside = path / LINK
    if inside.is_symlink():
        return inside
    if path.is_symlink():
        return path
    if (path / MANIFEST).exists():
        return None
    if not path.exists():
        raise BundleError(f"there is no bundle '{path}'")
    raise BundleError(
        f"'{path}' is neither a bundle nor a folder with a link '{LINK}'; 'foster promote BUNDLE' makes one"
    )


class Current:
    """The bundle in use. `now` changes between two requests; a request uses one bundle from beginning to end.

    `load` loads a bundle from its real folder. If that fails, the bundle in use stays.
    """

    def __init__(self, path: Path, load: Callable[[Path], Served]) -> None:
        self._load = load
        self._path = path
        self._link = find_link(path)
        self._folder = self._target()
        self.now = load(self._folder)
        self.num_swaps = 0
        self.problem: str | None = None
        """Why the promoted bundle is not in use, without any path; None if it is."""

    def _target(self) -> Path:
        """The folder behind the link, resolved once, since the link may move while the folder is read."""
        path = self._link or self._path
        try:
            return path.resolve(strict=True)
        except (OSError, RuntimeError):
            raise BundleError(f"there is no folder behind the link '{path}'") from None

    async def watch(self) -> None:
        """Check the link every `LOOK_SECONDS`, or every `RETRY_SECONDS` while its bundle cannot be loaded."""
        while self._link is not None:
            await asyncio.sleep(RETRY_SECONDS if self.problem else LOOK_SECONDS)
            await asyncio.to_thread(self.look)

    def look(self) -> None:
        """If the link has moved, load its bundle and use it."""
        target, problem = None, None
        try:
            target = self._target()
            if target != self._folder:
                before, self.now = self.now.name, self._load(target)
                self._folder = target
                self.num_swaps += 1
                logger.info("now serving '%s' (version %s) after '%s'", self.now.name, self.now.version, before)
        except Exception as error:  # the bundle in use still answers
            name = f"'{target.name}'" if target else "the link"
            problem = f"{name} was promoted but cannot be loaded; '{self.now.name}' still answers"
            if problem != self.problem:
                logger.error("%s: %s", problem, error)
        self.problem = problem
