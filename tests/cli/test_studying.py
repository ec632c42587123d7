"""The command study: what it lists, plans and refuses."""

from pathlib import Path

from typer.testing import CliRunner

from foster.cli import app
from foster.errors import SettingsError


def test_without_a_name_the_studies_are_listed_and_a_dry_run_starts_none(tmp_path: Path):
    listed = CliRunner().invoke(app, ["study"])
    assert "components" in listed.output
    out = tmp_path / "none"
    dry = CliRunner().invoke(app, ["study", "beta", "--preset", "digits", "--dry-run", "--out", str(out)])
    assert dry.exit_code == 0
    assert len(dry.output.splitlines()) == 6
    assert not out.exists()
    taken_over = CliRunner().invoke(app, ["study", "beta", f"first_task_from={out}", "--dry-run"])
    assert taken_over.exit_code == SettingsError.exit_code
    assert f"first_task_from: '{out}' holds no run" in taken_over.stderr
    several = CliRunner().invoke(app, ["study", "components", "beta", "old-head", "--preset", "digits", "--dry-run"])
    assert several.output.splitlines()[-1] == "14 different runs, in runs/studies", "not 16: three are one"
    twice = CliRunner().invoke(app, ["study", "beta", "gamma", "beta", "--dry-run"])
    assert "two studies are called 'beta'" in twice.stderr
    unnamed = CliRunner().invoke(app, ["study", "seed=1,2"])
    assert "which study? one of beta, boosted, components" in unnamed.stderr
    wrong = CliRunner().invoke(app, ["study", "nothing"])
    assert wrong.exit_code == SettingsError.exit_code
    assert "unknown study" in wrong.stderr
