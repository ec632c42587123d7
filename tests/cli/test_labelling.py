"""What `foster label-next` lists and copies."""

import json
from pathlib import Path

import pytest
from servers import photo

from foster.cli import app


def command(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        app([str(word) for word in words])
    return int(ended.value.code or 0)


def photos(folder: Path, count: int) -> Path:
    folder.mkdir()
    for k in range(count):
        (folder / f"IMG_{k}.png").write_bytes(photo(k))
    return folder


def test_label_next_lists_and_copies_in_order_and_never_overwrites(
    small_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = photos(tmp_path / "camera", 12), tmp_path / "to-label"
    assert (
        command("label-next", small_bundle, source, "--count", 10, "--json", "--copy", target, "--device", "cpu") == 0
    )
    listed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(listed) == 10
    copied = sorted(target.iterdir())
    assert [path.name for path in copied] == [
        f"{k:02d}-{Path(entry['image']).name}" for k, entry in enumerate(listed, 1)
    ]
    assert copied[0].read_bytes() == Path(listed[0]["image"]).read_bytes()
    assert command("label-next", small_bundle, source, "--copy", target) == 2
    assert "already exists; name a new folder with --copy" in capsys.readouterr().err
    assert command("label-next", small_bundle, source, "--copy", source / "inside") == 2
    assert "whose photos are read; choose another place" in capsys.readouterr().err
    assert not (source / "inside").exists()
    assert command("label-next", small_bundle, source, "--count", 1) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(str(source))
    (tmp_path / "empty").mkdir()
    assert command("label-next", small_bundle, tmp_path / "empty") == 2
    assert "no images below" in capsys.readouterr().err
