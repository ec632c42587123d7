"""The benchmarks run where there is no GPU, at a small size, and print what they promise."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the benchmarks are not part of the package")


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(FOLDER / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)


def test_the_step_is_timed_with_what_stands_around_it(tmp_path: Path) -> None:
    found = run("step.py", "--steps", "1", "--out", str(tmp_path / "step.json"))
    assert found.returncode == 0, found.stderr
    numbers = json.loads((tmp_path / "step.json").read_text())
    (timings,) = numbers["steps"].values()
    parts = [numbers[name] for name in ("augmentation_ms", "exemplars_ms", "evaluation_ms")]
    assert min(timings["boost_ms"], timings["compress_ms"], *parts) > 0
    assert "float32, as written" in found.stdout


def test_a_whole_run_is_divided_into_parts_that_add_up(tmp_path: Path) -> None:
    found = run("run.py", "backbone=resnet8", "--epochs-scale", "0.01", "--out", str(tmp_path / "run.json"))
    assert found.returncode == 0, found.stderr
    numbers = json.loads((tmp_path / "run.json").read_text())
    parts = numbers["parts_s"]
    expected = {"imports", "data and assembly", "compile and record", "augmentation", "evaluation", "checkpoints"}
    expected |= {"choosing exemplars", "steps: learn", "steps: boost", "steps: compress", "other"}
    assert set(parts) == expected
    assert min(parts.values()) > 0
    assert numbers["total_s"] == pytest.approx(sum(parts.values()))
    assert numbers["estimated_whole_s"] > numbers["total_s"]


def test_a_wrong_setting_gets_one_line() -> None:
    found = run("run.py", "bogus=1")
    assert found.returncode == 1
    assert "bogus" in found.stderr
    assert "Traceback" not in found.stderr
