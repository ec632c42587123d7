"""Figures and pictures as parts of one HTML file: nothing is fetched from anywhere."""

import base64
import io
import re

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from foster.reports.style import COLOURS, GRID, GROUND, INK, SOFT_INK, SPARE_COLOURS, look_of, styled
from foster.settings.methods import METHOD_SETTINGS

PIXELS_A_POINT = 1.55
"""Of the page, at most; pictures inside a figure have as many."""

LEAST_PIXELS_A_POINT = 0.9
"""On a phone, where a figure is scrolled whose letters would be too small."""

THEMED = tuple(
    dict.fromkeys(
        (INK, SOFT_INK, GRID, GROUND, *COLOURS, *SPARE_COLOURS, *(look_of(name).colour for name in METHOD_SETTINGS))
    )
)
"""Colours that a page's style sheet may change, as a dark one does: each as the variable `--c` and its letters."""


def svg(figure: Figure) -> Markup:
    """A figure as an inline SVG element whose colours follow the page's theme."""
    file = io.StringIO()
    with styled():
        figure.savefig(
            file,
            format="svg",
            dpi=PIXELS_A_POINT * 72,
            transparent=True,
            bbox_inches="tight",
            pad_inches=0.08,
            metadata={"Date": None},
        )
    text = file.getvalue()
    text = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|\n\s*", " ", text[text.index("<svg") :], flags=re.DOTALL)
    for colour in THEMED:
        name = colour[1:].lower()
        text = re.sub(rf"(stroke|fill): #{name}\b", rf"\1: var(--c{name})", text)
    # The page decides how wide it is, up to a size at which its letters are as large as the page's.
    width = float(re.search(r'width="([\d.]+)pt"', text)[1])  # type: ignore[index]
    text = re.sub(r' (width|height)="[\d.]+pt"', "", text, count=2)
    sizes = f"max-width: {PIXELS_A_POINT * width:.0f}px; --least-width: {LEAST_PIXELS_A_POINT * width:.0f}px"
    return Markup(text.replace("<svg", f'<svg style="{sizes}"', 1))


def picture(image: Tensor) -> str:
    """The address of a picture that holds all of it: uint8 `[3, H, W]` as PNG."""
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(image.permute(1, 2, 0).numpy())).save(file, format="PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
