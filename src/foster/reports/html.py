"""A report about runs or bundles as one self-contained HTML file."""

import io
import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup
from matplotlib.figure import Figure

from foster.bundle.folder import folder_bytes
from foster.bundle.history import is_learn
from foster.errors import FosterError
from foster.reports.archive import Archive, BundleArchive, RunArchive, accuracy_of, open_archives
from foster.reports.figures import KINDS
from foster.reports.groups import by_scenario, titled
from foster.reports.mistakes import ClassRow, calibration_figure, class_rows, confused_pairs, most_confident_mistakes
from foster.reports.style import COLOURS, GRID, GROUND, INK, SOFT_INK, SPARE_COLOURS, look_of, styled
from foster.reports.tables import Grid, accuracy_grids, history_grid, summary_grids
from foster.settings.base import flat
from foster.settings.experiment import Settings
from foster.settings.methods import METHOD_SETTINGS, facts_of
from foster.system.counts import ABSENT, counted, duration, size_text
from foster.system.files import write_text
from foster.version import __version__

OF_ALL = ("accuracy", "new-old", "confusion", "matrix", "head-norms", "losses", "tsne")
"""Figures that compare runs."""
OF_A_BUNDLE = ("confusion", "head-norms", "exemplars")

PIXELS_A_POINT = 1.55
"""The most pixels of the page for a point of a figure, and the resolution of pictures inside figures."""

LEAST_PIXELS_A_POINT = 0.9
"""The fewest pixels for a point; figures that are wider than the page are scrolled."""

THEMED = tuple(
    dict.fromkeys(
        (INK, SOFT_INK, GRID, GROUND, *COLOURS, *SPARE_COLOURS, *(look_of(name).colour for name in METHOD_SETTINGS))
    )
)
"""Colours that a style sheet can change, for a dark page: each is a CSS variable, `--c` and its hexadecimal digits."""


@dataclass
class Shown:
    """A figure and a sentence on how to read it."""

    kind: str
    reading: str
    markup: Markup


@dataclass
class Page:
    """The data of the template; `missing` says what could not be shown and why."""

    title: str
    version: str = __version__
    headlines: list[tuple[str, str]] = field(default_factory=list)
    tables: Sequence[Grid] = ()
    figures: list[Shown] = field(default_factory=list)
    class_columns: list[str] = field(default_factory=list)
    classes: list[Any] = field(default_factory=list)
    parts: list[dict[str, Any]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def tried(self, what: str, make: Callable[[], list[Any]]) -> list[Any]:
        """The result of `make`. If it fails: an empty list, and a line in `missing`."""
        try:
            return make()
        except FosterError as error:
            self.missing.append(f"{what}: {error}")
            return []

    def drawn(self, kind: str, archives: Sequence[Archive]) -> list[Shown]:
        return self.tried(kind, lambda: [Shown(kind, KINDS[kind].reading, svg(KINDS[kind].draw(archives)))])


def write_report(paths: Iterable[Path], out: Path, data: Path | None = None) -> None:
    """One self-contained HTML file about all runs or bundles below the paths."""
    page = page_of(open_archives(paths, data))
    environment = Environment(
        loader=PackageLoader("foster.reports"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    write_text(out, environment.get_template("report.html").render(page=page))


def page_of(archives: Sequence[Archive]) -> Page:
    runs = [archive for archive in archives if isinstance(archive, RunArchive)]
    bundles = [archive for archive in archives if isinstance(archive, BundleArchive)]
    page = Page(_title(runs, bundles))
    if len(runs) == 1 and not bundles:
        page.headlines = _run_headlines(runs[0])
    if len(bundles) == 1 and not runs:
        page.headlines = _bundle_headlines(bundles[0])
    results = [run.result for run in runs]
    page.tables = [*(summary_grids(results) if len(runs) > 1 else []), *accuracy_grids(results)]
    for kind in OF_ALL if runs else ():
        page.figures += page.drawn(kind, runs)
    page.classes = page.tried("accuracy by class", lambda: _class_rows(page, runs)) if runs else []
    page.parts = [_run_part(page, run, is_alone=len(runs) == 1) for run in runs]
    page.parts += [_bundle_part(page, bundle) for bundle in bundles]
    return page


def _title(runs: Sequence[RunArchive], bundles: Sequence[BundleArchive]) -> str:
    if len(runs) + len(bundles) == 1:
        for scenario, (group,) in by_scenario([run.result for run in runs]).items():
            return f"{group.name} on {titled(scenario, [group])}"
        return f"bundle {bundles[0].name}"
    counts = [(len(runs), "runs"), (len(bundles), "bundles")]
    return " and ".join(f"{count} {what}" for count, what in counts if count) + " compared"


def _run_headlines(run: RunArchive) -> list[tuple[str, str]]:
    result = run.result
    size = [("parameters", f"{result.params:,}"), ("training", duration(result.train_seconds))]
    if not result.finished:  # its average would be over fewer tasks
        return [(f"accuracy after {counted(len(result.accuracy), 'task')}", f"{result.final_accuracy:.2f} %"), *size]
    others = [
        (f"average, {name}", f"{one.average_incremental_accuracy:.2f} %")
        for name, one in result.shown_variants.items()
        if one.average_incremental_accuracy is not None
    ]
    return [
        ("average incremental accuracy", f"{result.average_incremental_accuracy:.2f} %"),
        *others,
        ("final accuracy", f"{result.final_accuracy:.2f} %"),
        ("forgetting", f"{result.forgetting:.1f} points"),
        *size,
    ]


def _bundle_headlines(bundle: BundleArchive) -> list[tuple[str, str]]:
    manifest = bundle.manifest
    lines = [("classes", str(len(manifest.classes))), ("learns", str(sum(map(is_learn, manifest.history))))]
    names = (
        ("leave-one-out accuracy", "photos measured")
        if bundle.is_closed_form
        else ("held-out accuracy", "held-out images")
    )
    try:
        numbers = (f"{accuracy_of(bundle):.1f} %", f"{len(bundle.predictions()[0]):,}")
        lines += [*zip(names, numbers, strict=True)]
    except FosterError:
        lines.append((names[0], ABSENT))
    num_exemplars = sum(entry.use == "exemplars" for entry in manifest.exemplars)
    return [*lines, ("kept photos", f"{num_exemplars:,}"), ("size", size_text(folder_bytes(bundle.folder)))]


def _class_rows(page: Page, runs: Sequence[RunArchive]) -> list[ClassRow]:
    """A column for each run with the same classes and test images as the first one."""
    first = runs[0].all_predictions
    predictions, page.class_columns = [runs[0].predictions()[1]], [runs[0].name]
    others = [name for name in runs[0].result.shown_variants if name in first.by_variant]
    if len(runs) == 1 and others:
        predictions += [first.by_variant[name] for name in others]
        page.class_columns = [runs[0].result.result, *others]
    for run in runs[1:]:
        labels, predicted = run.predictions()
        if run.class_names == runs[0].class_names and labels.tolist() == first.labels.tolist():
            predictions.append(predicted)
            page.class_columns.append(run.name)
        else:
            page.missing.append(f"accuracy by class of {run.name}: it has other classes or another class order")
    return class_rows(runs[0].class_names, runs[0].task_sizes, first.labels, predictions)


def _run_part(page: Page, run: RunArchive, *, is_alone: bool) -> dict[str, Any]:
    result = run.result
    # The exemplars of many runs would take most of the file.
    has_grown = facts_of(result.method).grown_variant in result.variants
    kinds = (["grad-cam"] if has_grown else []) + (["exemplars"] if is_alone else [])
    return {
        "name": run.name,
        "path": run.path,
        "environment": result.environment,
        "settings": _settings(result.settings),
        "figures": [figure for kind in kinds for figure in page.drawn(kind, [run])],
        "command": "".join(page.tried(f"the command of {run.name}", lambda: [command(run.settings, run.folder)])),
        "pairs": page.tried(f"confused pairs of {run.name}", lambda: confused_pairs(run)),
    }


def _settings(nested: Mapping[str, Any]) -> dict[str, str]:
    return {key: json.dumps(value, ensure_ascii=False) for key, value in flat(nested).items() if value is not None}


def _bundle_part(page: Page, bundle: BundleArchive) -> dict[str, Any]:
    manifest = bundle.manifest
    reading = "On the dashed line, the share of right answers is the confidence; below it, answers are overconfident. "
    reading += "Larger points are more images."
    # In closed form, the head is computed and has no norms to compare.
    kinds = [kind for kind in OF_A_BUNDLE if kind != "head-norms" or not bundle.is_closed_form]
    curve = []
    if not bundle.is_closed_form:
        curve = page.tried("calibration", lambda: [Shown("calibration", reading, svg(calibration_figure(bundle)))])
    part: dict[str, Any] = {
        "name": bundle.name,
        "path": bundle.folder,
        "environment": {"foster": manifest.foster, "method": manifest.method, "backbone": manifest.backbone},
        "settings": _settings(manifest.settings),
        "learns": history_grid(manifest.history),
        "tested_on": "each photo left out in turn" if bundle.is_closed_form else "on held-out images",
        "figures": curve + [figure for kind in kinds for figure in page.drawn(kind, [bundle])],
    }
    try:
        labels, predicted = bundle.predictions()
        part["classes"] = class_rows(bundle.class_names, bundle.task_sizes, labels, [predicted])
        part["mistakes"], part["num_mistakes"] = most_confident_mistakes(bundle)
    except FosterError as error:
        page.missing.append(f"{'mistakes' if 'classes' in part else 'accuracy'} of {bundle.name}: {error}")
    return part


def svg(figure: Figure) -> Markup:
    """A figure as an inline SVG element whose colours follow the page's theme."""
    file = io.StringIO()
    with styled():
        figure.savefig(
            file,
            format="svg",
            dpi=PIXELS_A_POINT * 72,
            transparent=True,
            bbox_inches="tight",
            pad_inches=0.08,
            metadata={"Date": None},
        )
    text = file.getvalue()
    text = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|\n\s*", " ", text[text.index("<svg") :], flags=re.DOTALL)
    for colour in THEMED:
        name = colour[1:].lower()
        text = re.sub(rf"(stroke|fill): #{name}\b", rf"\1: var(--c{name})", text)
    # The page sets its width, up to the size at which its letters are as large as those of the page.
    width = float(re.search(r'width="([\d.]+)pt"', text)[1])  # type: ignore[index]
    text = re.sub(r' (width|height)="[\d.]+pt"', "", text, count=2)
    sizes = f"max-width: {PIXELS_A_POINT * width:.0f}px; --least-width: {LEAST_PIXELS_A_POINT * width:.0f}px"
    return Markup(text.replace("<svg", f'<svg style="{sizes}"', 1))


def command(settings: Settings, folder: Path) -> str:
    """The command that repeats the run of a folder in another folder."""
    plugins = [word for name in settings.plugins for word in ("--plugin", name)]
    return shlex.join(["foster", "run", str(folder), *plugins, "--out", f"{folder}-again"])
