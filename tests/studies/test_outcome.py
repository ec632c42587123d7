from dataclasses import replace

import pytest
from rich.console import Console

from foster.reports.results import read_result
from foster.studies.outcome import Outcome, measured
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
        preset="digits",
        draw="axis",
        axis="size",
        variants=(Variant(name="small", at=1), Variant(name="large", at=10)),
        claims=(Claim(text="Large is better.", paper="about +5", first="large", second="small"),),
    )
    return Outcome(study, {"small": runs("small", 40.0, 42.0), "large": runs("large", 46.0, 48.0)})


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
        (Claim(text="", metric="tasks", first="large", second="small"), "1 of 2 tasks"),
    ],
)
def test_each_kind_of_claim_is_measured(claim: Claim, expected: str, outcome: Outcome):
    assert measured(claim, outcome.runs) == expected


def test_the_terminal_has_a_table_of_claims_where_there_are_any(outcome: Outcome):
    def shown(study: Study) -> str:
        with (console := Console(width=100)).capture() as captured:
            console.print(Outcome(study, outcome.runs).table())
        return captured.get()

    assert "Large is better." in shown(outcome.study)
    assert "What the paper says" not in shown(outcome.study.model_copy(update={"claims": ()}))


def test_a_method_without_a_boosted_network_leaves_its_claims_open(outcome: Outcome):
    runs = {name: [replace(run, variants={}) for run in group] for name, group in outcome.runs.items()}
    assert measured(Claim(text="", metric="average", variant="boosted", first="large"), runs) == "–"
    assert Outcome(outcome.study, runs).grid().header == ("variant", "n", "average", "final", "new", "old")
    one = dict(zip(runs, (*list(runs.values())[:-1], list(outcome.runs.values())[-1]), strict=True))
    assert Outcome(outcome.study, one).grid().header[-1] == "boosted", "where only one of them has it, too"


def test_the_page_holds_means_and_spreads_and_the_claim_beside_what_was_found(outcome: Outcome, tmp_path):
    outcome.write(tmp_path)
    page = (tmp_path / "study.md").read_text()
    assert "| small | 2 | 67.00 ± 0.47 | 41.00 ± 1.41 |" in page
    assert "| Large is better. | about +5 | +6.0 |" in page
    assert "on NVIDIA H200" in page
    assert "epochs_scale" not in page
    runs = {"small": [replace(outcome.runs["small"][0], settings={"epochs_scale": 0.01})]}
    assert ", epochs_scale=0.01, seed" in Outcome(outcome.study.model_copy(update={"claims": ()}), runs).markdown("")
    for name in ("study.png", "study.svg", "study.json"):
        assert (tmp_path / name).stat().st_size > 500


def test_an_axis_has_a_point_a_variant_and_curves_a_name_each(outcome: Outcome):
    (axes,) = outcome.figure().axes
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1", "10"]
    assert axes.get_xlabel() == "size"
    curves = Outcome(outcome.study.model_copy(update={"draw": "curves"}), outcome.runs)
    (axes,) = curves.figure().axes
    assert {text.get_text().split()[0] for text in axes.texts if text.get_position()[0] == 1.08} == {"small", "large"}
