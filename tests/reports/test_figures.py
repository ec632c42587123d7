import re
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from foster.errors import DataError, FolderError
from foster.reports.curves import LOOKS, panels
from foster.reports.figures import ENDINGS, _figure, accuracy_curves, check_figure_path
from foster.reports.panel_drawing import AXES_WIDTH
from foster.reports.results import read_result


def has_colour(path: Path, colour: str) -> bool:
    pixels = np.asarray(Image.open(path).convert("RGB"))
    wanted = [int(colour[index : index + 2], 16) for index in (1, 3, 5)]
    return bool((pixels == wanted).all(axis=2).sum() > 100)


def sizes(*paths: Path) -> list[tuple[int, int]]:
    return [Image.open(path).size for path in paths]


def labels(axes):
    """The texts to the right of the axes, which are placed in shares of their width."""
    return [text for text in axes.texts if 1 < text.get_position()[0] < 1.2]


@pytest.fixture
def long_runs(write_run):
    """Runs whose labels are far longer than a line."""
    return [
        read_result(
            write_run(
                f"run{k}",
                accuracy=(90.0, 60.0 + k / 10),
                boosted=(90.0, 61.0),
                settings={f"a_rather_long_setting_number_{key}": f"{k}-and-some-more-letters" for key in range(6)}
                | {"folder": f"$\\nothing{k}$", "class_order": [f"class {(k + index) % 100}" for index in range(100)]},
            )
        )
        for k in range(4)
    ]


def test_each_method_of_a_run_is_drawn_in_its_own_colour(write_run, tmp_path: Path):
    runs = [
        read_result(write_run("a", accuracy=(99.0, 95.0), boosted=(99.0, 96.0))),
        read_result(write_run("b", method="finetune", accuracy=(99.0, 50.0))),
    ]
    path = tmp_path / "new folder" / "curves.png"
    accuracy_curves(runs, path, title="digits")
    assert has_colour(path, LOOKS["foster"].colour)
    assert has_colour(path, LOOKS["finetune"].colour)
    assert not has_colour(path, LOOKS["replay"].colour)


def test_a_piece_of_its_line_stands_before_each_label(write_run):
    runs = [read_result(write_run(f"{k}", boosted=(90.0, 70.0), settings={"beta": k})) for k in range(3)]
    (axes,) = _figure(panels(runs), None).axes
    beside = [line for line in axes.lines if min(line.get_xdata()) > 1 and max(line.get_xdata()) < 1.2]
    across = [line for line in axes.lines if line not in beside]
    assert len(beside) == len(across) == 6

    def looks(lines):
        return sorted((line.get_color(), line.get_linestyle(), line.get_marker()) for line in lines)

    assert looks(beside) == looks(across)
    places = {text.get_position()[1]: text.get_color() for text in labels(axes)}
    assert {line.get_ydata()[0]: line.get_color() for line in beside} == places


def test_the_augmentation_that_all_curves_share_stands_in_the_title(write_run, tmp_path: Path):
    runs = [read_result(write_run(method, method=method)) for method in ("foster", "wa")]
    for name, title in (("own.svg", None), ("mine.svg", "mine")):
        accuracy_curves(runs, tmp_path / name, title)
    assert "<!-- digits-b0-inc2, augmentation plain -->" in (tmp_path / "own.svg").read_text()
    assert "<!-- mine, augmentation plain -->" in (tmp_path / "mine.svg").read_text()


def test_scenarios_get_panels_of_their_own(write_run, tmp_path: Path):
    runs = [read_result(write_run(name, scenario=name)) for name in ("one", "two", "three")]
    accuracy_curves(runs[:1], tmp_path / "one.png")
    accuracy_curves(runs, tmp_path / "all.png")
    one, every = sizes(tmp_path / "one.png", tmp_path / "all.png")
    assert every == (pytest.approx(2 * one[0], rel=0.05), pytest.approx(2 * one[1], rel=0.05))


def test_the_axes_grow_with_the_lines_of_the_labels_beside_them(write_run):
    heights = []
    for num_keys in (1, 8):
        settings = [{f"a_long_key_{key}": k for key in range(num_keys)} for k in range(10)]
        runs = [read_result(write_run(f"{num_keys}-{k}", settings=given)) for k, given in enumerate(settings)]
        figure = _figure(panels(runs), None)
        heights.append(figure.axes[0].get_position().height * figure.get_figheight())
    assert heights[1] > 1.5 * heights[0]


def test_long_labels_and_titles_neither_shrink_the_axes_nor_warn(long_runs, tmp_path: Path, recwarn):
    title = "a title that is much longer than the picture is wide, and no formula: $\\nothing$, " * 4
    figure = _figure(panels(long_runs), title)
    (axes,) = figure.axes
    assert axes.get_position().width * figure.get_figwidth() == pytest.approx(AXES_WIDTH)
    assert max(len(line) for text in axes.texts for line in text.get_text().splitlines()) <= 44
    extents = sorted((text.get_window_extent() for text in labels(axes)), key=lambda extent: -extent.y0)
    assert len(extents) == 8
    assert all(upper.y0 > lower.y1 for upper, lower in pairwise(extents)), "they overlap"

    accuracy_curves(long_runs, tmp_path / "one.png", f"{title} with letters that no font has: \U0001f98a")
    others = [replace(run, scenario=name) for run in long_runs for name in ("other", "third")]
    accuracy_curves([*long_runs, *others], tmp_path / "three.png", title)
    assert not [str(warning.message) for warning in recwarn]
    one, three = sizes(tmp_path / "one.png", tmp_path / "three.png")
    assert three[0] > 1.8 * one[0]


def test_one_task_and_an_unknown_method_can_be_drawn(write_run, tmp_path: Path):
    run = read_result(write_run("a", accuracy=(100.0,), task_sizes=(5,), method="brand-new"))
    accuracy_curves([run], tmp_path / "curves.svg")
    assert (tmp_path / "curves.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize("ending", [*ENDINGS, ".PNG"])
def test_every_ending_that_is_offered_can_be_written_without_a_word(
    ending: str, write_run, tmp_path: Path, recwarn, capfd
):
    runs = [read_result(write_run(f"{seed}", seed=seed, accuracy=(90.0, 60.0 + seed))) for seed in (1, 2)]
    path = tmp_path / f"curves{ending}"
    accuracy_curves(runs, path)
    assert path.stat().st_size > 1000
    assert not recwarn.list
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["curves", ".png", "curves.docx", "curves.", "folder", "folder.png", "."])
def test_a_path_that_names_no_kind_of_picture_is_refused_with_the_choices(name: str, write_run, tmp_path: Path):
    for folder in ("folder", "folder.png"):
        (tmp_path / folder).mkdir()
    run = read_result(write_run("a"))
    before = sorted(tmp_path.rglob("*"))
    for refuse in (check_figure_path, lambda path: accuracy_curves([run], path)):
        with pytest.raises(FolderError, match=re.escape(str(tmp_path / name))) as caught:
            refuse(tmp_path / name)
        assert all(ending in str(caught.value) for ending in ENDINGS)
    assert sorted(tmp_path.rglob("*")) == before


def test_what_cannot_be_drawn_or_written_is_said_in_one_line(write_run, tmp_path: Path):
    with pytest.raises(DataError, match="no runs"):
        accuracy_curves([], tmp_path / "curves.png")
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError, match="cannot write figure"):
        accuracy_curves([read_result(write_run("a"))], tmp_path / "file" / "curves.png")


def test_importing_the_module_does_not_load_matplotlib():
    code = "import sys, foster.reports.figures; sys.exit('matplotlib' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
