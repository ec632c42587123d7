"""Parts of a report: figures and pictures inside the file, and the command that runs it again."""

import base64
import io
import re
import shlex
from importlib import resources
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from foster.reports.html import THEMED, command, svg
from foster.reports.mistakes import picture
from foster.reports.style import COLOURS, new_figure, styled
from foster.settings.experiment import load_settings


def test_a_figure_becomes_an_element_whose_colours_the_page_decides():
    with styled():
        figure = new_figure(4, 2)
        figure.subplots().plot([1, 2], color=COLOURS[0], label="--> <b>")
    text = str(svg(figure))
    assert text.startswith("<svg")
    assert f"stroke: var(--c{COLOURS[0][1:].lower()})" in text
    assert COLOURS[0].lower() not in text
    assert "<!--" not in text
    assert re.search(r'<svg style="max-width: \d{3}px; --least-width: \d{3}px"', text)


def test_every_colour_that_a_figure_leaves_to_the_page_is_in_its_style_sheet():
    sheet = (resources.files("foster.reports") / "templates" / "report.css").read_text()
    for colour in THEMED:
        assert f"--c{colour[1:].lower()}: {colour.lower()}" in sheet or f"--c{colour[1:].lower()}: #" in sheet


def test_a_picture_is_held_by_its_address():
    image = torch.randint(0, 256, (3, 5, 7), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    _, _, text = picture(image).partition("base64,")
    found = np.asarray(Image.open(io.BytesIO(base64.b64decode(text))))
    assert (found == image.permute(1, 2, 0).numpy()).all()


def test_the_command_runs_the_settings_of_the_folder_again():
    settings = load_settings("digits", ["method=wa"])
    assert shlex.split(command(settings, Path("a run"))) == ["foster", "run", "a run", "--out", "a run-again"]
