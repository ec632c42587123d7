import pytest

from foster.reports.curves import LOOKS, MOST_DRAWN, panels, scale
from foster.reports.results import RunResult, read_result
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
    runs = [
        read_result(write_run(f"seed{seed}", seed=seed, accuracy=(90.0, last), boosted=(90.0, last + 1)))
        for seed, last in ((1, 60.0), (2, 62.0), (3, 64.0))
    ]
    boosted, compressed = only_panel(runs).curves
    assert (compressed.label, compressed.num_runs) == ("foster", 3)
    assert compressed.mean == (90.0, 62.0)
    assert compressed.spread == (0.0, 2.0)
    assert compressed.average == 76.0
    assert boosted.is_boosted
    assert boosted.mean == (90.0, 63.0)


def test_two_augmentations_of_a_method_are_told_apart(write_run):
    runs = [read_result(write_run(name, augmentation=name)) for name in ("auto", "plain")]
    curves = only_panel(runs).curves
    assert {curve.label for curve in curves} == {"foster (auto)", "foster (plain)"}
    assert curves[0].look.line_style != curves[1].look.line_style
    assert {curve.look.colour for curve in curves} == {LOOKS["foster"].colour}


def test_augmentations_that_differ_between_methods_are_told_on_every_curve(write_run):
    runs = [
        read_result(write_run(method, method=method, augmentation=augmentation))
        for method, augmentation in (("foster", "auto"), ("wa", "plain"), ("der", "plain"))
    ]
    panel = only_panel(runs)
    assert {curve.label for curve in panel.curves} == {"foster (auto)", "wa (plain)", "der (plain)"}
    assert panel.title("mine") == "mine"


def test_every_method_has_a_look_that_no_other_has():
    assert LOOKS.keys() == METHOD_SETTINGS.keys()
    for part in ("colour", "marker"):
        assert len({getattr(look, part) for look in LOOKS.values()}) == len(LOOKS)


def test_each_augmentation_of_many_runs_gets_a_panel_and_all_have_one_scale(write_run):
    runs = [
        read_result(write_run(f"{method}-{name}", method=method, augmentation=name, accuracy=(90.0, last)))
        for method in METHOD_SETTINGS
        for name, last in (("auto", 80.0), ("plain", 25.0))
    ]
    assert len(only_panel(runs[:12]).groups) == 12
    found = panels(runs)
    assert [{group.augmentation for group in panel.groups} for panel in found] == [{"plain"}, {"auto"}]
    assert [len(panel.curves) for panel in found] == [len(METHOD_SETTINGS)] * 2
    assert {curve.label for panel in found for curve in panel.curves} == set(METHOD_SETTINGS)
    both = scale([curve for panel in found for curve in panel.curves])
    assert (both.bottom, both.top) == (20, 100)


def test_an_augmentation_has_the_same_line_in_all_curves_of_a_panel(write_run):
    runs = [
        read_result(write_run(f"{method}-{name}", method=method, augmentation=name, accuracy=(90.0, last)))
        for method, name, last in (("foster", "auto", 80.0), ("wa", "plain", 70.0), ("wa", "auto", 60.0))
    ]
    styles = {curve.label: curve.look.line_style for curve in only_panel(runs).curves}
    assert styles["foster (auto)"] == styles["wa (auto)"] != styles["wa (plain)"]


def test_recipes_of_one_method_have_colours_and_markers_of_their_own_beside_the_fixed_ones(recipes):
    runs = recipes(
        *(("wa", "auto", beta, 80.0 - beta) for beta in (1, 2, 3)),
        ("wa", "plain", 1, 70.0),
        ("replay", "plain", 0, 60.0),
    )
    looks = {curve.label: curve.look for curve in only_panel(runs).curves if not curve.is_boosted}
    assert looks["replay (plain)"].colour == LOOKS["replay"].colour
    auto = [looks[f"wa beta={beta} (auto)"] for beta in (1, 2, 3)]
    assert LOOKS["wa"].colour in {look.colour for label, look in looks.items() if label.startswith("wa ")}
    assert len({look.colour for look in auto} | {LOOKS["replay"].colour}) == 4
    assert len({look.marker for look in auto} | {LOOKS["replay"].marker}) == 4
    assert {look.line_style for look in auto} == {"-"}
    assert looks["wa (plain)"].line_style == looks["replay (plain)"].line_style != "-"


def test_a_boosted_curve_has_its_recipes_colour_until_there_are_too_many(recipes):
    rows = [("foster", "auto", float(beta), 80.0 - beta) for beta in range(7)]
    few, many = only_panel(recipes(*rows[:6])), only_panel(recipes(*rows))
    assert sum(curve.is_boosted for curve in few.curves) == 6
    for boosted, own in zip(few.curves[::2], few.curves[1::2], strict=True):
        assert (boosted.label, boosted.look.colour) == (f"{own.label} boosted", own.look.colour)
    assert few.note == ""
    assert [curve.is_boosted for curve in many.curves] == [False] * 7
    assert many.note == "without the boosted networks"


def test_of_many_recipes_the_best_are_drawn_each_in_another_way_and_a_note_says_so(recipes):
    panel = only_panel(recipes(*(("foster", "auto", float(beta), 30.0 + beta) for beta in range(40))))
    assert [curve.mean[-1] for curve in panel.curves] == [69.0 - rank for rank in range(MOST_DRAWN)]
    assert len({(curve.look.colour, curve.look.marker) for curve in panel.curves}) == MOST_DRAWN
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


def test_the_boosted_network_of_a_single_task_can_be_seen(write_run):
    panel = only_panel([read_result(write_run("a", accuracy=(91.0,), task_sizes=(2,), boosted=(92.0,)))])
    assert all(curve.look.marker for curve in panel.curves)
