"""iCaRL: the nearest mean of exemplars classifies."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from foster.experiment.folder import RunFolder
from foster.experiment.run import Experiment
from foster.settings.experiment import load_settings
from foster.system.signals import StopRequest


def test_icarl_reports_the_nearest_mean_of_exemplars(tmp_path: Path) -> None:
    shape = ["synthetic.num_classes=4", "synthetic.train_per_class=10"]
    changes = ["method=icarl", "dataset=synthetic", *shape, "memory_total=12", "epochs_scale=0.01", "device=cpu"]
    settings = load_settings("digits", changes)
    with RunFolder(tmp_path / "run").opened(settings) as folder:
        experiment = Experiment(settings, folder, lambda event: None, StopRequest())
        results = experiment.run()

    def unit_features(images: Tensor) -> Tensor:
        features = experiment.engine.infer(experiment.method.network, images).features.double()
        lengths: Tensor = features.norm(dim=1, keepdim=True)
        return features / lengths

    memory, test = experiment.method.memory, experiment.scenario.test_up_to(1)
    means = torch.stack([unit_features(memory.stack_of(k).tensor).mean(0) for k in range(4)])
    nearest = unit_features(test.images) @ (means / means.norm(dim=1, keepdim=True)).T
    assert results["result"] == "nearest_mean"
    assert results["final_accuracy"] == pytest.approx(100 * (nearest.argmax(1) == test.labels).double().mean().item())
    assert set(results["variants"]) == {"head"}
