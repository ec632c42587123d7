"""The command `check`: a look at photos before anything is trained."""

from pathlib import Path
from typing import Annotated

import typer

from foster.cli.options import Device, IsJson, Photos, Plugins, Quiet, leave_busy_cores
from foster.system.files import user_path

FOUND_PROBLEMS = 1


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
    from foster.cli.learn_texts import check_report_text
    from foster.learner.check import check_photos
    from foster.reports.contact_sheet import check_place, draw_check
    from foster.reports.progress import progress_for
    from foster.system import output
    from foster.system.counts import counted

    sheet = out and user_path(out)
    if sheet:
        check_place(sheet)
    known = bundle and user_path(bundle)
    if not is_quick:
        leave_busy_cores(quiet=quiet or is_json)
    with progress_for(quiet=quiet) as listener:
        report = check_photos(photos, known, test, has_labels_judged=not is_quick, device=device, listener=listener)
    output.echo(output.json_text(report.record()) if is_json else check_report_text(report), nl=is_json)
    if sheet:
        count = draw_check(report, sheet)
        typer.echo(
            f"{sheet}: {counted(count, 'photo')}" if count else f"no photo to show, so {sheet} is not drawn", err=True
        )
    if report.problems:
        raise typer.Exit(FOUND_PROBLEMS)
