"""One panel of a figure: its axes, its curves, and a label beside the end of each. All sizes are in inches."""

import itertools
import math
import statistics
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from foster.reports.curves import Curve, Panel, Scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, SOFT_INK, GRID = "#333333", "#707070", "#E4E4E4"

AXES_WIDTH = 5.0
BELOW_AXES = 0.65
"""The room of the axis' numbers and name."""

SAMPLE_START, SAMPLE_END, LABEL_START = 0.12, 0.44, 0.52
"""From the right edge of the axes, where a short piece of each line stands before its label."""

LABEL_LINE, BETWEEN_LABELS = 0.155, 0.1
LETTERS_IN_A_LINE = 44


def draw_panel(axes: "Axes", panel: Panel, scale: Scale, height: float) -> None:
    """`height` is that of the axes."""
    from matplotlib.ticker import MultipleLocator

    for curve in reversed(panel.curves):  # the best on top
        _draw_curve(axes, curve)
    axes.set_ylim(scale.bottom, scale.top)
    axes.yaxis.set_major_locator(MultipleLocator(scale.step))
    counts = sorted({count for curve in panel.curves for count in curve.classes_seen})
    axes.set_xticks(counts if len(counts) <= 12 else counts[:: math.ceil(len(counts) / 11)])
    axes.set_xlim(counts[0], counts[-1] if len(counts) > 1 else counts[0] + 1)
    axes.set_xlabel("classes seen", color=INK)
    axes.set_ylabel("accuracy on all classes seen (%)", color=INK)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color("#999999")
    axes.tick_params(length=0, colors=INK, pad=6)
    _label_curves(axes, panel.curves, scale, height)
    _write_below(axes, "average incremental\naccuracy (%)", AXES_WIDTH + SAMPLE_START, -0.2)
    _write_below(axes, panel.note, 0, -BELOW_AXES)


def label_width(figure: "Figure", curve: Curve) -> float:
    """The room that a label takes beside the axes."""
    text = figure.text(0, 0, "\n".join(_label(curve)), size=9, weight=_weight(curve), parse_math=False)
    width: float = text.get_window_extent().width / figure.dpi
    text.remove()
    return width


def label_height(curve: Curve) -> float:
    return BETWEEN_LABELS + LABEL_LINE * len(_label(curve))


def _label(curve: Curve) -> list[str]:
    """The lines of a curve's label: its name, its average and how many runs that is of."""
    runs = f"  (n = {curve.num_runs})" if curve.num_runs > 1 else ""
    # Spaces at which no line is broken.
    numbers = f"{curve.average:.1f}{runs}".replace(" ", "\u00a0")
    return textwrap.wrap(f"{curve.label}  {numbers}", LETTERS_IN_A_LINE, break_on_hyphens=False)


def _weight(curve: Curve) -> str:
    return "normal" if curve.is_boosted else "bold"


def _draw_curve(axes: "Axes", curve: Curve) -> None:
    if any(curve.spread) and not curve.is_boosted:
        low, high = ([m + sign * s for m, s in zip(curve.mean, curve.spread, strict=True)] for sign in (-1, 1))
        axes.fill_between(curve.classes_seen, low, high, color=curve.look.colour, alpha=0.18, linewidth=0)
    # Fifty markers on one curve hide it.
    _draw_line(axes, curve, curve.classes_seen, curve.mean, markevery=max(1, len(curve.mean) // 10))


def _draw_line(
    axes: "Axes",
    curve: Curve,
    across: Sequence[float],
    up: Sequence[float],
    markevery: int | list[int],
    is_sample: bool = False,
) -> None:
    """A curve, or a sample of its line beside the axes, where the places across are shares of their width."""
    axes.plot(
        across,
        up,
        color=curve.look.colour,
        linestyle=curve.look.line_style,
        linewidth=1.2 if curve.is_boosted else 2.0,
        marker=curve.look.marker,
        markevery=markevery,
        # A star is mostly its white edge.
        markersize=10 if curve.look.marker == "*" else 6,
        markeredgecolor="white",
        markeredgewidth=0.7,
        zorder=2.5 if curve.is_boosted else 3,
        clip_on=False,
        transform=axes.get_yaxis_transform() if is_sample else axes.transData,
        scalex=not is_sample,
        scaley=not is_sample,
    )


def _label_curves(axes: "Axes", curves: Sequence[Curve], scale: Scale, height: float) -> None:
    """Write each curve's name and average to the right of its end, pushed apart where the ends are close."""
    curves = sorted(curves, key=lambda curve: -_end(curve, scale))
    unit = (scale.top - scale.bottom) / height
    sizes = [label_height(curve) * unit for curve in curves]
    half_a_line = (BETWEEN_LABELS + LABEL_LINE) * unit / 2
    ends = [_end(curve, scale) for curve in curves]
    start, middle, end = (1 + x / AXES_WIDTH for x in (SAMPLE_START, (SAMPLE_START + SAMPLE_END) / 2, SAMPLE_END))
    for curve, place in zip(
        curves, spaced(ends, sizes, scale.bottom - half_a_line, scale.top + half_a_line), strict=True
    ):
        _draw_line(axes, curve, (start, middle, end), [place] * 3, markevery=[1], is_sample=True)
        axes.text(
            1 + LABEL_START / AXES_WIDTH,
            place,
            "\n".join(_label(curve)),
            transform=axes.get_yaxis_transform(),
            va="center",
            color=curve.look.colour,
            size=9,
            weight=_weight(curve),
            parse_math=False,
        )


def _end(curve: Curve, scale: Scale) -> float:
    """Where the curve ends; without test images it ends nowhere."""
    return curve.mean[-1] if math.isfinite(curve.mean[-1]) else scale.bottom


def _write_below(axes: "Axes", text: str, across: float, up: float) -> None:
    """Small text, at this distance from the lower left corner of the axes."""
    axes.annotate(
        text,
        xy=(0, 0),
        xycoords="axes fraction",
        xytext=(72 * across, 72 * up),
        textcoords="offset points",
        va="top",
        color=SOFT_INK,
        size=8,
        annotation_clip=False,
    )


def spaced(places: Sequence[float], sizes: Sequence[float], bottom: float, top: float) -> list[float]:
    """The middles of labels of these sizes for falling `places`, moved as little as keeps the labels apart and, where
    there is room, between bottom and top."""
    above = list(itertools.accumulate((statistics.fmean(pair) for pair in itertools.pairwise(sizes)), initial=0.0))
    # With what stands above it added to each place, "apart" means "still falling": neighbours that do not fall share
    # their mean.
    blocks: list[list[float]] = []
    for place, offset in zip(places, above, strict=True):
        blocks.append([place + offset])
        while len(blocks) > 1 and statistics.fmean(blocks[-2]) < statistics.fmean(blocks[-1]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    levels = [statistics.fmean(block) for block in blocks for _ in block]
    highest, lowest = top - sizes[0] / 2, bottom + sizes[-1] / 2 + above[-1]
    return [max(min(level, highest), lowest) - offset for level, offset in zip(levels, above, strict=True)]
