"""How commands end: standard output that is full or left by its reader, signals, and names that are printed."""

import json
import os
import signal
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from commands import Command
from forked import forking, write_and_wait

import foster
from foster.bundle.folder import read_manifest
from foster.cli import one_line
from foster.system.locking import locked
from foster.system.signals import Stopped


def shell(command: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """A command line of bash, in which `foster` is the command; PIPESTATUS is that of all parts of a pipe."""
    script = f'foster() {{ "{sys.executable}" -m foster "$@"; }}; {command}'
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    return subprocess.run(
        ["bash", "-c", script], cwd=folder, env=kept, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
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


@pytest.mark.parametrize(
    ("error", "exit_code", "said"),
    [
        (KeyboardInterrupt(), 130, "foster: interrupted\n"),
        (BrokenPipeError(), 141, ""),
        (Stopped(signal.SIGHUP), 129, "foster: stopped by SIGHUP\n"),
        (MemoryError("1 GiB"), 2, "foster: out of memory: 1 GiB\n"),
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


def unpacked(bundle: Path, folder: Path) -> Path:
    """A folder with the images of a bundle."""
    with zipfile.ZipFile(bundle / "photos.zip") as images:
        images.extractall(folder)
    return folder


def test_a_bundle_that_could_not_be_promoted_is_said_to_be_saved(
    small_bundle: Path, tmp_path: Path, command: Command
) -> None:
    photos = unpacked(small_bundle, tmp_path / "photos") / "exemplars"
    given = ["learn", str(photos), "--bundle", str(tmp_path / "v1"), "--promote", "--quiet"]
    settings = ["backbone=resnet8", "epochs_scale=0.006", "device=cpu", "validation_share=0"]
    with locked(tmp_path, ".current.lock"):
        said = command(*given, *settings)
    assert said.code == 2
    assert said.err.rstrip().endswith(f"foster promote {tmp_path / 'v1'}")
    read_manifest(tmp_path / "v1")


@pytest.mark.parametrize("style", ["--json", "--top=1"])
def test_a_class_name_moves_no_cursor(
    style: str, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    learner = foster.load(bundle, device="cpu")
    learner.knowledge = replace(learner.knowledge, class_names=("\x1b[31mred\x07", "\x9b31mred\x07"))
    learner.save(tmp_path / "v2")
    image = unpacked(bundle, tmp_path / "photos") / read_manifest(bundle).exemplars[0].file
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    shown = command("predict", tmp_path / "v2", image, style, "--device=cpu").out
    assert "red" in shown
    assert all(character.isprintable() or character == "\n" for character in shown)
    if style == "--json":
        assert json.loads(shown)["label"] in ("\x1b[31mred\x07", "\x9b31mred\x07")


def test_a_sigterm_ends_what_cannot_be_continued_and_leaves_nothing(default_signals: None, tmp_path: Path) -> None:
    folder, said = tmp_path / "folder", tmp_path / "said"
    folder.mkdir()
    process = forking().Process(target=write_and_wait, args=(folder, said))
    process.start()
    process.join(60)
    assert (process.exitcode, said.read_text()) == (143, "foster: stopped by SIGTERM\n")
    assert list(folder.iterdir()) == []
