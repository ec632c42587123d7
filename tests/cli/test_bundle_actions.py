"""What the commands for bundles do: learn, predict, remove exemplars, and mend: whole or not at all, one at a time."""

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from commands import Command, contents, write_photos
from PIL import Image
from safetensors import SafetensorError

import foster
from foster.bundle.folder import read_manifest
from foster.learner.work_folder import WorkFolder


def test_learn_writes_a_bundle_and_reports_old_and_new_classes_apart(command: Command, bundle: Path) -> None:
    before = {path: path.read_bytes() for path in bundle.rglob("*") if path.is_file()}
    more = write_photos(Path("more"), three=20, one=60)
    (more / "three" / "broken.png").write_bytes(b"broken")
    done = command("learn", more, "--from", bundle, "--bundle", "v2", "--promote", "epochs_scale=0.001", "device=cpu")
    assert done.code == 0, done.err
    assert "new classes: three" in done.out
    assert "more of: one (+" in done.out
    assert "broken.png: " in done.out
    assert "known classes" in done.out
    assert "foster predict v2" in done.out
    assert {path: path.read_bytes() for path in bundle.rglob("*") if path.is_file()} == before
    assert Path("current").resolve() == Path("v2").resolve()
    assert foster.load("current", device="cpu").class_names == ("one", "two", "zero", "three")


def test_an_update_that_costs_too_much_is_shown_and_not_written(command: Command, bundle: Path) -> None:
    more = write_photos(Path("more"), three=20, four=20)
    spoilt = ("foster.compress.weight_decay=5", "epochs_scale=0.005", "device=cpu")  # so much that no weight survives
    Path("v2.refused").mkdir()  # of an earlier update
    done = command("learn", more, "--from", bundle, "--bundle", "v2", "--max-drop", "5", "--promote", *spoilt)
    assert done.code == 3, done.out
    assert "right -> wrong" in done.out
    assert done.err.splitlines()[-1].startswith("foster: the known classes fell from")
    assert not Path("v2").exists()
    assert not Path("current").exists()
    assert "foster promote v2.refused2" in done.err
    assert command("promote", "v2.refused2").code == 0
    assert len(read_manifest(Path("current")).classes) == 5
    Path("old").symlink_to(bundle)
    done = command("learn", more, "--from", "old", "--bundle", "v3", "-q", *spoilt)
    assert done.code == 0
    (line,) = done.err.splitlines()
    assert line.startswith("warning: the known classes lost ")
    assert all(fact in line for fact in ("written all the same", "--max-drop", str(bundle)))


def test_predictions_as_lines_and_as_json_say_the_same(command: Command, bundle: Path, shelf: Path) -> None:
    broken = Path("bro\nken.jpg")
    broken.write_bytes(b"broken")
    images = (shelf / "photos" / "one", broken, shelf / "photos" / "zero" / "3.png")
    plain, as_json = (
        command("predict", bundle, *images, "--device", "cpu", *options) for options in ((), ("--json", "--top", 2))
    )
    assert [done.code for done in (plain, as_json)] == [0, 0]
    records = [json.loads(line) for line in as_json.out.splitlines()]
    lines = plain.out.splitlines()
    assert len(records) == len(lines) == 42
    assert [Path(record["image"]).name for record in records[:3]] == ["0.png", "1.png", "2.png"]
    for record, line in zip(records, lines, strict=True):
        assert line.startswith(record["image"].replace("\n", "\ufffd"))
        if record["error"]:
            assert (record["image"], record["label"]) == ("bro\nken.jpg", None)
            assert f"error: {record['error']}" in line
        else:
            assert len(record["top"]) == 2
            assert f"{record['label']} {100 * record['confidence']:.1f} %" in line
    assert "1 of 42 images" in plain.err


def test_a_file_that_is_named_and_missing_is_a_failure_and_the_others_are_answered(
    command: Command, bundle: Path, shelf: Path
) -> None:
    done = command("predict", bundle, shelf / "photos" / "zero" / "3.png", "missing.png", "--device", "cpu")
    assert done.code == 1
    assert len(done.out.splitlines()) == 2
    assert "error: " in done.out.splitlines()[1]


def test_confidence_that_is_not_calibrated_is_said_once(command: Command, bundle: Path) -> None:
    learner = foster.load(bundle, device="cpu")
    learner.knowledge = replace(learner.knowledge, num_calibration_images=0)
    learner.save("v2")
    write_photos(Path("photos"), zero=2)
    done = command("predict", "v2", "photos", "--unknown", 0.9, "--device", "cpu")
    assert done.code == 0
    (line,) = done.err.splitlines()
    assert line.startswith("warning: confidence is not calibrated")
    assert command("predict", "v2", "photos", "--device", "cpu").err == ""


def test_a_reader_who_leaves_does_not_cost_the_bundle(
    command: Command, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(text: str, **options: object) -> None:
        if "known classes" in text:
            raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("foster.system.output.echo", closed)
    more = write_photos(Path("more"), three=9)
    done = command("learn", more, "--from", bundle, "--bundle", "v2", "device=cpu", "epochs_scale=0.001")
    assert done.code == 0, done.err
    assert foster.load("v2", device="cpu").class_names == ("one", "two", "zero", "three")


def test_exemplars_are_drawn_and_left_out_of_a_new_bundle(command: Command, bundle: Path) -> None:
    shown = command("info", bundle, "--sheet", "sheet.png", "--classes")
    assert "sheet.png: 60 images" in shown.out
    assert "right -> wrong" in shown.out
    with Image.open("sheet.png") as sheet:
        assert sheet.width > 500
    before = contents(bundle)
    kept = {entry.use: entry.id for entry in read_manifest(bundle).exemplars}
    removed = command(
        "forget", bundle, "--image", kept["exemplars"], "--image", kept["held-out"], "--bundle", "v2", "--promote"
    )
    assert removed.code == 0, removed.err
    assert "removed 2 photos" in removed.out
    assert not {*kept.values()} & {entry.id for entry in read_manifest(Path("current")).exemplars}
    assert contents(bundle) == before
    assert "removed 2 photos" in command("info", "v2").out
    assert foster.load("v2", device="cpu").class_names == ("one", "two", "zero")


def test_a_picture_that_two_classes_keep_is_told_counted_and_taken_from_one(command: Command, bundle: Path) -> None:
    photos = write_photos(Path("photos"), zero=40)
    shutil.copytree(photos / "zero", "renamed/nought")
    more = write_photos(Path("renamed"), three=9)
    shutil.copy(photos / "zero" / "39.png", more / "three")
    done = command("learn", more, "--from", bundle, "--bundle", "v2", "device=cpu", "epochs_scale=0.001")
    assert done.code == 0, done.err
    told = next(line for line in done.out.splitlines() if "more than one class" in line)
    assert all(fact in told for fact in ("20 photos", "renamed/nought/", "'zero' and 'nought'"))
    twice = Counter(entry.id for entry in read_manifest(Path("v2")).exemplars if entry.class_id in (2, 3))
    both = next(image_id for image_id, count in twice.items() if count == 2)
    refused = command("forget", "v2", "--image", both, "--bundle", "v3")
    assert refused.code == 2
    assert f"0002/{both} ('zero'), 0003/{both} ('nought')" in refused.err
    removed = command("forget", "v2", "--image", f"0003/{both}", "--bundle", "v3")
    assert removed.code == 0, removed.err
    assert [entry.class_id for entry in read_manifest(Path("v3")).exemplars if entry.id == both] == [2]


def test_weights_that_cannot_be_written_leave_no_half_of_a_bundle(
    command: Command, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(tensors: object, path: Path) -> None:
        path.write_bytes(b"half")
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("safetensors.torch.save_file", fail)
    done = command("rename", bundle, "zero", "nil", "--bundle", "v2")
    assert done.code == 2
    assert "No space left on device" in done.err
    assert [path.name for path in Path().iterdir()] == ["v1"]


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
    assert "process" in done.err
    assert not Path("v2").exists()


def test_files_that_are_not_taken_for_images_are_counted_aloud(command: Command, bundle: Path) -> None:
    more = write_photos(Path("more"), three=9)
    (more / "three" / "IMG_1.dng").write_bytes(b"x")
    (more / "empty").mkdir()
    done = command("learn", more, "--from", bundle, "--bundle", "v2", "device=cpu", "epochs_scale=0.001")
    assert done.code == 0, done.err
    for text in ("left out, without a readable image: empty", "left out: 1 .dng"):
        assert text in done.out
        assert text in command("evaluate", "v2", more, "--device", "cpu").out
    told = command("predict", "v2", more, "--device", "cpu").err
    assert "1 .dng" in told
