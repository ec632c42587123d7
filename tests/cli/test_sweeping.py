"""The command sweep: dry runs, and what is refused before anything starts."""

import sys
from pathlib import Path

import pytest
from commands import Command

from foster.errors import SettingsError
from foster.studies import run as studies_run
from foster.studies.study import load_study, plan_study
from foster.sweep import run as sweep_run
from foster.sweep.grid import plan_runs


def test_a_dry_run_lists_the_runs_and_starts_none(command: Command, tmp_path: Path) -> None:
    first, second = (run.name for run in plan_runs("digits", ["device=cpu", "seed=1,2"]))
    done = command("sweep", "digits", "device=cpu", "seed=1,2", "--jobs", "2", "--dry-run")
    assert done.code == 0
    lines = done.out.splitlines()
    assert [line.split() for line in lines[:2]] == [["waiting", first], ["waiting", second]]
    assert all(part in lines[2] for part in ("2 runs", "(CPU, CPU)", "runs/sweep-digits"))
    one = command("sweep", "digits", "device=cpu", "seed=1", "--dry-run")
    assert "(CPU)" in one.out.splitlines()[1]
    assert not list(tmp_path.iterdir())


def test_a_dry_run_tells_what_is_finished_and_what_would_be_continued(command: Command, tmp_path: Path) -> None:
    for run in plan_runs("digits", ["seed=1,2"]):
        folder = tmp_path / f"of {run.settings.seed}"
        folder.mkdir()
        (folder / "settings.toml").write_text(run.settings.toml())
    (tmp_path / "of 2" / "results.json").write_text('{"finished": true}')
    done = command("sweep", "digits", "seed=1,2,3", "--dry-run", "--out", str(tmp_path))
    assert done.code == 0
    lines = [line.split(maxsplit=1) for line in done.out.splitlines()[:3]]
    assert [line[0] for line in lines] == ["to", "finished", "waiting"]
    assert [line[1] for line in lines[:2]] == ["continue of 1", "of 2"]


@pytest.mark.parametrize(
    ("address", "first"),
    [("local", "starting Ray"), ("10.0.0.1:6379", "connecting to 10.0.0.1:6379")],
)
def test_a_cluster_is_told_of_before_it_is_there(
    address: str, first: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    done = command("sweep", "digits", "seed=1,2", "--cluster", address)
    assert done.code == 2
    assert done.err.startswith(first)
    assert "foster-cil[cluster]" in done.err


def test_a_dry_run_of_a_study_tells_what_is_finished_and_which_results_are_known(command: Command, tmp_path: Path):
    planned = plan_study(load_study("beta"), "digits")
    (run,) = planned["0.97"]
    (tmp_path / run.name).mkdir()
    (tmp_path / run.name / "settings.toml").write_text(run.settings.toml())
    (tmp_path / run.name / "results.json").write_text('{"finished": true}')
    words = ["study", "beta", "--preset", "digits", "--dry-run", "--out", str(tmp_path)]
    lines = command(*words).out.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == ["waiting", "waiting", "finished", *["waiting"] * 3]
    results = Path(__file__).parents[2] / "results"
    part = ["study", "table-1", "methods=wa", "protocols=cifar100-b0-inc10", "--results", str(results), "--dry-run"]
    assert command(*part).out.split() == [
        "known",
        str(results / "cifar100-b0-inc10-wa-plain-s1993.json"),
    ]


def test_a_dry_run_of_studies_starts_none(command: Command, tmp_path: Path):
    out = tmp_path / "none"
    dry = command("study", "beta", "--preset", "digits", "--dry-run", "--out", str(out))
    assert dry.code == 0
    assert len(dry.out.splitlines()) == 6 + 1
    assert not out.exists()
    taken_over = command("study", "beta", f"first_task_from={out}", "--dry-run")
    assert taken_over.code == SettingsError.exit_code
    assert f"first_task_from: '{out}'" in taken_over.err
    several = command("study", "components", "beta", "old-head", "--preset", "digits", "--dry-run")
    assert several.out.splitlines()[-1].startswith("14 runs, "), "not 16: three are one"
    twice = command("study", "beta", "gamma", "beta", "--dry-run")
    assert "'beta'" in twice.err
    unnamed = command("study", "seed=1,2")
    assert "beta, beta-compression, boosted, components" in unnamed.err
    missing = command("study", "beta", "--results", str(out))
    assert (missing.code, missing.err) == (2, f"foster: no folder '{out}' (--results)\n")
    wrong = command("study", "nothing")
    assert wrong.code == SettingsError.exit_code
    assert "unknown study" in wrong.err


def test_the_options_of_sweeps_and_studies_reach_them(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[object, ...]] = []
    monkeypatch.setattr(sweep_run, "execute", lambda runs, *others: given.append((len(runs), *others)))
    monkeypatch.setattr(studies_run, "run_studies", lambda _, *others, **named: given.append((*others, named)))
    limits = ("--out", "out", "--jobs-per-gpu", "2", "--jobs", "3")
    command("sweep", "digits", "seed=1,2", "batch_size=32..64", "--samples", "3", *limits)
    command("study", "beta", "--preset", "digits", "--results", str(tmp_path), *limits)
    assert given == [
        (6, Path("out"), 2, 3, None),
        (Path("out"), tmp_path, {"jobs_per_gpu": 2, "jobs": 3, "cluster": None}),
    ]
