"""Runs -> tables, for a terminal and as Markdown; each scenario has its own."""

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.table import Table
from rich.text import Text

from foster.reports.groups import Group, by_scenario, share_orders
from foster.reports.results import RunResult
from foster.system.counts import ABSENT, duration, mean_and_spread

TERMINAL_TASKS = 11
"""A terminal shows at most this many tasks of a run, evenly spread; Markdown shows all."""

LEAVES_FIRST = ("time", "params", "forgetting", "boosted", "final")
"""Columns of the summary that a narrow terminal leaves out, one after the other until the rest fits."""

NARROWEST_NAME = 20
"""Characters; names of rows are broken inside a word only where it is longer than this, numbers never."""

OTHER_ORDERS = "other seeds have other class orders: only rows of the same seeds can be compared"

SUMMARY, BY_TASK = "foster table --markdown", "foster table --by-task --markdown"
"""The commands that show a whole table, however wide it is."""


@dataclass(frozen=True)
class Grid:
    """A table as text: the first `num_names` columns name the row, the others hold its numbers.

    `note` says what it leaves out.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    num_names: int
    note: str = ""

    def rich(self) -> Table:
        """For a terminal: names go on in the next line where there is no room, numbers have theirs."""
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=0)
        for index, (name, width) in enumerate(zip(self.header, self.least_widths, strict=True)):
            is_number = index >= self.num_names
            justify: JustifyMethod = "right" if is_number else "left"
            table.add_column(Text(name), justify=justify, overflow="fold", no_wrap=is_number, min_width=width)
        for row in self.rows:
            table.add_row(*map(Text, row))
        return table

    @property
    def least_widths(self) -> list[int]:
        """Of the columns: that of a name's longest word, within reason, and of a number all of it."""
        columns = list(zip(self.header, *self.rows, strict=True))
        words = [
            min(max(cell_len(word) for cell in cells for word in cell.split()), NARROWEST_NAME)
            for cells in columns[: self.num_names]
        ]
        return words + [max(map(cell_len, cells)) for cells in columns[self.num_names :]]

    def fits(self, width: int) -> bool:
        """Whether a line has room for all columns, with a space between them."""
        return sum(self.least_widths) + len(self.header) - 1 <= width

    def without(self, name: str) -> "Grid":
        """The same table less one column."""
        column = self.header.index(name)
        header, *rows = (line[:column] + line[column + 1 :] for line in (self.header, *self.rows))
        return replace(self, header=header, rows=tuple(rows), num_names=self.num_names - (column < self.num_names))

    def with_shared_names_in_title(self) -> "Grid":
        """What all rows share stands once in the title and leaves the width to the numbers."""
        grid = self
        for name, *cells in list(zip(self.header, *self.rows, strict=True))[1 : self.num_names]:
            if len(set(cells)) == 1:
                grid = replace(grid.without(name), title=f"{grid.title}, {name} {cells[0]}")
        return grid

    def markdown(self) -> str:
        rules = ["---" if index < self.num_names else "---:" for index in range(len(self.header))]
        lines = [self.header, rules, *self.rows]
        return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)


@dataclass(frozen=True)
class TerminalTables:
    """Tables under their titles, each as wide as the terminal has room for: nothing is cut off, and a line says what
    is left out."""

    tables: Sequence[Sequence[Grid]]
    """For each table, what may be shown: the whole first, then less and less."""
    command: str
    """What shows everything, wherever."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for candidates in self.tables:
            grid = next((grid for grid in candidates if grid.fits(options.max_width)), None)
            yield Text((grid or candidates[-1]).title, style="bold")
            if grid:
                yield grid.rich()
            note = grid.note if grid else f"a wider terminal or '{self.command}' shows the table"
            yield Text(f"{note}\n" if note else "", style="italic")


def accuracy_table(results: Sequence[RunResult]) -> TerminalTables:
    """For a terminal: a row a run, its accuracy after each task."""
    by_number = [accuracy_grids(results, num_tasks) for num_tasks in range(TERMINAL_TASKS, 1, -1)]
    return TerminalTables(list(zip(*by_number, strict=True)), BY_TASK)


def summary_table(results: Sequence[RunResult]) -> TerminalTables:
    """For a terminal: a row a recipe, means and spreads over the seeds."""
    return TerminalTables([list(_narrower(grid)) for grid in summary_grids(results)], SUMMARY)


def markdown(grids: Iterable[Grid]) -> str:
    """The grids as Markdown, each under its title."""
    return "\n\n".join(f"**{grid.title}**\n\n{grid.markdown()}" for grid in grids) + "\n"


def accuracy_grids(results: Sequence[RunResult], max_tasks: int | None = None) -> list[Grid]:
    """A row a run: accuracy after each task, under the number of classes seen by then, and the average.

    Of more than `max_tasks` tasks, that many are shown, the first and the last among them.
    """
    return [_accuracy_grid(scenario, groups, max_tasks) for scenario, groups in by_scenario(results).items()]


def summary_grids(results: Sequence[RunResult]) -> list[Grid]:
    """A row a recipe: mean and sample standard deviation over n runs. The seeds are told where rows differ in them."""
    return [_summary_grid(scenario, groups) for scenario, groups in by_scenario(results).items()]


def classifiers(runs: Iterable[RunResult]) -> str:
    """What the runs' accuracies are of: `head`, `nearest mean`, ..."""
    return ", ".join(sorted({run.classifier for run in runs}))


def _accuracy_grid(scenario: str, groups: Sequence[Group], max_tasks: int | None) -> Grid:
    runs = [run for group in groups for run in group.runs]
    # A union, because two synthetic scenarios of one name may differ in size.
    counts = sorted({count for run in runs for count in run.classes_seen})
    note = ""
    if max_tasks and len(counts) > max_tasks:
        note = f"'{BY_TASK}' shows all {len(counts)} tasks"
        counts = [counts[round(index * (len(counts) - 1) / (max_tasks - 1))] for index in range(max_tasks)]
    rows = []
    for name, run in ((group.name, run) for group in groups for run in group.runs):
        accuracy = dict(zip(run.classes_seen, run.accuracy, strict=True))
        cells = [f"{accuracy[count]:.1f}" if count in accuracy else ABSENT for count in counts]
        rows.append((name, run.augmentation, run.seeds, *cells, f"{run.average_incremental_accuracy:.2f}"))
    return Grid(
        title=f"{scenario}: accuracy (%) by number of classes seen",
        header=("method", "augment", "seed", *map(str, counts), "average"),
        rows=tuple(rows),
        num_names=3,
        note=note,
    ).with_shared_names_in_title()


def _summary_grid(scenario: str, groups: Sequence[Group]) -> Grid:
    rows = tuple(
        (
            group.name,
            classifiers(group.runs),
            group.augmentation,
            ", ".join(run.seeds for run in group.runs),
            str(len(group.runs)),
            mean_and_spread(group.averages),
            mean_and_spread([run.final_accuracy for run in group.runs]),
            mean_and_spread([run.forgetting for run in group.runs]),
            mean_and_spread(group.boosted_averages),
            f"{round(statistics.fmean(run.params for run in group.runs)):,}",
            duration(statistics.fmean(run.train_seconds for run in group.runs)),
        )
        for group in groups
    )
    has_spread = any(len(group.runs) > 1 for group in groups)
    has_orders = any(run.seeds != str(run.seed) for group in groups for run in group.runs)
    grid = Grid(
        title=f"{scenario}: percent"
        + (", mean ± sample standard deviation over n runs" if has_spread else "")
        + (" that differ in seed or class order" if has_spread and has_orders else ""),
        header=("method", "by", "augment", "seeds", "n", "average", "final", "forgetting", "boosted", "params", "time"),
        rows=rows,
        num_names=4,
        note=OTHER_ORDERS,
    )
    if share_orders(groups):
        grid = replace(grid.without("seeds"), note="")
    has_boosted = any(group.boosted_averages for group in groups)
    return grid if has_boosted else grid.without("boosted")


def _narrower(whole: Grid) -> Iterator[Grid]:
    yield whole
    yield (grid := whole.with_shared_names_in_title())
    left_out: list[str] = []
    for name in LEAVES_FIRST:
        if name in grid.header:
            left_out.append(name)
            note = f"a wider terminal or '{SUMMARY}' also shows {', '.join(left_out)}"
            yield (grid := replace(grid.without(name), note="\n".join(filter(None, (whole.note, note)))))
