"""Published files are downloaded once, and what goes wrong is one line that says what to put where."""

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from small_cifar import (
    ARCHIVE,
    Web,
    archive_of,
    assert_small_files_are_read,
    md5,
    published,
    read,
    serving,
    small_files,
)

from foster.data.download import Follower, find_or_fetch
from foster.errors import DataError
from foster.events import Downloading, Event


@pytest.fixture(autouse=True)
def without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def web() -> Iterator[Web]:
    with serving() as web:
        yield web


@pytest.mark.parametrize("given", [".", "cifar-100-python"])
def test_an_archive_in_the_data_folder_is_unpacked(tmp_path: Path, given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "copytree", lambda *given, **options: pytest.fail("a new folder appears when complete"))
    archive = archive_of(small_files())
    (tmp_path / ARCHIVE).write_bytes(archive)
    assert_small_files_are_read(published(archive), tmp_path / given)
    assert sorted(path.name for path in (tmp_path / "cifar-100-python").iterdir()) == ["meta", "test", "train"]


def test_a_missing_file_of_an_unpacked_folder_comes_from_the_archive(tmp_path: Path) -> None:
    archive = archive_of(small_files())
    (tmp_path / ARCHIVE).write_bytes(archive)
    find_or_fetch(published(archive), tmp_path)
    (tmp_path / "cifar-100-python" / "train").unlink()
    assert_small_files_are_read(published(archive), tmp_path)


def test_a_damaged_archive_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / ARCHIVE
    path.write_bytes(b"not the archive")
    with pytest.raises(DataError, match=rf"{path}.*{md5(b'not the archive')}"):
        find_or_fetch(published(archive_of(small_files())), tmp_path)
    assert list(tmp_path.iterdir()) == [path]


def test_an_archive_that_cannot_be_unpacked_is_one_line(tmp_path: Path) -> None:
    archive = archive_of(small_files())
    (tmp_path / ARCHIVE).write_bytes(archive)
    (tmp_path / "cifar-100-python").write_text("a file where the folder should be")
    with pytest.raises(DataError, match=rf"cannot unpack {tmp_path / ARCHIVE} into .*: File exists"):
        find_or_fetch(published(archive), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cifar-100-python", ARCHIVE]


def test_without_a_network_one_line_says_which_files_to_put_where(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        read(published(b""), tmp_path)
    text = str(caught.value)
    for fact in (f"http://127.0.0.1:9/{ARCHIVE}", f"{ARCHIVE} into {tmp_path}", str(tmp_path / "cifar-100-python")):
        assert fact in text
    assert "\n" not in text
    assert list(tmp_path.iterdir()) == []


def test_missing_files_are_downloaded_once_and_the_follower_hears_the_progress(tmp_path: Path, web: Web) -> None:
    told: list[Event] = []
    find_or_fetch(web.published, tmp_path / "data", Follower(told.append))
    num_bytes = len(web.content)
    assert told[0] == Downloading(ARCHIVE, 0, None)
    assert told[-1] == Downloading(ARCHIVE, num_bytes, num_bytes)
    assert_small_files_are_read(web.published, tmp_path / "data")
    assert web.num_requests == 1
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["cifar-100-python", ARCHIVE]


def test_a_download_with_a_wrong_checksum_leaves_nothing_behind_and_says_what_helps(tmp_path: Path, web: Web) -> None:
    web.content = b"a login page"
    with pytest.raises(DataError, match=rf"{web.address}.*{md5(web.content)}.*{ARCHIVE} into {tmp_path}"):
        find_or_fetch(web.published, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_address_that_is_gone_is_reported_as_such(tmp_path: Path, web: Web) -> None:
    web.address += "/elsewhere"
    with pytest.raises(DataError, match=rf"404.*{ARCHIVE}"):
        find_or_fetch(web.published, tmp_path)


def test_of_many_that_miss_the_files_one_downloads_them(tmp_path: Path, web: Web) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: find_or_fetch(web.published, tmp_path), range(4)))
    assert found == [tmp_path / "cifar-100-python"] * 4
    assert web.num_requests == 1
