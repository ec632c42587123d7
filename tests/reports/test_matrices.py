import numpy as np
import pytest

from foster.errors import DataError
from foster.experiment.results import read_result
from foster.reports import matrices
from foster.reports.archive import open_archives
from foster.reports.html import THEMED
from foster.reports.matrices import accuracy_matrix_figure, confusion, confusion_figure


def test_a_confusion_matrix_holds_the_share_of_each_true_class():
    shares = confusion(np.array([0, 0, 0, 0, 2]), np.array([0, 0, 0, 1, 0]), num_classes=3)
    assert shares.tolist() == [[0.75, 0.25, 0], [0, 0, 0], [1, 0, 0]]


def test_confusion_matrices_stand_side_by_side_with_their_tasks_parted(kept_runs):
    archives = open_archives(kept_runs.values())
    figure = confusion_figure(archives)
    first, second = figure.axes
    assert [axes.get_title(loc="left").split(",")[0] for axes in (first, second)] == ["foster", "finetune"]
    for axes, archive in zip((first, second), archives, strict=True):
        shares = confusion(*archive.predictions(), 6)
        assert np.allclose(axes.images[0].get_array() ** 2, shares)
        assert sorted({line.get_xdata()[0] for line in axes.lines} - {0, 1}) == [1.5, 3.5]
        assert [text.get_text() for text in axes.get_yticklabels()] == list(archive.class_names)
    assert (first.get_xlabel(), first.get_ylabel()) == ("predicted", "true")
    (bar,) = second.child_axes
    assert [float(text.get_text()) for text in bar.get_yticklabels()] == pytest.approx(bar.get_yticks() ** 2)
    assert bar.get_ylabel() == "share of the true class"


def test_of_many_classes_the_borders_between_tasks_are_numbered(kept_runs, monkeypatch):
    monkeypatch.setattr(matrices, "MOST_NAMED", 5)
    axes = confusion_figure(open_archives([kept_runs["foster"]])).axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["0", "2", "4", "6"]
    monkeypatch.setattr(matrices, "MOST_NUMBERED", 2)
    axes = confusion_figure(open_archives([kept_runs["foster"]])).axes[0]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0", "4"], "6 is too close to 4"


def test_matrices_that_would_fill_the_memory_are_refused(kept_runs, monkeypatch):
    archives = open_archives(kept_runs.values())
    monkeypatch.setattr(matrices, "MOST_CELLS", 2 * 6 * 6 - 1)
    with pytest.raises(DataError, match="more than 71 cells"):
        confusion_figure(archives)
    assert confusion_figure(archives[:1]).axes


def test_a_class_that_nothing_was_measured_on_has_a_blank_row(kept_runs, monkeypatch):
    (archive,) = open_archives([kept_runs["foster"]])
    labels, predicted = archive.predictions()
    is_left = labels != 2
    monkeypatch.setattr(archive, "predictions", lambda: (labels[is_left], predicted[is_left]))
    shown = np.ma.filled(confusion_figure([archive]).axes[0].images[0].get_array(), np.nan)
    assert np.isnan(shown).all(axis=1).tolist() == [False, False, True, False, False, False]
    assert np.isnan(shown).sum() == 6


def test_an_accuracy_matrix_is_written_out_task_by_task(write_run):
    matrix = [[90.0], [70.0, 50.0]]
    run = read_result(write_run("a", accuracy_matrix=matrix))
    axes = accuracy_matrix_figure([run]).axes[0]
    assert [text.get_text() for text in axes.texts] == ["90", "70", "50"]
    assert [text.get_position() for text in axes.texts] == [(0, 0), (0, 1), (1, 1)], "after task 2 a lower row"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("accuracy on the classes of task", "after task")
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1", "2"]
    assert axes.images[0].get_clim() == (0, 100)
    assert axes.texts[0].get_color() not in THEMED, "a bright cell is bright in a dark report, too"
    assert accuracy_matrix_figure([run], ["mine"]).axes[0].get_title(loc="left").startswith("mine, digits-b0-inc2: ")
