"""What a figure of runs shows: its panels, the curves in each, and how each curve looks."""

import itertools
import math
import statistics
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from foster.reports.groups import Group, by_scenario
from foster.reports.results import RunResult


@dataclass(frozen=True)
class Look:
    """How a curve is drawn."""

    colour: str
    marker: str
    line_style: str = "-"


# Colours after Okabe and Ito, and three after Tol, that colour-blind people can tell apart; markers help in print.
LOOKS = {
    "foster": Look("#D55E00", "o"),
    "replay": Look("#0072B2", "s"),
    "der": Look("#009E73", "D"),
    "bic": Look("#CC79A7", "X"),
    "wa": Look("#E69F00", "^"),
    "icarl": Look("#56B4E9", "P"),
    "lwf": Look("#332288", "p"),
    "coil": Look("#882255", ">"),
    "podnet": Look("#AA9C00", "<"),
    "joint": Look("#000000", "*"),
    "finetune": Look("#7F7F7F", "v"),
}
"""Of each method, in every figure alike; several recipes of one method take its own and then others in this order."""

OTHER = Look("#444444", "h")
LINE_STYLES = ("-", "-.", ":")
"""Of the augmentations of a panel."""

MOST_IN_A_PANEL = 12
"""Groups; of more, those of each augmentation get a panel of their own."""

MOST_WITH_BOOSTED = 6
"""Recipes of one method that have the curves of their boosted networks beside their own."""

MOST_DRAWN = 15
"""Groups of a panel; of more, nobody finds the one that a label belongs to."""


@dataclass(frozen=True)
class Curve:
    """Mean and sample standard deviation over runs after each task, `[T]` each, in percent."""

    label: str
    look: Look
    is_boosted: bool
    num_runs: int
    classes_seen: tuple[int, ...]
    mean: tuple[float, ...]
    spread: tuple[float, ...]

    @property
    def average(self) -> float:
        """Average incremental accuracy."""
        return statistics.fmean(self.mean)


@dataclass(frozen=True)
class Panel:
    """Curves of one scenario, the best average first; `note` says what is left out."""

    scenario: str
    groups: list[Group]
    curves: list[Curve]
    note: str

    def title(self, heading: str) -> str:
        """With the augmentation that all curves share; where they share none, their labels tell it."""
        augmentations = {group.augmentation for group in self.groups}
        return f"{heading}, augmentation {augmentations.pop()}" if len(augmentations) == 1 else heading


@dataclass(frozen=True)
class Scale:
    """The accuracies that an axis spans, and those between its lines."""

    bottom: float
    top: float
    step: float


def panels(results: Sequence[RunResult]) -> list[Panel]:
    """A panel for each scenario, or for each of its augmentations where there are many curves."""
    found = []
    for scenario, groups in by_scenario(results).items():
        names = sorted({group.augmentation for group in groups}, reverse=True)
        alike = [[group for group in groups if group.augmentation == name] for name in names]
        found += [_panel(scenario, part) for part in (alike if len(groups) > MOST_IN_A_PANEL else [groups])]
    return found


def scale(curves: Sequence[Curve]) -> Scale:
    """An axis for all of them."""
    values = [value for curve in curves for value in curve.mean if math.isfinite(value)] or [0.0, 100.0]
    step = next(step for step in (5, 10, 20) if step == 20 or max(values) - min(values) < 6 * step)
    bottom = max(0, step * math.floor((min(values) - 1) / step))
    return Scale(bottom, min(100, step * math.ceil((max(values) + 1) / step)), step)


def _panel(scenario: str, groups: Sequence[Group]) -> Panel:
    drawn = list(groups[:MOST_DRAWN])
    varied = _methods_of_several_recipes(drawn)
    curves = list(_curves(drawn))
    notes = [f"the best {len(drawn)} of {len(groups)} by their averages"] if len(groups) > len(drawn) else []
    if sum(group.method in varied for group in drawn) > MOST_WITH_BOOSTED and any(curve.is_boosted for curve in curves):
        curves = [curve for curve in curves if not curve.is_boosted]
        notes.append("without the boosted networks")
    return Panel(scenario, drawn, curves, ", ".join(notes))


def _methods_of_several_recipes(groups: Sequence[Group]) -> set[str]:
    """The methods that neither their name nor their augmentation tells apart from themselves."""
    counts = Counter((group.method, group.augmentation) for group in groups)
    return {method for (method, _), count in counts.items() if count > 1}


def _curves(groups: Sequence[Group]) -> Iterator[Curve]:
    """The curves of one panel, the best average first."""
    augmentations = sorted({group.augmentation for group in groups})
    for group, look in zip(groups, _looks(groups), strict=True):
        label = f"{group.name} ({group.augmentation})" if len(augmentations) > 1 else group.name
        yield from _curves_of_group(label, look, group.runs)


def _looks(groups: Sequence[Group]) -> list[Look]:
    """A colour and a marker for each method; for each recipe where a method has several with one augmentation. The
    line tells the augmentation."""
    augmentations = sorted({group.augmentation for group in groups})
    varied = _methods_of_several_recipes(groups)
    taken = {group.method for group in groups} - varied
    others = {method: look for method, look in {**LOOKS, "": OTHER}.items() if method not in taken}
    free = [others[method] for method in sorted(others, key=lambda method: method not in varied)]
    # By name, so that a recipe looks the same in all panels that show the same recipes.
    recipes = sorted({group.name for group in groups if group.method in varied})
    looks = []
    for group in groups:
        look, turn = LOOKS.get(group.method, OTHER), 0
        if group.method in varied:
            turn, place = divmod(recipes.index(group.name), len(free))
            # A colour that comes again has another marker and another line.
            look = Look(free[place].colour, free[(place + turn) % len(free)].marker)
        style = LINE_STYLES[(augmentations.index(group.augmentation) + turn) % len(LINE_STYLES)]
        looks.append(Look(look.colour, look.marker, style))
    return looks


def _curves_of_group(label: str, look: Look, group: Sequence[RunResult]) -> Iterator[Curve]:
    # Runs that saw different tasks cannot be averaged point by point.
    for classes_seen, same in itertools.groupby(sorted(group, key=_classes_seen), key=_classes_seen):
        runs = list(same)
        boosted = [run.boosted.accuracy for run in runs if run.boosted]
        # The whole name stands on the group's other curve, which has the same colour.
        boosted_label = f"{textwrap.shorten(label, 40, placeholder=' …')} boosted"
        for name, is_boosted, accuracies in ((boosted_label, True, boosted), (label, False, _accuracies(runs))):
            if accuracies and all(len(accuracy) == len(classes_seen) for accuracy in accuracies):
                columns = list(zip(*accuracies, strict=True))
                yield Curve(
                    label=name,
                    num_runs=len(accuracies),
                    # A single point has no line that could be seen.
                    look=Look(look.colour, "" if len(columns) > 1 else look.marker, "--") if is_boosted else look,
                    is_boosted=is_boosted,
                    classes_seen=classes_seen,
                    mean=tuple(statistics.fmean(column) for column in columns),
                    spread=tuple(statistics.stdev(column) if len(column) > 1 else 0.0 for column in columns),
                )


def _classes_seen(run: RunResult) -> tuple[int, ...]:
    return run.classes_seen


def _accuracies(runs: Sequence[RunResult]) -> list[tuple[float, ...]]:
    return [run.accuracy for run in runs]
