"""Commands that mend a classifier: new bundles beside the old ones."""

from pathlib import Path

import pytest
from commands import Command, contents, write_photos

import foster
from foster.bundle.manifest import read_manifest


def test_a_class_is_renamed_merged_and_forgotten_in_new_bundles(command: Command, bundle: Path) -> None:
    before = contents(bundle)
    command("promote", bundle)
    renamed = command("rename", "current", "zero", "Nüll 零", "--bundle", "v2", "--promote")
    assert renamed.code == 0, renamed.err
    assert "renamed zero to Nüll 零" in renamed.out
    assert "current -> v2 (before: v1)" in renamed.out
    forgot = command("forget", "current", "two", "--bundle", "v3", "--promote", "--device", "cpu")
    assert forgot.code == 0, forgot.err
    assert "forgot two: its output and its mean" in forgot.out
    assert "what remains of two: the backbone was trained on it" in forgot.out
    assert "v2 and bundles before it still keep photos of two" in forgot.out, "the link has moved meanwhile"
    merged = command("merge", "current", "one", "Nüll 零", "--into", "one", "--bundle", "v4", "--device", "cpu")
    assert merged.code == 0, merged.err
    assert "merged one, Nüll 零 into one" in merged.out
    assert "differs from the sum of its parts'" in merged.out
    assert [read_manifest(Path(name)).classes for name in ("v1", "v2", "v3", "v4")] == [
        ("one", "two", "zero"),
        ("one", "two", "Nüll 零"),
        ("one", "Nüll 零"),
        ("one",),
    ]
    assert contents(bundle) == before
    assert "current -> v2 (before: v3)" in command("rollback").out
    told = command("info", "v4").out
    for title in ("renamed zero to Nüll 零", "forgot two", "merged one, Nüll 零 into one"):
        assert title in told
    assert "Nüll 零" in command("info", "v2", "--classes").out


def test_a_mended_bundle_answers_and_learns_on(command: Command, bundle: Path, shelf: Path) -> None:
    assert command("forget", bundle, "one", "--bundle", "v2").code == 0
    assert command("evaluate", "v2", shelf / "photos", "--device", "cpu").code == 0
    answers = command("predict", "v2", shelf / "photos" / "one", "--top", 5, "--device", "cpu")
    assert answers.code == 0
    assert " one " not in answers.out
    more = write_photos(Path("more"), one=20)
    learned = command("learn", more, "--from", "v2", "--bundle", "v3", "device=cpu", "epochs_scale=0.001")
    assert learned.code == 0, learned.err
    assert foster.load("v3", device="cpu").class_names == ("two", "zero", "one")


@pytest.mark.slow
def test_a_mended_bundle_is_exported_and_reported(command: Command, bundle: Path) -> None:
    pytest.importorskip("onnxruntime")
    assert command("merge", bundle, "zero", "one", "--into", "both", "--bundle", "v2", "--device", "cpu").code == 0
    assert command("export", "v2", "net.onnx").code == 0
    assert command("report", "v2", "--out", "report.html").code == 0
    assert "merged one, zero into both" in Path("report.html").read_text(encoding="utf-8")
    assert command("exemplars", "v2", "--show", "sheet.png").code == 0


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("rename", "v1", "zerro", "x", "--bundle", "v2"), "class 'zerro' is not known; did you mean 'zero'?"),
        (("rename", "v1", "zero", "one", "--bundle", "v2"), "merge makes one class of two"),
        (("merge", "v1", "zero", "--into", "x", "--bundle", "v2"), "two different classes or more"),
        (("forget", "v1", "zero", "one", "two", "--bundle", "v2"), "no class would be left"),
        (("forget", "v1", "zero", "--bundle", "v1"), "already exists"),
        (("forget", "v1", "zero", "--bundle", "v1/inside"), "lies inside the bundle"),
        (("forget", "nowhere", "zero", "--bundle", "v2"), "there is no bundle 'nowhere'"),
        (("forget", "v1", "zero", "--bundle", "current", "--promote"), "the name of the link"),
    ],
)
def test_what_cannot_be_gets_one_line_and_nothing_is_written(
    command: Command, bundle: Path, arguments: tuple[str, ...], line: str
) -> None:
    before = contents(bundle)
    done = command(*arguments)
    assert done.code == 2
    assert line in done.err
    assert [line.startswith("foster: ") for line in done.err.splitlines()].count(True) == 1
    assert contents(bundle) == before
    assert [path.name for path in Path().iterdir()] == ["v1"]


def test_help_says_what_the_commands_do(command: Command) -> None:
    told = command("--help").out
    for name in ("rename", "merge", "forget"):
        assert name in told
        assert "--promote" in command(name, "--help").out
