"""All routes of `foster serve` as one ASGI application."""

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp

from foster.serving import label_routes, pages, routes
from foster.serving.answers import Problem
from foster.serving.guard import Guard, refused
from foster.serving.service import Service
from foster.version import __version__

ABOUT = (
    "Tells what photos show, with calibrated confidence. Every answer that is no success holds one line, `error`. "
    "Where the server was started with a token, send it as `Authorization: Bearer TOKEN`."
)

SENDER_LEFT = 499
"""What servers commonly call it when a client goes before its body was read."""


def make_app(service: Service) -> ASGIApp:
    """The application; its lifespan starts and ends everything that works beside the event loop."""
    problems: dict[int | str, dict[str, Any]] = {"default": {"model": Problem, "description": "Why not"}}
    app = FastAPI(
        title="foster",
        version=__version__,
        description=ABOUT,
        lifespan=lambda app: service.running(),
        docs_url=None,
        redoc_url=None,
        responses=problems,
    )
    app.add_exception_handler(HTTPException, _not_done)
    app.add_exception_handler(RequestValidationError, _not_valid)
    app.add_exception_handler(ClientDisconnect, _left)
    app.add_exception_handler(Exception, _failed)
    app.state.service = service
    for part in (pages, routes, label_routes):
        app.include_router(part.router)
    return Guard(app, service.options, pages.page("sign_in.html", 401), service.count_request)


async def _not_done(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    is_no_route = error.detail == HTTPStatus(error.status_code).phrase  # the framework's own words
    why = "nothing is at this address, or not for this method; /docs lists what there is"
    return refused(error.status_code, why if is_no_route else error.detail, error.headers)


async def _not_valid(request: Request, error: Exception) -> JSONResponse:
    """The first problem as one line; what was sent is not repeated, since it may be anything."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if part not in ("query", "body", "path"))
    return refused(422, f"{where or 'the body'}: {first['msg']}")


async def _left(request: Request, error: Exception) -> JSONResponse:
    """Nobody reads this any more; the status is for the counters."""
    return refused(SENDER_LEFT, "the sender left")


async def _failed(request: Request, error: Exception) -> JSONResponse:
    return refused(500, "the server made a mistake; its log says which")
