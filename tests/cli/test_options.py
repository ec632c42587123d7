"""Options that several commands have."""

import sys
from pathlib import Path

from commands import Command
from typer.main import get_command

from foster.cli import app
from foster.cli.options import all_changes


def test_recipes_come_before_the_overrides_which_may_change_them() -> None:
    assert all_changes(["seed=3"], ["plus", "my.toml"]) == ["recipe=plus", "recipe=my.toml", "seed=3"]
    assert all_changes(None, None) == []


def test_a_plug_in_is_imported_before_its_method_is_asked_for(command: Command, tmp_path: Path) -> None:
    (tmp_path / "own_lab_of_options.py").write_text("seen = True\n")
    done = command("plan", "digits", "method=replay", "--plugin", "own_lab_of_options")
    assert done.code == 0, done.err
    assert sys.modules.pop("own_lab_of_options").seen
    missing = command("plan", "digits", "--plugin", "no_such_lab")
    assert missing.code == 2
    assert "no_such_lab" in missing.err
    assert missing.err.count("\n") == 1


def test_every_command_that_may_need_a_plug_in_can_be_told_of_one() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    without = {name for name, one in commands.items() if not any("--plugin" in option.opts for option in one.params)}
    assert without == {"demo", "info", "rollback", "table", "watch"}
