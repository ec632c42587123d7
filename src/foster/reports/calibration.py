"""A calibration curve: whether an answer that is given with 80 % confidence is right in 80 of 100 cases."""

import numpy as np
from matplotlib.figure import Figure

from foster.reports.archive import BundleArchive
from foster.reports.style import COLOURS, SOFT_INK, new_figure, styled

NUM_BINS = 10


def calibration_figure(archive: BundleArchive) -> Figure:
    """Held-out images in ten bins of confidence: how often the answers of each are right; larger dots are of more."""
    labels, predicted = archive.predictions()
    confidence = archive.probabilities.max(1)
    bins = np.minimum((confidence * NUM_BINS).astype(int), NUM_BINS - 1)
    counts = np.bincount(bins, minlength=NUM_BINS)
    filled = np.flatnonzero(counts)
    mean = np.array([100 * confidence[bins == index].mean() for index in filled])
    right = np.array([100 * (labels == predicted)[bins == index].mean() for index in filled])
    with styled():
        figure = new_figure(4.2, 3.6)
        axes = figure.subplots()
        axes.plot((0, 100), (0, 100), color=SOFT_INK, linewidth=0.8, linestyle="--")
        axes.plot(mean, right, color=COLOURS[0], linewidth=1.5)
        axes.scatter(mean, right, s=15 + 200 * counts[filled] / counts.sum(), color=COLOURS[0], zorder=3, clip_on=False)
        axes.set(xlim=(0, 100), ylim=(0, 100), xlabel="confidence (%)", ylabel="answers that are right (%)")
        axes.set_title(f"{archive.name}: {len(labels)} held-out images")
    return figure
