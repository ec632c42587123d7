"""A dataset whose tasks are folders in which classes come again: it is learned, resumed and measured."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_runs import Interruption, assert_same, interrupted, outcome, resume, start
from typer.testing import CliRunner

import foster
from foster.cli import app
from foster.errors import DataError, SettingsError
from foster.events import Event, PhaseStarted
from foster.experiment.artifacts import read_predictions
from foster.experiment.parts import load_scenario
from foster.experiment.plan import make_plan
from foster.settings.experiment import Settings, load_settings

TASKS = {"1": ("cat", "dog"), "2": ("cat", "dog"), "10": ("dog", "bird")}
"""The second brings no new class, the third a new one and more of a known one."""
LIGHT = {"1": 40, "2": 120, "10": 200}
COLOUR = {"cat": (40, 0, 0), "dog": (0, 40, 0), "bird": (0, 0, 40)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("domains")
    for task, names in TASKS.items():
        for name in names:
            for split, count in (("train", 8), ("test", 3)):
                place = root / "tasks" / task / split / name
                place.mkdir(parents=True)
                for k in range(count):
                    noise = np.random.default_rng(k).integers(0, 15, (8, 8, 3))
                    pixels = noise + LIGHT[task] + np.array(COLOUR[name])
                    Image.fromarray(pixels.astype(np.uint8)).save(place / f"{k}.png")
    return root


def settings_of(folder: Path, *more: str) -> Settings:
    keys = ["dataset=folder", f"data={folder}", "tasks=given", "photos.image_size=8", "augmentation=none", "device=cpu"]
    keys += ["memory_total=12", "batch_size=8", "epochs_scale=0.005", "backbone=resnet8", "checkpoint_minutes=0"]
    return load_settings("digits", [*keys, *more])


def test_tasks_are_the_folders_in_order_and_know_what_is_new(folder: Path) -> None:
    scenario = load_scenario(settings_of(folder))
    assert (scenario.name, scenario.task_sizes) == (f"folder-{folder.name}-tasks", (2, 0, 1))
    assert scenario.class_names == ("cat", "dog", "bird")
    for index, names in enumerate(TASKS.values()):
        task = scenario[index]
        assert {task.class_names[k] for k in task.class_ids} == set(names)
        assert len(task.new_images) == 16
        assert scenario.test_up_to(index).beside["task"].bincount().tolist() == [6] * (index + 1)
    planned = make_plan(settings_of(folder))
    assert [(task.num_new, task.new_images) for task in planned.tasks] == [(2, 16), (0, 16), (1, 16)]


def test_images_are_held_out_of_every_class_in_each_task(folder: Path) -> None:
    settings = settings_of(folder, "validation_share=0.25")
    scenario = load_scenario(settings)
    held_out = scenario.test_up_to(2)
    pairs = list(zip(held_out.beside["task"].tolist(), held_out.labels.tolist(), strict=True))
    given = {(task, scenario.class_names.index(name)) for task, names in enumerate(TASKS.values()) for name in names}
    assert Counter(pairs) == dict.fromkeys(given, 2), "a quarter of 8"
    assert [len(scenario[task].new_images) for task in range(3)] == [12, 12, 12]
    assert [task.new_images for task in make_plan(settings).tasks] == [12, 12, 12]
    assert load_scenario(settings).test_up_to(2).stack.ids() == held_out.stack.ids(), "the same ones in every run"


@pytest.mark.parametrize("method", ["foster", "der", "bic", "slda", "joint"])
def test_it_is_measured_by_the_images_of_each_task_and_goes_on_after_a_cut(
    method: str, folder: Path, tmp_path: Path
) -> None:
    settings = settings_of(folder, f"method={method}")
    results = start(settings, tmp_path / "whole")

    def is_last_phase(event: Event) -> bool:
        return isinstance(event, PhaseStarted) and event.task == (0 if method == "slda" else 2)

    matrix = results["accuracy_matrix"]
    assert [len(row) for row in matrix] == [1, 2, 3]
    for row, accuracy in zip(matrix, results["accuracy"], strict=True):
        assert np.mean(row) == pytest.approx(accuracy), "each task has as many test images"
    predictions = read_predictions(tmp_path / "whole")
    is_correct = predictions.by_variant[results["result"]] == predictions.labels
    tasks = load_scenario(settings).test_up_to(2).beside["task"].numpy()
    assert matrix[-1] == pytest.approx([100 * is_correct[tasks == task].mean() for task in range(3)])
    assert results["new_accuracy"] == [row[-1] for row in matrix]
    assert results["tasks"] == [["cat", "dog"], [], ["bird"]]

    if method in ("foster", "slda"):
        interrupted(settings, tmp_path / "cut", Interruption(is_last_phase))
        resume(tmp_path / "cut")
        assert_same(outcome(tmp_path / "cut"), outcome(tmp_path / "whole"))
    assert foster.load_results(tmp_path / "whole")[0].network.num_classes == 3


def test_reports_take_it(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foster.reports.html.svg", lambda figure: "")  # to write what is drawn takes longer
    start(settings_of(folder, "method=replay"), tmp_path / "run")
    for name, *options in (["table"], ["report", "--out", str(tmp_path / "report.html")]):
        done = CliRunner().invoke(app, [name, str(tmp_path / "run"), *options])
        assert done.exit_code == 0, done.output
    results = foster.load_results(tmp_path / "run")
    (result,), (record,) = results, results.records()
    assert (result.counts, result.classes_seen) == ((1, 2, 3), (2, 2, 3))
    assert [record[f"accuracy_{task}"] for task in (1, 2, 3)] == result.accuracy
    assert json.loads((tmp_path / "run" / "results.json").read_text())["scenario"] == f"folder-{folder.name}-tasks"


def test_what_has_no_tasks_of_its_own_is_refused(folder: Path) -> None:
    with pytest.raises(DataError, match="tasks=given"):
        foster.run("digits", tasks="given")
    with pytest.raises(SettingsError, match="task_sizes"):
        settings_of(folder, "task_sizes=[2,1]")
    together = load_scenario(settings_of(folder, "tasks=classes", "base_classes=1", "increment=1"))
    assert sorted(len(together[k].new_images) for k in range(3)) == [8, 16, 24], "all images of a class"
    assert torch.equal(together.test_up_to(2).labels.bincount().sort().values, torch.tensor([3, 6, 9]))
