"""What `foster check` does, with torch: called by `foster.cli.checking` once the command is parsed."""

from pathlib import Path

import typer

from foster.cli.check_texts import check_report_text
from foster.learner.check import check_photos
from foster.reports.check_sheet import check_place, draw_check
from foster.reports.progress import progress_for
from foster.system import output
from foster.system.counts import counted
from foster.system.files import user_path

FOUND_PROBLEMS = 1


def check_folder(
    photos: Path,
    bundle: Path | None,
    test: Path | None,
    out: Path | None,
    is_quick: bool,
    is_json: bool,
    quiet: bool,
    device: str,
) -> None:
    sheet = user_path(out) if out is not None else None
    if sheet is not None:
        check_place(sheet)
    with progress_for(quiet=quiet) as listener:
        report = check_photos(
            photos,
            None if bundle is None else user_path(bundle),
            test,
            has_labels_judged=not is_quick,
            device=device,
            listener=listener,
        )
    output.echo(output.json_text(report.record()) if is_json else check_report_text(report), nl=is_json)
    if sheet is not None:
        count = draw_check(report, sheet)
        typer.echo(
            f"{sheet}: {counted(count, 'photo')}" if count else f"no photo to show, so {sheet} is not drawn", err=True
        )
    if report.problems:
        raise typer.Exit(FOUND_PROBLEMS)
