import json
from pathlib import Path
from unittest.mock import Mock

import pytest
from tiny_runs import OVERRIDES
from typer.testing import CliRunner

from foster.cli import app
from foster.experiment import parts
from foster.studies.run import known_results
from foster.studies.study import load_study, plan_study

RESULTS = Path(__file__).parents[2] / "results"
FROM_RESULTS = ("beta-compression", "boosted", "exemplars-ratio", "gamma", "sum-of-softmax", "unlabeled")
"""Studies whose runs are all in RESULTS or its folders."""

TINY = [override for override in OVERRIDES if not override.startswith("memory")]


@pytest.mark.slow
def test_studies_train_what_they_share_once_tell_what_they_found_and_a_failure_costs_only_the_pages_of_its_own(
    tmp_path: Path,
):
    out, broken = tmp_path / "studies", tmp_path / "broken.toml"
    broken.write_text("""
        title = "Broken"
        presets = ["digits"]
        variants = [{ name = "a" }, { name = "b", set = ["foster.first.learning_rate=1e30"] }]
    """)
    words = [*TINY, "--preset", "digits", "--out", str(out)]
    done = CliRunner().invoke(app, ["study", "sum-of-softmax", str(broken), *words])
    assert done.exit_code != 0
    assert "cifar100-b50-inc10" in done.output
    assert len(list(out.glob("*/settings.toml"))) == 3, "the other run of the broken study is one of sum-of-softmax"
    assert {page.parent.name for page in out.glob("*/study.md")} == {"sum-of-softmax"}
    assert "| S(. + .) | 1 |" in (out / "sum-of-softmax" / "study.md").read_text()
    first, second = (json.loads(path.read_text())["accuracy"] for path in out.glob("*sum*/results.json"))
    assert first != second
    again = CliRunner().invoke(app, ["study", "sum-of-softmax", *words])
    assert again.exit_code == 0, again.output
    assert "started" not in again.output
    assert (out / "study.svg").read_bytes() == (out / "sum-of-softmax" / "study.svg").read_bytes()


def test_what_the_folder_of_results_has_is_not_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    part = ["table-1", "methods=foster,wa", "protocols=cifar100-b0-inc10", "--results", str(RESULTS)]
    done = CliRunner().invoke(app, ["study", *part, "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    known = json.loads((RESULTS / "cifar100-b0-inc10-wa-plain-s1993.json").read_text())
    average = f"{known['average_incremental_accuracy']:.2f}"
    assert f"| wa | 1 | {average} | 67.08 |" in (tmp_path / "out" / "study.md").read_text(), "beside the paper's number"
    assert not list(tmp_path.glob("out/*/settings.toml"))
    seeds = ["methods=foster", "order_seed=1993", "seed=1,2", *part[2:], "--out", str(tmp_path / "seeds")]
    done = CliRunner().invoke(app, ["study", "table-1", *seeds])
    assert done.exit_code == 0, done.output
    assert "| foster | 2 | 72.63 ± 0.81 | 72.90 |" in (tmp_path / "seeds" / "study.md").read_text()
    monkeypatch.setattr("foster.sweep.run.execute", trained := Mock())
    more = ["study", "table-1", *seeds[:2], "seed=1,7", *seeds[3:-1], str(tmp_path / "more")]
    assert CliRunner().invoke(app, more).exit_code == 0
    (missing,) = trained.call_args.args[0]
    assert missing.settings.seed == 7
    begun = tmp_path / "more" / missing.name
    begun.mkdir(parents=True)
    (begun / "settings.toml").write_text(missing.settings.toml())
    (begun / "results.json").write_text(json.dumps(known | {"finished": False}))
    assert CliRunner().invoke(app, more).exit_code == 0
    assert trained.call_count == 2, "a run that is not finished is not taken"
    states = CliRunner().invoke(app, [*more, "--dry-run"]).output.splitlines()
    assert [line.split()[0] for line in states if "-s" in line] == ["known", "to"], "one to go on with"


def test_pages_in_the_repository_are_those_that_the_command_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("foster.studies.outcome.save_figure", Mock())
    done = CliRunner().invoke(app, ["study", *FROM_RESULTS, "--results", str(RESULTS), "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    for name in FROM_RESULTS:
        assert (tmp_path / name / "study.md").read_text() == (RESULTS / "studies" / name / "study.md").read_text()


def test_only_finished_results_of_the_same_plug_ins_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    name = "cifar100-b0-inc10-wa-plain-s1993.json"
    results = json.loads((RESULTS / name).read_text())
    runs = plan_study(load_study("table-1"), None, ["methods=wa", "protocols=cifar100-b0-inc10"])["wa"]
    monkeypatch.setattr(parts, "plugin_hashes", lambda asked, names: {"lab": "a"})

    def is_taken(**changes: object) -> bool:
        (tmp_path / name).write_text(json.dumps(results | changes))
        return bool(known_results(runs, tmp_path))

    assert is_taken()
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "again.json").write_text(json.dumps(results))
    assert [result.path for result in known_results(runs, tmp_path).values()] == [tmp_path / name]
    (tmp_path / name).unlink()
    assert [result.path.name for result in known_results(runs, tmp_path).values()] == ["again.json"]
    (tmp_path / "checks" / "again.json").unlink()
    assert not is_taken(finished=False)
    assert is_taken(environment={"plugins": {"lab": "a"}})
    settings = results["settings"]
    with_former = {former: settings | {"wa": settings["wa"] | {"align_teacher": former}} for former in (False, True)}
    assert is_taken(settings=with_former[False])
    assert not is_taken(settings=with_former[True]), "trained with a setting that is gone"
    other = settings | {"wa": settings["wa"] | {"distillation_weight": 1.0}}
    assert not is_taken(settings=other), "of WA this setting is not gone"
    assert not is_taken(environment={"plugins": {"lab": "b"}})
