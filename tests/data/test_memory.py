import pytest
import torch
from herding_reference import greedy_reference, pixels
from torch import Tensor

from foster.data.images import ImageSet, Stack, as_stack
from foster.data.memory import ExemplarMemory, select
from foster.data.photos.stack import PhotoStack
from foster.data.photos.store import PhotoLoader
from foster.data.sources import load
from foster.data.task import Task
from foster.errors import DataError
from foster.seeding import Address, generator


def numbered_images(*values: int, size: int = 2) -> Tensor:
    """One image per value, filled with it."""
    return torch.tensor(values, dtype=torch.uint8)[:, None, None, None].repeat(1, 3, size, size)


def values_of(images: ImageSet | Stack | Tensor) -> list[int]:
    return (images.images if isinstance(images, ImageSet) else as_stack(images).tensor)[:, 0, 0, 0].tolist()


@pytest.fixture(scope="module")
def digits() -> ImageSet:
    return load("digits").train


def test_select_herds_each_class_by_its_features(digits: ImageSet) -> None:
    chosen = select(pixels, digits, [2, 5], 10, "herding", generator(Address(0, "memory")))
    assert list(chosen) == [2, 5]
    for class_id, images in chosen.items():
        candidates = digits.of_classes(class_id, class_id + 1).images
        assert torch.equal(images.images, candidates[greedy_reference(pixels(candidates).double().numpy(), 10)])
    at_random = select(pixels, digits, [2, 5], 10, "random", generator(Address(0, "memory")))
    assert not any(torch.equal(at_random[class_id].images, chosen[class_id].images) for class_id in chosen)


def test_a_total_budget_is_shared_equally_as_classes_arrive() -> None:
    memory = ExemplarMemory(total=2000)
    assert [memory.quota(seen) for seen in range(10, 101, 10)] == [200, 100, 66, 50, 40, 33, 28, 25, 22, 20]


@pytest.mark.parametrize("budget", [{"total": 6}, {"per_class": 3}])
def test_a_memory_never_exceeds_its_budget(budget: dict[str, int]) -> None:
    memory = ExemplarMemory(**budget)
    memory.remember(0, numbered_images(1, 2, 3))
    memory.remember(1, numbered_images(4, 5, 6))
    with pytest.raises(ValueError, match="trim"):
        memory.remember(1, numbered_images(4, 5, 6, 7))
    with pytest.raises(ValueError, match="3"):
        memory.remember(3, numbered_images())  # the next class is 2
    assert values_of(memory.stack_of(1).tensor) == [4, 5, 6]


def test_trimming_keeps_the_first_images_in_selection_order() -> None:
    memory = ExemplarMemory(total=6)
    memory.remember(0, numbered_images(9, 3, 7, 1, 5, 2))
    memory.trim(2)
    memory.remember(1, numbered_images(8, 6))
    memory.trim(3)
    memory.remember(2, numbered_images(4, 0))
    assert [values_of(memory.stack_of(class_id).tensor) for class_id in range(3)] == [[9, 3], [8, 6], [4, 0]]


def test_trimming_really_frees_the_images() -> None:
    memory = ExemplarMemory(total=4)
    memory.remember(0, numbered_images(1, 2, 3, 4))
    memory.trim(4)
    assert memory.stack_of(0).tensor.untyped_storage().nbytes() == memory.num_bytes == 12


def test_the_memory_owns_its_images() -> None:
    source = numbered_images(1, 2, 3, 4)
    memory = ExemplarMemory(per_class=2)
    memory.remember(0, source[:2])
    source.zero_()
    assert values_of(memory.stack_of(0).tensor) == [1, 2]
    assert memory.stack_of(0).tensor.untyped_storage().nbytes() == 2 * 12


def test_exemplars_come_by_class_and_then_in_selection_order() -> None:
    memory = ExemplarMemory(per_class=3)
    memory.remember(0, numbered_images(9, 3))
    memory.remember(1, numbered_images(8, 6, 7))
    exemplars = memory.exemplars(("cat", "dog", "not yet learned"))
    assert values_of(exemplars.images) == [9, 3, 8, 6, 7]
    assert exemplars.labels.tolist() == [0, 0, 1, 1, 1]
    assert exemplars.class_names == ("cat", "dog", "not yet learned")
    assert memory.counts.tolist() == [2, 3]
    assert (memory.num_images, memory.num_classes, memory.num_bytes) == (5, 2, 5 * 3 * 2 * 2)


def test_a_known_class_can_be_replaced() -> None:
    memory = ExemplarMemory(total=4)
    memory.remember(0, numbered_images(1, 2))
    memory.remember(1, numbered_images(3))
    memory.remember(0, numbered_images(7, 8, 9))
    assert [values_of(memory.stack_of(class_id).tensor) for class_id in range(2)] == [[7, 8, 9], [3]]
    before = memory.exemplars(("cat", "dog"))
    memory.remember(0, numbered_images(5, 6))
    after = memory.exemplars(("cat", "dog"))
    assert (values_of(before.images), values_of(after.images)) == ([7, 8, 9, 3], [5, 6, 3])


def test_a_memory_comes_back_from_its_state() -> None:
    memory = ExemplarMemory(total=9)
    memory.remember(0, numbered_images(5, 1))
    memory.remember(1, numbered_images(9))
    memory.remember(2, numbered_images(4, 2, 3))
    memory.remember(1, memory.stack_of(1).tensor[:0])
    state = memory.state()
    loaded = ExemplarMemory(total=9)
    loaded.remember(0, numbered_images(200))
    loaded.load_state(state)
    state["images"].zero_()
    assert [values_of(loaded.stack_of(class_id).tensor) for class_id in range(3)] == [[5, 1], [], [4, 2, 3]]
    assert loaded.counts.tolist() == memory.counts.tolist()


def test_what_is_kept_beside_exemplars_stays_with_them() -> None:
    """Through trimming, a selection anew of a class that comes again, and a checkpoint."""
    memory = ExemplarMemory(total=6)
    memory.remember(0, numbered_images(5, 1, 3))
    memory.remember(1, numbered_images(9, 2, 4))
    memory.keep(logits=torch.tensor([5.0, 1, 3, 9, 2, 4])[:, None], task=torch.tensor([0, 0, 0, 1, 1, 1]))
    with pytest.raises(RuntimeError, match="split"):
        memory.keep(logits=torch.zeros(2, 1))
    memory.trim(3)
    before = memory.exemplars(("a", "b"))
    more = ImageSet(numbered_images(7, 8), torch.tensor([0, 2]), ("a", "b", "c"))
    task = Task(1, 2, 1, more, before)
    assert task.training.beside["exemplar"].tolist() == [False, False, True, True, True, True]
    chosen = select(pixels, task.candidates, task.class_ids, 2, "random", generator(Address(1, "memory")))
    for class_id, images in chosen.items():
        memory.remember(class_id, images.stack, images.beside)
    loaded = ExemplarMemory(total=6)
    loaded.load_state(memory.state())
    exemplars = loaded.exemplars(("a", "b", "c"))
    values = values_of(exemplars)
    assert set(values) > {9, 2, 8}
    assert exemplars.beside["logits"][:, 0].tolist() == [0 if value in (7, 8) else value for value in values]
    assert exemplars.beside["task"].tolist() == [int(label == 1) for label in exemplars.labels]
    assert loaded.num_bytes == 5 * (12 + 4 + 8)


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
    assert exemplars.labels.tolist() == [num_classes] * 2
    assert loaded.state()["images"].shape == (2, 3, 8, 8)


@pytest.mark.parametrize(
    "state",
    [
        {"images": numbered_images(1)},
        {"images": numbered_images(1), "counts": torch.tensor([2])},
        {"images": numbered_images(1), "counts": torch.tensor([1]), "beside.logits": torch.zeros(2, 3)},
        {"images": numbered_images(1).float(), "counts": torch.tensor([1])},
        {"contents": torch.zeros(5).byte(), "lengths": torch.tensor([4]), "counts": torch.tensor([1])},
        {"contents": torch.zeros(5).byte(), "lengths": torch.tensor([5]), "counts": torch.tensor([2, -1])},
        {"contents": torch.zeros(5).byte(), "lengths": torch.tensor([6, -1]), "counts": torch.tensor([2])},
    ],
)
def test_a_damaged_state_is_refused_and_the_memory_stays_as_it_was(state: dict[str, Tensor]) -> None:
    memory = ExemplarMemory(kind=PhotoStack.of([], PhotoLoader(8, 8)))
    memory.remember(0, numbered_images(7))
    with pytest.raises(DataError, match="damaged"):
        memory.load_state(state)
    assert values_of(memory.stack_of(0).tensor) == [7]
