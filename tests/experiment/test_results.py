import json
from dataclasses import replace
from pathlib import Path

import pytest

from foster.errors import DataError
from foster.experiment.results import find_results, read_result
from foster.reports.matrices import accuracy_matrix_figure
from foster.reports.tables import accuracy_grids, markdown, shown, summary_grids
from foster.system.output import show


def test_a_results_file_is_read_whole(write_run):
    path = write_run("run", accuracy=(99.0, 80.0, 70.5), task_sizes=(4, 2, 1), boosted=(99.0, 82.0, 73.0))
    run = read_result(path)
    assert (run.path, run.method, run.scenario, run.seed) == (path, "foster", "digits-b0-inc2", 1993)
    assert (run.augmentation, run.hardware) == ("plain", "NVIDIA H200")
    assert (run.result, run.classifier) == ("compressed", "head")
    assert run.classes_seen == (4, 6, 7)
    assert run.accuracy == [99.0, 80.0, 70.5]
    assert run.average_incremental_accuracy == pytest.approx(83.16666)
    assert (run.final_accuracy, run.forgetting) == (70.5, 12.5)
    assert (run.params, run.memory_bytes, run.train_seconds) == (470_004, 6_144_000, 724.0)
    assert list(run.shown_variants) == ["boosted"]
    assert run.variants["boosted"].accuracy == (99.0, 82.0, 73.0)
    assert set(run.variants) == {"boosted", "nearest_mean"}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda text: text[: len(text) // 2], "damaged or cut short"),
        (lambda text: "", "damaged or cut short"),
        (lambda text: "[1, 2]", "not a results file"),
        (lambda text: '{"name": "package"}', "not a results file"),
        (lambda text: text.replace('"forgetting"', '"forgotten"'), "forgetting: is missing"),
        (lambda text: text.replace("470004", '"many"'), "params: Input should be a valid integer"),
        (lambda text: text.replace('"tasks"', '"steps"'), "2 accuracies for 0 tasks"),
        (lambda text: text.replace('matrix": [[90.0]', 'matrix": [[90.0, 1]'), "accuracy_matrix: row t must have"),
    ],
)
def test_a_bad_file_is_refused_in_one_line_that_names_it(write_run, change, complaint):
    path = write_run("run")
    path.write_text(change(path.read_text()))
    with pytest.raises(DataError) as caught:
        read_result(path)
    assert complaint in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


HOSTILE = {
    "an integer of 5,000 digits": '{"params": ' + "9" * 5000,
    "a number that no float holds": '{"train_seconds": 1e400',
    "an accuracy that is no number": '{"final_accuracy": NaN',
    "half a character": '{"method": "\\ud800"',
    "a name that no figure can hold": '{"method": "' + "w" * 1001 + '"',
    "an accuracy below 0": '{"accuracy": [-500, 60]',
    "an accuracy above 100": '{"final_accuracy": 200',
    "settings nested 900 deep": '{"settings": {"a": ' + "[" * 900 + "]" * 900 + "}",
    "more tasks than a table has columns": '{"accuracy": [' + "1, " * 10_000 + "1]",
    "a seed that is a list": '{"seed": [1]',
    "variants without numbers": '{"variants": {"boosted": {}}',
    "a variant of other tasks": '{"variants": {"boosted": {"accuracy": [1], "average_incremental_accuracy": 1}}',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_numbers_and_names_are_one_line(write_run, name):
    path = write_run("run")
    start, text = HOSTILE[name], path.read_text()
    key = start.split('"')[1]
    others = {other: value for other, value in json.loads(text).items() if other != key}
    path.write_text(f"{start}, {json.dumps(others)[1:]}")
    with pytest.raises(DataError, match=r"\A[^\n]{1,600}\Z"):
        read_result(path)


def test_a_class_without_a_name_is_refused(write_run):
    with pytest.raises(DataError, match="3 class names for 4"):
        read_result(write_run("run", classes=["a", "b", "c"]))


def test_names_in_a_results_file_move_no_cursor(write_run, capsys: pytest.CaptureFixture[str]):
    escape = "\x1b[31mred\x9b0m\r"
    settings = {"foster": {"gamma": escape, escape: 1}}
    facts = {"method": escape, "scenario": escape, "augmentation": escape, "result": escape, "evaluated_on": escape}
    write_run("run", **facts, settings=settings, environment={"device": escape})
    runs = find_results([write_run("other", **facts).parent.parent])
    show(shown([*accuracy_grids(runs), *summary_grids(runs)]))
    show(markdown(summary_grids(runs)))
    text = capsys.readouterr().out
    assert "red" in text
    assert all(character.isprintable() or character == "\n" for character in text)


def test_an_accuracy_without_test_images_is_none(write_run):
    path = write_run("run", new_accuracy=[None, 50.0], accuracy_matrix=[[50.0], [None, 50.0]])
    result = read_result(path)
    assert (result.new_accuracy, result.accuracy_matrix) == ((None, 50.0), [[50.0], [None, 50.0]])
    assert len(accuracy_matrix_figure([result]).axes[0].texts) == 2


def test_runs_are_found_at_any_depth_and_once(write_run, tmp_path: Path):
    paths = [write_run("a/b/first"), write_run("a/second"), write_run("third")]
    found = find_results([tmp_path / "a", tmp_path, paths[2]])
    assert [run.path for run in found] == paths


def test_what_a_sweep_writes_beside_its_runs_is_passed_over(write_run, tmp_path: Path):
    runs = [write_run(f"sweep/seed={seed},scale=0.5").parent for seed in (1, 2)]
    for run in runs:
        for ending in (".log", ".toml"):
            run.with_name(run.name + ending).write_text("task 1/5")
    found = find_results(sorted((tmp_path / "sweep").iterdir()))
    assert [result.path.parent for result in found] == runs
    with pytest.raises(DataError, match=r"scale=0.5.log' is damaged"):
        find_results((tmp_path / "sweep").glob("*.log"))
    (tmp_path / "sweep" / "other.log").write_text("task 1/5")
    with pytest.raises(DataError, match=r"other.log"):
        find_results((tmp_path / "sweep").iterdir())


def test_a_folder_of_collected_results_needs_no_run_folders(write_run, tmp_path: Path):
    collected = tmp_path / "results"
    collected.mkdir()
    for seed in (2, 1):
        write_run("run", seed=seed).rename(collected / f"foster-seed{seed}.json")
    assert [run.seed for run in find_results([collected])] == [1, 2]


def test_a_folder_without_runs_says_so(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(DataError, match=r"results\.json"):
        find_results([tmp_path])
    with pytest.raises(DataError, match="absent"):
        find_results([tmp_path / "absent"])


def test_the_classifier_is_named_as_people_read_it(write_run):
    found = [read_result(write_run(name, result=name)).classifier for name in ("head", "nearest_mean", "boosted")]
    assert found == ["head", "nearest mean", "head"]
    run = read_result(write_run("theirs", method="energetic", result="energy"))
    assert run.classifier == "head", "the method is not known here, but the run says that its other one is nearest_mean"
    other = replace(run, variants={"head": run.variants["nearest_mean"]})
    assert other.classifier == "nearest mean"
