"""What a method yields is refused where it cannot be trained."""

from typing import Any

import pytest
import torch
from torch import nn

from foster.data.images import ImageSet
from foster.errors import TrainingError
from foster.networks.freezing import freeze
from foster.settings.fit import FitSettings
from foster.training.phase import Evaluate, Phase, parts_of, takes_batch

ONE = ImageSet(torch.zeros(1, 3, 4, 4, dtype=torch.uint8), torch.zeros(1, dtype=torch.int64), ("a",))


@pytest.mark.parametrize(
    ("network", "data", "message"),
    [
        (nn.Linear(1, 1), None, "'tune' has no images"),
        (nn.Linear(1, 1), ONE.select(torch.tensor([False])), "phase 'tune' has no images"),
        (freeze(nn.Linear(1, 1)), ONE, "phase 'tune' trains nothing: all parameters of its network are frozen"),
    ],
)
def test_a_phase_without_images_or_without_anything_to_train_is_one_line(
    network: nn.Module, data: ImageSet, message: str
) -> None:
    with pytest.raises(TrainingError, match=message):
        Phase("tune", network, lambda images, labels: {}, FitSettings(epochs=1), data)
    half = nn.Sequential(freeze(nn.Linear(1, 1)), nn.Linear(1, 1))
    Phase("tune", half, lambda images, labels: {}, FitSettings(epochs=1), ONE)


def test_an_objective_is_asked_for_a_batch_by_its_one_argument() -> None:
    assert takes_batch(lambda batch: {})
    assert takes_batch(lambda batch, weight=1.0: {})
    assert not takes_batch(lambda images, labels: {})
    assert not takes_batch(lambda *both: {})
    for more in ({"num_views": 2}, {"replay": ONE}):
        with pytest.raises(TrainingError, match=r"'tune'.*objective\(batch\)"):
            Phase("tune", nn.Linear(1, 1), lambda images, labels: {}, FitSettings(epochs=1), ONE, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("phases", "message"),
    [
        (None, r"phases\(\).*NoneType"),
        ([Evaluate("head", nn.Linear(1, 1)), 3], r"phases\(\).*int"),
    ],
)
def test_whatever_else_a_method_returns_or_yields_is_one_line(phases: Any, message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        list(parts_of(phases))
