"""Numbers in the text are those of results/."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

pytest.importorskip("published", reason="the tools are not part of the package")
from published import PUBLISHED

ROOT = Path(__file__).parents[2]
SCENARIOS = ("b0-inc20", "b0-inc10", "b0-inc5", "b50-inc10", "b50-inc5", "b50-inc2")


def text(name: str) -> str:
    """A page in one line."""
    return " ".join((ROOT / name).read_text(encoding="utf-8").split())


def read(name: str) -> dict[str, list[float]]:
    """The accuracies of a run after each task, by its networks; '' is its result."""
    run = json.loads((ROOT / "results" / f"{name}.json").read_text(encoding="utf-8"))
    return {"": run["accuracy"], **{variant: values["accuracy"] for variant, values in run["variants"].items()}}


def average(name: str) -> float:
    return fmean(read(name)[""])


def of(method: str, scenario: str = "b0-inc10", seed: int = 1993) -> float:
    return average(f"cifar100-{scenario}-{method}-s{seed}")


def final_accuracy(name: str) -> float:
    return read(name)[""][-1]


def headline(method: str, scenario: str = "b0-inc10", metric: Callable[[str], float] = average) -> float:
    """The mean over the seeds of class order 1993."""
    folder = "checks/" if method.endswith("no-turns") else ""
    stem = f"{folder}cifar100-{scenario}-{method}-s"
    others = (f"{folder}{path.stem}" for path in (ROOT / "results").glob(f"{stem}*-order1993.json"))
    return fmean(map(metric, [f"{stem}1993", *others]))


def test_what_the_page_on_results_says_of_its_tables_is_what_the_files_say() -> None:
    told, readme = text("docs/results.md"), text("README.md")
    foster, plus, der = headline("foster-auto"), headline("foster-plus"), of("der-auto")
    lead, plain_lead = (
        headline(f"foster-{augmentation}")
        - max(of(f"{method}-{augmentation}") for method in ("bic", "wa", "coil", "icarl", "replay", "podnet"))
        for augmentation in ("auto", "plain")
    )
    assert f"| B0 inc10 | `auto` | BiC, the next best, by {lead:.1f} points |" in told
    assert f"| B0 inc10 | `plain` | WA, the next best, by {plain_lead:.1f} points |" in told
    assert f"FOSTER leads BiC, the next best, by {lead:.1f} points." in readme
    assert f"FOSTER leads WA by {plain_lead:.1f}:" in readme
    published = PUBLISHED["cifar100-b0-inc10", "wa"].average
    wa, plain = of("wa-plain"), headline("foster-plain")
    assert published > plain
    assert f"number of WA ({published:.2f}) is above our WA ({wa:.2f}) and our FOSTER ({plain:.2f})" in told
    assert f"the published WA ({published:.2f}) is above both our WA ({wa:.2f}) and our FOSTER ({plain:.2f})" in readme
    apart = PUBLISHED["cifar100-b0-inc10", "foster"].average - published
    assert f"method of its size (WA) by {apart:.1f} points on B0 inc10" in readme
    for page in (told, readme):
        assert f"leads FOSTER by {der - foster:.1f} points and `plus` by {der - plus:.1f}" in page
    by_plus = f"{headline('foster-plus', 'b50-inc10') - of('der-auto', 'b50-inc10'):.1f}"
    assert f"`plus` leads it by {by_plus}" in told
    assert f"`plus` leads DER by {by_plus}" in readme
    longer = "checks/cifar100-b50-inc10-der-first400-s1993"
    same = f"has {average(longer):.2f}, and {final_accuracy(longer):.2f} after the last task"
    ours = f"{headline('foster-plus', 'b50-inc10'):.2f} and {headline('foster-plus', 'b50-inc10', final_accuracy):.2f}"
    assert f"{same}, where `plus` has {ours}" in told
    *leads, _, behind = (
        headline("der-auto", name, final_accuracy) - headline("foster-plus", name, final_accuracy)
        for name in SCENARIOS[:-1]
    )
    assert f"DER leads `plus` by {min(leads):.1f} to {max(leads):.1f} points on the protocols of B0" in told
    assert f"`plus` leads DER by {-behind:.1f} on B50 inc5" in told
    assert f"after the last task it leads `plus` by {leads[SCENARIOS.index('b0-inc10')]:.1f}" in readme
    assert (
        f"FOSTER on B0 inc10 is {foster - of('foster-auto', seed=1):.1f} and {foster - of('foster-auto', seed=2):.1f}"
        in told
    )
    gains = [headline("foster-plus", scenario) - headline("foster-auto", scenario) for scenario in SCENARIOS]
    *others, best = gains
    gained = f"gains another {min(others):.1f} to {max(others):.1f} points, and {best:.1f} on B50 inc2"
    above = [headline("foster-auto", name) - PUBLISHED[f"cifar100-{name}", "foster"].average for name in SCENARIOS]
    below = above.pop(SCENARIOS.index("b0-inc10"))
    ours = f"is {min(above):.1f} to {max(above):.1f} points above its published numbers on five protocols"
    reruns = [headline("foster-auto", name) - PUBLISHED[f"cifar100-{name}", "foster"].rerun for name in SCENARIOS]
    beside = f"it is between {-min(reruns):.2f} below and {max(reruns):.2f} above"
    assert beside in told
    for page in (told, readme):
        for part in (gained, f"{ours} and {-below:.2f} below on B0 inc10"):
            assert part in page


@pytest.mark.parametrize(
    ("row", "method", "scenarios"),
    [
        ("FOSTER", "foster-auto", SCENARIOS),
        ("`plus`", "foster-plus", SCENARIOS),
        ("DER, one network a task", "der-auto", SCENARIOS[:-1]),
        ("[`ridge`](closed-form.md) with `plus`, no exemplars", "ridge", SCENARIOS),
        ("`plus` without turns and `recall_first`", "foster-plus-no-turns", SCENARIOS),
    ],
)
def test_a_row_of_the_page_beyond_is_what_the_files_say(row: str, method: str, scenarios: tuple[str, ...]) -> None:
    found = [f"{headline(method, name):.2f}, {headline(method, name, final_accuracy):.2f}" for name in scenarios]
    assert f"| {row} | {' | '.join(found)} |" in text("docs/beyond.md")


def test_the_gains_of_the_page_beyond_are_what_the_files_say() -> None:
    told = text("docs/beyond.md")
    gains = [headline("foster-plus", name) - headline("foster-auto", name) for name in SCENARIOS]
    assert f"points | {' | '.join(f'{gain:+.2f}' for gain in gains)} |" in told
    without, cells = "foster-plus-no-turns", []
    for name in ("b0-inc10", "b50-inc10"):
        other = [headline(without, name) - headline("foster-auto", name)]
        other += [average(f"checks/cifar100-{name}-{without}-s{k}") - of("foster-auto", name, k) for k in (1, 2, 5)]
        cells.append(f"{fmean(other):.2f} ± {stdev(other):.2f}")
    assert f"| `plus` without turns | 1993, 1, 2, 5 | {' | '.join(cells)} |" in told
    by_ridge = of("ridge", "b50-inc2") - of("foster-plus", "b50-inc2")
    assert f"On B50 inc2, `ridge` is still {by_ridge:.1f} points better" in told
    names = [f"checks/cifar100-{name}-foster-plus-no-recall-s1993" for name in ("b50-inc2", "b50-inc5", "b0-inc5")]
    first, second, third = (f"{average(name):.2f}, {final_accuracy(name):.2f}" for name in names)
    assert f"| `plus` without `recall_first` | | | {third} | | {second} | {first} |" in told
    recalled = of("foster-plus", "b50-inc5") - average(names[1])
    at_the_end = final_accuracy("cifar100-b50-inc5-foster-plus-s1993") - final_accuracy(names[1])
    assert f"it gains {recalled:.1f} points, and {at_the_end:.1f} after the last task" in told
    for order in (1, 2):
        names = [f"cifar100-{name}-foster-plus-s{order}" for name in SCENARIOS]
        cells = (f"{average(name):.2f}, {final_accuracy(name):.2f}" for name in names)
        assert f"| `plus`, class order {order} | {' | '.join(cells)} |" in told
    cells = []
    for name in ("b0-inc10", "b50-inc10"):
        others = [of("foster-plus", name, order) - of("foster-auto", name, order) for order in (1, 2)]
        gains = [headline("foster-plus", name) - headline("foster-auto", name), *others]
        cells.append(f"{fmean(gains):.2f} ± {stdev(gains):.2f}")
    assert f"| `plus` | 1993, 1, 2 | {' | '.join(cells)} |" in told


def test_what_the_page_on_closed_form_says_is_what_the_files_say() -> None:
    told = text("docs/closed-form.md")

    def of_orders(name: str, metric: Callable[[str], float] = average) -> str:
        first, *others = (f"{metric(f'{name}-s{order}'):.2f}" for order in (1993, 1, 2))
        return f"{first} ({', '.join(others)})"

    for folder, stem in (("", "ridge"), ("checks/", "ridge-no-turns"), ("", "slda")):
        row = [of_orders(f"{folder}cifar100-b50-{scenario}-{stem}") for scenario in ("inc10", "inc5", "inc2")]
        assert f"| {' | '.join(row)} | 0 |" in told
    names = [f"b50-{scenario}" for scenario in ("inc10", "inc5", "inc2")]
    plus = [f"{headline('foster-plus', name):.2f}" for name in names]
    others = [", ".join(f"{of('foster-plus', name, order):.2f}" for order in (1, 2)) for name in names]
    row = " | ".join(f"{first} ({rest})" for first, rest in zip(plus, others, strict=True))
    assert f"| {row} | 20 a class |" in told
    assert f"| {plus[0]} | {plus[2]} | 7.6 MiB |" in told
    longer = "checks/cifar100-b50-inc10-der-first400-s1993"
    assert f"400 epochs as with `plus` | {average(longer):.2f} |" in told
    assert f"DER with 400 epochs {final_accuracy(longer):.2f} on inc10" in told
    assert f"`ridge` has {of('ridge'):.2f} where FOSTER with `plus` has {headline('foster-plus'):.2f}" in told
    assert f"| {of_orders('checks/cifar100-b50-inc10-ridge-16384')} |" in told
    for count in (1024, 2048, 4096):
        row = [f"{average(f'checks/cifar100-b50-{name}-ridge-{count}-s1993'):.2f}" for name in ("inc10", "inc2")]
        assert f"| {count:,} | {' | '.join(row)} |" in told
    by_order = [
        fmean(average(f"cifar100-b50-{name}-ridge-s{order}") for name in ("inc10", "inc5", "inc2"))
        for order in (1993, 1, 2)
    ]
    first, second, third = (f"{value:.1f}" for value in by_order)
    results = text("docs/results.md")
    assert f"it has {first} on all three protocols of B50 ({second} and {third} in class orders" in results
    ends = {of_orders(f"cifar100-b50-{name}-ridge", final_accuracy) for name in ("inc10", "inc5", "inc2")}
    assert [f"`ridge` has {end} on all three" for end in ends if f"`ridge` has {end} on all three" not in told] == []


def test_what_the_page_on_studies_says_of_single_studies_is_what_they_say() -> None:
    told = text("docs/studies.md")

    def numbers(study: str, column: str) -> list[str]:
        lines = (ROOT / "results" / "studies" / study / "study.md").read_text(encoding="utf-8").splitlines()
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
        place = rows[0].index(column)
        return [row[place] for row in rows[2:] if len(row) == len(rows[0]) and row[1] == "1"]

    found = zip(*(numbers("beta-compression", column) for column in ("variant", "average", "final")), strict=True)
    rows = [rf"\| {beta}[^|]* \| {average} \| {final} \|" for beta, average, final in found]
    assert len(rows) == 6
    assert [row for row in rows if not re.search(row, told)] == []
    kept = dict(zip(numbers("exemplars-ratio", "variant"), numbers("exemplars-ratio", "final"), strict=True))
    for count, final in zip(numbers("exemplars", "variant"), numbers("exemplars", "final"), strict=True):
        if count != "100":
            ratio = f"{float(kept[count]):.1f} " if count in ("5", "10") else ""
            assert re.search(rf"\| {count} \| [^|]*\| {float(final):.1f} \| {ratio}\|", told)
    for study in ("gamma", "sum-of-softmax"):
        ours, other = numbers(study, "average")
        assert f"{other} on average against {ours}" in told


def test_what_the_page_on_the_paper_says_of_runs_is_what_the_files_say() -> None:
    told = text("docs/paper.md")
    joint = read("cifar100-b0-inc10-joint-auto-s1993")[""]
    assert f"that gives {fmean(joint):.2f}" in told
    last = [f"{accuracy:.1f}" for accuracy in joint[4:]]
    assert f"{', '.join(last[:-1])} and {last[-1]}, or {fmean(joint[4:]):.1f} on average" in told
    below = PUBLISHED["cifar100-b0-inc10", "wa"].average - of("wa-plain")
    assert f"WA is {below:.1f} points below its published number: {of('wa-plain'):.2f} on B0 inc10" in told
    assert f"in float32 without them it has {average('checks/cifar100-b0-inc10-wa-plain-float32-s1993'):.2f}" in told
    assert f"in the same class order has {average('checks/cifar100-b0-inc10-wa-plain-s1-order1993'):.2f}" in told
    weight1 = read("checks/cifar100-b0-inc10-wa-plain-weight1-s1993")[""]
    assert f"With `wa.distillation_weight=1` it has {fmean(weight1):.2f}" in told
    assert f"{weight1[1]:.1f} and {weight1[2]:.1f} after the second and third tasks" in told
    assert f"has {average('checks/cifar100-b0-inc10-wa-plain-share-s1993'):.2f}. The default" in told


def test_what_the_page_on_the_paper_says_of_the_paper_as_printed_is_what_the_file_says() -> None:
    told = text("docs/paper.md")
    for scenario, name in (("b50-inc10", "B50 inc10"), ("b0-inc10", "B0 inc10")):
        found = read(f"checks/cifar100-{scenario}-foster-paper-text-s1993")
        printed, code = fmean(found[""]), headline("foster-auto", scenario)
        ours = f"{printed:.2f} on {name}"
        assert f"| {name} | {printed:.2f} ({fmean(found['boosted']):.2f} before compression) | {code:.2f} ±" in told
        assert ours in text("docs/results.md")
    assert f"(`--recipe paper-text`) has {ours} (n = 1)" in text("README.md")


def test_what_the_page_on_the_paper_says_of_podnets_margin_is_what_the_files_say() -> None:
    told = text("docs/paper.md")

    def check(name: str) -> str:
        return f"{average(f'checks/cifar100-b0-inc10-podnet-{name}'):.1f}"

    assert f"On B0 inc10 it has {of('podnet-plain'):.2f} where the paper has 55.22" in told
    rows = {
        "default": [f"{of(f'podnet-{augmentation}'):.1f}" for augmentation in ("plain", "auto")],
        "`podnet.hinge=true`": [check("plain-hinge-s1993"), check("auto-hinge-s1993")],
        "the same in class order 1": [check("plain-hinge-s1"), check("auto-hinge-s1")],
        "`podnet.hinge=true podnet.margin=0`": [check("plain-margin0-s1993"), check("auto-margin0-s1993")],
    }
    assert [name for name, row in rows.items() if f"| {name} | {' | '.join(row)} |" not in told] == []


def test_the_rows_of_the_page_on_studies_are_those_of_the_studies() -> None:
    row = re.compile(r"^\|.*?\|((?: \d+\.\d\d \|){5})$", re.MULTILINE)
    told = row.findall((ROOT / "docs" / "studies.md").read_text(encoding="utf-8"))
    found = {
        line.partition("| 1 |")[2]
        for name in ("components", "old-head")
        for line in (ROOT / "results" / "studies" / name / "study.md").read_text(encoding="utf-8").splitlines()
    }
    check = json.loads(
        (ROOT / "results" / "checks" / "cifar100-b50-inc10-foster-no-enhancement-beta0.90-s1993.json").read_text(
            encoding="utf-8"
        )
    )
    last = (check[key][-1] for key in ("new_accuracy", "old_accuracy"))
    columns = (*(check[key] for key in ("average_incremental_accuracy", "final_accuracy")), *last)
    boosted = check["variants"]["boosted"]["average_incremental_accuracy"]
    found.add("".join(f" {value:.2f} |" for value in (*columns, boosted)))
    assert len(told) == 10
    assert [numbers for numbers in told if numbers not in found] == []


def test_the_page_on_speed_has_the_accuracy_of_its_runs() -> None:
    told = text("docs/speed.md")
    plain, fast = read("checks/foster-float32-s1993"), read("cifar100-b0-inc10-foster-auto-s1993")
    assert f"has {fmean(plain['']):.2f} compressed and {fmean(plain['boosted']):.2f} boosted on average" in told
    assert f"it is {fmean(fast['']):.2f}, {fmean(fast['boosted']):.2f} and {fast[''][-1]:.1f}" in told


def test_what_the_page_on_imagenet_says_of_new_classes_is_what_the_files_say() -> None:
    told = text("docs/imagenet.md")

    def row(name: str, scenario: str, method: str, variant: str = "") -> str:
        path = ROOT / f"results/tinyimagenet-{scenario}-{method}-s1993.json"
        run: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found = (run["variants"][variant] if variant else run)["new_accuracy"]
        return f"| {name} | {found[1]:.0f} | {found[5]:.0f} | {found[-1]:.0f} |"

    rows = [
        row("FOSTER", "b100-inc10", "foster-auto"),
        row("FOSTER, boosted", "b100-inc10", "foster-auto", "boosted"),
        row("DER", "b100-inc10", "der-auto"),
        row("`ridge`", "b100-inc10", "ridge"),
        row("WA", "b100-inc10", "wa-auto"),
        row("FOSTER", "b0-inc20", "foster-auto"),
        row("FOSTER, boosted", "b0-inc20", "foster-auto", "boosted"),
    ]
    assert [row for row in rows if row not in told] == []
