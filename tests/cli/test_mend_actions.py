"""A bundle that is mended is written whole or not at all, by one process at a time; what is printed about it."""

from pathlib import Path

import pytest
import torch
from commands import Command, contents
from full_disk import FullDisk

from foster.bundle.manifest import read_manifest
from foster.cli.mend_actions import mend_text, old_bundle_text
from foster.learner.reports import MendReport, Remains
from foster.learner.update_check import compare
from foster.learner.work_folder import WorkFolder

CHECK = compare("held-out", [0, 1], [0, 1], [0, 0], ("cat", "dog"), 2)


@pytest.mark.parametrize("file", ["network.safetensors", "bundle.json", ".png"])
def test_a_full_disk_leaves_no_half_of_a_bundle(
    command: Command, bundle: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    before, disk = contents(bundle), FullDisk(file, num_whole=0)
    with monkeypatch.context() as patch:
        patch.setattr("os.write", disk)
        done = command("rename", bundle, "zero", "nil", "--bundle", "v2", "--promote")
    assert disk.has_failed
    assert done.code == 2
    assert "No space left on device" in done.err
    assert [path.name for path in Path().iterdir()] == ["v1"]
    assert contents(bundle) == before
    assert command("rename", bundle, "zero", "nil", "--bundle", "v2").code == 0


def test_what_a_killed_writer_left_goes_and_an_interrupted_learn_stays(command: Command, bundle: Path) -> None:
    left = Path(".v2.abcdefgh.part")
    left.mkdir()
    (left / "network.safetensors").write_bytes(b"half")
    kept = WorkFolder.beside(Path("v2")).checkpoints.folder
    kept.mkdir(parents=True)
    (kept / "manifest.json").touch()
    assert command("rename", bundle, "zero", "nil", "--bundle", "v2").code == 0
    assert not left.exists()
    assert kept.is_dir()


def test_a_bundle_that_another_process_writes_is_left_alone(command: Command, bundle: Path) -> None:
    with WorkFolder.beside(Path("v2")).held():
        done = command("rename", bundle, "zero", "nil", "--bundle", "v2")
    assert done.code == 2
    assert "is being written by process" in done.err
    assert not Path("v2").exists()


def test_too_large_a_loss_is_shown_and_refused(command: Command, bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 64
    row = (torch.zeros(size), torch.tensor(-100.0))
    monkeypatch.setattr("foster.learner.regrouping.merged_row", lambda *parts: row)
    done = command("merge", bundle, "zero", "one", "--into", "both", "--bundle", "v2", "--device", "cpu")
    assert done.code == 3
    assert "right -> wrong" in done.out
    assert "by more than 1 points; nothing was changed" in done.err
    assert "--max-drop sets the limit" in done.err
    assert not Path("v2").exists()
    allowed = ("--bundle", "v2", "--device", "cpu", "--max-drop", 100)
    assert command("merge", bundle, "zero", "one", "--into", "both", *allowed).code == 0
    assert read_manifest(Path("v2")).classes == ("both", "two")


def test_what_cannot_be_shown_is_said_once(command: Command, bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w") as full, monkeypatch.context() as patch:
        patch.setattr("sys.stdout", full)
        patch.setattr("foster.cli.mend_actions._show", lambda report: None)
        done = command("forget", bundle, "zero", "--bundle", "v2", "--device", "cpu", "--max-drop", 100, "--promote")
    assert done.err.count("cannot write to standard output (No space left on device)") == 1
    assert Path("current").readlink() == Path("v2")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("merge", "zero", "nine", "--into", "both"), "class 'nine' is not known"),
        (("merge", "zero", "one", "--into", "unknown"), "are called 'unknown', in answers and in test folders"),
        (("forget", "nine"), "class 'nine' is not known"),
        (("rename", "zero", "unknown"), "choose another name (the new name)"),
    ],
)
def test_wrong_arguments_are_told_before_anything_is_compared(
    command: Command, bundle: Path, words: tuple[str, ...], line: str
) -> None:
    done = command(words[0], bundle, *words[1:], "--bundle", "v2")
    assert done.code == 2
    assert line in done.err
    assert done.err.count("\n") == 1
    assert not Path("v2").exists()


def test_a_merge_says_how_near_it_is_to_the_sum() -> None:
    report = MendReport(
        {"cat": "pet", "dog": "pet"}, (), 30, 4, (CHECK,), largest_difference=0.123, mean_difference=0.0149
    )
    told = mend_text(report)
    assert told.startswith("merged cat, dog into pet: 30 exemplars and 4 held-out photos of it are kept\n")
    assert "by 1.5 points on average and 12.3 at most, on the held-out photos" in told
    assert "right -> wrong" in told


def test_forgetting_says_what_remains_and_where() -> None:
    answers = {"dog": 4, "cow": 2, "pig": 1, "hen": 1}
    remains = (Remains("cat", "held-out", 8, 7, answers), Remains("fox", "exemplar", 3, None, {"dog": 3}))
    report = MendReport({}, ("cat", "fox"), 40, 8, (CHECK,), remains=remains)
    told = mend_text(report)
    assert told.startswith("forgot cat, fox: their outputs and their means, 40 exemplars and 8 held-out photos")
    assert "by its features 7 of 8 held-out photos of it could still be told from the others" in told
    assert "They are now taken for dog (4), cow (2), pig (1), ..." in told
    assert "cannot be measured without exemplars" in told
    assert old_bundle_text(Path("b/v1"), report).startswith("b/v1 and bundles before it still keep photos of cat, fox")


def test_a_name_cannot_move_the_cursor() -> None:
    assert mend_text(MendReport({"a\x1b[2J": "b\x1b"})) == "renamed a\ufffd[2J to b\ufffd\n"
