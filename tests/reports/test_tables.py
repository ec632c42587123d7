import io
import re
import subprocess
import sys

import pytest
from rich.console import Console

from foster.reports.results import read_result
from foster.reports.tables import (
    LEAVES_FIRST,
    Grid,
    accuracy_grids,
    accuracy_table,
    markdown,
    summary_grids,
    summary_table,
)


def rendered(table, width: int) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width).print(table)
    return stream.getvalue()


def three_seeds(write_run):
    return [
        read_result(write_run(f"seed{seed}", seed=seed, accuracy=(90.0, last), boosted=(90.0, last + 2)))
        for seed, last in ((1, 60.0), (2, 62.0), (3, 64.0))
    ]


def test_the_accuracy_table_has_a_row_a_run_under_the_classes_seen(write_run):
    runs = [
        read_result(write_run("a", accuracy=(99.04, 80.0, 70.25), task_sizes=(4, 2, 2))),
        read_result(write_run("b", method="finetune", accuracy=(99.0, 30.0, 20.0), task_sizes=(4, 2, 2))),
    ]
    (grid,) = accuracy_grids(runs)
    assert grid.header == ("method", "4", "6", "8", "average")
    assert grid.rows == (
        ("foster", "99.0", "80.0", "70.2", "83.10"),
        ("finetune", "99.0", "30.0", "20.0", "49.67"),
    )
    assert grid.title.endswith("augment plain, seed 1993")


def test_what_differs_between_runs_gets_a_column_of_its_own(write_run):
    (grid,) = accuracy_grids(three_seeds(write_run))
    assert grid.header == ("method", "seed", "2", "4", "average")
    assert [row[1] for row in grid.rows] == ["1", "2", "3"]


def test_the_summary_gives_mean_and_sample_deviation_over_seeds(write_run):
    replay = [read_result(write_run(f"r{seed}", method="replay", seed=seed, accuracy=(90.0, 40.0))) for seed in (1, 2)]
    (grid,) = summary_grids([*three_seeds(write_run), *replay])
    # Averages 75, 76, 77 and finals 60, 62, 64: sample standard deviations 1 and 2.
    assert grid.rows[0][:7] == ("foster", "head", "plain", "1, 2, 3", "3", "76.00 ± 1.00", "62.00 ± 2.00")
    assert grid.rows[0][7:] == ("12.50 ± 0.00", "77.00 ± 1.00", "470,004", "12 min 04 s")
    assert grid.rows[1][:6] == ("replay", "head", "plain", "1, 2", "2", "65.00 ± 0.00")
    assert grid.rows[1][8] == "–"
    assert "| --- | --- | --- | --- | ---: |" in grid.markdown(), "seeds are names"
    assert "only rows of the same seeds" in rendered(summary_table([*three_seeds(write_run), *replay]), 80)
    (alike,) = summary_grids([*three_seeds(write_run)[:2], *replay])
    assert (alike.header[3], alike.note) == ("n", ""), "both have the class orders of seeds 1 and 2"


def test_scenarios_are_never_mixed_in_one_table(write_run):
    runs = [
        read_result(write_run("a", scenario="digits-b0-inc2", accuracy=(90.0, 60.0))),
        read_result(write_run("b", scenario="cifar100-b0-inc10", accuracy=(88.0, 44.0), task_sizes=(10, 10))),
    ]
    text = markdown(summary_grids(runs))
    first, second = text.split("**cifar100-b0-inc10")
    assert "75.00" in first
    assert "66.00" in second
    assert "66.00" not in first
    assert len(accuracy_grids(runs)) == 2


def test_the_summary_says_which_classifier_gives_the_numbers(write_run):
    runs = [read_result(write_run(name, method=name, result=name)) for name in ("head", "nearest_mean")]
    (grid,) = summary_grids(runs)
    assert grid.header[1] == "by"
    assert {row[0]: row[1] for row in grid.rows} == {"head": "head", "nearest_mean": "nearest mean"}


def test_markdown_is_a_table_with_as_many_cells_in_every_line(write_run):
    text = markdown(accuracy_grids([read_result(write_run("a", augmentation="a|b")), *three_seeds(write_run)]))
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 4
    assert {line.replace(r"\|", "").count("|") for line in lines} == {7}
    assert lines[1] == "| --- | --- | --- | ---: | ---: | ---: |"


def test_a_long_run_is_thinned_for_the_terminal_and_whole_in_markdown(write_run):
    accuracy = [80.0 - task / 10 for task in range(51)]
    run = read_result(write_run("a", accuracy=accuracy, task_sizes=(50, *[1] * 50)))
    assert len(accuracy_grids([run])[0].header) == 53
    (thinned,) = accuracy_grids([run], max_tasks=11)
    assert thinned.header[1:-1] == ("50", "55", "60", "65", "70", "75", "80", "85", "90", "95", "100")
    assert thinned.rows[0][1:3] == ("80.0", "79.5")


def test_a_narrow_terminal_shows_fewer_tasks_but_no_cut_numbers(write_run):
    run = read_result(write_run("a", accuracy=[90.0 - task for task in range(10)], task_sizes=[10] * 10))
    wide, narrow = rendered(accuracy_table([run]), 100), rendered(accuracy_table([run]), 40)
    assert wide.count(".0") == 10
    assert "shows all" not in wide
    assert 2 <= narrow.count(".0") < 10
    assert "90.0" in narrow
    assert "81.0" in narrow
    assert "85.50" in narrow
    assert "'foster table --by-task --markdown' shows all 10 tasks" in " ".join(narrow.split())


def long_names(write_run):
    """Three seeds of two recipes, with numbers as wide as they get."""
    return [
        read_result(
            write_run(
                f"{k}-{seed}",
                seed=seed,
                accuracy=(90.0, 60.0 + k + 10 * seed),
                boosted=(90.0, 62.0 + 9 * seed),
                params=4_699_140,
                train_seconds=8000.0,
                settings={"first.learning_rate": 0.1 * k, "an_uncommonly_long_name_of_a_setting": k},
            )
        )
        for k in (1, 2)
        for seed in (1, 2, 3)
    ]


@pytest.mark.parametrize("width", [*range(40, 130, 3), 200])
def test_no_terminal_cuts_a_number_or_drops_a_column_without_saying_so(width: int, write_run):
    runs = long_names(write_run)
    text = rendered(summary_table(runs), width)
    (grid,) = summary_grids(runs)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    said = " ".join(text.split())
    shown = next(line.split() for line in lines if line.startswith("method"))
    left_out = said.partition("' also shows ")[2].split(", ")
    assert "average" in shown
    for place, name in enumerate(grid.header[grid.num_names :], start=grid.num_names):
        assert (name in shown) != (name in left_out), name
        if name in shown:
            assert all(row[place] in text for row in grid.rows), name
    assert left_out == [""] if width >= 120 else left_out == [*LEAVES_FIRST[: len(left_out)]] or left_out == [""]


def test_a_terminal_too_narrow_for_any_number_says_what_to_do(write_run):
    runs = long_names(write_run)
    for table, command in (
        (summary_table(runs), "foster table --markdown"),
        (accuracy_table(runs), "foster table --by-task --markdown"),
    ):
        text = " ".join(rendered(table, 24).split())
        assert f"a wider terminal or '{command}' shows the table" in text
        assert not re.search(r"\d\d\.\d", text)


def test_a_name_goes_on_below_and_is_whole(write_run):
    name = "first.milestones=[60, 120, 170] an_uncommonly_long_name_of_a_setting=1"
    grid = Grid("", ("method", "n"), ((name, "3"),), num_names=1)
    assert grid.fits(22)
    assert not grid.fits(21)
    lines = rendered(grid.rich(), 30).splitlines()[2:]
    assert "".join("".join(line[:28] for line in lines).split()) == name.replace(" ", "")
    assert [line[29] for line in lines] == ["3", *" " * (len(lines) - 1)]


def test_a_column_that_is_empty_in_all_rows_is_left_out(write_run):
    (grid,) = summary_grids([read_result(write_run("r", method="replay", accuracy=(90.0, 40.0)))])
    assert "boosted" not in grid.header
    assert {len(row) for row in grid.rows} == {len(grid.header)}


def test_a_class_order_with_a_seed_of_its_own_is_told(write_run):
    runs = [
        read_result(write_run(f"{order}", accuracy=(90.0, last), settings={"seed": 1993, "order_seed": order}))
        for order, last in ((None, 60.0), (5, 50.0), (6, 40.0))
    ]
    (grid,) = accuracy_grids(runs)
    assert [(row[1], row[3]) for row in grid.rows] == [("1993", "60.0"), ("1993/5", "50.0"), ("1993/6", "40.0")]
    assert summary_grids(runs)[0].title.endswith("over n runs that differ in seed or class order")
    assert summary_grids(three_seeds(write_run))[0].title.endswith("over n runs")


def test_the_terminal_shows_the_same_numbers_as_markdown(write_run):
    runs = three_seeds(write_run)
    text = rendered(summary_table(runs), 120)
    assert all(cell in text for grid in summary_grids(runs) for row in grid.rows for cell in row)


def test_a_table_needs_neither_matplotlib_nor_torch():
    code = "import sys, foster.reports.tables; sys.exit('matplotlib' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
