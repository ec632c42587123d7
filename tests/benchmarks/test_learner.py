"""The comparison of a learner with a run: both get the same settings, and it is noticed where they did not use them."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from foster.experiment.plan import make_plan
from foster.settings.experiment import Settings, load_settings
from foster.settings.learner import learner_settings

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "learner.py"
pytestmark = pytest.mark.skipif(not SCRIPT.is_file(), reason="the benchmarks are not part of the package")


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    found = importlib.util.spec_from_file_location("learner_benchmark", SCRIPT)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def settings(benchmark: ModuleType) -> Settings:
    found = benchmark.settings_for("data", 10, 0.1, ["seed=7", "engine.capture=off"])
    assert isinstance(found, Settings)
    return found


def test_the_learner_is_given_every_setting_of_the_published_run(benchmark: ModuleType, settings: Settings) -> None:
    assert settings.scenario == "cifar100-b0-inc10"
    learner = learner_settings(benchmark.learner_overrides(settings, is_first=True), training="paper")
    assert learner.options == settings.options
    assert learner.options.beta_boost == (0.98, 0.975, 0.97, 0.965, 0.96, 0.955, 0.95, 0.945, 0.94)
    assert learner.scaled_options(40, is_pretrained=False, batch_size=128) == settings.options.scaled(0.1)
    for key in ("seed", "backbone", "memory_total", "batch_size", "selection", "engine", "device"):
        assert getattr(learner, key) == getattr(settings, key), key
    assert (learner.augmentation, learner.held_out_share, learner.seed) == ("auto", 0, 7)
    later = benchmark.learner_overrides(settings, is_first=False)
    assert not any(override.startswith(("backbone=", "method=")) for override in later)
    assert learner_settings(later, base=learner, training="paper") == learner


def test_another_cut_takes_the_settings_published_for_it(benchmark: ModuleType) -> None:
    for num_tasks, preset in ((20, "cifar100-b0-inc5"), (5, "cifar100-b0-inc20")):
        found = benchmark.settings_for("data", num_tasks, None, [])
        assert (found.scenario, len(found.sizes_of_tasks())) == (preset, num_tasks)
        assert found.options == load_settings(preset).options
    assert benchmark.settings_for("data", 4, None, []).sizes_of_tasks() == (25,) * 4


def what_was_learned(settings: Settings) -> dict[str, Any]:
    """The facts of a bundle whose learner did what the run does."""
    history = [
        {
            "epochs": {name: epochs for name, epochs, _ in task.phases},
            "batch_size": 128,
            "trained_images": 5000,
            "held_out_images": 0,
        }
        for task in make_plan(settings).tasks
    ]
    return {"settings": settings.nested(), "history": history}


@pytest.mark.slow
def test_a_learner_that_did_something_else_is_not_compared(benchmark: ModuleType, settings: Settings) -> None:
    ran = settings.nested()
    benchmark.check_same(settings, what_was_learned(settings), ran)
    for key, message in {
        "batch_size": "batch_size in task 3: 64 and 128",
        "held_out_images": "held_out_images in task 3: 64 and 0",
        "epochs": "epochs in task 3: 64 and",
    }.items():
        manifest = what_was_learned(settings)
        manifest["history"][2][key] = 64
        with pytest.raises(benchmark.CommandError, match=message):
            benchmark.check_same(settings, manifest, ran)
    manifest = what_was_learned(settings)
    manifest["settings"]["foster"]["beta_compress"] = 0.5
    with pytest.raises(benchmark.CommandError, match=r"foster\.beta_compress: 0\.5 and 0\.97"):
        benchmark.check_same(settings, manifest, ran)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)


@pytest.mark.slow
def test_a_learner_of_vanishing_photos_is_compared_with_a_run(tmp_path: Path) -> None:
    found = run("--tasks", "2", "--epochs-scale", "0.03", "--out", str(tmp_path / "numbers.json"))
    assert found.returncode == 0, found.stderr
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert len(numbers["learner"]["accuracy"]) == len(numbers["run"]["accuracy"]) == 2
    final = [numbers[side]["accuracy"][-1] for side in ("learner", "run")]
    assert numbers["difference_final"] == final[0] - final[1]
    assert f"learner {final[0]:.2f} %, run {final[1]:.2f} %" in found.stdout


def test_a_wrong_setting_gets_one_line(benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["learner.py", "bogus=1"])
    with pytest.raises(SystemExit, match=r"^[^\n]*bogus[^\n]*$"):
        benchmark.main()
