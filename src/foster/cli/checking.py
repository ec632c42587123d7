"""The command `check`: a look at photos before anything is trained."""

from pathlib import Path
from typing import Annotated

import typer

from foster.cli.options import Device, IsJson, Photos, Plugins, Quiet


def add_commands(app: typer.Typer) -> None:
    app.command()(check)


def check(
    photos: Photos,
    bundle: Annotated[
        Path | None, typer.Option("--bundle", metavar="BUNDLE", help="Judge labels by what this bundle knows.")
    ] = None,
    test: Annotated[
        Path | None, typer.Option(metavar="TEST", help="Test photos, which must not be among the others.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="SHEET.png", help="Draw what was found on a contact sheet.")
    ] = None,
    is_quick: Annotated[bool, typer.Option("--quick", help="Do not judge labels, which takes a network.")] = False,
    is_json: IsJson = False,
    quiet: Quiet = False,
    device: Device = "auto",
    plugins: Plugins = None,
) -> None:
    """Look at photos before learning: unreadable, tiny, double, in two classes, in the test, probably mislabelled.

    Nothing is changed. Exits with 0 where nothing or only remarks were found, with 1 where there are problems, and with
    2 where the photos cannot be looked at.
    """
    from foster.cli.check_actions import check_folder

    check_folder(photos, bundle, test, out, is_quick, is_json, quiet, device)
