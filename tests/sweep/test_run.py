import io
import json
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import Command
from tiny_runs import records_of
from tiny_sweeps import TINY

from foster.errors import DataError, TrainingError
from foster.events import RunStarted, TaskEnded, Warned
from foster.sweep.grid import plan_runs
from foster.sweep.job import Slot
from foster.sweep.run import say, sweep
from foster.system.signals import Stopped


@pytest.mark.slow
def test_a_failed_run_is_reported_and_the_others_are_finished_and_not_repeated(command: Command, tmp_path: Path):
    words = ["digits", *TINY, "epochs_scale=0.005", "method=replay", "replay.first.learning_rate=1e30,0.1"]
    names = [run.name for run in plan_runs(words[0], words[1:])]
    bad, good = (tmp_path / name for name in names)

    output = command("sweep", *words, "--jobs", "2", "--out", tmp_path)
    assert output.code == 1
    assert f"1 of 2 runs failed: {names[0]}: the " in output.err
    assert "learning rate" in output.err
    assert "2 runs: 1 finished, 1 failed" in output.out
    assert any(line.startswith("replay") for line in output.out.splitlines())
    assert json.loads((good / "results.json").read_text())["finished"] is True
    num_events = {folder: len(records_of(folder / "events.jsonl")) for folder in (good, bad)}

    again = command("sweep", *words, "--out", tmp_path)
    assert again.code == 1
    assert "2 runs: 1 waiting, 1 finished, 1 at a time" in again.err
    assert len(records_of(good / "events.jsonl")) == num_events[good]
    assert len(records_of(bad / "events.jsonl")) > num_events[bad]


def test_each_run_has_its_gpu_and_its_share_of_the_cores(
    stand_in: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    stand_in('echo "[$CUDA_VISIBLE_DEVICES] $OMP_NUM_THREADS"; exit 1')
    runs = plan_runs("digits", ["seed=1,2,3", "device=cuda"])
    with pytest.raises(TrainingError, match="3 of 3 runs failed"):
        sweep(runs, tmp_path / "out", [Slot("0"), Slot("MIG-7")])
    logs = [(tmp_path / "out" / f"{run.name}.log").read_text() for run in runs]
    assert logs[:2] == ["[0] 4\n", "[MIG-7] 4\n"]
    assert logs[2] in logs[:2]


def test_a_run_that_is_killed_or_says_nothing_is_reported_as_well(
    stand_in: Callable[[str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    stand_in('case "$*" in *-s1,*) kill -9 $$;; *) exit 143;; esac')
    runs = plan_runs("digits", ["seed=1,2", "device=cpu"])
    with pytest.raises(TrainingError, match=rf"{runs[0].name}: ended by signal 9 .*memory"):
        sweep(runs, tmp_path / "out", [Slot()])
    assert f"{runs[1].name}: failed: exit code 143" in capsys.readouterr().err


def test_the_reason_of_a_failure_is_of_the_last_execution(stand_in: Callable[[str], None], tmp_path: Path):
    runs = plan_runs("digits", ["device=cpu"])
    for script, reason in (("echo foster: the disk is full; exit 1", "the disk is full"), ("exit 3", "exit code 3")):
        stand_in(script)
        with pytest.raises(TrainingError, match=f"{runs[0].name}: {reason};"):
            sweep(runs, tmp_path / "out", [Slot()])


def test_a_run_goes_on_with_the_settings_that_changed_and_have_a_value(stand_in: Callable[[str], None], tmp_path: Path):
    (begun,) = plan_runs("digits", ["device=cpu", f"data={tmp_path}"])
    folder = tmp_path / "out" / begun.name
    folder.mkdir(parents=True)
    (folder / "settings.toml").write_text(begun.settings.toml())
    stand_in('echo "$*"')
    sweep(
        plan_runs("digits", ["device=cpu", "checkpoint_minutes=7"]), tmp_path / "out", [Slot()], after_run=lambda: None
    )
    words = folder.with_name(f"{begun.name}.log").read_text().split()
    assert words[3:] == ["resume", str(folder), "checkpoint_minutes=7.0", "--quiet"]


def test_the_settings_of_a_waiting_run_are_those_that_were_checked(stand_in: Callable[[str], None], tmp_path: Path):
    source = tmp_path / "mine.toml"
    lines = ['dataset = "digits"', "increment = 2", "memory_total = 200", 'augmentation = "shift"', 'device = "cpu"']
    source.write_text("\n".join(lines))
    runs = plan_runs(str(source), ["seed=1,2"])
    stand_in(f"echo broken > {source}; exit 1")
    with pytest.raises(TrainingError):
        sweep(runs, tmp_path / "out", [Slot()])
    assert plan_runs(str(tmp_path / "out" / f"{runs[1].name}.toml"), [])[0].settings == runs[1].settings


def test_data_that_is_missing_is_said_once_before_any_run_starts(
    stand_in: Callable[[str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    stand_in("exit 3")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "cifar-100-python.tar.gz").write_bytes(b"nothing")
    runs = plan_runs("cifar100-b50-inc10", ["seed=1,2", "device=cpu"], data=str(tmp_path / "data"))
    with pytest.raises(DataError, match=r"cifar-100-python\.tar\.gz"):
        sweep(runs, tmp_path / "out", [Slot()])
    assert not (tmp_path / "out").exists()
    assert capsys.readouterr() == ("", "")


def test_finished_runs_need_no_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    runs = plan_runs("cifar100-b50-inc10", ["seed=1", "device=cpu"], data=str(tmp_path))
    folder = tmp_path / "out" / runs[0].name
    folder.mkdir(parents=True)
    (folder / "settings.toml").write_text(runs[0].settings.toml())
    (folder / "results.json").write_text('{"finished": true}')
    sweep(runs, tmp_path / "out", [Slot()], after_run=lambda: None)
    assert "1 run: 1 finished" in capsys.readouterr().out


def test_ctrl_c_while_the_data_are_read_stops_the_sweep(
    stand_in: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    stand_in("exit 3")
    monkeypatch.setattr("foster.sweep.run.check_data", lambda *given: signal.raise_signal(signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where tests run in the background
    try:
        with pytest.raises(Stopped):
            sweep(plan_runs("digits", ["device=cpu"]), tmp_path / "out", [Slot()])
    finally:
        signal.signal(signal.SIGINT, before)
    assert not (tmp_path / "out").exists()


def test_a_log_that_nobody_reads_any_more_does_not_stop_a_sweep(monkeypatch: pytest.MonkeyPatch):
    stream = io.StringIO()
    stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    say("a line")


def test_a_line_tells_that_a_run_starts_learns_a_task_and_ends(
    stand_in: Callable[[str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (planned,) = plan_runs("digits", ["device=cpu"])
    folder = tmp_path / "out" / planned.name
    told = (RunStarted("foster", "digits", 2, "", "cpu"), Warned(""), TaskEnded(0, 90.0, 10, 1.0))
    lines = " ".join(shlex.quote(json.dumps(event.record())) for event in (*told, TaskEnded(1, 80.0, 10, 1.0)))
    stand_in(f"mkdir {folder}; printf '%s\\n' {lines} > {folder}/events.jsonl")
    sweep([planned], tmp_path / "out", [Slot()], after_run=lambda: None)
    expected = ["started on CPU", "90.00 % after task 1/2", "80.00 % after task 2/2", "finished"]
    assert capsys.readouterr().err.splitlines()[1:] == [f"{planned.name}: {line}" for line in expected]
