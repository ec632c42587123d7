"""BiC: a correction of new logits, fitted to images that were held out."""

from collections.abc import Sequence

import pytest
import torch
from small_course import CPU, course_of, engine, learn, named_method, normalised
from torch import Tensor
from torch.nn.functional import cross_entropy

from foster.data.images import ImageSet
from foster.data.memory import ExemplarMemory
from foster.data.task import Task
from foster.methods.base import Context
from foster.methods.bic import BiasCorrectedHead, BiasCorrection
from foster.networks import BACKBONES
from foster.networks.network import Network
from foster.settings.methods import BicSettings


def test_a_correction_changes_alpha_and_beta_of_the_new_classes_alone() -> None:
    for corrected in course_of("bic").named("correct"):
        newest = f"head.corrections.{corrected.task.index}"
        changed = {key for key, value in corrected.after.items() if not torch.equal(value, corrected.before[key])}
        assert changed == {f"{newest}.alpha", f"{newest}.beta"}
        assert corrected.before[f"{newest}.alpha"].tolist() == [1]
        assert corrected.before[f"{newest}.beta"].tolist() == [0]


def test_a_correction_minimises_the_cross_entropy_of_corrected_logits() -> None:
    corrected = course_of("bic").named("correct")[0]
    batch = corrected.phase.data
    images = normalised(batch.images)
    terms = corrected.phase.objective(images, batch.labels)
    assert terms.keys() == {"L_CE"}
    plain = (
        corrected.phase.network.eval()(images).features @ corrected.after["head.weight"].T
        + corrected.after["head.bias"]
    )
    alpha, beta = (corrected.after[f"head.corrections.1.{name}"] for name in ("alpha", "beta"))
    logits = torch.cat([plain[:, :4], alpha * plain[:, 4:] + beta], dim=1)
    torch.testing.assert_close(terms["L_CE"], cross_entropy(logits, batch.labels))


def test_learning_moves_no_correction() -> None:
    for learned in course_of("bic").named("learn"):
        corrections = [key for key in learned.before if "corrections" in key]
        assert len(corrections) == 2 * (learned.task.index + 1)
        assert all(torch.equal(learned.before[key], learned.after[key]) for key in corrections)


def test_the_validation_part_is_balanced_and_not_learned_from() -> None:
    course = course_of("bic")
    for learned, corrected in zip(course.named("learn"), course.named("correct"), strict=True):
        held_out = corrected.phase.data.class_counts()
        assert held_out.tolist() == [1] * learned.task.num_total
        training = learned.phase.data.class_counts()
        assert torch.equal(training + held_out, learned.task.class_counts)
        assert as_multiset(learned.phase.data, corrected.phase.data) == as_multiset(learned.task.training)


def as_multiset(*sets: ImageSet) -> list[bytes]:
    return sorted(image.numpy().tobytes() for images in sets for image in images.images)


def numbered_task(num_exemplars: Sequence[int], num_new_images: Sequence[int]) -> Task:
    """A later task of tiny images that are all different, with these numbers of images for each class."""
    counts = torch.tensor([*num_new_images, *num_exemplars])
    num_known, num_new = len(num_exemplars), len(num_new_images)
    ids = torch.tensor([*range(num_known, num_known + num_new), *range(num_known)])
    labels = ids.repeat_interleave(counts)
    number = torch.arange(len(labels))
    pixels = torch.stack([number % 256, number // 256, labels], dim=1).to(torch.uint8).reshape(-1, 3, 1, 1)
    images = ImageSet(pixels, labels, tuple(str(k) for k in range(num_known + num_new)))
    is_new = labels >= num_known
    return Task(1, num_known, num_new, images.select(is_new), images.select(~is_new))


def held_out_by(task: Task) -> list[int]:
    method = named_method("bic")
    assert isinstance(method, BiasCorrection)
    training, validation = method.split(task)
    assert as_multiset(training, validation) == as_multiset(task.training)
    counts: list[int] = validation.class_counts().tolist()
    return counts


@pytest.mark.parametrize(("num_known", "expected"), [(10, 20), (20, 10), (30, 6), (60, 3), (90, 2)])
def test_a_tenth_of_a_shared_memory_is_held_out(num_known: int, expected: int) -> None:
    task = numbered_task([2000 // num_known] * num_known, [50, 50])
    assert held_out_by(task) == [expected] * (num_known + 2)


def test_no_class_gives_more_than_it_can_spare() -> None:
    # 0.1 * 123 / 4 = 3 images a class, but the second class keeps its only one and the new class one of its three.
    assert held_out_by(numbered_task([60, 1, 2, 60], [3])) == [3, 0, 1, 3, 2]


@pytest.mark.parametrize(("num_exemplars", "num_new_images"), [([1, 1], [9, 9]), ([9, 9], [1])])
def test_nothing_is_held_out_where_one_side_could_not_be_measured(
    num_exemplars: list[int], num_new_images: list[int]
) -> None:
    task = numbered_task(num_exemplars, num_new_images)
    assert held_out_by(task) == [0] * task.num_total
    assert held_out_by(Task(1, task.num_known, task.num_new, task.new_images)) == [0] * task.num_total


def test_bic_with_one_exemplar_a_class_learns_without_a_correction() -> None:
    course = learn(named_method("bic", memory=ExemplarMemory(per_class=1)), num_tasks=2)
    assert [trained.phase.name for trained in course.phases] == ["learn", "learn"]
    assert course.method.memory.counts.tolist() == [1] * 6
    assert isinstance(course.method.network, Network)
    assert isinstance(course.method.network.head, BiasCorrectedHead)


def test_the_split_is_drawn_from_the_seed_and_the_task() -> None:
    def validation(seed: int, index: int) -> list[bytes]:
        context = Context(BACKBONES["resnet8"], seed, engine().infer, CPU)
        method = BiasCorrection(BicSettings(), ExemplarMemory(total=60), context)
        base = numbered_task([20] * 5, [30])
        task = Task(index, base.num_known, base.num_new, base.new_images, base.exemplars)
        return as_multiset(method.split(task)[1])

    assert validation(1, 1) == validation(1, 1)
    assert validation(1, 1) != validation(2, 1)
    assert validation(1, 1) != validation(1, 2)


def features() -> Tensor:
    return torch.tensor([[1.0, 2.0], [0.0, -1.0]])


def corrected_head() -> BiasCorrectedHead:
    head = BiasCorrectedHead(2, (2, 1))
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
        head.bias.copy_(torch.tensor([0.0, 1.0, -1.0]))
        head.newest.alpha.fill_(0.5)
        head.newest.beta.fill_(-3)
    return head


def test_each_task_has_its_own_correction() -> None:
    # Plain logits are (1, 3, 2) and (0, 0, -2); only the last class belongs to the corrected task.
    assert corrected_head()(features()).tolist() == [[1.0, 3.0, -2.0], [0.0, 0.0, -4.0]]


def test_a_grown_head_keeps_rows_and_corrections_and_starts_uncorrected_for_new_classes() -> None:
    head = corrected_head()
    grown = head.grown(2)
    assert grown.task_sizes == (2, 1, 2)
    assert torch.equal(grown(features())[:, :3], head(features()))
    assert grown.alpha.tolist() == [1, 1, 0.5, 1, 1]
    assert grown.beta.tolist() == [0, 0, -3, 0, 0]
    with torch.no_grad():
        grown.newest.alpha.fill_(7)
        grown.weight.zero_()
    assert head.alpha.tolist() == [1, 1, 0.5]
    assert head.weight.any()
