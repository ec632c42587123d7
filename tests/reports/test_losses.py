import numpy as np

from foster.events import EpochEnded
from foster.reports.archive import open_archives
from foster.reports.curves import new_old_figure
from foster.reports.features import loss_figure
from foster.reports.results import read_result


def test_every_loss_term_is_drawn_where_its_phase_was_trained(kept_runs):
    (axes,) = loss_figure(open_archives([kept_runs["foster"]])).axes
    drawn = {line.get_label(): line.get_ydata() for line in axes.lines if not line.get_label().startswith("_")}
    assert drawn.keys() == {"L_CE", "L_LA", "L_FE", "L_KD", "L_BKD"}
    assert np.isfinite(drawn["L_CE"][0])
    assert np.isnan(drawn["L_CE"][-1])
    assert np.isfinite(drawn["L_BKD"][-1])


def test_a_phase_of_one_epoch_is_a_point_and_a_first_task_that_was_taken_over_has_no_number(kept_runs):
    (archive,) = open_archives([kept_runs["foster"]])
    losses = [{"L_LA": 3.0}, {"L_BKD": 2.0}, {"L_LA": 3.0}, {"L_LA": 2.5}, {"L_BKD": 2.0}]
    archive.epochs = [EpochEnded(1 + k // 2, "boost", k, 5, loss, 0.1, 1.0, 1.0) for k, loss in enumerate(losses)]
    (axes,) = loss_figure([archive]).axes
    drawn = [line for line in axes.lines if not line.get_label().startswith("_")]
    assert [(line.get_label(), line.get_marker()) for line in drawn] == [("L_LA", "."), ("L_BKD", ".")]
    assert [text.get_text() for text in axes.texts] == ["task 2", "task 3", "task 4"]


def test_new_and_old_accuracy_have_a_panel_each(write_run):
    told = {"new_accuracy": [90.0, 80.0], "old_accuracy": [None, 55.0]}
    runs = [read_result(write_run(method, method=method, **told)) for method in ("foster", "wa")]
    new, old = new_old_figure(runs).axes
    curves = {"new": [90.0, 80.0], "old": [np.nan, 55.0]}
    for axes, values in zip((new, old), curves.values(), strict=True):
        assert np.array_equal(axes.lines[0].get_ydata(), values, equal_nan=True)
        assert {text.get_text().split()[0] for text in axes.texts} == {"foster", "wa"}
    order = {"settings": {"order_seed": 1993}}
    again = {"seed": 2, "new_accuracy": [80.0, 60.0], "old_accuracy": [None, 45.0]}
    seeds = [read_result(write_run(f"s{len(each)}", **(told | order | each))) for each in ({}, again)]
    mean, _ = new_old_figure(seeds).axes
    assert list(mean.lines[0].get_ydata()) == [85.0, 70.0], "seeds of one recipe are one curve"


def test_a_run_in_its_second_task_has_no_old_accuracy_to_draw_yet(write_run):
    numbers = {"new_accuracy": [90.0], "old_accuracy": [None]}
    first = read_result(write_run("first", accuracy=[90.0], task_sizes=[2], **numbers))
    (new,) = new_old_figure([first]).axes
    assert list(new.lines[0].get_ydata()) == [90.0]
