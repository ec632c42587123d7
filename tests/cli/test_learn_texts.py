"""What a learn and an evaluation report."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from commands import QUICK, Command, write_photos

from foster.cli.texts import (
    check_report_text,
    learn_text,
    mend_text,
)
from foster.learner.check import CheckReport, Finding, Photo
from foster.learner.reports import ClassChange, LearnReport, MendReport, UpdateCheck, compare


def test_a_learn_says_how_it_was_trained_with_and_the_next_one_keeps_it(command: Command) -> None:
    write_photos(Path("photos"), zero=9, one=9)
    first = command("learn", "photos", "--bundle", "v1", "-q", "--training", "fast", *QUICK, "epochs_scale=0.001")
    write_photos(Path("more"), two=9)
    second = command("learn", "more", "--from", "v1", "--bundle", "v2", "-q", "device=cpu")
    quick = ("epochs_scale=0.001", "device=cpu")
    third = command("learn", "more", "--from", "v1", "--bundle", "v3", "-q", "--training", "paper", *quick)
    assert first.err == "", "quiet"
    lines = [next(line for line in done.out.splitlines() if "trained on, " in line) for done in (first, second, third)]
    assert [line.rpartition(" (")[2] for line in lines] == ["training fast)", "training fast)", "training paper)"]


def test_evaluation_by_class_and_as_json(command: Command, bundle: Path, shelf: Path) -> None:
    shutil.copytree(shelf / "photos", "test")
    write_photos(Path("test"), nine=4)
    done = command("evaluate", bundle, "test", "--device", "cpu")
    assert done.code == 0
    assert "on 120 images of 3 classes" in done.out
    assert "nine (4)" in done.out
    record = json.loads(command("evaluate", bundle, "test", "--json", "--device", "cpu").out)
    assert f"accuracy {record['accuracy']:.2f} %" in done.out
    assert record["unknown_classes"] == {"nine": 4}
    assert {name: sum(row.values()) for name, row in record["confusion"].items()} == {"zero": 40, "one": 40, "two": 40}
    right = sum(row[name] for name, row in record["confusion"].items() if name in row)
    assert record["accuracy"] == pytest.approx(100 * right / 120)
    assert 0 < record["images_trained_on"] <= 120
    for row in record["classes"]:
        line = next(line for line in done.out.splitlines() if line.startswith(row["label"]))
        assert line.split()[-1] == (row["mistaken_for"] or "–")
    assert any(row["mistaken_for"] for row in record["classes"])


def test_unknown_things_that_a_bundle_cannot_tell_are_said_to_be_so(
    command: Command, bundle: Path, shelf: Path
) -> None:
    shutil.copytree(shelf / "photos", "test")
    (write_photos(Path("other"), nine=4) / "nine").rename("test/unknown")
    evaluated = command("evaluate", bundle, "test", "--device", "cpu")
    assert "--unknown auto cannot be used" in evaluated.out
    refused = command("predict", bundle, "test", "--unknown", "auto", "--device", "cpu")
    assert "20 photos" in refused.err


def test_what_was_lost_in_compression_or_could_not_be_measured_is_told() -> None:
    checked = UpdateCheck(
        "held-out",
        (ClassChange("cat", 5, 4, 4, 0), ClassChange("dog", 15, None, 0, 0), ClassChange("cow", 5, None, 0, 0)),
    )
    report = LearnReport(
        new_classes=("dog", "cow", "rare"),
        more_of={},
        num_trained=30,
        num_held_out=15,
        num_repeated=0,
        shared=None,
        empty_classes=(),
        passed_over={},
        unreadable=(),
        variants={"boosted": 60.0, "compressed": 33.3},
        checks=(checked,),
        result="compressed",
        similar_names=(("Cow", "cow"),),
    )
    lines = learn_text(report, "fast").splitlines()
    assert not any("method=closed_form" in line for line in lines)
    assert "before compression 60.0 %, after compression 33.3 %" in "".join(lines)
    assert any("4 of 25 right" in line and "6.4 to 34.7 %" in line for line in lines)
    assert any(line.endswith(": rare") for line in lines)
    assert any("'Cow' and 'cow'" in line for line in lines)
    better = replace(report, variants={"compressed": 33.3, "closed form": 40.0}, result="compressed")
    told = learn_text(better, "fast")
    assert all(text in told for text in ("closed form 40.0 %", "method=closed_form", "photos of all classes"))
    first = learn_text(replace(better, checks=(replace(checked, classes=checked.new),)), "fast")
    assert "the same photos again with method=closed_form" in first
    few, many = (learn_text(replace(report, result="", num_trained=number), "fast") for number in (2_000, 2_001))
    assert ("equally many of each class" in few, "equally many of each class" in many) == (False, True)


def photo(name: str) -> Photo:
    return Photo(name, "cat", name)


def test_a_table_and_then_some_of_each_kind_problems_first() -> None:
    findings = (
        Finding("unreadable", (photo("cat/\x1b[2J.jpg"),), "damaged"),
        Finding("duplicate", tuple(photo(f"cat/{k}.jpg") for k in range(6)), "the same photo 6 times in cat"),
        *(Finding("tiny", (photo(f"cat/t{k}.jpg"),), "5 x 5 pixels") for k in range(12)),
        Finding("small-class", (), "dog: 2 photos"),
    )
    told = check_report_text(CheckReport("photos", {"cat": 30, "dog": 2}, 7, {".txt": 2}, findings, ("a remark",)))
    assert told.startswith("32 photos of 2 classes (2 to 30 each) in photos, 7 test photos\n")
    assert "2 .txt" in told
    assert "a remark\n" in told
    rows = [line.split() for line in told.splitlines()]
    assert rows.index(["problem", "cannot", "be", "read", "1"]) < rows.index(["remark", "very", "small", "12"])
    assert "cat/3.jpg, ... (6 in all): " in told
    assert "... 2 more" in told
    assert "  dog: 2 photos" in told
    assert "\x1b" not in told


CHECK = compare("held-out", [0, 1], [0, 1], [0, 0], ("cat", "dog"), 2)


def test_mending_says_what_is_kept_and_what_was_lost() -> None:
    merged = mend_text(MendReport({"cat": "pet", "dog": "pet"}, checks=(CHECK,)))
    assert merged.startswith("merged cat, dog into pet\n")
    assert "right -> wrong" in merged
    forgot = mend_text(MendReport({}, ("cat", "fox"), (CHECK,), is_trained=True))
    assert forgot.startswith("forgot cat, fox\n")
    assert "backbone" in forgot
    assert "estimated" in mend_text(MendReport({}, ("cat",), is_estimated=True))


def test_a_name_cannot_move_the_cursor() -> None:
    assert mend_text(MendReport({"a\x1b[2J": "b\x1b"})) == "renamed a\ufffd[2J to b\ufffd\n"
