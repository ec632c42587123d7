"""Where the runs of a sweep find room."""

import os
from pathlib import Path

import pytest

import foster
from foster.errors import DeviceError
from foster.sweep import slots as sweep_slots
from foster.sweep.grid import plan_runs
from foster.sweep.slots import Slot, environment_for, find_slots, visible_gpus


def test_runs_are_dealt_to_the_gpus_in_turn(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sweep_slots, "visible_gpus", lambda: ["0", "3"])
    automatic = plan_runs("digits", ["seed=1,2"])
    assert [slot.gpu for slot in find_slots(automatic, jobs_per_gpu=2, jobs=5)] == ["0", "3", "0", "3"]
    assert find_slots(plan_runs("digits", ["device=cpu"]), jobs_per_gpu=2, jobs=3) == [Slot()] * 3
    mixed = plan_runs("digits", ["device=cpu,cuda"])
    assert find_slots(mixed, jobs_per_gpu=1, jobs=1) == [Slot("0"), Slot("3"), Slot()]
    monkeypatch.setattr(sweep_slots, "visible_gpus", list)
    assert find_slots(automatic, jobs_per_gpu=2, jobs=1) == [Slot()]
    with pytest.raises(DeviceError, match="no GPU is visible"):
        find_slots(mixed, jobs_per_gpu=1, jobs=1)


def test_gpus_keep_the_names_under_which_they_were_made_visible(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5, GPU-8f")
    assert visible_gpus() == ["5", "GPU-8f"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,6,-1,7")
    assert visible_gpus() == ["5", "6"], "CUDA looks no further than to what is no GPU"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert visible_gpus() == ["0", "1"]


def test_every_run_gets_its_share_of_the_cores_and_this_very_package(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(9)), raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("PYTHONPATH", "mine")
    found = environment_for(2)
    assert found["OMP_NUM_THREADS"] == "4"
    assert found["PYTHONPATH"] == f"{Path(foster.__file__).parents[1]}{os.pathsep}mine"
    assert environment_for(100)["OMP_NUM_THREADS"] == "1"
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert environment_for(2)["OMP_NUM_THREADS"] == "3", "what the user says stays"
