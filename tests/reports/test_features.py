from unittest.mock import Mock

import numpy as np
import pytest
import torch

from foster.errors import DataError
from foster.events import EpochEnded
from foster.reports import features
from foster.reports.archive import open_archives
from foster.reports.features import head_norm_figure, head_weight, loss_figure, tsne_figure


def test_tsne_has_a_panel_a_task_and_one_colour_a_class(kept_runs):
    figure = tsne_figure(open_archives([kept_runs["finetune"]]))
    assert [axes.get_title(loc="center") for axes in figure.axes] == ["2 classes", "4 classes", "6 classes"]
    for axes, num_seen in zip(figure.axes, (2, 4, 6), strict=True):
        counts = [len(points.get_offsets()) for points in axes.collections]
        assert counts == [12] * num_seen + [0] * (6 - num_seen)
    colours = [[tuple(points.get_facecolor()[0]) for points in axes.collections] for axes in figure.axes]
    assert all(found == colours[0] for found in colours)
    assert len(set(colours[0])) == 6
    (legend,) = figure.legends
    assert len(legend.get_texts()) == 6


def test_the_positions_of_tsne_are_those_of_the_images_of_the_classes_in_the_order_asked_for(kept_runs, monkeypatch):
    monkeypatch.setattr("sklearn.manifold.TSNE.fit_transform", lambda self, features: features)
    (archive,) = open_archives([kept_runs["finetune"]])
    positions, labels = features._tsne_positions(archive, 1, np.array([3, 0]))
    assert labels.tolist() == [3] * 12 + [0] * 12
    test = archive.scenario.test_up_to(1)
    first = test.select((test.labels == 3).nonzero()[:12, 0])
    network = archive.network_after(1)
    expected = torch.nn.functional.normalize(archive.infer(network, first.stack).features, dim=1)
    assert positions[:12] == pytest.approx(expected.numpy(), abs=1e-5)


def test_tsne_has_a_row_a_run_and_a_legend_for_each_class_order_with_its_own_names(kept_runs, monkeypatch):
    monkeypatch.setattr(features, "_tsne_positions", lambda archive, task, classes: (np.zeros((6, 2)), np.arange(6)))
    archives = open_archives([kept_runs["finetune"], kept_runs["foster"]])
    archives[1].class_names = archives[1].class_names[::-1]
    figure = tsne_figure(archives)
    assert len(figure.axes) == 2 * 3
    assert [axes.get_ylabel() for axes in figure.axes[::3]] == ["finetune", "foster"]
    assert not figure.legends
    legends = [axes.get_legend() for axes in figure.axes[2::3]]
    names = [tuple(text.get_text() for text in legend.get_texts()) for legend in legends]
    assert names == [archive.class_names for archive in archives]
    assert names[0] != names[1]


def test_a_run_that_kept_no_networks_is_told_how_to(kept_runs, tmp_path):
    import shutil

    shutil.copytree(kept_runs["finetune"], tmp_path / "run", ignore=shutil.ignore_patterns("networks"))
    with pytest.raises(DataError, match=rf"^'{tmp_path}/run' .*keep_networks=true"):
        tsne_figure(open_archives([kept_runs["finetune"], tmp_path / "run"]))


def test_a_head_without_norms_is_left_out_where_there_are_others(kept_runs, monkeypatch):
    foster, finetune = archives = open_archives([kept_runs["foster"], kept_runs["finetune"]])
    monkeypatch.setattr(finetune, "network", Mock(side_effect=DataError("it compares directions")))
    assert [axes.get_title(loc="left") for axes in head_norm_figure(archives).axes] == [foster.name]
    with pytest.raises(DataError, match="directions"):
        head_norm_figure([finetune])


def test_the_norms_are_those_of_the_heads_rows_with_the_mean_of_each_task(kept_runs, bundle):
    run, learned = archives = open_archives([kept_runs["foster"], bundle])
    for axes, archive in zip(head_norm_figure(archives).axes, archives, strict=True):
        norms = head_weight(archive).norm(dim=1).numpy()
        assert [bar.get_height() for bar in axes.patches] == pytest.approx(norms.tolist())
    assert [text.get_text() for text in axes.texts] == [f"{np.mean(norms[:3]):.2f}", f"{np.mean(norms[3:]):.2f}"]
    assert run.name == "foster"
    assert learned.name == "digits"


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
    assert drawn[0].get_xdata() == pytest.approx([1, 2, np.nan, 3, 4, np.nan, 5], nan_ok=True)
    assert [text.get_text() for text in axes.texts] == ["task 2", "task 3", "task 4"]
