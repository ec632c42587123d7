"""Figures of what changes while a run lasts: loss terms over epochs, new and old accuracy by task."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from foster.errors import DataError
from foster.reports.archive import RunArchive
from foster.reports.results import RunResult
from foster.reports.style import (
    COLOURS,
    LOOKS,
    SOFT_INK,
    End,
    grid_of_axes,
    label_ends,
    new_figure,
    some_of,
    styled,
)

HEIGHT = 2.6


@styled()
def new_old_figure(results: Sequence[RunResult], names: Sequence[str] = ()) -> Figure:
    """After each task, the accuracy on the classes of that task (left) and on those of all before it (right)."""
    named = zip(results, names or [result.method for result in results], strict=True)
    measured = [(result, name) for result, name in named if result.new_accuracy]
    if not measured:
        raise DataError("none of the runs tells new from old accuracy")
    shown, labels = [result for result, _ in measured], [name for _, name in measured]
    known = [LOOKS[result.method] for result in shown if result.method in LOOKS]
    free = [look for look in LOOKS.values() if look not in known]
    looks = [LOOKS.get(result.method) or free[k % len(free)] for k, result in enumerate(shown)]
    if len({look.colour for look in looks}) < len(looks):
        looks = [list(LOOKS.values())[k % len(LOOKS)] for k in range(len(shown))]
    figure = new_figure(10.5, 3.4)
    panels = grid_of_axes(figure, 2, 2, sharey=True)
    for axes, kind in zip(panels, ("new", "old"), strict=True):
        ends = []
        for result, look, label in zip(shown, looks, labels, strict=True):
            values = result.new_accuracy if kind == "new" else result.old_accuracy
            points = [(x, y) for x, y in zip(result.classes_seen, values, strict=False) if y is not None]
            across, up = [x for x, _ in points], [y for _, y in points]
            marks: dict[str, Any] = {"markeredgecolor": "white", "markevery": max(1, len(up) // 10)}
            axes.plot(across, up, color=look.colour, marker=look.marker, clip_on=False, **marks)
            ends += [End(up[-1], f"{label}  {up[-1]:.1f}", look)] if up and math.isfinite(up[-1]) else []
        counts = sorted({count for result in shown for count in result.classes_seen[int(kind == "old") :]})
        axes.set_xticks(counts[:: -(-len(counts) // 12)])
        axes.set(xlim=(counts[0] - (len(counts) == 1), counts[-1]), ylim=(0, 100), title=f"{kind} classes")
        axes.set(xlabel="classes seen", ylabel=f"accuracy on the {kind} classes (%)")
        axes.tick_params(labelleft=True)
        label_ends(axes, ends, 2.7)
    return figure


@styled()
def loss_figure(archives: Sequence[RunArchive]) -> Figure:
    """A panel a run: each loss term after each epoch, all phases of all tasks one after the other."""
    figure = new_figure(9.5, HEIGHT * len(archives) + 0.3)
    for axes, archive in zip(grid_of_axes(figure, len(archives), 1), archives, strict=True):
        _draw_losses(axes, archive)
    return figure


def epochs_of(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The `EpochEnded` events of a run in order; of an epoch that was done again after a crash, the later one."""
    by_epoch: dict[tuple[int, str, int], dict[str, Any]] = {}
    for event in events:
        at = event.get("task"), event.get("epoch")
        if event.get("event") == "EpochEnded" and None not in at and {"phase", "losses"} <= event.keys():
            by_epoch[event["task"], str(event["phase"]), event["epoch"]] = event
    return list(by_epoch.values())


def _alone(values: Sequence[float]) -> list[int]:
    """Where a value has no neighbour: the loss of a phase of one epoch, which is a point and no line."""
    padded = np.pad(~np.isnan(values), 1)
    return np.flatnonzero(padded[1:-1] & ~padded[:-2] & ~padded[2:]).tolist()


def _draw_losses(axes: Axes, archive: RunArchive) -> None:
    epochs = epochs_of(archive.events)
    if not epochs:
        raise DataError(f"'{archive.folder}' has no epochs in its events")
    terms = list(dict.fromkeys(name for event in epochs for name in event["losses"] if name != "total"))
    for term, colour in zip(terms, COLOURS * (1 + len(terms) // len(COLOURS)), strict=False):
        values = [event["losses"].get(term, math.nan) for event in epochs]
        points: dict[str, Any] = {"marker": ".", "markersize": 2.5, "markevery": _alone(values)}
        axes.plot(range(1, len(epochs) + 1), values, label=term, color=colour, linewidth=1.2, **points)
    starts = [k for k, event in enumerate(epochs) if k == 0 or event["task"] != epochs[k - 1]["task"]]
    for start in some_of(starts[1:]):
        axes.axvline(start + 0.5, color=SOFT_INK, linewidth=0.5)
    middles = [(start + end) / 2 for start, end in zip(starts, [*starts[1:], len(epochs)], strict=True)]
    if len(starts) <= 12:
        for start, middle in zip(starts, middles, strict=True):
            task = f"task {epochs[start]['task'] + 1}"  # a first task that was taken over has no epochs
            axes.text(middle, 1.0, task, transform=axes.get_xaxis_transform(), ha="center", va="top", size=8)
    axes.set(title=f"{archive.name}, {archive.result.scenario}", xlim=(1, max(2, len(epochs))), ylim=(0, None))
    axes.set(xlabel="epochs, all phases of all tasks", ylabel="mean over the epoch")
    above: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1, 1), "ncols": len(terms)}
    axes.legend(**above, frameon=False, labelcolor="linecolor", handlelength=1)
