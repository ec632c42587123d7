"""What the commands for bundles print: plain text that is readable on a terminal and in a file. No torch."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from foster.bundle.files import folder_bytes
from foster.bundle.history import entry_title, last_checks
from foster.bundle.manifest import Manifest
from foster.bundle.promotion import Promotion
from foster.settings.engine import EngineSettings
from foster.settings.learner import LearnerSettings
from foster.settings.learner_defaults import PRESETS
from foster.system.counts import ABSENT, counted, duration, size_text
from foster.system.output import plain_text, printable

if TYPE_CHECKING:
    from foster.learner.reports import Prediction

MAX_LISTED = 12
NUM_IDS_SHOWN = 3
CHECK_TITLES = {
    "held-out": "on held-out images, never trained on",
    "exemplar": "on exemplars, which are trained on",
}
RULES = {"stretch": "stretched to it", "crop": "the middle of each photo"}
CHECK_COLUMNS = ("images", "before", "after", "right -> wrong")


def columns(sides: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in which nothing is ever cut; `sides` has an `l` or an `r` for each column: where its text stands."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
    for name, side in zip(header, sides, strict=True):
        table.add_column(Text(name), justify="right" if side == "r" else "left")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return plain_text(table)


def padded(text: str, width: int) -> str:
    """`text` with spaces up to `width` cells of a terminal, in which some scripts take two for a character."""
    return text + " " * (width - cell_len(text))


def percent(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.1f} %"


def listed(names: Sequence[str], limit: int = MAX_LISTED) -> str:
    more = f", ... ({len(names)} in all)" if len(names) > limit else ""
    return ", ".join(map(printable, names[:limit])) + more


def promotion_text(moved: Promotion) -> str:
    if moved.before == moved.after:
        return f"{moved.link} already points at {moved.after}"
    before = f" (before: {moved.before})" if moved.before else ""
    return f"{moved.link} -> {moved.after}{before}"


def keys_text() -> str:
    """All keys of `foster learn`, with their defaults and what they mean."""
    own = {name: field for name, field in LearnerSettings.model_fields.items() if name not in ("options", "engine")}
    engine = {f"engine.{name}": field for name, field in EngineSettings.model_fields.items()}
    rows = []
    for name, field in (own | engine).items():
        default = (
            "by preset or data" if field.default is None else ABSENT if field.default in ("", ()) else field.default
        )
        rows.append((name, str(default), (field.description or "").replace("\n", " ")))
    presets = [(name, preset.summary) for name, preset in PRESETS.items()]
    text = columns("lll", ("key", "default", "meaning"), rows)
    text += "\n" + columns("ll", ("preset", "training"), presets)
    return text + "\nA method's own keys, such as foster.beta_boost=0.9: foster methods --show NAME\n"


def info_text(manifest: Manifest, folder: Path) -> str:
    facts = manifest.preprocessing
    uses = Counter(entry.use for entry in manifest.exemplars)
    calibrated = (
        f"calibrated on {counted(manifest.num_calibration_images, 'held-out image')}, "
        f"temperature {manifest.temperature:g}"
        if manifest.num_calibration_images
        else "not calibrated (too few images are held out)"
    )
    kept = manifest.settings.get("memory_per_class")
    size = size_text(folder_bytes(folder.resolve()))
    budget = f"{kept} a class" if kept else f"{manifest.settings.get('memory_total') or 2000} in all"
    kept_images = f"{counted(uses['exemplars'], 'exemplar')} and {counted(uses['held-out'], 'held-out image')}"
    rows = [
        ("bundle", f"{folder} ({size}, schema {manifest.schema_version}, foster {manifest.foster})"),
        ("method", manifest.method),
        *([("plug-ins", ", ".join(map(str, manifest.plugins)))] if manifest.plugins else []),
        ("backbone", manifest.backbone),
        ("images", f"{facts.height} x {facts.width} pixels, {RULES[facts.rule]}"),
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


def history_text(history: Sequence[dict[str, Any]]) -> str:
    """A row for each `learn` and for each mending; accuracies are means over classes, on held-out images where there
    are some."""
    rows: list[tuple[str, ...]] = []
    removed = num_learns = 0
    for entry in history:
        if "removed_exemplars" in entry:
            removed += len(entry["removed_exemplars"])
            continue
        checks = entry.get("checks", {})
        check = checks.get("held-out") or checks.get("exemplar") or {}
        is_learn = not (entry.get("renamed") or entry.get("forgotten"))
        num_learns += is_learn
        rows.append(
            (
                str(num_learns) if is_learn else "",
                str(entry.get("when", ""))[:16].replace("T", " "),
                entry_title(entry),
                str(len(entry.get("new_classes", ()))) if is_learn else ABSENT,
                str(entry.get("trained_images", "")) if is_learn else ABSENT,
                duration(float(entry.get("seconds", 0))) if is_learn else ABSENT,
                percent(check.get("known_before")),
                percent(check.get("known_after")),
                percent(check.get("new_after")),
                ABSENT if check.get("known_before") is None else str(check.get("negative_flips", ABSENT)),
            )
        )
    header = ("learn", "when (UTC)", "source", "new", "images", "time", "known before", "after", "new after")
    note = f"images removed by hand: {removed}\n" if removed else ""
    return columns("lllrrrrrrr", (*header, CHECK_COLUMNS[-1]), rows) + note


def classes_text(history: Sequence[dict[str, Any]]) -> str:
    """For the last `learn`, merge or forget, a table for each kind of images: a row a class, in order of arrival."""
    tables = [
        check_table(kind, [change_row(name, change) for name, change in classes.items()])
        for kind, classes in last_checks(history).items()
    ]
    return "".join(f"\n{table}" for table in tables) or "\nno images were compared in the last learn\n"


def check_table(kind: str, rows: Sequence[Sequence[str]]) -> str:
    """Accuracy before and after an update, on images of one kind."""
    return columns("lrrrr", (CHECK_TITLES[kind], *CHECK_COLUMNS), rows)


def change_row(title: str, change: Mapping[str, Any]) -> tuple[str, ...]:
    """How one class changed, as the history has it; a new one has nothing to lose."""
    flips = ABSENT if change["before"] is None else str(change["negative_flips"])
    return title, str(change["images"]), percent(change["before"]), percent(change["after"]), flips


def exemplars_text(manifest: Manifest) -> str:
    """A row for each class: how many images are kept, and the ids of the first, as `--remove` takes them."""
    num_classes = Counter(image_id for image_id, _ in {(entry.id, entry.class_id) for entry in manifest.exemplars})
    rows = []
    for class_id, name in enumerate(manifest.classes):
        own = [entry for entry in manifest.exemplars if entry.class_id == class_id]
        counts = [str(sum(entry.use == use for entry in own)) for use in ("exemplars", "held-out")]
        ids = [entry.id if num_classes[entry.id] == 1 else entry.full_id for entry in own[:NUM_IDS_SHOWN]]
        rows.append((f"{class_id:04d}", name, *counts, " ".join(ids + ["..."] * (len(own) > NUM_IDS_SHOWN))))
    table = columns("llrrl", ("id", "class", "exemplars", "held out", "ids of images"), rows)
    hint = (
        "--show sheet.png draws them all with their ids, --remove ID deletes one (CLASSID/ID where two classes keep it)"
    )
    return f"{table}\n{hint}\n"


def csv_header(num_ranks: int) -> list[str]:
    ranks = [f"{what}{k}" for k in range(1, num_ranks + 1) for what in ("label", "probability")]
    return ["image", "label", "confidence", "is_unknown", "error", *(ranks if num_ranks > 1 else [])]


def csv_row(prediction: "Prediction", num_ranks: int, is_terminal: bool) -> list[Any]:
    """As many fields as the header has, also where there is an error; names as they are, but not for a terminal."""
    is_unknown = None if prediction.error else str(prediction.is_unknown).lower()
    row: list[Any] = [prediction.name, prediction.label, prediction.confidence, is_unknown, prediction.error]
    if num_ranks > 1:
        row += [value for entry in prediction.top for value in (entry.label, entry.probability)]
    if is_terminal:
        row = [printable(value) if isinstance(value, str) else value for value in row]
    return row + [None] * (len(csv_header(num_ranks)) - len(row))


def prediction_line(prediction: "Prediction", width: int) -> str:
    if prediction.error is not None:
        return f"{padded(printable(prediction.name), width)}  error: {prediction.error}"
    best = ", ".join(f"{entry.label} {100 * entry.probability:.1f} %" for entry in prediction.top)
    return f"{padded(printable(prediction.name), width)}  {f'unknown ({best})' if prediction.is_unknown else best}"
