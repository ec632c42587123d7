"""Accuracy after each task: a panel for runs that can be compared, with a labelled curve for each method and recipe."""

import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from foster.errors import DataError
from foster.experiment.results import RunResult
from foster.reports.groups import Group, comparable_groups
from foster.reports.style import (
    COLOURS,
    GROUND,
    INK,
    MARKERS,
    PAPER,
    End,
    Look,
    format_of_panels,
    grid_of_axes,
    is_narrow,
    label_ends,
    look_of,
    new_figure,
    points,
    styled,
    wrapped,
)
from foster.settings.methods import METHOD_SETTINGS, facts_of

LINE_STYLES = ("-", "-.", ":")
"""Line styles of the recipes of a method."""

MOST_DRAWN = 15
"""With more groups in a panel, only the best are drawn."""

AXES_WIDTH, AXES_HEIGHT = 5.0, 3.5
"""Size of a panel in inches; its height grows with the labels beside it."""


@dataclass(frozen=True)
class Curve:
    """Mean and sample standard deviation over runs after each task, `[T]` each, in percent."""

    label: str
    look: Look
    is_result: bool
    num_runs: int
    counted_by: str
    counts: tuple[int, ...]
    """Numbers of classes seen or tasks learned (`RunResult.counted_by`)."""
    mean: tuple[float, ...]
    spread: tuple[float, ...]
    is_finished: bool
    has_average: bool
    """Whether the label has the average, or the last value."""
    is_bound: bool
    """Whether the method keeps all images. It is a bound and is not compared with the others."""

    @property
    def average(self) -> float:
        """Average incremental accuracy; NaN if the curve does not begin with the first task."""
        return statistics.fmean(self.mean)

    @property
    def end(self) -> End:
        """The label of the curve: its name, and its average if all tasks are done; or its last value."""
        last = [value for value in self.mean if math.isfinite(value)][-1]  # a variant may lack later tasks
        number = f"average {self.average:.1f}" if self.is_finished and math.isfinite(self.average) else ""
        number = number if self.has_average else f"last {last:.1f}"
        runs = f" (n = {self.num_runs})" if self.num_runs > 1 and number else ""
        # Lines are not broken at these spaces.
        numbers = f"{number}{runs}".replace(" ", "\u00a0")
        return End(last, f"{self.label}  {numbers}".rstrip(), self.look, is_bold=self.is_result)


@dataclass(frozen=True)
class Panel:
    """Curves that can be compared, the best average first, and a `note` on them."""

    title: str
    curves: list[Curve]
    note: str
    of_what: str = ""
    """The images that the accuracy is measured on; by default all test images so far."""


def accuracy_figure(results: Sequence[RunResult], title: str | None = None) -> Figure:
    """Accuracy on all classes seen against their number: a panel for each scenario, augmentation and class order, a
    curve for each method and recipe.

    Runs that differ in their seed alone become one curve: their mean, with a band of one sample standard deviation.
    Other variants of a run are thin dashed curves. The gap between the two best is written at their ends.
    """
    return _figure(panels(results), title)


def new_old_figure(results: Sequence[RunResult]) -> Figure:
    """After each task, the accuracy on the classes of that task (left) and on those of all tasks before (right)."""
    panels = []
    for title, groups, looks, note in _compared(results):
        is_given = groups[0].runs[0].counted_by == "tasks learned"
        for what in ("new", "old"):
            curves = []
            for group in groups:
                rows = [run.new_accuracy if what == "new" else run.old_accuracy for run in group.runs]
                if any(value is not None for row in rows for value in row):
                    curves.append(_curve(group.name, looks[group.name], group.runs, rows, has_average=False))
            if curves:
                part = f"{what} task{'s' if what == 'old' else ''}" if is_given else f"{what} classes"
                of_what = f"the test images of the {part}" if is_given else f"the {part}"
                panels.append(Panel(f"{part}: {title}", curves, note, of_what))
    return _figure(panels, None)


def variants_figure(named: Mapping[str, Sequence[RunResult]], title: str) -> Figure:
    """Accuracy on all classes seen: a panel for each scenario, a curve for each group of runs under its given name.

    Groups of several methods have the colours of their methods; groups of one method have different colours. Other
    variants of a run are drawn if there is one group, or if the groups have the names of methods.
    """
    named = {name: runs for name, runs in named.items() if runs}
    methods = {name: runs[0].method for name, runs in named.items()}
    looks = dict(zip(named, itertools.cycle(map(Look, COLOURS, MARKERS)), strict=False))
    if len(set(methods.values())) > 1:
        looks = looks_of((method, name) for name, method in methods.items())
    has_variants = len(named) == 1 or set(named) <= METHOD_SETTINGS.keys()
    panels = []
    for scenario in dict.fromkeys(run.scenario for group in named.values() for run in group):
        curves: list[Curve] = []
        for name, group in named.items():
            if runs := [run for run in group if run.scenario == scenario]:
                curves += _curves(name, runs, looks[name])
        curves = [curve for curve in curves if has_variants or curve.is_result]
        panels.append(Panel(scenario, curves, ""))
    return _figure(panels, title)


@styled()
def _figure(shown: Sequence["Panel"], title: str | None) -> Figure:
    if not shown:
        raise DataError("there are no runs to draw")
    num_columns = min(1 if is_narrow() else 2, len(shown))
    of_panel = format_of_panels(num_columns)
    with of_panel.used():
        ends = [[curve.end for curve in panel.curves] for panel in shown]
        width = AXES_WIDTH + 0.7 + max(end.width for panel in ends for end in panel)
        least = points(AXES_HEIGHT) * (0.75 if is_narrow() else 1.0)
        height = max(least, *(sum(end.height for end in panel) for panel in ends))
    num_rows = math.ceil(len(shown) / num_columns)
    figure = new_figure(num_columns * width, num_rows * (height + points(0.9)), keeps_shape=False)
    with of_panel.used():
        for axes, panel, labels in zip(grid_of_axes(figure, len(shown), num_columns), shown, ends, strict=True):
            axes.set_title(wrapped(title if title and len(shown) == 1 else panel.title, width))
            _draw(axes, panel)
            label_ends(axes, labels, height)
    if title and len(shown) > 1:
        figure.suptitle(wrapped(title, num_columns * width), x=0.01, ha="left")
    return figure


def panels(results: Sequence[RunResult]) -> list[Panel]:
    """A panel for each scenario, augmentation and class order."""
    return [
        Panel(title, [curve for group in groups for curve in _curves(group.name, group.runs, looks[group.name])], note)
        for title, groups, looks, note in _compared(results)
    ]


def _compared(results: Sequence[RunResult]) -> Iterator[tuple[str, list[Group], dict[str, Look], str]]:
    """For each panel: its title, the groups that are drawn, the looks of all groups by their names, and a note."""
    parts = list(comparable_groups(results))
    looks = looks_of((group.method, group.name) for _, groups in parts for group in groups)
    for title, groups in parts:
        drawn = groups[:MOST_DRAWN]
        notes = [f"the best {len(drawn)} of {len(groups)} by their averages"] if len(groups) > len(drawn) else []
        notes += ["band: one standard deviation"] if any(len(group.runs) > 1 for group in drawn) else []
        yield title, drawn, looks, ", ".join(notes)


def _draw(axes: Axes, panel: Panel) -> None:
    for curve in reversed(panel.curves):  # the best on top
        look = curve.look
        if any(curve.spread) and curve.is_result:
            low, high = ([m + sign * s for m, s in zip(curve.mean, curve.spread, strict=True)] for sign in (-1, 1))
            axes.fill_between(curve.counts, low, high, color=look.colour, alpha=0.18, linewidth=0)
        axes.plot(
            curve.counts,
            curve.mean,
            color=look.colour,
            linestyle=look.line_style,
            linewidth=points(2.0 if curve.is_result else 1.2),
            marker=look.marker,
            # Many markers would hide the curve. Stars are larger, because their white edge covers most of them.
            markevery=max(1, len(curve.mean) // 10),
            markersize=points(10 if look.marker == "*" else 6),
            markeredgecolor=GROUND,
            markeredgewidth=points(0.7),
            zorder=3 if curve.is_result else 2.5,
            clip_on=False,
        )
    bottom, top = axes.get_ylim()
    axes.set_ylim(max(0.0, bottom), min(100.0, top))
    counts = sorted({count for curve in panel.curves for count in curve.counts})
    most_ticks = 6 if is_narrow() else 12
    axes.set_xticks(counts if len(counts) <= most_ticks else counts[:: math.ceil(len(counts) / most_ticks)])
    counted_by = panel.curves[0].counted_by
    of_what = panel.of_what or ("all classes seen" if counted_by == "classes seen" else "the test images so far")
    axes.set(xlim=(counts[0], counts[-1]), ylabel=f"accuracy on {of_what} (%)")
    axes.set_xlabel("\n".join(filter(None, (counted_by, wrapped(panel.note, AXES_WIDTH)))))
    if panel.curves[0].has_average:
        _draw_gap(axes, panel.curves)


def _draw_gap(axes: Axes, curves: Sequence[Curve]) -> None:
    """Write the gap between the ends of the two best curves, if it is wide enough."""
    ends = [curve.mean[-1] for curve in curves if curve.is_result and curve.is_finished and not curve.is_bound]
    low, high = axes.get_ylim()
    if len(ends) < 2 or len(curves[0].mean) < 2:
        return
    second, first = sorted(ends)[-2:]
    if first - second > 0.08 * (high - low):
        last = curves[0].counts[-1]
        arrow = {"arrowstyle": "<->", "color": INK, "linewidth": 0.8, "shrinkA": 3, "shrinkB": 3}
        axes.annotate("", (last, first), (last, second), arrowprops=arrow, zorder=4, annotation_clip=False)
        text = f"+{first - second:.1f}"
        centre = (last, (first + second) / 2)
        beside = axes.annotate(text, centre, (-6, 0), textcoords="offset points", ha="right", va="center")
        beside.set(zorder=4, bbox=PAPER, size=points(8))


def looks_of(named: Iterable[tuple[str, str]]) -> dict[str, Look]:
    """The look of each group of runs, by its name, from pairs of method and name.

    The shortest name of a method has the method's look; the others have its colour and other markers or line styles.
    """
    looks: dict[str, Look] = {}
    for method, name in sorted(set(named), key=lambda pair: (pair[0], len(pair[1]), pair[1])):
        usual, taken = look_of(method), set(looks.values())
        others = (Look(usual.colour, marker, style) for style in LINE_STYLES for marker in MARKERS)
        looks[name] = next((look for look in (usual, *others) if look not in taken), usual)
    return looks


def _curves(label: str, runs: Sequence[RunResult], look: Look) -> Iterator[Curve]:
    """The curves of the variants of these runs, then that of the result."""
    # A line through a single point is not visible.
    dashed = Look(look.colour, "" if len(runs[0].classes_seen) > 1 else look.marker, "--")
    for name in dict.fromkeys(name for run in runs for name in run.shown_variants):
        accuracies = [run.variants[name].accuracy for run in runs if name in run.variants]
        later = [value for row in accuracies for value in (row[1:] or row)]  # the first task alone is no curve
        if any(value is not None for value in later):
            yield _curve(f"{label} {name}", dashed, runs, accuracies, is_result=False)
    yield _curve(label, look, runs, [run.accuracy for run in runs])


def _curve(
    label: str,
    look: Look,
    runs: Sequence[RunResult],
    accuracies: Sequence[Sequence[float | None]],
    *,
    is_result: bool = True,
    has_average: bool = True,
) -> Curve:
    by_task = [[math.nan if value is None else value for value in task] for task in zip(*accuracies, strict=True)]
    return Curve(
        label,
        look,
        is_result,
        len(accuracies),
        runs[0].counted_by,
        runs[0].counts,
        mean=tuple(map(statistics.fmean, by_task)),
        # Python's stdev fails on NaN.
        spread=tuple(
            statistics.stdev(values) if len(values) > 1 and all(map(math.isfinite, values)) else 0.0
            for values in by_task
        ),
        is_finished=all(run.finished for run in runs),
        has_average=has_average,
        is_bound=facts_of(runs[0].method).keeps_all_images,
    )
