from dataclasses import replace

import numpy as np
import pytest

from foster.experiment.results import read_result
from foster.studies.outcome import Finding, Outcome
from foster.studies.study import Claim, Study, Variant


@pytest.fixture
def outcome(write_run) -> Outcome:
    def runs(name: str, *finals: float):
        return [
            read_result(
                write_run(
                    f"{name}-{seed}",
                    seed=seed,
                    accuracy=(90.0, 70.0, last),
                    task_sizes=(2, 2, 2),
                    boosted=(90.0, 72.0, last + 4),
                    new_accuracy=[90.0, 60.0, last - 1],
                    old_accuracy=[None, 50.0, last + 1],
                )
            )
            for seed, last in enumerate(finals)
        ]

    study = Study(
        title="A study",
        about="What it is about.",
        presets=("digits",),
        draw="axis",
        axis="size",
        variants=(Variant(name="small", at=1), Variant(name="large", at=10)),
        claims=(Claim(text="Large is better.", paper="about +5", low=3, high=7, first="large", second="small"),),
    )
    return Outcome(study, {"small": runs("small", 40.0, 42.0), "large": runs("large", 48.0, 46.0)})


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        (Claim(text="", first="large", second="small"), "+6.0"),
        (Claim(text="", first="small"), "41.0"),
        (Claim(text=""), "6.0 apart"),
        (Claim(text="", metric="new", first="small", second="large"), "-6.0"),
        (Claim(text="", metric="old", first="large"), "48.0"),
        (Claim(text="", metric="final", variant="boosted", first="large"), "51.0"),
        (Claim(text="", metric="gain", variant="boosted", first="large"), "+2.0"),
        (Claim(text="", metric="tasks", first="large", second="small"), "50 % of tasks"),
    ],
)
def test_each_kind_of_claim_is_measured(claim: Claim, expected: str, outcome: Outcome):
    assert Finding.of(claim, outcome.runs).text == expected


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [  # 8 and 4 points in the two seeds: 6 within 4
        (1.5, None, "holds"),
        (None, 10.5, "holds"),
        (3.0, None, "too little data"),
        (8.0, None, "too little data"),
        (None, 4.0, "too little data"),
        (10.5, None, "does not hold"),
        (None, 1.5, "does not hold"),
        (None, None, "–"),
    ],
)
def test_a_claim_holds_or_not_where_two_standard_errors_do_not_reach_across_its_border(
    low: float | None, high: float | None, verdict: str, outcome: Outcome
):
    found = Finding.of(Claim(text="", low=low, high=high, first="large", second="small"), outcome.runs)
    assert (found.verdict, found.n) == (verdict, 2)
    alone = {name: runs[:1] for name, runs in outcome.runs.items()}
    assert Finding.of(Claim(text="", low=7.5, first="large", second="small"), alone).verdict == "too little data"
    assert Finding.of(Claim(text="", low=0, first="large", second="small"), {}).verdict == "too little data"


def test_the_margin_of_a_difference_is_of_the_paired_differences_where_the_seeds_are_the_same(outcome: Outcome):
    claim = Claim(text="", first="large", second="small")
    small, large = outcome.runs["small"], outcome.runs["large"]
    assert Finding.of(claim, outcome.runs).margin == pytest.approx(4.0), "differences of 8 and 4"
    assert Finding.of(claim, {"small": small, "large": large[::-1]}).margin == pytest.approx(4.0)
    fewer = Finding.of(claim, {"small": small, "large": large[:1]})
    assert (fewer.n, fewer.margin) == (1, 1.0), "of one run"
    other_seeds = [replace(run, seed=run.seed + 5) for run in large]
    assert Finding.of(claim, {"small": small, "large": other_seeds}).margin == pytest.approx(8**0.5)


def test_seeds_that_agree_by_chance_have_the_margin_of_one_run_divided_by_the_root_of_their_number(outcome: Outcome):
    claim = Claim(text="", metric="final", first="large", second="small")
    of_one, of_two = (
        {
            name: [replace(run, final_accuracy=runs[0].final_accuracy) for run in runs[:n]]
            for name, runs in outcome.runs.items()
        }
        for n in (1, 2)
    )
    assert Finding.of(claim, of_two).margin == pytest.approx(Finding.of(claim, of_one).margin / 2**0.5)


def test_a_difference_of_one_run_each_below_the_error_of_the_test_set_is_too_little_data(write_run):
    def found(dataset: str, on: str = "test") -> Finding:
        settings = {"settings": {"dataset": dataset}, "evaluated_on": on}
        runs = {
            name: [read_result(write_run(name, accuracy=(90.0, last), **settings))]
            for name, last in (("first", 92.0), ("second", 90.0))
        }
        return Finding.of(Claim(text="", low=0, metric="final", first="first", second="second"), runs)

    assert found("cifar100").verdict == "holds"
    assert found("digits").verdict == "too little data", "2 points of 355 images"
    assert found("digits").margin == pytest.approx(((92 * 8 + 90 * 10) / 355) ** 0.5)
    assert found("digits", "validation").margin == 1.0, "of an unknown number of images"


def test_a_study_of_several_presets_has_the_papers_numbers_beside_ours(write_run):
    def runs(name: str, last: float):
        return [
            read_result(write_run(f"{name}-{scenario}", scenario=scenario, method=name, accuracy=(90.0, last)))
            for scenario in ("one", "two")
        ]

    variants = (Variant(name="foster", paper={"one": 72.5}), Variant(name="wa"), Variant(name="joint"))
    study = Study(title="Table", presets=("one", "two"), variants=variants)
    outcome = Outcome(study, {"foster": runs("foster", 60.0), "wa": runs("wa", 50.0), "joint": runs("joint", 80.0)})
    grid = outcome.grid()
    assert grid.header == ("variant", "n", "one", "paper", "two", "paper")
    assert grid.rows[0] == ("foster", "1", "75.00", "72.50", "75.00", "–")
    assert {cell for cell in grid.best if cell[1] in (2, 4)} == {(0, 2), (0, 4)}, "a bound is not the best"
    assert [axes.get_title(loc="left") for axes in outcome.figure().axes] == ["one", "two"]
    more = read_result(write_run("more", scenario="two", accuracy=(90.0, 62.0)))
    (row,) = Outcome(study, {"foster": [*runs("foster", 60.0), more]}).grid().rows
    assert row == ("foster", "1-2", "75.00", "72.50", "75.50 ± 0.71", "–")


def test_the_claims_name_the_scenario_of_the_paper_where_it_is_another_one(outcome: Outcome):
    elsewhere = outcome.study.model_copy(update={"presets": ("cifar100-b50-inc10",)})
    assert "cifar100-b50-inc10" in Outcome(elsewhere, outcome.runs).claims().title
    assert "digits-b0-inc2" in outcome.claims().title
    assert "digits," not in outcome.claims().title


def test_a_method_without_a_boosted_network_leaves_its_claims_open(outcome: Outcome):
    runs = {name: [replace(run, variants={}) for run in group] for name, group in outcome.runs.items()}
    assert Finding.of(Claim(text="", metric="average", variant="boosted", first="large"), runs).text == "–"
    assert Outcome(outcome.study, runs).grid().header == ("variant", "n", "average", "final", "new", "old")
    one = dict(zip(runs, (*list(runs.values())[:-1], list(outcome.runs.values())[-1]), strict=True))
    assert Outcome(outcome.study, one).grid().header[-1] == "boosted", "where only one of them has it, too"


def test_the_page_holds_means_and_spreads_and_the_claim_beside_what_was_found(outcome: Outcome, tmp_path):
    outcome.write(tmp_path)
    page = (tmp_path / "study.md").read_text()
    assert "| small | 2 | 67.00 ± 0.47 | 41.00 ± 1.41 | 40.00 ± 1.41 | 42.00 ± 1.41 | 69.00 ± 0.47 |" in page
    assert "| Large is better. | about +5 | +6.0 | 2 | too little data |" in page
    for ending in ("md", "tex"):
        assert "seeds 0, 1, each with its own class order; on NVIDIA H200" in (tmp_path / f"study.{ending}").read_text()
    assert "epochs_scale" not in page
    runs = {"small": [replace(outcome.runs["small"][0], settings={"epochs_scale": 0.01})]}
    assert Outcome(outcome.study, runs).grid().note == "digits-b0-inc2, epochs_scale=0.01; seed 0; on NVIDIA H200"
    for name in ("study.png", "study.svg", "study.tex"):
        assert (tmp_path / name).stat().st_size > 500


def test_an_axis_has_a_point_a_variant_and_curves_a_name_each(outcome: Outcome):
    (axes,) = outcome.figure().axes
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1", "10"]
    assert axes.get_xlabel() == "size"
    assert {"67.0", "41.0", "69.0", "47.0"} <= {text.get_text() for text in axes.texts}, "average and end"
    bars = [bar[:, 1] for lines in axes.collections for bar in lines.get_segments()]
    assert sorted(map(np.ptp, bars)) == pytest.approx([2 * 0.5**0.5 * apart for apart in (2 / 3, 2 / 3, 2, 2)])
    curves = Outcome(outcome.study.model_copy(update={"draw": "curves"}), outcome.runs)
    (axes,) = curves.figure().axes
    assert {text.get_text().split()[0] for text in axes.texts if text.get_position()[0] == 1.08} == {"small", "large"}


def test_runs_of_one_seed_with_different_first_tasks_are_told(outcome: Outcome, write_run):
    assert "first tasks" not in outcome.conditions()
    accuracy = (91.0, 70.0, 40.0)
    other = read_result(write_run("other", seed=1, accuracy=accuracy, task_sizes=(2, 2, 2)))
    wa = read_result(write_run("wa", method="wa", seed=1, accuracy=(80.0, 70.0, 40.0), task_sizes=(2, 2, 2)))
    different = replace(outcome, runs={**outcome.runs, "small": [outcome.runs["small"][0], other, wa]})
    assert different.conditions().endswith("first tasks differ (90.00, 91.00 %)")
