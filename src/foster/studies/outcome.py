"""What a study found: a table, a figure, and the claims beside what was measured; for a terminal and for a page."""

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from rich.console import Group as Rendered
from rich.text import Text

from foster.reports.curves import variants_figure
from foster.reports.results import RunResult
from foster.reports.style import COLOURS, PAPER, End, Look, label_ends, new_figure, save_figure, styled
from foster.reports.tables import Grid, shown
from foster.studies.study import Claim, Metric, Study
from foster.system.counts import ABSENT, mean_and_spread
from foster.system.files import write_json, write_text

METRICS: dict[Metric, Callable[[RunResult], float | None]] = {
    "average": lambda run: run.average_incremental_accuracy,
    "final": lambda run: run.final_accuracy,
    "new": lambda run: run.new_accuracy[-1] if run.new_accuracy else None,
    "old": lambda run: run.old_accuracy[-1] if run.old_accuracy else None,
}
"""Of one run, in percent; None where it has none."""


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


@dataclass(frozen=True)
class Outcome:
    """The finished runs of each variant, by its name."""

    study: Study
    runs: Mapping[str, Sequence[RunResult]]

    @property
    def all_runs(self) -> list[RunResult]:
        return [run for runs in self.runs.values() for run in runs]

    @property
    def scenario(self) -> str:
        return self.all_runs[0].scenario

    def grid(self) -> Grid:
        columns = [metric for metric in METRICS if any(_values(runs, metric) for runs in self.runs.values())]
        variants = list(
            dict.fromkeys(name for runs in self.runs.values() for run in runs for name in run.shown_variants)
        )
        rows = [
            (
                name,
                str(len(runs)),
                *(mean_and_spread(_values(runs, metric)) for metric in columns),
                *(mean_and_spread(_values(runs, "average", variant)) for variant in variants),
            )
            for name, runs in self.runs.items()
        ]
        title = f"{self.study.title}, {self.scenario}: percent; new and old classes at the end"
        return Grid(title, ("variant", "n", *columns, *variants), tuple(rows), num_names=1)

    def claims(self) -> Grid:
        rows = [(claim.text, claim.paper or ABSENT, measured(claim, self.runs)) for claim in self.study.claims]
        is_elsewhere = not self.scenario.startswith(self.study.preset) and not self.study.preset.endswith(".toml")
        title = f"What the paper says{f' of {self.study.preset}' if is_elsewhere else ''}, and what was found"
        return Grid(title, ("claim", "paper", "found"), tuple(rows), num_names=1)

    def table(self) -> Rendered:
        """For a terminal."""
        grids = [self.grid(), *([self.claims()] if self.study.claims else [])]
        return Rendered(Text(self.study.about), Text(""), shown(grids))

    def figure(self) -> Figure:
        if self.study.draw == "curves":
            return variants_figure(self.runs, f"{self.study.title}, {self.scenario}")
        return _axis_figure(self)

    def markdown(self, figure: str) -> str:
        """A page about the study, with its figure from the file `figure`."""
        parts = [f"# {self.study.title}", self.study.about, f"![{self.study.title}]({figure})", self.grid().markdown()]
        parts += [self.claims().markdown()] if self.study.claims else []
        seeds = sorted({run.seeds for run in self.all_runs})
        hardware = sorted({run.hardware for run in self.all_runs})
        scales = sorted({str(run.settings.get("epochs_scale", 1.0)) for run in self.all_runs} - {"1.0"})
        shortened = f", epochs_scale={', '.join(scales)}" if scales else ""
        parts.append(
            f"{self.scenario}{shortened}, {'seeds' if len(seeds) > 1 else 'seed'} {', '.join(seeds)}, "
            f"on {', '.join(hardware)}."
        )
        return "\n\n".join(parts) + "\n"

    def record(self) -> dict[str, Any]:
        """Plain data: every number that the page has, and the settings that it was made with."""
        return {
            "title": self.study.title,
            "scenario": self.scenario,
            "variants": [
                {
                    "name": name,
                    "runs": [
                        {"seed": run.seed, "settings": run.settings, "hardware": run.hardware, "accuracy": run.accuracy}
                        | {metric: of_run(run) for metric, of_run in METRICS.items()}
                        | {name: one.average_incremental_accuracy for name, one in run.variants.items()}
                        for run in runs
                    ],
                }
                for name, runs in self.runs.items()
            ],
            "claims": [
                {"text": claim.text, "paper": claim.paper, "found": measured(claim, self.runs)}
                for claim in self.study.claims
            ],
        }

    def write(self, folder: Path) -> None:
        """`study.md`, `study.json`, `study.png` and `study.svg`."""
        figure = self.figure()
        for ending in (".png", ".svg"):
            save_figure(figure, folder / f"study{ending}")
        write_text(folder / "study.md", self.markdown("study.png"))
        write_json(folder / "study.json", self.record())


def measured(claim: Claim, runs: Mapping[str, Sequence[RunResult]]) -> str:
    """What was measured of a claim, in a few letters."""
    if claim.metric == "tasks":
        columns = (zip(*(run.accuracy for run in runs[name]), strict=True) for name in (claim.first, claim.second))
        first, second = (list(map(statistics.fmean, each)) for each in columns)
        above = [one > other for one, other in zip(first, second, strict=True)][1:]
        return f"{sum(above)} of {len(above)} tasks"
    measured_values = {name: _values(group, claim.metric, claim.variant) for name, group in runs.items()}
    means = {name: statistics.fmean(values) for name, values in measured_values.items() if values}
    if not claim.first:
        return f"{max(means.values()) - min(means.values()):.1f} apart" if means else ABSENT
    if claim.first not in means or (claim.second and claim.second not in means):
        return ABSENT
    if claim.second:
        return f"{means[claim.first] - means[claim.second]:+.1f}"
    return f"{means[claim.first]:+.1f}" if claim.metric == "gain" else f"{means[claim.first]:.1f}"


def _values(runs: Sequence[RunResult], metric: Metric, variant: str = "") -> list[float]:
    return [value for run in runs if (value := metric_of(run, metric, variant)) is not None]


@styled()
def _axis_figure(outcome: Outcome) -> Figure:
    """Average and final accuracy of each variant against its place on the study's axis."""
    study = outcome.study
    at = {variant.name: variant.at or 0.0 for variant in study.variants}
    positions = [at[name] for name in outcome.runs]
    figure = new_figure(7.5, 3.9)
    axes = figure.subplots()
    ends = []
    lines: tuple[tuple[Metric, str, int], ...] = (
        ("average", "average incremental accuracy", 6),
        ("final", "accuracy at the end", -12),
    )
    for (metric, label, offset), colour, marker in zip(lines, COLOURS, "os", strict=False):
        values = [_values(runs, metric) for runs in outcome.runs.values()]
        means = [statistics.fmean(each) for each in values]
        spreads = [statistics.stdev(each) if len(each) > 1 else 0.0 for each in values]
        look = Look(colour, marker)
        axes.errorbar(positions, means, yerr=spreads if any(spreads) else None, color=colour, marker=marker, capsize=2)
        for position, mean in zip(positions, means, strict=True):
            beside = axes.annotate(f"{mean:.1f}", (position, mean), (0, offset), textcoords="offset points")
            beside.set(ha="center", size=8, bbox=PAPER)
        ends.append(End(means[-1], label, look))
    if study.is_logarithmic:
        axes.set_xscale("log")
    axes.set_xticks(positions, [f"{at[name]:g}" for name in outcome.runs], minor=False)
    gaps = [after - before for before, after in itertools.pairwise(sorted(positions))]
    if not study.is_logarithmic and gaps and min(gaps) < 0.1 * sum(gaps):
        axes.tick_params(axis="x", labelrotation=90)
    axes.minorticks_off()
    axes.margins(y=0.15)
    axes.set(title=f"{study.title}, {outcome.scenario}", xlabel=study.axis, ylabel="accuracy (%)")
    label_ends(axes, ends, 3.0)
    return figure
