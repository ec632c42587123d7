"""The command that puts a bundle behind HTTP: serve."""

from pathlib import Path
from typing import Annotated

import typer

from foster.cli.options import Device, Plugins, unknown_choice


def serve(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="BUNDLES_OR_BUNDLE",
            help="A folder of bundles with a link 'current', the link itself (both are followed), or one bundle.",
        ),
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any that is free.")] = 8000,
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    token: Annotated[
        str,
        typer.Option(
            envvar="FOSTER_TOKEN",
            show_envvar=True,
            help="What every request but /health must bring.",
            show_default=False,
        ),
    ] = "",
    feedback: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Keep photos that people give a class, for 'foster learn'.")
    ] = None,
    to_label: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Photos that the page offers to label (needs --feedback).")
    ] = None,
    unknown_below: Annotated[
        float | None,
        typer.Option(metavar="P", min=0, max=1, help="Answer 'unknown' where the confidence is below P; 0 for never."),
    ] = None,
    unknown: Annotated[
        str | None,
        typer.Option(
            metavar="auto",
            help="Answer 'unknown' for what is stranger than 95 % of the photos that were held out; the default. Of a "
            "bundle that held out too few, below a confidence of 0.5.",
        ),
    ] = None,
    max_mib: Annotated[int, typer.Option(metavar="MIB", min=1, help="The largest request.")] = 20,
    max_waiting: Annotated[
        int, typer.Option(metavar="N", min=1, help="Images in work or waiting at a time; more are refused with 429.")
    ] = 256,
    batch_size: Annotated[
        int, typer.Option(metavar="N", min=1, help="Images computed together at most; 1 computes each alone.")
    ] = 64,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="How long an answer may take.")] = 30.0,
    device: Device = "auto",
    plugins: Plugins = None,
) -> None:
    """Put a bundle behind HTTP, with a page to drop photos on at /.

    Where 'current' is promoted or rolled back, the new bundle takes over between two requests.

    Example: foster serve bundles --feedback feedback
    """
    from foster.serving.options import Options
    from foster.serving.run import serve as run_server

    below = unknown_choice(unknown, unknown_below)
    run_server(
        Options(
            path=path,
            host=host,
            port=port,
            token=token,
            feedback=feedback,
            to_label=to_label,
            device=device,
            unknown_below="auto" if below is None else below,
            max_bytes=max_mib * 2**20,
            max_waiting=max_waiting,
            batch_size=batch_size,
            timeout=timeout,
        )
    )
