import re
from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
import pytest

from foster.errors import FolderError
from foster.experiment.results import read_result
from foster.reports.curves import accuracy_figure
from foster.reports.style import (
    ENDINGS,
    figure_format,
    fonts,
    new_figure,
    save_figure,
    spaced,
    styled,
)


def test_labels_keep_their_distance_and_stay_near_their_curves():
    def places(*wanted: float) -> list[float]:
        return spaced(wanted, [5] * len(wanted), bottom=0, top=100)

    assert places(90, 50, 10) == [90, 50, 10]
    # Three in a heap share their mean, 61.
    assert places(62, 61, 60) == [66, 61, 56]
    crowded = places(99, 99, 98, 1, 0)
    assert crowded[0] <= 97.5
    assert crowded[-1] >= 2.5
    assert all(upper - lower >= 5 - 1e-9 for upper, lower in pairwise(crowded))


def test_a_label_of_several_lines_has_as_much_room_as_it_needs():
    sizes = [5, 25, 5, 15]
    middles = spaced([60, 60, 60, 60], sizes, bottom=0, top=100)
    edges = [(middle + size / 2, middle - size / 2) for middle, size in zip(middles, sizes, strict=True)]
    assert all(upper[1] >= lower[0] - 1e-9 for upper, lower in pairwise(edges))
    assert edges[0][0] - edges[-1][1] == sum(sizes), "no room is lost between them"
    assert spaced([100, 99], [30, 10], bottom=0, top=100) == [85, 65], "all of it stays below the top"


@pytest.mark.parametrize("ending", [".PNG", ".pdf", ".svg"])
def test_every_ending_that_is_offered_can_be_written_without_a_word(ending: str, tmp_path: Path, recwarn, capfd):
    path = tmp_path / f"curves{ending}"
    with styled():
        figure = new_figure(2, 2)
        figure.subplots().plot([1, 2])
    save_figure(figure, path)
    assert path.stat().st_size > 1000
    assert not recwarn.list
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["curves", "curves.docx", "folder.png"])
def test_a_path_that_names_no_kind_of_picture_is_refused_with_the_choices(name: str, tmp_path: Path):
    for folder in ("folder", "folder.png"):
        (tmp_path / folder).mkdir()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(FolderError, match=re.escape(str(tmp_path / name))) as caught:
        save_figure(new_figure(1, 1), tmp_path / name)
    assert all(ending in str(caught.value) for ending in ENDINGS)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_figure_that_cannot_be_written_is_said_in_one_line(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError, match=r"curves\.png"):
        save_figure(new_figure(1, 1), tmp_path / "file" / "curves.png")


def test_a_given_width_keeps_the_shape_or_the_height_and_labels_use_all_of_a_given_height(write_run):
    def gap_between_labels(height: float) -> float:
        runs = [read_result(write_run(name, method=name, accuracy=(90.0, 60.0))) for name in ("wa", "der")]
        with figure_format(height=height).used():
            upper, lower = sorted(text.get_position()[1] for text in accuracy_figure(runs).axes[0].texts)
        return lower - upper

    with figure_format(width=8).used():
        assert new_figure(4, 2).get_size_inches().tolist() == [8, 4]
        assert new_figure(4, 2, keeps_shape=False).get_size_inches().tolist() == [8, 2]
    assert gap_between_labels(9) < gap_between_labels(4.5)


def test_settings_of_matplotlib_are_not_obeyed_and_text_stays_text(tmp_path: Path):
    with mpl.rc_context({"lines.linewidth": 17}), styled():
        figure = new_figure(2, 2)
        (line,) = figure.subplots().plot([1, 2])
        figure.suptitle("hello")
        assert line.get_linewidth() < 17
    save_figure(figure, tmp_path / "text.svg")
    assert ">hello</text>" in (tmp_path / "text.svg").read_text()


def test_the_same_figure_is_the_same_file(tmp_path: Path):
    for name in ("one.svg", "two.svg"):
        with styled():
            figure = new_figure(2, 2)
            figure.subplots().plot([1, 2])
        save_figure(figure, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_letters_that_the_font_lacks_are_drawn_in_another_installed_font(monkeypatch: pytest.MonkeyPatch, capfd):
    monkeypatch.setattr("foster.reports.style.fonts", fonts.__wrapped__)
    monkeypatch.setattr("foster.reports.style.OTHER_FONTS", ("not installed", "STIXGeneral"))  # matplotlib has STIX
    drawn = set()
    for letter in "\u1d81\u1d84":  # DejaVu Sans has neither of them
        with styled():
            figure = new_figure(1, 1)
            figure.text(0.5, 0.5, letter, fontsize=30)
        drawn.add(figure._repr_png_())
    assert len(drawn) == 2, "not twice the same box"
    assert capfd.readouterr() == ("", ""), "no warning of a font that is not installed"
