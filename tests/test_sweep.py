import io
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from foster import sweep_slots
from foster.cli import main
from foster.errors import DeviceError, FolderError, SettingsError, TrainingError
from foster.run_folder import read_events
from foster.stopping import Stopped
from foster.sweep import status_of, sweep
from foster.sweep_grid import default_folder, plan_runs, split_values
from foster.sweep_slots import Slot, find_slots, visible_gpus
from foster.sweep_table import PlainLines, RunStatus, State, status_table

TINY = [
    "dataset=synthetic",
    "synthetic.num_classes=4",
    "synthetic.train_per_class=6",
    "synthetic.test_per_class=4",
    "synthetic.image_size=8",
    "memory_total=8",
    "device=cpu",
]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """Runs the command with these words in an empty folder, and returns its exit code."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["foster", *words])
        with pytest.raises(SystemExit) as ending:
            main()
        return int(ending.value.code or 0)

    return run


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Makes a shell script take the place of training, so that a test can say how a run behaves."""

    def make(script: str) -> None:
        path = tmp_path / "stand-in"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(path))

    return make


def send(number: int, when: Callable[[], bool]) -> threading.Thread:
    """Sends this process a signal as soon as `when` says so, or never after a minute."""

    def wait() -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if when():
                os.kill(os.getpid(), number)
                return
            time.sleep(0.02)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def test_values_are_split_at_commas_outside_of_brackets_and_quotes():
    assert split_values("foster,replay") == ["foster", "replay"]
    assert split_values("[0.9,0.95], 0.97") == ["[0.9,0.95]", "0.97"]
    assert split_values("{a = [1, 2], b = 3}") == ["{a = [1, 2], b = 3}"]
    assert split_values("'a,b',\"c]\"") == ["'a,b'", '"c]"']
    assert split_values("") == [""]


def test_a_grid_is_a_nested_loop_with_the_last_key_innermost():
    runs = plan_runs("digits", ["method=foster,replay", "batch_size=64", "seed=1993,1"])
    assert [(run.settings.method, run.settings.seed, run.settings.batch_size) for run in runs] == [
        ("foster", 1993, 64),
        ("foster", 1, 64),
        ("replay", 1993, 64),
        ("replay", 1, 64),
    ]
    assert [run.name for run in runs] == [
        "method=foster,seed=1993",
        "method=foster,seed=1",
        "method=replay,seed=1993",
        "method=replay,seed=1",
    ]


def test_a_list_is_one_value_and_its_folder_has_a_plain_name():
    runs = plan_runs("digits", ["foster.beta_boost=[0.9,0.91,0.92,0.93],0.95"])
    assert [run.settings.options.beta_boost for run in runs] == [(0.9, 0.91, 0.92, 0.93), 0.95]
    assert [run.name for run in runs] == ["foster.beta_boost=0.9_0.91_0.92_0.93", "foster.beta_boost=0.95"]


def test_a_setting_of_one_method_does_not_multiply_the_runs_of_another():
    runs = plan_runs("digits", ["method=foster,replay", "foster.beta_compress=0.9,0.97"])
    assert [run.name for run in runs] == [
        "method=foster,foster.beta_compress=0.9",
        "method=foster,foster.beta_compress=0.97",
        "method=replay",
    ]


def test_a_sweep_of_one_run_has_the_usual_name():
    assert [run.name for run in plan_runs("digits", ["seed=7"])] == ["digits-b0-inc2-foster-s7"]


def test_very_long_values_still_have_folders_of_their_own():
    orders = [json.dumps([f"{'long' * 9} {index + shift}" for index in range(10)]) for shift in (0, 1)]
    names = [run.name for run in plan_runs("digits", [f"class_order={','.join(orders)}"])]
    assert len(set(names)) == 2
    assert max(map(len, names)) < 200


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["seed=1,1"], "seed: 1 stands in the list more than once"),
        (["seed=1,,2"], "seed: a value is missing between the commas of '1,,2'"),
        (["seed=1", "seed=2"], "seed is given more than once; write seed=VALUE,VALUE"),
        (["seed=1,01"], "'seed=1' and 'seed=01' are the same run"),
        (["foster.beta_boost=[0.9,0.95"], "lacks a closing ]"),
        (["seed"], "'seed' is not of the form key=value,value,..."),
        (["method=foster,replai"], "unknown method 'replai'; did you mean 'replay'?"),
        (["foster.beta_bost=0.9,0.95"], "unknown key 'foster.beta_bost'; did you mean 'foster.beta_boost'?"),
    ],
)
def test_a_wrong_grid_is_refused_in_one_line(overrides: list[str], message: str):
    with pytest.raises(SettingsError) as caught:
        plan_runs("digits", overrides)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_default_folder_is_named_after_the_source():
    assert default_folder("digits") == Path("runs/sweep-digits")
    assert default_folder("mine/my.toml") == Path("runs/sweep-my")


def test_one_bad_value_ends_the_command_before_anything_starts(
    command: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    for words in (["seed=1,-2"], ["backbone=resnet8,resnet9"], ["device=cuda:1"], ["sed=1,2"]):
        assert command("sweep", "digits", *words) == 2
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1
        assert lines[0].startswith("foster: ")
    assert not list(tmp_path.iterdir())


def test_a_dry_run_lists_the_runs_and_starts_none(
    command: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert command("sweep", "digits", "device=cpu", "seed=1,2", "--jobs", "2", "--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[:2]] == [["waiting", "seed=1"], ["waiting", "seed=2"]]
    assert lines[2] == "2 runs, 2 at a time (CPU, CPU), in runs/sweep-digits"
    assert not list(tmp_path.iterdir())


def test_a_failed_run_is_reported_and_the_others_are_finished_and_not_repeated(
    command: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    words = ["sweep", "digits", *TINY, "epochs_scale=0.005", "method=replay", "replay.first.learning_rate=1e38,0.1"]
    good, bad = (tmp_path / "runs/sweep-digits" / f"replay.first.learning_rate={rate}" for rate in ("0.1", "1e38"))

    assert command(*words, "--jobs", "2") == 1
    output = capsys.readouterr()
    assert "1 of 2 runs failed: replay.first.learning_rate=1e38: the " in output.err
    assert "try a learning rate below" in output.err
    assert "2 runs: 1 finished, 1 failed" in output.out
    assert "replay" in output.out.splitlines()[3]
    assert json.loads((good / "results.json").read_text())["finished"] is True
    num_events = {folder: len(read_events(folder / "events.jsonl")) for folder in (good, bad)}

    assert command(*words) == 1
    assert "2 runs: 1 waiting, 1 finished, 1 at a time" in capsys.readouterr().err
    assert len(read_events(good / "events.jsonl")) == num_events[good]
    assert len(read_events(bad / "events.jsonl")) > num_events[bad]


def test_an_interrupted_sweep_saves_its_runs_and_continues_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    runs = plan_runs("digits", [*TINY, "method=finetune", "epochs_scale=0.25", "seed=3,4"])
    first = tmp_path / "out" / "seed=3"

    def has_trained() -> bool:
        return "EpochEnded" in ((first / "events.jsonl").read_text() if (first / "events.jsonl").exists() else "")

    sender = send(signal.SIGINT, has_trained)
    with pytest.raises(Stopped) as caught:
        sweep(runs, tmp_path / "out", [Slot()])
    sender.join()
    assert caught.value.exit_code == 130
    assert "all is saved; start the same sweep again to continue" in str(caught.value)
    assert "1 waiting, 1 stopped" in capsys.readouterr().out
    assert status_of(runs[0], tmp_path / "out").is_continued
    assert not (tmp_path / "out" / "seed=4").exists()

    sweep(runs[:1], tmp_path / "out", [Slot()])
    names = [event["event"] for event in read_events(first / "events.jsonl")]
    assert "RunResumed" in names
    assert names[-1] == "RunEnded"
    assert "seed=3: continued on CPU" in capsys.readouterr().err


def test_each_run_has_its_gpu_and_its_share_of_the_cores(
    stand_in: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(9)))
    stand_in('echo "[$CUDA_VISIBLE_DEVICES] $OMP_NUM_THREADS"; exit 1')
    runs = plan_runs("digits", ["seed=1,2,3", "device=cuda"])
    with pytest.raises(TrainingError, match="3 of 3 runs failed"):
        sweep(runs, tmp_path / "out", [Slot("0"), Slot("MIG-7")])
    logs = [(tmp_path / "out" / f"seed={seed}.log").read_text() for seed in (1, 2, 3)]
    assert logs[:2] == ["[0] 4\n", "[MIG-7] 4\n"]
    assert logs[2] in logs[:2]


def test_a_run_that_is_killed_or_says_nothing_is_reported_as_well(
    stand_in: Callable[[str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    stand_in('case "$*" in *seed=1*) kill -9 $$;; *) exit 3;; esac')
    with pytest.raises(TrainingError, match="seed=1: ended by signal 9"):
        sweep(plan_runs("digits", ["seed=1,2", "device=cpu"]), tmp_path / "out", [Slot()])
    assert "seed=2: failed: exit code 3" in capsys.readouterr().err


def test_the_settings_of_a_waiting_run_are_those_that_were_checked(stand_in: Callable[[str], None], tmp_path: Path):
    source = tmp_path / "mine.toml"
    source.write_text('dataset = "digits"\nincrement = 2\nmemory_total = 200\nbackbone = "resnet8"\ndevice = "cpu"\n')
    runs = plan_runs(str(source), ["seed=1,2"])
    stand_in(f"echo broken > {source}; exit 1")
    with pytest.raises(TrainingError):
        sweep(runs, tmp_path / "out", [Slot()])
    assert plan_runs(str(tmp_path / "out" / "seed=2.toml"), [])[0].settings == runs[1].settings


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_is_handed_on_once_and_no_further_run_starts(
    stand_in: Callable[[str], None], tmp_path: Path, number: int, exit_code: int
):
    stand_in(
        f"trap 'echo saved; kill $!; exit {exit_code}' {number:d}; echo ready; sleep 30 & "
        "while :; do wait; sleep 0.05; done"
    )
    log = tmp_path / "out" / "seed=1.log"
    sender = send(number, lambda: log.exists() and "ready" in log.read_text())
    with pytest.raises(Stopped) as caught:
        sweep(plan_runs("digits", ["seed=1,2", "device=cpu"]), tmp_path / "out", [Slot()])
    sender.join()
    assert caught.value.exit_code == exit_code
    assert log.read_text() == "ready\nsaved\n"
    assert not (tmp_path / "out" / "seed=2.log").exists()


def test_a_second_signal_ends_the_runs_at_once(
    stand_in: Callable[[str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    stand_in("trap '' INT; echo ready; exec sleep 30")
    log = tmp_path / "out" / "seed=1.log"
    began = time.monotonic()
    first = send(signal.SIGINT, lambda: log.exists() and "ready" in log.read_text())
    second = send(signal.SIGINT, lambda: not first.is_alive() and time.monotonic() - began > 1)
    with pytest.raises(Stopped, match="ended at once"):
        sweep(plan_runs("digits", ["seed=1,2", "device=cpu"]), tmp_path / "out", [Slot()])
    second.join()
    assert time.monotonic() - began < 20
    assert "press Ctrl-C again to end them at once" in capsys.readouterr().err


def test_a_folder_with_a_run_of_other_settings_is_neither_skipped_nor_continued(tmp_path: Path):
    folder = tmp_path / "seed=1"
    folder.mkdir()
    other = plan_runs("digits", ["seed=1", "batch_size=16"])[0].settings
    (folder / "settings.toml").write_text(other.toml())
    with pytest.raises(FolderError, match=r"other settings \(batch_size differs\)"):
        sweep(plan_runs("digits", ["seed=1,2"]), tmp_path, [Slot()])
    assert not (tmp_path / "seed=2.log").exists()


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
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert visible_gpus() == ["0", "1"]


def test_a_status_follows_the_events_and_copes_with_a_cut_line(tmp_path: Path):
    run = RunStatus("one", tmp_path)
    run.read_events()
    assert (run.task, run.phase, run.epoch, run.accuracy) == ("–", "–", "–", "–")
    lines = [
        {"event": "RunStarted", "num_tasks": 5},
        {"event": "TaskStarted", "task": 0, "num_tasks": 5},
        {"event": "PhaseStarted", "task": 0, "num_tasks": 5, "phase": "learn", "epochs": 20, "steps": 3},
        {"event": "EpochEnded", "task": 0, "phase": "learn", "epoch": 6, "epochs": 20, "seconds": 1.0},
    ]
    path = tmp_path / "events.jsonl"
    text = "".join(json.dumps(line) + "\n" for line in lines)
    path.write_text(text + '{"event": "TaskEnded", "ta')
    run.read_events()
    assert (run.task, run.phase, run.epoch, run.accuracy) == ("1/5", "learn", "7/20", "–")
    path.write_text(text + '{"event": "TaskEnded", "task": 0, "accuracy": 71.25}\nnot JSON\n{"event": "TaskStarted"')
    run.read_events()
    assert (run.task, run.accuracy) == ("1/5", "71.25")
    path.write_text(path.read_text() + ', "task": 1, "num_tasks": 5}\n')
    run.read_events()
    assert (run.task, run.accuracy) == ("2/5", "71.25")


def test_the_table_shows_running_and_failed_runs_first_where_room_is_scarce():
    states = [State.FINISHED, State.WAITING, State.RUNNING, State.FAILED, State.WAITING]
    runs = [RunStatus(f"seed={index}", Path(), state) for index, state in enumerate(states)]
    console = Console(file=io.StringIO(), width=100, record=True)
    console.print(status_table(runs, num_rows=3))
    text = console.export_text()
    assert [line.split()[0] for line in text.splitlines() if "seed=" in line] == ["seed=1", "seed=2", "seed=3"]
    assert "5 runs: 2 waiting, 1 running, 1 finished, 1 failed" in text


def test_a_log_that_nobody_reads_any_more_does_not_stop_a_sweep():
    stream = io.StringIO()
    stream.close()
    PlainLines(stream).show([RunStatus("one", Path(), State.FAILED, message="no")])
