"""Start the server."""

import logging
import os
import socket
import sys
from typing import Any

from foster.errors import FolderError, FosterError, SettingsError, words_of
from foster.serving.options import Options
from foster.system.output import print_stderr

logger = logging.getLogger(__name__)

UVICORN: dict[str, Any] = {
    "log_config": None,
    "access_log": False,
    "server_header": False,
    "lifespan": "on",
    "ws": "none",
    "timeout_graceful_shutdown": 10,
}


def serve(options: Options) -> None:
    """Load the bundle, listen, and answer until a signal comes. Requests in progress are finished."""
    try:
        import python_multipart  # noqa: F401 (forms are read with it)
        import uvicorn

        from foster.serving.app import make_app
        from foster.serving.served import Current, Served
        from foster.serving.service import Service
    except ModuleNotFoundError as error:
        raise SettingsError(f"serving needs {error.name}: pip install 'foster-cil[serve]'") from None
    _check(options)
    with _listening(options) as listening:
        _leave_a_core()
        current = Current(options.path, lambda folder: Served.load(folder, options.device, options.unknown_below))
        app = make_app(Service(options, current))
        _write_log()
        served, host = current.now, f"[{options.host}]" if ":" in options.host else options.host
        logger.info(
            "serving '%s' (version %s, %d classes) at http://%s:%d",
            served.name,
            served.version,
            len(served.learner.class_names),
            host,
            listening.getsockname()[1],
        )
        uvicorn.Server(uvicorn.Config(app, **UVICORN)).run(sockets=[listening])


def _check(options: Options) -> None:
    if options.to_label and not options.feedback:
        raise SettingsError("--to-label needs --feedback FOLDER, where labelled photos are stored")
    if options.to_label and not options.to_label.is_dir():
        raise FolderError(f"there is no folder '{options.to_label}' of photos to label")
    if options.feedback and options.feedback.resolve().is_relative_to(options.path.resolve()):
        raise FolderError(f"'{options.feedback}' lies inside '{options.path}'; keep feedback and bundles apart")
    if not options.token and options.host not in ("127.0.0.1", "::1", "localhost"):
        print_stderr(
            f"warning: anybody who reaches {options.host}:{options.port} may use it; --token SECRET prevents that"
        )


def _listening(options: Options) -> socket.socket:
    """Bind the address. This comes before the bundle is loaded, so that an address in use is reported at once."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    try:
        return socket.create_server((options.host, options.port), family=family)
    except OSError as error:
        address = f"{options.host}:{options.port}"
        raise FosterError(f"cannot listen on {address}: {words_of(error)}; choose another --port or --host") from None


def _leave_a_core() -> None:
    """Keep one core free for decoding and sending, unless OMP_NUM_THREADS is set."""
    import torch

    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, torch.get_num_threads() - 1))


def _write_log() -> None:
    """Write the log to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    for name, level in (("foster.serving", logging.INFO), ("uvicorn", logging.ERROR)):
        log = logging.getLogger(name)
        log.handlers, log.propagate = [handler], False
        log.setLevel(level)
