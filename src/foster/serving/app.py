"""All routes and pages of `foster serve` as one ASGI application."""

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from jinja2 import Environment, PackageLoader
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp

from foster.data.photos.decode import ImageError
from foster.errors import FolderError
from foster.serving import routes
from foster.serving.guard import COOKIE, Guard, is_same, refused, session_of
from foster.serving.service import RunningService, Service, logger
from foster.version import __version__

ABOUT = (
    "Classifies photos, with calibrated confidence. An error is answered with one line, `error`. "
    "If the server was started with a token, send it as `Authorization: Bearer TOKEN`."
)

PAGES = {
    "index.html": ("foster", ("api.js", "photos.js", "labelling.js")),
    "sign_in.html": ("foster: token", ("sign_in.js",)),
}
"""Each page with its title and its scripts."""

pages = APIRouter(include_in_schema=False)


class Session(BaseModel):
    token: str = Field(max_length=4096)


class Problem(BaseModel):
    """The body of every error response: one line with the reason."""

    error: str


def make_app(service: Service) -> ASGIApp:
    """The application; its lifespan starts and stops the service."""
    problems: dict[int | str, dict[str, Any]] = {"default": {"model": Problem, "description": "An error"}}
    app = FastAPI(
        title="foster",
        version=__version__,
        description=ABOUT,
        lifespan=lambda app: service.running(),
        docs_url=None,
        redoc_url=None,
        responses=problems,
    )
    for kind in (HTTPException, RequestValidationError, ClientDisconnect, ImageError, FolderError, Exception):
        app.add_exception_handler(kind, _problem)
    app.state.service = service
    app.include_router(pages)
    app.include_router(routes.router)
    return Guard(app, service.options, page("sign_in.html", 401), service.count_request)


async def _problem(request: Request, error: Exception) -> JSONResponse:
    """The answer to a request that failed: one line without the value that was sent and without any path."""
    match error:
        case HTTPException():
            return refused(error.status_code, error.detail, error.headers)
        case RequestValidationError():
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"] if part not in ("query", "body", "path"))
            return refused(422, f"{where or 'the body'}: {first['msg']}")
        case ClientDisconnect():
            return refused(499, "the client has disconnected")  # only the metrics show it
        case ImageError():
            return refused(422, f"the image cannot be read: {error}")
        case FolderError():
            logger.error("%s", error)
            return refused(507, "the feedback folder cannot be written; see the log of the server")
    return refused(500, "internal error; see the log of the server")


@pages.api_route("/", methods=["GET", "HEAD"])
async def index() -> Response:
    return page("index.html")


@pages.post("/session")
async def sign_in(session: Session, request: Request, service: RunningService) -> Response:
    """Exchange the token for a cookie that no script and no other site can use."""
    token = service.options.token
    answer = Response(status_code=204)
    if token:
        if not is_same(session.token.encode("utf-8", "replace"), token):
            return refused(401, "this is not the token")
        is_safe = request.url.scheme == "https"
        answer.set_cookie(COOKIE, session_of(token), httponly=True, samesite="strict", secure=is_safe)
    return answer


def page(name: str, status: int = 200) -> HTMLResponse:
    """A page whose content security policy allows its own scripts and styles, and requests to this server."""
    text, policy = _assembled(name)
    return HTMLResponse(text, status, {"content-security-policy": policy})


@cache
def _assembled(name: str) -> tuple[str, str]:
    """A page's text and its policy."""
    title, script_names = PAGES[name]
    style, script = _text("style.css"), "".join(map(_text, script_names))
    templates = Environment(loader=PackageLoader("foster.serving", "page"), trim_blocks=True)
    text = templates.get_template(name).render(title=title, style=style, script=script)
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
