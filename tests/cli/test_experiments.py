"""Commands that train: what they write, show and refuse."""

import json
from pathlib import Path

from commands import TINY, Command, contents


def test_a_plan_is_shown_and_nothing_is_written(command: Command, tmp_path: Path) -> None:
    done = command("plan", "digits", "method=replay")
    assert done.code == 0
    assert "method replay" in done.out
    assert "exemplars" in done.out
    assert "note:" not in done.out
    assert list(tmp_path.iterdir()) == []
    noted = command("plan", "digits", "method=replay", "replay.later.epochs=20")
    assert noted.out.splitlines()[-1].startswith("note: replay.later.milestones: [30, 50] lie beyond its 20 epochs")


def test_a_run_is_written_shown_and_can_be_run_again(command: Command, tmp_path: Path) -> None:
    first = command("run", "digits", *TINY)
    assert first.code == 0, first.err
    folder = tmp_path / "runs" / "synthetic-b0-inc2-foster-shift-s1993"
    assert {"settings.toml", "events.jsonl", "results.json"} <= {path.name for path in folder.iterdir()}
    assert "results.json" in first.out
    assert "boost" in first.err, "progress goes to standard error"
    again = command(
        "run", str(folder.relative_to(tmp_path) / "settings.toml"), "--out", "again", "--quiet", "--deterministic"
    )
    assert again.code == 0
    assert again.err == ""
    assert "deterministic = true" in (tmp_path / "again" / "settings.toml").read_text()
    results = [json.loads((path / "results.json").read_text()) for path in (folder, tmp_path / "again")]
    assert results[0]["accuracy_matrix"] == results[1]["accuracy_matrix"]

    before = contents(tmp_path)
    refused = command("run", "digits", *TINY)
    assert refused.code == 2
    assert refused.err.startswith("foster: ")
    assert "finished" in refused.err
    assert refused.err.count("\n") == 1
    assert contents(tmp_path) == before

    resumed = command("resume", str(folder))
    assert resumed.code == 0
    assert "finished" in resumed.err
    table = command("table", "runs", "again", "--markdown")
    assert table.code == 0
    assert "| foster" in table.out
    compared = command("figure", "accuracy", "runs", "again", "--out", "both.png")
    assert compared.code == 0
    assert (tmp_path / "both.png").stat().st_size > 1000


def test_a_training_that_fails_has_another_exit_code_than_bad_input(command: Command) -> None:
    done = command("run", "digits", *TINY, "batch_size=4", "foster.first.learning_rate=1e30", "--quiet")
    assert done.code == 1
    assert "in task 1, phase learn, epoch 1" in done.err
    assert done.err.count("\n") == 1
