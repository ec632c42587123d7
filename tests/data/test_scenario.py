"""A scenario behaves like a list of tasks, and a task shows nothing of the classes still to come."""

from dataclasses import replace

import pytest
import torch

from foster.data.images import ImageSet
from foster.data.scenario import Scenario, class_order_from_names, class_order_from_seed, hold_out
from foster.data.sources import Dataset, load
from foster.errors import DataError, SettingsError
from foster.settings.datasets import DatasetSettings, SyntheticSettings

# numpy.random.seed(1993); numpy.random.permutation(100), as the logs of published runs print it.
PUBLISHED_ORDER = [
    *(68, 56, 78, 8, 23, 84, 90, 65, 74, 76, 40, 89, 3, 92, 55, 9, 26, 80, 43, 38),
    *(58, 70, 77, 1, 85, 19, 17, 50, 28, 53, 13, 81, 45, 82, 6, 59, 83, 16, 15, 44),
    *(91, 41, 72, 60, 79, 52, 20, 10, 31, 54, 37, 95, 14, 71, 96, 98, 97, 2, 64, 66),
    *(42, 22, 35, 86, 24, 34, 87, 21, 99, 0, 88, 27, 18, 94, 11, 12, 47, 25, 30, 46),
    *(62, 69, 36, 61, 7, 63, 75, 5, 32, 4, 51, 48, 73, 93, 39, 67, 29, 49, 57, 33),
]


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return load("synthetic", DatasetSettings(SyntheticSettings(train_per_class=4, test_per_class=2, image_size=8)))


@pytest.fixture(scope="module")
def scenario(dataset: Dataset) -> Scenario:
    return Scenario(dataset, "synthetic-b4-inc3", [9, 0, 8, 1, 7, 2, 6, 3, 5, 4], [4, 3, 3])


def test_the_seed_1993_gives_the_published_class_order() -> None:
    assert list(class_order_from_seed(100, 1993)) == PUBLISHED_ORDER
    assert class_order_from_seed(1000, 1993)[:10] == (54, 7, 894, 512, 126, 337, 988, 11, 284, 493)


def test_a_name_that_is_no_class_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"'cta'.*'cat'"):
        class_order_from_names(["ant", "bee", "cta"], ["ant", "bee", "cat"])


def test_a_class_order_may_be_of_class_ids_but_names_that_are_numbers_are_names() -> None:
    assert class_order_from_names(["2", "0", "1"], ["ant", "bee", "cat"]) == (2, 0, 1)
    assert class_order_from_names(["2", "1", "3"], ["3", "2", "1"]) == (1, 2, 0)
    with pytest.raises(SettingsError, match=r"'3'.*ant, bee, cat"):
        class_order_from_names(["1", "2", "3"], ["ant", "bee", "cat"])


def test_a_scenario_is_a_sequence_of_tasks(scenario: Scenario) -> None:
    assert (scenario.mean, scenario.std) == ((0.5,) * 3, (0.25,) * 3)
    assert (len(scenario), scenario.task_sizes, scenario.name) == (3, (4, 3, 3), "synthetic-b4-inc3")
    assert [(task.index, task.num_known, task.num_new) for task in scenario] == [(0, 0, 4), (1, 4, 3), (2, 7, 3)]


def test_class_ids_are_the_order_of_arrival_and_keep_their_images(dataset: Dataset, scenario: Scenario) -> None:
    task = scenario[1]
    assert sorted(set(task.new_images.labels.tolist())) == [4, 5, 6]
    assert task.class_names[4:] == ("class 07", "class 02", "class 06")
    for ours, original in ((task.new_images, dataset.train), (scenario.test_up_to(1), dataset.test)):
        assert torch.equal(ours.of_classes(5, 6).images, original.of_classes(2, 3).images)


def test_the_tasks_share_out_every_image_once(dataset: Dataset, scenario: Scenario) -> None:
    parts = [task.new_images for task in scenario]
    assert [len(part) for part in parts] == [16, 12, 12]
    rows = torch.cat([part.images for part in parts]).flatten(1)
    assert len(torch.unique(rows, dim=0)) == len(dataset.train)


def test_a_task_names_no_class_that_is_still_to_come(scenario: Scenario) -> None:
    assert [task.new_images.num_classes for task in scenario] == [4, 7, 10]
    test = scenario.test_up_to(1)
    assert test.class_names == scenario.class_names[:7]
    assert test.labels.bincount().tolist() == [2] * 7


def test_a_first_task_without_a_test_image_is_refused_and_a_later_one_is_not(dataset: Dataset) -> None:
    tested = replace(dataset, test=dataset.test.of_classes(2, 6))
    with pytest.raises(DataError, match="'synthetic-b0-inc2'"):
        Scenario(tested, "synthetic-b0-inc2", range(10), [2] * 5)
    assert len(Scenario(tested, "synthetic-b0-inc2", [5, 0, 1, 2, 3, 4, 6, 7, 8, 9], [2] * 5)) == 5


def numbered(*counts: int) -> ImageSet:
    """`counts[c]` images of class c, in mixed order; the first pixels of each image give its number."""
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))]
    images = torch.zeros(len(labels), 3, 2, 2, dtype=torch.uint8)
    images[:, 0, 0, 0] = torch.arange(len(labels)) % 256
    return ImageSet(images, labels, tuple(f"class {k}" for k in range(len(counts))))


def numbers(images: ImageSet) -> set[int]:
    return set(images.images[:, 0, 0, 0].tolist())


@pytest.mark.parametrize(
    ("share", "held_out"), [(0.1, [2, 1, 1]), (0.5, [10, 2, 1]), (0.25, [5, 1, 1]), (0.99, [19, 4, 1])]
)
def test_every_class_gives_its_share_at_least_one_image_and_never_all(share: float, held_out: list[int]) -> None:
    train, validation = hold_out(numbered(20, 5, 2), share, seed=3)
    assert validation.class_counts().tolist() == held_out
    assert train.class_counts().tolist() == [20 - held_out[0], 5 - held_out[1], 2 - held_out[2]]


def test_the_two_parts_are_the_whole_and_share_nothing() -> None:
    images = numbered(20, 30)
    train, validation = hold_out(images, 0.3, seed=3)
    assert not numbers(train) & numbers(validation)
    assert numbers(train) | numbers(validation) == numbers(images)
    for part in (train, validation):
        assert part.class_names == images.class_names
        positions = part.images[:, 0, 0, 0].long()
        assert torch.equal(part.labels, images.labels[positions])


def test_each_task_of_a_dataset_gives_its_share_of_each_class() -> None:
    tasks = torch.arange(60) % 3
    train, validation = hold_out(replace(numbered(30, 30), beside={"task": tasks}), 0.2, seed=3, is_given=True)
    left, taken = ((part.labels + 2 * part.beside["task"]).bincount() for part in (train, validation))
    assert taken.tolist() == [round(0.2 * count) for count in (left + taken).tolist()]


def test_the_choice_depends_on_the_seed_alone() -> None:
    images = numbered(40, 40)
    first = numbers(hold_out(images, 0.3, seed=3)[1])
    torch.rand(5)
    assert numbers(hold_out(images, 0.3, seed=3)[1]) == first
    assert numbers(hold_out(images, 0.3, seed=4)[1]) != first


def test_a_class_with_one_image_cannot_give_one() -> None:
    with pytest.raises(DataError, match="'class 1' has 1 image"):
        hold_out(numbered(3, 1), 0.1, seed=0)
    beside = {"task": torch.tensor([0, 0, 1, 0])}
    with pytest.raises(DataError, match=r"1 image in task \d"):
        hold_out(replace(numbered(2, 2), beside=beside), 0.1, seed=0, is_given=True)
