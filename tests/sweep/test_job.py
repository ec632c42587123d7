"""Where the runs of a sweep find room; a sweep that is asked to stop, signalled together with its runs, or killed."""

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny_sweeps
from held import held
from tiny_runs import records_of

import foster
from foster.errors import DeviceError
from foster.sweep import job as sweep_job
from foster.sweep.grid import PlannedRun, plan_runs
from foster.sweep.job import Slot, environment_for, find_slots, visible_gpus
from foster.sweep.run import status_of, sweep
from foster.system.locking import writer_of
from foster.system.signals import Stopped

pytestmark = pytest.mark.usefixtures("default_signals")

TINY = [*tiny_sweeps.TINY, "method=finetune"]

SLOW_TO_SAVE = """
import os, sys, time
from pathlib import Path
from foster.system.locking import locked
from foster.system.signals import Stopped, stop_on_signals
folder = Path(sys.argv[sys.argv.index("--out") + 1])
try:
    with stop_on_signals() as stop, locked(folder):
        print("ready", os.getpid(), flush=True)
        while not stop.is_set:
            time.sleep(0.01)
        time.sleep(0.3)
        print("saved", flush=True)
        stop.raise_if_set()
except Stopped as stopped:
    sys.exit(stopped.exit_code)
"""
"""A run without torch: it listens to signals and to the sweep as a real one does, and needs some time to save."""


@pytest.fixture
def slow_to_save(stand_in: Callable[[str], None], tmp_path: Path) -> None:
    program = tmp_path / "slow_to_save.py"
    program.write_text(SLOW_TO_SAVE)
    stand_in(f'exec {shlex.quote(sys.executable)} {shlex.quote(str(program))} "$@"')


def two_runs() -> list[PlannedRun]:
    return plan_runs("digits", ["seed=1,2", "device=cpu"])


def when(is_time: Callable[[], bool], act: Callable[[], None]) -> threading.Thread:
    """Acts as soon as it is time, or never after a minute."""

    def wait() -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if is_time():
                act()
                return
            time.sleep(0.02)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def says(path: Path, text: str) -> bool:
    return path.exists() and text in path.read_text()


def send(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.slow
def test_an_interrupted_sweep_saves_its_runs_and_continues_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    runs = plan_runs("digits", [*TINY, "epochs_scale=0.02", "seed=3,4"])
    first, second = (tmp_path / "out" / run.name for run in runs)
    sender = when(lambda: says(first / "events.jsonl", "EpochEnded"), send(signal.SIGINT))
    with monkeypatch.context() as patch:
        for name, value in held(first / "events.jsonl", "EpochEnded").items():
            patch.setenv(name, value)
        with pytest.raises(Stopped) as caught:
            sweep(runs, tmp_path / "out", [Slot()])
    sender.join()
    assert caught.value.exit_code == 130
    assert "all is saved" in str(caught.value)
    assert "1 waiting, 1 stopped" in capsys.readouterr().out
    assert records_of(first / "events.jsonl")[-1]["event"] == "CheckpointWritten"
    assert status_of(runs[0], tmp_path / "out").is_continued
    assert not second.exists()

    sweep(runs[:1], tmp_path / "out", [Slot()])
    names = [event["event"] for event in records_of(first / "events.jsonl")]
    assert "RunResumed" in names
    assert names[-1] == "RunEnded"
    assert f"{runs[0].name}: continued on CPU" in capsys.readouterr().err


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_is_handed_on_once_and_no_further_run_starts(
    stand_in: Callable[[str], None], tmp_path: Path, number: int, exit_code: int
):
    stand_in("echo ready; read number; echo told $number; exit $((128 + number))")
    runs = two_runs()
    log = tmp_path / "out" / f"{runs[0].name}.log"
    sender = when(lambda: says(log, "ready"), send(number))
    with pytest.raises(Stopped) as caught:
        sweep(runs, tmp_path / "out", [Slot()])
    sender.join()
    assert caught.value.exit_code == exit_code
    assert log.read_text() == f"ready\ntold {number:d}\n"
    assert not (tmp_path / "out" / f"{runs[1].name}.log").exists()


def test_a_second_ctrl_c_ends_the_runs_at_once_and_does_not_say_that_all_is_saved(
    stand_in: Callable[[str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    stand_in("echo ready; read number; echo told; exec sleep 30")
    runs = two_runs()
    log = tmp_path / "out" / f"{runs[0].name}.log"
    began = time.monotonic()
    when(lambda: says(log, "ready"), send(signal.SIGINT))
    # Two signals at the same instant would be one.
    second = when(lambda: says(log, "told"), send(signal.SIGINT))
    with pytest.raises(Stopped, match="1 run could not save") as caught:
        sweep(runs, tmp_path / "out", [Slot()])
    second.join()
    assert time.monotonic() - began < 20
    assert "all is saved" not in str(caught.value)
    output = capsys.readouterr()
    assert "Ctrl-C again" in output.err
    assert "1 waiting, 1 killed" in output.out


def test_a_run_that_dies_of_the_signal_is_not_called_saved(
    stand_in: Callable[[str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    stand_in("echo ready; read number; kill -TERM $$")
    runs = two_runs()
    sender = when(lambda: says(tmp_path / "out" / f"{runs[0].name}.log", "ready"), send(signal.SIGTERM))
    with pytest.raises(Stopped, match="1 run could not save") as caught:
        sweep(runs, tmp_path / "out", [Slot()])
    sender.join()
    assert "all is saved" not in str(caught.value)
    assert f"{runs[0].name}: killed: ended by signal 15" in capsys.readouterr().err


@pytest.mark.usefixtures("slow_to_save")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_reaches_the_sweep_and_its_runs_lets_them_save(tmp_path: Path, number: int):
    """As systemd, scancel or a container's end sends it: to every process."""
    runs = two_runs()
    logs = [tmp_path / "out" / f"{run.name}.log" for run in runs]

    def signal_all() -> None:
        for log in logs:
            os.kill(int(log.read_text().split()[1]), number)
        os.kill(os.getpid(), number)

    sender = when(lambda: all(says(log, "\n") for log in logs), signal_all)
    with pytest.raises(Stopped, match="all is saved") as caught:
        sweep(runs, tmp_path / "out", [Slot(), Slot()])
    sender.join()
    assert caught.value.exit_code == 128 + number
    assert all(says(log, "saved") for log in logs)


@pytest.mark.slow
def test_a_killed_sweep_takes_its_runs_along_and_the_next_one_continues_them(tmp_path: Path):
    words = [*TINY, "epochs_scale=0.02", "seed=3"]
    (run,) = plan_runs("digits", words)
    folder, log = tmp_path / "out" / run.name, tmp_path / "out" / f"{run.name}.log"
    command = [sys.executable, "-m", "foster", "sweep", "digits", *words, "--out", str(tmp_path / "out")]
    with subprocess.Popen(
        command,
        env={**os.environ, **held(folder / "events.jsonl", "EpochEnded")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as killed:
        tiny_sweeps.wait_until(lambda: says(folder / "events.jsonl", "EpochEnded"))
        process = int(writer_of(folder).split()[1])
        killed.kill()
    again = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert again.returncode == 0, again.stderr
    assert not is_alive(process)
    assert "the sweep has ended: stopping" in log.read_text()
    assert "all is saved" in log.read_text()
    names = [event["event"] for event in records_of(folder / "events.jsonl")]
    assert names.count("RunResumed") == 1
    assert names[-1] == "RunEnded"


def test_runs_are_dealt_to_the_gpus_in_turn(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sweep_job, "visible_gpus", lambda: ["0", "3"])
    automatic = plan_runs("digits", ["seed=1,2"])
    assert [slot.gpu for slot in find_slots(automatic, jobs_per_gpu=2, jobs=5)] == ["0", "3", "0", "3"]
    assert find_slots(plan_runs("digits", ["device=cpu"]), jobs_per_gpu=2, jobs=3) == [Slot()] * 3
    mixed = plan_runs("digits", ["device=cpu,cuda"])
    assert find_slots(mixed, jobs_per_gpu=1, jobs=1) == [Slot("0"), Slot("3"), Slot()]
    monkeypatch.setattr(sweep_job, "visible_gpus", list)
    assert find_slots(automatic, jobs_per_gpu=2, jobs=1) == [Slot()]
    with pytest.raises(DeviceError, match="'cuda'"):
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
