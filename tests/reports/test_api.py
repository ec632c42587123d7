"""Results as a researcher looks at them."""

import json
from pathlib import Path

import pytest
import torch
from tiny_runs import stopped_run, tiny_settings

import foster
from foster.events import ignore
from foster.experiment.folder import RunFolder
from foster.experiment.run import begin
from foster.system.signals import StopRequest


def test_several_results_are_a_table_and_a_figure(kept_runs: dict[str, Path]) -> None:
    results = foster.load_results(kept_runs["foster"].parent)
    assert [result.method for result in results] == ["finetune", "foster"]
    assert results[1].to_dict() == json.loads((kept_runs["foster"] / "results.json").read_text())
    assert "finetune" in repr(results)
    assert f"{results[1].average_incremental_accuracy:.2f}" in repr(results)
    figure = results.figure("Two methods")
    labels = {text.get_text() for axes in figure.axes for text in axes.texts}
    assert any("finetune" in label for label in labels)
    assert results[0].figure().axes


def test_a_notebook_shows_a_table_once(kept_runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[object] = []
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", lambda *parts: shown.append(parts))
    assert "finetune" in foster.load_results(kept_runs["finetune"]).table()
    assert not shown


def test_the_network_of_a_folder_is_the_one_that_was_trained(tmp_path: Path) -> None:
    network = begin(tiny_settings("der", "synthetic.num_classes=4"), RunFolder(tmp_path / "run"), ignore, StopRequest())
    state = torch.get_rng_state()
    (result,) = foster.load_results(tmp_path / "run")
    found, trained = result.network.state_dict(), network.state_dict()
    assert torch.equal(torch.get_rng_state(), state), "torch's own generator is left alone"
    assert list(found) == list(trained)
    assert all(torch.equal(value, trained[name]) for name, value in found.items())
    for path in (tmp_path / "run" / "checkpoints").iterdir():
        path.unlink()
    (result,) = foster.load_results(tmp_path / "run")
    with pytest.raises(foster.DataError, match="checkpoint"):
        _ = result.network


def test_a_run_that_is_not_finished_has_no_network_yet(tmp_path: Path) -> None:
    (result,) = foster.load_results(stopped_run(tmp_path / "run"))
    with pytest.raises(foster.DataError, match="not finished"):
        _ = result.network


def test_the_networks_after_each_task_are_those_that_were_evaluated(kept_runs: dict[str, Path]) -> None:
    (result,) = foster.load_results(kept_runs["foster"])
    images = torch.zeros(1, 3, 8, 8)
    for task, num_classes in enumerate(result.classes_seen):
        for variant in ("compressed", "boosted"):
            network = result.network_after(task, variant)
            assert not network.training
            assert network(images).logits.shape == (1, num_classes)
    last = result.network_after(len(result.classes_seen) - 1)
    torch.testing.assert_close(last(images).logits, result.network(images).logits)


def test_the_predictions_after_each_task_have_the_accuracies_of_the_result(kept_runs: dict[str, Path]) -> None:
    (result,) = foster.load_results(kept_runs["foster"])
    for task, num_classes in enumerate(result.classes_seen):
        labels, predicted = result.predictions_after(task)
        assert 100 * (labels == predicted).mean() == pytest.approx(result.accuracy[task])
        assert {0, num_classes - 1} <= set(labels.tolist()) <= set(range(num_classes))
        labels, predicted = result.predictions_after(task, "boosted")
        assert 100 * (labels == predicted).mean() == pytest.approx(result.variants["boosted"].accuracy[task])
    with pytest.raises(foster.DataError, match=r"'bosted'.*'boosted'"):
        result.predictions_after(0, "bosted")
    with pytest.raises(foster.DataError, match="not after task 99"):
        result.predictions_after(98)
