"""Figures over time: loss terms by epoch, accuracy on new and old classes by task."""

import math
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from foster.errors import DataError
from foster.reports.archive import RunArchive
from foster.reports.curves import MOST_DRAWN, labels_of, looks_of
from foster.reports.groups import Group, by_scenario
from foster.reports.results import RunResult
from foster.reports.style import (
    BETWEEN_LABELS,
    COLOURS,
    GROUND,
    LABEL_LINE,
    LETTER,
    SOFT_INK,
    End,
    columns,
    grid_of_axes,
    label_ends,
    new_figure,
    points,
    some_of,
    styled,
)

HEIGHT = 2.6


@styled()
def new_old_figure(results: Sequence[RunResult]) -> Figure:
    """After each task, the accuracy on the classes of that task (left) and on those of all tasks before (right).

    A row for each scenario, a curve for each recipe: the mean over its seeds. With many recipes, only the best are
    drawn.
    """
    rows = list(by_scenario(run for run in results if run.new_accuracy).values())
    if not rows:
        raise DataError("none of the runs tells new from old accuracy")
    height = max(
        points(HEIGHT) * (1.0 if columns(2) == 2 else 0.75),
        (LABEL_LINE + BETWEEN_LABELS) * min(MOST_DRAWN, max(map(len, rows))),
    )
    width = 4.7 + LETTER * max(len(name) for row in rows for name in labels_of(row))
    figure = new_figure(columns(2) * width, 2 / columns(2) * len(rows) * (height + 0.8), keeps_shape=False)
    for index, axes in enumerate(grid_of_axes(figure, 2 * len(rows), columns(2))):
        row, is_old = rows[index // 2], index % 2 == 1
        _draw_accuracies(axes, row[:MOST_DRAWN], height, is_old=is_old)
        part = f", the best {MOST_DRAWN} of {len(row)} by their averages" if len(row) > MOST_DRAWN else ""
        scenario = f"{row[0].runs[0].scenario}{part}: " if len(rows) > 1 or part else ""
        axes.set_title(f"{scenario}{'old' if is_old else 'new'} classes")
    return figure


def _draw_accuracies(axes: Axes, groups: Sequence[Group], height: float, *, is_old: bool) -> None:
    ends = []
    for name, group, look in reversed([*zip(labels_of(groups), groups, looks_of(groups), strict=True)]):  # best on top
        by_count: dict[int, list[float]] = {}
        for run in group.runs:
            for count, value in zip(run.counts, run.old_accuracy if is_old else run.new_accuracy, strict=False):
                by_count.setdefault(count, []).extend([] if value is None else [value])
        across = [count for count, values in by_count.items() if values]
        up = [statistics.fmean(by_count[count]) for count in across]
        marks: dict[str, Any] = {"markeredgecolor": GROUND, "markevery": max(1, len(up) // 10)}
        axes.plot(across, up, color=look.colour, marker=look.marker, linestyle=look.line_style, clip_on=False, **marks)
        ends += [End(up[-1], f"{name}  last {up[-1]:.1f}", look)] if up and math.isfinite(up[-1]) else []
    seen = [run.counts for group in groups for run in group.runs]
    has_old = max(map(len, seen)) > 1  # not while the first task is the last one done
    counts = sorted({count for each in seen for count in each[int(is_old and has_old) :]})
    axes.set_xticks(counts[:: -(-len(counts) // 12)])
    axes.set(xlim=(counts[0] - (len(counts) == 1), counts[-1]), ylim=(0, 100), xlabel=groups[0].runs[0].counted_by)
    axes.set_ylabel(f"accuracy on the {'old' if is_old else 'new'} classes (%)")
    label_ends(axes, ends, height)


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
