import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from foster.errors import DataError, FolderError
from foster.method_settings import METHOD_SETTINGS
from foster.reports.figures import LOOKS, _curves, _panel_title, _panels, _scale, _spaced, accuracy_curves
from foster.reports.groups import by_scenario
from foster.reports.results import read_result


def has_colour(path: Path, colour: str) -> bool:
    pixels = np.asarray(Image.open(path).convert("RGB"))
    wanted = [int(colour[index : index + 2], 16) for index in (1, 3, 5)]
    return bool((pixels == wanted).all(axis=2).sum() > 100)


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


def test_seeds_become_a_mean_with_a_band_of_one_standard_deviation(write_run):
    runs = [
        read_result(write_run(f"seed{seed}", seed=seed, accuracy=(90.0, last), boosted=(90.0, last + 1)))
        for seed, last in ((1, 60.0), (2, 62.0), (3, 64.0))
    ]
    boosted, compressed = _curves(by_scenario(runs)["digits-b0-inc2"])
    assert (compressed.label, compressed.num_runs) == ("foster", 3)
    assert compressed.mean == (90.0, 62.0)
    assert compressed.spread == (0.0, 2.0)
    assert compressed.average == 76.0
    assert boosted.is_boosted
    assert boosted.mean == (90.0, 63.0)


def test_two_augmentations_of_a_method_are_told_apart(write_run):
    runs = [read_result(write_run(name, augmentation=name)) for name in ("auto", "plain")]
    curves = list(_curves(by_scenario(runs)["digits-b0-inc2"]))
    assert {curve.label for curve in curves} == {"foster (auto)", "foster (plain)"}
    assert curves[0].line_style != curves[1].line_style


def test_augmentations_that_differ_between_methods_are_told_on_every_curve(write_run):
    runs = [
        read_result(write_run(method, method=method, augmentation=augmentation))
        for method, augmentation in (("foster", "auto"), ("wa", "plain"), ("der", "plain"))
    ]
    groups = by_scenario(runs)["digits-b0-inc2"]
    assert {curve.label for curve in _curves(groups)} == {"foster (auto)", "wa (plain)", "der (plain)"}
    assert _panel_title("mine", groups) == "mine"


def test_the_augmentation_that_all_curves_share_stands_in_the_title(write_run, tmp_path: Path):
    runs = [read_result(write_run(method, method=method)) for method in ("foster", "wa")]
    groups = by_scenario(runs)["digits-b0-inc2"]
    assert {curve.label for curve in _curves(groups)} == {"foster", "wa"}
    assert _panel_title("mine", groups) == "mine, augmentation plain"
    for name, title in (("own.svg", None), ("mine.svg", "mine")):
        accuracy_curves(runs, tmp_path / name, title)
    assert "<!-- digits-b0-inc2, augmentation plain -->" in (tmp_path / "own.svg").read_text()
    assert "<!-- mine, augmentation plain -->" in (tmp_path / "mine.svg").read_text()


def test_every_method_has_a_look_that_no_other_has():
    assert LOOKS.keys() == METHOD_SETTINGS.keys()
    for part in ("colour", "marker"):
        assert len({getattr(look, part) for look in LOOKS.values()}) == len(LOOKS)


def test_scenarios_get_panels_of_their_own(write_run, tmp_path: Path):
    runs = [read_result(write_run(name, scenario=name)) for name in ("one", "two", "three")]
    accuracy_curves(runs[:1], tmp_path / "one.png")
    accuracy_curves(runs, tmp_path / "all.png")
    one, every = (Image.open(tmp_path / name).size for name in ("one.png", "all.png"))
    assert every == (2 * one[0], 2 * one[1])


def test_a_panel_grows_with_the_labels_that_stand_beside_it(write_run, tmp_path: Path):
    runs = [read_result(write_run(f"run{k}", settings={"epochs_scale": k})) for k in range(22)]
    accuracy_curves(runs[:10], tmp_path / "some.png")
    accuracy_curves(runs, tmp_path / "all.png")
    some, every = (Image.open(tmp_path / name).size for name in ("some.png", "all.png"))
    assert every[0] == some[0]
    assert every[1] > 1.3 * some[1]


def test_each_augmentation_of_many_runs_gets_a_panel_and_all_have_one_scale(write_run):
    runs = [
        read_result(write_run(f"{method}-{name}", method=method, augmentation=name, accuracy=(90.0, last)))
        for method in METHOD_SETTINGS
        for name, last in (("auto", 80.0), ("plain", 25.0))
    ]
    (together,) = _panels(runs[:12])
    assert len(together.groups) == 12
    panels = _panels(runs)
    assert [{group.augmentation for group in panel.groups} for panel in panels] == [{"plain"}, {"auto"}]
    assert [len(panel.curves) for panel in panels] == [len(METHOD_SETTINGS)] * 2
    assert {curve.label for panel in panels for curve in panel.curves} == set(METHOD_SETTINGS)
    scale = _scale([curve for panel in panels for curve in panel.curves])
    assert (scale.bottom, scale.top) == (20, 100)


def test_an_augmentation_has_the_same_line_in_all_curves_of_a_panel(write_run):
    runs = [
        read_result(write_run(f"{method}-{name}", method=method, augmentation=name, accuracy=(90.0, last)))
        for method, name, last in (("foster", "auto", 80.0), ("wa", "plain", 70.0), ("wa", "auto", 60.0))
    ]
    styles = {curve.label: curve.line_style for curve in _curves(by_scenario(runs)["digits-b0-inc2"])}
    assert styles["foster (auto)"] == styles["wa (auto)"] != styles["wa (plain)"]


def test_one_task_and_an_unknown_method_can_be_drawn(write_run, tmp_path: Path):
    run = read_result(write_run("a", accuracy=(100.0,), task_sizes=(5,), method="brand-new"))
    accuracy_curves([run], tmp_path / "curves.svg")
    assert (tmp_path / "curves.svg").read_text().startswith("<?xml")


def test_what_cannot_be_drawn_or_written_is_said_in_one_line(write_run, tmp_path: Path):
    with pytest.raises(DataError, match="no runs"):
        accuracy_curves([], tmp_path / "curves.png")
    run = read_result(write_run("a"))
    with pytest.raises(FolderError, match="cannot write figure"):
        accuracy_curves([run], tmp_path / "curves.docx")
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError, match="cannot write figure"):
        accuracy_curves([run], tmp_path / "file" / "curves.png")


def test_labels_keep_their_distance_and_stay_near_their_curves():
    assert _spaced([90.0, 50.0, 10.0], gap=5, bottom=0, top=100) == [90.0, 50.0, 10.0]
    # Three in a heap share their mean, 61.
    assert _spaced([62.0, 61.0, 60.0], gap=5, bottom=0, top=100) == [66.0, 61.0, 56.0]
    crowded = _spaced([99.0, 99.0, 98.0, 1.0, 0.0], gap=5, bottom=0, top=100)
    assert crowded[0] <= 100
    assert crowded[-1] >= 0
    assert all(upper - lower >= 5 - 1e-9 for upper, lower in pairwise(crowded))


def test_importing_the_module_does_not_load_matplotlib():
    code = "import sys, foster.reports.figures; sys.exit('matplotlib' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
