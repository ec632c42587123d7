"""The web pages, each one self-contained file: styles and scripts are put into it, and nothing else may run there."""

import base64
import hashlib
from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response

from foster.serving.answers import Session
from foster.serving.guard import COOKIE, is_same, refused, session_of
from foster.serving.service import RunningService

PAGES = {
    "index.html": ("style.css", ("api.js", "photos.js", "labelling.js")),
    "docs.html": ("style.css", ("api.js", "docs.js")),
    "sign_in.html": ("style.css", ("sign_in.js",)),
}
"""Each page with its styles and scripts."""


router = APIRouter(include_in_schema=False)


@router.api_route("/", methods=["GET", "HEAD"])
async def index() -> Response:
    return page("index.html")


@router.get("/docs")
async def docs() -> Response:
    return page("docs.html")


@router.post("/session")
async def sign_in(session: Session, request: Request, service: RunningService) -> Response:
    """A browser brings the token once and keeps a cookie that no script and no other site can use."""
    token = service.options.token
    answer = Response(status_code=204)
    if token:
        if not is_same(session.token.encode("utf-8", "replace"), token):
            return refused(401, "this is not the token")
        is_safe = request.url.scheme == "https"
        answer.set_cookie(COOKIE, session_of(token), httponly=True, samesite="strict", secure=is_safe)
    return answer


def page(name: str, status: int = 200) -> HTMLResponse:
    """A page with a policy under which only its own scripts and styles work, and only with this server."""
    text, policy = _assembled(name)
    return HTMLResponse(text, status, {"content-security-policy": policy})


@cache
def _assembled(name: str) -> tuple[str, str]:
    """A page's text and its policy."""
    style_name, script_names = PAGES[name]
    style = f"\n{_text(style_name)}"
    script = "\n" + "".join(map(_text, script_names))
    text = _text(name).replace("<style></style>", f"<style>{style}</style>")
    text = text.replace("<script></script>", f"<script>{script}</script>")
    rules = {
        "default-src": "'none'",
        "script-src": _hashed(script),
        "style-src": _hashed(style),
        "img-src": "'self' blob: data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return text, "; ".join(f"{rule} {value}" for rule, value in rules.items())


def _text(name: str) -> str:
    return (files("foster.serving") / "page" / name).read_text(encoding="utf-8")


def _hashed(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
