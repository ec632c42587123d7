"""Several processes under torchrun, on a CPU: the same run as one process makes, and what happens when one is lost."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from photo_folders import write_dataset

from foster.data.photos.strata import num_strata, strata
from foster.experiment.folder import RunFolder

OVERRIDES = (
    "photos.image_size=16",
    "base_classes=2",
    "increment=2",
    "memory_total=none",
    "memory_per_class=4",
    "backbone=resnet8",
    "batch_size=8",
    "augmentation=photo-auto",
    "device=cpu",
    "engine.threads=1",
    "engine.statistics=shared",
    "epochs_scale=0.012",
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("photos") / "data", num_classes=4, per_class=17, broken=1)


def command(data: Path, out: Path, num_processes: int, *overrides: str, verb: str = "run") -> list[str]:
    program = [sys.executable, "-m", "foster"]
    if num_processes > 1:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        program = [*torchrun, "--nproc-per-node", str(num_processes), "-m", "foster"]
    if verb == "resume":
        return [*program, "resume", str(out), "--quiet", *overrides]
    asked = ["dataset=folder", *OVERRIDES, *overrides]
    return [*program, "run", "digits", *asked, "--data", str(data), "--out", str(out), "--quiet"]


def run(
    data: Path, out: Path, num_processes: int, *overrides: str, verb: str = "run"
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    asked = command(data, out, num_processes, *overrides, verb=verb)
    return subprocess.run(asked, capture_output=True, text=True, env=environment, timeout=240)


def losses(out: Path) -> list[dict[str, float]]:
    lines = map(json.loads, (out / "events.jsonl").read_text().splitlines())
    return [line["losses"] for line in lines if line["event"] == "EpochEnded"]


def results(out: Path) -> dict[str, Any]:
    return dict(json.loads((out / "results.json").read_text()))


def exemplars(out: Path) -> dict[str, torch.Tensor]:
    checkpoint = RunFolder(out).checkpoints.load(pytest.fail)
    assert checkpoint is not None
    return checkpoint.parts["memory"]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["foster", "replay"])
def test_two_processes_make_the_run_of_one(data: Path, tmp_path: Path, method: str) -> None:
    for count in (1, 2):
        done = run(data, tmp_path / str(count), count, f"method={method}")
        assert done.returncode == 0, done.stderr[-3000:]
    alone, both = losses(tmp_path / "1"), losses(tmp_path / "2")
    assert len(alone) == len(both)
    for one, two in zip(alone, both, strict=True):
        assert two == pytest.approx(one, rel=2e-3)
    first, second = exemplars(tmp_path / "1"), exemplars(tmp_path / "2")
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert results(tmp_path / "1")["accuracy"] == results(tmp_path / "2")["accuracy"]
    assert sum(line.startswith("digits") or "results:" in line for line in done.stdout.splitlines()) == 1


@pytest.mark.slow
def test_a_lost_process_stops_all_with_its_name_and_one_goes_on(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    asked = command(data, out, 2, "checkpoint_minutes=0", "epochs_scale=0.2", "method=replay")
    started = subprocess.Popen(asked, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        events = out / "events.jsonl"
        ends = time.monotonic() + 120
        while not (events.exists() and "CheckpointWritten" in events.read_text()):
            assert time.monotonic() < ends
            assert started.poll() is None
            time.sleep(0.05)
        os.kill(rank_of(started.pid, 1), signal.SIGKILL)
        _, said = started.communicate(timeout=120)
    finally:
        started.kill()
    assert started.returncode != 0
    told = [line for line in said.splitlines() if line.startswith("foster:")]
    assert len(told) == 1
    assert re.search(r"rank 1 \(process \d+ on .+\) is gone: all 2 processes stop", told[0])
    done = run(data, out, 1, verb="resume")
    assert done.returncode == 0, done.stderr[-3000:]
    assert results(out)["finished"]


def rank_of(parent: int, rank: int) -> int:
    """The process of a rank, among the children of torchrun."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                environment = (folder / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if int(fields[1]) == parent and f"RANK={rank}".encode() in environment:
                return int(folder.name)
    raise AssertionError(f"rank {rank} is not there")


@pytest.mark.slow
def test_a_batch_that_cannot_be_shared_is_one_clear_line(data: Path, tmp_path: Path) -> None:
    done = run(data, tmp_path / "run", 2, "batch_size=9", "method=replay")
    assert done.returncode != 0
    told = [line for line in done.stderr.splitlines() if line.startswith("foster:")]
    assert told == ["foster: batch_size 9 cannot be shared by 2 processes; start as many as divide it"]


def test_strata_are_equal_and_keep_photos_at_home() -> None:
    homes = torch.randint(32, (1000,), generator=torch.Generator().manual_seed(0))
    count = num_strata(1000, 256)
    assert count == 32
    found = strata(homes, count)
    assert sorted(torch.cat(found).tolist()) == list(range(1000))
    assert {len(own) for own in found} <= {31, 32}
    at_home = sum(int((homes[own] == k).sum()) for k, own in enumerate(found))
    assert at_home > 850
    assert num_strata(40, 8) == 4
    assert num_strata(40, 9) == 1
