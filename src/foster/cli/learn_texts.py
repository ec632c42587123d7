"""What `foster learn`, `foster evaluate`, `foster check` and the commands that mend report, as plain text."""

from collections.abc import Mapping, Sequence

from foster.cli.bundle_texts import change_row, check_table, columns, listed, percent
from foster.data.photos.find import passed_over_text
from foster.data.photos.read import Unreadable
from foster.learner.assessment import EvaluationReport
from foster.learner.check_report import KINDS, CheckReport, Finding
from foster.learner.reports import UNKNOWN, LearnReport, MendReport, Remains
from foster.learner.update_check import ClassChange, UpdateCheck
from foster.system.counts import ABSENT, counted, duration
from foster.system.output import printable

NUM_CLASSES_SHOWN = 40
NUM_UNREADABLE_SHOWN = 10
NUM_DOUBLES_SHOWN = 10
NUM_SHOWN = 10
NUM_PHOTOS_SHOWN = 4
"""Of the findings of one kind, and of the photos of a finding."""
NUM_ANSWERS_SHOWN = 3
"""Of a class that was forgotten."""
WORTH_A_WARNING = 10.0
"""So many points lost in compression are told even where nobody set a limit."""

VARIANTS = {"boosted": "before compression", "compressed": "after it"}
"""FOSTER's two networks in words that need no paper."""


def learn_text(report: LearnReport, preset: str, num_shown: int | None = NUM_CLASSES_SHOWN) -> str:
    """What was learned, then accuracy before and after, class by class, known and new apart; all for no `num_shown`."""
    lines = []
    if report.new_classes:
        lines.append(f"new classes: {listed(report.new_classes)}")
    if report.more_of:
        lines.append("more of: " + listed([f"{name} (+{count})" for name, count in report.more_of.items()]))
    if report.num_repeated:
        lines.append(f"passed over, kept from earlier learns: {counted(report.num_repeated, 'image')}")
    lines += doubles_lines(report)
    lines += left_out_lines(report.empty_classes, report.passed_over)
    lines.append(
        f"{counted(report.num_trained, 'image')} trained on, {report.num_held_out:,} held out, "
        f"in {duration(report.seconds)} (preset {preset})"
    )
    lines += unreadable_lines(report.unreadable)
    if report.held_out is None:
        lines.append("no images were held out: 'foster evaluate' measures the accuracy on others")
    if report.uncompared:
        lines.append(f"no image is kept of {listed(report.uncompared)}: what they lost is not known")
    if report.held_out is not None and report.held_out.known and len(report.variants) > 1:
        accuracies = [f"{VARIANTS.get(name, name)} {percent(accuracy)}" for name, accuracy in report.variants.items()]
        lines.append(f"on held-out images, mean over all classes: {', '.join(accuracies)}")
    lines += report.restarts
    if report.failed_classes:
        help_of = "more photos or longer training (--preset, epochs_scale) may help"
        lines.append(f"warning: not one held-out image is right of {listed(report.failed_classes)}; {help_of}")
    if loss := report.loss_of_new(WORTH_A_WARNING):
        lines.append(f"warning: {loss.replace('; nothing was changed', '')}")
    if report.held_out is not None and report.unmeasured_classes:
        lines.append(f"too few images to hold one out, so not in the table: {listed(report.unmeasured_classes)}")
    return "\n".join(["\n".join(lines) + "\n", *(check_text(check, num_shown) for check in report.checks)])


def check_text(check: UpdateCheck, num_shown: int | None = NUM_CLASSES_SHOWN) -> str:
    """A row for each class, those that lost most first, known and new classes apart."""
    known = sorted(check.known, key=lambda entry: entry.after - (entry.before or 0.0))
    # What was trained on tells little where it is right: only what went wrong is listed.
    losers = known if check.kind == "held-out" else [entry for entry in known if entry.num_negative_flips]
    rows: list[tuple[str, ...]] = []
    if known:
        before, after = percent(check.known_before), percent(check.known_after)
        rows.append(("known classes, mean", str(check.num_known_images), before, after, str(check.num_negative_flips)))
        rows += _class_rows(losers, num_shown)
    if check.new:
        count = str(sum(entry.num_images for entry in check.new))
        rows.append(("new classes, mean", count, ABSENT, percent(check.new_after), ABSENT))
        rows += _class_rows(check.new, num_shown)
    return check_table(check.kind, rows)


def _class_rows(entries: Sequence[ClassChange], num_shown: int | None) -> list[tuple[str, ...]]:
    rows = [change_row(f"  {entry.name}", entry.record()) for entry in entries[:num_shown]]
    num_left = len(entries) - len(rows)
    return rows + ([(f"  ... {num_left} more (foster info --classes)", "", "", "", "")] if num_left else [])


def doubles_lines(report: LearnReport) -> list[str]:
    """What no class can be told by: equal photos in several classes."""
    lines = []
    for entry in report.kept_elsewhere[:NUM_DOUBLES_SHOWN]:
        photos = _photos(entry.num_photos, f" of '{printable(entry.name)}' is", f" of '{printable(entry.name)}' are")
        known = printable(entry.kept_as)
        lines.append(f"{photos} already kept as '{known}'; was the folder renamed, or is a photo in the wrong one?")
    lines += ["..."] * (len(report.kept_elsewhere) > NUM_DOUBLES_SHOWN)
    if report.shared:
        names = " and ".join(f"'{printable(name)}'" for name in report.shared.class_names)
        photos = _photos(report.shared.num_photos, " lies", " lie")
        lines.append(f"{photos} in more than one class, such as {printable(report.shared.example)} ({names})")
    return lines


def _photos(count: int, one: str, many: str) -> str:
    return f"1 photo{one}" if count == 1 else f"{count} photos{many}"


def left_out_lines(empty_classes: Sequence[str], passed_over: Mapping[str, int]) -> list[str]:
    lines = [f"left out, without a readable image: {listed(empty_classes)}"] if empty_classes else []
    if passed_over:
        lines.append(f"passed over, not taken for images: {printable(passed_over_text(passed_over))}")
    return lines


def unreadable_lines(unreadable: Sequence[Unreadable]) -> list[str]:
    lines = [f"left out, cannot be read: {counted(len(unreadable), 'image')}"] if unreadable else []
    lines += [f"  {printable(entry.name)}: {printable(entry.reason)}" for entry in unreadable[:NUM_UNREADABLE_SHOWN]]
    return lines + (["  ..."] if len(unreadable) > NUM_UNREADABLE_SHOWN else [])


def evaluation_text(report: EvaluationReport) -> str:
    """The classes that are known worst first."""
    rows = [
        (entry.name, str(entry.num_images), percent(entry.accuracy), entry.mistaken_for or ABSENT)
        for entry in sorted(report.classes, key=lambda entry: entry.accuracy)
    ]
    text = columns("lrrl", ("class", "images", "accuracy", "most often mistaken for"), rows)
    on = f"{counted(report.num_images, 'image')} of {counted(len(report.classes), 'class')}"
    text += f"\naccuracy {report.accuracy:.2f} % on {on}"
    text += f" (mean over classes {report.class_accuracy:.2f} %)"
    text += f", confidence off by {report.calibration_error:.1f} points\n"
    if report.num_trained_on:
        text += (
            f"warning: {report.num_trained_on} of these images were trained on and are kept in the bundle; "
            "the accuracy on new photos is lower\n"
        )
    if report.unknown:
        unknown = report.unknown
        text += (
            f"unknown things: {unknown.num_refused} of {unknown.num_images} refused with --unknown auto, and "
            f"{unknown.num_known_refused} of {report.num_images} known ones; "
            f"known looks more familiar than unknown in {100 * unknown.auroc:.1f} % of all pairs\n"
        )
    if report.unknown_classes:
        left_out = [f"{name} ({count})" for name, count in report.unknown_classes.items()]
        text += f"left out, since the bundle does not know them: {listed(left_out)}\n"
    if UNKNOWN in report.unknown_classes:
        text += "unknown things cannot be told: too few images were held out for --unknown auto\n"
    lines = left_out_lines(report.empty_classes, report.passed_over) + unreadable_lines(report.unreadable)
    return text + "".join(f"{line}\n" for line in lines)


def check_report_text(report: CheckReport) -> str:
    """A table of what was found, then each kind with some of its photos; problems first."""
    counts = report.class_counts.values()
    test = f", {counted(report.num_test_photos, 'test photo')}" if report.num_test_photos else ""
    sizes = f"{min(counts)} each" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)} each"
    what = f"{counted(report.num_photos, 'photo')} of {counted(len(counts), 'class')}"
    lines = [f"{what} ({sizes}) in {printable(report.title)}{test}"]
    lines += left_out_lines((), report.passed_over)
    lines += list(report.remarks)
    if not report.findings:
        return "".join(f"{line}\n" for line in [*lines, "nothing was found"])
    by_kind = {kind: report.of_kind(kind) for kind in KINDS}
    rows = [
        ("problem" if KINDS[kind].is_problem else "remark", KINDS[kind].title, str(len(findings)))
        for kind, findings in by_kind.items()
        if findings
    ]
    table = columns("llr", ("", "what", "found"), rows)
    details = [_details(KINDS[kind].title, findings) for kind, findings in by_kind.items() if findings]
    return "\n".join(["".join(f"{line}\n" for line in lines), table, *details])


def _details(title: str, findings: Sequence[Finding]) -> str:
    lines = [f"{title}:"]
    for finding in findings[:NUM_SHOWN]:
        names = [photo.name for photo in finding.photos[:NUM_PHOTOS_SHOWN]]
        more = ["..."] * (len(finding.photos) > NUM_PHOTOS_SHOWN)
        photos = ", ".join([*map(printable, names), *more])
        lines.append(f"  {photos}: {printable(finding.detail)}" if photos else f"  {printable(finding.detail)}")
    lines += [f"  ... {len(findings) - NUM_SHOWN} more (--json lists all)"] * (len(findings) > NUM_SHOWN)
    return "".join(f"{line}\n" for line in lines)


def mend_text(report: MendReport) -> str:
    """What was done to which classes, accuracy before and after, and what remains of those that were forgotten."""
    lines = [_done(report)]
    if report.mean_difference is not None and report.largest_difference is not None:
        lines.append(
            f"its probability differs from the sum of its parts' by {100 * report.mean_difference:.1f} points on "
            f"average and {100 * report.largest_difference:.1f} at most, on the {report.checks[0].kind} photos"
        )
    tables = [check_text(check) for check in report.checks]
    after = "".join(f"{_remains(one)}\n" for one in report.remains)
    return "\n".join(["\n".join(lines) + "\n", *tables, *([after] if tables else [])])


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
