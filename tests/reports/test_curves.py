from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from written_runs import three_seeds

from foster.errors import DataError
from foster.experiment.results import RunResult, VariantResult, read_result
from foster.reports.curves import AXES_WIDTH, MOST_DRAWN, accuracy_figure, new_old_figure, panels
from foster.reports.style import figure_format, look_of, new_figure, save_figure, styled
from foster.settings.methods import METHOD_SETTINGS


@pytest.fixture
def recipes(write_run):
    """Runs by method, augmentation, the value of a setting, and the last accuracy."""

    def make(*rows: tuple[str, str, float, float]) -> list[RunResult]:
        return [
            read_result(
                write_run(
                    f"{method}-{augmentation}-{beta}",
                    method=method,
                    augmentation=augmentation,
                    accuracy=(90.0, last),
                    boosted=(90.0, last + 1),
                    settings={method: {"beta": beta}},
                )
            )
            for method, augmentation, beta, last in rows
        ]

    return make


def only_panel(runs):
    (panel,) = panels(runs)
    return panel


def test_seeds_become_a_mean_with_a_band_of_one_standard_deviation(write_run):
    boosted, compressed = only_panel(three_seeds(write_run)).curves
    assert compressed.end.text.endswith("average\u00a076.0\u00a0(n\u00a0=\u00a03)")
    assert (compressed.label, compressed.num_runs) == ("foster", 3)
    assert compressed.mean == (90.0, 62.0)
    assert compressed.spread == (0.0, 2.0)
    assert compressed.average == 76.0
    assert not boosted.is_result
    assert boosted.mean == (90.0, 64.0)
    uneven = [
        replace(run, accuracy=(90.0, last)) for run, last in zip(three_seeds(write_run), (60, 61, 65), strict=True)
    ]
    assert only_panel(uneven).curves[-1].mean == (90.0, 62.0)


def test_a_title_stands_above_all_panels_or_in_the_only_one(write_run):
    runs = [read_result(write_run(name, scenario=name)) for name in ("a", "b")]
    assert accuracy_figure(runs, "ours").get_suptitle() == "ours"
    alone = accuracy_figure(runs[:1], "ours")
    assert (alone.get_suptitle(), alone.axes[0].get_title(loc="left")) == ("", "ours")


def test_the_axis_says_which_images_the_accuracy_is_measured_on(write_run):
    by_class, given = (
        accuracy_figure([read_result(write_run(tasks, settings={"tasks": tasks}))]).axes[0].get_ylabel()
        for tasks in ("classes", "given")
    )
    assert "all classes seen" in by_class
    assert "classes" not in given


def test_runs_of_another_augmentation_or_class_order_are_in_another_panel(write_run):
    rows = (("foster", "auto", 1993), ("wa", "auto", 1993), ("foster", "plain", 1993), ("foster", "auto", 5))
    runs = [
        read_result(write_run(f"{row}", method=row[0], augmentation=row[1], settings={"order_seed": row[2]}))
        for row in rows
    ]
    assert [{curve.label for curve in panel.curves} for panel in panels(runs)] == [
        {"foster", "wa"},
        {"foster"},
        {"foster"},
    ]
    assert len({panel.title for panel in panels(runs)}) == 3
    assert {curve.look for panel in panels(runs) for curve in panel.curves if curve.label == "foster"} == {
        look_of("foster")
    }


def test_every_method_has_a_look_that_no_other_has():
    looks = [look_of(name) for name in METHOD_SETTINGS]
    for part in ("colour", "marker"):
        assert len({getattr(look, part) for look in looks}) == len(looks)


def test_a_method_of_a_plug_in_has_one_look_in_all_figures(write_run):
    theirs, ours = (read_result(write_run(name, method=name)) for name in ("my_own_method", "foster"))
    alone, beside = only_panel([theirs]), only_panel([theirs, ours])
    (look,) = {curve.look for panel in (alone, beside) for curve in panel.curves if curve.label == "my_own_method"}
    assert look == look_of("my_own_method")
    assert look.colour not in {look_of(name).colour for name in METHOD_SETTINGS}


def test_a_band_is_inside_the_axes_which_end_at_100_percent(write_run):
    lasts = ((1, 98.0), (2, 88.0))
    same = {"order_seed": 1}
    seeds = [read_result(write_run(f"s{n}", seed=n, accuracy=(99.0, last), settings=same)) for n, last in lasts]
    axes = accuracy_figure(seeds).axes[0]
    assert axes.collections[0].get_paths()[0].vertices[:, 1].min() == pytest.approx(93 - 7.07, abs=0.01)
    low, high = axes.get_ylim()
    assert low < 93 - 7.07 < 93 + 7.07 > high == 100, "the standard deviation is 7.07"


def test_the_curve_of_a_variant_has_its_recipes_colour(recipes):
    curves = only_panel(recipes(*(("foster", "auto", float(beta), 80.0 - beta) for beta in range(6)))).curves
    for boosted, result in zip(curves[::2], curves[1::2], strict=True):
        assert (boosted.label, boosted.look.colour) == (f"{result.label} boosted", result.look.colour)


def test_recipes_of_one_method_have_its_colour_and_markers_of_their_own(recipes):
    runs = recipes(*(("wa", "auto", beta, 80.0 - beta) for beta in (1, 2, 3)), ("replay", "auto", 0, 60.0))
    looks = {curve.label: curve.look for curve in only_panel(runs).curves if curve.is_result}
    assert looks["replay"].colour == look_of("replay").colour
    of_wa = [looks[f"wa beta={beta}"] for beta in (1, 2, 3)]
    assert {look.colour for look in of_wa} == {look_of("wa").colour}
    assert len({look.marker for look in of_wa}) == 3


def test_of_many_recipes_the_best_are_drawn_each_in_another_way_and_a_note_says_so(recipes):
    panel = only_panel(recipes(*(("foster", "auto", float(beta), 30.0 + beta) for beta in range(40))))
    drawn = [curve for curve in panel.curves if curve.is_result]
    assert [curve.mean[-1] for curve in drawn] == [69.0 - rank for rank in range(MOST_DRAWN)]
    assert len({curve.look for curve in drawn}) == MOST_DRAWN
    assert {curve.look.colour for curve in drawn} == {look_of("foster").colour}
    assert panel.note.startswith(f"the best {MOST_DRAWN} of 40 ")


def test_a_recipe_looks_the_same_in_the_panels_of_two_scenarios(write_run):
    runs = [
        read_result(write_run(f"{scenario}-{beta}", scenario=scenario, accuracy=accuracy, settings={"beta": beta}))
        for scenario, sign in (("one", 1), ("two", -1))
        for beta, accuracy in ((1, (90.0, 60.0 + sign)), (2, (90.0, 60.0 - sign)))
    ]
    first, second = ({curve.label: curve.look for curve in panel.curves} for panel in panels(runs))
    assert first == second
    assert len(set(first.values())) == 2


def test_a_variant_of_a_single_task_can_be_seen(write_run):
    panel = only_panel([read_result(write_run("a", accuracy=(91.0,), task_sizes=(2,), boosted=(92.0,)))])
    assert all(curve.look.marker for curve in panel.curves)


def test_a_variant_that_lacks_later_tasks_is_labelled_where_it_ends_and_left_out_where_it_has_the_first_alone(
    write_run,
):
    run = read_result(write_run("a", accuracy=(90, 80, 70), task_sizes=(2, 2, 2), boosted=(92.0, 91.0, 90.0)))
    for accuracy, ends in (((92.0, 91.0, None), [91.0]), ((92.0, None, None), []), ((None, None, None), [])):
        part = replace(run, variants={"boosted": VariantResult(accuracy, None)})
        assert [curve.end.value for curve in only_panel([part]).curves if not curve.is_result] == ends


def labels(axes):
    """The texts to the right of the axes, which are placed in shares of their width."""
    return [text for text in axes.texts if text.get_position()[0] == 1.08]


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
                | {"folder": f"$\\nothing{k}$", "some_classes": [f"class {(k + index) % 100}" for index in range(100)]},
            )
        )
        for k in range(2)
    ]


def test_a_line_leads_from_each_curve_to_its_label(write_run):
    runs = [read_result(write_run(f"{k}", boosted=(90.0, 70.0), settings={"beta": k})) for k in range(3)]
    (axes,) = accuracy_figure(runs).axes
    beside = [line for line in axes.lines if min(line.get_xdata()) > 1 and max(line.get_xdata()) < 1.2]
    across = [line for line in axes.lines if line not in beside]
    assert len(beside) == len(across) == 6

    def looks(lines):
        return sorted((line.get_color(), line.get_linestyle(), line.get_marker()) for line in lines)

    assert looks(beside) == looks(across)
    assert sorted(line.get_ydata()[0] for line in beside) == sorted(line.get_ydata()[-1] for line in across)
    places = {text.get_position()[1]: text.get_color() for text in labels(axes)}
    assert {line.get_ydata()[-1]: line.get_color() for line in beside} == places


def test_the_gap_between_the_two_best_is_told_at_the_end(write_run):
    rows = (("foster", 70.0), ("wa", 58.0), ("replay", 40.0), ("joint", 80.0))
    runs = [read_result(write_run(method, method=method, accuracy=(90.0, last))) for method, last in rows]
    assert "+12.0" in [text.get_text() for text in accuracy_figure(runs).axes[0].texts], "joint is no competitor"
    assert not any(text.get_text().startswith("+") for text in accuracy_figure(runs[:1]).axes[0].texts)


def test_in_a_figure_of_a_given_width_no_title_reaches_into_the_next_panel(write_run):
    runs = [read_result(write_run(name, scenario=f"{name}-with-a-rather-long-name")) for name in ("one", "two")]
    with figure_format("two-column").used():
        figure = accuracy_figure(runs)
        figure.draw_without_rendering()
        first, second = (axes._left_title.get_window_extent() for axes in figure.axes)
        assert first.x1 < second.x0


def test_long_labels_and_titles_neither_shrink_the_axes_nor_warn(long_runs, tmp_path: Path, recwarn):
    title = "a title that is much longer than the picture is wide, and no formula: $\\nothing$, " * 4
    figure = accuracy_figure(long_runs, title)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    assert axes.get_position().width * figure.get_figwidth() > 0.9 * AXES_WIDTH
    assert max(len(line) for text in labels(axes) for line in text.get_text().splitlines()) <= 44
    extents = sorted((text.get_window_extent() for text in labels(axes)), key=lambda extent: -extent.y0)
    assert len(extents) == 4
    assert all(upper.y0 > lower.y1 for upper, lower in pairwise(extents)), "they overlap"

    with styled():
        other = new_figure(2, 1)
        other.suptitle("letters that no font has: \U0001f98a")
    save_figure(other, tmp_path / "one.png")
    assert not [str(warning.message) for warning in recwarn]


def test_without_runs_there_is_no_figure():
    with pytest.raises(DataError, match="no runs"):
        accuracy_figure([])


def test_new_and_old_accuracy_have_a_panel_each(write_run):
    told = {"new_accuracy": [90.0, 80.0], "old_accuracy": [None, 55.0]}
    runs = [read_result(write_run(method, method=method, **told)) for method in ("foster", "wa")]
    new, old = new_old_figure(runs).axes
    curves = {"new": [90.0, 80.0], "old": [np.nan, 55.0]}
    for axes, values in zip((new, old), curves.values(), strict=True):
        assert np.array_equal(axes.lines[0].get_ydata(), values, equal_nan=True)
        assert {text.get_text().split()[0] for text in axes.texts} == {"foster", "wa"}
        assert all(f"last {values[-1]}" in text.get_text().replace("\u00a0", " ") for text in axes.texts)
    order = {"settings": {"order_seed": 1993}}
    again = {"seed": 2, "new_accuracy": [80.0, 60.0], "old_accuracy": [None, 45.0]}
    seeds = [read_result(write_run(f"s{len(each)}", **(told | order | each))) for each in ({}, again)]
    mean, before = new_old_figure(seeds).axes
    assert before.get_ylim()[0] < 50 - 7.07, "the whole band is inside the axes"
    assert list(mean.lines[0].get_ydata()) == [85.0, 70.0], "seeds of one recipe are one curve"


def test_a_run_in_its_second_task_has_no_old_accuracy_to_draw_yet(write_run):
    numbers = {"new_accuracy": [90.0], "old_accuracy": [None]}
    first = read_result(write_run("first", accuracy=[90.0], task_sizes=[2], **numbers))
    (new,) = new_old_figure([first]).axes
    assert list(new.lines[0].get_ydata()) == [90.0]
