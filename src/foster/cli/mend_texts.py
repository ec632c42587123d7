"""What `foster rename`, `merge` and `forget` report, as plain text."""

from pathlib import Path

from foster.cli.bundle_texts import listed
from foster.cli.learn_texts import check_text
from foster.learner.mend_report import MendReport, Remains
from foster.system.counts import counted
from foster.system.output import printable

NUM_ANSWERS_SHOWN = 3


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
    told = (
        "what they tell of it cannot be measured without exemplars"
        if one.num_told is None
        else f"by its features {one.num_told} of {one.num_images} {kind} of it could still be told from the others"
    )
    answers = [f"{name} ({count})" for name, count in list(one.answers.items())[:NUM_ANSWERS_SHOWN]]
    more = ", ..." if len(one.answers) > NUM_ANSWERS_SHOWN else ""
    return (
        f"what remains of {printable(one.name)}: the backbone was trained on it and is as it was; {told}. "
        f"They are now taken for {listed(answers)}{more}"
    )


def old_bundle_text(old: Path, report: MendReport) -> str:
    """Where a forgotten class still is."""
    names = listed(report.forgotten)
    return f"{old} and bundles before it still keep photos of {names}; delete them where they must be gone"
