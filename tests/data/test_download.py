"""Published files are downloaded once, and what goes wrong is one line that says what to put where."""

import io
import os
import stat
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from small_cifar import (
    ARCHIVE,
    CIFAR100,
    Web,
    archive_of,
    assert_small_files_are_read,
    md5,
    published,
    serving,
    small_files,
    tar_of,
    write,
)

from foster.data.cifar import load_cifar
from foster.data.download import Follower, find_or_fetch
from foster.errors import DataError, FolderError
from foster.events import Downloading, Event


@pytest.fixture(autouse=True)
def without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def web() -> Iterator[Web]:
    with serving() as web:
        yield web


@pytest.mark.parametrize("given", [".", "cifar-100-python"])
def test_an_archive_in_the_data_folder_is_unpacked(tmp_path: Path, given: str) -> None:
    archive = archive_of(small_files())
    (tmp_path / ARCHIVE).write_bytes(archive)
    assert_small_files_are_read(published(archive), tmp_path / given)
    assert sorted(path.name for path in (tmp_path / "cifar-100-python").iterdir()) == ["meta", "test", "train"]


def test_a_damaged_archive_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / ARCHIVE
    path.write_bytes(b"not the archive")
    with pytest.raises(DataError, match=rf"{path}.*{md5(b'not the archive')}"):
        find_or_fetch(published(archive_of(small_files())), tmp_path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", [b"", b"no gzip at all", archive_of(small_files())[:300]])
def test_an_archive_that_cannot_be_read_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ARCHIVE).write_bytes(content)
    with pytest.raises(DataError, match="cannot unpack") as caught:
        find_or_fetch(published(content), tmp_path)
    assert "\n" not in str(caught.value)


def test_unpacking_writes_the_expected_files_and_nothing_else(tmp_path: Path) -> None:
    files = {f"cifar-100-python/{name}": content for name, content in small_files().items()}
    archive = tar_of({"../escaped": b"x", "/tmp/absolute": b"x", "cifar-100-python/file.txt~": b"x", **files})
    folder = write(tmp_path / "data", {ARCHIVE: archive})
    find_or_fetch(published(archive), folder)
    found = sorted(str(path.relative_to(folder)) for path in tmp_path.rglob("*") if path.is_file())
    assert found == [ARCHIVE, *(f"cifar-100-python/{name}" for name in ("meta", "test", "train"))]


def test_a_link_in_an_archive_is_never_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"private")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name in small_files():
            member = tarfile.TarInfo(f"cifar-100-python/{name}")
            member.type, member.linkname = tarfile.SYMTYPE, str(secret)
            archive.addfile(member)
    folder = write(tmp_path / "data", {ARCHIVE: buffer.getvalue()})
    with pytest.raises(DataError, match="cifar-100-python"):
        find_or_fetch(published(buffer.getvalue()), folder)
    assert not (folder / "cifar-100-python").exists()


def test_without_a_network_one_line_says_which_files_to_put_where(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        load_cifar(CIFAR100, published(b""), tmp_path)
    text = str(caught.value)
    assert text.startswith(f"cannot download http://127.0.0.1:9/{ARCHIVE} (")
    assert text.endswith(
        f"; put {ARCHIVE} into {tmp_path}, or the files train, test, meta into {tmp_path / 'cifar-100-python'}"
    )
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


def test_a_data_folder_that_is_a_file_is_refused_before_anything_is_asked_for(tmp_path: Path, web: Web) -> None:
    (tmp_path / "data").write_bytes(b"a file, not a folder")
    for folder in (tmp_path / "data", tmp_path / "data" / "deep"):
        with pytest.raises(FolderError, match=str(folder)):
            find_or_fetch(web.published, folder)
    assert not web.num_requests


def test_what_is_unpacked_is_readable_by_whom_the_umask_allows(tmp_path: Path, web: Web) -> None:
    before = os.umask(0o027)
    try:
        find_or_fetch(web.published, tmp_path)
    finally:
        os.umask(before)
    files = (tmp_path / "cifar-100-python").iterdir()
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o640}
