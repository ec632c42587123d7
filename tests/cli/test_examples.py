"""The help of every command ends with a line that can be typed."""

import shlex

import pytest
import typer
from commands import Command
from typer.main import get_command

from foster.cli import app
from foster.cli.examples import EXAMPLES

COMMANDS = get_command(app).commands  # type: ignore[attr-defined]


def test_every_command_has_an_example_and_shows_it_on_one_line(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert EXAMPLES.keys() == COMMANDS.keys()
    longest = max(EXAMPLES, key=lambda name: len(EXAMPLES[name]))
    for name in (longest, "label-next"):
        assert f"Example: {EXAMPLES[name]} " in command(name, "--help").out


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_understood(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    program, called, *words = shlex.split(EXAMPLES[name])
    assert (program, called) == ("foster", name)
    exit_code = 0
    try:
        COMMANDS[name].make_context(name, words)
    except typer.Exit as left:
        exit_code = left.exit_code
    assert exit_code == 0
