"""What the commands that mend a classifier do, with torch: called by `foster.cli.mending` once a command is parsed."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import cast

import typer

from foster.bundle.files import check_free, real_folder, remove_unfinished
from foster.bundle.promotion import check_promotable
from foster.cli.bundle_actions import conclude
from foster.cli.mend_texts import mend_text, old_bundle_text
from foster.learner.knowledge import Knowledge
from foster.learner.learner import Learner
from foster.learner.mend_report import MendReport
from foster.learner.reports import UpdateError
from foster.learner.work_folder import WorkFolder
from foster.system import output
from foster.system.files import user_path


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
    bundle = user_path(bundle)
    check_free(bundle)
    if is_promoting:
        check_promotable(bundle)
    source = real_folder(user_path(old))  # before a link to it moves
    learner = Learner.load(source, device=device)
    if check is not None and learner.knowledge is not None:
        check(learner.knowledge)
        typer.echo(f"comparing before and after on the photos that {source} keeps ...", err=True)
    try:
        report = mend(learner)
    except UpdateError as error:
        _show(cast(MendReport, error.report))
        raise UpdateError(f"{error}; --max-drop sets the limit", error.report, error.refused) from None
    with WorkFolder.beside(bundle).held():
        check_free(bundle)  # once more: another process may have come first
        remove_unfinished(bundle)
        learner.save(bundle)
    _show(report)
    conclude(bundle, is_promoting, *([old_bundle_text(source, report)] if report.forgotten else []))


def _show(report: MendReport) -> None:
    with suppress(OSError, ValueError):  # what cannot be printed must not cost the bundle
        output.echo(mend_text(report), nl=False)
