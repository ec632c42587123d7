"""Commands for photos: check, learn, predict, evaluate, label-next."""

import shlex
import shutil
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.cells import cell_len

from foster.cli.bundles import conclude, show
from foster.cli.options import (
    Bundle,
    Device,
    IsJson,
    IsJsonLines,
    IsPromoting,
    NewBundle,
    Photos,
    Plugins,
    Quiet,
    Recipes,
    UnknownBelow,
    all_changes,
    unknown_choice,
)
from foster.errors import DataError, FolderError
from foster.system.counts import counted
from foster.system.output import echo, json_text, listed, printable
from foster.system.signals import Stopped, stop_on_signals

if TYPE_CHECKING:
    from foster.learner.label_next import WorthLabelling
    from foster.learner.learner import Learner
    from foster.learner.reports import LearnReport, UpdateError


def check(
    photos: Photos,
    bundle: Annotated[
        Path | None, typer.Option("--from", metavar="BUNDLE", help="Judge labels of its classes with this bundle.")
    ] = None,
    test: Annotated[
        Path | None, typer.Option(metavar="TEST", help="Test photos, which must not be among the others.")
    ] = None,
    sheet: Annotated[
        Path | None, typer.Option(metavar="SHEET.png", help="Draw the photos of the findings on a contact sheet.")
    ] = None,
    is_quick: Annotated[bool, typer.Option("--quick", help="Do not judge labels, which needs a network.")] = False,
    is_json: IsJson = False,
    quiet: Quiet = False,
    device: Device = "auto",
    plugins: Plugins = None,
) -> None:
    """Check photos before learning: unreadable, tiny or duplicate, in two classes or in the test set, mislabelled.

    Nothing is changed. The exit code is 0 if nothing or only remarks were found, 1 if there are problems, and 2 if the
    photos cannot be checked.

    Example: foster check photos/february --test photos/test --sheet sheet.png
    """
    from foster.cli.texts import check_report_text
    from foster.learner.check import check_photos
    from foster.reports.contact_sheet import check_place, draw_check
    from foster.reports.progress import progress_for

    if sheet:
        check_place(sheet)
    with progress_for(quiet=quiet) as listener:
        report = check_photos(photos, bundle, test, has_labels_judged=not is_quick, device=device, listener=listener)
    echo(json_text(report.record()) if is_json else check_report_text(report), nl=is_json)
    if sheet:
        count = draw_check(report, sheet)
        drawn = f"{sheet}: {counted(count, 'photo')}" if count else f"no photo to show, so {sheet} is not drawn"
        typer.echo(drawn, err=True)
    if report.problems:
        raise typer.Exit(1)


def _print_keys(is_wanted: bool) -> None:
    if is_wanted:
        from foster.cli.texts import keys_text

        typer.echo(keys_text(), nl=False)
        raise typer.Exit


def learn(
    source: Photos,
    bundle: NewBundle,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Settings to change, e.g. memory_total=500 (see --keys)."),
    ] = None,
    old: Annotated[
        Path | None, typer.Option("--from", metavar="BUNDLE", help="The bundle to continue; it is never changed.")
    ] = None,
    training: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="fast, standard or paper: how long to train; by default as in the old bundle, else standard.",
        ),
    ] = None,
    recipes: Recipes = None,
    max_drop: Annotated[
        float | None,
        typer.Option(
            metavar="POINTS",
            min=0,
            help="Write no bundle if the known classes lose more points than this; the result is saved as NEW.refused.",
        ),
    ] = None,
    is_promoting: IsPromoting = False,
    quiet: Quiet = False,
    keys: Annotated[
        bool, typer.Option("--keys", callback=_print_keys, is_eager=True, help="List all settings and exit.")
    ] = False,
    plugins: Plugins = None,
) -> None:
    """Learn new classes, and more images of known ones, from photos; write a bundle that can learn more later.

    The photos may be deleted afterwards: the bundle keeps what it needs, and up to 2,000 photos. After an interruption,
    the same command continues.

    Example: foster learn photos/january --bundle bundles/january
    """
    from foster.bundle.folder import real_folder
    from foster.bundle.promotion import check_promotable
    from foster.learner.learner import Learner
    from foster.learner.reports import USUAL_DROP, large_loss
    from foster.settings.learner import learner_settings

    _check_new(bundle, [source])
    if is_promoting:
        check_promotable(bundle)
    changes = all_changes(overrides, recipes)
    if old is None:
        learner = Learner.from_settings(learner_settings(changes, training=training, plugins=plugins))
    else:
        old = real_folder(old)  # before a link to it moves
        learner = Learner.load(old)
        learner.configure(changes, training=training, plugins=plugins)
    if not quiet:
        typer.echo(f"reading {source}", err=True)
    report = _learn(learner, source, bundle, quiet, max_drop)
    loss = large_loss(report.checks) if max_drop is None else None
    if loss:
        advice = f"--max-drop {USUAL_DROP:g} refuses such a loss, and the old bundle is still in {old}"
        typer.echo(f"warning: {loss}; the bundle is written all the same; {advice}", err=True)
    conclude(bundle, is_promoting)


def _learn(learner: "Learner", source: Path, bundle: Path, quiet: bool, max_drop: float | None) -> "LearnReport":
    """Learn, print the report, and save the bundle."""
    from foster.bundle.folder import remove_unfinished
    from foster.cli.texts import learn_text
    from foster.experiment.event_log import noting
    from foster.learner.reports import UpdateError
    from foster.learner.work_folder import WorkFolder
    from foster.reports.progress import progress_for

    with stop_on_signals() as stop, WorkFolder.beside(bundle).opened() as work:
        remove_unfinished(bundle)
        try:
            with progress_for(quiet=quiet) as listener:
                noted = noting(listener, work.checkpoints.folder)
                report = learner.learn(source, listener=noted, stop=stop, work_folder=work, max_drop=max_drop)
            stop.raise_if_set()
        except UpdateError as error:
            show(learn_text(error.report, learner.settings.training, num_shown=None))
            raise UpdateError(f"{error}; {_keep_refused(error, bundle)}", error.report, error.refused) from None
        except Stopped as stopped:
            stopped.add_hint(f"all is saved; continue with: {shlex.join(['foster', *sys.argv[1:]])}")
            raise
        show(learn_text(report, learner.settings.training) + "\n")
        try:
            learner.save(bundle)
        except FolderError as error:
            raise FolderError(f"{error}; the same command continues and writes it") from None
    return report


def _keep_refused(error: "UpdateError", bundle: Path) -> str:
    """Save the refused bundle under another name beside the intended one, and say how to use it."""
    names = (bundle.with_name(f"{bundle.name}.refused{number}") for number in ("", *range(2, 1000)))
    kept = next(name for name in names if not name.exists())
    error.refused.save(kept)
    name = shlex.quote(str(kept))
    return f"the refused bundle is {name}: foster evaluate {name} PHOTOS measures it, foster promote {name} accepts it"


def predict(
    bundle: Bundle,
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE_OR_FOLDER", help="Image files, or folders of them.")],
    top: Annotated[int, typer.Option(min=1, metavar="K", help="How many classes to show for each image.")] = 1,
    is_json: IsJsonLines = False,
    unknown: UnknownBelow = None,
    device: Device = "auto",
    plugins: Plugins = None,
) -> None:
    """Classify images, in the order given; an image that cannot be read gets an error entry.

    Example: foster predict bundles/current camera --unknown auto
    """
    from foster import events
    from foster.cli.texts import prediction_line
    from foster.data.photos.decode import DECODED_AT_ONCE
    from foster.data.photos.find import found_files, passed_over_text, shown
    from foster.learner.learner import Learner
    from foster.learner.prediction import CalibrationWarning
    from foster.reports.progress import progress_for

    below = unknown_choice(unknown)
    files, passed_over = found_files(images)
    others = f"left out: {printable(passed_over_text(passed_over))}" if passed_over else ""
    if not files:
        hint = f"; {others}" if others else ""
        raise DataError(f"no images below {listed([str(path) for path in images])}{hint}")
    learner = Learner.load(bundle, device=device)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", CalibrationWarning)
        predictions = learner.predicted(files, top, below)
    for warning in warned:
        typer.echo(f"warning: {warning.message}", err=True)
    if others:
        typer.echo(others, err=True)
    num_failed = 0
    width = min(60, max(cell_len(printable(shown(file))) for file in files))
    # On a terminal the answers themselves show the progress.
    with progress_for(quiet=sys.stdout.isatty()) as listener:
        for num_done, prediction in enumerate(predictions, start=1):
            num_failed += prediction.error is not None
            echo(json_text(prediction.record()) if is_json else prediction_line(prediction, width))
            if num_done % DECODED_AT_ONCE == 0:
                listener(events.Decoding("photos", num_done, len(files)))
    if num_failed:
        typer.echo(f"{num_failed} of {counted(len(files), 'image')} cannot be read", err=True)
    if num_failed == len(files) or any(not path.exists() for path in images):
        raise typer.Exit(1)


def evaluate(
    bundle: Bundle,
    source: Photos,
    is_json: IsJson = False,
    device: Device = "auto",
    plugins: Plugins = None,
) -> None:
    """Measure the accuracy on labelled images that were not learned, class by class.

    Example: foster evaluate bundles/current photos/test
    """
    from foster.cli.texts import evaluation_text
    from foster.learner.learner import Learner
    from foster.reports.progress import progress_for

    learner = Learner.load(bundle, device=device)
    with progress_for(quiet=is_json) as listener:
        report = learner.evaluate(source, listener=listener)
    echo(json_text(report.record()) if is_json else evaluation_text(report), nl=is_json)


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
    """List or copy the photos that are most worth a label: doubtful ones that differ from each other.

    Example: foster label-next bundles/current camera --count 50 --copy to-label
    """
    from foster.cli.texts import padded
    from foster.data.photos.find import found_files, shown
    from foster.learner import label_next as labelling
    from foster.learner.learner import Learner
    from foster.reports.progress import progress_for

    if copy is not None:
        _check_new(copy, photos)
    files = found_files(photos).images
    if not files:
        raise DataError(f"no images below {listed([str(path) for path in photos])}")
    learner = Learner.load(bundle, device=device)
    with progress_for(quiet=is_json) as listener:
        ranking = labelling.label_next(learner, files, count, listener)
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
    """Copy all photos or none, with a number before each name, which keeps their order. Long names are cut."""
    from foster.bundle.folder import writing_folder

    num_digits = len(str(len(chosen)))
    with writing_folder(folder) as temporary:
        for rank, entry in enumerate(chosen, start=1):
            shutil.copyfile(entry.path, temporary / f"{rank:0{num_digits}d}-{entry.path.name[-60:]}")


def _check_new(folder: Path, sources: Sequence[Path]) -> None:
    """Refuse to write a folder that exists, or that lies inside the folders of photos that are read."""
    from foster.bundle.folder import check_free

    check_free(folder)
    for source in sources:
        if source.is_dir() and folder.resolve().is_relative_to(source.resolve()):
            raise FolderError(f"'{folder}' lies inside '{source}', whose photos are read; choose another place")
