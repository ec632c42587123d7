"""The commands for your own photos as they are typed, rightly and wrongly."""

import re
from pathlib import Path

import pytest
from commands import Command, contents, write_photos

from foster.bundle.folder import read_manifest


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        (("learn", "nothing", "--bundle", "new"), "'nothing'"),
        (("learn", "photos", "--bundle", "."), "'.'"),
        (("learn", "photos", "--bundle", "new", "--from", "photos"), "bundle.json"),
        (("learn", "photos", "--bundle", "new", "--from", "nothing"), "'nothing'"),
        (("learn", "photos", "--bundle", "new", "--training", "slow"), "'slow'"),
        (("learn", "photos", "--bundle", "new", "epochs=3"), "foster.first.epochs"),
        (("learn", "photos/zero", "--bundle", "new"), "9 images"),
        (("learn", "photos", "--bundle", "new", "weights=x.pt"), ".safetensors"),
        (("learn", "photos", "--bundle", "new", "backbone=timm:resnet18"), "timm"),
        (("predict", "nothing", "photos"), "'nothing'"),
        (("predict", "v1", "empty"), "empty"),
        (("predict", "v1", "photos", "--device", "tpu"), "device"),
        (("evaluate", "v1", "strangers"), "'strangers'"),
        (("export", "v1", "model.bin"), "'model.bin'"),
        (("info", "photos"), "'photos'"),
        (("forget", "v1", "--image", "zz", "--bundle", "v2"), "'zz'"),
        (("forget", "nothing", "zero", "--bundle", "v2"), "'nothing'"),
        (("rename", "v1", "zerro", "x", "--bundle", "v2"), "'zero'"),
        (("rename", "v1", "zero", "x", "--bundle", "v1"), "'v1'"),
        (("rename", "v1", "zero", "x", "--bundle", "current", "--promote"), "'current'"),
        (("info", "v1", "--sheet", "/proc/sheet.png"), "'/proc/sheet.png'"),
        (("promote", "nothing"), "'nothing'"),
        (("rollback", "."), "'current'"),
        (("learn", "photos", "--from", "v1", "--bundle", "v1/v2"), "'v1/v2'"),
        (("learn", "photos", "--bundle", "photos/new"), "'photos/new'"),
        (("learn", "photos", "--bundle", "taken/new", "--promote"), "'taken/current'"),
        (("learn", "photos", "--bundle", "current", "--promote"), "'current'"),
        (("learn", " ", "--bundle", "new"), "''"),
        (("evaluate", "v1", ""), "''"),
        (("check", ""), "''"),
        (("check", "nowhere", "-q"), "'nowhere'"),
        (("check", "photos", "-q", "--sheet", "sheet.pdf"), "ends in .png"),
        (("check", "photos", "-q", "--sheet", "v1/sheet.png"), "'v1/sheet.png'"),
        (("check", "photos", "-q", "--from", "nowhere"), "'nowhere'"),
        (("check", "photos", "-q", "--device", "gpu"), "'gpu'"),
        (("check", "photos", "-q", "--test", "nowhere"), "'nowhere'"),
        (("forget", "v1", "--bundle", "v2"), "--image"),
        (("forget", "v1", "zero", "--image", "abc", "--bundle", "v2"), "--image"),
    ],
)
def test_wrong_use_is_one_line_and_changes_nothing(
    command: Command, bundle: Path, arguments: tuple[str, ...], fact: str
) -> None:
    write_photos(Path("photos"), zero=9, one=9)
    write_photos(Path("strangers"), nine=2)
    Path("empty").mkdir()
    Path("taken", "current").mkdir(parents=True)
    before = sorted(Path().rglob("*"))
    done = command(*arguments)
    assert done.code == 2
    lines = [line for line in done.err.splitlines() if not line.startswith("reading")]
    assert len(lines) == 1
    assert lines[0].startswith("foster: ")
    assert fact in lines[0]
    assert done.out == ""
    assert sorted(Path().rglob("*")) == before


def test_the_settings_are_listed_with_their_meaning(command: Command) -> None:
    done = command("learn", "--keys")
    assert done.code == 0
    assert all(text in done.out for text in ("memory_total", "fast", "standard", "paper", "engine.resident"))


def test_a_class_is_renamed_merged_and_forgotten_in_new_bundles(command: Command, bundle: Path) -> None:
    before = contents(bundle)
    command("promote", bundle)
    renamed = command("rename", "current", "zero", "Nüll 零", "--bundle", "v2", "--promote")
    assert renamed.code == 0, renamed.err
    assert "renamed zero to Nüll 零" in renamed.out
    assert "current -> v2 (before: v1)" in renamed.out
    forgot = command("forget", "current", "two", "--bundle", "v3", "--promote", "--device", "cpu")
    assert forgot.code == 0, forgot.err
    assert all(fact in forgot.out for fact in ("forgot two", "backbone"))
    assert "v2 and " in forgot.out, "it still knows the class, and the link has moved meanwhile"
    merged = command("merge", "current", "one", "Nüll 零", "--into", "one", "--bundle", "v4", "--device", "cpu")
    assert merged.code == 0, merged.err
    assert "merged one, Nüll 零 into one" in merged.out
    assert [read_manifest(Path(name)).classes for name in ("v1", "v2", "v3", "v4")] == [
        ("one", "two", "zero"),
        ("one", "two", "Nüll 零"),
        ("one", "Nüll 零"),
        ("one",),
    ]
    assert contents(bundle) == before
    assert "current -> v2 (before: v3)" in command("rollback").out
    told = command("info", "v4").out
    for title in ("renamed a class to Nüll 零", "forgot 1 class", "merged one, Nüll 零 into one"):
        assert title in told
    assert "zero" not in Path("v2", "bundle.json").read_text(encoding="utf-8"), "an old name is nowhere"
    assert not {"zero", "two"} & set(re.findall(r"\w+", Path("v4", "bundle.json").read_text(encoding="utf-8")))
    assert "Nüll 零" in command("info", "v2", "--classes").out
