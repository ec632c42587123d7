"""Every method at once: what was planned, complete results, only images that it may see, a memory within its budget."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_runs import assert_is_planned
from torch import Tensor, nn

from foster.data.images import ImageSet, Stack, concatenate
from foster.data.scenario import Scenario
from foster.data.task import Task
from foster.events import Event
from foster.experiment.folder import RunFolder
from foster.experiment.plan import make_plan
from foster.experiment.run import Experiment
from foster.methods.replay import Replay
from foster.networks.network import Output
from foster.settings.base import make
from foster.settings.experiment import Settings
from foster.settings.fit import FitSettings
from foster.settings.methods import METHOD_SETTINGS
from foster.system.signals import StopRequest
from foster.training.phase import Evaluate, Phase

TINY = {
    "dataset": "synthetic",
    "synthetic": {"num_classes": 6, "train_per_class": 12, "test_per_class": 5, "image_size": 8},
    "base_classes": 3,
    "increment": 2,
    "memory_total": 20,
    "backbone": "resnet8",
    "batch_size": 16,
    "augmentation": "shift",
    "epochs_scale": 0.004,
    "device": "cpu",
}
"""Tasks of 3, 2 and 1 classes; phases of one epoch."""
TASK_SIZES = (3, 2, 1)

RUNS: dict[str, dict[str, Any]] = {name: {"method": name} for name in METHOD_SETTINGS}
RUNS["ridge"]["ridge"] = {"num_features": 64}
RUNS["foster without compression"] = {"method": "foster", "foster": {"compression": False}}
GROWING = ("der", "foster without compression")
BACKBONE_PARAMETERS = 464 + 4672 + 13952 + 55552
"""Of resnet8."""


@dataclass
class Sight:
    """Images that a method trained on or looked at in one task, and what its memory held when the task began."""

    task: Task
    purpose: str
    images: Tensor
    labels: Tensor | None
    memory: set[bytes]


@dataclass
class Watched:
    """A finished run, and all that its method did to images on the way."""

    experiment: Experiment
    folder: Path
    results: dict[str, Any]
    told: list[Event]
    sights: list[Sight] = field(default_factory=list)
    memory_counts: list[Tensor] = field(default_factory=list)


def watch(experiment: Experiment, folder: Path, told: list[Event]) -> Watched:
    """Run an experiment while noting every image that its method trains on or sends through a network."""
    method, watched = experiment.method, Watched(experiment, folder, {}, told)
    task_now: list[tuple[Task, set[bytes]]] = []
    told_phases, infer = method.phases, method.context.infer

    def note(purpose: str, images: Tensor, labels: Tensor | None = None) -> None:
        task, memory = task_now[-1]
        watched.sights.append(Sight(task, purpose, images.clone(), labels, memory))

    def phases(task: Task) -> Iterator[Phase | Evaluate]:
        task_now.append((task, set(marks(method.memory.state()["images"]))))
        for part in told_phases(task):
            if isinstance(part, Phase):
                note(f"phase {part.name}", part.data.images, part.data.labels)
            yield part
        watched.memory_counts.append(method.memory.counts)

    def noted_infer(network: nn.Module, images: Stack) -> Output:
        note("inference", images.tensor)
        return infer(network, images)

    method.phases = phases  # type: ignore[method-assign]
    method.context = replace(method.context, infer=noted_infer)
    watched.results = experiment.run()
    return watched


def marks(images: Tensor) -> list[bytes]:
    """What tells an image from all others: its own noise."""
    return [image.numpy().tobytes() for image in images.cpu()]


def origins(scenario: Scenario) -> dict[bytes, tuple[str, int]]:
    """For every image of a scenario, the split and the class that it belongs to."""
    test = scenario.test_up_to(len(scenario) - 1)
    train = reduce(concatenate, (task.new_images for task in scenario))
    found = {}
    for split, images in (("train", train), ("test", test)):
        found |= {
            mark: (split, label) for mark, label in zip(marks(images.images), images.labels.tolist(), strict=True)
        }
    assert len(found) == len(train) + len(test), "two images are the same: they carry no mark"
    return found


def assert_nothing_leaked(watched: Watched) -> None:
    """Training images of the task's new classes and what was in the memory when the task began: nothing else."""
    origin = origins(watched.experiment.scenario)
    assert {sight.task.index for sight in watched.sights} == {0, 1, 2}
    for sight in watched.sights:
        task = sight.task
        for position, mark in enumerate(marks(sight.images)):
            split, class_id = origin[mark]
            where = f"{sight.purpose} of task {task.index}: a {split} image of class {class_id}"
            assert split == "train", where
            assert class_id < task.num_total, f"{where}, which comes later"
            assert class_id >= task.num_known or mark in sight.memory, f"{where}, which was not in the memory"
            if sight.labels is not None:
                assert sight.labels[position] == class_id, where


def tiny_experiment(run: str, folder: RunFolder, told: list[Event]) -> Experiment:
    settings = make(Settings, {**TINY, **RUNS[run]}, "this test")
    assert settings.sizes_of_tasks() == TASK_SIZES
    return Experiment(settings, folder, told.append, StopRequest())


@pytest.fixture(scope="module", params=list(RUNS))
def watched(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Watched:
    path, told = tmp_path_factory.mktemp("run") / "run", []
    with RunFolder(path).opened(make(Settings, {**TINY, **RUNS[request.param]}, "this test")) as folder:
        return watch(tiny_experiment(request.param, folder, told), path, told)


@pytest.fixture
def settings(watched: Watched) -> Settings:
    return watched.experiment.settings


def test_the_results_are_complete(watched: Watched, settings: Settings) -> None:
    results = json.loads((watched.folder / "results.json").read_text(encoding="utf-8"))
    assert results == json.loads(json.dumps(watched.results))
    assert (results["finished"], results["method"]) == (True, settings.method)
    assert [len(names) for names in results["tasks"]] == list(TASK_SIZES)
    result = watched.experiment.method.result_name
    assert results["result"] == result
    kinds = {"head", "nearest_mean"} if watched.experiment.method.memory.num_images else {"head"}
    assert kinds <= {"head" if name in ("compressed", "boosted") else name for name in (result, *results["variants"])}
    whole = [one for one in results["variants"].values() if one["average_incremental_accuracy"] is not None]
    for found in (results, *whole):  # others were evaluated after some tasks alone
        assert [len(row) for row in found["accuracy_matrix"]] == [1, 2, 3]
        for metric in ("accuracy", "top5", "new_accuracy"):
            assert len(found[metric]) == 3
            assert all(0 <= value <= 100 for value in found[metric])
        assert found["final_accuracy"] == found["accuracy"][-1]
        assert found["average_incremental_accuracy"] == pytest.approx(sum(found["accuracy"]) / 3)
    assert len(results["params_by_task"]) == len(results["task_seconds"]) == 3


def test_what_was_planned_is_done(watched: Watched, settings: Settings) -> None:
    assert_is_planned(make_plan(settings), watched.results, watched.told)


def test_only_new_images_and_exemplars_are_ever_used(watched: Watched) -> None:
    assert_nothing_leaked(watched)


def test_the_memory_stays_within_its_budget(watched: Watched, settings: Settings) -> None:
    counts = [found.tolist() for found in watched.memory_counts]
    if settings.method == "joint":
        assert counts == [[12] * 3, [12] * 5, [12] * 6]
    elif settings.options.uses_memory:
        assert counts == [[6] * 3, [4] * 5, [3] * 6]
    else:
        assert counts == [[], [], []]
    image_bytes = sum(counts[-1]) * 3 * 8 * 8
    assert watched.results["memory_bytes"] == image_bytes + watched.experiment.method.network.statistics_bytes


def test_parameters_grow_by_a_backbone_a_task_only_where_the_method_says_so(
    watched: Watched, request: pytest.FixtureRequest
) -> None:
    params = watched.results["params_by_task"]
    grows = request.node.callspec.params["watched"] in GROWING
    num_backbones = [count // BACKBONE_PARAMETERS for count in params]
    assert num_backbones == ([1, 2, 3] if grows else [1, 1, 1])
    assert params[0] < params[1] < params[2], "every new class has a row in the head"


def test_a_method_between_tasks_is_its_network_and_its_memory(watched: Watched) -> None:
    method, images = watched.experiment.method, watched.experiment.scenario.test_up_to(2).images
    frame = method.new_network(TASK_SIZES)
    frame.load_state_dict(method.network.state_dict())
    found, expected = (watched.experiment.engine.infer(network, images) for network in (frame, method.network))
    torch.testing.assert_close(found.logits, expected.logits)
    torch.testing.assert_close(found.features, expected.features)
    assert frame.num_parameters() == method.network.num_parameters()


HOARD: list[ImageSet] = []
"""Outside of a method, where a run does not look for what it keeps."""


class Hoarder(Replay):
    """Replays old images that it keeps outside its memory."""

    def learn(self, task: Task) -> Phase:
        phase = super().learn(task)
        return replace(phase, data=concatenate(phase.data, HOARD[-1]))

    def remember(self, task: Task, network: nn.Module | None = None) -> None:
        super().remember(task, network)
        HOARD.append(task.new_images)


class Peeper(Replay):
    """Looks through images of the first task once more in every later one, without training on them."""

    def learn(self, task: Task) -> Phase:
        self.context.infer(self.network, HOARD[0].stack)
        return super().learn(task)

    def remember(self, task: Task, network: nn.Module | None = None) -> None:
        super().remember(task, network)
        if task.is_first:
            HOARD.append(task.new_images)


@pytest.mark.parametrize("leak", ["Hoarder", "Peeper"])
def test_a_method_that_uses_old_images_outside_its_memory_is_caught(
    leak: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    HOARD.clear()
    monkeypatch.setattr(METHOD_SETTINGS["replay"], "built_by", globals()[leak])
    told: list[Event] = []
    with RunFolder(tmp_path / "run").opened(make(Settings, {**TINY, "method": "replay"}, "this test")) as folder:
        watched = watch(tiny_experiment("replay", folder, told), tmp_path / "run", told)
    with pytest.raises(AssertionError, match="was not in the memory"):
        assert_nothing_leaked(watched)


DIGITS = {
    "dataset": "digits",
    "base_classes": 4,
    "increment": 3,
    "memory_total": 200,
    "backbone": "resnet8",
    "batch_size": 32,
    "augmentation": "shift",
    "device": "cpu",
}
"""Tasks of 4, 3 and 3 digits."""


def briefly(name: str) -> dict[str, Any]:
    """Settings with which every method trains alike: four epochs on the first task, three in every later phase."""
    schedules = [key for key, value in METHOD_SETTINGS[name]() if isinstance(value, FitSettings)]
    brief = {"learning_rate": 0.05, "weight_decay": 5e-4, "schedule": "cosine"}
    smaller = {"num_features": 256} if name == "ridge" else {}
    return {name: smaller | {key: {"epochs": 4 if key == "first" else 3, **brief} for key in schedules}}


@pytest.fixture(scope="module")
def on_digits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The results of every method."""
    results = {}
    for name in METHOD_SETTINGS:
        chosen = make(Settings, {**DIGITS, "method": name, **briefly(name)}, "this test")
        with RunFolder(tmp_path_factory.mktemp("digits") / name).opened(chosen) as folder:
            results[name] = Experiment(chosen, folder, lambda event: None, StopRequest()).run()
    return results


@pytest.mark.slow
def test_on_digits_all_that_keep_images_remember_what_finetuning_forgets(on_digits: dict[str, dict[str, Any]]) -> None:
    final = {name: results["final_accuracy"] for name, results in on_digits.items()}
    forgetting = {name: results["forgetting"] for name, results in on_digits.items()}
    with_images = [name for name in final if name not in ("finetune", "lwf")]
    # Three of ten digits and a little are all that fine-tuning knows at the end; distillation alone saves some more.
    assert final["finetune"] < 60, final
    assert final["lwf"] > final["finetune"], final
    for name in with_images:
        assert final[name] > final["finetune"] + 30, final
        assert final[name] > final["lwf"] + 10, final
        assert forgetting[name] < forgetting["finetune"] / 2, forgetting
    assert final["joint"] > max(final.values()) - 4, final
