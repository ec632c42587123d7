"""The style of all figures: colours, fonts, labels and files."""

import io
import itertools
import logging
import statistics
import textwrap
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import get_font_names

from foster.errors import FolderError, explained
from foster.settings.methods import facts_of
from foster.system.files import check_ending

ENDINGS = (".png", ".pdf", ".svg", ".jpg", ".webp")
"""Endings of figure files, which decide the format."""

INK, SOFT_INK, GRID = "#333333", "#707070", "#E4E4E4"
GROUND = "#FEFEFE"
"""The background of figures. A dark page replaces it; it is not pure white, so that white in pictures stays white."""
MAP = "cividis"
"""The colour map of matrices; it is readable for the colour-blind and in grey."""

PAPER = {"facecolor": GROUND, "edgecolor": "none", "alpha": 0.8, "pad": 0.6}
"""The background of a number that may overlap a line."""

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "text.color": INK,
    "text.parse_math": False,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 9,
    "axes.titlecolor": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#999999",
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": GRID,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "figure.titlesize": 12,
    "figure.titleweight": "bold",
    "figure.dpi": 160,
    "savefig.dpi": 160,
    "image.cmap": MAP,
    "svg.hashsalt": "foster",
    "pdf.fonttype": 42,  # TrueType: some publishers refuse fonts of type 3
}

FONT = "DejaVu Sans"
"""The font of all figures. It is part of matplotlib, and has Latin, Greek, Cyrillic, Arabic and other letters."""
OTHER_FONTS = (
    *(f"Noto Sans CJK {region}" for region in ("JP", "SC", "TC", "KR")),
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "Droid Sans Fallback",
    "IPAexGothic",
    "IPAGothic",
    "TakaoGothic",
    "VL Gothic",
    "NanumGothic",
    "UnDotum",
    "Hiragino Sans",
    "Apple SD Gothic Neo",
    "Arial Unicode MS",
    "Noto Emoji",
    "Symbola",
)
"""Fonts for the letters that `FONT` lacks, such as Chinese, Japanese and Korean ones, if they are installed."""


@cache
def fonts() -> list[str]:
    """`FONT` and those of `OTHER_FONTS` that are installed. A letter is drawn in the first one that has it."""
    return [FONT, *sorted(set(OTHER_FONTS) & set(get_font_names()), key=OTHER_FONTS.index)]


IN_POINTS = ("font.size", "axes.titlesize", "axes.titlepad", "figure.titlesize")
"""Sizes of the style that scale with the font size."""


@dataclass(frozen=True)
class FigureFormat:
    """The size of figures in inches, and of their letters in points. None means the size that each figure has."""

    width: float | None = None
    height: float | None = None
    font_size: float | None = None

    @contextmanager
    def used(self) -> Iterator[None]:
        """Use this format for the figures that are drawn and saved inside."""
        token = _FORMAT.set(self)
        try:
            yield
        finally:
            _FORMAT.reset(token)


_FORMAT: ContextVar[FigureFormat] = ContextVar("format of figures", default=FigureFormat())  # noqa: B039


def format_of_panels(num_columns: int) -> FigureFormat:
    """The format in use, with the width of one of `num_columns` panels side by side."""
    wanted = _FORMAT.get()
    return replace(wanted, width=wanted.width / num_columns) if wanted.width else wanted


Style = Literal["one-column", "two-column"]
FORMATS: dict[Style | None, FigureFormat] = {
    None: FigureFormat(),
    "one-column": FigureFormat(width=3.4, font_size=7),
    "two-column": FigureFormat(width=7.0, font_size=8),
}
"""The usual format, and those for a page of two columns: a figure in one column, or across both."""


def figure_format(
    style: Style | None = None, width: float | None = None, height: float | None = None, font_size: float | None = None
) -> FigureFormat:
    """The named format, with the given sizes in place of its own."""
    given = {"width": width, "height": height, "font_size": font_size}
    return replace(FORMATS[style], **{key: size for key, size in given.items() if size is not None})


def points(size: float) -> float:
    """A size in points or inches, scaled with the font size of the format in use."""
    usual = float(STYLE["font.size"])
    return size * (_FORMAT.get().font_size or usual) / usual


LABEL_LINE, BETWEEN_LABELS = 0.155, 0.1
"""The height of a line of a label, and the gap between two labels, in inches."""
LETTER = 0.077
"""Approximate width of a letter of a label, in inches."""
LETTERS_IN_A_LINE = 44


@dataclass(frozen=True)
class Look:
    """How a curve is drawn."""

    colour: str
    marker: str
    line_style: str = "-"


COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#332288", "#882255", "#AA9C00", "#7F7F7F")
"""Colours of everything but methods, such as loss terms, in this order; from Okabe and Ito, and from Tol."""


SPARE_COLOURS = ("#117733", "#225555", "#AA4499", "#661100", "#6699CC", "#999933", "#4477AA", "#BBBB33", "#EE99AA")
SPARE_MARKERS = "DPXdhp8"
MARKERS = "osD^XPp><vhd8"


def look_of(method: str) -> Look:
    """The look of a method in all figures. A method whose settings class has no `look` of its own gets one from a hash
    of its name."""
    look, start = vars(facts_of(method)).get("look"), zlib.crc32(method.encode())
    if look:
        return Look(*look)
    return Look(
        SPARE_COLOURS[start % len(SPARE_COLOURS)], SPARE_MARKERS[start // len(SPARE_COLOURS) % len(SPARE_MARKERS)]
    )


@contextmanager
def styled() -> Iterator[None]:
    """Apply the style to figures that are drawn and saved inside."""
    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()  # ignore a matplotlibrc in the current folder
        mpl.rcParams.update(STYLE | {"font.family": fonts()} | {key: points(STYLE[key]) for key in IN_POINTS})
        # The user cannot act on warnings of letters that no font has, and of fonts without bold letters.
        warnings.simplefilter("ignore")
        logger = logging.getLogger("matplotlib.font_manager")
        level = logger.level
        logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            logger.setLevel(level)


class ShownFigure(Figure):
    """A figure that a notebook shows without pyplot."""

    stretch = 1.0
    """Its height as a multiple of the height that it was designed for."""

    def _repr_png_(self) -> bytes:
        with styled(), io.BytesIO() as file:
            self.savefig(file, format="png", dpi=100)
            return file.getvalue()


def is_narrow() -> bool:
    """Whether the figure is for one column of a page: its panels are below each other."""
    width = _FORMAT.get().width
    return width is not None and width < 5


def new_figure(width: float, height: float, *, keeps_shape: bool = True) -> Figure:
    """A figure of this size in inches, or of the size of the format in use; no display is needed.

    If the format gives a width and no height, the figure keeps its aspect ratio (`keeps_shape`) or its height.
    """
    wanted = _FORMAT.get()
    drawn_height = wanted.height or height * (wanted.width / width if wanted.width and keeps_shape else 1.0)
    figure = ShownFigure(figsize=(wanted.width or width, drawn_height), layout="constrained")
    figure.stretch = drawn_height / height
    FigureCanvasAgg(figure)
    return figure


def with_title(figure: Figure, title: str) -> Figure:
    """The figure with a title above all its panels."""
    with styled():
        figure.suptitle(wrapped(title, figure.get_figwidth()), x=0.01, ha="left")
    return figure


def grid_of_axes(figure: Figure, count: int, num_columns: int) -> list[Axes]:
    """`count` axes in rows of `num_columns`."""
    num_columns = min(count, num_columns)
    made = figure.subplots(-(-count // num_columns), num_columns, squeeze=False).flat
    for spare in made[count:]:
        spare.remove()
    return list(made[:count])


def wrapped(title: str, width: float) -> str:
    """A title, wrapped to this many inches."""
    width = min(width, 0.9 * (_FORMAT.get().width or width / 0.9))
    return "\n".join(textwrap.wrap(title, max(10, int(width / points(0.1)))))


@dataclass(frozen=True)
class End:
    """The label at the end of a curve, at `value` of the axis."""

    value: float
    text: str
    look: Look
    is_bold: bool = True

    @property
    def lines(self) -> list[str]:
        width = _FORMAT.get().width
        letters = max(14, int(0.4 * width / points(LETTER))) if width else LETTERS_IN_A_LINE
        return textwrap.wrap(self.text, min(letters, LETTERS_IN_A_LINE), break_on_hyphens=False)

    @property
    def height(self) -> float:
        return points(BETWEEN_LABELS + LABEL_LINE * len(self.lines))

    @property
    def width(self) -> float:
        return 0.5 + points(LETTER) * max(map(len, self.lines))


def label_ends(axes: Axes, ends: Sequence[End], height: float) -> None:
    """Label each curve beside its end; labels that would overlap are moved apart.

    `height` is the approximate height of the axes in inches.
    """
    ends = sorted(ends, key=lambda end: -end.value)
    bottom, top = axes.get_ylim()
    unit = (top - bottom) / (height * getattr(axes.figure, "stretch", 1.0))
    heights = spaced([end.value for end in ends], [end.height * unit for end in ends], bottom, top)
    across = axes.get_yaxis_transform()
    for end, height_of_text in zip(ends, heights, strict=True):
        look, marker_size = end.look, points(8 if end.look.marker == "*" else 5)
        axes.plot(
            (1.005, 1.03, 1.06),
            (end.value, height_of_text, height_of_text),
            color=look.colour,
            linewidth=0.8,
            linestyle=look.line_style,
            marker=look.marker,
            markevery=[2],
            markersize=marker_size,
            markeredgewidth=0,
            transform=across,
            clip_on=False,
            scalex=False,
            scaley=False,
        )
        axes.text(
            1.08,
            height_of_text,
            "\n".join(end.lines),
            transform=across,
            va="center",
            color=look.colour,
            weight="bold" if end.is_bold else "normal",
        )


def spaced(heights: Sequence[float], sizes: Sequence[float], bottom: float, top: float) -> list[float]:
    """The centres of labels of these sizes for descending `heights`: moved as little as possible so that they do not
    overlap and, where there is room, lie between bottom and top."""
    from scipy.optimize import isotonic_regression

    # Labels do not overlap if the heights, each plus the sizes of all labels above it, descend.
    above = np.cumsum([0.0, *(statistics.fmean(pair) for pair in itertools.pairwise(sizes))])
    levels = isotonic_regression(heights + above, increasing=False).x
    highest, lowest = top - sizes[0] / 2, bottom + sizes[-1] / 2 + above[-1]
    return (np.maximum(np.minimum(levels, highest), lowest) - above).tolist()  # type: ignore[no-any-return]


def save_figure(figure: Figure, path: Path) -> None:
    """Write the figure to `path`, whose ending decides the format."""
    check_ending(path, *ENDINGS)
    with styled(), explained(FolderError, f"cannot write figure '{path}'"):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Without the date, equal figures are equal files.
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else None
        wanted = _FORMAT.get()
        # A requested size is the size of the file; without one, the file is cropped to the drawing.
        cut: dict[str, Any] = {} if wanted.width or wanted.height else {"bbox_inches": "tight", "pad_inches": 0.15}
        with mpl.rc_context({"svg.fonttype": "none"}):  # text stays text
            figure.savefig(path, metadata=metadata, **cut)
