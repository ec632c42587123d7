"""Files that are whole or not there at all, and files that are read with a limit."""

import os
import re
from pathlib import Path

import pytest
from faults import FullDisk

from foster.errors import FolderError
from foster.system.files import read_limited, user_path, write_bytes, write_json


def test_a_file_is_read_up_to_a_limit_and_from_a_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    assert read_limited(tmp_path / "file", 7) == b"content"
    assert read_limited(tmp_path / "file", 4, start=3) == b"tent"
    assert read_limited(tmp_path / "file", 0, start=9) == b""
    with pytest.raises(OSError, match="7 bytes, more than 6"):
        read_limited(tmp_path / "file", 6)


def test_a_file_keeps_its_content_until_the_new_one_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_bytes(tmp_path / "file", b"old")
    monkeypatch.setattr("os.write", FullDisk("file", num_whole=0))
    with pytest.raises(FolderError, match=re.escape(str(tmp_path / "file"))):
        write_bytes(tmp_path / "file", b"a longer new content")
    assert (tmp_path / "file").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_file_that_the_system_takes_in_parts_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr("os.write", lambda descriptor, data: write(descriptor, data[:3]))
    write_bytes(tmp_path / "file", b"content")
    assert (tmp_path / "file").read_bytes() == b"content"


def test_names_that_are_no_unicode_can_be_written_to_json(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"name": "caf\xe9 \udcff"})
    assert b"\\udcff" in (tmp_path / "x.json").read_bytes()


def test_a_path_means_somebodys_home_or_a_file_of_that_name() -> None:
    assert user_path("~/x") == Path.home() / "x"
    assert user_path("~nosuch/x") == Path("~nosuch/x")
