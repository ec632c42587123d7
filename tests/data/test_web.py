"""A file from the web: encrypted where it was asked for so, and never more than was expected."""

import threading
import urllib.error
import urllib.request
from email.message import Message
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from small_cifar import archive_of, published, serving, small_files

from foster.data.web import _Encrypted, pieces
from foster.errors import DataError
from foster.system.signals import StopRequest


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
