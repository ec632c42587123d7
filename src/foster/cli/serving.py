"""The command that serves a bundle over HTTP: serve."""

from pathlib import Path
from typing import Annotated

import typer

from foster.cli.options import Device, Plugins, UnknownBelow, unknown_choice


def serve(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="BUNDLES_OR_BUNDLE",
            help="A folder of bundles with a link 'current', the link itself (both are followed), or one bundle.",
        ),
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 for any free one.")] = 8000,
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    token: Annotated[
        str,
        typer.Option(
            envvar="FOSTER_TOKEN",
            show_envvar=True,
            help="A secret that every request except /health must carry.",
            show_default=False,
        ),
    ] = "",
    feedback: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Store photos that people give a class, for 'foster learn'.")
    ] = None,
    to_label: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Photos that the page offers for labelling (needs --feedback)."),
    ] = None,
    unknown: UnknownBelow = "auto",
    max_mib: Annotated[int, typer.Option(metavar="MIB", min=1, help="The largest request.")] = 20,
    max_waiting: Annotated[
        int,
        typer.Option(metavar="N", min=1, help="The most images in progress or waiting; more are refused with 429."),
    ] = 256,
    batch_size: Annotated[
        int, typer.Option(metavar="N", min=1, help="The largest batch; 1 switches batching off.")
    ] = 64,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="How long an answer may take.")] = 30.0,
    device: Device = "auto",
    plugins: Plugins = None,
) -> None:
    """Serve a bundle over HTTP, with a page at / for photos.

    When another bundle is promoted or rolled back, the server switches to it between two requests.

    Example: foster serve bundles --feedback feedback
    """
    from foster.serving.options import Options
    from foster.serving.run import serve as run_server

    run_server(
        Options(
            path=path,
            host=host,
            port=port,
            token=token,
            feedback=feedback,
            to_label=to_label,
            device=device,
            unknown_below=unknown_choice(unknown),
            max_bytes=max_mib * 2**20,
            max_waiting=max_waiting,
            batch_size=batch_size,
            timeout=timeout,
        )
    )
