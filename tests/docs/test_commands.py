"""Every command that README and docs show is one that `foster` understands, down to its settings."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

from foster.cli import app
from foster.settings.learner import learner_settings
from foster.settings.toml import packaged_names
from foster.studies.study import load_study, plan_study
from foster.sweep.grid import plan_runs

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
FENCED = re.compile(r"^```(?:\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`foster ([a-z-]+ [^`]+)`")
CALL = re.compile(r"(?:^|&& |-m |; )(?:\$ )?foster ([a-z][^&|>;\n]*)", re.MULTILINE)


def commands() -> list[str]:
    """What follows the word foster where a shell's command begins, and `foster ...` in the text."""
    found = []
    for page in PAGES:
        text = re.sub(r"\\\n\s*", " ", page.read_text(encoding="utf-8"))
        found += [call for block in FENCED.findall(text) for call in CALL.findall(block)]
        found += [call.replace("\n", " ") for call in INLINE.findall(FENCED.sub("", text))]
    # `foster learn ...` only stands for a command.
    return sorted({call.partition(" #")[0].strip() for call in found if "..." not in call})


def check(line: str) -> None:
    name, *words = shlex.split(line)
    try:
        given = get_command(app).commands[name].make_context(name, words).params  # type: ignore[attr-defined]
    except typer.Exit:  # such as --help
        return
    if given.get("plugins"):
        return
    pairs = list(given.get("overrides") or ())
    if name in ("run", "plan", "sweep") and given["source"] in packaged_names("presets"):
        recipe = [f"recipe={given['recipe']}"] if given.get("recipe") else []
        assert plan_runs(given["source"], [*recipe, *pairs], samples=given.get("samples") or 0)
    elif name == "learn":
        learner_settings(pairs)
    elif name == "study":
        words = given["words"] or []
        for study in set(words) & set(packaged_names("studies")):
            assert plan_study(load_study(study), given["preset"], [word for word in words if "=" in word])


def test_the_commands_of_the_documentation_are_understood(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("foster.settings.plugins.load_plugins", lambda names: None)
    problems = []
    lines = commands()
    for line in lines:
        try:
            check(line)
        except Exception as error:
            # In the text, an option may be named beside its command and nothing else; a folder of photos is not there.
            if type(error).__name__ not in ("MissingParameter", "DataError"):
                problems.append(f"foster {line}: {error!r}")
    assert problems == []
    assert len(lines) > 60


@pytest.mark.parametrize(
    "line", ["lern photos", "predict bundle a.jpg --tpo 2", "run digits sed=1", "study beta foster.beta_bost=1"]
)
def test_a_wrong_one_is_noticed(line: str) -> None:
    with pytest.raises(Exception, match=r"lern|tpo|sed|beta_bost"):
        check(line)
