"""The command itself: help without torch, its version, and bad input in one line."""

import shlex
from pathlib import Path

import pytest
from commands import Command, Outcome, python
from typer.main import get_command

import foster
from foster.cli import app

COMMANDS = get_command(app).commands  # type: ignore[attr-defined]


def test_help_lists_and_watching_never_load_torch(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "events.jsonl").write_text('{"event": "RunEnded"}\n')
    script = """
import sys, foster.settings.learner, foster.cli.texts, foster.bundle.promotion, foster.reports.tables
from foster.cli import main
foster.FosterError
for arguments in (["--help"], ["--version"], ["list", "presets"], ["list", "presets", "digits"], ["list", "methods"],
                  ["list", "methods", "foster"], ["list", "studies"],
                  ["list", "recipes"], ["list", "datasets"],
                  ["list"], ["run", "--help"],
                  ["run", "digit"], ["plan", "digits", "sed=3"], ["watch", "run"], ["watch", "."]):
    sys.argv = ["foster", *arguments]
    try:
        main()
    except SystemExit:
        pass
    loaded = {"torch", "numpy", "sklearn", "matplotlib"} & sys.modules.keys()
    assert not loaded, (arguments, loaded)
"""
    done = python("-c", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_version_is_that_of_the_package(command: Command) -> None:
    assert command("--version") == Outcome(0, f"foster {foster.__version__}\n", "")


def test_help_names_every_command_in_its_panel_and_flags_as_flags(command: Command) -> None:
    done = command("--help")
    assert done.code == 0
    for name in COMMANDS:
        assert f" {name} " in done.out
    assert [panel for panel in ("Experiments", "Photos", "Bundles", "Serving") if panel not in done.out] == []
    assert "<bool>" not in done.out
    assert "<bool>" not in command("learn", "--help").out
    assert " [KEY=VALUE]..." in command("run", "--help").out


def test_the_help_of_a_command_is_as_wide_as_the_terminal_and_begins_with_a_sentence() -> None:
    for registered in app.registered_commands:
        first, *others = (registered.help or "").split("\n\n")
        assert first.endswith("."), first
        assert not [part for part in (first, *others) if "\n" in part and not part.startswith("\b")]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_ends_with_an_example_that_is_understood(
    name: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    example = COMMANDS[name].epilog
    program, called, *words = shlex.split(example.removeprefix("Example: "))
    assert (program, called) == ("foster", name)
    COMMANDS[name].make_context(name, words)
    assert example in command(name, "--help").out, "on one line"


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        (("run", "digits", "method=fostr"), "'foster'"),
        (("run", "no/such.toml"), "'no/such.toml'"),
        (("run", "digits", "dataset=synthetic", "backbone=resnet9"), "'resnet9'"),
        (("plan", "digits", "backbone=resnet9"), "'resnet9'"),
        (("run", "digits", "method=replay", "wa.temperature=9"), "wa.temperature "),
        (("plan", "digits", "synthetic.num_classes=9"), "synthetic.num_classes "),
        (("resume", "nothing"), "'nothing'"),
        (("table", "nothing"), "'nothing'"),
        (("list", "presets", "digit"), "'digits'"),
        (("list", "methods", "icarll"), "'icarl'"),
        (("list", "method"), "'methods'"),
        (("list", "datasets", "cifar"), "'cifar10"),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2_and_writes_nothing(
    arguments: tuple[str, ...], fact: str, command: Command, tmp_path: Path
) -> None:
    done = command(*arguments)
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("foster: ")
    assert fact in done.err
    assert done.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
