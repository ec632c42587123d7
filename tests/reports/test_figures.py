import inspect
from pathlib import Path

import pytest
from typer.testing import CliRunner

from foster.cli import app, reports
from foster.errors import DataError, SettingsError
from foster.reports.figures import KINDS, figure


def test_a_figure_is_drawn_from_the_command_line_whose_help_has_every_kind(kept_runs, tmp_path: Path):
    """A report draws them all."""
    for kind, name in (("matrix", "figure.svg"), ("losses", "figure.png")):
        done = CliRunner().invoke(app, ["figure", kind, str(kept_runs["foster"]), "--out", str(tmp_path / name)])
        assert done.exit_code == 0, done.output
        assert (tmp_path / name).stat().st_size > 3000
    missing = [kind for kind in KINDS if f"\n{kind} " not in inspect.getdoc(reports.figure)]
    assert missing == [], "name them in the docstring of foster.cli.reports.figure"


def test_a_bundle_has_figures_of_its_own(bundle):
    for kind in ("confusion", "head-norms", "exemplars"):
        assert figure(kind, [bundle]).axes
    with pytest.raises(DataError, match="bundle"):
        figure("accuracy", [bundle])


def test_wrong_kinds_and_numbers_are_one_line(kept_runs):
    with pytest.raises(SettingsError, match="'confusion'"):
        figure("confusoin", [kept_runs["foster"]])
    with pytest.raises(DataError, match="not 2"):
        figure("exemplars", list(kept_runs.values()))
