"""Datasets agree with what the catalogue promises, and are the same every time."""

from dataclasses import replace
from typing import Any

import pytest
import sklearn_images
import torch
from registries import registries_kept
from torch.nn import functional

from foster.data.images import ImageSet
from foster.data.sources import Dataset, arrivals, load, load_unlabeled, register_dataset, task_counts
from foster.errors import DataError
from foster.settings.datasets import CATALOGUE, DatasetSettings, SyntheticSettings, dataset_facts


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load("digits")


@pytest.fixture(scope="module")
def synthetic() -> Dataset:
    return load("synthetic")


@pytest.mark.parametrize("name", ["digits", "synthetic"])
def test_the_catalogue_tells_the_truth_about_the_data(name: str) -> None:
    facts, dataset = CATALOGUE[name], load(name)
    assert (len(dataset.train), len(dataset.test)) == (facts.num_train, facts.num_test)
    assert dataset.train.num_classes == facts.num_classes
    assert dataset.train.image_size == dataset.test.image_size == (facts.image_size, facts.image_size)
    assert (dataset.mean, dataset.std) == (facts.mean, facts.std)


def test_unlabeled_images_are_training_images_in_the_size_of_the_others(synthetic: Dataset) -> None:
    found = load_unlabeled("synthetic", (16, 16))
    assert torch.equal(found.images, synthetic.train.images)
    assert (found.labels.unique().tolist(), found.class_names) == ([-1], ())
    small = load_unlabeled("synthetic", (4, 4)).images
    pixels = synthetic.train.images.float()
    assert small.dtype == torch.uint8
    # Every pixel counts, also those between the places that plain interpolation reads.
    assert (small.float() - functional.avg_pool2d(pixels, 4)).abs().mean() < 12


def test_digits_are_scikit_learns_in_grey_and_every_fifth_of_a_class_is_a_test_image(digits: Dataset) -> None:
    pixels, targets = (torch.from_numpy(values) for values in sklearn_images.digits())
    grey = (pixels.view(-1, 1, 8, 8) * 255 / 16).round().to(torch.uint8).expand(-1, 3, -1, -1)
    position_in_class = torch.stack([targets == k for k in range(10)]).cumsum(1)[targets, torch.arange(len(targets))]
    is_test = position_in_class % 5 == 0
    for part, is_part in ((digits.test, is_test), (digits.train, ~is_test)):
        assert torch.equal(part.images, grey[is_part])
        assert torch.equal(part.labels, targets[is_part])
    assert digits.class_names[3] == "three"


def test_mean_and_std_of_digits_are_those_of_its_training_images(digits: Dataset) -> None:
    pixels = digits.train.images.double() / 255
    assert pixels.mean((0, 2, 3)).tolist() == pytest.approx(digits.mean, abs=5e-5)
    assert pixels.permute(1, 0, 2, 3).flatten(1).std(1).tolist() == pytest.approx(digits.std, abs=5e-5)


def test_synthetic_images_have_the_asked_for_shape() -> None:
    shape = SyntheticSettings(num_classes=3, train_per_class=5, test_per_class=2, image_size=9)
    dataset = load("synthetic", DatasetSettings(shape))
    assert dataset.train.images.shape == (15, 3, 9, 9)
    assert dataset.test.class_counts().tolist() == [2, 2, 2]
    assert dataset.class_names == ("class 00", "class 01", "class 02")
    facts = dataset_facts("synthetic", DatasetSettings(shape))
    assert (facts.num_classes, facts.num_train, facts.num_test, facts.image_size) == (3, 15, 6, 9)


def test_the_same_seed_draws_the_same_synthetic_images_and_another_seed_others(synthetic: Dataset) -> None:
    torch.manual_seed(5)  # the global generator must not matter
    assert torch.equal(load("synthetic").train.images, synthetic.train.images)
    assert not torch.equal(load("synthetic", DatasetSettings(seed=1)).train.images, synthetic.train.images)
    rows = torch.cat([synthetic.train.images, synthetic.test.images]).flatten(1)
    assert len(torch.unique(rows, dim=0)) == len(rows)


def test_synthetic_classes_can_be_learned(synthetic: Dataset) -> None:
    means = torch.stack([synthetic.train.of_classes(k, k + 1).images.float().mean(0) for k in range(10)]).flatten(1)
    nearest = torch.cdist(synthetic.test.images.flatten(1).float(), means).argmin(1)
    assert float((nearest == synthetic.test.labels).float().mean()) > 0.9


def test_classes_arrive_in_the_order_of_the_datasets_own_tasks() -> None:
    labels, tasks = torch.tensor([2, 0, 2, 1, 2, 0]), torch.tensor([0, 1, 0, 2, 2, 3])
    train = ImageSet(torch.zeros(6, 3, 4, 4, dtype=torch.uint8), labels, ("a", "b", "c"), {"task": tasks})
    assert arrivals(train) == ((2, 0, 1), (1, 1, 1, 0)), "the last task has no new class"
    assert task_counts(train) == ((2,), (0, 1), (1, 0, 1), (0, 1, 0))


IMAGES = ImageSet(torch.zeros(6, 3, 8, 8, dtype=torch.uint8), torch.arange(6) % 2, ("a", "b"))


@pytest.mark.parametrize(
    ("returned", "facts"),
    [
        ((IMAGES, replace(IMAGES, class_names=("b", "a"))), "classes"),
        ((replace(IMAGES, class_names=("a", "b", "c")),) * 2, "3 classes, not 2"),
        ((replace(IMAGES, class_names=("a", "a")),) * 2, "same name"),
        ((IMAGES, replace(IMAGES, stack=torch.zeros(6, 3, 9, 8, dtype=torch.uint8))), r"two sizes.*8.*9"),
        ((IMAGES, replace(IMAGES, labels=torch.arange(6))), "0 to 1"),
        ((IMAGES, replace(IMAGES, labels=torch.arange(6) % 2 - 1)), "0 to 1"),
        ((IMAGES.select(IMAGES.labels == 1), IMAGES), "'a'"),
        (((IMAGES.images, IMAGES.labels),) * 2, "two foster.ImageSet"),
        ((IMAGES, IMAGES, IMAGES), "two foster.ImageSet"),
        (IMAGES, "two foster.ImageSet"),
    ],
)
def test_a_dataset_of_ones_own_is_told_what_it_must_return(returned: Any, facts: str) -> None:
    with registries_kept():
        register_dataset("mine", num_classes=2, num_train=6, num_test=6, image_size=8)(lambda request: returned)
        with pytest.raises(DataError, match=f"'mine'.*{facts}"):
            load("mine")
