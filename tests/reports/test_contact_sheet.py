"""The sheet of all images, on which every class can be told from every other, whatever its script; and that of what a
look at photos found."""

from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from bundles import files_of
from PIL import Image, ImageChops

from foster.bundle.folder import read_bundle, write_bundle
from foster.errors import FolderError
from foster.learner.check import CheckReport, Finding, Photo
from foster.reports.contact_sheet import (
    HELD_OUT,
    INK,
    MARGIN,
    NUM_COLUMNS,
    TEXT_HEIGHT,
    TILE,
    _fonts,
    check_place,
    draw_check,
    draw_sheet,
)

HEADING_HEIGHT = int(1.5 * TEXT_HEIGHT)


def headings(folder: Path, *classes: str) -> list[Image.Image]:
    """What stands above the images of each class, without the id in front."""
    preprocessing = {"height": 8, "width": 8, "mean": (0.5, 0.5, 0.5), "std": (0.2, 0.2, 0.2)}
    facts = {
        "method": "foster",
        "backbone": "resnet8",
        "settings": {},
        "classes": classes,
        "task_sizes": (len(classes),),
        "preprocessing": preprocessing,
        "temperature": 1.0,
        "num_calibration_images": 0,
        "history": ({"when": "2026-01-01T00:00:00+00:00", "new_classes": list(classes)},),
    }
    images = [[torch.full((3, 8, 8), 20 * k, dtype=torch.uint8)] for k in range(len(classes))]
    write_bundle(folder / "bundle", facts, {}, {"exemplars": files_of(images)})
    draw_sheet(read_bundle(folder / "bundle"), folder / "sheet.png")
    step = HEADING_HEIGHT + TILE + TEXT_HEIGHT + MARGIN + TEXT_HEIGHT // 2
    with Image.open(folder / "sheet.png") as sheet:
        assert sheet.width == NUM_COLUMNS * (TILE + MARGIN) + MARGIN
        tops = [MARGIN + k * step for k in range(len(classes))]
        return [sheet.crop((0, top, sheet.width, top + HEADING_HEIGHT - 2)) for top in tops]


def test_the_sheet_says_what_its_colours_mean(tmp_path: Path) -> None:
    headings(tmp_path, "cat")
    with Image.open(tmp_path / "sheet.png") as sheet:
        legend = sheet.crop((0, sheet.height - MARGIN - TEXT_HEIGHT, sheet.width, sheet.height))
        assert {INK, HELD_OUT} <= {colour for _, colour in legend.getcolors(1 << 16)}


def test_ids_of_held_out_images_are_blue_and_a_large_bundle_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headings(tmp_path, "cat", "dog")
    bundle = read_bundle(tmp_path / "bundle")
    cat, dog = bundle.manifest.exemplars
    entries = (cat, dog.model_copy(update={"use": "held-out", "class_id": 0}))
    bundle = replace(bundle, manifest=bundle.manifest.model_copy(update={"exemplars": entries}))
    monkeypatch.setattr("foster.reports.contact_sheet.draw_sections", drawn := Mock())
    draw_sheet(bundle, tmp_path / "sheet.png")
    (section,) = drawn.call_args.args[0]
    assert section.heading == "0000  2 images of cat"
    tiles = [(tile.caption, tile.colour, tile.picture().getpixel((0, 0))) for tile in section.tiles]
    assert tiles == [((cat.id,), INK, (0, 0, 0)), ((dog.id,), HELD_OUT, (20, 20, 20))]
    monkeypatch.setattr("foster.reports.contact_sheet.MOST_KEPT", 1)
    draw_sheet(bundle, tmp_path / "sheet.png")
    assert [section.heading for section in drawn.call_args.args[0]] == ["0000  1 image of cat"]


def is_same(first: Image.Image, second: Image.Image) -> bool:
    return ImageChops.difference(first, second).getbbox() is None


@pytest.mark.parametrize("names", [("cat", "cot"), ("кот", "код"), ("γάτα", "γάλα")])
def test_a_name_of_any_alphabet_is_written_and_not_boxes_of_its_length(names: tuple[str, str], tmp_path: Path) -> None:
    drawn = []
    for name in names:
        (tmp_path / name).mkdir()
        drawn += headings(tmp_path / name, name)
    assert not is_same(*drawn)


def test_a_name_in_letters_that_the_font_lacks_is_written_in_another_installed_font(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("foster.reports.style.fonts", lambda: ["DejaVu Sans", "STIXGeneral"])
    monkeypatch.setattr("foster.reports.contact_sheet._fonts", _fonts.__wrapped__)
    test_a_name_of_any_alphabet_is_written_and_not_boxes_of_its_length(("a \u1d81", "a \u1d84"), tmp_path)


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
    assert count == 2 + NUM_COLUMNS
    num_pixels = {colour: count for count, colour in sheet.getcolors(1_000_000)}
    assert num_pixels[RED] == (1 + NUM_COLUMNS) * TILE * TILE * 20 // 30, "all lie on the sheet"
    assert (200, 200, 200) in num_pixels


def test_classes_that_begin_alike_can_be_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = list[tuple[str, object]]()
    monkeypatch.setattr("foster.reports.contact_sheet._write", lambda *call: written.append(call[2:4]))
    one, long = (Photo("a/0.jpg", name, Image.new("RGB", (30, 20))) for name in ("digit-one", "African bush elephant"))
    findings = [Finding("mislabelled", (it,), "", like) for it, like in ((one, "digit-zero"), (long, "digit-seven"))]
    drawn(tuple(findings), tmp_path / "sheet.png")
    assert [text for text, _ in written[1:5]] == ["digit-one", "> digit-zero", "Africa…ephant", "> digit-seven"]
    assert {colour for _, colour in written[:5]} == {INK}, "a remark"


def test_a_sheet_of_nothing_and_of_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = CheckReport("photos", {"cat": 9}, 0, {}, (Finding("small-class", (), "dog: 2 photos"),))
    assert draw_check(nothing, tmp_path / "nothing.png") == 0
    assert not (tmp_path / "nothing.png").exists()
    monkeypatch.setattr("foster.reports.contact_sheet.MOST_PICTURES", 5)
    findings = tuple(Finding("tiny", (photo(f"a/{k}.jpg"),), "small") for k in range(9))
    pairs = (Finding("duplicate", (photo("a/x.jpg"), photo("a/y.jpg")), "twice"),)
    assert drawn((*findings, *pairs), tmp_path / "much.png")[0] == 5


def test_what_cannot_become_a_picture_is_refused_before_anything_is_looked_at(tmp_path: Path) -> None:
    check_place(tmp_path / "new" / "sheet.PNG")
    assert list((tmp_path / "new").iterdir()) == []
    with pytest.raises(FolderError, match=r"sheet\.jpg.*\.png"):
        check_place(tmp_path / "sheet.jpg")
    with pytest.raises(FolderError, match=r"/proc/sheet\.png"):
        check_place(Path("/proc/sheet.png"))
