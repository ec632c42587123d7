"""The benchmarks run where there is no GPU, at a small size, and print what they promise."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from servers import serving

FOLDER = Path(__file__).parents[2] / "benchmarks"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the benchmarks are not part of the package")


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(FOLDER / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)


def imported(name: str) -> ModuleType:
    """A script as a module."""
    found = importlib.util.spec_from_file_location(f"benchmark_{name}", FOLDER / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = sys.modules[found.name] = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.py")))
def test_every_script_finds_what_it_imports(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    assert imported(name).main


@pytest.mark.slow
def test_the_step_is_timed_with_what_stands_around_it(tmp_path: Path) -> None:
    found = run("step.py", "--steps", "1", "--out", str(tmp_path / "step.json"))
    assert found.returncode == 0, found.stderr
    numbers = json.loads((tmp_path / "step.json").read_text())
    (timings,) = numbers["steps"].values()
    parts = [numbers[name] for name in ("augmentation_ms", "exemplars_ms", "evaluation_ms")]
    assert min(timings["boost_ms"], timings["compress_ms"], *parts) > 0
    assert "float32, as written" in found.stdout


@pytest.mark.slow
def test_results_and_checkpoints_grow_no_faster_than_the_classes_and_the_list_of_photos_is_small(
    tmp_path: Path,
) -> None:
    found = run("scale.py", "--quick", "--out", str(tmp_path / "scale.json"))
    assert found.returncode == 0, found.stderr
    numbers = json.loads((tmp_path / "scale.json").read_text())
    assert [row["photos"] for row in numbers["index"]] == [10_000, 50_000, 140_000]
    assert all(row["bytes_each"] <= 230 for row in numbers["index"])
    assert [row["classes"] for row in numbers["classes"]] == [4, 10, 100]
    for name in ("results", "checkpoint"):
        sizes = [row["disk_kib"][name] for row in numbers["classes"]]
        assert sizes == sorted(sizes, reverse=True)


@pytest.mark.slow
def test_photos_are_made_decoded_and_trained_on(tmp_path: Path) -> None:
    shape = {"classes": "6", "per-class": "4", "image-size": "8", "batch-size": "8", "backbone": "resnet8"}
    small = [part for name, value in shape.items() for part in (f"--{name}", value)] + ["--sides", "30", "60"]
    out = ["--epochs-scale", "0.012", "--folder", str(tmp_path / "photos"), "--out", str(tmp_path / "out.json")]
    found = run("imagenet.py", *small, *out, "--set", "device=cpu")
    assert found.returncode == 0, found.stderr
    numbers = json.loads((tmp_path / "out.json").read_text())
    assert numbers["make"]["photos"] == 6 * 14
    assert numbers["decode"]["photos"] == 24
    assert [entry["phase"] for entry in numbers["foster"]["phases"]] == ["learn", *["boost", "compress"] * 2]
    assert min(entry["images_a_second"] for entry in numbers["wa"]["phases"]) > 0
    assert len(numbers["foster"]["tasks"]) == 3
    for task in numbers["foster"]["tasks"]:
        assert task["share_of_steps_alone"] > 0
        assert task["seconds"] == pytest.approx(sum(task["parts_s"].values()))
        assert min(task["parts_s"][name] for name in ("epochs", "decoding", "checkpoints")) > 0
    whole, tasks = numbers["foster"]["seconds"], sum(task["seconds"] for task in numbers["foster"]["tasks"])
    assert 0.3 * whole < tasks < whole  # each second once; what is left is the assembly


@pytest.mark.slow
def test_every_head_recognises_classes_that_lie_apart(tmp_path: Path) -> None:
    labels, noise = np.repeat(np.arange(4), 12), np.random.default_rng(0).random((48, 16))
    roots = np.sqrt(np.eye(16)[3 * labels] + 0.1 * noise)
    features = (roots / np.linalg.norm(roots, axis=1, keepdims=True)).astype(np.float16)
    np.savez(tmp_path / "features.npz", features=features, labels=labels, names=np.array(["a", "b", "c", "d"]))
    sizes = ("--learns", "2", "--per-class", "6", "--test", "4", "--draws", "2", "--out", str(tmp_path / "out.json"))
    found = run("photos.py", "--features", str(tmp_path / "features.npz"), *sizes)
    assert found.returncode == 0, found.stderr
    ways = json.loads((tmp_path / "out.json").read_text())["ways"]
    assert {name: way["accuracy"] for name, way in ways.items()} == dict.fromkeys(ways, [[100.0, 100.0]] * 2)
    assert len(ways) == 6


@pytest.mark.slow
def test_students_of_one_teacher_are_compared(tmp_path: Path) -> None:
    boosted = run("students.py", "prepare", str(tmp_path / "run"), "digits", "epochs_scale=0.006", "backbone=resnet8")
    assert "ready: " in boosted.stdout, boosted.stderr
    tries = ("", "foster.temperature=4")
    found = run("students.py", "try", str(tmp_path / "run"), *tries, "--out", str(tmp_path / "tries.json"))
    assert found.returncode == 0, found.stderr
    first, second = json.loads((tmp_path / "tries.json").read_text()).values()
    assert first["boosted"] == second["boosted"], "they have the same teacher"
    assert first["compressed"] != second["compressed"]
    assert first["compressed"]["best_accuracy"] >= first["compressed"]["accuracy"]


@pytest.mark.slow
def test_clients_measure_a_real_server(small_bundle: Path, tmp_path: Path) -> None:
    benchmark = imported("serving")
    body = benchmark.request_body(64, 3)
    with serving(small_bundle, tmp_path) as server:
        load = benchmark.ask(server.port, body, 3, 4, 0.2)
    assert load.requests_a_second > 0
    assert load.images_a_second == pytest.approx(3 * load.requests_a_second)
    assert 0 < load.p50 <= load.p95


def test_the_ratio_is_that_of_neighbours_in_time() -> None:
    benchmark = imported("serving")

    def loads(*rates: float) -> list[object]:
        return [benchmark.Load(rate, rate, 1.0, 2.0) for rate in rates]

    found = benchmark.summary({"batched": loads(30.0, 20.0, 10.0), "alone": loads(10.0, 10.0, 10.0)})
    assert found["batched_over_alone"] == 2.0
    assert found["batched"]["requests_a_second"] == 20.0
    # A machine that became slow in the middle slows both of a pair.
    assert benchmark.summary({"batched": loads(30.0, 3.0), "alone": loads(10.0, 1.0)})["batched_over_alone"] == 3.0
