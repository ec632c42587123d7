"""Tables of runs, one for each scenario: for a terminal, as Markdown, LaTeX, CSV or JSON."""

import csv
import io
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Group as Rendered
from rich.console import JustifyMethod
from rich.table import Table
from rich.text import Text

from foster.bundle.history import entry_title, is_learn
from foster.experiment.results import RESULTS, RunResult, VariantResult
from foster.reports.groups import (
    Group,
    by_scenario,
    changed_settings,
    learning_settings,
    titled,
)
from foster.system.counts import ABSENT, duration, mean_and_spread, percent
from foster.system.output import listed, printable

TEX = str.maketrans(
    {
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "±": r"$\pm$",
        "–": "--",
        "<": r"$<$",
        ">": r"$>$",
        "≈": r"$\approx$",
    }
)
"""LaTeX for characters that have a special meaning in it."""


@dataclass(frozen=True)
class Grid:
    """A table as text: the first `num_names` columns name the row, the others are its numbers.

    `note` is a line below the table. `best` has the cells, as (row, column), that are the best of their columns.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    num_names: int
    note: str = ""
    best: frozenset[tuple[int, int]] = frozenset()

    def rich(self) -> Rendered:
        """The table for a terminal; long cells are folded."""
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=0)
        for index, name in enumerate(self.header):
            justify: JustifyMethod = "left" if index < self.num_names else "right"
            table.add_column(Text(name), justify=justify, overflow="fold")
        for row in self.rows:
            table.add_row(*map(Text, row))
        note = [Text(self.note, style="italic")] if self.note else []
        return Rendered(Text(self.title, style="bold"), table, *note, Text(""))

    def with_shared_names_in_title(self) -> "Grid":
        """The table with names that all rows share moved to the title."""
        columns = [*zip(self.header, *self.rows, strict=True)]
        shared = [column for column in columns[1 : self.num_names] if len(set(column[1:])) == 1]
        texts = [f"{name} {cell}" for name, cell, *_ in shared if cell not in ("", ABSENT)]
        kept = [index for index, column in enumerate(columns) if column not in shared]
        header, *rows = zip(*(columns[index] for index in kept), strict=True)
        best = frozenset((row, kept.index(index)) for row, index in self.best)
        return Grid(", ".join([self.title, *texts]), header, tuple(rows), self.num_names - len(shared), self.note, best)

    def markdown(self) -> str:
        rules = ["---" if index < self.num_names else "---:" for index in range(len(self.header))]
        lines = [self.header, rules, *self.rows]
        return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)

    def latex(self) -> str:
        """A `tabular` of the package booktabs, the best of a column in bold."""
        rows = [[cell.translate(TEX) for cell in row] for row in (self.header, *self.rows)]
        for row, column in self.best:
            rows[row + 1][column] = rf"\textbf{{{rows[row + 1][column]}}}"
        header, *lines = [" & ".join(row) + r" \\" for row in rows]
        columns = "l" * self.num_names + "r" * (len(self.header) - self.num_names)
        begin, end = rf"\begin{{tabular}}{{{columns}}}", r"\end{tabular}"
        table = [begin, r"\toprule", header, r"\midrule", *lines, r"\bottomrule", end]
        note = [f"% {self.note.translate(TEX)}"] if self.note else []
        return "\n".join([f"% {self.title.translate(TEX)}", r"% \usepackage{booktabs}", *table, *note, ""])


def shown(grids: Iterable[Grid]) -> Rendered:
    """The grids for a terminal."""
    return Rendered(*(grid.rich() for grid in grids))


def markdown(grids: Iterable[Grid]) -> str:
    """The grids as Markdown, each under its title."""
    parts = [f"**{grid.title}**\n\n{grid.markdown()}" + (f"\n\n{grid.note}" if grid.note else "") for grid in grids]
    return "\n\n".join(parts) + "\n"


def latex(grids: Iterable[Grid]) -> str:
    """The grids as LaTeX, each under its title as a comment."""
    return "\n".join(grid.latex() for grid in grids)


def accuracy_grids(results: Sequence[RunResult], *, has_variants: bool = True) -> list[Grid]:
    """A row for each run and for each other variant of its method: accuracy after each task, under the number of
    classes seen or of tasks learned, and the average."""
    scenarios = by_scenario(results, across_orders=True)
    return [_accuracy_grid(scenario, groups, has_variants) for scenario, groups in scenarios.items()]


def summary_grids(results: Sequence[RunResult], *, across_orders: bool = False) -> list[Grid]:
    """A row for each recipe and class order: mean and sample standard deviation over n seeds.

    With `across_orders`, runs of different class orders are averaged together, and the title says so.
    """
    scenarios = by_scenario(results, across_orders=across_orders)
    return [_summary_grid(scenario, groups) for scenario, groups in scenarios.items()]


def classifiers(runs: Iterable[RunResult]) -> str:
    """The classifiers of the runs: `head`, `nearest mean`, ..."""
    return ", ".join(sorted({run.classifier for run in runs}))


def _accuracy_grid(scenario: str, groups: Sequence[Group], has_variants: bool) -> Grid:
    runs = [run for group in groups for run in group.runs]
    # A union, because two synthetic scenarios of one name may differ in size.
    counts = sorted({count for run in runs for count in run.counts})
    has_orders = any(run.order not in (None, run.seed) for run in runs)
    rows = []
    for name, run in ((group.name, run) for group in groups for run in group.runs):
        shown = {name: VariantResult(tuple(run.accuracy), run.average_incremental_accuracy)}
        shown |= {f"{name}: {variant}": one for variant, one in run.shown_variants.items() if has_variants}
        for label, one in shown.items():
            accuracy = dict(zip(run.counts, one.accuracy, strict=True))
            cells = [_number(accuracy.get(count), 1) for count in counts]
            average = _number(one.average_incremental_accuracy if run.finished else None)
            rows.append((label, run.augmentation, run.seeds, *cells, average))
    return Grid(
        title=f"{titled(scenario, groups)}: accuracy (%) by number of {runs[0].counted_by}",
        header=("method", "augment", "seed/order" if has_orders else "seed", *map(str, counts), "average"),
        rows=tuple(rows),
        num_names=3,
        note=_note(_why_incomparable([run] for run in runs), groups),
    ).with_shared_names_in_title()


def _why_incomparable(rows: Iterable[Sequence[RunResult]]) -> str:
    """Why the rows, which are of these runs, cannot be compared; empty if they can."""
    facts = [(frozenset(run.order for run in runs), runs[0].augmentation) for runs in rows]
    named = zip(("class orders", "augmentations"), zip(*facts, strict=True), strict=True)
    different = " or ".join(name for name, values in named if len(set(values)) > 1)
    return f"rows of different {different} cannot be compared" if different else ""


def _note(why_incomparable: str, groups: Sequence[Group]) -> str:
    repeated = [printable(_place(run)) for group in groups for run in group.repeated]
    left_out = f"left out, since another run has the same settings and seeds: {listed(repeated)}" if repeated else ""
    return "; ".join(filter(None, (why_incomparable, left_out)))


def _place(run: RunResult) -> str:
    """The run's folder, or its results file if that has another name than usual."""
    return str(run.path.parent if run.path.name == RESULTS else run.path)


def _number(value: float | None, digits: int = 2) -> str:
    return ABSENT if value is None else f"{value:.{digits}f}"


def _summary_grid(scenario: str, groups: Sequence[Group]) -> Grid:
    # A variant that was not evaluated after every task has no average.
    variants = [
        name
        for name in dict.fromkeys(name for group in groups for name in group.variants)
        if any(group.is_finished and group.variant_averages(name) for group in groups)
    ]
    rows = tuple(_summary_row(group, variants) for group in groups)
    has_spread = any(len(group.runs) > 1 for group in groups)
    has_mixed_orders = any(len({run.order for run in group.runs}) > 1 for group in groups)
    title = f"{titled(scenario, groups)}: percent"
    title += ", mean ± sample standard deviation over n runs" if has_spread else ""
    title += " of different class orders" if has_mixed_orders else ""
    names = ("method", "by", "augment", "class order")
    header = (*names, "n", "average", "final", "forgetting", *variants, "params", "time")
    finished = [index for index, group in enumerate(groups) if group.is_finished and not group.is_bound]
    why_incomparable = _why_incomparable(group.runs for group in groups)
    best = {(finished[0], header.index("average"))} if not why_incomparable and len(finished) > 1 else set()
    note = _note(why_incomparable, groups)
    return Grid(title, header, rows, len(names), note, frozenset(best)).with_shared_names_in_title()


def _summary_row(group: Group, variants: Sequence[str]) -> tuple[str, ...]:
    """A row. Unfinished runs have no averages, because these would be over fewer tasks."""
    runs = group.runs if group.is_finished else ()
    return (
        group.name,
        classifiers(group.runs),
        group.augmentation,
        _order_text(group),
        str(len(group.runs)),
        mean_and_spread([run.average_incremental_accuracy for run in runs]),
        mean_and_spread([run.final_accuracy for run in runs]),
        mean_and_spread([run.forgetting for run in runs]),
        *(mean_and_spread(group.variant_averages(variant) if runs else []) for variant in variants),
        f"{round(statistics.fmean(run.params for run in group.runs)):,}",
        duration(statistics.fmean(run.train_seconds for run in group.runs)),
    )


def _order_text(group: Group) -> str:
    """The class orders of the runs."""
    return ", ".join(dict.fromkeys("given" if run.order is None else str(run.order) for run in group.runs))


def summary_records(results: Sequence[RunResult], *, across_orders: bool = False) -> list[dict[str, Any]]:
    """The numbers of `summary_grids` as plain data, a dict a row. The standard deviation of one run and the averages of
    unfinished runs are None. A setting that differs from the preset in some row has a key."""
    records = []
    scenarios = by_scenario(results, across_orders=across_orders)
    changed = iter(_setting_columns([group.runs[0] for groups in scenarios.values() for group in groups]))
    for scenario, groups in scenarios.items():
        for group in groups:
            record: dict[str, Any] = {
                "scenario": scenario,
                "method": group.method,
                "settings": " ".join(filter(None, (group.recipe, *group.changes))),
                "remark": group.remark,
                "augmentation": group.augmentation,
                "classifier": classifiers(group.runs),
                "class_order": _order_text(group),
                "seeds": [run.seed for run in group.runs],
                "n": len(group.runs),
                "finished": group.is_finished,
                "evaluated_on": group.runs[0].evaluated_on,
            }
            for name in ("average_incremental_accuracy", "final_accuracy", "forgetting"):
                record |= _mean_and_deviation(name, [getattr(run, name) for run in group.runs if run.finished])
            for variant in dict.fromkeys(name for run in group.runs for name in run.variants):
                record |= _mean_and_deviation(
                    f"{variant}_average", group.variant_averages(variant) if group.is_finished else []
                )
            for name in ("params", "memory_bytes"):
                record[name] = round(statistics.fmean(getattr(run, name) for run in group.runs))
            record["train_seconds"] = statistics.fmean(run.train_seconds for run in group.runs)
            records.append(record | next(changed))
    return records


def run_records(results: Sequence[RunResult]) -> list[dict[str, Any]]:
    """A flat dict for each run: scenario, method and seed, its numbers, the average of each variant, and settings that
    differ from the preset in some run. The averages, final accuracy and forgetting of an unfinished run are None."""
    return [_run_record(run) | changed for run, changed in zip(results, _setting_columns(results), strict=True)]


def _setting_columns(runs: Sequence[RunResult]) -> list[dict[str, Any]]:
    """For each run, its values of the settings that differ from the preset in some run, by dotted key. A list is JSON
    text. None means that the run does not have the setting."""
    keys = list(dict.fromkeys(key for changes in changed_settings(runs) for key in changes))
    return [{printable(key): _plain(settings.get(key)) for key in keys} for settings in map(learning_settings, runs)]


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        value = json.dumps(value)
    return printable(value) if isinstance(value, str) else value


def _run_record(run: RunResult) -> dict[str, Any]:
    names = ("scenario", "method", "augmentation", "seed", "order_seed", "recipe", "classifier", "finished")
    record = {name: getattr(run, name) for name in (*names, "evaluated_on")}
    record["class_order"] = run.order
    numbers = {name: getattr(run, name) for name in ("average_incremental_accuracy", "final_accuracy", "forgetting")}
    numbers |= {f"{name}_average": one.average_incremental_accuracy for name, one in run.variants.items()}
    record |= {name: value if run.finished else None for name, value in numbers.items()}
    record |= {name: getattr(run, name) for name in ("params", "memory_bytes", "train_seconds", "hardware")}
    record |= {f"accuracy_{seen}": value for seen, value in zip(run.counts, run.accuracy, strict=True)}
    return record | {"path": str(run.path)}


def _mean_and_deviation(name: str, values: Sequence[float]) -> dict[str, float | None]:
    mean = statistics.fmean(values) if values else None
    return {name: mean, f"{name}_std": statistics.stdev(values) if len(values) > 1 else None}


def history_grid(history: Iterable[Mapping[str, Any]]) -> Grid:
    """A row for each `learn` and each other change of a bundle. Accuracies are means over classes, on held-out images
    if there are any, else on exemplars."""
    header = ("learn", "when (UTC)", "source", "new", "images", "time", "known before", "after", "new after")
    rows: list[tuple[str, ...]] = []
    num_learns = 0
    for entry in history:
        was_learned = is_learn(entry)
        num_learns += was_learned
        learned = (
            str(len(entry.get("new_classes", ()))),
            str(entry.get("trained_images", "")),
            duration(float(entry.get("seconds", 0))),
        )
        checks = entry.get("checks", {})
        check = checks.get("held-out") or checks.get("exemplar") or {}
        rows.append(
            (
                str(num_learns) if was_learned else "",
                str(entry.get("when", ""))[:16].replace("T", " "),
                entry_title(entry),
                *(learned if was_learned else (ABSENT,) * len(learned)),
                percent(check.get("known_before")),
                percent(check.get("known_after")),
                percent(check.get("new_after")),
                ABSENT if check.get("known_before") is None else str(check.get("negative_flips", ABSENT)),
            )
        )
    return Grid("Every learn, before and after", (*header, "right -> wrong"), tuple(rows), num_names=3)


def csv_text(records: Sequence[dict[str, Any]]) -> str:
    """The records as CSV; a value that a record does not have is empty."""
    file = io.StringIO()
    columns = dict.fromkeys(name for record in records for name in record)
    writer = csv.DictWriter(file, columns, lineterminator="\n")
    writer.writeheader()
    for record in records:
        lists = {name: " ".join(map(str, value)) for name, value in record.items() if isinstance(value, list)}
        writer.writerow(record | lists)
    return file.getvalue()
