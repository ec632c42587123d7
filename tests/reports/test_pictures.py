import numpy as np
import pytest
import torch
from tiny_runs import start, tiny_settings

from foster.errors import DataError
from foster.reports import pictures
from foster.reports.archive import open_archives
from foster.reports.pictures import NUM_EXPLAINED, branch_maps, corrected, exemplar_figure, grad_cam_figure, growth_of


def test_exemplars_stand_in_rows_by_class_in_the_order_of_their_choice(kept_runs):
    (run,) = open_archives([kept_runs["foster"]])
    (axes,) = exemplar_figure(run).axes
    sheet, images = axes.images[0].get_array(), run.exemplars()
    height, width = images.image_size
    third_of_second_class = images.images[images.labels == 1][2].permute(1, 2, 0).numpy()
    top, left = height + 1, 2 * (width + 1)
    assert np.array_equal(sheet[top : top + height, left : left + width], third_of_second_class)
    assert [text.get_text() for text in axes.get_yticklabels()] == [f"{name}  (4)" for name in run.class_names]


def test_grad_cam_is_shown_for_images_that_boosting_corrected(kept_runs):
    (run,) = open_archives([kept_runs["foster"]])
    growth = growth_of(run, 2)
    found = corrected(run, growth, 2, NUM_EXPLAINED)
    assert 0 < len(found) <= NUM_EXPLAINED
    old = run.infer(growth.old, found.images).logits.argmax(1)
    now = run.infer(growth.whole, found.images).logits.argmax(1)
    assert not (old == found.labels).any()
    assert (now == found.labels).all()
    known = run.scenario.test_up_to(2).of_classes(0, growth.old.num_classes)
    sure = run.infer(growth.whole, known.images).logits.softmax(1)
    is_corrected = run.infer(growth.old, known.images).logits.argmax(1) != known.labels
    is_corrected &= sure.argmax(1) == known.labels
    first = (sure.amax(1) * is_corrected).argmax()
    assert torch.equal(found.images[0], known.images[first]), "the most confident one comes first"
    frozen, new = branch_maps(run, growth, found)
    assert frozen.shape == new.shape == (len(found), 8, 8)
    assert not torch.equal(frozen, new)

    figure = grad_cam_figure(run)
    assert len(figure.axes) == 3 * len(found)
    first_row = figure.axes[: len(found)]
    titles = [axes.get_title(loc="center") for axes in first_row]
    assert titles == [run.class_names[k] for k in found.labels.tolist()], "after the last task"
    assert [axes.get_xlabel() for axes in first_row] == [f"before: {run.class_names[int(k)]}" for k in old]
    assert [len(axes.images) for axes in figure.axes[:: len(found)]] == [1, 2, 2]


def test_several_new_branches_are_explained_together(tmp_path):
    settings = tiny_settings("foster", "keep_networks=true", "synthetic.num_classes=4", "foster.boost_branches=2")
    start(settings, tmp_path / "two")
    (run,) = open_archives([tmp_path / "two"])
    growth = growth_of(run, 1)
    assert len(growth.new.branches) == 2
    images = run.tested.images
    whole, old, new = (run.infer(each, images) for each in (growth.whole, growth.old, growth.new))
    assert torch.equal(whole.features, torch.cat([old.features, new.features], dim=1)), "the old one is that of before"
    old_part = run.infer(growth.whole, images).logits - new.logits
    known = growth.whole.head.weight[:, : growth.old.feature_size]
    torch.testing.assert_close(old_part, old.features @ known.T)
    known_images = run.tested.of_classes(0, growth.old.num_classes)
    frozen, added = branch_maps(run, growth, known_images)
    assert frozen.shape == added.shape == (len(known_images), 8, 8)


def test_grad_cam_of_a_run_without_boosting_is_refused_in_one_line(kept_runs):
    (run,) = open_archives([kept_runs["finetune"]])
    with pytest.raises(DataError, match=r"foster .*keep_networks=true"):
        grad_cam_figure(run)


def test_of_many_classes_some_from_all_over_are_shown(kept_runs, monkeypatch):
    monkeypatch.setattr(pictures, "MOST_BLOCKS", 1)
    monkeypatch.setattr(pictures, "ROWS_IN_A_BLOCK", 3)
    (run,) = open_archives([kept_runs["foster"]])
    (axes,) = exemplar_figure(run).axes
    assert [text.get_text() for text in axes.get_yticklabels()] == [f"{run.class_names[k]}  (4)" for k in (0, 2, 4)]
    assert axes.get_title(loc="left") == "foster: 24 exemplars; 3 of 6 classes"


def test_long_names_in_several_blocks_do_not_reach_the_pictures_on_their_left(kept_runs, monkeypatch):
    monkeypatch.setattr(pictures, "ROWS_IN_A_BLOCK", 3)
    (run,) = open_archives([kept_runs["foster"]])
    run.class_names = tuple(f"{name} {'of a long name ' * 4}{k}" for k, name in enumerate(run.class_names))
    figure = exemplar_figure(run)
    figure.draw_without_rendering()
    first, second = figure.axes
    right = first.get_window_extent().x1
    assert all(text.get_window_extent().x0 > right for text in second.get_yticklabels())
