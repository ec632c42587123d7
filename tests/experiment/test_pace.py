"""The time of a plan: from runs that were timed, or from steps made now."""

import json
from pathlib import Path

import pytest
from registries import registries_kept
from torch import nn

from foster.data.images import ImageSet
from foster.experiment import pace
from foster.experiment.folder import RunFolder
from foster.experiment.pace import measured_plan, timed_plan
from foster.experiment.plan import make_plan
from foster.experiment.run import Experiment
from foster.networks import register_backbone
from foster.settings.engine import EngineSettings
from foster.settings.experiment import Settings, load_settings
from foster.system.signals import StopRequest
from foster.training.engine import Engine
from foster.training.phase import Phase

TINY = (
    "dataset=synthetic",
    "synthetic={num_classes=6, train_per_class=8, test_per_class=1, image_size=8}",
    "increment=2",
    "memory_total=12",
    "batch_size=8",
    "epochs_scale=0.005",
    "backbone=resnet8",
    "device=cpu",
)


def tiny(*overrides: str) -> Settings:
    return load_settings("digits", [*TINY, *overrides])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one finished run of replay."""
    folder = RunFolder(tmp_path_factory.mktemp("runs") / "sweep" / "replay")
    settings = tiny("method=replay")
    with folder.opened(settings):
        Experiment(settings, folder, lambda event: None, StopRequest()).run()
    return folder.path.parents[1]


def test_the_same_run_again_is_expected_to_take_as_long(runs: Path) -> None:
    took = json.loads((runs / "sweep/replay/results.json").read_text())["train_seconds"]
    time = timed_plan(tiny("method=replay", "seed=5"), runs).time
    assert time is not None
    assert time.seconds == pytest.approx(took)
    assert "sweep/replay" in time.source


def test_three_times_the_epochs_take_three_times_as_long(runs: Path) -> None:
    once, longer = timed_plan(tiny("method=replay"), runs), timed_plan(tiny("method=replay", "epochs_scale=0.05"), runs)
    assert once.time is not None
    assert longer.time is not None
    assert longer.time.seconds == pytest.approx(once.time.seconds * longer.total_steps / once.total_steps)


@pytest.mark.parametrize(
    "override", ["method=wa", "batch_size=4", "backbone=resnet14", "augmentation=none", "engine.threads=7"]
)
def test_another_kind_of_run_tells_nothing(override: str, runs: Path) -> None:
    assert timed_plan(tiny("method=replay", override), runs).time is None


@pytest.mark.parametrize("content", ["", "[]", '{"settings": {"gone": 1}, "environment": {}, "task_seconds": [1]}'])
def test_a_damaged_run_tells_nothing(content: str, tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text(content)
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone" / "results.json").symlink_to("nowhere")
    assert timed_plan(tiny(), tmp_path).time is None


def test_steps_are_timed_in_the_first_two_tasks_and_the_last_and_stretched_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timed: list[tuple[str, int]] = []

    def seconds(phase: Phase, task: int, settings: Settings, engine: Engine, image_size: int) -> float:
        timed.append((phase.name, task))
        return 1.0 + task

    monkeypatch.setattr(pace, "_seconds_a_step", seconds)
    settings = tiny("method=der", "synthetic.num_classes=8", "memory_total=16")
    plan = measured_plan(settings)
    assert timed == [("learn", 0), ("expand", 1), ("expand", 3)]
    assert plan.time is not None
    assert plan.time.seconds == pytest.approx(sum((1 + task.index) * task.num_steps for task in plan.tasks))
    assert plan.tasks == make_plan(settings).tasks


@pytest.mark.parametrize("method", ["foster", "coil", "podnet"])
def test_a_few_real_steps_give_a_time(method: str) -> None:
    plan = measured_plan(tiny(f"method={method}", "synthetic.num_classes=4"))
    assert plan.time is not None
    assert 0 < plan.time.seconds < 600
    assert json.loads(json.dumps(plan.to_dict()))["time"]["seconds"] == plan.time.seconds


def test_the_time_of_a_timed_epoch_is_shared_by_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(pace.STEPS_AN_EPOCH, "cpu", 2)
    asked: list[int] = []

    def ten_seconds(phase: Phase, data: ImageSet, *rest: object) -> float:
        asked.append(len(data))
        return 10.0

    monkeypatch.setattr(pace, "seconds_an_epoch", ten_seconds)
    settings = tiny("method=replay", "synthetic.num_classes=4")
    plan = measured_plan(settings)
    assert set(asked) == {2 * settings.batch_size}
    assert plan.time is not None
    assert plan.time.seconds == pytest.approx(5.0 * plan.total_steps)


def test_steps_with_a_module_from_outside_are_timed_as_a_run_makes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def refuse(computing: EngineSettings, *rest: object) -> None:
        asked.append((computing.compile, computing.capture, computing.kernels))
        raise LookupError

    for name in ("build_engine", "planned_engine"):
        monkeypatch.setattr(pace, name, refuse)
    with registries_kept():
        register_backbone("outside")(lambda: nn.Conv2d(3, 4, 3))
        for name in ("resnet8", "outside"):
            for ask in (measured_plan, pace._environment):
                with pytest.raises(LookupError):
                    ask(tiny(f"backbone={name}"))
    assert asked == [("auto",) * 3] * 2 + [("off",) * 3] * 2
