"""A file from the web, piece by piece: a connection that breaks is tried again, and a signal ends any wait."""

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, NamedTuple

from foster.errors import DataError, words_of
from foster.system.signals import StopRequest

MAX_PIECE_BYTES = 1 << 18
TIMEOUT_SECONDS = 30.0
MAX_BYTES = 2**30
"""More than any archive has that is fetched."""
NUM_RETRIES, SECONDS_BEFORE_RETRY = 2, 1.0


class Piece(NamedTuple):
    """Some bytes of a file, where in it they belong, and how many it has in all, if the server says so."""

    start: int
    content: bytes
    num_total: int | None

    @property
    def end(self) -> int:
        return self.start + len(self.content)


class _Encrypted(urllib.request.HTTPRedirectHandler):
    """Follows a server that names another place, but never from an encrypted connection to a plain one."""

    def redirect_request(self, req: urllib.request.Request, *given: Any) -> urllib.request.Request | None:
        made = super().redirect_request(req, *given)
        if made is not None and req.type == "https" and made.type != "https":
            raise urllib.error.URLError(f"it leads to {made.full_url[:200]}, which is not encrypted")
        return made


def pieces(address: str, stop: StopRequest, max_bytes: int = MAX_BYTES) -> Iterator[Piece]:
    """What the server sends, in order, up to `max_bytes`.

    Where a connection broke, the next one goes on, or begins at the start if the server can do no other; a DataError
    says that none came to the end.
    """
    num_received = 0
    for num_left in range(NUM_RETRIES, -1, -1):
        try:
            for piece in _sent(address, num_received, stop):
                if max(piece.end, piece.num_total or 0) > max_bytes:
                    raise DataError(f"cannot download {address} (it has more than {max_bytes:,} bytes)")
                yield piece
                num_received = piece.end
            return
        except (OSError, http.client.HTTPException) as error:
            # An address from which nothing came at all is wrong or out of reach: waiting would not change that.
            if not num_left or not num_received:
                raise DataError(f"cannot download {address} ({reason(error)})") from error
        with stop.at_once():
            time.sleep(SECONDS_BEFORE_RETRY)


def _sent(address: str, start: int, stop: StopRequest) -> Iterator[Piece]:
    """What one connection brings, from `start` on if the server supports that."""
    request = urllib.request.Request(address, headers={"Range": f"bytes={start}-"} if start else {})
    with stop.at_once():
        response = urllib.request.build_opener(_Encrypted).open(request, timeout=TIMEOUT_SECONDS)
    with response:
        if response.status != HTTPStatus.PARTIAL_CONTENT:
            start = 0
        length = response.headers.get("Content-Length")
        num_total = start + int(length) if length and length.isdigit() else None
        while True:
            # Not `read`, which waits until it has all that it was asked for.
            with stop.at_once():
                content = response.read1(MAX_PIECE_BYTES)
            if not content:
                break
            yield Piece(start, content, num_total)
            start += len(content)
        if num_total is not None and start < num_total:
            raise ConnectionError(f"the connection broke after {start:,} of {num_total:,} bytes")


def reason(error: BaseException) -> str:
    """The words of the error below, which is what the web's own errors wrap."""
    is_wrapped = isinstance(error, urllib.error.URLError) and isinstance(error.reason, BaseException)
    return words_of(error.reason if is_wrapped else error)  # type: ignore[attr-defined]
