import hashlib
import json
import math

import numpy as np
import pytest
import torch

from foster.data.augmentation.autoaugment import MAGNITUDES, POLICIES, SIGNED, draw
from foster.data.augmentation.operations import OPERATIONS

NAMES = list(OPERATIONS)
NUM_DRAWS = 20_000


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def assert_share(count: float, total: int, probability: float) -> None:
    """Within five standard deviations of a binomial count."""
    deviation = math.sqrt(total * probability * (1 - probability))
    assert abs(count - total * probability) <= 5 * deviation, f"{count} of {total} at probability {probability}"


def test_magnitudes_by_hand() -> None:
    assert MAGNITUDES.keys() == OPERATIONS.keys()
    assert MAGNITUDES["Posterize"] == [8, 8, 7, 7, 6, 6, 5, 5, 4, 4]
    assert MAGNITUDES["ShearY"][8] == pytest.approx(0.8 / 3)
    assert MAGNITUDES["TranslateY"][9] == 150 / 331
    assert MAGNITUDES["Rotate"][3] == pytest.approx(10)
    assert MAGNITUDES["Color"][4] == pytest.approx(0.4)
    assert (MAGNITUDES["Solarize"][0], MAGNITUDES["Solarize"][9]) == (256, 0)
    assert MAGNITUDES["Solarize"][5] == pytest.approx(256 * 4 / 9)
    assert (MAGNITUDES["ShearX"], MAGNITUDES["TranslateX"]) == (MAGNITUDES["ShearY"], MAGNITUDES["TranslateY"])
    assert all(MAGNITUDES[name] == MAGNITUDES["Color"] for name in ("Sharpness", "Brightness", "Contrast"))
    assert OPERATIONS.keys() - SIGNED == {"Posterize", "Solarize", "Invert", "AutoContrast", "Equalize"}


def test_the_policies_are_the_published_ones() -> None:
    """The hashes are of tables that were compared with those of torchvision."""
    hashes = {name: hashlib.sha256(json.dumps(policy).encode()).hexdigest() for name, policy in POLICIES.items()}
    assert hashes["cifar10"].startswith("9a50b9a12b929bd2")
    assert hashes["imagenet"].startswith("c29d39a1bfcf0a2b")


@pytest.mark.parametrize("policy", POLICIES)
def test_operations_are_drawn_as_often_as_the_policy_says(policy: str) -> None:
    """Counted over pairs of operations, magnitudes and coins: the sub-policy of a draw is not seen from outside."""
    decisions = draw(policy, NUM_DRAWS, seeded())
    expected: dict[tuple[tuple[int, float], ...], float] = {}
    for first, second in POLICIES[policy]:
        for coins in ((0, 0), (0, 1), (1, 0), (1, 1)):
            probability, outcome = 1 / 25, []
            for (name, share, index), is_applied in zip((first, second), coins, strict=True):
                probability *= share if is_applied else 1 - share
                outcome.append((NAMES.index(name) if is_applied else -1, round(MAGNITUDES[name][index], 6)))
            expected[tuple(outcome)] = expected.get(tuple(outcome), 0) + probability
    actual = dict.fromkeys(expected, 0)
    for operations, magnitudes in zip(decisions.operations.tolist(), decisions.magnitudes.tolist(), strict=True):
        actual[tuple((op, round(abs(size), 6)) for op, size in zip(operations, magnitudes, strict=True))] += 1

    assert sum(expected.values()) == pytest.approx(1)
    for outcome, probability in expected.items():
        assert_share(actual[outcome], NUM_DRAWS, probability)


@pytest.mark.parametrize("policy", POLICIES)
def test_signs_are_fair_coins_for_signed_operations_only(policy: str) -> None:
    decisions = draw(policy, NUM_DRAWS, seeded())
    for position, name in enumerate(NAMES):
        magnitudes = decisions.magnitudes[decisions.operations == position]
        magnitudes = magnitudes[magnitudes != 0]
        num_negative = int((magnitudes < 0).sum())
        if name in SIGNED:
            assert_share(num_negative, len(magnitudes), 0.5)
        else:
            assert num_negative == 0
    both = decisions.magnitudes[np.isin(decisions.operations, [NAMES.index(name) for name in SIGNED]).all(1)].prod(1)
    assert_share(int((both < 0).sum()), int((both != 0).sum()), 0.5)  # each operation has a coin of its own
