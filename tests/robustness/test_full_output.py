"""Standard output and standard error may be closed, full or left by their reader: no traceback, nothing is lost."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from forked import forking
from quick_export import made_at_once
from tiny_runs import OVERRIDES

import foster
from foster import cli
from foster.bundle.manifest import read_manifest
from foster.cli import main, one_line
from foster.experiment.folder import RunFolder
from foster.system.files import writing
from foster.system.locking import locked
from foster.system.signals import Stopped

FULL = Path("/dev/full")
needs_full_device = pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")


def shell(command: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """A command line of bash, in which `foster` is the command; PIPESTATUS is that of all parts of a pipe."""
    script = f'foster() {{ "{sys.executable}" -m foster "$@"; }}; {command}'
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    return subprocess.run(
        ["bash", "-c", script], cwd=folder, env=kept, capture_output=True, text=True, timeout=120, check=False
    )


@needs_full_device
def test_output_onto_a_full_disk_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    done = shell("foster list presets digits > /dev/full", tmp_path)
    assert done.returncode == 2
    assert "No space left on device" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    """It is gone before anything is written."""
    done = shell("(sleep 0.3; foster --help) | exec true; exit ${PIPESTATUS[0]}", tmp_path)
    assert done.stderr == ""
    assert done.returncode == 141


@contextmanager
def full_output() -> Iterator[None]:
    """Standard output of this process on a full disk."""
    before = sys.stdout
    sys.stdout = FULL.open("w", encoding="utf-8")
    try:
        yield
    finally:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        sys.stdout.close()
        sys.stdout = before


@pytest.fixture
def onto_full_disk(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, list[str]]]:
    """`foster`, in this process: its exit code and the lines that it complains."""

    def run(*given: str) -> tuple[int, list[str]]:
        monkeypatch.setattr("sys.argv", ["foster", *given])
        with full_output(), pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), capsys.readouterr().err.splitlines()

    return run


@needs_full_device
def test_a_run_that_is_finished_has_not_failed_because_its_table_cannot_be_printed(
    tmp_path: Path, onto_full_disk: Callable[..., tuple[int, list[str]]]
) -> None:
    path = tmp_path / "run"
    said = f"foster: cannot write to standard output (No space left on device); all is done and saved in '{path}'"
    given = ["run", "digits", *OVERRIDES, "method=finetune", "--out", str(path), "--quiet"]
    assert onto_full_disk(*given) == (0, [said])
    assert RunFolder(path).is_finished
    finished = f"foster: '{path}' is finished; nothing is left to do"
    assert onto_full_disk("resume", str(path)) == (0, [finished, said])


@needs_full_device
def test_a_learn_whose_report_cannot_be_printed_has_written_and_promoted_its_bundle(
    small_bundle: Path, tmp_path: Path, onto_full_disk: Callable[..., tuple[int, list[str]]]
) -> None:
    photos, bundle = str(small_bundle / "exemplars"), tmp_path / "v1"
    settings = ["backbone=resnet8", "epochs_scale=0.006", "device=cpu", "validation_share=0"]
    code, lines = onto_full_disk("learn", photos, "--bundle", str(bundle), "--promote", "--quiet", *settings)
    assert (code, len(lines)) == (0, 1)
    assert f"'{bundle}'" in lines[0]
    assert (tmp_path / "current").resolve() == bundle


@pytest.mark.parametrize(
    ("error", "exit_code", "said"),
    [
        (KeyboardInterrupt(), 130, "foster: interrupted\n"),
        (BrokenPipeError(), 141, ""),
        (Stopped(signal.SIGHUP), 129, "foster: stopped by SIGHUP\n"),
        (PermissionError(13, "Permission denied", "/x"), 2, "foster: cannot read or write '/x': Permission denied\n"),
    ],
)
def test_every_end_has_its_code_and_its_word(
    error: BaseException, exit_code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended, one_line():
        raise error
    assert ended.value.code == exit_code
    assert capsys.readouterr() == ("", said)


@pytest.fixture
def photos(small_bundle: Path, tmp_path: Path) -> Path:
    """Two classes, one of which Latin-1 cannot write."""
    for number, name in enumerate(("\u732b", "owl")):
        shutil.copytree(small_bundle / "exemplars" / f"000{number}", tmp_path / "photos" / name)
    return tmp_path / "photos"


LEARNING = ["backbone=resnet8", "epochs_scale=0.006", "device=cpu", "validation_share=0", "--quiet"]


@needs_full_device
def test_what_is_promoted_rolled_back_exported_or_removed_has_not_failed_because_nothing_can_be_printed(
    bundle: Path,
    small_bundle: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    onto_full_disk: Callable[..., tuple[int, list[str]]],
) -> None:
    monkeypatch.setattr("foster.learner.export.as_onnx", made_at_once())
    other = shutil.copytree(small_bundle, tmp_path / "v2")
    removed = read_manifest(bundle).exemplars[0].id
    for given in (
        ("promote", str(bundle)),
        ("promote", str(other)),
        ("rollback", str(tmp_path)),
        ("forget", str(bundle), "--image", removed, "--bundle", str(tmp_path / "v3")),
        ("info", str(bundle), "--sheet", str(tmp_path / "sheet.png")),
        ("export", str(other), str(tmp_path / "network.onnx")),
    ):
        code, lines = onto_full_disk(*given)
        lines = [line for line in lines if not line.startswith("exporting and checking")]
        assert (code, len(lines)) == (0, 1), lines
        assert "saved in" in lines[0]
    assert (tmp_path / "current").resolve() == bundle
    assert removed not in {entry.id for entry in read_manifest(tmp_path / "v3").exemplars}


def test_a_bundle_that_could_not_be_promoted_is_said_to_be_saved(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["foster", "learn", str(photos), "--bundle", str(tmp_path / "v1"), "--promote", *LEARNING]
    monkeypatch.setattr("sys.argv", arguments)
    with locked(tmp_path, ".current.lock"), pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert "v1: 2 classes" in said.out
    assert "is saved, but not promoted: " in said.err
    assert said.err.rstrip().endswith(f"foster promote {tmp_path / 'v1'}")
    read_manifest(tmp_path / "v1")


@pytest.mark.parametrize("style", ["--json", "--csv", "--top=1"])
def test_a_class_name_moves_no_cursor(
    style: str, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    learner = foster.load(bundle, device="cpu")
    learner.knowledge = replace(learner.knowledge, class_names=("\x1b[31mred\x07", "\x9b31mred\x07"))
    learner.save(tmp_path / "v2")
    image = str(bundle / read_manifest(bundle).exemplars[0].file)
    monkeypatch.setattr("sys.argv", ["foster", "predict", str(tmp_path / "v2"), image, style, "--device=cpu"])
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with pytest.raises(SystemExit):
        main()
    shown = capsys.readouterr().out
    assert "red" in shown
    assert all(character.isprintable() or character == "\n" for character in shown)
    if style == "--json":
        assert json.loads(shown)["label"] in ("\x1b[31mred\x07", "\x9b31mred\x07")


def _write_and_wait(folder: Path, said: Path) -> None:
    """As a command does that cannot be continued later."""

    def work() -> None:
        with writing(folder / "x.onnx"):
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()

    os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT), 2)
    cli.app = work  # type: ignore[assignment]
    main()


def test_a_sigterm_ends_what_cannot_be_continued_and_leaves_nothing(default_signals: None, tmp_path: Path) -> None:
    folder, said = tmp_path / "folder", tmp_path / "said"
    folder.mkdir()
    process = forking().Process(target=_write_and_wait, args=(folder, said))
    process.start()
    process.join(60)
    assert (process.exitcode, said.read_text()) == (143, "foster: stopped by SIGTERM\n")
    assert list(folder.iterdir()) == []
