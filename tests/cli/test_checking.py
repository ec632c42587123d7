"""The command `check`: its exit code says whether something must be done."""

import json
import re
import shutil
from pathlib import Path

from commands import Command, contents, write_photos
from servers import queue


def test_the_exit_code_tells_problems_from_remarks_and_from_mistakes(command: Command) -> None:
    photos = write_photos(Path("photos"), zero=12, two=12)
    clean = command("check", photos, "--quick", "--quiet", "--sheet", "sheet.png")
    assert clean.code == 0
    assert "sheet.png" in clean.err
    assert not Path("sheet.png").exists()
    assert "nothing was found" in clean.out
    Path("photos/one").mkdir()
    remarked = command("check", photos, "--quick", "--json", "-q")
    assert remarked.code == 0
    assert [finding["kind"] for finding in json.loads(remarked.out)["findings"]] == ["empty-class"]
    (photos / "zero" / "broken.jpg").write_bytes(b"broken")
    found = command("check", photos, "--quick", "-q", "--sheet", "out/sheet.png")
    assert found.code == 1
    assert "broken.jpg" in found.out
    assert "out/sheet.png: 1 photo" in found.err
    assert Path("out/sheet.png").is_file()


def test_a_bundle_judges_labels_and_is_not_changed(command: Command, bundle: Path) -> None:
    photos = write_photos(Path("photos"), zero=60, one=60, two=60)
    before = contents(bundle)
    done = command("check", photos, "--from", bundle, "--device", "cpu", "-q")
    assert done.code == 0, done.out + done.err
    assert re.search(r"photos/\w+/\d+.png: looks like \w+ \(\d+ %; as labelled \d %\)", done.out), done.out
    assert contents(bundle) == before


def test_label_next_lists_and_copies_in_order_and_never_overwrites(
    small_bundle: Path, tmp_path: Path, command: Command
) -> None:
    source, target = queue(tmp_path / "camera", 12), tmp_path / "to-label"
    done = command("label-next", small_bundle, source, "--count", 10, "--json", "--copy", target, "--device", "cpu")
    assert done.code == 0
    listed = [json.loads(line) for line in done.out.splitlines()]
    assert len(listed) == 10
    copied = sorted(target.iterdir())
    assert [path.name for path in copied] == [
        f"{k:02d}-{Path(entry['image']).name}" for k, entry in enumerate(listed, 1)
    ]
    (alike := tmp_path / "alike").mkdir()
    for k in range(3):  # the longest names that there are, which differ at their beginning alone
        shutil.copy(source / f"{k + 1}-photo.png", alike / f"{k}{'日' * 83}.png")
    assert command("label-next", small_bundle, alike, "--copy", tmp_path / "three").code == 0
    assert len(list((tmp_path / "three").iterdir())) == 3
    assert copied[0].read_bytes() == Path(listed[0]["image"]).read_bytes()
    (tmp_path / "empty").mkdir()
    for words, complaint in (
        ((source, "--copy", target), f"'{target}' already exists"),
        ((source, "--copy", source / "inside"), f"'{source}'"),
        ((tmp_path / "empty",), str(tmp_path / "empty")),
    ):
        refused = command("label-next", small_bundle, *words)
        assert refused.code == 2
        assert complaint in refused.err
    assert not (source / "inside").exists()
    (line,) = command("label-next", small_bundle, source, "--count", 1).out.splitlines()
    assert line.startswith(str(source))
