"""The outcome of a study: a table, a figure, and the claims beside the measured numbers."""

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure
from rich.console import Group as Rendered
from rich.text import Text

from foster.experiment.results import RunResult
from foster.reports.curves import variants_figure
from foster.reports.groups import by_scenario, titled
from foster.reports.style import COLOURS, PAPER, End, Look, label_ends, new_figure, points, save_figure, styled
from foster.reports.tables import Grid, latex, markdown, shown
from foster.settings.datasets import CATALOGUE
from foster.settings.methods import facts_of
from foster.studies.study import Claim, Metric, Study
from foster.system.counts import ABSENT, mean_and_spread
from foster.system.files import write_text

METRICS: dict[Metric, Callable[[RunResult], float | None]] = {
    "average": lambda run: run.average_incremental_accuracy,
    "final": lambda run: run.final_accuracy,
    "new": lambda run: run.new_accuracy[-1],
    "old": lambda run: run.old_accuracy[-1],
}
"""Metrics of one run in percent; None if it has none."""


def metric_of(run: RunResult, metric: Metric, variant: str = "") -> float | None:
    """A metric of the result, or of another variant of the run."""
    if not variant:
        return METRICS[metric](run)
    found = run.variants.get(variant)
    average = found.average_incremental_accuracy if found else None
    if found is None or average is None:
        return None
    if metric == "gain":
        return average - run.average_incremental_accuracy
    return found.accuracy[-1] if metric == "final" else average


MARGIN_OF_ONE_RUN = 1.0
"""Margin in points where n = 1: two standard deviations of the difference between two seeds on CIFAR-100."""

VERDICTS_NOTE = (
    "A claim has a range: about x is x ± 2 points, minimal is at most 2 points. It holds if the number that was found, "
    "plus or minus a margin, lies inside the range, and does not hold if it lies outside; if it reaches across an end "
    "of the range, there is too little data. The margin is two standard errors over the seeds, and at least "
    f"{MARGIN_OF_ONE_RUN:g} point, or the standard error of the test set if that is larger, divided by the root of n."
)


@dataclass(frozen=True)
class Finding:
    """The measurement of a claim: a number with its margin, from at least `n` runs of each variant."""

    claim: Claim
    value: float | None
    margin: float
    n: int

    @classmethod
    def of(cls, claim: Claim, runs: Mapping[str, Sequence[RunResult]]) -> "Finding":
        if claim.metric == "tasks":
            return cls._of_tasks(claim, runs)
        by_seed = {name: _values_by_seed(group, claim.metric, claim.variant) for name, group in runs.items()}
        means = {name: statistics.fmean(values.values()) for name, values in by_seed.items() if values}
        names = [name for name in (claim.first, claim.second) if name]
        if not names and means:
            names = [max(means, key=means.__getitem__), min(means, key=means.__getitem__)]
        if not names or any(name not in means for name in names):
            return cls(claim, None, 0.0, 0)
        first, *others = (by_seed[name] for name in names)
        n = min(map(len, (first, *others)))
        samples = [list(values.values()) for values in (first, *others)]
        if others and others[0].keys() == first.keys():
            samples = [[value - others[0][seed] for seed, value in first.items()]]  # paired differences
        errors = [statistics.variance(sample) / len(sample) for sample in samples if n > 1]
        value = means[names[0]] - (means[names[1]] if len(names) > 1 else 0.0)
        alone = max(MARGIN_OF_ONE_RUN, sum(_test_variance(runs[name][0]) for name in names) ** 0.5)
        return cls(claim, value, max(2 * sum(errors) ** 0.5, alone / n**0.5), n)

    @classmethod
    def _of_tasks(cls, claim: Claim, runs: Mapping[str, Sequence[RunResult]]) -> "Finding":
        groups = [runs.get(name, ()) for name in (claim.first, claim.second)]
        if not all(groups):
            return cls(claim, None, 0.0, 0)
        first, second = (
            [statistics.fmean(task) for task in zip(*(run.accuracy for run in group), strict=True)] for group in groups
        )
        above = [one > other for one, other in zip(first, second, strict=True)][1:]
        return cls(claim, 100 * statistics.fmean(above) if above else None, 0.0, min(map(len, groups)))

    @property
    def text(self) -> str:
        if self.value is None:
            return ABSENT
        if self.claim.metric == "tasks":
            return f"{self.value:.0f} % of tasks"
        if not self.claim.first:
            return f"{self.value:.1f} apart"
        return f"{self.value:+.1f}" if self.claim.second or self.claim.metric == "gain" else f"{self.value:.1f}"

    @property
    def verdict(self) -> str:
        low, high = self.claim.low, self.claim.high
        if low is None and high is None:
            return ABSENT
        if self.value is None:
            return "too little data"
        low, high = -math.inf if low is None else low, math.inf if high is None else high
        if low <= self.value - self.margin and self.value + self.margin <= high:
            return "holds"
        is_outside = self.value + self.margin < low or self.value - self.margin > high
        return "does not hold" if is_outside else "too little data"


@dataclass(frozen=True)
class Outcome:
    """The finished runs of each variant, by its name; some variants may be missing."""

    study: Study
    runs: Mapping[str, Sequence[RunResult]]

    @property
    def all_runs(self) -> list[RunResult]:
        return [run for runs in self.runs.values() for run in runs]

    @property
    def scenarios(self) -> list[str]:
        return list(dict.fromkeys(run.scenario for run in self.all_runs))

    def grid(self) -> Grid:
        """A row for each variant: its metrics, or for several scenarios its average in each, beside the paper's."""
        if len(self.scenarios) > 1 or any(variant.paper for variant in self.study.variants):
            return self._beside_paper()
        columns = [metric for metric in METRICS if any(_values(runs, metric) for runs in self.runs.values())]
        shown_variants = dict.fromkeys(name for run in self.all_runs for name in run.shown_variants)
        variants = [name for name in shown_variants if _values(self.all_runs, "average", name)]
        rows = [
            (
                name,
                str(len(runs)),
                *(mean_and_spread(_values(runs, metric)) for metric in columns),
                *(mean_and_spread(_values(runs, "average", variant)) for variant in variants),
            )
            for name, runs in self.runs.items()
        ]
        title = f"{self.study.title}, {self.scenarios[0]}: percent; new and old classes at the end"
        return Grid(title, ("variant", "n", *columns, *variants), tuple(rows), num_names=1, note=self.conditions())

    def conditions(self) -> str:
        """The scenarios with the changed settings that all runs share, the seeds and the hardware."""
        groups = by_scenario(self.all_runs, across_orders=True)
        scenarios = "; ".join(titled(scenario, members) for scenario, members in groups.items())
        seeds = sorted({run.seeds for run in self.all_runs})
        orders = {run.order for run in self.all_runs}
        each = ", each with its own class order" if len(orders) > 1 else ""
        spread = "; mean ± sample standard deviation over n runs" if len(seeds) > 1 else ""
        hardware = ", ".join(sorted({run.hardware for run in self.all_runs}))
        text = f"{scenarios}; {'seeds' if len(seeds) > 1 else 'seed'} {', '.join(seeds)}{each}; on {hardware}{spread}"
        return f"{text}{self._different_first_tasks()}"

    def _different_first_tasks(self) -> str:
        """A remark if runs of one method and seed do not have the same first task, which is part of every average."""
        accuracies: dict[tuple[str, str, str], set[float]] = {}
        for run in self.all_runs:
            accuracies.setdefault((run.scenario, run.method, run.seeds), set()).add(run.accuracy[0])
        different = sorted(set().union(*(each for each in accuracies.values() if len(each) > 1)))
        return f"; first tasks differ ({', '.join(f'{value:.2f}' for value in different)} %)" if different else ""

    def _beside_paper(self) -> Grid:
        paper = {variant.name: variant.paper for variant in self.study.variants}
        columns: dict[tuple[str, str], dict[str, list[float]]] = {}
        """The averages of each variant, by scenario and source: ours or the paper."""
        for scenario in self.scenarios:
            columns[scenario, "ours"] = {
                name: [run.average_incremental_accuracy for run in runs if run.scenario == scenario]
                for name, runs in self.runs.items()
            }
            columns[scenario, "paper"] = {
                name: [paper[name][scenario]] if scenario in paper[name] else [] for name in self.runs
            }
        rows = []
        for name in self.runs:
            num_runs = {len(columns[scenario, "ours"][name]) for scenario in self.scenarios} - {0}
            n = "-".join(map(str, sorted({min(num_runs), max(num_runs)})))
            rows.append((name, n, *(mean_and_spread(column[name]) for column in columns.values())))
        is_bound = {name: facts_of(runs[0].method).keeps_all_images for name, runs in self.runs.items()}
        compared = {k: name for k, name in enumerate(self.runs) if not is_bound[name]}
        best = set()
        for index, column in enumerate(columns.values(), start=2):
            means = {k: statistics.fmean(column[name]) for k, name in compared.items() if column[name]}
            if len(compared) > 1 and means:
                best.add((max(means, key=means.__getitem__), index))
        header = ("variant", "n", *(scenario if source == "ours" else source for scenario, source in columns))
        title = f"{self.study.title}: average incremental accuracy in percent, over n runs"
        return Grid(title, header, tuple(rows), num_names=1, note=self.conditions(), best=frozenset(best))

    def claims(self) -> Grid:
        findings = [Finding.of(claim, self.runs) for claim in self.study.claims]
        rows = [(one.claim.text, one.claim.paper or ABSENT, one.text, str(one.n), one.verdict) for one in findings]
        scenario, preset = self.scenarios[0], self.study.presets[0]
        is_elsewhere = not scenario.startswith(preset) and not preset.endswith(".toml")
        title = f"Claims{f' on {preset}' if is_elsewhere else ''}, and what was found on {scenario}"
        return Grid(title, ("claim", "paper", "found", "n", "verdict"), tuple(rows), num_names=1)

    def grids(self) -> list[Grid]:
        return [self.grid(), *([self.claims()] if self.study.claims else [])]

    def table(self) -> Rendered:
        """For a terminal."""
        return Rendered(Text(self.study.about), Text(""), shown(self.grids()))

    def figure(self) -> Figure:
        if self.study.draw == "curves":
            where = f", {self.scenarios[0]}" if len(self.scenarios) == 1 else ""
            return variants_figure(self.runs, f"{self.study.title}{where}")
        return _axis_figure(self)

    def markdown(self) -> str:
        """The page of the study in Markdown."""
        figure = f"![{self.study.title}](study.png)"
        parts = [f"# {self.study.title}", self.study.about, figure, markdown(self.grids())]
        parts += [VERDICTS_NOTE] if self.study.claims else []
        return "\n\n".join(part.strip() for part in parts) + "\n"

    def write(self, folder: Path) -> None:
        """Write `study.md`, `study.tex`, `study.png` and `study.svg`."""
        figure = self.figure()
        for ending in (".png", ".svg"):
            save_figure(figure, folder / f"study{ending}")
        write_text(folder / "study.md", self.markdown())
        write_text(folder / "study.tex", latex(self.grids()))


def _test_variance(run: RunResult) -> float:
    """The binomial variance of the accuracy in squared points, from the number of test images; 0 if it is unknown."""
    facts = CATALOGUE.get(str(run.settings.get("dataset")))
    num_images = facts.num_test if facts and run.evaluated_on == "test" else 0
    return run.final_accuracy * (100 - run.final_accuracy) / num_images if num_images else 0.0


def _values(runs: Sequence[RunResult], metric: Metric, variant: str = "") -> list[float]:
    return [value for run in runs if (value := metric_of(run, metric, variant)) is not None]


def _values_by_seed(
    runs: Sequence[RunResult], metric: Metric, variant: str = ""
) -> dict[tuple[str, int, int | str | None], float]:
    """The metric of each run, by its scenario and its seeds."""
    found = {(run.scenario, run.seed, run.order): metric_of(run, metric, variant) for run in runs}
    return {seed: value for seed, value in found.items() if value is not None}


@styled()
def _axis_figure(outcome: Outcome) -> Figure:
    """Average and final accuracy of each variant against its position on the axis."""
    study = outcome.study
    at = {variant.name: variant.at or 0.0 for variant in study.variants}
    positions = [at[name] for name in outcome.runs]
    figure = new_figure(7.5, 3.9)
    axes = figure.subplots()
    ends = []
    lines: dict[Metric, str] = {"average": "average incremental accuracy", "final": "accuracy at the end"}
    for (metric, label), colour, marker in zip(lines.items(), COLOURS, "os", strict=False):
        values = [_values(runs, metric) for runs in outcome.runs.values()]
        means = [statistics.fmean(each) for each in values]
        spreads = [statistics.stdev(each) if len(each) > 1 else 0.0 for each in values]
        look = Look(colour, marker)
        axes.errorbar(positions, means, yerr=spreads if any(spreads) else None, color=colour, marker=marker, capsize=2)
        # The average is nearly always the upper line: its numbers are above it, those of the end below.
        side = 1 if metric == "average" else -1
        for position, mean, spread in zip(positions, means, spreads, strict=True):
            place, offset = (position, mean + side * spread), (0, points(6 * side))
            beside = axes.annotate(f"{mean:.1f}", place, offset, textcoords="offset points", bbox=PAPER)
            beside.set(ha="center", va="bottom" if side == 1 else "top", size=points(8))
        ends.append(End(means[-1], label, look))
    if study.is_logarithmic:
        axes.set_xscale("log")
    axes.set_xticks(positions, [f"{at[name]:g}" for name in outcome.runs], minor=False)
    gaps = [after - before for before, after in itertools.pairwise(sorted(positions))]
    if not study.is_logarithmic and gaps and min(gaps) < 0.1 * sum(gaps):
        axes.tick_params(axis="x", labelrotation=90)
    axes.minorticks_off()
    axes.margins(y=0.15)
    axes.set(title=f"{study.title}, {outcome.scenarios[0]}", xlabel=study.axis, ylabel="accuracy (%)")
    label_ends(axes, ends, 3.0)
    return figure
