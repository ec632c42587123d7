import pytest
import torch

from foster.learner.calibration import (
    HIGHEST,
    LOWEST,
    MIN_IMAGES,
    expected_calibration_error,
    fit_temperature,
    probabilities,
)


def labels_drawn_from(logits: torch.Tensor, seed: int = 0) -> torch.Tensor:
    chance = torch.Generator().manual_seed(seed)
    return torch.multinomial(logits.softmax(1), 1, generator=chance).squeeze(1)


@pytest.mark.parametrize("true_temperature", [0.5, 1.0, 3.0])
def test_the_temperature_that_was_put_in_is_found(true_temperature: float) -> None:
    honest = 2 * torch.randn(5_000, 5, generator=torch.Generator().manual_seed(1))
    found = fit_temperature(true_temperature * honest, labels_drawn_from(honest))
    assert found == pytest.approx(true_temperature, rel=0.05)


def test_being_right_on_few_images_is_not_taken_for_certainty() -> None:
    def confidence(num_images: int, scale: float) -> float:
        labels = torch.arange(num_images) % 4
        scores = scale * torch.eye(4)[labels]
        temperature = fit_temperature(scores, labels)
        return float(probabilities(scores, temperature).max(1).values.mean())

    assert 0.95 < confidence(12, 10.0) < confidence(40, 10.0) < confidence(400, 10.0) < 1 - 1e-4
    assert confidence(12, 0.3) == pytest.approx(confidence(12, 10.0), abs=1e-3), "whatever the scores are multiplied by"


def test_a_dozen_images_are_not_believed_alone() -> None:
    """What one more mistake among a dozen images changes is less than what they say for themselves."""
    honest = 2 * torch.randn(720, 5, generator=torch.Generator().manual_seed(1))
    labels = labels_drawn_from(honest)
    found = [fit_temperature(5 * scores, part) for scores, part in zip(honest.split(12), labels.split(12), strict=True)]
    logarithms = torch.tensor([temperature or 1.0 for temperature in found]).log()
    assert float(logarithms.exp().median()) == pytest.approx(5.0, rel=0.2)
    assert float(logarithms.std()) < 0.3


def test_a_temperature_has_bounds_and_is_looked_for_closely_between_them() -> None:
    labels = torch.arange(12) % 3
    right = torch.eye(3)[labels]
    assert (LOWEST, HIGHEST) == (0.05, 20.0)
    assert fit_temperature(1e-4 * right, labels) == LOWEST
    assert fit_temperature(1e6 * right, labels) == HIGHEST
    factors = [fit_temperature((2 + k / 40) * right, labels) or 0.0 for k in range(3)]
    assert factors[1] / factors[0] == pytest.approx(2.025 / 2, rel=2e-3)
    assert factors[2] / factors[0] == pytest.approx(2.05 / 2, rel=2e-3)


def test_every_class_counts_the_same() -> None:
    # Class 0 is always right, class 1 half the time: counted by images, the network would be right 99 times of 100.
    scores = torch.cat(
        [torch.tensor([[4.0, 0.0]]).repeat(1000, 1), torch.tensor([[0.0, 4.0], [4.0, 0.0]]).repeat(10, 1)]
    )
    labels = torch.cat([torch.zeros(1000, dtype=torch.int64), torch.ones(20, dtype=torch.int64)])
    balanced = fit_temperature(scores, labels)
    probability = float(probabilities(scores[:1], balanced)[0, 0])
    assert probability == pytest.approx(0.75, abs=0.01)


def test_too_few_images_or_a_single_class_give_no_temperature() -> None:
    assert fit_temperature(torch.randn(MIN_IMAGES - 1, 3), torch.zeros(MIN_IMAGES - 1, dtype=torch.int64)) is None
    assert fit_temperature(torch.randn(50, 1), torch.zeros(50, dtype=torch.int64)) is None


def test_a_class_that_cannot_be_predicted_does_not_spoil_the_fit() -> None:
    scores = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
    scores[:, 2] = -torch.inf
    found = fit_temperature(scores, torch.arange(100) % 2)
    assert torch.isfinite(torch.tensor(found))
    assert probabilities(scores, found)[:, 2].tolist() == [0.0] * 100


def test_the_calibration_error_by_hand() -> None:
    # Two images at 0.95, one right: |0.95 - 0.5| = 0.45. Two at 0.85 and two at 0.6, all right: 0.15 and 0.4.
    probability = torch.tensor([[0.95, 0.05]] * 2 + [[0.85, 0.15]] * 2 + [[0.6, 0.4]] * 2)
    assert expected_calibration_error(probability, torch.tensor([0, 1, 0, 0, 0, 0])) == pytest.approx(1 / 3)
