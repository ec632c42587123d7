"""Commands that show: presets, methods, table, compare; what they print where, and what they refuse."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import Command

from foster.settings.experiment import load_settings
from foster.settings.methods import METHOD_SETTINGS
from foster.settings.toml import packaged_names


@pytest.fixture
def run(write_run: Callable[..., Path], command: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command in a folder with three runs of two recipes."""
    monkeypatch.delenv("COLUMNS", raising=False)
    facts = {"scenario": "cifar100-b0-inc10", "augmentation": "auto", "params": 4_699_140, "train_seconds": 8000.0}
    for seed, temperature in ((1, 2.0), (2, 2.0), (1, 4.0)):
        accuracy = [95.0 - 4 * task - seed for task in range(10)]
        settings = {"foster": {"temperature": temperature, "an_uncommonly_long_name_of_a_setting": temperature}}
        name = f"runs/{seed}-{temperature}"
        write_run(name, accuracy, [10] * 10, seed=seed, variants={}, settings=settings, **facts)

    return command


def test_a_table_in_a_file_has_all_columns_and_a_line_a_row(run: Command) -> None:
    title, header, _, *rows = run("table", "runs").out.splitlines()
    assert title == "cifar100-b0-inc10: percent, by head, augment auto"
    assert header.split() == [*("method", "class", "order", "n", "average", "final", "forgetting", "params", "time")]
    assert [row.split()[-5:] for row in rows[:3]] == [["4,699,140", "2", "h", "13", "min"]] * 3
    assert len([row for row in rows[3:] if row]) == 1, "and that class orders cannot be compared"
    _, header, _, *rows = run("table", "runs", "--by-task").out.splitlines()
    assert header.split()[-11:] == [*map(str, range(10, 101, 10)), "average"]
    *rows, note = [row for row in rows if row.strip()]
    assert len(rows) == 3
    assert "class orders" in note
    assert run("table", "runs", "--by-task", "--across-orders").code == 2
    for options, num_groups in (((), 3), (("--across-orders",), 2)):
        assert len(json.loads(run("table", "runs", "--json", *options).out)) == num_groups
        assert run("table", "runs", "--markdown", *options).out.count("| foster") == num_groups


def test_the_path_that_is_printed_is_that_of_the_figure_and_its_options_are_used(run: Command, tmp_path: Path) -> None:
    done = run("figure", "accuracy", "runs", "--out", "new/curves.svg", "--width", "4", "--title", "Ours")
    assert done.out.splitlines()[-1] == "figure: new/curves.svg"
    drawn = (tmp_path / "new" / "curves.svg").read_text(encoding="utf-8")
    assert drawn.count('id="axes_') == 2
    assert 'width="288pt"' in drawn


def test_what_is_shown_gets_the_options(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []

    def write_report(subjects: list[Path], out: Path, data: Path | None = None) -> None:
        out.touch()
        told.append(data)

    monkeypatch.setattr("foster.reports.html.write_report", write_report)
    monkeypatch.setattr("foster.reports.style.save_figure", lambda drawn, path: None)
    monkeypatch.setattr("foster.reports.figures.figure", lambda kind, subjects, data=None: told.append(data))
    monkeypatch.setattr("foster.reports.watching.watch", lambda path, is_once: told.append(is_once))
    for words in (("report", "runs", "--data", "a"), ("figure", "exemplars", "runs", "--data", "b"), ("watch", "runs")):
        run(*words)
    assert told == [Path("a"), Path("b"), False]


@pytest.mark.parametrize("kind", ["presets", "recipes", "methods", "datasets", "backbones", "studies"])
def test_every_kind_is_listed_a_name_a_line_and_all_kinds_together(kind: str, command: Command) -> None:
    done = command("list", kind)
    assert done.code == 0
    names = [line.split()[0] for line in done.out.splitlines() if not line.startswith(" ")]
    together = command("list").out.replace("\n", " ")
    assert names
    assert kind == "backbones" or all(f" {name}" in together for name in names)
    if kind in ("presets", "recipes", "studies"):
        assert names == packaged_names(kind)
    if kind == "methods":
        assert names == list(METHOD_SETTINGS)


@pytest.mark.parametrize("name", ["digits", "cifar100-b50-inc1"])
def test_a_shown_preset_is_a_complete_settings_file(name: str, command: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(command("list", "presets", name).out, encoding="utf-8")
    assert load_settings("mine.toml") == load_settings(name)


@pytest.mark.parametrize("name", METHOD_SETTINGS)
def test_a_shown_method_has_its_paper_and_all_settings_with_their_defaults(name: str, command: Command) -> None:
    text, settings = command("list", "methods", name).out, METHOD_SETTINGS[name]
    assert settings.model_validate(tomllib.loads(text)[name]) == settings()
    words = " ".join(text.replace("\n# ", " ").split())
    assert settings.summary in words
    assert settings.paper in words
    assert f"published results: {settings.published_augmentation}." in words
    by_mean = name in ("icarl", "podnet", "coil")
    assert ("Classified by: nearest mean." in words) == by_mean


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("figure", "accuracy", "nothing"), "'nothing'"),
        (("figure", "accurcy", "nothing"), "'accuracy'"),
        (("figure", "accuracy", "nothing", "--out", "a.txt"), ".png"),
        (("report", "nothing"), "'nothing'"),
        (("report", "nothing", "--out", "report.pdf"), "'report.pdf'"),
        (("report", "nothing", "--out", "."), "'.'"),
        (("watch", "nothing"), "nothing"),
    ],
)
def test_what_cannot_be_drawn_or_watched_is_one_line(
    words: tuple[str, ...], message: str, command: Command, tmp_path: Path
) -> None:
    done = command(*words)
    assert done.code == 2
    assert done.err.startswith("foster: ")
    assert message in done.err
    assert done.err.count("\n") == 1
    assert not list(tmp_path.iterdir())
