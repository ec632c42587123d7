"""Runs -> figures. matplotlib is imported where it is used and draws without a display."""

import itertools
import textwrap
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from foster.errors import DataError, FolderError
from foster.reports.curves import Panel, panels, scale
from foster.reports.panel_drawing import (
    AXES_WIDTH,
    BELOW_AXES,
    INK,
    LABEL_START,
    draw_panel,
    label_height,
    label_width,
)
from foster.reports.results import RunResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENDINGS = (".png", ".pdf", ".svg", ".jpg", ".webp")
"""Of a figure's file; they decide its format."""

PANELS_IN_A_ROW = 2

# Inches.
AXES_HEIGHT = 3.5
LEFT, ABOVE, RIGHT = 0.7, 0.2, 0.3
"""Around the axes of a panel and what belongs to them."""
TITLE_LINE, NOTE_LINE = 0.22, 0.2
TITLE_LETTER = 0.11


def check_figure_path(path: Path) -> None:
    """Refuse a path that no figure can be written to, before anything is computed or shown."""
    choices = f"{', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"
    if path.is_dir():
        raise FolderError(f"cannot write figure '{path}': it is a folder; name a file that ends in {choices}")
    if path.suffix.lower() not in ENDINGS:
        raise FolderError(f"cannot write figure '{path}': its name must end in {choices}")


def accuracy_curves(results: Sequence[RunResult], path: Path, title: str | None = None) -> None:
    """Draw accuracy on all classes seen against their number: a panel a scenario, a curve a method.

    A scenario with too many curves has a panel for each augmentation, all on one scale. Several runs of a method become
    their mean with a band of one sample standard deviation. The boosted network, where there is one, is a thin dashed
    curve. Several recipes of a method have a colour each. The ending of `path` decides the file's format.
    """
    check_figure_path(path)
    shown = panels(results)
    if not shown:
        raise DataError("there are no runs to draw")
    with warnings.catch_warnings():
        # A letter that the font lacks is a box in the picture; there is nothing that the user could do about it.
        warnings.simplefilter("ignore")
        figure = _figure(shown, title)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, bbox_inches="tight", pad_inches=0.15)
        except OSError as error:
            raise FolderError(f"cannot write figure '{path}': {error.strerror}") from None


@dataclass(frozen=True)
class _Framed:
    """A panel and the room that it needs: the axes keep their size, whatever stands around them."""

    panel: Panel
    title: str
    label_width: float

    @property
    def width(self) -> float:
        return LEFT + AXES_WIDTH + LABEL_START + self.label_width + RIGHT

    @property
    def title_lines(self) -> list[str]:
        return _wrapped(self.title, self.width - LEFT)

    @property
    def head(self) -> float:
        return ABOVE + TITLE_LINE * len(self.title_lines)

    @property
    def height(self) -> float:
        """Of the axes, which all labels stand beside."""
        return max(AXES_HEIGHT, sum(map(label_height, self.panel.curves)))

    @property
    def foot(self) -> float:
        return BELOW_AXES + (NOTE_LINE if self.panel.note else 0)


def _figure(shown: Sequence[Panel], title: str | None) -> "Figure":
    """All panels in rows under the title, which a single panel has in the place of its scenario."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(dpi=160)
    FigureCanvasAgg(figure)
    framed = [
        _Framed(
            panel,
            panel.title(title if title and len(shown) == 1 else panel.scenario),
            max(label_width(figure, curve) for curve in panel.curves),
        )
        for panel in shown
    ]
    num_columns = min(len(framed), PANELS_IN_A_ROW)
    rows = [framed[first : first + num_columns] for first in range(0, len(framed), num_columns)]
    widths = [max(one.width for one in framed[column::num_columns]) for column in range(num_columns)]
    heights = [max(one.height for one in row) for row in rows]
    heads = [max(one.head for one in row) for row in rows]
    feet = [max(one.foot for one in row) for row in rows]
    heading = _wrapped(title, sum(widths) - LEFT) if title and len(framed) > 1 else []
    lefts = [LEFT + before for before in itertools.accumulate(widths, initial=0.0)]
    tops = list(
        itertools.accumulate(map(sum, zip(heads, heights, feet, strict=True)), initial=TITLE_LINE * len(heading))
    )
    width, height = sum(widths), tops[-1]
    figure.set_size_inches(width, height)
    for index, one in enumerate(framed):
        row, column = divmod(index, num_columns)
        bottom = height - tops[row] - heads[row] - heights[row]
        axes = figure.add_axes(
            (lefts[column] / width, bottom / height, AXES_WIDTH / width, heights[row] / height),
        )
        of_scenario = [curve for panel in shown if panel.scenario == one.panel.scenario for curve in panel.curves]
        draw_panel(axes, one.panel, scale(of_scenario), heights[row])
        axes.set_title("\n".join(one.title_lines), loc="left", color=INK, weight="bold", pad=9, parse_math=False)
    figure.text(LEFT / width, 1, "\n".join(heading), va="top", color=INK, weight="bold", size=14, parse_math=False)
    return figure


def _wrapped(title: str, width: float) -> list[str]:
    return textwrap.wrap(title, int(width / TITLE_LETTER))
