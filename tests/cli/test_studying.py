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
    wrong = CliRunner().invoke(app, ["study", "nothing"])
    assert wrong.exit_code == SettingsError.exit_code
    assert "unknown study" in wrong.stderr
