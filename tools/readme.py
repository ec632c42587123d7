"""Write the tables of README.md and docs/results.md from `results/*.json`: `python tools/readme.py [--check]`."""

import argparse
import statistics
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from foster.errors import DataError, FosterError
from foster.reports.groups import Group, by_scenario
from foster.reports.results import RunResult, read_result
from foster.reports.tables import Grid, classifiers
from foster.settings.methods import METHOD_SETTINGS
from foster.system.counts import ABSENT, mean_and_spread, size_text
from published import ACIL, PUBLISHED, Published

BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"

COMPARED = "cifar100-b0-inc10"
"""The scenario in which the paper compares all methods, and so do we, with both augmentations."""

EXPLANATION = """\
Average incremental accuracy in percent: the mean over all tasks, the first included, of the accuracy on all classes
seen so far; mean ± sample standard deviation where n, the number of runs, is above 1. *Final* is the accuracy on all
classes after the last task, in the table of all methods with `auto` where there is such a run. *Kept* is what a method
keeps between tasks beside the weights of its network: images, statistics, or with `recall_first` the first network.
*Classifier* is what the number is of: the trained head, or the nearest mean of exemplars, by which the field reports
iCaRL and PODNet, and its authors COIL. For FOSTER it is the head of the compressed network, as in the paper, and
*boosted* is that of the network before compression; the paper's boosted values are read off its figure. Augmentation
`plain` is crop, flip and brightness, which the published baselines used; `auto` adds AutoAugment and Cutout, which
FOSTER used. *Class order* is the seed of the order in which classes arrive, 1993 in all published runs; another order
is another problem, easier or harder by points, and has a row of its own. *Difference* is ours minus the paper's, given
only for the published class order, augmentation and settings. The tables are generated from the files in `results/` by
`python tools/readme.py`."""

PUBLISHED_ORDER = 1993
"""The seed of the class order that all published numbers were made with."""

MARK_NOTE = "² Not with all settings of the recipe: [docs/results.md](docs/results.md) says which."
REPOSITORY_NOTE = "¹ From the authors' repository; the paper has no value."

COMPARED_AUGMENTATIONS = ("plain", "auto")
COMPARED_COLUMNS = (
    *("method", "classifier", *COMPARED_AUGMENTATIONS, "final", "n", "paper", "difference", "parameters", "kept"),
)
PROTOCOL_COLUMNS = (
    *("scenario", "n", "foster", "final", "paper", "difference", "repository", "difference"),
    *("n", "plus", "final", "gain"),
)
CLOSED_FORM_COLUMNS = ("scenario", "method", "n", "average", "final", "ACIL", "parameters", "kept")
TINY_IMAGENET_COLUMNS = ("scenario", "method", "augmentation", "n", "average", "final", "boosted", "parameters", "kept")
ORDERS_COLUMNS = ("scenario", "method", "class orders", "average", "final", "boosted", "gain")
CLOSED_FORMS = ("slda", "ridge")
PLUS = "plus"
"""The recipe that stands beside the paper's."""
NAME_COLUMNS = ("scenario", "method", "classifier", "augmentation", "class order", "seeds", "hardware")
NUMBER_COLUMNS = ("n", "average", "final", "paper", "difference", "boosted", "paper, boosted", "kept", "minutes")


def protocols_block(results: Sequence[RunResult]) -> str:
    """The README's table: FOSTER on the paper's protocols. Unfinished runs are left out."""
    told = protocols(_by_scenario_and_order([run for run in results if run.finished]))
    return "\n\n".join([*told, *([MARK_NOTE] if "²" in "".join(told) else [])])


def results_block(results: Sequence[RunResult]) -> str:
    """The tables of the page on results, and how to read them. Unfinished runs are left out."""
    finished = [run for run in results if run.finished]
    if not finished:
        return "No results yet."
    scenarios = _by_scenario_and_order(finished)
    same_order = [group for group in scenarios.get(COMPARED, ()) if _has_published_order(group)]
    compared = comparison([group for group in same_order if _is_on_test_images(group)])
    rows = tuple(_row(scenario, group) for scenario, groups in sorted(scenarios.items()) for group in groups)
    table = Grid("", (*NAME_COLUMNS, *NUMBER_COLUMNS), rows, num_names=len(NAME_COLUMNS)).markdown()
    notes = [REPOSITORY_NOTE] if "¹" in table else []
    notes += [_changes_note(scenarios)] if "²" in table else []
    several = orders(by_scenario((run for run in finished if run.evaluated_on == "test"), across_orders=True))
    all_runs = [*notes, f'<details markdown="1"><summary>All {len(finished)} runs</summary>', table, "</details>"]
    tables = [*compared, *protocols(scenarios), *closed_forms(scenarios), *tiny_imagenet(scenarios), *several]
    return "\n\n".join([*tables, *all_runs, EXPLANATION])


def protocols(scenarios: Mapping[str, Sequence[Group]]) -> list[str]:
    """The paragraphs that set our FOSTER beside the paper's, beside what its authors got when they ran it again, and
    beside our better recipe."""
    rows = [
        (
            f"`{scenario}`",
            *_average_and_final(group),
            f"{published.average:.2f}",
            _difference(group, published.average),
            f"{published.rerun:.2f}",
            _difference(group, published.rerun),
            *_beside(groups, group),
        )
        for scenario, groups in scenarios.items()
        for group in groups
        if (published := _comparable(scenario, group)) and published.rerun
    ]
    if not rows:
        return []
    table = Grid("", PROTOCOL_COLUMNS, tuple(sorted(rows)), num_names=1).markdown()
    told = (
        "FOSTER on the paper's protocols, as its authors' repository reproduces it (it does not say of which network: "
        "its program prints the boosted one), and with `--recipe plus`:"
    )
    return [textwrap.fill(told, 120), table]


def closed_forms(scenarios: Mapping[str, Sequence[Group]]) -> list[str]:
    """The paragraphs on methods that train nothing after the first task."""
    rows = [
        (
            f"`{scenario}`",
            _name(group),
            *_average_and_final(group),
            f"{ACIL[scenario]:.2f}" if scenario in ACIL else ABSENT,
            _parameters(group),
            _kept(group),
        )
        for scenario, groups in sorted(scenarios.items())
        for group in groups
        if group.method in CLOSED_FORMS and _has_published_order(group) and _is_on_test_images(group)
    ]
    if not rows:
        return []
    told = "Heads that are computed: nothing is trained after the first task, and no image is kept. The published runs "
    told += "of ACIL have another class order and another training of the first task:"
    return [textwrap.fill(told, 120), Grid("", CLOSED_FORM_COLUMNS, tuple(rows), num_names=2).markdown()]


def tiny_imagenet(scenarios: Mapping[str, Sequence[Group]]) -> list[str]:
    """The paragraphs on the second dataset, for which nothing was chosen."""
    rows = [
        (
            f"`{scenario}`",
            _name(group),
            group.augmentation,
            *_average_and_final(group),
            mean_and_spread(group.variant_averages("boosted")),
            _parameters(group),
            _kept(group),
        )
        for scenario, groups in sorted(scenarios.items())
        for group in groups
        if scenario.startswith("tinyimagenet") and _has_published_order(group) and _is_on_test_images(group)
    ]
    if not rows:
        return []
    told = (
        "Tiny ImageNet, photos of 200 classes at 64 x 64 pixels. Everything was chosen on CIFAR-100 and used unchanged:"
    )
    return [told, Grid("", TINY_IMAGENET_COLUMNS, tuple(rows), num_names=3).markdown()]


def _average_and_final(group: Group) -> tuple[str, str, str]:
    """n, the average and the accuracy after the last task."""
    return str(len(group.runs)), mean_and_spread(group.averages), mean_and_spread(_finals(group))


def _finals(group: Group) -> list[float]:
    return [run.final_accuracy for run in group.runs]


def _parameters(group: Group) -> str:
    return f"{statistics.fmean(run.params for run in group.runs) / 1e6:.2f} M"


def _kept(group: Group) -> str:
    return size_text(statistics.fmean(run.memory_bytes for run in group.runs))


def _beside(groups: Sequence[Group], paper: Group) -> tuple[str, ...]:
    """What the better recipe reaches under the same conditions, and what it gains."""
    for group in groups:
        alike = group.method == paper.method and group.augmentation == paper.augmentation
        if alike and group.recipe == PLUS and _has_published_order(group) and _is_on_test_images(group):
            num_runs, average, final = _average_and_final(group)
            return num_runs, f"{average}{_mark(group)}", final, _difference(group, statistics.fmean(paper.averages))
    return (ABSENT,) * 4


def orders(scenarios: Mapping[str, Sequence[Group]]) -> list[str]:
    """The paragraphs on what was learned in several class orders: each recipe's mean over them, and the better one's
    gain, order by order."""
    rows = [
        (
            f"`{scenario}`",
            _name(group),
            ", ".join(_by_order(group)),
            mean_and_spread([*_by_order(group).values()]),
            mean_and_spread([*_by_order(group, lambda run: run.final_accuracy).values()]),
            mean_and_spread(group.variant_averages("boosted") and [*_by_order(group, _boosted).values()]),
            _signed(_gains(groups, group)),
        )
        for scenario, groups in sorted(scenarios.items())
        for group in groups
        if len(_by_order(group)) > 1
    ]
    told = "Over several class orders, mean ± sample standard deviation; the gain is that in the same order:"
    return [told, Grid("", ORDERS_COLUMNS, tuple(rows), num_names=3).markdown()] if rows else []


def _gains(groups: Sequence[Group], better: Group) -> list[float]:
    """What the better recipe gains over the paper's in each class order that both have."""
    papers = [g for g in groups if (g.method, g.augmentation, g.recipe) == (better.method, better.augmentation, "")]
    if better.recipe != PLUS or len(papers) != 1:
        return []
    theirs = _by_order(papers[0])
    return [average - theirs[order] for order, average in _by_order(better).items() if order in theirs]


def _signed(gains: Sequence[float]) -> str:
    return mean_and_spread(gains) if not gains or statistics.fmean(gains) < 0 else f"+{mean_and_spread(gains)}"


def _by_order(
    group: Group, number: Callable[[RunResult], float] = lambda run: run.average_incremental_accuracy
) -> dict[str, float]:
    """The mean of a number of each class order's runs, the published order first."""
    by_order: dict[str, list[float]] = {}
    for run in sorted(group.runs, key=lambda run: (run.order_seed != PUBLISHED_ORDER, str(run.order_seed))):
        by_order.setdefault(str(run.order_seed), []).append(number(run))
    return {order: statistics.fmean(numbers) for order, numbers in by_order.items()}


def _boosted(run: RunResult) -> float:
    average = run.variants["boosted"].average_incremental_accuracy
    assert average is not None
    return average


def _by_scenario_and_order(runs: Sequence[RunResult]) -> dict[str, list[Group]]:
    """Groups whose runs have learned the classes in one order: how hard a scenario is depends on it by some points."""
    by_name: dict[str, list[Group]] = {}
    for order in sorted({run.order_seed for run in runs}, key=lambda order: (order != PUBLISHED_ORDER, str(order))):
        for scenario, groups in by_scenario([run for run in runs if run.order_seed == order]).items():
            by_name.setdefault(scenario, []).extend(groups)
    return by_name


def comparison(groups: Sequence[Group]) -> list[str]:
    """The paragraphs that compare all methods in one scenario: a row a method, a column an augmentation."""
    by_name: dict[str, dict[str, Group]] = {}
    for group in groups:
        if group.augmentation in COMPARED_AUGMENTATIONS:
            by_name.setdefault(_name(group), {})[group.augmentation] = group
    if not by_name:
        return []
    rows = tuple(_compared_row(by_augmentation) for by_augmentation in by_name.values())
    present = {group.method for by_augmentation in by_name.values() for group in by_augmentation.values()}
    missing = [name for name, kind in METHOD_SETTINGS.items() if isinstance(kind.built_by, str) and name not in present]
    notes = [f"Without a full run so far: {', '.join(missing)}."] if missing else []
    table = Grid("", COMPARED_COLUMNS, rows, num_names=2).markdown()
    return [f"All methods on `{COMPARED}`, average incremental accuracy with each augmentation:", table, *notes]


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


def _compared_row(by_augmentation: Mapping[str, Group]) -> tuple[str, ...]:
    """One method's row, from its groups by augmentation."""
    groups = list(by_augmentation.values())
    published = PUBLISHED.get((COMPARED, groups[0].method))
    differences = [_difference(group, theirs.average) for group in groups if (theirs := _comparable(COMPARED, group))]
    # The size of the network, and what is kept, do not depend on the augmentation.
    last = by_augmentation.get("auto", groups[0])
    counts = [str(len(by_augmentation[name].runs)) for name in COMPARED_AUGMENTATIONS if name in by_augmentation]
    return (
        _name(groups[0]),
        classifiers(run for group in groups for run in group.runs),
        *(
            f"{mean_and_spread(by_augmentation[name].averages)}{_mark(by_augmentation[name])}"
            if name in by_augmentation
            else ABSENT
            for name in COMPARED_AUGMENTATIONS
        ),
        mean_and_spread(_finals(last)),
        ", ".join(dict.fromkeys(counts)),
        _published(published),
        differences[0] if differences else ABSENT,
        _parameters(groups[0]),
        _kept(groups[0]),
    )


def _row(scenario: str, group: Group) -> tuple[str, ...]:
    published = _comparable(scenario, group)
    return (
        scenario,
        _marked(group),
        classifiers(group.runs),
        group.augmentation,
        str(order) if (order := group.runs[0].order_seed) is not None else ABSENT,
        ", ".join(str(seed) for seed in sorted({run.seed for run in group.runs})),
        ", ".join(sorted({run.hardware for run in group.runs})),
        *_average_and_final(group),
        _published(published),
        _difference(group, published.average) if published else ABSENT,
        mean_and_spread(group.variant_averages("boosted")),
        f"≈ {published.boosted:.1f}" if published and published.boosted else ABSENT,
        _kept(group),
        f"{statistics.fmean(run.train_seconds for run in group.runs) / 60:.1f}",
    )


def _comparable(scenario: str, group: Group) -> Published | None:
    """What the literature reports, where the group was trained and evaluated as that was."""
    settings = METHOD_SETTINGS.get(group.method)
    is_alike = settings is not None and group.augmentation == settings.published_augmentation and not group.recipe
    is_alike = is_alike and _has_published_order(group) and _is_on_test_images(group) and not group.changes
    return PUBLISHED.get((scenario, group.method)) if is_alike else None


def _has_published_order(group: Group) -> bool:
    return all(run.order_seed == PUBLISHED_ORDER for run in group.runs)


def _is_on_test_images(group: Group) -> bool:
    return all(run.evaluated_on == "test" for run in group.runs)


def _name(group: Group) -> str:
    """The method and its recipe; a footnote has the settings that are not those of the preset."""
    return f"{group.method} {group.recipe}".rstrip()


def _marked(group: Group) -> str:
    return f"{_name(group)}{_mark(group)}"


def _mark(group: Group) -> str:
    return " ²" if group.changes else ""


def _changes_note(scenarios: Mapping[str, Sequence[Group]]) -> str:
    notes = [
        f"{scenario} {_name(group)} {group.augmentation}: {', '.join(group.changes)}"
        for scenario, groups in sorted(scenarios.items())
        for group in groups
        if group.changes
    ]
    told = "; ".join(dict.fromkeys(notes))
    return textwrap.fill(f"² Not with all settings of the preset and the recipe. {told}.", 120)


def _difference(group: Group, theirs: float) -> str:
    return f"{round(statistics.fmean(group.averages) - theirs, 2) + 0.0:+.2f}"


def _published(published: Published | None) -> str:
    if published is None:
        return ABSENT
    return f"{published.average:.2f}" + ("" if published.is_in_paper else " ¹")


if __name__ == "__main__":
    sys.exit(main())
