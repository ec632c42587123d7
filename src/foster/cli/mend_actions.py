"""What the commands that mend a classifier do and print, with torch: called by `foster.cli.bundles` once a command is
parsed."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import cast

import typer

from foster.bundle.files import check_free, real_folder, remove_unfinished
from foster.bundle.promotion import check_promotable
from foster.cli.bundle_actions import conclude
from foster.cli.bundle_texts import listed
from foster.cli.learn_texts import check_text
from foster.cli.options import leave_busy_cores
from foster.learner.knowledge import Knowledge
from foster.learner.learner import Learner
from foster.learner.reports import MendReport, Remains, UpdateError
from foster.learner.work_folder import WorkFolder
from foster.system import output
from foster.system.counts import counted
from foster.system.files import user_path
from foster.system.output import printable

NUM_ANSWERS_SHOWN = 3


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
        leave_busy_cores(quiet=False)
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


def mend_text(report: MendReport) -> str:
    """What was done to which classes, accuracy before and after, and what remains of those that were forgotten."""
    lines = [_done(report)]
    if report.mean_difference is not None and report.largest_difference is not None:
        lines.append(
            f"its probability differs from the sum of its parts' by {100 * report.mean_difference:.1f} points on "
            f"average and {100 * report.largest_difference:.1f} at most, on the {report.checks[0].kind} photos"
        )
    tables = [check_text(check) for check in report.checks]
    after = [_remains(one) for one in report.remains]
    return "\n".join(["\n".join(lines) + "\n", *tables, *(f"{line}\n" for line in after)])


def _done(report: MendReport) -> str:
    images = f"{counted(report.num_exemplars, 'exemplar')} and {counted(report.num_held_out, 'held-out photo')}"
    if report.forgotten:
        what = "its output and its mean" if len(report.forgotten) == 1 else "their outputs and their means"
        return f"forgot {listed(report.forgotten)}: {what}, {images} are gone"
    names, (into, *_) = list(report.renamed), report.renamed.values()
    if len(names) == 1:
        return f"renamed {printable(names[0])} to {printable(into)}"
    return f"merged {listed(names)} into {printable(into)}: {images} of it are kept"


def _remains(one: Remains) -> str:
    kind = "held-out photos" if one.kind == "held-out" else "kept photos"
    measured = (
        "what they tell of it cannot be measured without exemplars"
        if one.num_told is None
        else f"by its features {one.num_told} of {one.num_images} {kind} of it could still be told from the others"
    )
    answers = [f"{name} ({count})" for name, count in list(one.answers.items())[:NUM_ANSWERS_SHOWN]]
    more = ", ..." if len(one.answers) > NUM_ANSWERS_SHOWN else ""
    return (
        f"what remains of {printable(one.name)}: the backbone was trained on it and is as it was; {measured}. "
        f"They are now taken for {listed(answers)}{more}"
    )


def old_bundle_text(old: Path, report: MendReport) -> str:
    """Where a forgotten class still is."""
    names = listed(report.forgotten)
    return f"{old} and bundles before it still keep photos of {names}; delete them where they must be gone"
