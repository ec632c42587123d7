import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from foster.errors import DataError
from foster.experiment.results import read_result
from foster.settings.experiment import load_settings

pytest.importorskip("readme", reason="the tools are not part of the package")
from readme import BEGIN, END, PAGES, main, results_block, with_block

REPOSITORY = Path(__file__).parents[2]


def project(tmp_path: Path, *runs: Path) -> Path:
    """A folder with both pages, which have markers, and the runs in results/."""
    root = tmp_path / "project"
    (root / "results").mkdir(parents=True)
    (root / "docs").mkdir()
    for page in PAGES:
        (root / page).write_text(f"# foster\n\n{BEGIN}\n{END}\n\nafter\n")
    for index, run in enumerate(runs):
        shutil.copy(run, root / "results" / f"run{index}.json")
    return root


def tables(block: str) -> list[list[dict[str, str]]]:
    """Every table in the block, a dictionary a row."""
    found: list[list[list[str]]] = []
    for before, line in pairwise(["", *block.splitlines()]):
        if line.startswith("|"):
            if not before.startswith("|"):
                found.append([])
            found[-1].append([cell.strip() for cell in line.strip("|").split("|")])
    return [[dict(zip(header, row, strict=True)) for row in rows] for header, _, *rows in found]


def rows(block: str) -> list[dict[str, str]]:
    """The rows of the table of all runs."""
    return next(table for table in tables(block) if "minutes" in table[0])


def test_the_pages_of_this_repository_are_up_to_date():
    assert main(["--check", "--root", str(REPOSITORY)]) == 0


@pytest.mark.parametrize(
    ("settings", "paper", "note"),
    [
        ({"epochs_scale": 1.0, "memory_total": 2000, "seed": 1}, "72.90", ""),
        ({"epochs_scale": 0.1}, "–", "epochs_scale=0.1"),
        ({"foster": {"boost": {"epochs": 5}}}, "–", "boost.epochs=5"),
        ({"backbone": "resnet8", "batch_size": 64}, "–", "backbone=resnet8, batch_size=64"),
    ],
)
def test_a_run_with_other_settings_is_marked_and_not_set_beside_the_paper(
    write_run, settings: dict[str, object], paper: str, note: str
):
    path = write_run("a", scenario="cifar100-b0-inc10", augmentation="auto", settings=settings)
    block = results_block([read_result(path)])
    assert rows(block)[0]["paper"] == paper
    assert rows(block)[0]["method"] == ("foster ¹" if note else "foster")
    assert (f"the recipe. cifar100-b0-inc10 foster auto: {note}." in block) == bool(note)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ("67.08", "+7.92")),
        ({"augmentation": "auto"}, ("–", "–")),
        ({"method": "foster", "augmentation": "auto"}, ("72.90", "+2.10")),
        ({"method": "foster", "augmentation": "plain"}, ("–", "–")),
    ],
)
def test_only_a_run_like_the_published_one_is_compared_with_it(write_run, changes, expected):
    run = read_result(write_run("a", scenario="cifar100-b0-inc10", **{"method": "wa", **changes}))
    (row,) = rows(results_block([run]))
    assert (row["paper"], row["difference"]) == expected
    assert row["average"] == "75.00"


def test_the_table_of_the_paper_has_only_runs_like_the_published_ones_and_says_what_is_missing(write_run):
    runs = [
        write_run("wa", scenario="cifar100-b50-inc5", method="wa", accuracy=(60.0, 50.0)),
        write_run("same", scenario="cifar100-b50-inc10", method="wa", accuracy=(70.0, 60.0)),
        write_run("other", scenario="cifar100-b50-inc10", method="wa", augmentation="auto", accuracy=(90.0, 90.0)),
        write_run("unknown", scenario="cifar100-b0-inc10", method="slda"),
    ]
    found = tables(results_block([read_result(path) for path in runs]))
    (row,) = next(table for table in found if "B50 inc5" in table[0])
    assert list(row)[1:] == ["B0 inc20", "B0 inc10", "B0 inc5", "B50 inc10", "B50 inc5", "B50 inc2"]
    assert row == {**row, "method": "wa", "B0 inc10": "– (67.08)", "B50 inc10": "65.00", "B50 inc5": "55.00 (57.57)"}


def test_an_unfinished_run_is_left_out(write_run):
    scenario = "cifar100-b0-inc10"
    unfinished = read_result(write_run("a", scenario=scenario, method="wa", accuracy=(95.0, 90.0), finished=False))
    finished = read_result(write_run("b", scenario=scenario, method="der"))
    assert results_block([unfinished]) == "No results yet."
    assert results_block([unfinished, finished]) == results_block([finished])


def test_another_class_order_has_a_row_of_its_own_and_is_not_set_beside_the_paper(write_run):
    runs = [
        read_result(write_run(f"{seed}", seed=seed, scenario="cifar100-b0-inc10", augmentation="auto"))
        for seed in (1, 1993)
    ]
    block = results_block(runs)
    assert [(row["class order"], row["n"], row["paper"]) for row in rows(block)] == [
        ("1993", "1", "72.90"),
        ("1", "1", "–"),
    ]
    assert tables(block)[0][0]["auto"] == rows(block)[0]["average"]


def test_the_better_recipe_stands_beside_the_papers_and_never_beside_its_numbers(write_run):
    scenario, plus = "cifar100-b50-inc10", load_settings("cifar100-b50-inc10", recipe="plus")
    settings = {"recipe": "plus", "foster": plus.nested()["foster"]}
    runs = [
        write_run("a", scenario=scenario, augmentation="auto", accuracy=(72.0, 71.0)),
        write_run("b", scenario=scenario, augmentation="auto", accuracy=(72.0, 73.0), settings=settings),
    ]
    block = results_block([read_result(path) for path in runs])
    assert f"| `{scenario}` | 1 | 71.50 | 71.00 | 70.10 | +1.40 | 71.08 | +0.42 | 1 | 72.50 | 73.00 | +1.00 |" in block
    assert {row["method"]: row["paper"] for row in rows(block)} == {"foster plus": "–", "foster": "70.10"}


@pytest.mark.parametrize(("task_sizes", "has_effect"), [((30, 2), True), ((20, 2), False)])
def test_a_run_from_before_a_setting_of_its_recipe_is_marked_where_that_has_an_effect(
    write_run, task_sizes: tuple[int, int], has_effect: bool
):
    scenario, options = "cifar100-b50-inc10", load_settings("cifar100-b50-inc10", recipe="plus").nested()["foster"]
    older = {key: value for key, value in options.items() if key != "recall_first"}
    for name, foster in {"now": options, "older": older}.items():
        settings = {"recipe": "plus", "foster": foster}
        facts = {"scenario": scenario, "augmentation": "auto", "task_sizes": task_sizes}
        run = read_result(write_run(name, settings=settings, **facts))
        block = results_block([read_result(write_run("a", **facts)), run])
        is_marked = has_effect and foster is older
        assert (f"{scenario} foster plus auto: recall_first=false." in block) == is_marked
        assert ("foster plus ¹" in block) == ("75.00 ¹" in block) == is_marked


def test_several_class_orders_have_a_mean_and_the_gain_is_that_in_the_same_order(write_run):
    scenario, plus = "cifar100-b50-inc10", load_settings("cifar100-b50-inc10", recipe="plus")
    settings = {"recipe": "plus", "foster": plus.nested()["foster"]}

    def write(name: str, seed: int, *accuracy: float, **changes):
        return read_result(
            write_run(name, seed=seed, scenario=scenario, augmentation="auto", accuracy=accuracy, **changes)
        )

    paper = [write("a", 1993, 72.0, 71.0), write("b", 1, 70.0, 68.0)]
    better = [write("c", 1993, 72.0, 73.0, settings=settings), write("d", 1, 73.0, 69.0, settings=settings)]
    block = results_block([*better, *paper])
    assert f"| `{scenario}` | foster plus | 1993, 1 | 71.75 ± 1.06 | 71.00 ± 2.83 | – | +1.50 ± 0.71 |" in block
    assert f"| `{scenario}` | foster | 1993, 1 | 70.25 ± 1.77 | 69.50 ± 2.12 | – | – |" in block
    # An order that only one of them was run with says nothing about the gain.
    assert "+1.00 |" in results_block([*better, paper[0]]).partition("Over several")[2].partition("<details")[0]
    assert "Over several" not in results_block([paper[0], better[0]])
    checked = [write(f"v{seed}", seed, 70.0, 60.0, evaluated_on="validation") for seed in (1993, 1)]
    assert "Over several" not in results_block([*checked, paper[0]]), "held-out images are no result"


def test_writing_then_checking_finds_nothing_stale(write_run, tmp_path: Path):
    root = project(tmp_path, write_run("a", scenario="cifar100-b0-inc10", augmentation="auto"))
    assert main(["--check", "--root", str(root)]) == 1
    assert main(["--root", str(root)]) == 0
    assert main(["--check", "--root", str(root)]) == 0
    for page in PAGES:
        text = (root / page).read_text()
        assert text.startswith("# foster\n")
        assert text.endswith("\n\nafter\n")
        assert "72.90" in text
    shutil.copy(write_run("b", accuracy=(90.0, 61.0)), root / "results" / "run0.json")
    assert main(["--check", "--root", str(root)]) == 1


def test_a_page_without_markers_and_a_damaged_result_are_refused(write_run, tmp_path: Path, capsys):
    with pytest.raises(DataError, match="results:begin"):
        with_block("# foster\n", "table", "README.md")
    root = project(tmp_path, write_run("a"))
    (root / "results" / "run0.json").write_text("{")
    assert main(["--root", str(root)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
