"""The record of a run and the numbers that are made from it."""

import json

import pytest

from foster.evaluation.metrics import Evaluation, evaluate
from foster.experiment.record import Record

FIRST = Evaluation(accuracy=90.0, top5=100.0, old_accuracy=None, new_accuracy=90.0, per_task=(90.0,))
SECOND = Evaluation(accuracy=62.0, top5=95.0, old_accuracy=50.0, new_accuracy=80.0, per_task=(50.0, 80.0))
THIRD = Evaluation(accuracy=61.0, top5=93.0, old_accuracy=52.0, new_accuracy=70.0, per_task=(60.0, 44.0, 70.0))
BOOSTED = Evaluation(accuracy=95.0, top5=100.0, old_accuracy=None, new_accuracy=95.0, per_task=(95.0,))


def full_record() -> Record:
    record = Record("compressed")
    for evaluation, boosted in ((FIRST, BOOSTED), (SECOND, SECOND), (THIRD, THIRD)):
        record.add("boosted", boosted)
        record.add("compressed", evaluation)
        record.close_task(seconds=2.5, params=1000 + len(record.params), memory_bytes=64 * (1 + len(record.params)))
    return record


def test_the_summary_is_of_the_result_with_the_other_variants_below_it() -> None:
    summary = full_record().summary()
    assert summary["result"] == "compressed"
    assert summary["accuracy"] == [90.0, 62.0, 61.0]
    assert summary["variants"].keys() == {"boosted"}
    assert summary["variants"]["boosted"]["accuracy"] == [95.0, 62.0, 61.0]
    assert summary["variants"]["boosted"]["average_incremental_accuracy"] == pytest.approx(218 / 3)
    assert (summary["params"], summary["params_by_task"]) == (1002, [1000, 1001, 1002])
    assert summary["memory_bytes"] == 192
    assert (summary["train_seconds"], summary["task_seconds"]) == (7.5, [2.5, 2.5, 2.5])


def test_a_record_survives_json() -> None:
    record = full_record()
    again = Record.from_state(json.loads(json.dumps(record.state())))
    assert again == record
    assert again.num_tasks == 3
    assert again.result == [FIRST, SECOND, THIRD]


@pytest.mark.parametrize("change", [{"params": 3}, {"evaluations": []}, {"result_name": ["head"]}])
def test_a_record_of_other_types_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        Record.from_state({**full_record().state(), **change})


def test_a_variant_that_was_evaluated_after_some_tasks_alone_has_no_average() -> None:
    record = Record("head")
    record.add("head", FIRST)
    record.close_task(seconds=1.0, params=1, memory_bytes=1)
    record.add("middle", SECOND)
    again = Record.from_state(json.loads(json.dumps(record.state())))
    assert again == record, "the second task is not closed yet"
    assert [again.is_evaluated(*place) for place in (("middle", 1), ("middle", 0), ("head", 1))] == [True, False, False]
    record.add("head", SECOND)
    record.close_task(seconds=1.0, params=1, memory_bytes=1)
    found = record.summary()["variants"]
    assert found == {"middle": {"accuracy": [None, 62.0], "average_incremental_accuracy": None}}


def test_a_task_without_test_images_is_null_in_the_results_and_in_a_checkpoint() -> None:
    record = Record("compressed")
    for sizes in ([1], [1, 1]):
        record.add("compressed", evaluate([0, 1], [0, 0], sizes))
        record.close_task(1.0, 10, 20)
    found = json.loads(json.dumps(record.summary(), allow_nan=False))
    assert found["accuracy_matrix"] == [[50.0], [50.0, None]]
    assert (found["new_accuracy"], found["forgetting"]) == ([50.0, None], 0.0)
    assert Record.from_state(json.loads(json.dumps(record.state()))) == record
