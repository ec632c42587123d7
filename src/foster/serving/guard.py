"""Checks before any route (token, host name, origin, size) and security headers on every answer."""

import hashlib
import hmac
import ipaddress
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from foster.serving.options import Options

COOKIE = "foster_session"
OPEN_ROUTES = frozenset({"/health", "/session"})
"""Routes without a token: the health check, and the route to which a browser sends the token."""

SECURITY_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
}


def refused(status: int, reason: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": reason}, status, headers)


def session_of(token: str) -> str:
    """The value of the cookie: a keyed hash, from which the token cannot be computed."""
    return hmac.new(token.encode(), b"foster session", hashlib.sha256).hexdigest()


def is_same(given: bytes, wanted: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(given, wanted.encode())


class Guard:
    """An ASGI application that checks each request before another application gets it."""

    def __init__(
        self, app: ASGIApp, options: Options, sign_in_page: ASGIApp, on_answer: Callable[[str, int], None]
    ) -> None:
        """`sign_in_page` is the answer to `/` without the token; `on_answer` gets every route and status."""
        self._app = app
        self._options = options
        self._sign_in_page = sign_in_page
        self._on_answer = on_answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, num_received = 500, 0

        async def guarded_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                if status >= 400:  # the rest of a body that was refused is not read
                    headers["connection"] = "close"
            await send(message)

        async def limited_receive() -> Message:
            nonlocal num_received
            message = await receive()
            num_received += len(message.get("body", b""))
            if num_received > self._options.max_bytes:
                raise HTTPException(413, self._too_large())
            return message

        try:
            await (self._refusal(scope) or self._app)(scope, limited_receive, guarded_send)
        finally:
            self._on_answer(getattr(scope.get("route"), "path", "other"), status)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        """The answer to a request that may not reach the routes."""
        headers = Headers(scope=scope)
        if refusal := self._wrong_site(scope, headers):
            return refusal
        length = headers.get("content-length", "0")
        if length.isascii() and length.isdigit() and int(length[:19]) > self._options.max_bytes:
            return refused(413, self._too_large())
        if self._may_enter(scope, headers):
            return None
        if scope["path"] == "/" and scope["method"] in ("GET", "HEAD"):
            return self._sign_in_page
        reason = "the token is missing or wrong: send the header 'Authorization: Bearer TOKEN'"
        return refused(401, reason, {"www-authenticate": "Bearer"})

    def _wrong_site(self, scope: Scope, headers: Headers) -> JSONResponse | None:
        """The answer to a request that another web site sends from a visitor's browser; None for any other request."""
        host = headers.get("host", "")
        if not self._options.token and not self._is_own_name(host):
            return refused(421, "without a token, this server answers to its address and to localhost alone")
        if scope["method"] in ("GET", "HEAD", "OPTIONS"):
            return None
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        is_from_here = origin is None or origin.lower().partition("://")[2] == host.lower()
        is_own = site in ("same-origin", "none") if site else is_from_here
        return None if is_own else refused(403, "a page of another site may not send anything here")

    def _is_own_name(self, host: str) -> bool:
        """Whether `host` is localhost, an IP address or the name of this server. Other names are refused, because
        another site can point its own name at this server (DNS rebinding)."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
            return name in ("localhost", self._options.host.lower()) or bool(ipaddress.ip_address(name))
        except ValueError:
            return not host  # HTTP/1.0 has no such header, and no browser sends it

    def _may_enter(self, scope: Scope, headers: Headers) -> bool:
        token = self._options.token
        if not token or scope["path"] in OPEN_ROUTES:
            return True
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and is_same(given.strip().encode("latin-1"), token):
            return True
        cookie = HTTPConnection(scope).cookies.get(COOKIE, "")
        return is_same(cookie.encode("latin-1"), session_of(token))

    def _too_large(self) -> str:
        return f"a request may have at most {self._options.max_bytes:,} bytes"
