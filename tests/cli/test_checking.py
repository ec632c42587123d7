"""The command `check`: its exit code says whether something must be done."""

import json
from pathlib import Path

from commands import Command, write_photos


def test_the_exit_code_tells_problems_from_remarks_and_from_mistakes(command: Command) -> None:
    photos = write_photos(Path("photos"), zero=12, two=12)
    clean = command("check", photos, "--quick", "--quiet")
    assert (clean.code, clean.err) == (0, "")
    assert "nothing was found" in clean.out
    Path("photos/one").mkdir()
    remarked = command("check", photos, "--quick", "--json", "-q")
    assert remarked.code == 0
    assert [finding["kind"] for finding in json.loads(remarked.out)["findings"]] == ["empty-class"]
    (photos / "zero" / "broken.jpg").write_bytes(b"broken")
    found = command("check", photos, "--quick", "-q", "--out", "out/sheet.png")
    assert found.code == 1
    assert "cannot be read" in found.out
    assert "out/sheet.png: 1 photo" in found.err
    assert Path("out/sheet.png").is_file()
    assert command("check", "nowhere", "--quick").code == 2
    assert "0 where nothing or only remarks" in " ".join(command("check", "--help").out.split()).replace("│ ", "")
