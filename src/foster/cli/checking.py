"""Commands that look at photos before anything is trained: check, and label-next for those without a label."""

import os
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.cells import cell_len

from foster.cli.options import Bundle, Device, IsJson, IsJsonLines, Photos, Plugins, Quiet, leave_busy_cores
from foster.errors import DataError, FolderError
from foster.system.counts import counted
from foster.system.output import echo, json_text, printable

if TYPE_CHECKING:
    from foster.learner.label_next import WorthLabelling

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

    if out:
        check_place(out)
    if not is_quick:
        leave_busy_cores(quiet=quiet or is_json)
    with progress_for(quiet=quiet) as listener:
        report = check_photos(photos, bundle, test, has_labels_judged=not is_quick, device=device, listener=listener)
    echo(json_text(report.record()) if is_json else check_report_text(report), nl=is_json)
    if out:
        count = draw_check(report, out)
        drawn = f"{out}: {counted(count, 'photo')}" if count else f"no photo to show, so {out} is not drawn"
        typer.echo(drawn, err=True)
    if report.problems:
        raise typer.Exit(FOUND_PROBLEMS)


def label_next(
    bundle: Bundle,
    photos: Annotated[
        list[Path], typer.Argument(metavar="PHOTO_OR_FOLDER", help="Photos without a label: files, or folders of them.")
    ],
    count: Annotated[int, typer.Option(metavar="N", min=1, help="How many photos to choose.")] = 50,
    copy: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Copy them to this new folder, in order (for 'foster serve --to-label')."),
    ] = None,
    is_json: IsJsonLines = False,
    device: Device = "auto",
    plugins: Plugins = None,
) -> None:
    """List or copy the photos that are most worth a label: the network is unsure of them, and they differ."""
    from foster.cli.bundle_texts import listed, padded
    from foster.data.photos.find import found_files, shown
    from foster.learner import label_next as labelling
    from foster.learner.learner import Learner

    if copy is not None:
        _check_target(copy, photos)
    files = found_files(photos).images
    if not files:
        raise DataError(f"no images below {listed([str(path) for path in photos])}")
    learner = Learner.load(bundle, device=device)
    leave_busy_cores(quiet=is_json)
    ranking = labelling.label_next(learner, files, count)
    if copy is not None:
        _copy(ranking.chosen, copy)
    width = min(60, max(cell_len(shown(entry.path)) for entry in ranking.chosen))
    for entry in ranking.chosen:
        if is_json:
            echo(json_text(entry.record()))
        else:
            name = padded(printable(shown(entry.path)), width)
            typer.echo(f"{name}   {printable(entry.label)} {100 * entry.confidence:.1f} %")
    if ranking.unreadable:
        typer.echo(f"{len(ranking.unreadable)} of {counted(len(files), 'image')} cannot be read", err=True)
    if copy is not None:
        typer.echo(f"{counted(len(ranking.chosen), 'photo')} copied to {copy}", err=True)
        typer.echo(f"next: foster serve BUNDLES --feedback FOLDER --to-label {shlex.quote(str(copy))}", err=True)


def _copy(chosen: "Sequence[WorthLabelling]", folder: Path) -> None:
    """All photos or none, with a number before each name that keeps their order."""
    from foster.bundle.files import writing_folder

    num_digits = len(str(len(chosen)))
    with writing_folder(folder) as temporary:
        for rank, entry in enumerate(chosen, start=1):
            shutil.copyfile(entry.path, temporary / f"{rank:0{num_digits}d}-{entry.path.name}"[-200:])


def _check_target(copy: Path, photos: Sequence[Path]) -> None:
    """Copies go to a new folder, outside of those that are read: they would be photos a second time."""
    if os.path.lexists(copy):
        raise FolderError(f"'{copy}' already exists; name a new folder with --copy")
    for folder in photos:
        if folder.resolve() in copy.resolve().parents:
            raise FolderError(f"'{copy}' lies in '{folder}', whose photos are read; choose another place")
