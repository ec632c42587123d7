import gc
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from foster.data.herding import _herd, herding, herding_by_class, random_selection
from foster.data.images import ImageSet
from foster.data.memory import SELECTIONS, ExemplarMemory, select
from foster.errors import DataError, SettingsError
from foster.seeding import Address, generator


def greedy_reference(features: np.ndarray, count: int) -> list[int]:
    """Herding one candidate at a time, as the definition reads."""
    vectors = features / (np.linalg.norm(features, axis=1, keepdims=True) + 1e-8)
    mean = vectors.mean(axis=0)
    chosen: list[int] = []
    total = np.zeros_like(mean)
    for k in range(1, min(count, len(vectors)) + 1):
        best, best_distance = -1, np.inf
        for candidate, vector in enumerate(vectors):
            distance = np.linalg.norm(mean - (total + vector) / k)
            if candidate not in chosen and distance < best_distance:
                best, best_distance = candidate, distance
        chosen.append(best)
        total = total + vectors[best]
    return chosen


def random_features(num: int, width: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(num, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).relu().to(dtype)


def numbered_images(*values: int, size: int = 2) -> Tensor:
    """One image per value, filled with it."""
    return torch.tensor(values, dtype=torch.uint8)[:, None, None, None].repeat(1, 3, size, size)


def values_of(images: Tensor) -> list[int]:
    return images[:, 0, 0, 0].tolist()


@pytest.fixture(scope="module")
def digits() -> ImageSet:
    bunch = load_digits()
    images = torch.from_numpy(bunch.images * 15).to(torch.uint8)[:, None].repeat(1, 3, 1, 1)
    return ImageSet(images, torch.from_numpy(bunch.target).long(), tuple(str(digit) for digit in range(10)))


def pixels(images: Tensor) -> Tensor:
    return images[:, 0].flatten(1).float()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("seed", range(5))
def test_herding_equals_a_plain_greedy_reference(seed: int, dtype: torch.dtype) -> None:
    features = random_features(60, 16, seed, dtype)
    assert herding(features, 40).tolist() == greedy_reference(features.numpy(), 40)


def test_herding_follows_a_hand_worked_example_and_ignores_feature_lengths() -> None:
    # Unit vectors (1, 0), (0, 1), (0.6, 0.8) with mean (0.533, 0.6): the third is nearest; then the means of two
    # lie at squared distance 0.111 (with the first) and 0.144 (with the second).
    features = torch.tensor([[10.0, 0.0], [0.0, 0.1], [3.0, 4.0]])
    assert herding(features, 2).tolist() == [2, 0]


def test_herding_takes_the_first_of_equal_features() -> None:
    # Every vector twice, the copies far apart, so that rounding by position would show.
    half = random_features(37, 128, seed=3, dtype=torch.float32)
    chosen = herding(torch.cat([half, half]), 74).tolist()
    for position in range(37):
        assert chosen.index(position) < chosen.index(position + 37)
    assert herding(torch.ones(5, 3), 4).tolist() == [0, 1, 2, 3]


def test_herding_returns_every_image_once_when_asked_for_more_than_there_are() -> None:
    features = random_features(7, 4, seed=0)
    chosen = herding(features, 100)
    assert sorted(chosen.tolist()) == list(range(7))
    assert chosen.tolist() == greedy_reference(features.numpy(), 100)


def test_herding_accepts_one_image_none_at_all_and_zero_features() -> None:
    assert herding(torch.ones(1, 3), 5).tolist() == [0]
    assert herding(torch.ones(0, 3), 5).tolist() == []
    assert herding(torch.ones(4, 3), 0).tolist() == []
    with_zero_row = torch.cat([torch.zeros(1, 8), random_features(9, 8, seed=1, dtype=torch.float32)])
    assert herding(with_zero_row, 10).tolist() == greedy_reference(with_zero_row.numpy(), 10)


def test_herding_never_repeats_an_image_even_if_features_are_not_numbers() -> None:
    assert sorted(herding(torch.full((6, 3), torch.nan), 6).tolist()) == list(range(6))


def test_herding_computes_half_precision_features_in_single_precision() -> None:
    features = random_features(50, 16, seed=2, dtype=torch.bfloat16).requires_grad_()
    chosen = herding(features, 30)
    assert chosen.dtype == torch.int64
    assert chosen.tolist() == greedy_reference(features.detach().float().numpy(), 30)


def test_a_shorter_herding_is_the_beginning_of_a_longer_one() -> None:
    features = random_features(50, 8, seed=5)
    assert herding(features, 12).tolist() == herding(features, 40)[:12].tolist()


def test_herding_of_several_classes_equals_herding_each_alone() -> None:
    # Uneven classes, one smaller than the count, one absent, unlabeled images between, ids out of order.
    labels = torch.tensor([3, 0, -1, 7, 0, 3, 3, 0, 3] * 9)[
        torch.randperm(81, generator=generator(Address(0, "labels")))
    ]
    features = random_features(81, 32, seed=8, dtype=torch.float32)
    chosen = herding_by_class(features, labels, [7, 0, 5, 3], 12)
    assert [len(positions) for positions in chosen] == [9, 12, 0, 12]
    for class_id, positions in zip([7, 0, 5, 3], chosen, strict=True):
        own = torch.nonzero(labels == class_id).squeeze(1)
        assert positions.tolist() == own[herding(features[own], 12)].tolist()
    assert herding_by_class(features, labels, [], 12) == []


class LargestTensor(TorchDispatchMode):
    """Notes how many elements the largest tensor has that is made inside."""

    num_elements = 0

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        made = function(*arguments, **(options or {}))
        if isinstance(made, Tensor):
            self.num_elements = max(self.num_elements, made.numel())
        return made


def test_classes_of_very_different_size_are_herded_without_padding_all_to_the_largest() -> None:
    sizes = [600, *([3] * 50), 40, 0, 500]
    labels = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    features = random_features(len(labels), 16, seed=4, dtype=torch.float32)
    with LargestTensor() as made:
        chosen = herding_by_class(features, labels, range(len(sizes)), 20)
    assert made.num_elements <= 2 * features.numel()
    for class_id, positions in enumerate(chosen):
        own = torch.nonzero(labels == class_id).squeeze(1)
        assert positions.tolist() == own[herding(features[own], 20)].tolist()


def test_many_classes_are_herded_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = torch.arange(12).repeat(10)
    features = random_features(120, 16, seed=6, dtype=torch.float32)
    together = herding_by_class(features, labels, range(12), 7)
    monkeypatch.setattr("foster.data.herding.HERDED_AT_ONCE", 5 * 10 * 16)
    sizes: list[int] = []

    def noted(vectors: Tensor, *rest: Any) -> list[Tensor]:
        sizes.append(len(vectors))
        return _herd(vectors, *rest)

    monkeypatch.setattr("foster.data.herding._herd", noted)
    apart = herding_by_class(features, labels, range(12), 7)
    assert sizes == [5, 5, 2]
    assert [found.tolist() for found in apart] == [found.tolist() for found in together]


def test_herded_digits_represent_their_class_better_than_a_hundred_random_draws(digits: ImageSet) -> None:
    eights = pixels(digits.of_classes(8, 9).images)
    vectors = torch.nn.functional.normalize(eights)
    draw = generator(Address(0, "test"))

    def distance(positions: Tensor) -> float:
        return float((vectors[positions].mean(0) - vectors.mean(0)).norm())

    best_draw = min(distance(random_selection(len(eights), 20, draw)) for _ in range(100))
    assert distance(herding(eights, 20)) < best_draw


def test_random_selection_has_no_repeats_and_depends_on_its_generator_alone() -> None:
    first = random_selection(50, 20, generator(Address(1, "memory")))
    again = random_selection(50, 20, generator(Address(1, "memory")))
    other = random_selection(50, 20, generator(Address(2, "memory")))
    assert first.tolist() == again.tolist() != other.tolist()
    assert len(set(first.tolist())) == 20
    assert sorted(random_selection(4, 9, generator(Address(1, "memory"))).tolist()) == [0, 1, 2, 3]


def test_select_herds_each_class_by_its_features(digits: ImageSet) -> None:
    chosen = select(pixels, digits, [2, 5], 10, "herding", generator(Address(0, "memory")))
    assert list(chosen) == [2, 5]
    for class_id, images in chosen.items():
        own = digits.of_classes(class_id, class_id + 1).images
        assert torch.equal(images, own[greedy_reference(pixels(own).double().numpy(), 10)])


def test_select_asks_for_features_once_and_only_of_the_wanted_classes(digits: ImageSet) -> None:
    calls: list[int] = []

    def features_of(images: Tensor) -> Tensor:
        calls.append(len(images))
        return pixels(images)

    select(features_of, digits, [2, 5], 3, "herding", generator(Address(0, "memory")))
    select(features_of, digits, range(10), 3, "herding", generator(Address(0, "memory")))
    select(features_of, digits, [2, 5], 3, "random", generator(Address(0, "memory")))
    select(features_of, digits, [2, 5], None, "herding", generator(Address(0, "memory")))
    counts = digits.class_counts()
    assert calls == [int(counts[2] + counts[5]), len(digits)]


def test_random_select_draws_different_images_of_the_right_class() -> None:
    images = ImageSet(numbered_images(*range(20)), torch.arange(20) % 2, ("even", "odd"))
    chosen = select(pixels, images, [1], 6, "random", generator(Address(0, "memory")))
    drawn = values_of(chosen[1])
    assert len(set(drawn)) == 6
    assert all(value % 2 == 1 for value in drawn)
    assert drawn != sorted(drawn)


@pytest.mark.parametrize("selection", SELECTIONS)
def test_select_without_a_quota_keeps_every_image_in_order(selection: str) -> None:
    images = ImageSet(numbered_images(1, 2, 3, 4, 5), torch.tensor([1, 0, 1, 1, 0]), ("a", "b"))
    chosen = select(pixels, images, [0, 1], None, selection, generator(Address(0, "memory")))
    assert {class_id: values_of(own) for class_id, own in chosen.items()} == {0: [2, 5], 1: [1, 3, 4]}


def test_an_unknown_selection_names_the_closest_one() -> None:
    images = ImageSet(numbered_images(1), torch.tensor([0]), ("a",))
    with pytest.raises(SettingsError, match="'hurding'; did you mean 'herding'"):
        select(pixels, images, [0], 1, "hurding", generator(Address(0, "memory")))


def test_a_total_budget_is_shared_equally_as_classes_arrive() -> None:
    memory = ExemplarMemory(total=2000)
    assert [memory.quota(seen) for seen in range(10, 101, 10)] == [200, 100, 66, 50, 40, 33, 28, 25, 22, 20]


def test_a_budget_per_class_does_not_depend_on_the_number_of_classes() -> None:
    memory = ExemplarMemory(per_class=20)
    assert memory.quota(50) == memory.quota(100) == 20


def test_a_memory_without_a_budget_keeps_everything() -> None:
    memory = ExemplarMemory()
    memory.remember(0, numbered_images(*range(100)))
    memory.trim(1000)
    assert memory.quota(1000) is None
    assert memory.num_images == 100


def test_two_budgets_contradict_each_other() -> None:
    with pytest.raises(SettingsError, match=r"memory_total \(2000\) and memory_per_class \(20\)"):
        ExemplarMemory(total=2000, per_class=20)


@pytest.mark.parametrize("budget", [{"total": 0}, {"per_class": -3}])
def test_a_budget_holds_at_least_one_image(budget: dict[str, int]) -> None:
    with pytest.raises(SettingsError, match="must be at least 1"):
        ExemplarMemory(**budget)


def test_a_total_below_one_image_a_class_says_what_to_do() -> None:
    memory = ExemplarMemory(total=10)
    assert memory.quota(10) == 1
    with pytest.raises(SettingsError, match=r"memory_total 10 .* 11 classes; set memory_total to 11 or more"):
        memory.quota(11)
    with pytest.raises(SettingsError, match="11 classes"):
        memory.trim(11)


@pytest.mark.parametrize("budget", [{"total": 6}, {"per_class": 3}])
def test_a_memory_never_exceeds_its_budget(budget: dict[str, int]) -> None:
    memory = ExemplarMemory(**budget)
    memory.remember(0, numbered_images(1, 2, 3))
    memory.remember(1, numbered_images(4, 5, 6))
    with pytest.raises(ValueError, match=r"exceed .* trim the memory"):
        memory.remember(1, numbered_images(4, 5, 6, 7))
    assert values_of(memory.of_class(1)) == [4, 5, 6]


def test_trimming_keeps_the_first_images_in_selection_order() -> None:
    memory = ExemplarMemory(total=6)
    memory.remember(0, numbered_images(9, 3, 7, 1, 5, 2))
    memory.trim(2)
    memory.remember(1, numbered_images(8, 6))
    memory.trim(3)
    memory.remember(2, numbered_images(4, 0))
    assert [values_of(memory.of_class(class_id)) for class_id in range(3)] == [[9, 3], [8, 6], [4, 0]]


def test_trimming_really_frees_the_images() -> None:
    memory = ExemplarMemory(total=4)
    memory.remember(0, numbered_images(1, 2, 3, 4))
    memory.trim(4)
    assert memory.of_class(0).untyped_storage().nbytes() == memory.num_bytes == 12


def test_the_memory_owns_its_images() -> None:
    source = numbered_images(1, 2, 3, 4)
    memory = ExemplarMemory(per_class=2)
    memory.remember(0, source[:2])
    source.zero_()
    assert values_of(memory.of_class(0)) == [1, 2]
    assert memory.of_class(0).untyped_storage().nbytes() == 2 * 12


def test_the_data_can_be_deleted_while_the_memory_lives() -> None:
    images = ImageSet(numbered_images(1, 2, 3), torch.zeros(3, dtype=torch.int64), ("a",))
    memory = ExemplarMemory(per_class=2)
    for class_id, own in select(pixels, images, [0], 2, "herding", generator(Address(0, "memory"))).items():
        memory.remember(class_id, own)
    alive = weakref.ref(images), weakref.ref(images.images)
    del images, own
    gc.collect()
    assert [reference() for reference in alive] == [None, None]
    assert memory.num_images == 2


def test_exemplars_come_by_class_and_then_in_selection_order() -> None:
    memory = ExemplarMemory(per_class=3)
    memory.remember(0, numbered_images(9, 3))
    memory.remember(1, numbered_images(8, 6, 7))
    exemplars = memory.exemplars(("cat", "dog", "not yet learned"))
    assert exemplars is not None
    assert values_of(exemplars.images) == [9, 3, 8, 6, 7]
    assert exemplars.labels.tolist() == [0, 0, 1, 1, 1]
    assert exemplars.class_names == ("cat", "dog", "not yet learned")
    assert memory.counts.tolist() == [2, 3]
    assert (memory.num_images, memory.num_classes, memory.num_bytes) == (5, 2, 5 * 3 * 2 * 2)
    with pytest.raises(ValueError, match="1 class names for 2 classes"):
        memory.exemplars(("cat",))


def test_an_empty_memory_has_no_exemplars() -> None:
    memory = ExemplarMemory(total=10)
    assert memory.exemplars(()) is None
    assert memory.counts.tolist() == []
    assert (memory.num_images, memory.num_classes, memory.num_bytes) == (0, 0, 0)


def test_a_known_class_can_be_replaced() -> None:
    memory = ExemplarMemory(total=4)
    memory.remember(0, numbered_images(1, 2))
    memory.remember(1, numbered_images(3))
    memory.remember(0, numbered_images(7, 8, 9))
    assert [values_of(memory.of_class(class_id)) for class_id in range(2)] == [[7, 8, 9], [3]]


def test_classes_arrive_in_the_order_of_their_ids() -> None:
    memory = ExemplarMemory(total=4)
    memory.remember(0, numbered_images(1))
    for class_id in (2, -1):
        with pytest.raises(ValueError, match=f"class id {class_id} is neither known nor the next one, 1"):
            memory.remember(class_id, numbered_images(2))


def test_images_of_all_classes_have_one_size_and_type() -> None:
    memory = ExemplarMemory()
    memory.remember(0, numbered_images(1, size=2))
    with pytest.raises(DataError, match="class 1 are 3x4x4, but the memory holds images of 3x2x2"):
        memory.remember(1, numbered_images(2, size=4))
    with pytest.raises(ValueError, match="uint8"):
        memory.remember(1, torch.zeros(1, 3, 2, 2))
    memory.remember(0, numbered_images(1, size=4))
    assert memory.of_class(0).shape == (1, 3, 4, 4)


def test_a_class_may_hold_fewer_exemplars_than_before_down_to_none() -> None:
    memory = ExemplarMemory(total=8)
    memory.remember(0, numbered_images(1, 2, 3))
    memory.remember(1, numbered_images(4))
    memory.remember(0, memory.of_class(0)[1:])
    memory.remember(1, memory.of_class(1)[:0])
    exemplars = memory.exemplars(("a", "b"))
    assert exemplars is not None
    assert values_of(exemplars.images) == [2, 3]
    assert memory.counts.tolist() == [2, 0]
    assert memory.of_class(0).untyped_storage().nbytes() == memory.num_bytes
    memory.remember(0, memory.of_class(0)[:0])
    assert memory.exemplars(("a", "b")) is None
    with pytest.raises(DataError, match="class 2 is not in memory, which holds 2 classes from 0"):
        memory.of_class(2)


def test_a_memory_comes_back_from_its_state() -> None:
    memory = ExemplarMemory(total=9)
    memory.remember(0, numbered_images(5, 1))
    memory.remember(1, numbered_images(9))
    memory.remember(2, numbered_images(4, 2, 3))
    memory.remember(1, memory.of_class(1)[:0])
    state = memory.state()
    loaded = ExemplarMemory(total=9)
    loaded.remember(0, numbered_images(200))
    loaded.load_state(state)
    state["images"].zero_()
    assert [values_of(loaded.of_class(class_id)) for class_id in range(3)] == [[5, 1], [], [4, 2, 3]]
    assert loaded.counts.tolist() == memory.counts.tolist()


@pytest.mark.parametrize("num_classes", [0, 2])
def test_a_memory_without_images_can_be_saved_loaded_and_filled(num_classes: int) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    memory = ExemplarMemory(per_class=3)
    for class_id in range(num_classes):
        memory.remember(class_id, numbered_images())
    loaded = ExemplarMemory(per_class=3)
    loaded.load_state(safetensors.load(safetensors.save(memory.state())))
    assert loaded.num_classes == num_classes
    assert loaded.exemplars(("a", "b")) is None
    loaded.remember(num_classes, numbered_images(1, 2, size=8))
    exemplars = loaded.exemplars(("a", "b", "c"))
    assert exemplars is not None
    assert exemplars.labels.tolist() == [num_classes] * 2
    assert loaded.state()["images"].shape == (2, 3, 8, 8)


@pytest.mark.parametrize(
    "state",
    [
        {"images": numbered_images(1)},
        {"images": numbered_images(1), "counts": torch.tensor([2])},
        {"images": numbered_images(1), "counts": torch.tensor([2, -1])},
        {"images": numbered_images(1).float(), "counts": torch.tensor([1])},
    ],
)
def test_a_damaged_state_is_refused_and_the_memory_stays_as_it_was(state: dict[str, Tensor]) -> None:
    memory = ExemplarMemory()
    memory.remember(0, numbered_images(7))
    with pytest.raises(DataError, match="damaged"):
        memory.load_state(state)
    assert values_of(memory.of_class(0)) == [7]
