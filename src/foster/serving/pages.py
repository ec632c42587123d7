"""The web pages, each one self-contained file: styles and scripts are put into it, and nothing else may run there."""

import base64
import hashlib
from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, PackageLoader

from foster.serving.answers import Session
from foster.serving.guard import COOKIE, is_same, refused, session_of
from foster.serving.service import RunningService

PAGES = {
    "index.html": ("foster", ("api.js", "photos.js", "labelling.js")),
    "docs.html": ("foster: API", ("api.js", "docs.js")),
    "sign_in.html": ("foster: token", ("sign_in.js",)),
}
"""Each page with its title and its scripts."""


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
    title, script_names = PAGES[name]
    style, script = _text("style.css"), "".join(map(_text, script_names))
    pages = Environment(loader=PackageLoader("foster.serving", "page"), trim_blocks=True)
    text = pages.get_template(name).render(title=title, style=style, script=script)
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
