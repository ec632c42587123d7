"""The commands for your own photos as they are typed, rightly and wrongly."""

import shutil
from pathlib import Path

import pytest
from commands import Command, write_photos


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("learn", "nothing", "--bundle", "new"), "there is no folder or CSV file 'nothing'"),
        (("learn", "photos", "--bundle", "."), "'.' already exists; a bundle is never overwritten"),
        (("learn", "photos", "--bundle", "photos"), "'photos' already exists; a bundle is never overwritten"),
        (("learn", "photos", "--bundle", "new", "--from", "photos"), "'photos' is not a bundle: it has no bundle.json"),
        (("learn", "photos", "--bundle", "new", "--from", "nothing"), "there is no bundle 'nothing'"),
        (("learn", "photos", "--bundle", "new", "--preset", "slow"), "unknown preset 'slow'"),
        (("learn", "photos", "--bundle", "new", "backbone=resnet9"), "unknown backbone 'resnet9'"),
        (("learn", "photos", "--bundle", "new", "epochs=3"), "unknown key 'epochs'"),
        (("learn", "photos", "--bundle", "new", "memory_total=1"), "1 exemplars cannot hold one of each of 2 classes"),
        (("learn", "photos/zero", "--bundle", "new"), "it holds 9 images, but no subfolders"),
        (("learn", "photos", "--bundle", "new", "weights=x.pt"), "not a .safetensors file"),
        (("learn", "photos", "--bundle", "new", "backbone=timm:resnet18"), "needs timm"),
        (("predict", "nothing", "photos"), "there is no bundle 'nothing'"),
        (("predict", "v1", "photos", "--json", "--csv"), "--json and --csv exclude each other"),
        (("predict", "v1", "empty"), "no images below empty"),
        (("predict", "v1", "photos", "--device", "tpu"), "device"),
        (("evaluate", "v1", "strangers"), "none of the classes in 'strangers' is known"),
        (("export", "v1", "model.bin"), "cannot export to 'model.bin'; choose from .onnx, .pt2"),
        (("info", "photos"), "is not a bundle"),
        (("exemplars", "v1", "--remove", "zz"), "there is no such exemplar"),
        (("exemplars", "v1", "--show", "/proc/sheet.png"), "cannot write '/proc/sheet.png': No such file"),
        (("promote", "nothing"), "there is no bundle 'nothing'"),
        (("rollback", "."), "there is no link 'current'"),
        (("rollback",), "there is no link 'current'"),
        (("learn", "photos", "--from", "v1", "--bundle", "v1/v2"), "'v1/v2' lies inside the bundle"),
        (("learn", "photos", "--bundle", "photos/new"), "'photos/new' lies inside 'photos' and would be taken for"),
        (("learn", "photos", "--bundle", "taken/new", "--promote"), "'taken/current' is not a link"),
        (("learn", "photos", "--bundle", "current", "--promote"), "that is the name of the link"),
        (("learn", "photos", "--bundle", "new", "device=cuda:99"), "device 'cuda:99' was asked for"),
    ],
)
def test_wrong_use_is_one_line_and_changes_nothing(
    command: Command, bundle: Path, arguments: tuple[str, ...], message: str
) -> None:
    write_photos(Path("photos"), zero=9, one=9)
    write_photos(Path("strangers"), nine=2)
    Path("empty").mkdir()
    Path("taken", "current").mkdir(parents=True)
    before = sorted(Path().rglob("*"))
    done = command(*arguments)
    assert done.code == 2
    lines = [line for line in done.err.splitlines() if not line.startswith(("reading", "exporting"))]
    assert len(lines) == 1
    assert lines[0].startswith("foster: ")
    assert message in lines[0]
    assert done.out == ""
    assert sorted(Path().rglob("*")) == before


def test_promote_and_rollback_move_the_link(command: Command, bundle: Path) -> None:
    shutil.copytree(bundle, "v2")
    assert command("promote", "v1").out == "current -> v1\n"
    assert "-> v2 (before: v1)" in command("promote", "v2").out
    assert "current -> v1 (before: v2)" in command("rollback").out
    assert Path("current").resolve() == bundle.resolve()


def test_the_settings_are_listed_with_their_meaning(command: Command) -> None:
    done = command("learn", "--keys")
    assert done.code == 0
    for text in (
        "memory_total",
        "validation_share",
        "fast",
        "standard",
        "paper",
        "foster.beta_boost",
        "engine.resident",
    ):
        assert text in done.out


@pytest.mark.parametrize("name", ["learn", "predict", "evaluate", "export", "info", "exemplars", "promote", "rollback"])
def test_every_command_has_help(command: Command, name: str) -> None:
    done = command(name, "--help")
    assert done.code == 0
    assert "Usage" in done.out
