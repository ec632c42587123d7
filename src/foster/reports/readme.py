"""Write the README's table of results from `results/*.json`: `python -m foster.reports.readme [--check]`."""

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from foster.errors import DataError, FosterError
from foster.reports.groups import Group, by_scenario
from foster.reports.published import PUBLISHED, Published
from foster.reports.results import RunResult, read_result
from foster.reports.tables import Grid
from foster.reports.text import ABSENT, mean_and_spread

BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"

EXPLANATION = """\
Average incremental accuracy in percent: the mean over all tasks, the first included, of the accuracy on all classes
seen so far; mean ± sample standard deviation where n, the number of runs, is above 1. For FOSTER the average is that
of the compressed network, as in the paper, and *boosted* is the network before compression; the paper's boosted
values are read off its figure. The table is generated from the files in `results/` by
`python -m foster.reports.readme`."""

REPOSITORY_NOTE = "¹ From the authors' repository; the paper has no value."

NAME_COLUMNS = ("scenario", "method", "augmentation", "seeds", "hardware")
NUMBER_COLUMNS = ("n", "average", "paper", "difference", "boosted", "paper, boosted", "minutes")


def results_block(results: Sequence[RunResult]) -> str:
    """Everything that stands between the markers: the table and how to read it."""
    if not results:
        return "No results yet."
    rows = tuple(_row(scenario, group) for scenario, groups in sorted(by_scenario(results).items()) for group in groups)
    table = Grid("", (*NAME_COLUMNS, *NUMBER_COLUMNS), rows, num_names=len(NAME_COLUMNS)).markdown()
    notes = [REPOSITORY_NOTE] if any("¹" in row[7] for row in rows) else []
    return "\n\n".join([table, *notes, EXPLANATION])


def with_block(readme: str, block: str) -> str:
    """The README's text with `block` between the markers."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise DataError(f"README.md lacks the lines '{BEGIN}' and '{END}', in this order")
    return f"{before}{BEGIN}\n{block}\n{END}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when the README is up to date or was written, 1 when `--check` finds it stale, 2 for bad files."""
    parser = argparse.ArgumentParser(prog="python -m foster.reports.readme", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 when the table is stale")
    parser.add_argument("--root", type=Path, default=Path(), help="the folder of README.md and results/")
    given = parser.parse_args(arguments)
    try:
        return _refresh(given.root, given.check)
    except FosterError as error:
        print(error, file=sys.stderr)
        return error.exit_code


def _refresh(root: Path, only_check: bool) -> int:
    path = root / "README.md"
    try:
        old = path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"cannot read '{path}': {error.strerror}") from None
    new = with_block(old, results_block([read_result(file) for file in sorted((root / "results").glob("*.json"))]))
    if new == old:
        return 0
    if only_check:
        print(f"the results in '{path}' are stale: run python -m foster.reports.readme", file=sys.stderr)
        return 1
    path.write_text(new, encoding="utf-8")
    return 0


def _row(scenario: str, group: Group) -> tuple[str, ...]:
    published = PUBLISHED.get((scenario, group.method))
    return (
        scenario,
        group.name,
        group.augmentation,
        ", ".join(str(seed) for seed in sorted({run.seed for run in group.runs})),
        ", ".join(sorted({run.hardware for run in group.runs})),
        str(len(group.runs)),
        mean_and_spread(group.averages),
        _published(published),
        f"{statistics.fmean(group.averages) - published.average:+.2f}" if published else ABSENT,
        mean_and_spread(group.boosted_averages),
        f"≈ {published.boosted:.1f}" if published and published.boosted else ABSENT,
        f"{statistics.fmean(run.train_seconds for run in group.runs) / 60:.1f}",
    )


def _published(published: Published | None) -> str:
    if published is None:
        return ABSENT
    return f"{published.average:.2f}" + ("" if published.is_in_paper else " ¹")


if __name__ == "__main__":
    sys.exit(main())
