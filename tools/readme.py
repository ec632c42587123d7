"""Write the tables of README.md and docs/results.md from `results/*.json`: `python tools/readme.py [--check]`."""

import argparse
import re
import statistics
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from foster.errors import DataError, FosterError
from foster.experiment.results import RunResult, read_result
from foster.reports.groups import Group, by_scenario
from foster.reports.tables import Grid, classifiers
from foster.settings.methods import METHOD_SETTINGS, facts_of
from foster.studies.study import load_study
from foster.system.counts import ABSENT, mean_and_spread, size_text
from published import ACIL, PUBLISHED, Published

BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"

COMPARED = "cifar100-b0-inc10"
"""The scenario in which the paper compares all methods, and so do we, with both augmentations."""

EXPLANATION = """\
## How to read the tables

| word | meaning |
| --- | --- |
| average | average incremental accuracy in percent: the mean over all tasks, the first included, of the accuracy on \
all classes seen so far |
| final | the accuracy on all classes after the last task; in the table of all methods with `auto` where there is such \
a run |
| n | the number of runs; ± is the sample standard deviation over them |
| paper, difference | the published number, and ours minus that; only for the published class order, augmentation and \
settings |
| `plain`, `auto` | augmentation: `plain` is crop, flip and brightness, as in the published baselines; `auto` adds \
AutoAugment and Cutout, as in FOSTER |
| classifier | the trained head, or the nearest mean of exemplars, by which the field reports iCaRL and PODNet, and \
its authors COIL |
| boosted | FOSTER's network before compression; the result is the compressed one, as in the paper. The paper's \
boosted values are read off its figure |
| kept | what a method keeps between tasks beside the weights of its network: images, sums, or with `recall_first` the \
first network |
| class order | the seed of the order in which classes arrive, 1993 in all published runs; another order is another \
problem, easier or harder by points |

`python tools/readme.py` makes the tables from the files in `results/`."""

PUBLISHED_ORDER = 1993
"""The seed of the class order that all published numbers were made with."""

MARK_NOTE = "¹ Not with all settings of the recipe: [docs/results.md](docs/results.md) says which."
REPOSITORY_NOTE = "² From the authors' repository; the paper has no value."

COMPARED_AUGMENTATIONS = ("plain", "auto")
CLOSED_FORMS = ("slda", "ridge")
PLUS = "plus"
"""The recipe that stands beside the paper's."""

Scenarios = Mapping[str, Sequence[Group]]


@dataclass(frozen=True)
class Row:
    """A row of a table: a group of runs, and all groups that it is compared with."""

    scenario: str
    group: Group
    groups: Sequence[Group]

    @property
    def name(self) -> str:
        """The method and its recipe; a footnote has the settings that are not those of the preset."""
        return f"{self.group.method} {self.group.recipe}".rstrip()

    @property
    def published(self) -> Published | None:
        """What the literature reports, where the group was trained and evaluated as that was."""
        return PUBLISHED.get((self.scenario, self.group.method)) if _is_as_published(self.group) else None

    @property
    def plus(self) -> "Row | None":
        """What the better recipe reaches under the same conditions."""
        wanted = (self.group.method, self.group.augmentation, PLUS)
        better = [g for g in self.groups if (g.method, g.augmentation, g.recipe) == wanted and _is_main(g)]
        return Row(self.scenario, better[0], self.groups) if better else None


Cell = Callable[[Row], str]
Column = tuple[str, Cell]


def _average(row: Row) -> str:
    return mean_and_spread(row.group.averages)


def _marked_average(row: Row) -> str:
    return f"{_average(row)}{_mark(row.group)}"


def _difference(row: Row, theirs: float | None) -> str:
    return ABSENT if theirs is None else f"{round(statistics.fmean(row.group.averages) - theirs, 2) + 0.0:+.2f}"


def _paper(published: Published | None) -> str:
    if published is None:
        return ABSENT
    return f"{published.average:.2f}" + ("" if published.is_in_paper else " ²")


SCENARIO: Column = ("scenario", lambda row: f"`{row.scenario}`")
METHOD: Column = ("method", lambda row: row.name)
CLASSIFIER: Column = ("classifier", lambda row: classifiers(row.group.runs))
AUGMENTATION: Column = ("augmentation", lambda row: row.group.augmentation)
NUM_RUNS: Column = ("n", lambda row: str(len(row.group.runs)))
AVERAGE: Column = ("average", _average)
FINAL: Column = ("final", lambda row: mean_and_spread([run.final_accuracy for run in row.group.runs]))
BOOSTED: Column = ("boosted", lambda row: mean_and_spread(row.group.variant_averages("boosted")))
PAPER: Column = ("paper", lambda row: _paper(row.published))
DIFFERENCE: Column = ("difference", lambda row: _difference(row, row.published.average if row.published else None))
PARAMETERS: Column = ("parameters", lambda row: f"{statistics.fmean(run.params for run in row.group.runs) / 1e6:.2f} M")
KEPT: Column = ("kept", lambda row: size_text(statistics.fmean(run.memory_bytes for run in row.group.runs)))


def table(columns: Sequence[Column], rows: Sequence[Row], num_names: int) -> str:
    """The rows in Markdown."""
    header, cells = zip(*columns, strict=True)
    return Grid("", header, tuple(tuple(cell(row) for cell in cells) for row in rows), num_names).markdown()


def rows_of(scenarios: Scenarios) -> list[Row]:
    return [Row(scenario, group, groups) for scenario, groups in sorted(scenarios.items()) for group in groups]


def protocols_block(results: Sequence[RunResult]) -> str:
    """The README's table: FOSTER on the paper's protocols. Unfinished runs are left out."""
    told = headlines(rows_of(_by_scenario_and_order([run for run in results if run.finished])))
    return "\n\n".join([*told, *([MARK_NOTE] if "¹" in "".join(told) else [])])


def results_block(results: Sequence[RunResult]) -> str:
    """The tables of the page on results, and how to read them. Unfinished runs are left out."""
    finished = [run for run in results if run.finished]
    if not finished:
        return "No results yet."
    rows = rows_of(_by_scenario_and_order(finished))
    main_rows = [row for row in rows if _is_main(row.group)]
    several = orders(by_scenario((run for run in finished if run.evaluated_on == "test"), across_orders=True))
    parts = {
        "All methods on B0 inc10": comparison(main_rows),
        "The paper's Table 1": paper_tables(rows),
        "FOSTER on the paper's protocols": protocols(rows),
        "Heads that are computed": closed_forms(main_rows),
        "Tiny ImageNet": tiny_imagenet(main_rows),
        "Several class orders": several,
    }
    tables = [paragraph for head, part in parts.items() if part for paragraph in (f"## {head}", *part)]
    whole = all_runs(rows)
    notes = [_changes_note(rows)] if "¹" in whole else []
    notes += [REPOSITORY_NOTE] if "²" in whole else []
    machines = _hardware(rows)
    place = f", on one {min(machines)} each" if len(machines) == 1 else ""
    folded = [f'<details markdown="1"><summary>All {len(finished)} runs{place}</summary>', whole, "</details>"]
    return "\n\n".join([*tables, "## Every run", *notes, *folded, EXPLANATION])


def comparison(rows: Sequence[Row]) -> list[str]:
    """The paragraphs that compare all methods in one scenario: a row a method, a column an augmentation."""
    by_name: dict[str, dict[str, Group]] = {}
    for row in rows:
        if row.scenario == COMPARED and row.group.augmentation in COMPARED_AUGMENTATIONS:
            by_name.setdefault(row.name, {})[row.group.augmentation] = row.group
    if not by_name:
        return []

    def of(augmentation: str) -> Cell:
        return lambda row: next(
            (_marked_average(one) for one in parts(row) if one.group.augmentation == augmentation), ABSENT
        )

    def parts(row: Row) -> list[Row]:
        return [Row(COMPARED, group, ()) for group in row.groups]

    groups = [[one[name] for name in COMPARED_AUGMENTATIONS if name in one] for one in by_name.values()]
    # The size of the network, and what is kept, do not depend on the augmentation.
    compared = [Row(COMPARED, of_method[-1], of_method) for of_method in groups]
    columns = (
        *(METHOD, CLASSIFIER, *((name, of(name)) for name in COMPARED_AUGMENTATIONS), FINAL),
        ("n", lambda row: ", ".join(dict.fromkeys(NUM_RUNS[1](one) for one in parts(row)))),
        ("paper", lambda row: _paper(PUBLISHED.get((COMPARED, row.group.method)))),
        ("difference", lambda row: next((DIFFERENCE[1](one) for one in parts(row) if one.published), ABSENT)),
        *(PARAMETERS, KEPT),
    )
    present = {row.group.method for row in compared}
    missing = [name for name, kind in METHOD_SETTINGS.items() if isinstance(kind.built_by, str) and name not in present]
    notes = [f"Without a full run so far: {', '.join(missing)}."] if missing else []
    told = f"Average incremental accuracy on `{COMPARED}` with each augmentation:"
    return [told, table(columns, compared, num_names=2), *notes]


def paper_tables(rows: Sequence[Row]) -> list[str]:
    """The paragraphs on the paper's Table 1 and its figure of curves: a row a method, a column a protocol."""
    studies = [load_study(name) for name in ("table-1", "figure-curves")]
    methods = dict.fromkeys(variant.name for study in studies for variant in study.variants)
    scenarios = sorted({name for study in studies for name in study.presets}, key=_by_base_and_increment)
    found = {(row.scenario, row.group.method): row for row in rows if _is_as_published(row.group)}

    def of(scenario: str) -> Column:
        def cell(row: Row) -> str:
            ours, theirs = found.get((scenario, row.name)), PUBLISHED.get((scenario, row.name))
            reported = f" ({theirs.average:.2f})" if theirs else ""
            return f"{_average(ours) if ours else ABSENT}{reported}"

        return scenario.removeprefix("cifar100-").replace("-", " ").replace("b", "B"), cell

    shown = [next((row for (_, name), row in found.items() if name == method), None) for method in methods]
    told = (
        "Average incremental accuracy with the published augmentation: `auto` for FOSTER and `joint`, `plain` for the "
        "others. In brackets is what the paper reports. B0 inc20 and B50 inc10 are in its figure of curves:"
    )
    columns = (METHOD, *(of(scenario) for scenario in scenarios))
    return [textwrap.fill(told, 120), table(columns, [row for row in shown if row], num_names=1)] if any(shown) else []


def _of_plus(name: str, cell: Cell) -> Column:
    return name, lambda row: cell(row.plus) if row.plus else ABSENT


PLUS_COLUMNS: tuple[Column, ...] = (
    *(_of_plus("plus", _marked_average), _of_plus(*FINAL)),
    ("gain", lambda row: _difference(row.plus, statistics.fmean(row.group.averages)) if row.plus else ABSENT),
)


def headlines(rows: Sequence[Row]) -> list[str]:
    """The README's paragraphs: our FOSTER beside the paper's, and beside our better recipe."""
    shown = [row for row in rows if row.published and row.published.rerun]

    def num_runs(row: Row) -> str:
        return ", ".join(dict.fromkeys(NUM_RUNS[1](one) for one in (row, row.plus) if one))

    columns = (SCENARIO, ("n", num_runs), PAPER, ("foster", _average), DIFFERENCE, FINAL, *PLUS_COLUMNS)
    told = (
        "FOSTER beside the paper's numbers, and with `--recipe plus`; *n* is the number of runs, and ± the standard "
        "deviation over their seeds. The paper's numbers of B0 inc20 and B50 inc10 are only in its authors' repository:"
    )
    return [textwrap.fill(told, 120), table(columns, shown, num_names=1)] if shown else []


def protocols(rows: Sequence[Row]) -> list[str]:
    """The paragraphs that set our FOSTER beside the paper's, beside what its authors got when they ran it again, and
    beside our better recipe."""
    shown = [row for row in rows if row.published and row.published.rerun]
    columns = (
        *(SCENARIO, NUM_RUNS, ("foster", _average), FINAL, PAPER, DIFFERENCE),
        ("repository", lambda row: f"{row.published.rerun:.2f}"),
        ("difference", lambda row: _difference(row, row.published.rerun)),
        *(_of_plus(*NUM_RUNS), *PLUS_COLUMNS),
    )
    told = (
        "The paper's numbers of B0 inc20 and B50 inc10 are only in its authors' repository. *Repository* is what the "
        "authors measured again; it does not say of which network, and its program prints the boosted one. *Plus* is "
        "ours with `--recipe plus`:"
    )
    return [textwrap.fill(told, 120), table(columns, shown, num_names=1)] if shown else []


def closed_forms(rows: Sequence[Row]) -> list[str]:
    """The paragraphs on methods that train nothing after the first task."""
    shown = [row for row in rows if row.group.method in CLOSED_FORMS]
    acil = ("ACIL", lambda row: f"{ACIL[row.scenario]:.2f}" if row.scenario in ACIL else ABSENT)
    columns = (SCENARIO, METHOD, NUM_RUNS, AVERAGE, FINAL, acil, PARAMETERS, KEPT)
    told = "Nothing is trained after the first task, and no image is kept. The published runs of ACIL have another "
    told += "class order and another training of the first task:"
    return [textwrap.fill(told, 120), table(columns, shown, num_names=2)] if shown else []


def tiny_imagenet(rows: Sequence[Row]) -> list[str]:
    """The paragraphs on the second dataset, for which nothing was chosen."""
    shown = [row for row in rows if row.scenario.startswith("tinyimagenet")]
    columns = (SCENARIO, METHOD, AUGMENTATION, NUM_RUNS, AVERAGE, FINAL, BOOSTED, PARAMETERS, KEPT)
    told = "Photos of 200 classes at 64 x 64 pixels. Everything was chosen on CIFAR-100 and used unchanged:"
    return [told, table(columns, shown, num_names=3)] if shown else []


def orders(scenarios: Scenarios) -> list[str]:
    """The paragraphs on what was learned in several class orders: each recipe's mean over them, and the better one's
    gain, order by order."""
    shown = [row for row in rows_of(scenarios) if len(_by_order(row.group)) > 1]
    columns = (
        *(SCENARIO, METHOD),
        ("class orders", lambda row: ", ".join(_by_order(row.group))),
        ("average", lambda row: mean_and_spread([*_by_order(row.group).values()])),
        ("final", lambda row: mean_and_spread([*_by_order(row.group, lambda run: run.final_accuracy).values()])),
        ("boosted", lambda row: mean_and_spread([*_by_order(row.group, _boosted).values()])),
        ("gain", _gains),
    )
    told = "Over several class orders, mean ± sample standard deviation; the gain is that in orders that both have:"
    return [told, table(columns, shown, num_names=3)] if shown else []


def _gains(row: Row) -> str:
    """What the better recipe gains over the paper's in each class order that both have."""
    wanted = (row.group.method, row.group.augmentation, "")
    papers = [group for group in row.groups if (group.method, group.augmentation, group.recipe) == wanted]
    if row.group.recipe != PLUS or len(papers) != 1:
        return ABSENT
    theirs = _by_order(papers[0])
    gains = [average - theirs[order] for order, average in _by_order(row.group).items() if order in theirs]
    return f"{'+' if gains and statistics.fmean(gains) >= 0 else ''}{mean_and_spread(gains)}"


def _boosted(run: RunResult) -> float | None:
    found = run.variants.get("boosted")
    return found.average_incremental_accuracy if found else None


def _by_order(
    group: Group, number: Callable[[RunResult], float | None] = lambda run: run.average_incremental_accuracy
) -> dict[str, float]:
    """The mean of a number of each class order's runs, the published order first."""
    by_order: dict[str, list[float]] = {}
    for run in sorted(group.runs, key=_rank_of_order):
        if (value := number(run)) is not None:
            by_order.setdefault(str(run.order_seed), []).append(value)
    return {order: statistics.fmean(numbers) for order, numbers in by_order.items()}


def all_runs(rows: Sequence[Row]) -> str:
    """The table of all groups of runs; their hardware has a column if it differs."""
    hardware = ("hardware", lambda row: ", ".join(sorted({run.hardware for run in row.group.runs})))
    columns = (
        ("scenario", lambda row: row.scenario),
        ("method", lambda row: f"{row.name}{_mark(row.group)}"),
        AUGMENTATION,
        (
            "class order",
            lambda row: ABSENT if row.group.runs[0].order_seed is None else str(row.group.runs[0].order_seed),
        ),
        ("seeds", lambda row: ", ".join(str(seed) for seed in sorted({run.seed for run in row.group.runs}))),
        *([hardware] if len(_hardware(rows)) > 1 else []),
        *(NUM_RUNS, AVERAGE, FINAL, PAPER, DIFFERENCE, BOOSTED),
        (
            "paper, boosted",
            lambda row: f"≈ {row.published.boosted:.1f}" if row.published and row.published.boosted else ABSENT,
        ),
        KEPT,
        ("minutes", lambda row: f"{statistics.fmean(run.train_seconds for run in row.group.runs) / 60:.1f}"),
    )
    return table(columns, rows, num_names=[name for name, _ in columns].index("n"))


def _hardware(rows: Sequence[Row]) -> set[str]:
    return {run.hardware for row in rows for run in row.group.runs}


def _rank_of_order(run: RunResult) -> tuple[bool, str]:
    """The published class order comes first."""
    return run.order_seed != PUBLISHED_ORDER, str(run.order_seed)


def _by_scenario_and_order(runs: Sequence[RunResult]) -> Scenarios:
    """Groups whose runs have learned the classes in one order: how hard a scenario is depends on it by some points."""
    scenarios = by_scenario(runs)
    return {name: sorted(groups, key=lambda one: _rank_of_order(one.runs[0])) for name, groups in scenarios.items()}


def _by_base_and_increment(scenario: str) -> tuple[int, int]:
    """The order of protocols: those without a base first, the largest tasks first."""
    *_, base, increment = map(int, re.findall(r"\d+", scenario))
    return base, -increment


def _is_as_published(group: Group) -> bool:
    """Whether the runs have the published class order, augmentation and settings."""
    is_alike = group.augmentation == facts_of(group.method).published_augmentation and not group.recipe
    return is_alike and _is_main(group) and not group.changes


def _is_main(group: Group) -> bool:
    """Whether the runs have the published class order and are evaluated on the test images."""
    return all(run.order_seed == PUBLISHED_ORDER and run.evaluated_on == "test" for run in group.runs)


def _mark(group: Group) -> str:
    return " ¹" if group.changes else ""


def _changes_note(rows: Sequence[Row]) -> str:
    notes = [
        f"{row.scenario} {row.name} {row.group.augmentation}: {', '.join(row.group.changes)}"
        for row in rows
        if row.group.changes
    ]
    told = "; ".join(dict.fromkeys(notes))
    return textwrap.fill(f"¹ Not with all settings of the preset and the recipe. {told}.", 120)


PAGES: Mapping[str, Callable[[Sequence[RunResult]], str]] = {
    "README.md": protocols_block,
    "docs/results.md": results_block,
}
"""What stands between the markers of each page."""


def with_block(text: str, block: str, page: str) -> str:
    """The text of a page with `block` between the markers."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise DataError(f"{page} lacks the lines '{BEGIN}' and '{END}', in this order")
    return f"{before}{BEGIN}\n{block}\n{END}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when the pages are up to date or were written, 1 when `--check` finds one stale, 2 for bad files."""
    parser = argparse.ArgumentParser(prog="python tools/readme.py", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 when a page is stale")
    parser.add_argument("--root", type=Path, default=Path(), help="the folder of README.md, docs/ and results/")
    given = parser.parse_args(arguments)
    try:
        return _refresh(given.root, given.check)
    except FosterError as error:
        print(error, file=sys.stderr)
        return error.exit_code


def _refresh(root: Path, only_check: bool) -> int:
    results = [read_result(file) for file in sorted((root / "results").glob("*.json"))]
    is_stale = False
    for name, block in PAGES.items():
        path = root / name
        try:
            old = path.read_text(encoding="utf-8")
        except OSError as error:
            raise DataError(f"cannot read '{path}': {error.strerror}") from None
        new = with_block(old, block(results), name)
        if new == old:
            continue
        if only_check:
            print(f"the results in '{path}' are stale: run python tools/readme.py", file=sys.stderr)
            is_stale = True
        else:
            path.write_text(new, encoding="utf-8")
    return int(is_stale)


if __name__ == "__main__":
    sys.exit(main())
