"""What a method yields is refused where it cannot be trained."""

import pytest
import torch
from torch import nn

from foster.data.images import ImageSet
from foster.errors import TrainingError
from foster.networks.modules import freeze
from foster.settings.fit import FitSettings
from foster.training.phase import Phase, takes_batch

ONE = ImageSet(torch.zeros(1, 3, 4, 4, dtype=torch.uint8), torch.zeros(1, dtype=torch.int64), ("a",))


@pytest.mark.parametrize(
    ("network", "data"),
    [
        (nn.Linear(1, 1), None),
        (nn.Linear(1, 1), ONE.select(torch.tensor([False]))),
        (freeze(nn.Linear(1, 1)), ONE),
    ],
)
def test_a_phase_without_images_or_without_anything_to_train_is_refused(network: nn.Module, data: ImageSet) -> None:
    with pytest.raises(TrainingError, match="'tune'"):
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
