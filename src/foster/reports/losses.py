"""The figure of losses: each term by epoch."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from foster.errors import DataError
from foster.reports.archive import RunArchive
from foster.reports.style import COLOURS, SOFT_INK, columns, grid_of_axes, new_figure, points, some_of, styled

HEIGHT = 2.6


@styled()
def loss_figure(archives: Sequence[RunArchive]) -> Figure:
    """A panel for each run: each loss term after each epoch, over all phases of all tasks."""
    figure = new_figure(9.5, HEIGHT * len(archives) + 0.3, keeps_shape=False)
    for axes, archive in zip(grid_of_axes(figure, len(archives), 1), archives, strict=True):
        _draw_losses(axes, archive)
    return figure


def _alone(values: NDArray[np.float64]) -> list[int]:
    """The positions of values without neighbours, such as the loss of a phase of one epoch."""
    padded = np.pad(~np.isnan(values), 1)
    return np.flatnonzero(padded[1:-1] & ~padded[:-2] & ~padded[2:]).tolist()


def _draw_losses(axes: Axes, archive: RunArchive) -> None:
    epochs = archive.epochs
    if not epochs:
        raise DataError(f"'{archive.folder}' has no epochs in its events")
    terms = list(dict.fromkeys(name for event in epochs for name in event.losses if name != "total"))
    starts = [k for k, event in enumerate(epochs) if k == 0 or event.task != epochs[k - 1].task]
    # A gap before each task, so that no line leads from one task to the next.
    numbers = np.insert(np.arange(1.0, len(epochs) + 1), starts[1:], np.nan)
    for term, colour in zip(terms, COLOURS * (1 + len(terms) // len(COLOURS)), strict=False):
        values = np.insert([event.losses.get(term, math.nan) for event in epochs], starts[1:], math.nan)
        dots: dict[str, Any] = {"marker": ".", "markersize": points(2.5), "markevery": _alone(values)}
        axes.plot(numbers, values, label=term, color=colour, linewidth=points(1.2), **dots)
    for start in some_of(starts[1:]):
        axes.axvline(start + 0.5, color=SOFT_INK, linewidth=0.5)
    middles = [(start + end) / 2 for start, end in zip(starts, [*starts[1:], len(epochs)], strict=True)]
    if len(starts) <= 12:
        for start, middle in zip(starts, middles, strict=True):
            task = f"task {epochs[start].task + 1}"  # a first task that was taken over has no epochs
            axes.text(middle, 1.0, task, transform=axes.get_xaxis_transform(), ha="center", va="top", size=points(8))
    axes.margins(y=0.15)  # room for the names of the tasks
    axes.set(title=f"{archive.name}, {archive.result.scenario}", xlim=(1, max(2, len(epochs))), ylim=(0, None))
    axes.set(xlabel="epochs, all phases of all tasks", ylabel="mean over the epoch")
    above: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1, 1)}
    below: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.2), "columnspacing": 1}
    place = above if columns(2) == 2 or len(terms) == 1 else below  # beside the title there is no room in a narrow one
    axes.legend(**place, ncols=len(terms), frameon=False, labelcolor="linecolor", handlelength=1)
