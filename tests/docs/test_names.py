"""What README, CONTRIBUTING and docs name in code letters is there: modules, files, options and settings."""

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest
from typer.main import get_command

from foster.cli import app
from foster.settings.base import keys_for
from foster.settings.experiment import Settings
from foster.settings.learner import LearnerSettings
from foster.settings.methods import FosterSettings

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md")))
PLACES = (ROOT, ROOT / "src" / "foster", ROOT / "tests", ROOT / "tests" / "robustness")
"""Where the name of a file may begin."""

FENCED = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"[\w/-]+\.py|(?:src|tests|docs|results|benchmarks|tools|deploy)/[\w./-]*")
OPTION = re.compile(r"--[a-z][a-z-]+")
KEY = re.compile(r"([a-z][a-z_]*(?:\.[a-z][a-z_]*)*)=[^)]*")
DOTTED = re.compile(r"[a-z]\w*(?:\.\w*[a-z]\w*)+")
OF_OTHERS = {"curl", "pip", "pipx", "make", "pytest"}
"""Programs whose options are their own."""

KEYS = {*keys_for(Settings), *keys_for(LearnerSettings)}
TABLES = {key.rpartition(".")[0] for key in KEYS} | {key.partition(".")[0] for key in KEYS if "." in key}
LEAVES = {key.removeprefix("foster.") for key in KEYS}
ARGUMENTS = {"key", "resume", "teachers", "methods", "protocols"}
"""What else is written as `name=value`."""


def options() -> set[str]:
    """Of every command, and of the programs in benchmarks/ and tools/."""
    commands = get_command(app).commands.values()  # type: ignore[attr-defined]
    scripts = "".join(path.read_text() for name in ("benchmarks", "tools") for path in (ROOT / name).glob("*.py"))
    ours = {option for command in commands for parameter in command.params for option in parameter.opts}
    return {*ours, "--help", *re.findall(r'"(--[a-z-]+)"', scripts)}


def is_importable(name: str) -> bool:
    """Whether the dotted name is a module, or something in one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def unknown(text: str, known_options: set[str]) -> Iterator[str]:
    """The words between two backticks that should name something of ours, and do not."""
    words = text.split()
    if words[0].rpartition("/")[2] in OF_OTHERS:
        return
    for word in words:
        name = word.partition("(")[0].removeprefix("@")
        key = KEY.fullmatch(word)
        if OPTION.fullmatch(word):
            is_known = word in known_options
        elif FILE.fullmatch(word):
            is_known = word.endswith("my_lab.py") or any((place / word).exists() for place in PLACES)
        elif key:
            is_known = key[1] in KEYS | TABLES | LEAVES | ARGUMENTS
        elif (
            DOTTED.fullmatch(name)
            and name.partition(".")[0] in TABLES | {"losses"}
            and not word.endswith((".toml", ".zip"))
        ):
            module = name if name.startswith("foster.") else f"foster.{name}"
            is_known = name in KEYS | TABLES or is_importable(module)
        else:
            continue
        if not is_known:
            yield word


def test_what_stands_in_code_letters_is_there() -> None:
    known_options = options()
    checked = 0
    problems = []
    for page in PAGES:
        for text in re.findall(r"`([^`]+)`", FENCED.sub("", page.read_text(encoding="utf-8"))):
            checked += 1
            problems += [f"{page.name}: {word} in `{text}`" for word in unknown(text, known_options)]
    assert problems == []
    assert checked > 500


def test_what_python_examples_take_from_foster_is_there() -> None:
    problems = []
    names = 0
    for page in PAGES:
        for language, code in FENCED.findall(page.read_text(encoding="utf-8")):
            if language != "python":
                continue
            for node in ast.walk(ast.parse(re.sub(r"^   ", "", code, flags=re.MULTILINE) if code[0] == " " else code)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("foster"):
                    asked = [f"{node.module}.{alias.name}" for alias in node.names]
                elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "foster":
                    asked = [f"foster.{node.attr}"]
                else:
                    continue
                names += len(asked)
                problems += [f"{page.name}: {name}" for name in asked if not is_importable(name)]
    assert problems == []
    assert names > 15


def test_the_values_on_the_page_on_the_paper_are_taken_the_default_first() -> None:
    table = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8").partition("## Where paper")[0]
    checked = 0
    for key, values in re.findall(r"`(\w+)` = (`\w+`(?: \([^)]*\))?(?:, `\w+`(?: \([^)]*\))?)+)", table):
        named = re.findall(r"`(\w+)`", values)
        taken = get_args(FosterSettings.model_fields[key].annotation)
        assert sorted(named) == sorted(taken), key
        assert named[0] == FosterSettings.model_fields[key].default, key
        checked += 1
    assert checked >= 6


def test_what_the_page_of_python_shows_is_there() -> None:
    shown = re.findall(r"^::: (\S+)$", (ROOT / "docs" / "api.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert [name for name in shown if not is_importable(name)] == []
    assert len(shown) > 30


def test_the_table_of_packages_has_every_package_and_no_other() -> None:
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("| package in")[2].partition("\n\n")[0]
    told = [name for line in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", line.split("|")[1])]
    assert sorted(told) == sorted(path.parent.name for path in (ROOT / "src" / "foster").glob("*/__init__.py"))


@pytest.mark.parametrize(
    "text",
    [
        "src/foster/training/loop.py",
        "foster.reports.gone",
        "engine.speed",
        "predict --tpo",
        "memory_toal=5",
        "losses.l2",
    ],
)
def test_a_name_that_is_not_there_is_noticed(text: str) -> None:
    assert list(unknown(text, options()))
