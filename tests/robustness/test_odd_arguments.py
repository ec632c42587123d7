"""Arguments that nobody should give: one line and an exit code, never a traceback."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from limits import time_limit

from foster.cli import main

COMMANDS = (
    ("learn", "~nosuch/x", "--bundle", "v1"),
    ("learn", ".", "--bundle", "~nosuch/x"),
    ("learn", ".", "--bundle", "v1", "--from", "~nosuch/x"),
    ("predict", "~nosuch/x", "photo.png"),
    ("predict", "BUNDLE", "~nosuch/x"),
    ("evaluate", "BUNDLE", "~nosuch/x"),
    ("export", "~nosuch/x", "x.onnx"),
    ("info", "~nosuch/x"),
    ("info", "~nosuch/x", "--exemplars"),
    ("promote", "~nosuch/x"),
    ("rollback", "~nosuch/x"),
    ("run", "~nosuch/x.toml"),
    ("run", "cifar100-b0-inc10", "--data", "~nosuch/x", "device=cpu"),
    ("resume", "~nosuch/x"),
    ("plan", "~nosuch/x.toml"),
    ("sweep", "digits", "--data", "~nosuch/x"),
    ("table", "~nosuch/x"),
    ("run", "digits", "foster.first.learning_rate=1e39"),
    ("run", "digits", "foster.first.weight_decay=1e39"),
    ("learn", ".", "--bundle", "v1", "learning_rate_scale=1e39"),
    ("learn", ".", "--bundle", "v1", "epochs_scale=1e300"),
    ("sweep", "digits", "--jobs", "99999999999999999999"),
    ("sweep", "digits", "--jobs-per-gpu", "99999999999999999999"),
)


@pytest.fixture
def foster(
    small_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """The command, in an empty folder of its own: its exit code and what it says on standard error."""
    monkeypatch.chdir(tmp_path)

    def no_network(*given: object, **options: object) -> None:
        raise OSError("no network in tests")

    monkeypatch.setattr("urllib.request.OpenerDirector.open", no_network)

    def run(*given: str) -> tuple[int, str]:
        arguments = [str(small_bundle) if part == "BUNDLE" else part for part in given]
        monkeypatch.setattr("sys.argv", ["foster", *arguments])
        with time_limit(60), pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), capsys.readouterr().err

    return run


@pytest.mark.parametrize("given", COMMANDS, ids=" ".join)
def test_a_home_of_nobody_and_numbers_beyond_all_bounds_are_one_line(
    given: tuple[str, ...], foster: Callable[..., tuple[int, str]]
) -> None:
    code, said = foster(*given)
    assert code in (1, 2)
    assert said
    assert "Traceback" not in said


def test_a_title_of_any_bytes_is_drawn(foster: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    results = min((Path(__file__).parents[2] / "results").glob("*.json"))
    code, said = foster("table", str(results), "--title", os.fsdecode(b"caf\xe9 \x1b[31m"), "--figure", "x.png")
    assert (code, said) == (0, "")
    assert (tmp_path / "x.png").stat().st_size > 1000


@pytest.mark.parametrize("given", [("run", "digits", "--out=~/x"), ("info", "~/x"), ("table", "~/x")])
def test_a_home_is_found_wherever_a_path_is_asked_for(
    given: tuple[str, ...], foster: Callable[..., tuple[int, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "x").write_text("neither a run, nor a bundle, nor a photo")
    code, said = foster(*given)
    assert code in (1, 2)
    assert str(tmp_path / "x") in said
