"""Published files are fetched once, whatever becomes of the connection, the process or the folder."""

import io
import multiprocessing
import os
import signal
import stat
import tarfile
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from email.message import Message
from http.server import BaseHTTPRequestHandler, HTTPServer
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

from foster.data import download as receiving
from foster.data.cifar import load_cifar
from foster.data.download import Follower, _Encrypted, find_or_fetch, pieces
from foster.errors import DataError, FolderError
from foster.events import Downloading, Event, Waiting
from foster.system.locking import locked
from foster.system.signals import Stopped, StopRequest


@pytest.fixture(autouse=True)
def at_once_and_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(receiving, "SECONDS_BEFORE_RETRY", 0.0)


@pytest.fixture
def web() -> Iterator[Web]:
    with serving() as web:
        yield web


@pytest.mark.parametrize("given", [".", "cifar-100-python"])
def test_an_archive_that_lies_there_is_unpacked(tmp_path: Path, given: str) -> None:
    archive = archive_of(small_files())
    (tmp_path / "cifar-100-python.tar.gz").write_bytes(archive)
    assert_small_files_are_read(published(archive), tmp_path / given)
    assert sorted(path.name for path in (tmp_path / "cifar-100-python").iterdir()) == ["meta", "test", "train"]


def test_a_damaged_archive_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "cifar-100-python.tar.gz"
    path.write_bytes(b"not the archive")
    with pytest.raises(
        DataError, match=rf"{path} is damaged .* MD5 is {md5(b'not the archive')}.*; remove it, and it is down"
    ):
        find_or_fetch(published(archive_of(small_files())), tmp_path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", [b"", b"no gzip at all", archive_of(small_files())[:300]])
def test_an_archive_that_cannot_be_read_is_one_clear_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "cifar-100-python.tar.gz").write_bytes(content)
    with pytest.raises(DataError, match="cannot unpack") as caught:
        find_or_fetch(published(content), tmp_path)
    assert "\n" not in str(caught.value)


def test_unpacking_writes_the_expected_files_and_nothing_else(tmp_path: Path) -> None:
    files = {f"cifar-100-python/{name}": content for name, content in small_files().items()}
    archive = tar_of({"../escaped": b"x", "/tmp/absolute": b"x", "cifar-100-python/file.txt~": b"x", **files})
    folder = tmp_path / "data"
    write(folder, {"cifar-100-python.tar.gz": archive})
    find_or_fetch(published(archive), folder)
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert found == [
        "data/cifar-100-python.tar.gz",
        "data/cifar-100-python/meta",
        "data/cifar-100-python/test",
        "data/cifar-100-python/train",
    ]


def test_a_link_in_an_archive_is_never_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"private")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name in small_files():
            member = tarfile.TarInfo(f"cifar-100-python/{name}")
            member.type, member.linkname = tarfile.SYMTYPE, str(secret)
            archive.addfile(member)
    folder = write(tmp_path / "data", {"cifar-100-python.tar.gz": buffer.getvalue()})
    with pytest.raises(DataError, match=r"does not hold the files cifar-100-python/train, cifar-100-python/test"):
        find_or_fetch(published(buffer.getvalue()), folder)
    assert not (folder / "cifar-100-python").exists()


def test_without_a_network_one_line_says_which_files_to_put_where(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with pytest.raises(DataError) as caught:
        load_cifar(CIFAR100, published(b""), folder)
    assert str(caught.value) == (
        "cannot download http://127.0.0.1:9/cifar-100-python.tar.gz (Connection refused); put cifar-100-python.tar.gz "
        f"into {folder}, or the files train, test, meta into {folder / 'cifar-100-python'}"
    )
    assert not folder.exists()


def test_missing_files_are_downloaded_once_and_who_follows_hears_how_far_it_is(tmp_path: Path, web: Web) -> None:
    told: list[Event] = []
    find_or_fetch(web.published, tmp_path / "data", Follower(told.append))
    num_bytes = len(web.content)
    assert told[0] == Downloading(ARCHIVE, 0, None)
    assert told[-1] == Downloading(ARCHIVE, num_bytes, num_bytes)
    assert_small_files_are_read(web.published, tmp_path / "data")
    assert len(web.requests) == 1
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["cifar-100-python", ARCHIVE]


def test_what_is_downloaded_is_readable_by_whom_the_umask_allows(tmp_path: Path, web: Web) -> None:
    before = os.umask(0o027)
    try:
        find_or_fetch(web.published, tmp_path)
    finally:
        os.umask(before)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [stat.S_IMODE(path.stat().st_mode) for path in files] == [0o640] * 4


def test_a_download_with_a_wrong_checksum_leaves_nothing_behind_and_says_what_helps(tmp_path: Path, web: Web) -> None:
    web.content = b"a login page"
    wrong = rf"the download of {web.address}.* MD5 is {md5(web.content)}, not .*; put {ARCHIVE} into {tmp_path}, or"
    with pytest.raises(DataError, match=wrong):
        find_or_fetch(web.published, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_address_that_is_gone_is_reported_as_such_and_asked_once(tmp_path: Path, web: Web) -> None:
    web.address += "/elsewhere"
    with pytest.raises(DataError, match=rf"cannot download .*404.*; put {ARCHIVE} into"):
        find_or_fetch(web.published, tmp_path)
    assert len(web.requests) == 1


@pytest.mark.parametrize(("knows_ranges", "ends"), [(True, [100, 350]), (False, [100, 250])])
def test_a_connection_that_breaks_is_tried_again_and_goes_on_where_the_server_can(
    tmp_path: Path, web: Web, knows_ranges: bool, ends: list[int]
) -> None:
    web.knows_ranges, web.breaks_after = knows_ranges, [100, 250]
    told: list[Event] = []
    find_or_fetch(web.published, tmp_path, Follower(told.append))
    assert_small_files_are_read(web.published, tmp_path)
    assert web.requests == [None, "bytes=100-", f"bytes={ends[1]}-"]
    received = [event.num_received for event in told if isinstance(event, Downloading)]
    assert {*ends, len(web.content)} <= {*received}
    assert {event.num_total for event in told[1:] if isinstance(event, Downloading)} == {len(web.content)}


def test_a_connection_that_breaks_again_and_again_is_no_wrong_checksum(tmp_path: Path, web: Web) -> None:
    web.knows_ranges, web.breaks_after = False, [100, 200, 300]
    with pytest.raises(DataError) as caught:
        find_or_fetch(web.published, tmp_path / "data")
    broke = f"the connection broke after 300 of {len(web.content):,} bytes"
    assert str(caught.value).startswith(f"cannot download {web.address}/{ARCHIVE} ({broke}); put {ARCHIVE} into ")
    assert not (tmp_path / "data").exists()


def test_a_stop_that_is_asked_for_ends_a_download_and_leaves_nothing_behind(tmp_path: Path, web: Web) -> None:
    stop = StopRequest()

    def ask(event: Event) -> None:
        if isinstance(event, Downloading) and event.num_received:
            stop.set(signal.SIGTERM)

    web.holds_after = 200
    with pytest.raises(Stopped, match="stopped by SIGTERM"):
        find_or_fetch(web.published, tmp_path / "deep" / "data", Follower(ask, stop))
    assert list(tmp_path.iterdir()) == []


def test_of_many_who_miss_the_files_one_downloads_them_and_the_others_wait(tmp_path: Path, web: Web) -> None:
    waiting: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, Waiting):
            waiting.append(event.message)
            if len(waiting) == 3:
                web.let_go.set()

    web.holds_after = 200
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: find_or_fetch(web.published, tmp_path, Follower(listen)), range(4)))
    assert found == [tmp_path / "cifar-100-python"] * 4
    assert len(web.requests) == 1
    place = f"waiting for {ARCHIVE}: '{tmp_path}' is being written by process {os.getpid()} on"
    assert [message.startswith(place) for message in waiting] == [True] * 3


def test_who_waits_for_another_download_can_be_stopped(tmp_path: Path) -> None:
    stop = StopRequest()
    with locked(tmp_path, ".cifar-100-python.lock"), pytest.raises(Stopped):
        find_or_fetch(published(b""), tmp_path, Follower(lambda event: stop.set(), stop))


def test_what_a_killed_download_has_left_goes_with_the_next_one_and_nothing_else_does(tmp_path: Path, web: Web) -> None:
    web.holds_after = 200
    process = multiprocessing.get_context("fork").Process(target=find_or_fetch, args=(web.published, tmp_path))
    process.start()
    until = time.monotonic() + 20
    while not (left := list(tmp_path.glob(f".{ARCHIVE}.*.part"))) and time.monotonic() < until:
        time.sleep(0.01)
    process.kill()
    process.join()
    assert left
    assert left[0].exists(), "a killed process cannot clean up"
    others = [tmp_path / ".cifar-10-python.tar.gz.12.part", tmp_path / f".{ARCHIVE}.md5"]
    for path in others:
        path.write_bytes(b"of somebody else")
    unpacked = write(tmp_path / "cifar-100-python", {".train.12.part": b"begun"})
    web.holds_after = None
    find_or_fetch(web.published, tmp_path)
    assert sorted(path.name for path in unpacked.iterdir()) == ["meta", "test", "train"]
    assert {*tmp_path.iterdir()} == {*others, unpacked, tmp_path / ARCHIVE}


def test_a_data_folder_that_is_a_file_is_refused_before_anything_is_asked_for(tmp_path: Path, web: Web) -> None:
    (tmp_path / "data").write_bytes(b"a file, not a folder")
    for folder in (tmp_path / "data", tmp_path / "data" / "deep"):
        with pytest.raises(FolderError, match=rf"cannot write '{folder}.*': (File exists|Not a directory)"):
            find_or_fetch(web.published, folder)
    assert not web.requests


@pytest.fixture
def read_only() -> Iterator[Path]:
    """A folder that whoever runs this test may not write to; permissions bind root when it acts as somebody else."""
    is_root = os.geteuid() == 0
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o555)
        if is_root:
            try:
                os.seteuid(65534)
            except OSError:
                pytest.skip("root cannot act as an ordinary user here")
        yield Path(name)
        if is_root:
            os.seteuid(0)
        Path(name).chmod(0o755)


def test_a_data_folder_that_cannot_be_made_is_refused_before_anything_is_asked_for(read_only: Path, web: Web) -> None:
    for folder in (read_only, read_only / "deep" / "data"):
        with pytest.raises(FolderError, match=f"cannot write '{folder}.*': Permission denied"):
            find_or_fetch(web.published, folder)
    assert not web.requests


def test_a_data_folder_that_cannot_be_looked_into_is_named(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 300)
    with pytest.raises(DataError, match=f"cannot read {folder}: File name too long"):
        find_or_fetch(published(b""), folder)


def test_a_file_where_the_unpacked_folder_should_be_is_named(tmp_path: Path) -> None:
    archive = archive_of(small_files())
    write(tmp_path, {"cifar-100-python.tar.gz": archive, "cifar-100-python": b"a file, not a folder"})
    with pytest.raises(FolderError, match=r"cannot write '.*/cifar-100-python': File exists"):
        find_or_fetch(published(archive), tmp_path)


@pytest.mark.parametrize(
    ("first", "then", "is_followed"),
    [
        ("https://a.org/x", "https://b.org/x", True),
        ("http://a.org/x", "http://b.org/x", True),
        ("http://a.org/x", "https://b.org/x", True),
        ("https://a.org/x", "http://a.org/x", False),
        ("https://a.org/x", "ftp://a.org/x", False),
    ],
)
def test_a_server_cannot_lead_from_an_encrypted_connection_to_a_plain_one(
    first: str, then: str, is_followed: bool
) -> None:
    def follow() -> urllib.request.Request | None:
        request = urllib.request.Request(first)
        return _Encrypted().redirect_request(request, None, 302, "Found", Message(), then)

    if is_followed:
        made = follow()
        assert made is not None
        assert made.full_url == then
    else:
        with pytest.raises(urllib.error.URLError, match="which is not encrypted"):
            follow()


class Elsewhere(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(302)
        self.send_header("Location", "http://elsewhere.invalid/x")
        self.end_headers()

    def log_message(self, *given: object) -> None:
        """Nobody listens."""


def test_the_connections_that_are_made_go_through_that_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def refuse(handler: _Encrypted, request: urllib.request.Request, *given: object) -> None:
        asked.append(str(given[-1]))
        raise urllib.error.URLError("refused")

    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(_Encrypted, "redirect_request", refuse)
    with HTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        with pytest.raises(DataError, match="refused"):
            next(pieces(f"http://127.0.0.1:{server.server_port}/x", StopRequest()))
    assert asked == ["http://elsewhere.invalid/x"]


def test_a_server_that_sends_more_than_was_expected_is_not_listened_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with serving() as web:
        archive = archive_of(small_files())
        web.content = archive
        address = f"{web.address}/{published(archive).archive}"
        assert sum(len(piece.content) for piece in pieces(address, StopRequest(), len(archive))) == len(archive)
        with pytest.raises(DataError, match=r"it has more than [\d,]+ bytes"):
            list(pieces(address, StopRequest(), len(archive) - 1))
