"""Several processes under torchrun, on a CPU: the same run as one process makes, and what happens when one is lost."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import torch
from forked import started
from photo_folders import write_dataset
from torch import nn

from foster.experiment.folder import RunFolder
from foster.networks.modules import freeze
from foster.system.processes import ProcessGroup
from foster.training import distributed
from foster.training.distributed import (
    agree_on_statistics,
    shared_statistics,
)

OVERRIDES = (
    "photos.image_size=16",
    "base_classes=2",
    "increment=2",
    "memory_total=none",
    "memory_per_class=10",  # so many that processes share them
    "backbone=unnormalised",
    "batch_size=8",
    "augmentation=photo-auto",
    "device=cpu",
    "engine.threads=1",
    "epochs_scale=0.012",
)
PLUGIN = """
import foster
from torch import nn


@foster.register_backbone("unnormalised")
def unnormalised() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten())
"""
"""A backbone without BatchNorm, so that how many processes share a batch makes no difference but for rounding."""

SMALL_RATES = [f"foster.{phase}.learning_rate=0.01" for phase in ("first", "boost", "compress")]
"""With the usual ones, what rounding differs in grows from step to step."""


def group_of(
    given: Sequence[str], folder: Path, held_at: Mapping[int, tuple[Path, str]] | None = None
) -> list[BaseProcess]:
    """`foster` with these words in two processes; what rank K says goes to `folder/said-K`. `held_at`: by rank."""
    folder.mkdir(parents=True, exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    members = []
    for rank in range(2):
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        environment = {name: str(value) for name, value in place.items()}
        members.append(started(given, folder / f"said-{rank}", (held_at or {}).get(rank), environment))
    return members


def ended(members: Sequence[BaseProcess]) -> list[int | None]:
    """Their exit codes; who does not end in time is killed."""
    for member in members:
        member.join(timeout=120)
        if member.is_alive():
            member.kill()
    return [member.exitcode for member in members]


def said_by(folder: Path, rank: int) -> list[str]:
    """The lines with which a process ended."""
    return [line for line in (folder / f"said-{rank}").read_text().splitlines() if line.startswith("foster:")]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("photos") / "data", num_classes=4, per_class=17, broken=1)


def words(data: Path, out: Path, *overrides: str) -> list[str]:
    plugin = data.with_name("unnormalised.py")
    plugin.write_text(PLUGIN)
    asked = ["dataset=folder", *OVERRIDES, *overrides, "--plugin", str(plugin)]
    return ["run", "digits", *asked, "--data", str(data), "--out", str(out), "--quiet"]


def losses(out: Path) -> list[dict[str, float]]:
    lines = map(json.loads, (out / "events.jsonl").read_text().splitlines())
    return [line["losses"] for line in lines if line["event"] == "EpochEnded"]


def results(out: Path) -> dict[str, Any]:
    return dict(json.loads((out / "results.json").read_text()))


def exemplars(out: Path) -> dict[str, torch.Tensor]:
    checkpoint = RunFolder(out).checkpoints.load(pytest.fail)
    assert checkpoint is not None
    return checkpoint.parts["memory"]


def check_same_run(one: Path, two: Path) -> None:
    """Of one process and of two: losses but for rounding, exemplars and accuracies."""
    alone, shared = losses(one), losses(two)
    assert len(alone) == len(shared) > 0
    for before, after in zip(alone, shared, strict=True):
        assert after == pytest.approx(before, rel=1e-4)
    first, second = exemplars(one), exemplars(two)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert results(one)["accuracy"] == results(two)["accuracy"]


def test_two_processes_make_the_run_of_one(data: Path, tmp_path: Path) -> None:
    asked = (*SMALL_RATES, "epochs_scale=0.006")
    both = group_of(words(data, tmp_path / "2", *asked), tmp_path)
    assert ended([*both, started(words(data, tmp_path / "1", *asked), tmp_path / "said")]) == [0, 0, 0]
    check_same_run(tmp_path / "1", tmp_path / "2")


@pytest.mark.slow
def test_the_processes_of_torchrun_share_one_run(data: Path, tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "foster"]
    both = subprocess.run(
        [*torchrun, *words(data, tmp_path / "run", "method=replay", "epochs_scale=0.006")],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert both.returncode == 0, both.stderr[-3000:]
    assert both.stdout.count("results:") == 1
    assert results(tmp_path / "run")["environment"]["processes"] == 2


def test_a_lost_process_stops_all_and_one_goes_on_alone(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    given = words(data, out, "checkpoint_minutes=0", "method=replay")
    # The second process waits in the middle of the first task, and the first one for it.
    first, second = members = group_of(given, tmp_path, held_at={1: (out / "events.jsonl", "CheckpointWritten")})
    while second.is_alive() and not (out / "events.jsonl").exists():
        time.sleep(0.02)
    while first.is_alive() and "CheckpointWritten" not in (out / "events.jsonl").read_text():
        time.sleep(0.02)
    second.kill()
    left, killed = ended(members)
    assert (bool(left), killed) == (True, -signal.SIGKILL)
    assert ended([started(["resume", str(out), "--quiet", "--trust-plugins"], tmp_path / "said")]) == [0]
    assert results(out)["finished"]


@pytest.mark.slow
def test_two_processes_that_were_stopped_go_on_bit_for_bit(data: Path, tmp_path: Path) -> None:
    """Each has statistics of its own images, and nothing is saved before the stop."""
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    asked = ("method=replay", "backbone=resnet8", "epochs_scale=0.05")
    assert ended(group_of(words(data, whole, *asked), tmp_path)) == [0, 0]
    first, second = group_of(words(data, parted, *asked), tmp_path)
    while first.is_alive() and not (parted / "events.jsonl").exists():
        time.sleep(0.02)
    while first.is_alive() and "EpochEnded" not in (parted / "events.jsonl").read_text():
        time.sleep(0.02)
    assert first.pid is not None
    os.kill(first.pid, signal.SIGTERM)
    assert 0 not in ended([first, second])
    assert ended(group_of(["resume", str(parted), "--quiet", "--trust-plugins"], tmp_path)) == [0, 0]
    saved = [RunFolder(path).checkpoints.load(pytest.fail) for path in (whole, parted)]
    for part in ("network", "memory"):
        one, other = (checkpoint.parts[part] for checkpoint in saved if checkpoint is not None)
        assert all(torch.equal(one[name], other[name]) for name in one), part


def test_shared_statistics_of_processes_on_a_cpu_are_refused_in_one_line(data: Path, tmp_path: Path) -> None:
    assert 0 not in ended(group_of(words(data, tmp_path / "run", "engine.statistics=shared"), tmp_path))
    (line,) = said_by(tmp_path, 0)
    assert "engine.statistics=process" in line


def test_what_went_wrong_in_the_second_process_alone_is_told(tmp_path: Path) -> None:
    data = write_dataset(tmp_path / "data", num_classes=4, per_class=28, broken=0)
    for folder in (data / "train").iterdir():
        max(folder.iterdir()).write_text("no photo")  # the second process has the last ones
    given = words(data, tmp_path / "run", "photos.max_unreadable=0")
    assert 0 not in ended(group_of(given, tmp_path))
    (line,) = said_by(tmp_path, 1)
    assert line.startswith("foster: process 1: stopped at ")


def test_norms_of_any_kind_agree_on_the_statistics_that_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    summed: list[torch.Tensor] = []
    monkeypatch.setattr(distributed, "process_group", lambda: ProcessGroup(0, 2))
    monkeypatch.setattr(distributed, "add_up", summed.append)
    kinds = [nn.BatchNorm2d(2), nn.BatchNorm1d(3), nn.BatchNorm2d(4, affine=False), freeze(nn.BatchNorm2d(5))]
    network = nn.Sequential(*kinds, nn.BatchNorm2d(6, track_running_stats=False))
    agree_on_statistics(network)
    assert [len(values) for values in summed] == [2, 2, 3, 3, 4, 4]
    with shared_statistics([network], is_wanted=True):
        assert [type(part) is nn.SyncBatchNorm for part in network] == [True, False, False, False, False]
    assert type(network[0]) is nn.BatchNorm2d
