"""Figures and pictures as parts of a self-contained HTML file."""

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
"""Most pixels of the page for a point of a figure, and the resolution of pictures inside figures."""

LEAST_PIXELS_A_POINT = 0.9
"""Fewest pixels for a point, on a phone; larger figures are scrolled."""

THEMED = tuple(
    dict.fromkeys(
        (INK, SOFT_INK, GRID, GROUND, *COLOURS, *SPARE_COLOURS, *(look_of(name).colour for name in METHOD_SETTINGS))
    )
)
"""Colours that a style sheet can change, for a dark page: each is a CSS variable, `--c` and its hexadecimal digits."""


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
    """A picture as a data URL: uint8 `[3, H, W]` as PNG."""
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(image.permute(1, 2, 0).numpy())).save(file, format="PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
