"""What was found, as a picture."""

from pathlib import Path

import pytest
from PIL import Image

from foster.errors import FolderError
from foster.learner.check_report import CheckReport, Finding, Photo
from foster.reports.check_sheet import MOST_OF_A_GROUP, check_place, draw_check

RED = (255, 0, 0)


def photo(name: str, colour: tuple[int, int, int] = RED) -> Photo:
    return Photo(name, "cat", Image.new("RGB", (30, 20), colour))


def drawn(findings: tuple[Finding, ...], path: Path) -> tuple[int, Image.Image]:
    count = draw_check(CheckReport("photos", {"cat": 9}, 0, {}, findings), path)
    return count, Image.open(path)


def test_photos_that_belong_together_are_drawn_side_by_side_and_unreadable_ones_as_grey(tmp_path: Path) -> None:
    broken = Photo("a/b.jpg", "cat", b"broken")
    many = tuple(photo(f"a/{k}.jpg") for k in range(30))
    findings = (
        Finding("unreadable", (broken,), "damaged"),
        Finding("mislabelled", (photo("猫/很长的名字.jpg"),), "looks like dog", "dog"),
        Finding("duplicate", many, "the same photo 30 times in cat"),
        Finding("small-class", (), "dog: 2 photos"),
    )
    count, sheet = drawn(findings, tmp_path / "sheet.png")
    assert count == 2 + MOST_OF_A_GROUP
    colours = {colour for _, colour in sheet.getcolors(1_000_000) or []}
    assert {RED, (200, 200, 200)} <= colours


def test_a_sheet_of_nothing_and_of_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = CheckReport("photos", {"cat": 9}, 0, {}, (Finding("small-class", (), "dog: 2 photos"),))
    assert draw_check(nothing, tmp_path / "nothing.png") == 0
    assert not (tmp_path / "nothing.png").exists()
    monkeypatch.setattr("foster.reports.check_sheet.MOST_PICTURES", 5)
    findings = tuple(Finding("tiny", (photo(f"a/{k}.jpg"),), "small") for k in range(9))
    pairs = (Finding("duplicate", (photo("a/x.jpg"), photo("a/y.jpg")), "twice"),)
    assert drawn((*findings, *pairs), tmp_path / "much.png")[0] == 5


def test_what_cannot_become_a_picture_is_refused_before_anything_is_looked_at(tmp_path: Path) -> None:
    check_place(tmp_path / "new" / "sheet.PNG")
    assert list((tmp_path / "new").iterdir()) == []
    with pytest.raises(FolderError, match=r"sheet.pdf': its name must end in .jpeg, .jpg, .png, .webp"):
        check_place(tmp_path / "sheet.pdf")
    with pytest.raises(FolderError, match=r"cannot write '/proc/sheet.png'"):
        check_place(Path("/proc/sheet.png"))
