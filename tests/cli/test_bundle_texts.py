"""What is printed about a bundle."""

import json
from pathlib import Path

from commands import Command, write_photos

from foster.bundle.folder import read_manifest
from foster.cli.texts import columns


def test_every_class_of_the_last_learn_can_be_seen_and_learns_are_numbered_whatever_was_removed_between_them(
    command: Command, bundle: Path
) -> None:
    first = read_manifest(bundle).exemplars[0].id
    command("forget", bundle, "--image", first, "--bundle", "v1b")
    more = write_photos(Path("more"), three=20)
    command("learn", more, "--from", "v1b", "--bundle", "v2", "device=cpu", "epochs_scale=0.001")
    short, long = command("info", "v2").out, command("info", "v2", "--classes").out
    assert long.startswith(short)
    added = long.removeprefix(short)
    held_out, exemplars = added.strip().split("\n\n")
    assert held_out.startswith("on photos the classifier had not seen")
    assert [line.split()[0] for line in held_out.splitlines()[2:]] == ["one", "two", "zero", "three"]
    assert [line.split()[0] for line in exemplars.splitlines()[2:]] == ["one", "two", "zero"]
    checks = json.loads(command("info", "v2", "--json").out)["history"][-1]["checks"]
    row = checks["held-out"]["classes"]["zero"]
    line = next(line for line in held_out.splitlines() if line.startswith("zero"))
    assert line.split()[1:5] == [str(row["images"]), f"{row['before']:.1f}", "%", f"{row['after']:.1f}"]
    first_learn, removal, second_learn = short.split("right -> wrong\n")[1].splitlines()[1:]
    assert (first_learn.split()[0], second_learn.split()[0]) == ("1", "2")
    assert "removed 1 photo" in removal


def test_info_tells_what_a_bundle_holds(command: Command, bundle: Path) -> None:
    done = command("info", bundle)
    assert done.code == 0
    for text in ("resnet8", "8 x 8 pixels", "3: one, two, zero", "calibrated on", "known before", "photos"):
        assert text in done.out
    assert json.loads(command("info", bundle, "--json").out)["classes"] == ["one", "two", "zero"]


def test_a_table_cuts_nothing_and_turns_control_codes_into_text() -> None:
    text = columns("lr", ("name", "count"), [("a" * 300, "7"), ("\x1b[31mred", "12")])
    assert "a" * 300 in text
    assert "\x1b" not in text
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    assert lines[-1].endswith("12")
    assert len(lines[-1]) == len(lines[-2]), "numbers stand at the right"
