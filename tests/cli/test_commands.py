"""The command line: what it prints, its exit codes, and that bad input changes nothing."""

import json
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import foster
import foster.cli.demo
from foster.cli import main
from foster.settings.experiment import load_settings, preset_names
from foster.settings.methods import METHOD_SETTINGS
from foster.settings.recipes import recipe_names

TINY = (
    "dataset=synthetic",
    "synthetic={num_classes=4, train_per_class=8, test_per_class=3, image_size=8}",
    "base_classes=2",
    "increment=2",
    "memory_total=8",
    "epochs_scale=0.005",
    "device=cpu",
    "engine.threads=1",
)


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[..., Outcome]


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """Runs the command in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.fsync", lambda descriptor: None)

    def run(*arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["foster", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        captured = capsys.readouterr()
        return Outcome(int(caught.value.code or 0), captured.out, captured.err)

    return run


def python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, timeout=120)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_help_lists_presets_and_methods_never_load_torch(tmp_path: Path) -> None:
    script = """
import sys
from foster.cli import main
for arguments in (["--help"], ["--version"], ["presets"], ["presets", "--show", "digits"], ["methods"],
                  ["methods", "--show", "foster"], ["run", "--help"], ["run", "digit"], ["plan", "digits", "sed=3"]):
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


def test_the_module_is_the_command_and_its_errors_are_one_line_with_exit_code_2(tmp_path: Path) -> None:
    done = python("-m", "foster", "run", "digitz", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "foster: unknown preset 'digitz'; did you mean 'digits'? (a settings file ends in .toml)\n"
    assert list(tmp_path.iterdir()) == []


def test_the_version_is_that_of_the_package(command: Command) -> None:
    assert command("--version") == Outcome(0, f"foster {foster.__version__}\n", "")


def test_help_names_every_command(command: Command) -> None:
    done = command("--help")
    assert done.code == 0
    for name in ("run", "resume", "plan", "demo", "presets", "methods", "table", "compare"):
        assert f" {name} " in done.out


def test_presets_are_listed_with_what_they_are(command: Command) -> None:
    done = command("presets")
    assert done.code == 0
    lines = done.out.splitlines()
    names = [line.split("  ")[0] for line in lines]
    assert names == [*preset_names(), *(f"--recipe {name}" for name in recipe_names())]
    assert all(len(line.split()) > 5 for line in lines)


@pytest.mark.parametrize("name", ["digits", "cifar100-b50-inc1"])
def test_a_shown_preset_is_a_complete_settings_file(name: str, command: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(command("presets", "--show", name).out, encoding="utf-8")
    assert load_settings("mine.toml") == load_settings(name)


def test_methods_are_listed_with_paper_and_settings_and_shown_with_values(command: Command) -> None:
    *paragraphs, hint = command("methods").out.split("\n\n")
    assert "--show NAME" in hint
    for (name, settings), paragraph in zip(METHOD_SETTINGS.items(), paragraphs, strict=True):
        told = " ".join(paragraph.split())
        assert told.startswith(f"{name} {settings.summary} {settings.paper} classified by: ")
        assert f"augmentation of its published results: {settings.published_augmentation} " in told
        words = set(told.replace(",", " ").split())
        assert {f"{name}.{key}" for key in settings.model_fields} == {
            word for word in words if word.startswith(f"{name}.")
        }
    classifiers = [line.split(": ")[1] for line in "\n".join(paragraphs).splitlines() if "classified by: " in line]
    by_mean = [name for name, found in zip(METHOD_SETTINGS, classifiers, strict=True) if found == "nearest mean"]
    assert by_mean == ["icarl", "podnet", "coil"]
    assert set(classifiers) == {"head", "nearest mean"}
    shown = tomllib.loads(command("methods", "--show", "foster").out)
    assert shown["foster"]["boost"]["epochs"] == 170
    assert METHOD_SETTINGS["foster"].model_validate(shown["foster"]) == METHOD_SETTINGS["foster"]()


def test_a_plan_is_shown_and_nothing_is_written(command: Command, tmp_path: Path) -> None:
    done = command("plan", "digits", "method=replay")
    assert done.code == 0
    assert "method replay" in done.out
    assert "exemplars" in done.out
    assert "note:" not in done.out
    assert list(tmp_path.iterdir()) == []
    noted = command("plan", "digits", "method=replay", "replay.later.epochs=20")
    assert noted.out.splitlines()[-1].startswith("note: replay.later.milestones: [30, 50] lie beyond its 20 epochs")


def test_a_run_is_written_shown_and_can_be_run_again(command: Command, tmp_path: Path) -> None:
    first = command("run", "digits", *TINY)
    assert first.code == 0, first.err
    folder = tmp_path / "runs" / "synthetic-b0-inc2-foster-shift-s1993"
    assert {"settings.toml", "events.jsonl", "results.json"} <= {path.name for path in folder.iterdir()}
    assert "results.json" in first.out
    assert "boost" in first.err, "progress goes to standard error"
    again = command("run", str(folder.relative_to(tmp_path) / "settings.toml"), "--out", "again", "--quiet")
    assert again.code == 0
    assert again.err == ""
    results = [json.loads((path / "results.json").read_text()) for path in (folder, tmp_path / "again")]
    assert results[0]["accuracy_matrix"] == results[1]["accuracy_matrix"]

    before = contents(tmp_path)
    refused = command("run", "digits", *TINY)
    assert refused.code == 2
    assert refused.err.startswith("foster: ")
    assert "already holds a run, which is finished; choose another folder with --out" in refused.err
    assert refused.err.count("\n") == 1
    assert contents(tmp_path) == before

    resumed = command("resume", str(folder))
    assert resumed.code == 0
    assert "nothing is left to do" in resumed.err
    table = command("table", "runs", "again", "--markdown")
    assert table.code == 0
    assert "| foster" in table.out
    compared = command("compare", "runs", "again", "--figure", "both.png")
    assert compared.code == 0
    assert (tmp_path / "both.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "digits", "method=fostr"), "did you mean 'foster'?"),
        (("run", "digits", "sed=3"), "did you mean 'seed'?"),
        (("run", "digits", "memory_per_class=3"), "not both"),
        (("run", "digits", "batch_size=0"), "batch_size: input should be greater than or equal to 2, not 0"),
        (("run", "no/such.toml"), "cannot read settings file"),
        (("run", "digits", "dataset=synthetic", "backbone=resnet9"), "unknown backbone 'resnet9'"),
        (("plan", "digits", "backbone=resnet9"), "unknown backbone 'resnet9'"),
        (("run", "digits", "method=replay", "wa.temperature=9"), "wa.temperature has no effect: the method is replay"),
        (("plan", "digits", "synthetic.num_classes=9"), "synthetic.num_classes has no effect: the dataset is digits"),
        (("run", "digits", "wa.lr=0.1"), "unknown key 'wa.lr'; did you mean 'wa."),
        (("plan", "digits", "foster.unlabeled=nonsense"), "'nonsense' is neither a folder nor a dataset"),
        (("resume", "nothing"), "holds no run"),
        (("table", "nothing"), "no folder 'nothing'"),
        (("presets", "--show", "digit"), "did you mean 'digits'?"),
        (("methods", "--show", "icarll"), "did you mean 'icarl'?"),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2_and_writes_nothing(
    arguments: tuple[str, ...], message: str, command: Command, tmp_path: Path
) -> None:
    done = command(*arguments)
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("foster: ")
    assert message in done.err
    assert done.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_training_that_fails_has_another_exit_code_than_bad_input(command: Command) -> None:
    done = command("run", "digits", *TINY, "batch_size=4", "foster.first.learning_rate=1e30", "--quiet")
    assert done.code == 1
    assert "in task 1, phase learn, epoch 1" in done.err
    assert done.err.count("\n") == 1


def test_the_demo_compares_three_methods_and_draws_them(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foster.cli.demo, "load_settings", lambda source, more=(): load_settings(source, [*TINY, *more]))
    for folder in ("demo", "demo-2"):
        done = command("demo", "--out", "demo", "--quiet")
        assert done.code == 0, done.err
        assert {path.name for path in (tmp_path / folder).iterdir()} == {"finetune", "replay", "foster", "accuracy.png"}
        assert f"runs:   {folder}" in done.out
        for name, said in (
            (
                "finetune",
                "Fine-tuning ends at {all} %: {new} % on the 2 classes that it learned last, {old} % on the 2",
            ),
            ("foster", "FOSTER ends at {all} %: {new} % and {old} %, with one backbone and 8 exemplars."),
        ):
            found = json.loads((tmp_path / folder / name / "results.json").read_text())
            last = {"all": found["accuracy"][-1], "new": found["new_accuracy"][-1], "old": found["old_accuracy"][-1]}
            text = " ".join(done.out.split())  # a narrow terminal breaks lines
            assert said.format(**{key: round(value) for key, value in last.items()}) in text
