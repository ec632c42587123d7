"""Files that are whole or not there at all, and files that are nothing but files."""

import os
from pathlib import Path

import pytest
from limits import time_limit
from tiny_runs import (
    only_line,
    start,
    tiny_settings,
)

from foster.errors import FolderError
from foster.system import files
from foster.system.files import open_plain, read_plain, user_path, write_json


def test_only_ordinary_files_are_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    assert read_plain(tmp_path / "file", max_bytes=7) == b"content"
    assert read_plain(tmp_path / "link", may_be_link=True) == b"content"
    with pytest.raises(OSError, match="it is a link"):
        read_plain(tmp_path / "link")
    with pytest.raises(OSError, match="more than 6 bytes"):
        read_plain(tmp_path / "file", max_bytes=6)
    with pytest.raises(IsADirectoryError):
        read_plain(tmp_path)
    num_open = len(list(Path("/proc/self/fd").iterdir()))
    os.mkfifo(tmp_path / "pipe")
    for _ in range(5):
        with time_limit(), pytest.raises(OSError, match="not an ordinary file"):
            open_plain(str(tmp_path / "pipe"), os.O_RDONLY)
    assert len(list(Path("/proc/self/fd").iterdir())) == num_open


def test_names_that_are_no_unicode_can_be_written_to_json(tmp_path: Path):
    write_json(tmp_path / "x.json", {"name": "caf\xe9 \udcff"})
    assert b"\\udcff" in (tmp_path / "x.json").read_bytes()


def test_settings_that_are_no_unicode_give_one_line(tmp_path: Path):
    with pytest.raises(FolderError, match=r"\\udcff.* is not valid text") as error:
        start(tiny_settings("replay", "data=/\udcff"), tmp_path / "run")
    only_line(error)


def test_a_path_means_somebodys_home_or_a_file_of_that_name() -> None:
    assert user_path("~/x") == Path.home() / "x"
    assert user_path("~nosuch/x") == Path("~nosuch/x")


def test_homes_are_known_in_one_place() -> None:
    """Python's own way ends in a traceback where nobody has the name."""
    sources = Path(files.__file__).parents[1]
    assert [path.name for path in sources.rglob("*.py") if "expanduser" in path.read_text("utf-8")] == ["files.py"]
