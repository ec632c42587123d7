"""The commands for your own photos, used rightly and wrongly."""

import csv
import io
import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from PIL import Image

import foster
from foster.bundle.manifest import read_manifest
from foster.cli import main
from foster.data.sources import load as load_dataset
from foster.learner.learner import Learner
from foster.reports.text import size_text

DIGITS = load_dataset("digits")
QUICK = ("backbone=resnet8", "epochs_scale=0.02", "memory_total=60", "device=cpu")


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[..., Outcome]


def write_photos(folder: Path, **counts: int) -> Path:
    """Digits as PNG files, a subfolder a class."""
    for name, count in counts.items():
        (folder / name).mkdir(parents=True)
        class_id = DIGITS.train.class_names.index(name)
        for k, image in enumerate(DIGITS.train.of_classes(class_id, class_id + 1).images[:count]):
            Image.fromarray(image[0].numpy()).save(folder / name / f"{k}.png")
    return folder


def run_main(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: object) -> Outcome:
    monkeypatch.setattr("sys.argv", ["foster", *map(str, arguments)])
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main()
    code = ended.value.code
    out, err = capsys.readouterr()
    return Outcome(code if isinstance(code, int) else 0 if code is None else 1, out, err)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """`foster` as it is called, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: run_main(capsys, monkeypatch, *arguments)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with photos and a bundle that knows three digits."""
    folder = tmp_path_factory.mktemp("shelf")
    photos = write_photos(folder / "photos", zero=40, one=40, two=40)
    learner = foster.Learner(backbone="resnet8", epochs_scale=0.05, memory_total=60, device="cpu")
    learner.learn(photos)
    learner.save(folder / "v1")
    return folder


@pytest.fixture
def bundle(shelf: Path, tmp_path: Path) -> Path:
    """A bundle of its own for each test."""
    return Path(shutil.copytree(shelf / "v1", tmp_path / "v1"))


def test_learn_writes_a_bundle_and_reports_old_and_new_classes_apart(command: Command, bundle: Path) -> None:
    before = {path: path.read_bytes() for path in bundle.rglob("*") if path.is_file()}
    more = write_photos(Path("more"), three=20, one=60)
    (more / "three" / "broken.png").write_bytes(b"broken")
    done = command("learn", more, "--from", bundle, "--bundle", "v2", "--promote", "device=cpu")
    assert done.code == 0, done.err
    assert "new classes: three" in done.out
    assert "more of: one (+" in done.out
    assert "broken.png: not an image of a known format" in done.out
    assert "on held-out images, never trained on" in done.out
    assert "known classes" in done.out
    assert "next: foster predict v2 IMAGES" in done.out
    assert "compressing both into one network" in done.err
    assert {path: path.read_bytes() for path in bundle.rglob("*") if path.is_file()} == before
    assert Path("current").resolve() == Path("v2").resolve()
    assert foster.load("current", device="cpu").class_names == ("one", "two", "zero", "three")


def test_quiet_learning_says_nothing_on_standard_error(command: Command) -> None:
    photos = write_photos(Path("photos"), zero=9, one=9)
    done = command("learn", photos, "--bundle", "v1", "--quiet", "--preset", "fast", *QUICK, "epochs_scale=0.001")
    assert done.code == 0
    assert done.err == ""


def test_a_learn_says_which_preset_it_was_trained_with_and_the_next_one_keeps_it(command: Command) -> None:
    write_photos(Path("photos"), zero=9, one=9)
    first = command("learn", "photos", "--bundle", "v1", "-q", "--preset", "fast", *QUICK, "epochs_scale=0.001")
    write_photos(Path("more"), two=9)
    second = command("learn", "more", "--from", "v1", "--bundle", "v2", "-q", "device=cpu")
    quick = ("epochs_scale=0.001", "device=cpu")
    third = command("learn", "more", "--from", "v1", "--bundle", "v3", "-q", "--preset", "paper", *quick)
    lines = [next(line for line in done.out.splitlines() if "trained on, " in line) for done in (first, second, third)]
    assert [line.rpartition(" (")[2] for line in lines] == ["preset fast)", "preset fast)", "preset paper)"]


def test_an_update_that_costs_too_much_is_shown_and_not_written(command: Command, bundle: Path) -> None:
    more = write_photos(Path("more"), three=60, four=60)
    spoilt = ("foster.compress.weight_decay=5", "device=cpu")  # so much that no weight survives
    done = command("learn", more, "--from", bundle, "--bundle", "v2", "--max-drop", "5", "--promote", *spoilt)
    assert done.code == 3, done.out
    assert "right -> wrong" in done.out
    assert done.err.splitlines()[-1].startswith("foster: the known classes fell from")
    assert not Path("v2").exists()
    assert not Path("current").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("learn", "nothing", "--bundle", "new"), "there is no folder or CSV file 'nothing'"),
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
        (("exemplars", "v1", "--show", "no/sheet.png"), "cannot write 'no/sheet.png'"),
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


def test_predictions_as_lines_json_and_csv_say_the_same(command: Command, bundle: Path, shelf: Path) -> None:
    broken = Path("broken.jpg")
    broken.write_bytes(b"broken")
    images = (shelf / "photos" / "one", broken, shelf / "photos" / "zero" / "3.png")
    plain, as_json, as_csv = (
        command("predict", bundle, *images, "--device", "cpu", *options)
        for options in ((), ("--json", "--top", 2), ("--csv", "--top", 2))
    )
    assert [done.code for done in (plain, as_json, as_csv)] == [0, 0, 0]
    records = [json.loads(line) for line in as_json.out.splitlines()]
    rows = list(csv.DictReader(io.StringIO(as_csv.out)))
    lines = plain.out.splitlines()
    assert len(records) == len(rows) == len(lines) == 42
    assert [Path(record["image"]).name for record in records[:3]] == ["0.png", "1.png", "2.png"]
    for record, row, line in zip(records, rows, lines, strict=True):
        assert row["image"] == record["image"]
        assert line.startswith(record["image"])
        if "error" in record:
            assert (record["image"], record["label"]) == ("broken.jpg", None)
            assert record["error"] == "not an image of a known format"
            assert row["error"] == record["error"]
            assert row["probability2"] == "", "a row has as many fields as the header"
            assert "error: not an image" in line
        else:
            assert len(record["top"]) == 2
            assert (row["label"], row["label2"]) == (record["label"], record["top"][1]["label"])
            assert f"{record['label']} {100 * record['confidence']:.1f} %" in line
    assert "1 of 42 images cannot be read" in plain.err


def test_unsure_answers_are_unknown(command: Command, bundle: Path, shelf: Path) -> None:
    given = ("predict", bundle, shelf / "photos", "--unknown-below", 1, "--device", "cpu")
    done = command(*given, "--json")
    records = [json.loads(line) for line in done.out.splitlines()]
    assert "unknown" in {record["label"] for record in records}
    assert all(record["is_unknown"] == (record["label"] == "unknown") for record in records)
    rows = list(csv.DictReader(io.StringIO(command(*given, "--csv").out)))
    assert [row["is_unknown"] for row in rows] == [str(record["is_unknown"]).lower() for record in records]
    assert done.err == "", "these answers are calibrated"


def test_confidence_that_is_not_calibrated_is_said_once(command: Command) -> None:
    learner = foster.Learner(backbone="resnet8", epochs_scale=0.001, preset="paper", device="cpu")
    learner.learn(write_photos(Path("photos"), zero=9, one=9))
    learner.save("v1")
    done = command("predict", "v1", "photos", "--unknown-below", 0.9, "--device", "cpu")
    assert done.code == 0
    (line,) = done.err.splitlines()
    assert line.startswith("warning: confidence is not calibrated")
    assert command("predict", "v1", "photos", "--device", "cpu").err == ""


def test_files_that_are_not_taken_for_images_are_counted_aloud(command: Command, bundle: Path) -> None:
    more = write_photos(Path("more"), three=9)
    (more / "three" / "IMG_1.heic").write_bytes(b"x")
    (more / "empty").mkdir()
    done = command("learn", more, "--from", bundle, "--bundle", "v2", "device=cpu", "epochs_scale=0.001")
    assert done.code == 0, done.err
    for text in ("left out, without a readable image: empty", "passed over, not taken for images: 1 .heic"):
        assert text in done.out
        assert text in command("evaluate", "v2", more, "--device", "cpu").out
    assert command("predict", "v2", more, "--device", "cpu").err == "passed over, not taken for images: 1 .heic\n"


def test_no_readable_image_at_all_is_a_failure(command: Command, bundle: Path) -> None:
    done = command("predict", bundle, "missing.png")
    assert done.code == 1
    assert "missing.png  error: there is no such file" in done.out


def test_what_was_lost_is_shown_before_the_bundle_is_written(
    command: Command, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[bool] = []
    saved = Learner.save

    def recording(learner: Learner, folder: Path) -> Path:
        shown.append("known classes" in sys.stdout.getvalue())  # type: ignore[attr-defined]
        return saved(learner, folder)

    monkeypatch.setattr(Learner, "save", recording)
    more = write_photos(Path("more"), three=9)
    done = command("learn", more, "--from", bundle, "--bundle", "v2", "device=cpu", "epochs_scale=0.001")
    assert done.code == 0, done.err
    assert shown == [True]


def test_a_reader_who_leaves_does_not_cost_the_bundle(
    command: Command, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(text: str, **options: object) -> None:
        if "known classes" in text:
            raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("foster.cli.bundle_actions.typer.echo", closed)
    more = write_photos(Path("more"), three=9)
    done = command("learn", more, "--from", bundle, "--bundle", "v2", "device=cpu", "epochs_scale=0.001")
    assert done.code == 0, done.err
    assert foster.load("v2", device="cpu").class_names == ("one", "two", "zero", "three")


def test_every_class_of_the_last_learn_can_be_seen(command: Command, bundle: Path) -> None:
    more = write_photos(Path("more"), three=20)
    command("learn", more, "--from", bundle, "--bundle", "v2", "device=cpu", "epochs_scale=0.001")
    short, long = command("info", "v2").out, command("info", "v2", "--classes").out
    assert long.startswith(short)
    added = long.removeprefix(short)
    held_out, exemplars = added.strip().split("\n\n")
    assert held_out.startswith("on held-out images, never trained on")
    assert [line.split()[0] for line in held_out.splitlines()[2:]] == ["one", "two", "zero", "three"]
    assert [line.split()[0] for line in exemplars.splitlines()[2:]] == ["one", "two", "zero"]
    checks = json.loads(command("info", "v2", "--json").out)["history"][-1]["checks"]
    row = checks["held-out"]["classes"]["zero"]
    line = next(line for line in held_out.splitlines() if line.startswith("zero"))
    assert line.split()[1:5] == [str(row["images"]), f"{row['before']:.1f}", "%", f"{row['after']:.1f}"]


def test_evaluation_by_class_and_as_json(command: Command, bundle: Path, shelf: Path) -> None:
    shutil.copytree(shelf / "photos", "test")
    write_photos(Path("test"), nine=4)
    done = command("evaluate", bundle, "test", "--device", "cpu")
    assert done.code == 0
    assert "on 120 images of 3 classes" in done.out
    assert "the bundle does not know them: nine (4)" in done.out
    record = json.loads(command("evaluate", bundle, "test", "--json", "--device", "cpu").out)
    assert f"accuracy {record['accuracy']:.2f} %" in done.out
    assert record["unknown_classes"] == {"nine": 4}
    for row in record["classes"]:
        line = next(line for line in done.out.splitlines() if line.startswith(row["label"]))
        assert line.split()[-1] == (row["mistaken_for"] or "–")
    assert any(row["mistaken_for"] for row in record["classes"])


def test_info_tells_what_a_bundle_holds(command: Command, bundle: Path) -> None:
    done = command("info", bundle)
    assert done.code == 0
    for text in ("resnet8", "8 x 8, stretch", "3 in 1 task: one, two, zero", "fitted on", "known before", "photos"):
        assert text in done.out
    assert json.loads(command("info", bundle, "--json").out)["classes"] == ["one", "two", "zero"]


def test_exemplars_are_listed_drawn_and_removed(command: Command, bundle: Path) -> None:
    listing = command("exemplars", bundle).out
    row = next(line for line in listing.splitlines() if " two " in line)
    class_id, name, num_exemplars, num_held_out, first_id, *_ = row.split()
    assert (class_id, name, num_exemplars, num_held_out) == ("0001", "two", "18", "2")
    shown = command("exemplars", bundle, "--show", "sheet.png")
    assert "sheet.png: 60 images" in shown.out
    with Image.open("sheet.png") as sheet:
        assert sheet.width > 500
    removed = command("exemplars", bundle, "--remove", first_id)
    assert removed.code == 0
    assert f"removed {first_id} of class 'two'" in removed.out
    after = command("exemplars", bundle).out
    assert first_id not in after
    assert "the weights were trained with it" in removed.out
    spared = next(entry.id for entry in read_manifest(bundle).exemplars if entry.use == "held-out")
    removed = command("exemplars", bundle, "--remove", spared)
    assert f"removed {spared} of class 'one' from {bundle}; nothing was trained on it" in removed.out
    assert "the weights" not in removed.out
    assert "images removed by hand: 2" in command("info", bundle).out
    assert foster.load(bundle, device="cpu").class_names == ("one", "two", "zero")


def test_learns_are_numbered_whatever_was_removed_between_them(command: Command, bundle: Path) -> None:
    first = read_manifest(bundle).exemplars[0].id
    command("exemplars", bundle, "--remove", first)
    more = write_photos(Path("more"), three=9)
    command("learn", more, "--from", bundle, "--bundle", "v2", "device=cpu", "epochs_scale=0.001")
    rows = command("info", "v2").out.split("flips\n")[1].splitlines()
    assert [row.split()[0] for row in rows[1:-1]] == ["1", "2"]


def test_a_picture_that_two_classes_keep_is_told_counted_and_removed_from_one(command: Command, bundle: Path) -> None:
    photos = write_photos(Path("photos"), zero=40)
    shutil.copytree(photos / "zero", "renamed/nought")
    more = write_photos(Path("renamed"), three=9)
    shutil.copy(photos / "zero" / "39.png", more / "three")
    done = command("learn", more, "--from", bundle, "--bundle", "v2", "device=cpu", "epochs_scale=0.001")
    assert done.code == 0, done.err
    assert "20 photos of 'nought' are already kept as 'zero'; was the folder renamed" in done.out
    assert "1 photo lies in more than one class, such as renamed/nought/39.png ('nought' and 'three')" in done.out
    twice = Counter(entry.id for entry in read_manifest(Path("v2")).exemplars if entry.class_id in (2, 3))
    both = next(image_id for image_id, count in twice.items() if count == 2)
    refused = command("exemplars", "v2", "--remove", both)
    assert refused.code == 2
    assert f"choose from 0002/{both} ('zero'), 0003/{both} ('nought')" in refused.err
    removed = command("exemplars", "v2", "--remove", f"0003/{both}")
    assert removed.out.startswith(f"removed {both} of class 'nought' from v2; ")
    assert [entry.class_id for entry in read_manifest(Path("v2")).exemplars if entry.id == both] == [2]


def test_learn_and_info_agree_on_the_size_of_a_bundle(command: Command) -> None:
    photos = write_photos(Path("photos"), zero=9, one=9)
    done = command("learn", photos, "--bundle", "v1", "--quiet", "--preset", "paper", *QUICK, "epochs_scale=0.001")
    (line,) = [line for line in done.out.splitlines() if line.startswith("v1: ")]
    size = line.rpartition(", ")[2]
    assert f"bundle       v1 ({size}, schema 1" in command("info", "v1").out
    Path("link").symlink_to("v1")
    assert f"link ({size}, " in command("info", "link").out
    assert size == size_text(sum(path.stat().st_size for path in Path("v1").rglob("*.*")))


def test_promote_and_rollback_move_the_link(command: Command, bundle: Path) -> None:
    shutil.copytree(bundle, "v2")
    assert command("promote", "v1").out == "current -> v1\n"
    assert "-> v2 (before: v1)" in command("promote", "v2").out
    assert "current -> v1 (before: v2)" in command("rollback").out
    assert Path("current").resolve() == bundle.resolve()


def test_the_settings_are_listed_with_their_meaning(command: Command) -> None:
    done = command("learn", "--keys")
    assert done.code == 0
    for text in ("memory_total", "validation_share", "fast", "standard", "paper", "foster.beta_boost"):
        assert text in done.out


@pytest.mark.parametrize("name", ["learn", "predict", "evaluate", "export", "info", "exemplars", "promote", "rollback"])
def test_every_command_has_help(command: Command, name: str) -> None:
    done = command(name, "--help")
    assert done.code == 0
    assert "Usage" in done.out
