"""uvicorn's HTTP/1.1 protocol with a deadline for headers, and JSON answers to requests that cannot be parsed."""

import asyncio
import json
from http import HTTPStatus
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from foster.serving.guard import SECURITY_HEADERS


class Connection(H11Protocol):
    """One connection. `seconds` is the time between two answers, or before the first, in which a whole header must
    arrive: uvicorn's own timer starts again at every byte."""

    seconds: ClassVar[float]
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._set_deadline()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._set_deadline()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._set_deadline()

    def send_400_response(self, msg: str) -> None:
        self._refuse(HTTPStatus.BAD_REQUEST, "this is not a valid HTTP request")

    def _set_deadline(self) -> None:
        """Run the deadline while no request is being answered. It also ends a body that is no longer read."""
        is_answering = self.conn.our_state in (h11.SEND_RESPONSE, h11.SEND_BODY)
        if self._deadline is not None and is_answering:
            self._deadline.cancel()
            self._deadline = None
        elif self._deadline is None and not is_answering:
            self._deadline = self.loop.call_later(self.seconds, self._close_late)

    def _close_late(self) -> None:
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"the header did not arrive within {self.seconds:g} seconds")
        self.transport.close()

    def _refuse(self, status: HTTPStatus, reason: str) -> None:
        """Answer, if no answer has begun and the client is still connected, and close the connection."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE) and not self.transport.is_closing():
            body = json.dumps({"error": reason}).encode()
            headers = {"content-type": "application/json", "content-length": len(body), "connection": "close"}
            lines = [f"HTTP/1.1 {status} {status.phrase}"]
            lines += [f"{name}: {value}" for name, value in (headers | SECURITY_HEADERS).items()]
            self.transport.write("\r\n".join([*lines, "", ""]).encode() + body)
        self.transport.close()
