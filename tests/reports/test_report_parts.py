"""Parts of a report: figures and pictures inside the file, and the command that runs it again."""

import base64
import io
import re
import shlex
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from foster.reports.html import MACHINE, THEMED, command, svg
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


CASES = [
    ("digits", []),
    ("cifar100-b50-inc10", ["method=wa", "seed=3"]),
    ("digits", ["memory_total=none", "memory_per_class=4", "augmentation.flip=true", "foster.beta_boost=0.9"]),
    ("digits", ["class_order=[]", "order_seed=4", "recipe=plus", "foster.boost_branches=3"]),
    ("cifar100-b0-inc5", ["method=icarl", "device=cpu", "keep_networks=true", "engine.threads=1"]),
]


@pytest.mark.parametrize(("preset", "overrides"), CASES)
def test_the_command_gives_the_same_settings_again(preset: str, overrides: list[str]):
    wanted = load_settings(preset, overrides)
    _, _, found, *changes, option, folder = shlex.split(command(wanted, Path("a run")))
    assert (found, option, folder) == (preset, "--out", "a run-again")
    again = load_settings(found, changes)
    assert _learned(again.nested()) == _learned(wanted.nested())
    assert len(changes) <= len(overrides) + 6


def test_the_command_tells_a_recipe_of_ones_own_by_what_it_changed(tmp_path: Path):
    (mine := tmp_path / "mine.toml").write_text('[foster]\nalignment = "none"\nbeta_boost = 0.9\n')
    told = command(load_settings("digits", [f"recipe={mine}"]), tmp_path)
    changes = "method=foster foster.beta_boost=0.9 'foster.alignment=\"none\"'"
    assert told == f"foster run digits {changes} --out {tmp_path}-again"


def test_without_a_preset_the_settings_of_the_folder_are_run_again(tmp_path: Path):
    settings = load_settings("digits", ["dataset=synthetic", "synthetic.num_classes=6"])
    assert command(settings, tmp_path) == f"foster run {tmp_path} --out {tmp_path}-again"
    settings = settings.model_copy(update={"plugins": ("my_lab",)})
    assert "--plugin my_lab" in command(settings, tmp_path)


def _learned(nested: dict) -> dict:
    return {key: value for key, value in nested.items() if key not in MACHINE}
