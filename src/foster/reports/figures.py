"""Runs -> figures. matplotlib is imported where it is used and draws without a display."""

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from foster.errors import DataError, FolderError
from foster.reports.groups import Group, by_scenario
from foster.reports.results import RunResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Look:
    """How the curve of a method is drawn, in every figure alike."""

    colour: str
    marker: str


# Colours after Okabe and Ito, and three after Tol, that colour-blind people can tell apart; markers help in print.
LOOKS = {
    "foster": Look("#D55E00", "o"),
    "replay": Look("#0072B2", "s"),
    "finetune": Look("#7F7F7F", "v"),
    "lwf": Look("#332288", "p"),
    "der": Look("#009E73", "D"),
    "wa": Look("#E69F00", "^"),
    "icarl": Look("#56B4E9", "P"),
    "bic": Look("#CC79A7", "X"),
    "podnet": Look("#AA9C00", "<"),
    "coil": Look("#882255", ">"),
    "joint": Look("#000000", "*"),
}
OTHER = Look("#444444", "h")
LINE_STYLES = ("-", "-.", ":")
"""Of the augmentations of a panel; or, where a method has several recipes with one, of its groups by their averages."""

INK, SOFT_INK, GRID = "#333333", "#707070", "#E4E4E4"
PANELS_IN_A_ROW = 2
MOST_IN_A_PANEL = 12
"""Groups; of more, those of each augmentation get a panel of their own."""

PANEL_WIDTH, PANEL_HEIGHT = 7.0, 4.2
LABEL_HEIGHT = 0.26
"""Inches; a panel with more labels than fit below each other is higher."""


@dataclass(frozen=True)
class Curve:
    """Mean and sample standard deviation over runs after each task, `[T]` each, in percent."""

    label: str
    look: Look
    line_style: str
    is_boosted: bool
    num_runs: int
    classes_seen: tuple[int, ...]
    mean: tuple[float, ...]
    spread: tuple[float, ...]

    @property
    def average(self) -> float:
        """Average incremental accuracy."""
        return statistics.fmean(self.mean)


def accuracy_curves(results: Sequence[RunResult], path: Path, title: str | None = None) -> None:
    """Draw accuracy on all classes seen against their number: a panel a scenario, a curve a method.

    A scenario with too many curves has a panel for each augmentation, all on one scale. Several runs of a method become
    their mean with a band of one sample standard deviation. The boosted network, where there is one, is a thin dashed
    curve. The ending of `path` decides the file's format.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = _panels(results)
    if not panels:
        raise DataError("there are no runs to draw")
    num_columns = min(len(panels), PANELS_IN_A_ROW)
    num_rows = math.ceil(len(panels) / num_columns)
    height = max(PANEL_HEIGHT, LABEL_HEIGHT * max(len(panel.curves) for panel in panels))
    figure = Figure(figsize=(PANEL_WIDTH * num_columns, height * num_rows), dpi=160, layout="constrained")
    FigureCanvasAgg(figure)
    places = figure.subplots(num_rows, num_columns, squeeze=False).flat
    for axes, panel in zip(places, panels, strict=False):
        beside = [curve for other in panels if other.scenario == panel.scenario for curve in other.curves]
        _draw_panel(axes, panel.curves, _scale(beside), LABEL_HEIGHT / height)
        heading = title if title and len(panels) == 1 else panel.scenario
        axes.set_title(_panel_title(heading, panel.groups), loc="left", color=INK, weight="bold", pad=9)
    for axes in places[len(panels) :]:
        axes.set_visible(False)
    if title and len(panels) > 1:
        figure.suptitle(title, color=INK, weight="bold")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
    except OSError as error:
        raise FolderError(f"cannot write figure '{path}': {error.strerror}") from None
    except ValueError as error:  # an ending that names no format
        raise FolderError(f"cannot write figure '{path}': {error}") from None


@dataclass(frozen=True)
class _Panel:
    scenario: str
    groups: list[Group]

    @property
    def curves(self) -> list[Curve]:
        return list(_curves(self.groups))


def _panels(results: Sequence[RunResult]) -> list[_Panel]:
    panels = []
    for scenario, groups in by_scenario(results).items():
        augmentations = sorted({group.augmentation for group in groups}, reverse=True)
        if len(groups) <= MOST_IN_A_PANEL:
            panels.append(_Panel(scenario, groups))
            continue
        panels += [
            _Panel(scenario, [group for group in groups if group.augmentation == name]) for name in augmentations
        ]
    return panels


def _panel_title(heading: str, groups: Sequence[Group]) -> str:
    """With the augmentation that all curves share; where they share none, their labels tell it."""
    augmentations = {group.augmentation for group in groups}
    return f"{heading}, augmentation {augmentations.pop()}" if len(augmentations) == 1 else heading


def _curves(groups: Sequence[Group]) -> Iterator[Curve]:
    """The curves of one scenario, the best average first."""
    augmentations = sorted({group.augmentation for group in groups})
    for group in groups:
        same_method = [other for other in groups if other.method == group.method]
        label = f"{group.name} ({group.augmentation})" if len(augmentations) > 1 else group.name
        is_told_by_augmentation = len({other.augmentation for other in same_method}) == len(same_method)
        order = augmentations.index(group.augmentation) if is_told_by_augmentation else same_method.index(group)
        style = LINE_STYLES[order % len(LINE_STYLES)]
        yield from _curves_of_group(label, LOOKS.get(group.method, OTHER), style, group.runs)


def _curves_of_group(label: str, look: Look, style: str, group: Sequence[RunResult]) -> Iterator[Curve]:
    # Runs that saw different tasks cannot be averaged point by point.
    for classes_seen, same in itertools.groupby(sorted(group, key=_classes_seen), key=_classes_seen):
        runs = list(same)
        boosted = [run.boosted.accuracy for run in runs if run.boosted]
        for name, is_boosted, accuracies in ((f"{label} boosted", True, boosted), (label, False, _accuracies(runs))):
            if accuracies and all(len(accuracy) == len(classes_seen) for accuracy in accuracies):
                columns = list(zip(*accuracies, strict=True))
                yield Curve(
                    label=name,
                    num_runs=len(accuracies),
                    look=look,
                    line_style="--" if is_boosted else style,
                    is_boosted=is_boosted,
                    classes_seen=classes_seen,
                    mean=tuple(statistics.fmean(column) for column in columns),
                    spread=tuple(statistics.stdev(column) if len(column) > 1 else 0.0 for column in columns),
                )


def _classes_seen(run: RunResult) -> tuple[int, ...]:
    return run.classes_seen


def _accuracies(runs: Sequence[RunResult]) -> list[tuple[float, ...]]:
    return [run.accuracy for run in runs]


@dataclass(frozen=True)
class _Scale:
    bottom: float
    top: float
    step: float


def _scale(curves: Sequence[Curve]) -> _Scale:
    """An axis for all of them."""
    values = [value for curve in curves for value in curve.mean if math.isfinite(value)] or [0.0, 100.0]
    step = next(step for step in (5, 10, 20) if step == 20 or max(values) - min(values) < 6 * step)
    bottom = max(0, step * math.floor((min(values) - 1) / step))
    return _Scale(bottom, min(100, step * math.ceil((max(values) + 1) / step)), step)


def _draw_panel(axes: "Axes", curves: Sequence[Curve], scale: _Scale, label_height: float) -> None:
    """`label_height` is the share of the panel's height that a curve's label takes."""
    from matplotlib.ticker import MultipleLocator

    for curve in reversed(curves):  # the best on top
        _draw_curve(axes, curve)
    bottom, top, step = scale.bottom, scale.top, scale.step
    axes.set_ylim(bottom, top)
    axes.yaxis.set_major_locator(MultipleLocator(step))
    counts = sorted({count for curve in curves for count in curve.classes_seen})
    axes.set_xticks(counts if len(counts) <= 12 else counts[:: math.ceil(len(counts) / 11)])
    axes.set_xlim(counts[0], counts[-1] if len(counts) > 1 else counts[0] + 1)
    axes.set_xlabel("classes seen", color=INK)
    axes.set_ylabel("accuracy on all classes seen (%)", color=INK)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color("#999999")
    axes.tick_params(length=0, colors=INK, pad=6)
    _label_curves(axes, curves, bottom, top, gap=label_height * (top - bottom))


def _draw_curve(axes: "Axes", curve: Curve) -> None:
    if any(curve.spread) and not curve.is_boosted:
        low, high = ([m + sign * s for m, s in zip(curve.mean, curve.spread, strict=True)] for sign in (-1, 1))
        axes.fill_between(curve.classes_seen, low, high, color=curve.look.colour, alpha=0.18, linewidth=0)
    axes.plot(
        curve.classes_seen,
        curve.mean,
        color=curve.look.colour,
        linestyle=curve.line_style,
        linewidth=1.2 if curve.is_boosted else 2.0,
        marker="" if curve.is_boosted else curve.look.marker,
        # Fifty markers on one curve hide it.
        markevery=max(1, len(curve.mean) // 10),
        markersize=6,
        markeredgecolor="white",
        markeredgewidth=0.7,
        zorder=2.5 if curve.is_boosted else 3,
        clip_on=False,
    )


def _label_curves(axes: "Axes", curves: Sequence[Curve], bottom: float, top: float, gap: float) -> None:
    """Write each curve's name and average to the right of its end, pushed apart where the ends are close."""
    ends = sorted(curves, key=lambda curve: -curve.mean[-1])
    heights = _spaced([curve.mean[-1] for curve in ends], gap, bottom, top)
    for curve, height in zip(ends, heights, strict=True):
        runs = f"  (n = {curve.num_runs})" if curve.num_runs > 1 else ""
        axes.annotate(
            f"{curve.label}  {curve.average:.1f}{runs}",
            xy=(1.0, height),
            xycoords=axes.get_yaxis_transform(),
            xytext=(12, 0),
            textcoords="offset points",
            va="center",
            color=curve.look.colour,
            fontsize=9,
            weight="normal" if curve.is_boosted else "bold",
            annotation_clip=False,
        )
    axes.annotate(
        "average incremental\naccuracy (%)",
        xy=(1.0, 0.0),
        xycoords="axes fraction",
        xytext=(12, -14),
        textcoords="offset points",
        va="top",
        color=SOFT_INK,
        fontsize=8,
        annotation_clip=False,
    )


def _spaced(heights: Sequence[float], gap: float, bottom: float, top: float) -> list[float]:
    """Falling `heights`, moved as little as keeps them `gap` apart and, where there is room, inside the axis."""
    # With i gaps added to height i, "apart" means "still falling": neighbours that do not fall share their mean.
    blocks: list[list[float]] = []
    for index, height in enumerate(heights):
        blocks.append([height + index * gap])
        while len(blocks) > 1 and statistics.fmean(blocks[-2]) < statistics.fmean(blocks[-1]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    levels = [statistics.fmean(block) for block in blocks for _ in block]
    highest, lowest = top, bottom + (len(levels) - 1) * gap
    return [max(min(level, highest), lowest) - index * gap for index, level in enumerate(levels)]
