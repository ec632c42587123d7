"""Accuracy by class, the most confused pairs, the most confident mistakes, with pictures; and a calibration curve."""

import base64
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from foster.errors import DataError
from foster.reports.archive import Archive, BundleArchive
from foster.reports.pictures import shown_pixels
from foster.reports.style import COLOURS, SOFT_INK, new_figure, styled

PICTURES_OF_A_PAIR = 4
NUM_BINS = 10
"""Bins of confidence of the calibration curve."""


@dataclass(frozen=True)
class ClassRow:
    """One class: its task, its number of images that were never trained on, and its accuracy in percent for each of the
    runs or networks compared. `mistaken_for` is the most frequent wrong answer of the first of them, and `share` the
    percentage of images with it."""

    name: str
    task: int
    num_images: int
    accuracies: tuple[float, ...]
    mistaken_for: str
    share: float


@dataclass(frozen=True)
class Pair:
    """Two classes that are confused: the number of images, their share in percent, and some as data URLs."""

    true: str
    predicted: str
    count: int
    share: float
    pictures: tuple[str, ...] = ()


@dataclass(frozen=True)
class Mistake:
    """A wrong answer, and its confidence in percent; None if that is not known."""

    true: str
    predicted: str
    confidence: float | None
    picture: str


def class_rows(
    class_names: Sequence[str],
    task_sizes: Sequence[int],
    labels: NDArray[np.int64],
    predictions: Sequence[NDArray[np.int64]],
) -> list[ClassRow]:
    """A row for each class that has an image, in order of arrival."""
    counts = np.bincount(labels, minlength=len(class_names))
    rights = [np.bincount(labels[labels == predicted], minlength=len(class_names)) for predicted in predictions]
    tasks = np.repeat(np.arange(len(task_sizes)), task_sizes)
    worst: dict[int, tuple[int, int]] = {}
    for (true, other), count in _mistakes(labels, predictions[0]):
        worst.setdefault(true, (other, count))
    rows = []
    for class_id in np.flatnonzero(counts).tolist():
        other, count = worst.get(class_id, (0, 0))
        share = 100 * (count / int(counts[class_id]))
        rows.append(
            ClassRow(
                class_names[class_id],
                int(tasks[class_id]) + 1,
                int(counts[class_id]),
                tuple(100 * float(right[class_id] / counts[class_id]) for right in rights),
                class_names[other] if share else "",
                share,
            )
        )
    return rows


def _mistakes(labels: NDArray[np.int64], predicted: NDArray[np.int64]) -> list[tuple[tuple[int, int], int]]:
    """Each pair of a true and another predicted class id, with its number of images; the most frequent first."""
    answers = zip(labels.tolist(), predicted.tolist(), strict=True)
    mistakes = Counter((true, other) for true, other in answers if true != other)
    return sorted(mistakes.items(), key=lambda pair: (-pair[1], pair[0]))


def confused_pairs(archive: Archive, limit: int = 12) -> list[Pair]:
    """The pairs that are confused most often, with pictures if the images are available."""
    labels, predicted = archive.predictions()
    names = archive.class_names
    pairs = []
    for (true, other), count in _mistakes(labels, predicted)[:limit]:
        chosen = np.flatnonzero((labels == true) & (predicted == other))[:PICTURES_OF_A_PAIR]
        share = 100 * count / int((labels == true).sum())
        pairs.append(Pair(names[true], names[other], count, share, _pictures(archive, chosen)))
    return pairs


def most_confident_mistakes(archive: BundleArchive, limit: int = 18) -> tuple[list[Mistake], int]:
    """Images of a bundle with wrong answers, the most confident first if that is known; and their total number."""
    labels = archive.tested.labels.numpy()
    predicted, confidence = archive.tested_answers()
    wrong = np.flatnonzero((labels != predicted) & (predicted >= 0))
    chosen = wrong[np.argsort(-confidence[wrong], kind="stable")][:limit]
    names = archive.class_names
    mistakes = [
        Mistake(
            names[labels[k]],
            names[predicted[k]],
            None if np.isnan(confidence[k]) else 100 * float(confidence[k]),
            address,
        )
        for k, address in zip(chosen, _pictures(archive, chosen), strict=True)
    ]
    return mistakes, len(wrong)


def _pictures(archive: Archive, positions: NDArray[np.int64]) -> tuple[str, ...]:
    """Test images as data URLs; none if the images are not available."""
    try:
        images = archive.tested.select(torch.from_numpy(positions))
    except DataError:
        return ()
    return tuple(picture(image) for image in shown_pixels(images))


def picture(image: Tensor) -> str:
    """A picture as a data URL: uint8 `[3, H, W]` as PNG."""
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(image.permute(1, 2, 0).numpy())).save(file, format="PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


@styled()
def calibration_figure(archive: BundleArchive) -> Figure:
    """A calibration curve of the held-out images, in ten bins of confidence; larger dots are more images."""
    labels, predicted = archive.predictions()
    confidence = archive.probabilities.max(1)
    bins = np.minimum((confidence * NUM_BINS).astype(int), NUM_BINS - 1)
    counts = np.bincount(bins, minlength=NUM_BINS)
    filled = np.flatnonzero(counts)
    mean = np.array([100 * confidence[bins == index].mean() for index in filled])
    right = np.array([100 * (labels == predicted)[bins == index].mean() for index in filled])
    figure = new_figure(4.2, 3.6)
    axes = figure.subplots()
    axes.plot((0, 100), (0, 100), color=SOFT_INK, linewidth=0.8, linestyle="--")
    axes.plot(mean, right, color=COLOURS[0], linewidth=1.5)
    axes.scatter(mean, right, s=15 + 200 * counts[filled] / counts.sum(), color=COLOURS[0], zorder=3, clip_on=False)
    axes.set(xlim=(0, 100), ylim=(0, 100), xlabel="confidence (%)", ylabel="answers that are right (%)")
    axes.set_title(f"{archive.name}: {len(labels)} held-out images")
    return figure
