"""LwF, iCaRL, WA and BiC: the methods that distil the old network into the grown one."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from foster.data.augmentation.pipeline import Augmentation
from foster.data.feed import ResidentFeed
from foster.data.images import ImageSet
from foster.data.memory import ExemplarMemory
from foster.data.scenario import Scenario
from foster.data.sources import Dataset, load
from foster.data.task import Task
from foster.experiment.folder import RunFolder
from foster.experiment.run import Experiment
from foster.methods.base import Method, Workplace
from foster.methods.bic import BiasCorrection
from foster.methods.icarl import Icarl
from foster.methods.lwf import LearningWithoutForgetting
from foster.methods.wa import WeightAlignment
from foster.networks.bias import BiasCorrectedHead
from foster.networks.freezing import is_frozen
from foster.networks.network import Network
from foster.seeding import Address
from foster.settings.experiment import load_settings
from foster.settings.fit import FitSettings
from foster.settings.methods import BicSettings, IcarlSettings, LwfSettings, WaSettings
from foster.system.signals import StopRequest
from foster.training.engine import Engine
from foster.training.fit import fit
from foster.training.phase import Evaluate, Phase

FIT = FitSettings(epochs=3)
SHORT = FitSettings(epochs=1)
SEED = 17

Build = Callable[[ExemplarMemory, Workplace, FitSettings], Method[Any]]
BUILD: dict[str, Build] = {
    "lwf": lambda memory, workplace, fit: LearningWithoutForgetting(
        LwfSettings(first=fit, later=fit), memory, workplace
    ),
    "icarl": lambda memory, workplace, fit: Icarl(IcarlSettings(first=fit, later=fit), memory, workplace),
    "wa": lambda memory, workplace, fit: WeightAlignment(WaSettings(first=fit, later=fit), memory, workplace),
    "bic": lambda memory, workplace, fit: BiasCorrection(
        BicSettings(first=fit, later=fit, correction=fit), memory, workplace
    ),
}
DISTILLING = ["lwf", "icarl", "wa", "bic"]
WITH_MEMORY = ["icarl", "wa", "bic"]


class Trained(NamedTuple):
    """One phase that was trained, with the network's values before and after."""

    task: Task
    phase: Phase
    before: dict[str, Tensor]
    after: dict[str, Tensor]


@dataclass
class Course:
    """All that a method did in a scenario."""

    method: Method[Any]
    phases: list[Trained] = field(default_factory=list)
    network_after_task: list[dict[str, Tensor]] = field(default_factory=list)

    def named(self, name: str) -> list[Trained]:
        """The phases of this name after the first task."""
        return [trained for trained in self.phases if trained.phase.name == name and not trained.task.is_first]


def values(network: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}


@cache
def digits() -> Scenario:
    """Eighty images of every digit, in tasks of 4, 3 and 3 classes."""
    whole = load("digits")
    few = torch.cat([(whole.train.labels == k).nonzero()[:80, 0] for k in range(10)])
    dataset = Dataset(whole.name, whole.train.select(few), whole.test, whole.mean, whole.std)
    return Scenario(dataset, base_classes=4, increment=3, class_order=range(10))


def engine_for(scenario: Scenario) -> Engine:
    return Engine(torch.device("cpu"), scenario.mean, scenario.std)


def new_method(name: str, fit_settings: FitSettings = SHORT, memory: ExemplarMemory | None = None) -> Method[Any]:
    workplace = Workplace("resnet8", SEED, engine_for(digits()).infer, torch.device("cpu"))
    return BUILD[name](memory or ExemplarMemory(total=60), workplace, fit_settings)


def task_of(method: Method[Any], index: int) -> Task:
    data = digits()[index]
    return Task(index, data.num_known, data.num_new, data.train, method.memory.exemplars(data.train.class_names))


def train(phase: Phase, task: Task) -> Trained:
    before = values(phase.network)
    feed = ResidentFeed(
        phase.data, Augmentation(), 32, Address(SEED, "feed", task.index, phase.name), torch.device("cpu")
    )
    for _ in fit(phase, feed, engine_for(digits()), lambda event: None, task=task.index):
        pass
    return Trained(task, phase, before, values(phase.network))


def learn(method: Method[Any], num_tasks: int) -> Course:
    course = Course(method)
    for index in range(num_tasks):
        task = task_of(method, index)
        for phase in method.phases(task):
            assert not isinstance(phase, Evaluate)
            course.phases.append(train(phase, task))
        course.network_after_task.append(values(method.network))
    return course


@cache
def course_of(name: str) -> Course:
    """All tasks learned, once for all the tests."""
    return learn(new_method(name, FIT), num_tasks=3)


@cache
def short_course_of(name: str) -> Course:
    """Two tasks learned hardly at all: for what does not depend on how well they are learned."""
    return learn(new_method(name), num_tasks=2)


@pytest.mark.parametrize("name", DISTILLING)
def test_the_teacher_is_the_network_before_the_task_and_never_changes(name: str) -> None:
    course = short_course_of(name)
    (learned,) = course.named("learn")
    (teacher,) = learned.phase.teachers
    assert is_frozen(teacher)
    before, now = course.network_after_task[0], teacher.state_dict()
    assert before.keys() == now.keys()
    assert all(torch.equal(before[key], now[key]) for key in before)


def log_softmax(logits: Tensor) -> Tensor:
    return logits - logits.exp().sum(1, keepdim=True).log()


def kd(logits: Tensor, old_logits: Tensor) -> Tensor:
    """KD_2, written out."""
    return (
        -((old_logits / 2).exp() / (old_logits / 2).exp().sum(1, keepdim=True) * log_softmax(logits / 2)).sum(1).mean()
    )


def ce(logits: Tensor, labels: Tensor) -> Tensor:
    return -log_softmax(logits)[torch.arange(len(labels)), labels].mean()


@pytest.mark.parametrize(
    ("name", "weight_ce", "weight_kd"),
    [("lwf", 1, 3), ("icarl", 1, 1), ("wa", 1, 2), ("bic", 3 / 7, 4 / 7)],
)
def test_the_loss_terms_are_those_of_the_published_runs(name: str, weight_ce: float, weight_kd: float) -> None:
    # A course of its own: what is asked of the network below changes its BatchNorm statistics.
    learned = learn(new_method(name), num_tasks=2).named("learn")[0]
    batch = learned.phase.data.select(torch.arange(0, 90, 9))
    images = engine_for(digits()).prepare(batch.images)
    network = copy.deepcopy(learned.phase.network).train()
    logits, old_logits = network(images).logits, learned.phase.teachers[0](images).logits
    num_known = learned.task.num_known
    is_lwf = name == "lwf"
    expected_ce = ce(logits[:, num_known:], batch.labels - num_known) if is_lwf else ce(logits, batch.labels)
    with torch.no_grad():
        learned.phase.network.train()
        terms = learned.phase.objective(images, batch.labels)
    assert terms.keys() == {"L_CE", "L_KD"}
    torch.testing.assert_close(terms["L_CE"], (weight_ce * expected_ce).detach())
    torch.testing.assert_close(terms["L_KD"], (weight_kd * kd(logits[:, :num_known], old_logits)).detach())


@pytest.mark.parametrize("name", DISTILLING)
def test_saved_weights_load_into_a_new_network_of_the_same_tasks(name: str) -> None:
    method = course_of(name).method
    loaded = method.new_network(digits().task_sizes)
    loaded.load_state_dict(method.network.state_dict())
    images = digits()[0].test.images
    saved_output, loaded_output = (method.workplace.infer(network, images) for network in (method.network, loaded))
    assert torch.equal(saved_output.logits, loaded_output.logits)
    assert loaded.num_parameters() == method.network.num_parameters()


@pytest.mark.parametrize("name", WITH_MEMORY)
def test_the_memory_holds_an_equal_share_of_every_class_seen(name: str) -> None:
    assert course_of(name).method.memory.counts.tolist() == [6] * 10


def test_lwf_keeps_no_exemplars_and_learns_from_new_images_alone() -> None:
    course = course_of("lwf")
    assert course.method.memory.num_images == 0
    seen = [sorted(set(trained.phase.data.labels.tolist())) for trained in course.phases]
    assert seen == [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]


def test_icarl_reports_the_nearest_mean_of_exemplars(tmp_path: Path) -> None:
    shape = ["synthetic.num_classes=4", "synthetic.train_per_class=10"]
    changes = ["method=icarl", "dataset=synthetic", *shape, "memory_total=12", "epochs_scale=0.01", "device=cpu"]
    settings = load_settings("digits", changes)
    with RunFolder(tmp_path / "run").opened(settings) as folder:
        experiment = Experiment(settings, folder, lambda event: None, StopRequest())
        results = experiment.run()

    def unit_features(images: Tensor) -> Tensor:
        features = experiment.engine.infer(experiment.method.network, images).features.double()
        lengths: Tensor = features.norm(dim=1, keepdim=True)
        return features / lengths

    memory, test = experiment.method.memory, experiment.scenario.test_up_to(1)
    means = torch.stack([unit_features(memory.of_class(k)).mean(0) for k in range(4)])
    nearest = unit_features(test.images) @ (means / means.norm(dim=1, keepdim=True)).T
    assert results["result"] == "nearest_mean"
    assert results["final_accuracy"] == pytest.approx(100 * (nearest.argmax(1) == test.labels).double().mean().item())
    assert set(results["variants"]) == {"head"}


def test_alignment_gives_new_rows_the_mean_norm_of_old_ones_and_changes_nothing_else() -> None:
    course = course_of("wa")
    for learned in course.named("learn"):
        task, trained = learned.task, learned.after
        aligned = course.network_after_task[task.index]
        norms = aligned["head.weight"].norm(dim=1)
        unaligned_norms = trained["head.weight"].norm(dim=1)
        torch.testing.assert_close(norms[task.num_known :].mean(), norms[: task.num_known].mean())
        torch.testing.assert_close(norms[: task.num_known], unaligned_norms[: task.num_known])
        ratios = aligned["head.weight"][task.num_known :] / trained["head.weight"][task.num_known :]
        torch.testing.assert_close(ratios, ratios.mean().expand_as(ratios))
        assert abs(ratios.mean().item() - 1) > 0.01
        assert all(torch.equal(aligned[key], trained[key]) for key in trained if key != "head.weight")


def test_wa_can_weigh_its_terms_by_the_share_of_known_classes() -> None:
    method = new_method("wa")
    method.settings = WaSettings(weighting="share")
    assert isinstance(method, WeightAlignment)
    assert method.loss_weights(task_of(method, 1)) == pytest.approx((3 / 7, 4 / 7))
    assert method.loss_weights(task_of(method, 2)) == pytest.approx((3 / 10, 7 / 10))


def test_bic_corrects_after_every_task_but_the_first() -> None:
    names = [(trained.task.index, trained.phase.name) for trained in course_of("bic").phases]
    assert names == [(0, "learn"), (1, "learn"), (1, "correct"), (2, "learn"), (2, "correct")]


def test_a_correction_changes_alpha_and_beta_of_the_new_classes_alone() -> None:
    for corrected in course_of("bic").named("correct"):
        newest = f"head.corrections.{corrected.task.index}"
        changed = {key for key, value in corrected.after.items() if not torch.equal(value, corrected.before[key])}
        assert changed == {f"{newest}.alpha", f"{newest}.beta"}
        assert corrected.before[f"{newest}.alpha"].tolist() == [1]
        assert corrected.before[f"{newest}.beta"].tolist() == [0]


def test_a_correction_minimises_the_cross_entropy_of_corrected_logits() -> None:
    corrected = short_course_of("bic").named("correct")[0]
    batch = corrected.phase.data
    images = engine_for(digits()).prepare(batch.images)
    terms = corrected.phase.objective(images, batch.labels)
    assert terms.keys() == {"L_CE"}
    plain = (
        corrected.phase.network.eval()(images).features @ corrected.after["head.weight"].T
        + corrected.after["head.bias"]
    )
    alpha, beta = (corrected.after[f"head.corrections.1.{name}"] for name in ("alpha", "beta"))
    logits = torch.cat([plain[:, :4], alpha * plain[:, 4:] + beta], dim=1)
    torch.testing.assert_close(terms["L_CE"], ce(logits, batch.labels))


def test_learning_moves_no_correction() -> None:
    for learned in course_of("bic").named("learn"):
        corrections = [key for key in learned.before if "corrections" in key]
        assert len(corrections) == 2 * (learned.task.index + 1)
        assert all(torch.equal(learned.before[key], learned.after[key]) for key in corrections)


def test_a_correction_fits_the_validation_images_better() -> None:
    for corrected in course_of("bic").named("correct"):
        network = new_method("bic").new_network(digits().task_sizes[: corrected.task.index + 1])
        losses = []
        for state in (corrected.before, corrected.after):
            network.load_state_dict(state)
            logits = engine_for(digits()).infer(network, corrected.phase.data.images).logits
            losses.append(ce(logits, corrected.phase.data.labels).item())
        assert losses[1] < losses[0]


def test_the_validation_part_is_balanced_and_not_learned_from() -> None:
    course = course_of("bic")
    for learned, corrected in zip(course.named("learn"), course.named("correct"), strict=True):
        held_out = corrected.phase.data.class_counts(learned.task.num_total)
        assert held_out.tolist() == [1] * learned.task.num_total
        training = learned.phase.data.class_counts(learned.task.num_total)
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
    method = new_method("bic")
    assert isinstance(method, BiasCorrection)
    parts = method.split(task)
    assert as_multiset(parts.training, parts.validation) == as_multiset(task.training)
    counts: list[int] = parts.validation.class_counts(task.num_total).tolist()
    return counts


@pytest.mark.parametrize(("num_known", "expected"), [(10, 20), (20, 10), (30, 6), (60, 3), (90, 2)])
def test_a_tenth_of_a_shared_memory_is_held_out(num_known: int, expected: int) -> None:
    task = numbered_task([2000 // num_known] * num_known, [50, 50])
    assert held_out_by(task) == [expected] * (num_known + 2)


def test_the_share_is_of_the_exemplars_in_use_and_never_less_than_one_image_a_class() -> None:
    assert held_out_by(numbered_task([20] * 5, [30])) == [2] * 6
    assert held_out_by(numbered_task([4] * 5, [30])) == [1] * 6


def test_no_class_gives_more_than_it_can_spare() -> None:
    # 0.1 * 123 / 4 = 3 images a class, but the second class keeps its only one and the new class one of its three.
    assert held_out_by(numbered_task([60, 1, 2, 60], [3])) == [3, 0, 1, 3, 2]


@pytest.mark.parametrize(("num_exemplars", "num_new_images"), [([1, 1], [9, 9]), ([9, 9], [1])])
def test_nothing_is_held_out_where_one_side_could_not_be_measured(
    num_exemplars: list[int], num_new_images: list[int]
) -> None:
    task = numbered_task(num_exemplars, num_new_images)
    assert held_out_by(task) == [0] * task.num_total


def test_bic_with_one_exemplar_a_class_learns_without_a_correction() -> None:
    course = learn(new_method("bic", memory=ExemplarMemory(per_class=1)), num_tasks=2)
    assert [trained.phase.name for trained in course.phases] == ["learn", "learn"]
    assert course.method.memory.counts.tolist() == [1] * 7
    assert isinstance(course.method.network, Network)
    assert isinstance(course.method.network.head, BiasCorrectedHead)


def test_validation_images_can_become_exemplars() -> None:
    course = learn(new_method("bic", memory=ExemplarMemory(per_class=80)), num_tasks=2)
    assert len(course.named("correct")[0].phase.data) > 0
    assert course.method.memory.counts.tolist() == [80] * 7


def test_the_split_is_drawn_from_the_seed_and_the_task() -> None:
    def validation(seed: int, index: int) -> list[bytes]:
        workplace = Workplace("resnet8", seed, engine_for(digits()).infer, torch.device("cpu"))
        method = BiasCorrection(BicSettings(), ExemplarMemory(total=60), workplace)
        base = numbered_task([20] * 5, [30])
        task = Task(index, base.num_known, base.num_new, base.new_images, base.exemplars)
        return as_multiset(method.split(task).validation)

    assert validation(1, 1) == validation(1, 1)
    assert validation(1, 1) != validation(2, 1)
    assert validation(1, 1) != validation(1, 2)
