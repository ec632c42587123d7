"""Tables of results: what is averaged, what is compared, and every format that they are printed in."""

import csv
import io
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from rich.console import Console
from written_runs import three_seeds

from foster.experiment.results import read_result
from foster.reports.curves import panels
from foster.reports.tables import (
    accuracy_grids,
    csv_text,
    history_grid,
    latex,
    markdown,
    run_records,
    shown,
    summary_grids,
    summary_records,
)


def rendered(table, width: int) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width).print(table)
    return stream.getvalue()


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
    assert accuracy_grids(three_seeds(write_run))[0].header == ("method", "seed/order", "2", "4", "average")
    assert accuracy_grids(three_seeds(write_run, order=None))[0].header == ("method", "seed", "2", "4", "average")


def test_seeds_of_one_class_order_are_averaged_with_their_number(write_run):
    (grid,) = summary_grids(three_seeds(write_run))
    assert grid.header == ("method", "n", "average", "final", "forgetting", "boosted", "params", "time")
    assert grid.rows == (
        ("foster", "3", "76.00 ± 1.00", "62.00 ± 2.00", "12.50 ± 0.00", "77.00 ± 1.00", "470,004", "12 min 04 s"),
    )
    assert "over n runs, by head, augment plain, class order 1993" in grid.title


def test_class_orders_are_averaged_together_only_where_that_is_asked_for_and_said(write_run):
    runs = three_seeds(write_run, order=None)  # each seed has its own class order
    (apart,) = summary_grids(runs)
    column = apart.header.index("class order")
    assert [(row[column], row[column + 1]) for row in apart.rows] == [("3", "1"), ("2", "1"), ("1", "1")]
    assert "class orders" in apart.note
    assert not apart.best
    (together,) = summary_grids(runs, across_orders=True)
    assert together.rows[0][together.header.index("average")] == "76.00 ± 1.00"
    assert "different class orders" in together.title
    assert not together.note
    of_one = read_result(write_run("wa", method="wa", seed=1))
    (uneven,) = summary_grids([*runs, of_one], across_orders=True)
    assert "class orders cannot be compared" in uneven.note, "wa lacks two of them"
    assert not uneven.best


def test_the_best_is_marked_among_rows_that_can_be_compared(write_run):
    rows = (("foster", "auto"), ("wa", "auto"), ("joint", "auto"), ("der", "plain"))
    accuracy = {"foster": 70.0, "wa": 60.0, "joint": 80.0, "der": 50.0}
    runs = [
        read_result(write_run(name, method=name, augmentation=augmentation, accuracy=(90.0, accuracy[name])))
        for name, augmentation in rows
    ]
    (grid,) = summary_grids(runs[:3])
    assert [grid.rows[row][0] for row, _ in grid.best] == ["foster"], "joint is a bound"
    (mixed,) = summary_grids(runs)
    assert not mixed.best
    assert "augmentations" in mixed.note


def test_a_run_that_is_not_finished_comes_last_marked_and_without_an_average(write_run):
    whole = read_result(write_run("a", method="replay", accuracy=(90.0, 40.0)))
    part = read_result(write_run("b", accuracy=(99.0,), boosted=(99.0,), task_sizes=(2,), finished=False))
    (grid,) = summary_grids([part, whole])
    assert [row[0] for row in grid.rows] == ["replay", "foster (unfinished, 1 task)"]
    assert grid.rows[1][grid.header.index("average")] == "–"
    assert not grid.best, "there is nothing to compare"
    for records in (summary_records([part, whole]), run_records([whole, part])):
        assert [record["finished"] for record in records] == [True, False]
        assert [record["average_incremental_accuracy"] for record in records] == [65.0, None]
        assert records[1]["boosted_average"] is None


def test_runs_of_different_length_have_a_column_for_every_task_of_one(write_run):
    runs = [
        read_result(write_run(str(values), accuracy=values, task_sizes=sizes, finished=False))
        for values, sizes in (((99.0,), (2,)), ((80.0,), (4,)), ((90.0, 60.0), (2, 2)))
    ]
    (grid,) = accuracy_grids(runs)
    assert [row[1:] for row in grid.rows] == [("99.0", "–", "–"), ("–", "80.0", "–"), ("90.0", "60.0", "–")]


def test_every_variant_that_a_method_names_has_a_column_whoevers_it_is(write_run):
    theirs = {"accuracy": [90.0, 70.0], "average_incremental_accuracy": 80.0}
    variants = dict.fromkeys(("energy", "energy_nearest_mean", "nearest_mean"), theirs)
    path = write_run("theirs", method="energetic", result="head", variants=variants)
    (grid,) = summary_grids([read_result(path), *three_seeds(write_run)])
    assert grid.header[-4:] == ("boosted", "energy", "params", "time")
    assert {row[0]: row[-4:-2] for row in grid.rows} == {"energetic": ("–", "80.00"), "foster": ("77.00 ± 1.00", "–")}
    (record,) = summary_records([read_result(path)])
    assert (record["energy_average"], record["nearest_mean_average"]) == (80.0, 80.0)


def test_a_variant_that_was_evaluated_after_some_tasks_has_its_accuracies_and_no_average(write_run):
    theirs = {"accuracy": [None, 70.0], "average_incremental_accuracy": None}
    run = read_result(write_run("theirs", method="energetic", result="head", variants={"energy": theirs}))
    (by_task,), (summary,), (record,) = accuracy_grids([run]), summary_grids([run]), summary_records([run])
    assert [row[0::2] for row in by_task.rows] == [("energetic", "60.0"), ("energetic: energy", "70.0")]
    assert by_task.rows[1][1::2] == ("–", "–")
    assert "energy" not in summary.header
    assert record["energy_average"] is None
    label, *_ = [curve.end.text for curve in panels([run])[0].curves if not curve.is_result]
    assert label == "energetic energy", "a curve without its first task has no average"


def test_markdown_is_a_table_with_as_many_cells_in_every_line(write_run):
    text = markdown(accuracy_grids([read_result(write_run("a", augmentation="a|b")), *three_seeds(write_run)]))
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 1 + 2 * 3
    assert {line.replace(r"\|", "").count("|") for line in lines} == {7}
    assert lines[1] == "| --- | --- | --- | ---: | ---: | ---: |"


def test_csv_json_and_the_table_have_the_same_numbers(write_run):
    runs = [*three_seeds(write_run), read_result(write_run("r", method="replay", accuracy=(90.0, 40.0)))]
    records = summary_records(runs)
    assert json.loads(json.dumps(records)) == records
    rows = list(csv.DictReader(io.StringIO(csv_text(records))))
    assert [row["method"] for row in rows] == ["foster", "replay"]
    assert (rows[0]["n"], rows[0]["seeds"]) == ("3", "1 2 3")
    assert float(rows[0]["average_incremental_accuracy"]) == 76.0
    assert float(rows[0]["average_incremental_accuracy_std"]) == pytest.approx(1.0)
    assert rows[1]["average_incremental_accuracy_std"] == "", "of one run there is none"


def test_a_record_of_a_run_is_flat_and_has_its_accuracies(write_run):
    betas = read_result(write_run("betas", boosted=(90.0, 62.0), settings={"foster": {"beta_boost": [0.9, 0.8]}}))
    (record,) = run_records([betas])
    assert record["foster.beta_boost"] == "[0.9, 0.8]"
    assert (record["accuracy_2"], record["accuracy_4"], record["boosted_average"]) == (90.0, 60.0, 76.0)
    assert not [value for value in record.values() if isinstance(value, dict | list)]


def test_records_have_the_settings_that_differ_from_the_preset_and_the_images_that_were_evaluated_on(write_run):
    def run(name, rate, share, method="replay"):
        settings = {"validation_share": share, "batch_size": 32, method: {"later": {"learning_rate": rate}}}
        on = "validation" if share else "test"
        return read_result(write_run(name, method=method, evaluated_on=on, settings=settings))

    runs = [run("a", 0.1, 0.0), run("b", 0.2, 0.1), run("c", 0.1, 0.1, method="wa")]
    key = "replay.later.learning_rate"
    for records in (run_records(runs), summary_records(runs)):
        assert {(one["method"], one["evaluated_on"], one["validation_share"], one[key]) for one in records} == {
            ("replay", "test", 0.0, 0.1),
            ("replay", "validation", 0.1, 0.2),
            ("wa", "validation", 0.1, None),
        }
        assert not {"batch_size", "wa.later.learning_rate"} & records[0].keys(), "the preset's"
        assert type(records[0]["params"]) is type(records[0]["memory_bytes"]) is int
        assert key in csv_text(records).splitlines()[0].split(",")


def grids_for_latex(write_run):
    named = read_result(write_run("odd", method="50%_off & more", recipe="", accuracy=(90.0, 50.0)))
    return summary_grids([*three_seeds(write_run), named])


def test_latex_is_a_table_of_booktabs_whose_rows_have_as_many_cells_and_whose_best_is_bold(write_run):
    text = latex(grids_for_latex(write_run))
    lines = [line for line in text.splitlines() if line.endswith(r"\\")]
    (columns,) = [line for line in text.splitlines() if line.startswith(r"\begin{tabular}")]
    assert {line.replace(r"\&", "").count("&") + 1 for line in lines} == {
        columns.count("l", 15) + columns.count("r", 15)
    }
    assert [text.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule", r"\end{tabular}")] == [1] * 4
    (best,) = [line for line in lines if r"\textbf{76.00 $\pm$ 1.00}" in line]
    assert best.startswith("foster &")
    assert r"50\%\_off \& more" in text


def has_latex() -> bool:
    finder = shutil.which("kpsewhich")
    return bool(
        finder
        and shutil.which("pdflatex")
        and subprocess.run([finder, "booktabs.sty"], capture_output=True, check=False).stdout
    )


def test_latex_compiles(write_run, tmp_path: Path):
    if not has_latex():
        pytest.skip("pdflatex with booktabs is not installed")
    body = latex([*grids_for_latex(write_run), *accuracy_grids(three_seeds(write_run))])
    page = rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{body}\end{{document}}"
    (tmp_path / "page.tex").write_text(page, encoding="utf-8")
    done = subprocess.run(["pdflatex", "-interaction=batchmode", "page.tex"], cwd=tmp_path, check=False, timeout=60)
    assert done.returncode == 0, (tmp_path / "page.log").read_text()


@pytest.mark.parametrize("width", [40, 120])
def test_a_terminal_of_any_width_cuts_nothing_off(width: int, write_run):
    runs = three_seeds(write_run)
    text = rendered(shown(summary_grids(runs)), width)
    assert max(map(len, text.splitlines())) <= width
    letters = [cell.replace(" ", "") for grid in summary_grids(runs) for row in grid.rows for cell in row]
    if width >= 80:
        assert all(cell in text.replace(" ", "") for cell in letters)
    assert "…" not in text


def test_held_out_images_judge_a_learn_and_exemplars_where_there_are_none():
    checks = {"exemplar": {"known_before": 100.0}, "held-out": {"known_before": 90.0}}
    grid = history_grid([{"checks": checks}, {"checks": {"exemplar": checks["exemplar"]}}])
    assert [row[grid.header.index("known before")] for row in grid.rows] == ["90.0 %", "100.0 %"]
