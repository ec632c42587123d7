"""The output of the commands for photos and bundles: tables and lines of text from reports and manifests."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from foster.bundle.folder import folder_bytes
from foster.bundle.history import last_checks
from foster.bundle.manifest import Manifest
from foster.bundle.promotion import Promotion
from foster.reports.tables import history_grid
from foster.settings.engine import EngineSettings
from foster.settings.learner import DEFAULT_MEMORY_TOTAL, LearnerSettings
from foster.settings.learner_defaults import PRESETS
from foster.system.counts import ABSENT, counted, duration, percent, size_text
from foster.system.output import listed, plain_text, printable

if TYPE_CHECKING:  # they load torch
    from foster.data.photos.find import Unreadable
    from foster.learner.assessment import EvaluationReport
    from foster.learner.check import CheckReport, Finding
    from foster.learner.prediction import Prediction
    from foster.learner.reports import ClassChange, LearnReport, MendReport, UpdateCheck

MOST_LINES, MOST_CLASSES = 10, 40
"""The most lines of one kind, and classes in a table. The JSON output has all."""

CHECK_TITLES = {
    "held-out": "on photos the classifier had not seen",
    "exemplar": "on exemplars, which are trained on",
}
CHECK_COLUMNS = ("images", "before", "after", "right -> wrong")
GUESS = " (a guess: 3 to 4 % of right labels are listed, too)"


def columns(sides: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in which nothing is cut; `sides` has an `l` or an `r` for the alignment of each column."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
    for name, side in zip(header, sides, strict=True):
        table.add_column(Text(name), justify="right" if side == "r" else "left")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return plain_text(table)


def padded(text: str, width: int) -> str:
    """`text` padded with spaces to `width` cells of a terminal; some characters take two cells."""
    return text + " " * (width - cell_len(text))


def _some(lines: Sequence[str]) -> list[str]:
    """The lines; if there are many, the first lines and how many more there are."""
    num_more = len(lines) - MOST_LINES
    return [*lines[:MOST_LINES], *([f"  ... {num_more} more"] if num_more > 0 else [])]


def left_out_lines(empty_classes: Sequence[str], passed_over: Mapping[str, int]) -> list[str]:
    from foster.data.photos.find import passed_over_text

    lines = [f"left out, without a readable image: {listed(empty_classes)}"] if empty_classes else []
    if passed_over:
        lines.append(f"left out: {printable(passed_over_text(passed_over))}")
    return lines


def unreadable_lines(unreadable: "Sequence[Unreadable]") -> list[str]:
    if not unreadable:
        return []
    lines = [f"  {printable(entry.name)}: {printable(entry.reason)}" for entry in unreadable]
    return [f"left out, cannot be read: {counted(len(unreadable), 'image')}", *_some(lines)]


def promotion_text(moved: Promotion) -> str:
    if moved.before == moved.after:
        return f"{moved.link} already points at {moved.after}"
    before = f" (before: {moved.before})" if moved.before else ""
    return f"{moved.link} -> {moved.after}{before}"


def info_text(manifest: Manifest, folder: Path) -> str:
    facts = manifest.preprocessing
    uses = Counter(entry.use for entry in manifest.exemplars)
    calibrated = (
        f"calibrated on {counted(manifest.num_calibration_images, 'photo')} that it had not seen, "
        f"temperature {manifest.temperature:g}"
        if manifest.num_calibration_images
        else "not calibrated (too few images are held out)"
    )
    kept = manifest.settings.get("memory_per_class")
    size = size_text(folder_bytes(folder.resolve()))
    total = manifest.settings.get("memory_total")
    budget = f"{kept} a class" if kept else f"{DEFAULT_MEMORY_TOTAL if total is None else total} in all"
    held_out = f", {uses['held-out']:,} held-out ones" if uses["held-out"] else ""
    kept_images = f"{counted(uses['exemplars'], 'photo')} kept{held_out}"
    rows = [
        ("bundle", f"{folder} ({size}, schema {manifest.schema_version}, foster {manifest.foster})"),
        ("method", manifest.method),
        *([("plug-ins", ", ".join(map(str, manifest.plugins)))] if manifest.plugins else []),
        ("backbone", manifest.backbone),
        ("images", f"{facts.height} x {facts.width} pixels"),
        ("classes", f"{len(manifest.classes)}: {listed(manifest.classes)}"),
        ("memory", f"{kept_images} (budget {budget})"),
        ("confidence", calibrated),
        ("unknown", _unknown_text(manifest)),
    ]
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {printable(text)}\n" for name, text in rows]
    return "".join(lines) + "\n" + history_text(manifest.history)


def _unknown_text(manifest: Manifest) -> str:
    last: dict[str, Any] = next((entry for entry in reversed(manifest.history) if "unknown_threshold" in entry), {})
    threshold = last.get("unknown_threshold")
    if not isinstance(threshold, float):
        return "--unknown auto cannot be used (too few images are held out)"
    return f"--unknown auto answers about 95 % of known things (threshold {threshold:.2f})"


def history_text(history: Sequence[Mapping[str, Any]]) -> str:
    grid = history_grid(history)
    return columns("lllrrrrrrr", grid.header, grid.rows)


def classes_text(history: Sequence[dict[str, Any]]) -> str:
    """For the last `learn`, merge or forget, a table for each kind of images, with the classes in order of arrival."""
    tables = [
        check_table(kind, [change_row(name, change) for name, change in classes.items()])
        for kind, classes in last_checks(history).items()
    ]
    return "".join(f"\n{table}" for table in tables) or "\nno images were compared in the last learn\n"


def mend_text(report: "MendReport") -> str:
    """How the classes were changed, and the accuracy before and after."""
    lines = [printable(str(report))]
    if report.is_estimated:
        rest = "the part of a forgotten class in the common sums was estimated"
        lines.append(f"{rest}, since not all of its features are kept (features_per_class)")
    if report.forgotten and report.is_trained:
        lines.append("the backbone was trained on these photos, too, and is unchanged")
    return "\n".join(["\n".join(lines) + "\n", *(check_text(check) for check in report.checks)])


def check_text(check: "UpdateCheck", num_shown: int | None = MOST_CLASSES) -> str:
    """A row for each class, those that lost most first, known and new classes apart."""
    known = sorted(check.known, key=lambda entry: entry.after - (entry.before or 0.0))
    # Exemplars are trained on, so most of them are right: only classes with mistakes are listed.
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


def _class_rows(entries: "Sequence[ClassChange]", num_shown: int | None) -> list[tuple[str, ...]]:
    rows = [change_row(f"  {entry.name}", entry.record()) for entry in entries[:num_shown]]
    num_left = len(entries) - len(rows)
    return rows + ([(f"  ... {num_left} more (foster info --classes)", "", "", "", "")] if num_left else [])


def check_table(kind: str, rows: Sequence[Sequence[str]]) -> str:
    """Accuracy before and after an update, on images of one kind."""
    return columns("lrrrr", (CHECK_TITLES[kind], *CHECK_COLUMNS), rows)


def change_row(title: str, change: Mapping[str, Any]) -> tuple[str, ...]:
    """The change of one class, from the history; a new class has no accuracy before."""
    flips = ABSENT if change["before"] is None else str(change["negative_flips"])
    return title, str(change["images"]), percent(change["before"]), percent(change["after"]), flips


def keys_text() -> str:
    """All keys of `foster learn`, with their defaults and what they mean."""
    rows = []
    for prefix, model in (("", LearnerSettings), ("engine.", EngineSettings)):
        for name, field in model.model_fields.items():
            usual = ABSENT if field.default in ("", ()) else field.default
            default = "by training or data" if usual is None else str(usual)
            if name not in ("options", "engine"):
                rows.append((prefix + name, default, (field.description or "").replace("\n", " ")))
    trainings = [(name, preset.summary) for name, preset in PRESETS.items()]
    text = columns("lll", ("key", "default", "meaning"), rows)
    text += "\n" + columns("ll", ("training", "meaning"), trainings)
    return text + "\nA method's own keys, such as wa.temperature=3: foster list methods NAME\n"


def check_report_text(report: "CheckReport") -> str:
    """A table of the findings, then each kind with some of its photos; problems first."""
    from foster.learner.check import KINDS

    counts = report.class_counts.values()
    test = f", {counted(report.num_test_photos, 'test photo')}" if report.num_test_photos else ""
    sizes = f"{min(counts)} each" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)} each"
    what = f"{counted(report.num_photos, 'photo')} of {counted(len(counts), 'class')}"
    lines = [f"{what} ({sizes}) in {printable(report.title)}{test}"]
    lines += left_out_lines((), report.passed_over)
    lines += list(report.remarks)
    if not report.findings:
        return "".join(f"{line}\n" for line in [*lines, "nothing was found"])
    rows, details = [], []
    for kind, (title, is_problem) in KINDS.items():
        if findings := report.of_kind(kind):
            rows.append(("problem" if is_problem else "remark", title, str(len(findings))))
            details.append(_details(title + (GUESS if kind == "mislabelled" else ""), findings))
    table = columns("llr", ("", "what", "found"), rows)
    return "\n".join(["".join(f"{line}\n" for line in lines), table, *details])


def _details(title: str, findings: "Sequence[Finding]") -> str:
    lines = []
    for finding in findings:
        photos = listed([photo.name for photo in finding.photos], 4)
        lines.append(f"  {photos}: {printable(finding.detail)}" if photos else f"  {printable(finding.detail)}")
    return "".join(f"{line}\n" for line in [f"{title}:", *_some(lines)])


def learn_text(report: "LearnReport", training: str, num_shown: int | None = MOST_CLASSES) -> str:
    """What was learned, then accuracy before and after by class; `num_shown` is None for all classes."""
    lines = []
    if report.new_classes:
        lines.append(f"new classes: {listed(report.new_classes)}")
    if report.more_of:
        lines.append("more of: " + listed([f"{name} (+{count})" for name, count in report.more_of.items()]))
    if report.num_repeated:
        repeated = counted(report.num_repeated, "image")
        lines.append(f"left out, already known or given twice: {repeated}")
    if report.shared:
        classes = " and ".join(f"'{printable(name)}'" for name in report.shared.class_names)
        shared = f"{counted(report.shared.num_photos, 'photo')}, such as {printable(report.shared.example)} ({classes})"
        hint = "if a folder was renamed, discard this bundle and use 'foster rename' on the one before it; "
        hint += "'foster forget --image' removes a photo from one class"
        lines.append(f"in more than one class: {shared}; {hint}")
    for names in report.similar_names:
        quoted = " and ".join(f"'{printable(name)}'" for name in names)
        lines.append(f"{quoted} are different classes, although their names are alike; 'foster merge' makes one class")
    lines += left_out_lines(report.empty_classes, report.passed_over)
    lines.append(_learned(report, training))
    lines += unreadable_lines(report.unreadable)
    if report.held_out is None:
        lines.append("nothing was measured: 'foster evaluate' measures the accuracy on other photos")
    else:
        lines.append(_measured(report, report.held_out))
    if report.uncompared:
        unlimited = "the loss of these classes cannot be measured, so --max-drop does not limit it"
        lines.append(f"{unlimited}: {listed(report.uncompared)}")
    accuracies = _accuracies(report)
    if len(accuracies) > 1:
        shown = ", ".join(f"{name} {percent(accuracy)}" for name, accuracy in accuracies.items())
        lines.append(f"mean over the classes measured, on the same photos: {shown}")
    if report.is_better_in_closed_form:
        is_first = not report.uncompared and not any(check.known for check in report.checks)
        again = "with method=closed_form and a new --bundle"
        advice = (
            f"give the same photos again {again}; it takes a fraction of the time"
            if is_first
            else "continue a bundle in closed form without method=..., or learn the photos of all classes together "
            f"{again}, without --from"
        )
        lines.append(f"the closed form is better: {advice}")
    if report.held_out is not None and report.unmeasured_classes:
        few = "classes with too few photos to be measured (with ten or more they are also recognised better)"
        lines.append(f"{few}: {listed(report.unmeasured_classes)}")
    return "\n".join(["\n".join(lines) + "\n", *(check_text(check, num_shown) for check in report.checks)])


def _learned(report: "LearnReport", training: str) -> str:
    """The number of learned photos, how they were learned, and the time."""
    seconds = duration(report.seconds)
    if report.is_closed_form:
        return f"{counted(report.num_trained, 'photo')} learned in closed form, in {seconds}"
    trained = f"{counted(report.num_trained, 'image')} trained on, {report.num_held_out:,} held out"
    return f"{trained}, in {seconds} (training {training})"


def _measured(report: "LearnReport", check: "UpdateCheck") -> str:
    from foster.learner.closed_form import MOST_MEASURED

    low, high = check.interval
    share = f"{100 * check.num_right / check.num_images:.1f} %, 95 % interval {low:.1f} to {high:.1f} %"
    how = "each judged by a classifier of all other photos" if report.is_closed_form else "on held-out photos"
    if report.is_closed_form and report.num_trained > MOST_MEASURED:
        how += ", equally many of each class where possible"
    return f"{how}: {check.num_right:,} of {check.num_images:,} right ({share})"


def _accuracies(report: "LearnReport") -> dict[str, float]:
    """The accuracy of every variant. In a first learn the variants of a method are the same network."""
    from foster.learner.reports import CLOSED_FORM_VARIANT
    from foster.reports.progress import in_plain_words

    if report.held_out is not None and report.held_out.known:
        return {in_plain_words(name): accuracy for name, accuracy in report.variants.items()}
    names = {report.result: "trained network", CLOSED_FORM_VARIANT: CLOSED_FORM_VARIANT}
    return {names[name]: accuracy for name, accuracy in report.variants.items() if name in names}


def prediction_line(prediction: "Prediction", width: int) -> str:
    if prediction.error is not None:
        return f"{padded(printable(prediction.name), width)}  error: {prediction.error}"
    best = ", ".join(f"{entry.label} {100 * entry.probability:.1f} %" for entry in prediction.top)
    return f"{padded(printable(prediction.name), width)}  {f'unknown ({best})' if prediction.is_unknown else best}"


def evaluation_text(report: "EvaluationReport") -> str:
    """The classes with the lowest accuracy first."""
    from foster.learner.prediction import UNKNOWN
    from foster.learner.reports import wilson_interval

    rows = [
        (entry.name, str(entry.num_images), percent(entry.accuracy), entry.mistaken_for or ABSENT)
        for entry in sorted(report.classes, key=lambda entry: entry.accuracy)
    ]
    text = columns("lrrl", ("class", "images", "accuracy", "most often mistaken for"), rows)
    on = f"{counted(report.num_images, 'image')} of {counted(len(report.classes), 'class')}"
    text += f"\naccuracy {report.accuracy:.2f} % on {on}"
    low, high = wilson_interval(report.num_right, report.num_images)
    text += f" (95 % interval {low:.1f} to {high:.1f} %, mean over classes {report.class_accuracy:.2f} %)"
    text += f", confidence differs from accuracy by {report.calibration_error:.1f} points on average\n"
    if report.num_trained_on:
        text += (
            f"warning: {report.num_trained_on} of these images were learned from; the accuracy on new photos is lower\n"
        )
    if report.unknown:
        unknown = report.unknown
        text += (
            f"unknown things: {unknown.num_refused} of {unknown.num_images} refused with --unknown auto, and "
            f"{unknown.num_known_refused} of {report.num_images} known ones\n"
        )
    if report.unknown_classes:
        left_out = [f"{name} ({count})" for name, count in report.unknown_classes.items()]
        text += f"left out, since the bundle does not know them: {listed(left_out)}\n"
    if UNKNOWN in report.unknown_classes:
        text += "--unknown auto cannot be used: too few images were held out\n"
    lines = left_out_lines(report.empty_classes, report.passed_over) + unreadable_lines(report.unreadable)
    return text + "".join(f"{line}\n" for line in lines)
