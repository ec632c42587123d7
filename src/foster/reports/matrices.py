"""Figures of matrices: accuracy by task, and confusion between classes."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import NDArray

from foster.errors import DataError
from foster.experiment.results import RunResult
from foster.reports.archive import Archive, accuracy_of
from foster.reports.style import format_of_panels, grid_of_axes, is_narrow, new_figure, points, styled, wrapped

PANELS_IN_A_ROW = 3
MOST_NAMED = 20
"""Most classes that are named beside a matrix; with more, the borders between tasks are numbered."""
MOST_NUMBERED = 15
"""Most borders between tasks that are numbered; those too close to the last numbered one are not."""
MOST_WRITTEN = 12
"""Most tasks whose accuracies are written into the matrix."""
MOST_CELLS = 10**7
"""Most cells of all confusion matrices of a figure: 1 GB and many seconds."""
ON_BRIGHT = "#222222"
"""The colour of text on a bright cell, in light and dark reports."""


@styled()
def accuracy_matrix_figure(results: Sequence[RunResult], names: Sequence[str] = ()) -> Figure:
    """A panel for each run: after each task (rows), the accuracy on the classes of each task so far (columns)."""
    named = zip(results, names or [result.method for result in results], strict=True)
    titles = [f"{name}, {result.scenario}: final\u00a0{result.final_accuracy:.1f}\u00a0%" for result, name in named]
    figure, panels = _panels(titles, 3.6)
    for axes, result in zip(panels, results, strict=True):
        size = len(result.accuracy_matrix)
        values = np.full((size, size), np.nan)
        for row, accuracies in enumerate(result.accuracy_matrix):
            values[row, : len(accuracies)] = np.array(accuracies, dtype=float)  # None becomes NaN
        picture = axes.imshow(values, vmin=0, vmax=100)
        tested = "test images" if result.counted_by == "tasks learned" else "classes"
        axes.set(xlabel=f"accuracy on the {tested} of task", ylabel="after task")
        numbers = range(0, size, max(1, size // 10))
        axes.set_xticks(numbers, [str(number + 1) for number in numbers])
        axes.set_yticks(numbers, [str(number + 1) for number in numbers])
        if size <= MOST_WRITTEN:
            _write_values(axes, values)
    _colour_bar(figure, picture, panels, "accuracy (%)")
    return figure


@styled()
def confusion_figure(archives: Sequence[Archive]) -> Figure:
    """A panel for each run or bundle: the share of each true class (rows) that is predicted as each class (columns).

    Classes are in order of arrival; lines separate tasks. A bright column on the right means that much is predicted as
    new classes.
    """
    if sum(len(archive.class_names) ** 2 for archive in archives) > MOST_CELLS:
        raise DataError(f"these confusion matrices have more than {MOST_CELLS:,} cells; draw fewer runs or classes")
    figure, panels = _panels([f"{one.title}: {accuracy_of(one):.1f}\u00a0%" for one in archives], 4.2)
    for axes, archive in zip(panels, archives, strict=True):
        shares = confusion(*archive.predictions(), len(archive.class_names))
        # The square root makes small shares visible; a row without images stays blank.
        shown_shares = np.where(shares.any(1, keepdims=True), np.sqrt(shares), np.nan)
        picture = axes.imshow(shown_shares, vmin=0, vmax=1, interpolation="nearest")
        axes.set(xlabel="predicted", ylabel="true")
        _mark_tasks(axes, archive)
    bar = _colour_bar(figure, picture, panels, "share of the true class")
    shown = (0, 0.05, 0.2, 0.5, 1)
    bar.set_ticks([value**0.5 for value in shown], labels=[f"{value:g}" for value in shown])
    return figure


def confusion(labels: NDArray[np.int64], predicted: NDArray[np.int64], num_classes: int) -> NDArray[np.float64]:
    """The share of images of each true class that is predicted as each class, `[num_classes, num_classes]`.

    A row without images is all zero.
    """
    counts: NDArray[np.float64] = np.zeros((num_classes, num_classes))
    np.add.at(counts, (labels, predicted), 1)
    counts /= counts.sum(1, keepdims=True).clip(1)
    return counts


def _panels(titles: Sequence[str], side: float) -> tuple[Figure, list[Axes]]:
    """A figure with a panel of about `side` inches, without a frame, for each title."""
    num_columns = max(1, min(len(titles), 1 if is_narrow() else PANELS_IN_A_ROW))
    num_rows = -(-len(titles) // num_columns)
    width = format_of_panels(num_columns).width or side + 0.8 / num_columns
    figure = new_figure(num_columns * width, num_rows * (0.92 * width + points(0.9)), keeps_shape=False)
    panels = grid_of_axes(figure, len(titles), num_columns)
    for axes, title in zip(panels, titles, strict=True):
        axes.set_title(wrapped(title, 0.85 * width))
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
    return figure, panels


def _mark_tasks(axes: Axes, archive: Archive) -> None:
    edges = np.cumsum((0, *archive.task_sizes))
    for edge in edges[1:-1].tolist():
        axes.axhline(edge - 0.5, color="white", linewidth=0.5, alpha=0.7)
        axes.axvline(edge - 0.5, color="white", linewidth=0.5, alpha=0.7)
    if len(archive.class_names) <= MOST_NAMED:
        ticks = range(len(archive.class_names))
        axes.set_xticks(ticks, archive.class_names, rotation=90, size=points(7))
        axes.set_yticks(ticks, archive.class_names, size=points(7))
    else:
        numbered = [0]
        for edge in edges[1:].tolist():
            if edge - numbered[-1] >= len(archive.class_names) / MOST_NUMBERED:
                numbered.append(edge)
        axes.set_xticks([edge - 0.5 for edge in numbered], [str(edge) for edge in numbered])
        axes.set_yticks([edge - 0.5 for edge in numbered], [str(edge) for edge in numbered])


def _write_values(axes: Axes, values: NDArray[np.float64]) -> None:
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            colour = ON_BRIGHT if value > 55 else "white"
            axes.text(column, row, f"{value:.0f}", ha="center", va="center", color=colour, size=points(8))


def _colour_bar(figure: Figure, picture: AxesImage, panels: list[Axes], label: str):  # type: ignore[no-untyped-def]
    if is_narrow():
        bar = figure.colorbar(picture, ax=panels, aspect=40, pad=0.02, label=label, location="bottom")
    else:  # as high as the last panel of the first row
        side = panels[min(len(panels), PANELS_IN_A_ROW) - 1].inset_axes((1.03, 0, 0.03, 1))
        bar = figure.colorbar(picture, cax=side, label=label)
    bar.outline.set_visible(False)
    return bar
