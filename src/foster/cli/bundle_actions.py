"""What the commands for bundles do, with torch: called by `foster.cli.bundles` once a command is parsed."""

import csv
import shlex
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import cast

import typer
from rich.cells import cell_len

from foster.bundle.files import check_free, check_outside, folder_bytes, real_folder, remove_unfinished
from foster.bundle.folder import read_bundle, remove_exemplars
from foster.bundle.manifest import Use, read_manifest
from foster.bundle.promotion import Promotion, check_promotable, promote
from foster.cli.bundle_texts import csv_header, csv_row, exemplars_text, listed, prediction_line, promotion_text
from foster.cli.learn_texts import learn_text, mend_text
from foster.cli.options import leave_busy_cores
from foster.data.photos.find import found_files, passed_over_text, shown
from foster.errors import DataError, FolderError, FosterError, SettingsError
from foster.experiment.event_log import noting
from foster.learner.export import check_target
from foster.learner.familiarity import Unknown
from foster.learner.knowledge import Knowledge
from foster.learner.learner import Learner
from foster.learner.reports import CalibrationWarning, LearnReport, MendReport, UpdateError
from foster.learner.work_folder import WorkFolder
from foster.reports.contact_sheet import check_writable, draw_sheet
from foster.reports.progress import progress_for
from foster.settings.learner import learner_settings
from foster.system import output
from foster.system.counts import counted, size_text
from foster.system.output import printable
from foster.system.signals import Stopped, stop_on_signals

AFTER_REMOVAL: dict[Use, str] = {
    "exemplars": "the weights were trained with it, the next learn starts without it",
    "held-out": "nothing was trained on it, and the next learn is not measured on it",
}


def learn_bundle(
    source: Path,
    overrides: Sequence[str],
    bundle: Path,
    old: Path | None,
    preset: str | None,
    max_drop: float | None,
    is_promoting: bool,
    is_restarting: bool,
    quiet: bool,
    plugins: Sequence[str] | None,
    minutes: float | None,
) -> None:
    if not is_restarting and _is_written(bundle, source, old):
        output.complain(f"'{bundle}' was written by the learn that was interrupted; nothing is left to learn")
    else:
        check_free(bundle)
        if source.is_dir() and bundle.resolve().is_relative_to(source.resolve()):
            raise FolderError(
                f"'{bundle}' lies inside '{source}' and would be taken for a class there; choose another place"
            )
        if is_promoting:
            check_promotable(bundle)
        learner = _learner(overrides, old, preset, plugins)
        if not quiet:
            typer.echo(f"reading {source}", err=True)
        leave_busy_cores(quiet=quiet)
        learn = partial(learner.learn, source, max_drop=max_drop, minutes=minutes)
        _learn(learner, learn, bundle, is_restarting, quiet)
    conclude(bundle, is_promoting)


def _learner(overrides: Sequence[str], old: Path | None, preset: str | None, plugins: Sequence[str] | None) -> Learner:
    if old is None:
        return Learner.from_settings(learner_settings(overrides, preset=preset, plugins=plugins))
    learner = Learner.load(old)
    learner.configure(overrides, preset=preset, plugins=plugins)
    return learner


def _learn(learner: Learner, learn: Callable[..., LearnReport], bundle: Path, is_restarting: bool, quiet: bool) -> None:
    """Learn as asked, and save."""
    with stop_on_signals() as stop, WorkFolder.beside(bundle).opened(is_restarting) as work:
        check_free(bundle)  # once more: another process may have come first
        remove_unfinished(bundle)
        try:
            with progress_for(quiet=quiet) as listener:
                report = learn(listener=noting(listener, work.checkpoints.folder), stop=stop, work_folder=work)
            stop.raise_if_set()
        except UpdateError as error:
            _show(learn_text(cast(LearnReport, error.report), learner.settings.preset, num_shown=None))
            raise UpdateError(f"{error}; {_keep_refused(error, bundle)}", error.report, error.refused) from None
        except Stopped as stopped:
            # The command that was given; one that started anew need not do so again.
            again = shlex.join(["foster", *(argument for argument in sys.argv[1:] if argument != "--restart")])
            stopped.add_hint(f"all is saved; continue with: {again}")
            raise
        _show(learn_text(report, learner.settings.preset) + "\n")
        try:
            learner.save(bundle)
        except FolderError as error:
            raise FolderError(f"{error}; the same command writes it later, without training again") from None


def _show(text: str) -> None:
    with suppress(OSError, ValueError):  # what cannot be printed must not cost the bundle
        output.echo(text, nl=False)


def _is_written(bundle: Path, source: Path, old: Path | None) -> bool:
    """Whether a learn of this source from `old` was cut off when its bundle was in place; what it left is removed."""
    work = WorkFolder.beside(bundle)
    if not work.path.is_dir() or not bundle.is_dir():
        return False
    *before, last = read_manifest(bundle).history or [{}]
    if before != list(read_manifest(old).history if old else ()) or last.get("source") != source.name:
        return False
    with work.opened(is_restarting=True):
        return True


def conclude(bundle: Path, is_promoting: bool, *before: str) -> None:
    """Promote a bundle that is saved, if asked to, and say what to do with it, after the lines `before`."""
    manifest, name = read_manifest(bundle), shlex.quote(str(bundle))
    num_exemplars = sum(entry.use == "exemplars" for entry in manifest.exemplars)
    size = size_text(folder_bytes(bundle))
    what = f"{counted(len(manifest.classes), 'class')}, {counted(num_exemplars, 'exemplar')}, {size}"
    lines = [*before, f"{bundle}: {what}"]
    if is_promoting:
        try:
            lines.append(promotion_text(promote_bundle(bundle)))
        except FosterError as error:
            output.report(*lines, path=bundle)
            raise FolderError(f"'{bundle}' is saved, but not promoted: {error}; then: foster promote {name}") from None
    lines.append(f"next: foster predict {name} IMAGES, or foster learn MORE --from {name} --bundle NEXT")
    output.report(*lines, path=bundle)


def promote_bundle(bundle: Path) -> Promotion:
    """Point the link at a bundle that can be loaded and answers in numbers."""
    Learner.load(real_folder(bundle)).try_out()
    return promote(bundle)


def _keep_refused(error: UpdateError, bundle: Path) -> str:
    """Save what was learned beside where it would have gone, and say how it can still be used."""
    names = (bundle.with_name(f"{bundle.name}.refused{number}") for number in ("", *range(2, 1000)))
    kept = next(name for name in names if not name.exists())
    error.refused.save(kept)
    name = shlex.quote(str(kept))
    return f"what was learned is in {name}: foster evaluate {name} PHOTOS looks at it, foster promote {name} accepts it"


def mend_bundle(
    old: Path,
    bundle: Path,
    mend: Callable[[Learner], MendReport],
    is_promoting: bool,
    check: Callable[[Knowledge], object] | None = None,
    device: str = "cpu",
) -> None:
    """Load `old`, mend it, and write what it is then as `bundle`, whole or not at all. Where answers may change, before
    and after are compared on a `device`, once a `check` has found nothing against it."""
    check_free(bundle)
    if is_promoting:
        check_promotable(bundle)
    source = real_folder(old)  # before a link to it moves
    learner = Learner.load(source, device=device)
    if check is not None and learner.knowledge is not None:
        check(learner.knowledge)
        leave_busy_cores(quiet=False)
        typer.echo(f"comparing before and after on the photos that {source} keeps ...", err=True)
    try:
        report = mend(learner)
    except UpdateError as error:
        _show(mend_text(cast(MendReport, error.report)))
        raise UpdateError(f"{error}; --max-drop sets the limit", error.report, error.refused) from None
    with WorkFolder.beside(bundle).held():
        remove_unfinished(bundle)
        learner.save(bundle)
    _show(mend_text(report))
    kept = f"{source} and bundles before it still keep photos of {listed(report.forgotten)}"
    conclude(bundle, is_promoting, *([f"{kept}; delete them where they must be gone"] if report.forgotten else []))


def predict_images(
    bundle: Path, images: Sequence[Path], top: int, is_json: bool, is_csv: bool, below: Unknown, device: str
) -> None:
    if is_json and is_csv:
        raise SettingsError("--json and --csv exclude each other")
    files, passed_over = found_files(images)
    others = f"passed over, not taken for images: {printable(passed_over_text(passed_over))}" if passed_over else ""
    if not files:
        hint = f"; {others}" if others else ""
        raise DataError(f"no images below {listed([str(path) for path in images])}{hint}")
    learner = Learner.load(bundle, device=device)
    leave_busy_cores(quiet=is_json or is_csv)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", CalibrationWarning)
        predictions = learner.predicted(files, top, below)
    for warning in warned:
        typer.echo(f"warning: {warning.message}", err=True)
    if others:
        typer.echo(others, err=True)
    num_failed, num_ranks = 0, min(top, len(learner.class_names))
    writer = csv.writer(sys.stdout, lineterminator="\n")
    if is_csv:
        writer.writerow(csv_header(num_ranks))
    width = min(60, max(cell_len(printable(shown(file))) for file in files))
    for prediction in predictions:
        num_failed += prediction.error is not None
        if is_json:
            output.echo(output.json_text(prediction.record()))
        elif is_csv:
            writer.writerow(csv_row(prediction, num_ranks, sys.stdout.isatty()))
        else:
            output.echo(prediction_line(prediction, width))
    if num_failed:
        typer.echo(f"{num_failed} of {counted(len(files), 'image')} cannot be read", err=True)
    if num_failed == len(files):
        raise typer.Exit(1)


def export_bundle(bundle: Path, file: Path) -> None:
    check_outside(file)
    check_target(file)  # before anything is loaded
    learner = Learner.load(bundle, device="cpu")
    leave_busy_cores(quiet=False)
    typer.echo(f"exporting and checking {file} ...", err=True)
    report = learner.export(file)
    what = (
        f"{report.file}: {size_text(report.num_bytes)}, input uint8 [batch, height, width, 3]; "
        f"checked on {report.num_checked} {report.checked_on}, "
        f"probabilities differ from PyTorch by {report.largest_difference:.1g} at most"
    )
    snippet = f"\nwithout foster, in Python:\n\n{report.snippet.rstrip()}"
    output.report(what, f"{report.facts_file}: labels and preprocessing", snippet, path=report.file)


def show_exemplars(bundle: Path, show: Path | None, remove: Sequence[str]) -> None:
    if remove:
        folder = real_folder(bundle)
        removed = remove_exemplars(folder, remove)
        manifest = read_manifest(folder)
        lines = [f"removed {entry.id} of class '{manifest.classes[entry.class_id]}' from {bundle}" for entry in removed]
        ends = [AFTER_REMOVAL[entry.use] for entry in removed]
        output.report(*map("{}; {}".format, lines, ends), path=bundle)
    if show is not None:
        check_writable(show)
        whole = read_bundle(bundle)
        draw_sheet(whole, show)
        output.report(f"{show}: {counted(len(whole.manifest.exemplars), 'image')} with their ids", path=show)
    if not remove and show is None:
        output.echo(exemplars_text(read_manifest(bundle)), nl=False)
