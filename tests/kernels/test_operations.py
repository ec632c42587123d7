"""AutoAugment's operations by kernel against those without: the same pixels, whatever the mixture."""

from collections.abc import Iterator
from contextlib import nullcontext
from unittest import mock

import numpy as np
import pytest
import torch
from gluon_emulation import emulated_kernels
from pillow_images import decided, sample_images
from torch import Tensor

from foster.data.augmentation import pipeline
from foster.data.augmentation.autoaugment import MAGNITUDES, SIGNED, Decisions, draw, works
from foster.data.augmentation.operations import OPERATIONS, send
from foster.data.augmentation.pipeline import augment
from foster.kernels.operations import can_operate
from foster.settings.augmentation import Augmentation

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
SIZES = [(12, 12), (9, 14), (14, 9)]
NAMES = list(OPERATIONS)


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """A GPU runs the compiled kernels; on a CPU they are emulated."""
    name: str = request.param
    if name == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    if name == "cuda":
        yield name
        return
    with emulated_kernels(), mock.patch.object(torch.cuda, "device", return_value=nullcontext()):
        yield name


def by_kernels(images: Tensor, decisions: Decisions) -> Tensor:
    for work in works(decisions, *images.shape[2:], has_kernels=True):
        images = work.change(images, *send(work.arrays, images.device))
    return images


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_every_operation_gives_the_same_pixels_as_without_kernels(device: str, size: tuple[int, int]) -> None:
    chance, images = np.random.default_rng(0), sample_images(*size)
    found = []
    for number, name in enumerate(NAMES):
        signs = (1, -1) if name in SIGNED else (1,)
        found += [(number, sign * chance.choice(MAGNITUDES[name][1:])) for sign in signs for _ in range(3)]
    batch = images[chance.integers(len(images), size=len(found))]
    # Another order for the second, so that operations meet what others have made.
    columns = [found, [found[k] for k in chance.permutation(len(found))]]
    pairs = [[column[row] for column in columns] for row in range(len(found))]
    decisions = Decisions(
        torch.tensor([[number for number, _ in pair] for pair in pairs]),
        torch.tensor([[magnitude for _, magnitude in pair] for pair in pairs], dtype=torch.float64),
    )
    before = batch.clone()

    actual = by_kernels(batch.to(device), decisions).cpu()

    different = [
        NAMES[pair[0][0]] for pair, a, b in zip(pairs, actual, decided(batch, decisions), strict=True) if (a != b).any()
    ]
    assert different == []
    assert torch.equal(batch, before), "a kernel wrote to its input"


def test_images_without_an_operation_stay_and_none_is_no_image(device: str) -> None:
    images = sample_images(12, 12).to(device)
    nothing = Decisions(torch.full((len(images), 2), -1), torch.zeros(len(images), 2, dtype=torch.float64))
    assert torch.equal(by_kernels(images, nothing), images)
    none = draw("imagenet", 0, torch.Generator())
    assert by_kernels(images[:0], none).shape == images[:0].shape


def test_brightness_and_a_policy_come_out_of_the_pipeline_the_same(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = sample_images(12, 12).repeat(3, 1, 1, 1)
    augmentation = Augmentation(flip=True, brightness=0.9, policy="imagenet", cutout=4)
    expected = augment(images, augmentation, torch.Generator().manual_seed(2))
    asked = []

    def has_kernels(images: Tensor) -> bool:
        asked.append(images.device.type)
        return True

    monkeypatch.setattr(pipeline, "can_operate", has_kernels)
    actual = augment(images.to(device), augmentation, torch.Generator().manual_seed(2)).cpu()
    assert asked == [device]
    assert torch.equal(actual, expected)


def test_images_on_a_cpu_are_changed_without_kernels() -> None:
    assert not can_operate(sample_images(12, 12))
