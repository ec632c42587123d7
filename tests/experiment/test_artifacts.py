from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_runs import Interruption, interrupted, resume, start, tiny_settings

from foster import events
from foster.errors import DataError, FolderError
from foster.experiment.artifacts import (
    PREDICTIONS,
    keep_network,
    keep_predictions,
    kept_networks,
    read_predictions,
)
from foster.system.documents import read_tensors


def accuracy(predicted: np.ndarray, labels: np.ndarray) -> float:
    return 100 * float((predicted == labels).mean())


def test_the_predictions_that_a_run_keeps_have_the_accuracies_it_reports(tmp_path: Path):
    results = start(tiny_settings(), tmp_path)
    kept = read_predictions(tmp_path)
    assert kept.task == 2
    assert len(kept.labels) == 6 * 4
    assert accuracy(kept.by_variant["compressed"], kept.labels) == pytest.approx(results["final_accuracy"])
    for name, metrics in results["variants"].items():
        assert accuracy(kept.by_variant[name], kept.labels) == pytest.approx(metrics["final_accuracy"])
    for task, expected in enumerate(results["accuracy"]):
        earlier = read_predictions(tmp_path, task)
        assert accuracy(earlier.by_variant["compressed"], earlier.labels) == pytest.approx(expected)
    with pytest.raises(DataError, match="after 3 tasks, but not after task 4"):
        read_predictions(tmp_path, 3)
    assert (tmp_path / PREDICTIONS).stat().st_size < 2500
    assert not kept_networks(tmp_path), "weights are kept only if asked for"


def test_a_resumed_run_keeps_what_it_evaluated_before_it_was_stopped(tmp_path: Path):
    def is_boosted_at_last(event: events.Event) -> bool:
        return isinstance(event, events.Evaluated) and (event.task, event.variant) == (1, "boosted")

    whole, parted = tmp_path / "whole", tmp_path / "parted"
    settings = tiny_settings("foster", "keep_networks=true", "synthetic.num_classes=4")
    start(settings, whole)
    interrupted(settings, parted, Interruption(is_boosted_at_last, num_steps=1))
    assert read_predictions(parted).by_variant.keys() == {"boosted", "boosted_nearest_mean"}
    resume(parted)
    first, second = read_predictions(whole), read_predictions(parted)
    assert first.by_variant.keys() == second.by_variant.keys() >= {"boosted", "compressed", "nearest_mean"}
    for name, ids in first.by_variant.items():
        assert (ids == second.by_variant[name]).all()
    expected = [(task, variant) for task in range(2) for variant in ("boosted", "compressed")]
    assert list(kept_networks(whole)) == list(kept_networks(parted)) == expected
    for key, path in kept_networks(whole).items():
        for name, tensor in read_tensors(path).items():
            assert torch.equal(tensor, read_tensors(kept_networks(parted)[key])[name])


def test_an_evaluation_replaces_those_of_later_tasks(tmp_path: Path):
    for task in (0, 1, 2, 1):
        keep_predictions(tmp_path, task, torch.tensor([0]), {"head": torch.tensor([task])})
    assert read_predictions(tmp_path).task == 1
    assert read_predictions(tmp_path, 0).by_variant["head"].tolist() == [0]


def test_networks_are_not_written_through_a_link(tmp_path: Path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "networks").symlink_to(elsewhere)
    with pytest.raises(FolderError, match="networks"):
        keep_network(tmp_path / "run", 0, "head", torch.nn.Linear(2, 2))
    assert not list(elsewhere.iterdir())


@pytest.mark.parametrize("content", [b"", b"no tensors", b"\xff" * 100])
def test_a_damaged_file_is_one_line_and_the_next_evaluation_replaces_it(content: bytes, tmp_path: Path):
    with pytest.raises(DataError, match=PREDICTIONS):
        read_predictions(tmp_path)
    (tmp_path / PREDICTIONS).write_bytes(content)
    with pytest.raises(DataError, match=PREDICTIONS):
        read_predictions(tmp_path)
    labels = torch.tensor([0, 70_000, 2])
    keep_predictions(tmp_path, 4, labels, {"head": labels.flip(0)})
    assert read_predictions(tmp_path).by_variant["head"].tolist() == [2, 70_000, 0]
