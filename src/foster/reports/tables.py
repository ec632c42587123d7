"""Runs -> tables, for a terminal and as Markdown; each scenario has its own."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from foster.reports.groups import Group, by_scenario
from foster.reports.results import RunResult
from foster.reports.text import ABSENT, duration, mean_and_spread

TERMINAL_TASKS = 11
"""A terminal shows at most this many tasks of a run, evenly spread; Markdown shows all."""


@dataclass(frozen=True)
class Grid:
    """A table as text: the first `num_names` columns name the row, the others hold its numbers."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    num_names: int

    def rich(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=0)
        for index, cells in enumerate(zip(self.header, *self.rows, strict=True)):
            longest_word = max((len(word) for cell in cells for word in cell.split()), default=1)
            # A narrow terminal may break a cell between words, never inside a number.
            justify: JustifyMethod = "left" if index < self.num_names else "right"
            table.add_column(cells[0], justify=justify, min_width=longest_word)
        for row in self.rows:
            table.add_row(*row)
        return table

    def markdown(self) -> str:
        rules = ["---" if index < self.num_names else "---:" for index in range(len(self.header))]
        lines = [self.header, rules, *self.rows]
        return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)


@dataclass(frozen=True)
class TerminalTables:
    """Grids under their titles, with as many task columns as the terminal has room for."""

    grids: Callable[[int], list[Grid]]
    """Maps the largest number of task columns to the grids."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for candidates in zip(*(self.grids(num_tasks) for num_tasks in range(TERMINAL_TASKS, 1, -1)), strict=True):
            fitting = (grid for grid in candidates if _width(grid, console, options) <= options.max_width)
            grid = next(fitting, candidates[-1])
            yield Text(grid.title, style="bold")
            yield grid.rich()
            yield Text()


def accuracy_table(results: Sequence[RunResult]) -> TerminalTables:
    """For a terminal: a row a run, its accuracy after each task."""
    return TerminalTables(lambda num_tasks: accuracy_grids(results, num_tasks))


def summary_table(results: Sequence[RunResult]) -> TerminalTables:
    """For a terminal: a row a recipe, means and spreads over the seeds."""
    return TerminalTables(lambda _: summary_grids(results))


def markdown(grids: Iterable[Grid]) -> str:
    """The grids as Markdown, each under its title."""
    return "\n\n".join(f"**{grid.title}**\n\n{grid.markdown()}" for grid in grids) + "\n"


def accuracy_grids(results: Sequence[RunResult], max_tasks: int | None = None) -> list[Grid]:
    """A row a run: accuracy after each task, under the number of classes seen by then, and the average.

    Of more than `max_tasks` tasks, that many are shown, the first and the last among them.
    """
    return [_accuracy_grid(scenario, groups, max_tasks) for scenario, groups in by_scenario(results).items()]


def summary_grids(results: Sequence[RunResult]) -> list[Grid]:
    """A row a recipe: mean and sample standard deviation over n runs."""
    return [_summary_grid(scenario, groups) for scenario, groups in by_scenario(results).items()]


def classifiers(runs: Iterable[RunResult]) -> str:
    """What the runs' accuracies are of: `head`, `nearest mean`, ..."""
    return ", ".join(sorted({run.classifier for run in runs}))


def _accuracy_grid(scenario: str, groups: Sequence[Group], max_tasks: int | None) -> Grid:
    runs = [run for group in groups for run in group.runs]
    # A union, because two synthetic scenarios of one name may differ in size.
    counts = sorted({count for run in runs for count in run.classes_seen})
    if max_tasks and len(counts) > max_tasks:
        counts = [counts[round(index * (len(counts) - 1) / (max_tasks - 1))] for index in range(max_tasks)]
    names = {
        "method": [group.name for group in groups for _ in group.runs],
        "augment": [run.augmentation for run in runs],
        "seed": [str(run.seed) for run in runs],
    }
    # What all runs share stands once in the title and leaves the width to the numbers.
    shared = [name for name, values in names.items() if name != "method" and len(set(values)) == 1]
    shown = [name for name in names if name not in shared]
    rows = []
    for index, run in enumerate(runs):
        accuracy = dict(zip(run.classes_seen, run.accuracy, strict=True))
        cells = [f"{accuracy[count]:.1f}" if count in accuracy else ABSENT for count in counts]
        rows.append((*(names[name][index] for name in shown), *cells, f"{run.average_incremental_accuracy:.2f}"))
    return Grid(
        title=f"{scenario}: accuracy (%) by number of classes seen"
        + "".join(f", {name} {names[name][0]}" for name in shared),
        header=(*shown, *map(str, counts), "average"),
        rows=tuple(rows),
        num_names=len(shown),
    )


def _summary_grid(scenario: str, groups: Sequence[Group]) -> Grid:
    rows = tuple(
        (
            group.name,
            classifiers(group.runs),
            group.augmentation,
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
    return Grid(
        title=f"{scenario}: percent" + (", mean ± sample standard deviation over n runs" if has_spread else ""),
        header=("method", "by", "augment", "n", "average", "final", "forgetting", "boosted", "params", "time"),
        rows=rows,
        num_names=3,
    )


def _width(grid: Grid, console: Console, options: ConsoleOptions) -> int:
    return Measurement.get(console, options.update(width=10_000), grid.rich()).minimum
