"""A whole run in its folder: its results are consistent, repeatable, and of the network they claim to be of. It is
refused before anything is written, or ended with its reason."""

import json
import math
import signal
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import torch
from tiny_runs import records_of, tiny_settings
from torch.nn.functional import normalize

from foster.cli import experiments
from foster.data.download import Follower
from foster.data.task import Task
from foster.errors import DataError, TrainingError
from foster.experiment.artifacts import read_predictions
from foster.experiment.engine import build_engine
from foster.experiment.folder import RunFolder
from foster.experiment.parts import build_method, load_scenario
from foster.experiment.plan import make_plan
from foster.experiment.run import Experiment, begin
from foster.methods.finetune import Finetune
from foster.networks import build_backbone
from foster.settings.experiment import Settings, load_settings
from foster.settings.methods import METHOD_SETTINGS, ReplaySettings
from foster.system.signals import Stopped, StopRequest
from foster.training.phase import Evaluate, Phase

NUM_TEST = (8, 8, 4)
NUM_DIGITS = 1442
"""Training images of the dataset `digits`."""
IMAGE_BYTES = 3 * 8 * 8

SHAPE = "synthetic={num_classes=5, train_per_class=10, test_per_class=4, image_size=8}"
"""Tasks of 2, 2 and 1 classes: an uneven last task, and fewer than five classes at first."""


def tiny(*overrides: str) -> Settings:
    return tiny_settings("foster", SHAPE, "memory_total=12", "memory_per_class=none", *overrides)


def run(settings: Settings, path: Path) -> dict[str, Any]:
    experiments.train(begin, settings, path, quiet=True)
    results: dict[str, Any] = json.loads((path / "results.json").read_text(encoding="utf-8"))
    return results


class Finished:
    """A run's folder and what its results file holds."""

    def __init__(self, path: Path, *overrides: str) -> None:
        self.path = path
        self.settings = tiny(*overrides)
        self.results = run(self.settings, path)


@pytest.fixture(scope="module")
def foster_run(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return Finished(tmp_path_factory.mktemp("foster") / "run")


def variants(results: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield results
    yield from results["variants"].values()


def test_the_results_say_of_what_run_they_are_and_where_it_was_made(foster_run: Finished) -> None:
    results = foster_run.results
    assert (results["method"], results["scenario"], results["seed"]) == ("foster", "synthetic-b0-inc2", 1993)
    assert results["variants"].keys() == {"boosted", "nearest_mean", "boosted_nearest_mean"}
    assert (results["result"], results["finished"], results["evaluated_on"]) == ("compressed", True, "test")
    assert results["environment"].keys() >= {"foster", "commit", "changed", "python", "torch", "device", "precision"}
    assert results["settings"] == foster_run.settings.published()
    assert "data" not in results["settings"], "a path says nothing about a result"


def test_all_numbers_of_a_variant_come_from_its_accuracy_matrix(foster_run: Finished) -> None:
    for found in variants(foster_run.results):
        matrix = found["accuracy_matrix"]
        assert [len(row) for row in matrix] == [1, 2, 3]
        for task, row in enumerate(matrix):
            correct = [accuracy * count / 100 for accuracy, count in zip(row, NUM_TEST, strict=False)]
            assert all(number == pytest.approx(round(number)) for number in correct), "a whole number of images"
            assert found["accuracy"][task] == pytest.approx(100 * sum(correct) / sum(NUM_TEST[: task + 1]))
            assert found["new_accuracy"][task] == row[-1]
            if task == 0:
                assert found["old_accuracy"][task] is None
            else:
                assert found["old_accuracy"][task] == pytest.approx(100 * sum(correct[:-1]) / sum(NUM_TEST[:task]))
            assert found["accuracy"][task] <= found["top5"][task] <= 100
        assert found["top5"] == [100, 100, 100], "five classes or fewer"
        assert found["average_incremental_accuracy"] == pytest.approx(sum(found["accuracy"]) / 3)
        assert found["final_accuracy"] == found["accuracy"][-1]
        best = [max(matrix[0][0], matrix[1][0]), matrix[1][1]]
        assert found["forgetting"] == pytest.approx(sum(b - now for b, now in zip(best, matrix[2], strict=False)) / 2)


def test_the_sizes_are_those_of_the_network_and_the_memory(foster_run: Finished) -> None:
    results = foster_run.results
    backbone = sum(parameter.numel() for parameter in build_backbone("resnet8").parameters())
    assert results["params_by_task"] == [backbone + 65 * num_classes for num_classes in (2, 4, 5)]
    assert results["params"] == results["params_by_task"][-1]
    assert results["memory_bytes"] == 2 * 5 * IMAGE_BYTES
    assert results["train_seconds"] == pytest.approx(sum(results["task_seconds"]))
    assert all(seconds > 0 for seconds in results["task_seconds"])
    assert [len(names) for names in results["tasks"]] == [2, 2, 1]
    assert results["classes"] == [name for names in results["tasks"] for name in names]
    assert sorted(results["classes"]) == [f"class 0{k}" for k in range(5)]


@pytest.mark.parametrize("overrides", [(), ("validation_share=0.25",)])
def test_images_are_normalised_by_the_statistics_of_the_dataset(overrides: tuple[str, ...], tmp_path: Path) -> None:
    experiment = Experiment(tiny(*overrides), RunFolder(tmp_path / "run"), lambda event: None, StopRequest())
    black_and_white = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1).expand(2, 3, 8, 8)
    assert experiment.engine.prepare(black_and_white)[:, 0, 0, 0].tolist() == pytest.approx([-0.5 / 0.25, 0.5 / 0.25])


def test_the_top_numbers_are_of_the_compressed_network(foster_run: Finished) -> None:
    """Worked out once more from the saved weights and exemplars, by the head and by the nearest mean."""
    settings = foster_run.settings
    scenario = load_scenario(settings)
    engine = build_engine(settings.engine, "cpu", scenario.mean, scenario.std)
    method = build_method(settings, scenario, engine, Follower())
    checkpoint = RunFolder(foster_run.path).checkpoints.load(lambda message: None)
    assert checkpoint is not None
    network = method.new_network(scenario.task_sizes)
    network.load_state_dict(checkpoint.parts["network"])
    network.eval()
    assert len(network.branches) == 1
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (scenario.mean, scenario.std))
    test, memory = scenario.test_up_to(2), checkpoint.parts["memory"]
    with torch.no_grad():
        out = network((test.images / 255 - mean) / std)
        exemplars = normalize(network.features((memory["images"] / 255 - mean) / std))
    assert memory["counts"].tolist() == [2] * 5
    means = normalize(exemplars.view(5, 2, -1).mean(1))
    nearest = (normalize(out.features)[:, None] - means).norm(dim=2).argmin(1)
    for predicted, found in (
        (out.logits.argmax(1), foster_run.results),
        (nearest, foster_run.results["variants"]["nearest_mean"]),
    ):
        is_correct = (predicted == test.labels).double()
        assert 100 * is_correct.mean().item() == pytest.approx(found["final_accuracy"])
        row = [100 * is_correct[test.labels // 2 == task].mean().item() for task in range(3)]
        assert found["accuracy_matrix"][-1] == pytest.approx(row)


def test_the_events_tell_the_run_in_order(foster_run: Finished) -> None:
    events = records_of(foster_run.path / "events.jsonl")
    kinds = [event["event"] for event in events]
    assert (kinds[0], kinds[-1]) == ("RunStarted", "RunEnded")
    phases = [(event["task"], event["phase"]) for event in events if event["event"] == "PhaseStarted"]
    assert phases == [(0, "learn"), *((task, phase) for task in (1, 2) for phase in ("boost", "compress"))]
    epochs = [event for event in events if event["event"] == "EpochEnded"]
    assert [event["epoch"] for event in epochs] == [0, 1] * len(phases)
    terms = {(event["task"], event["phase"]): set(event["losses"]) for event in epochs}
    assert terms[(0, "learn")] == {"L_CE", "total"}
    assert terms[(1, "boost")] == {"L_LA", "L_FE", "L_KD", "total"}
    assert terms[(2, "compress")] == {"L_BKD", "total"}
    told = [event["accuracy"] for event in events if event["event"] == "Evaluated" and event["variant"] == "compressed"]
    assert told == foster_run.results["accuracy"]
    assert events[-1]["final_accuracy"] == foster_run.results["final_accuracy"]


def test_images_that_stay_off_the_device_give_the_same_numbers(foster_run: Finished, tmp_path: Path) -> None:
    streamed = Finished(tmp_path / "streamed", "engine.resident=off")
    assert streamed.results["accuracy_matrix"] == foster_run.results["accuracy_matrix"]
    losses = [
        [event["losses"] for event in records_of(path / "events.jsonl") if event["event"] == "EpochEnded"]
        for path in (streamed.path, foster_run.path)
    ]
    assert losses[0]
    assert losses[0] == losses[1]


def test_classes_arrive_in_the_given_order_and_in_tasks_of_the_given_sizes() -> None:
    order = [f"class 0{k}" for k in (3, 1, 4, 0, 2)]
    settings = tiny(f"class_order={order}", "task_sizes=[1,3,1]")
    scenario = load_scenario(settings)
    assert (scenario.class_names, scenario.task_sizes) == (tuple(order), (1, 3, 1))
    assert settings.scenario == "synthetic-1-3-1"
    assert [task.num_new for task in make_plan(settings).tasks] == [1, 3, 1]


def test_another_seed_is_another_order_unless_the_order_has_its_own() -> None:
    def order(*overrides: str) -> list[str]:
        return list(load_scenario(tiny(*overrides)).class_names)

    assert order("seed=1") != order("seed=2")
    assert order("seed=1", "order_seed=7") == order("seed=2", "order_seed=7") == order("seed=7")


def test_another_seed_holds_out_other_images_of_the_same_classes() -> None:
    def held_out(seed: int) -> torch.Tensor:
        digits = load_settings("digits", ["validation_share=0.3", "order_seed=7", f"seed={seed}"])
        return load_scenario(digits).test_up_to(2).images

    assert torch.equal(held_out(1), held_out(1))
    assert not torch.equal(held_out(1), held_out(2))


def test_a_validation_share_never_touches_the_test_images(tmp_path: Path) -> None:
    """The same numbers with other test images, and other numbers of images than the test set has."""
    few = tiny("method=replay", "validation_share=0.3")
    shape = "synthetic={num_classes=5, train_per_class=10, test_per_class=9, image_size=8}"
    many = tiny("method=replay", "validation_share=0.3", shape)
    first, second = run(few, tmp_path / "few"), run(many, tmp_path / "many")
    assert first["evaluated_on"] == second["evaluated_on"] == "validation"
    assert first["accuracy_matrix"] == second["accuracy_matrix"]
    test = load_scenario(few).test_up_to(2)
    train = torch.cat([load_scenario(few)[task].new_images.images for task in range(3)])
    assert len(test) == 15
    assert len(train) == 35
    everything = torch.cat([load_scenario(tiny())[task].new_images.images for task in range(3)])
    as_rows = {bytes(image.flatten().tolist()) for image in everything}
    held_out, used = ({bytes(image.flatten().tolist()) for image in part} for part in (test.images, train))
    assert held_out | used == as_rows
    assert not held_out & used


def test_a_method_without_memory_has_no_exemplars_to_classify_by(tmp_path: Path) -> None:
    results = run(tiny("method=finetune"), tmp_path / "run")
    assert results["variants"] == {}
    assert results["memory_bytes"] == 0
    assert results["result"] == "head"


def test_a_run_refuses_a_method_that_keeps_state_in_self(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    phases = Finetune.phases

    def keeping(self: Finetune, task: Task) -> Iterator[Phase | Evaluate]:
        yield from phases(self, task)
        vars(self)["last_task"] = task.index

    monkeypatch.setattr(Finetune, "phases", keeping)
    with pytest.raises(TrainingError, match=r"self\.last_task"):
        run(tiny("method=finetune"), tmp_path / "run")


def test_a_scenario_of_one_task_is_plain_training(tmp_path: Path) -> None:
    results = run(tiny("base_classes=5"), tmp_path / "run")
    assert [len(row) for row in results["accuracy_matrix"]] == [1]
    assert (results["forgetting"], results["old_accuracy"]) == (0, [None])
    assert results["accuracy"] == results["variants"]["boosted"]["accuracy"]


def test_unlabeled_images_can_come_from_another_dataset(tmp_path: Path) -> None:
    settings = tiny("foster.unlabeled=digits", "base_classes=3", "foster.compress.epochs=1", "batch_size=256")
    run(settings, tmp_path / "run")
    events = records_of(tmp_path / "run" / "events.jsonl")
    steps = {(event["task"], event["phase"]): event["steps"] for event in events if event["event"] == "PhaseStarted"}
    assert steps[(1, "boost")] == 1
    assert steps[(1, "compress")] == math.ceil((32 + NUM_DIGITS) / 256)
    assert make_plan(settings).tasks[1].phases[1] == ("compress", 1, steps[(1, "compress")])


def test_a_network_without_exemplars_of_the_new_classes_has_no_nearest_mean(tmp_path: Path) -> None:
    later = run(tiny("foster.herding_features=compressed"), tmp_path / "run")
    assert set(later["variants"]) == {"boosted", "nearest_mean", "boosted_nearest_mean"}
    assert len(later["variants"]["boosted"]["accuracy"]) == 3
    assert later["variants"]["boosted_nearest_mean"]["accuracy"][1:] == [None, None], "of the first task alone"
    assert read_predictions(tmp_path / "run").task == 2, "whatever the tasks before evaluated"


class Averaging(ReplaySettings):
    classifies_by = "nearest_mean"


def test_what_a_methods_settings_say_alone_decides_which_result_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHOD_SETTINGS, "averaging", Averaging)
    averaging, replay = run(tiny("method=averaging"), tmp_path / "a"), run(tiny("method=replay"), tmp_path / "b")
    assert (averaging["result"], replay["result"]) == ("nearest_mean", "head")
    assert averaging["accuracy_matrix"] == replay["variants"]["nearest_mean"]["accuracy_matrix"]
    assert averaging["variants"]["head"]["accuracy_matrix"] == replay["accuracy_matrix"]


def test_the_written_settings_are_complete_and_name_what_was_chosen_for_published(tmp_path: Path) -> None:
    settings = tiny("method=replay", "augmentation=published")
    with RunFolder(tmp_path / "run").opened(settings):
        pass
    written = tomllib.loads((tmp_path / "run" / "settings.toml").read_text(encoding="utf-8"))
    assert written["augmentation"] == "plain"
    assert written["replay"]["later"]["milestones"] == [30, 50]
    assert "foster" not in written, "settings of other methods decide nothing"


def test_missing_data_files_get_one_line_and_leave_no_folder_of_a_run(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def offline(*arguments: object, **keywords: object) -> None:
        raise requests.ConnectionError("there is no network")

    monkeypatch.setattr(requests.Session, "request", offline)
    data = tmp_path_factory.mktemp("nowhere")
    with pytest.raises(DataError, match=str(data)) as caught:
        run(load_settings("cifar100-b0-inc10", data=str(data)), tmp_path / "runs" / "refused")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_who_is_asked_to_stop_before_it_begins_leaves_no_folder(tmp_path: Path) -> None:
    stop = StopRequest()
    stop.set(signal.SIGTERM)
    with pytest.raises(Stopped):
        begin(tiny(), RunFolder(tmp_path / "run"), lambda event: None, stop)
    assert list(tmp_path.iterdir()) == []
