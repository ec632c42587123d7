"""FOSTER: its phases, trained for real on small data, and every switch of its settings."""

from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pytest
import torch
from small_course import Trained, train, values
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from foster.data.augmentation.mixing import cutmix
from foster.data.images import ImageSet, Stack
from foster.data.memory import ExemplarMemory, select
from foster.data.scenario import Scenario
from foster.data.sources import Dataset
from foster.data.task import Task
from foster.methods.base import Context
from foster.methods.foster import Foster
from foster.networks import BACKBONES, build_backbone
from foster.networks.boosted import BoostedNetwork
from foster.networks.modules import is_frozen
from foster.networks.network import Network, Output
from foster.seeding import Address, generator
from foster.settings.experiment import load_settings
from foster.settings.fit import FitSettings
from foster.settings.methods import FosterSettings
from foster.training.engine import Engine
from foster.training.phase import Evaluate, Phase

CPU = torch.device("cpu")
FIT = FitSettings(epochs=1, learning_rate=0.05)
CLASSES_A_TASK, QUOTA = 2, 5


@cache
def scenario() -> Scenario:
    """Six classes of twelve images, each a pattern with noise, in three tasks."""
    chance = torch.Generator().manual_seed(3)
    names = tuple("abcdef")
    patterns = torch.rand(6, 1, 3, 8, 8, generator=chance)

    def draw(num_per_class: int) -> ImageSet:
        noise = torch.rand(6, num_per_class, 3, 8, 8, generator=chance)
        pixels = (255 * (0.7 * patterns + 0.3 * noise)).to(torch.uint8).flatten(0, 1)
        return ImageSet(pixels, torch.arange(6).repeat_interleave(num_per_class), names)

    dataset = Dataset(draw(12), draw(4), mean=(0.5,) * 3, std=(0.25,) * 3)
    return Scenario(dataset, "patterns", range(6), [CLASSES_A_TASK] * 3)


def options(**changes: Any) -> FosterSettings:
    return FosterSettings(**{"first": FIT, "boost": FIT, "compress": FIT, **changes})


@dataclass
class Course:
    """All that FOSTER did: trained phases, wanted evaluations, networks that chose exemplars, results of each task."""

    method: Foster
    trained: list[Trained] = field(default_factory=list)
    evaluated: list[tuple[int, str, nn.Module]] = field(default_factory=list)
    choosers: list[nn.Module] = field(default_factory=list)
    networks: list[Network] = field(default_factory=list)
    story: list[str] = field(default_factory=list)

    def phase(self, name: str, task: int = 1) -> Trained:
        (found,) = [entry for entry in self.trained if (entry.phase.name, entry.task.index) == (name, task)]
        return found

    @property
    def boosted(self) -> BoostedNetwork:
        """The boosted network of the second task, as it was evaluated."""
        (found,) = [network for task, variant, network in self.evaluated if (task, variant) == (1, "boosted")]
        assert isinstance(found, BoostedNetwork)
        return found


def follow(settings: FosterSettings, num_tasks: int = 2, unlabeled: ImageSet | None = None) -> Course:
    """Learn the first tasks as a run does: train every phase when it is yielded."""
    engine = Engine(CPU, scenario().mean, scenario().std)

    def infer(network: nn.Module, images: Stack) -> Output:
        course.choosers.append(network)
        course.story.append("remember")
        return engine.infer(network, images)

    context = Context(BACKBONES["resnet8"], 11, infer, CPU, "herding", unlabeled)
    course = Course(Foster(settings, ExemplarMemory(per_class=QUOTA), context))
    for index in range(num_tasks):
        data = scenario()[index]
        task = replace(data, exemplars=course.method.memory.exemplars(data.class_names))
        for part in course.method.phases(task):
            if isinstance(part, Evaluate):
                course.evaluated.append((index, part.variant, part.network))
                course.story.append(f"evaluate {part.variant}")
            else:
                course.story.append(part.name)
                course.trained.append(train(part, task, engine, batch_size=16))
        course.networks.append(course.method.network)
    return course


@cache
def default() -> Course:
    """FOSTER as published, over all three tasks."""
    return follow(options(), num_tasks=3)


def mean_norms(weight: Tensor, num_known: int) -> tuple[float, float]:
    norms = weight.detach().norm(dim=1)
    return norms[:num_known].mean().item(), norms[num_known:].mean().item()


def batch_of(phase: Phase) -> tuple[Tensor, Tensor]:
    """Some normalised images of the phase's data, old and new classes mixed."""
    some = phase.data.select(torch.arange(0, len(phase.data), 3))
    return (some.images.float() / 255 - 0.5) / 0.25, some.labels


def weights_by_hand(counts: list[int], beta: float) -> Tensor:
    """REFERENCE 4.2: u_c = (1 - beta) / (1 - beta^n_c), w_c = C u_c / sum u."""
    shares = [(1 - beta) / (1 - beta**count) for count in counts]
    return torch.tensor([len(counts) * share / sum(shares) for share in shares])


COUNTS = [QUOTA, QUOTA, 12, 12]
"""Training images of each class in the second task."""


def test_a_task_is_boosted_evaluated_and_compressed() -> None:
    later = ["boost", "remember", "evaluate boosted", "compress"]
    assert default().story == ["learn", "remember", "evaluate boosted", *later, *later]
    assert default().method.result_name == "compressed"


def test_boosting_leaves_the_old_network_bit_identical_with_its_statistics() -> None:
    for task in (1, 2):
        boost = default().phase("boost", task)
        assert any("running_mean" in name for name in boost.before if name.startswith("old."))
        assert boost.changed("old.") == {False}
        old = {name.removeprefix("old."): value for name, value in boost.after.items() if name.startswith("old.")}
        for name, value in default().networks[task - 1].state_dict().items():
            assert torch.equal(old[name], value), f"the old network is the result of the task before: {name}"


def test_boosting_trains_the_new_branch_with_its_statistics_and_every_block_of_the_head() -> None:
    boost = default().phase("boost")
    for part in ("new_branch.", "new_branch_head.", "old_block", "new_on_old", "new_block", "old_bias", "new_bias"):
        assert boost.changed(part) == {True}, part


def test_compression_starts_from_the_old_network_and_leaves_the_teacher_as_it_was() -> None:
    compress, boost = default().phase("compress"), default().phase("boost")
    for name, value in compress.before.items():
        old = boost.after[f"old.{name}"]
        assert torch.equal(value[: len(old)] if name.startswith("head.") else value, old), name
    (teacher,) = compress.phase.teachers
    assert teacher is default().boosted
    for name, value in teacher.state_dict().items():
        assert torch.equal(value, boost.after[name]), name
    assert compress.changed("branches.") == {True}
    assert compress.changed("head.") == {True}


def test_the_boosting_loss_is_that_of_the_paper() -> None:
    course = follow(options(beta_boost=0.9, temperature=3.0))
    boost = course.phase("boost")
    images, labels = batch_of(boost.phase)
    boosted = course.boosted.eval()
    with torch.no_grad():
        found = boost.phase.objective(images, labels)
        out = boosted(images)
    gamma = 1 / weights_by_hand(COUNTS, 0.9)
    assert gamma[0] < 1 < gamma[3]
    expected = {
        "L_LA": cross_entropy(out.logits * gamma, labels).item(),
        "L_FE": cross_entropy(out.new_branch_logits, labels).item(),
        "L_KD": cross_entropy(out.logits[:, :2] / 3, (out.old_logits / 3).softmax(1)).item(),
    }
    assert {name: value.item() for name, value in found.items()} == pytest.approx(expected, rel=1e-4)
    assert boost.losses.keys() == {*expected, "total"}


@pytest.mark.parametrize("kind", ["balanced", "paper", "plain"])
def test_the_compression_loss_is_the_chosen_one(kind: str) -> None:
    course = follow(options(compress_with=kind, beta_compress=0.9, temperature=3.0))
    compress = course.phase("compress")
    images, labels = batch_of(compress.phase)
    course.method.network.eval()
    with torch.no_grad():
        found = compress.phase.objective(images, labels)
        student, teacher = course.method.network(images).logits, course.boosted(images).logits
    weights = weights_by_hand(COUNTS, 0.9)
    raw = (teacher / 3).softmax(1) * weights
    unscaled = teacher.softmax(1) * weights
    expected = {
        "balanced": cross_entropy(student / 3, raw / raw.sum(1, keepdim=True)).item(),
        "paper": cross_entropy(student, unscaled).item() + (unscaled * unscaled.log()).sum(1).mean().item(),
        "plain": cross_entropy(student / 3, (teacher / 3).softmax(1)).item(),
    }
    assert len({round(value, 4) for value in expected.values()}) == 3
    assert {name: value.item() for name, value in found.items()} == pytest.approx({"L_BKD": expected[kind]}, rel=1e-4)
    assert compress.losses.keys() == {"L_BKD", "total"}


PUBLISHED_SCALES = [
    ("cifar100-b0-inc10", 5, 40, (50, 10), (0.9674, 1.2023), (0.4459, 0.5541), (1.0518, 0.7408)),
    ("cifar100-b0-inc20", 4, 25, (80, 20), (0.9574, 1.2164), (0.4404, 0.5596), (1.1030, 0.5879)),
    ("cifar100-b50-inc10", 1, 20, (50, 10), (0.9516, 1.3406), (0.4152, 0.5848), (1.0997, 0.5017)),
    ("cifar100-b50-inc2", 1, 20, (50, 2), (0.9862, 1.5373), (0.3908, 0.6092), (1.0214, 0.4660)),
]
"""REFERENCE 4.2: preset, task, exemplars a class, classes; gamma as in the code and the paper, weights of L_BKD."""


@pytest.mark.parametrize(("preset", "index", "held", "classes", "code", "paper", "balance"), PUBLISHED_SCALES)
def test_the_scales_of_the_presets_are_the_published_ones(
    preset: str,
    index: int,
    held: int,
    classes: tuple[int, int],
    code: tuple[float, float],
    paper: tuple[float, float],
    balance: tuple[float, float],
) -> None:
    """The beta of the right task, and the number of images that each class really has."""
    num_known, num_new = classes
    names = tuple(str(k) for k in range(num_known + num_new))

    def dots(first: int, last: int, count: int) -> ImageSet:
        labels = torch.arange(first, last).repeat_interleave(count)
        return ImageSet(torch.zeros(len(labels), 3, 1, 1, dtype=torch.uint8), labels, names)

    task = Task(index, num_known, num_new, dots(num_known, num_known + num_new, 500), dots(0, num_known, held))
    context = Context(BACKBONES["resnet8"], 0, Engine(CPU, (0.5,) * 3, (0.5,) * 3).infer, CPU)

    def method(*overrides: str) -> Foster:
        chosen = load_settings(preset, overrides).options
        assert isinstance(chosen, FosterSettings)
        return Foster(chosen, ExemplarMemory(), context)

    for overrides, expected in (((), code), (("foster.gamma=paper",), paper)):
        scales = method(*overrides).scales(task)
        assert scales.shape == (num_known + num_new,)
        assert scales[[0, num_known - 1]].tolist() == pytest.approx([expected[0]] * 2, abs=6e-5)
        assert scales[[num_known, -1]].tolist() == pytest.approx([expected[1]] * 2, abs=6e-5)
    # Where the teacher is undecided between an old and a new class, the weights alone decide.
    logits = torch.full((1, num_known + num_new), -200.0)
    logits[0, 0] = logits[0, -1] = 0
    student = torch.zeros_like(logits)
    student[0, 0] = 2.0
    share = balance[0] / sum(balance)
    log_sum = torch.logsumexp(student / 2, 1).item()
    expected_loss = -(share * (1 - log_sum) + (1 - share) * (0 - log_sum))
    assert method().compression_loss(task)(student, logits).item() == pytest.approx(expected_loss, abs=2e-4)


def test_without_feature_enhancement_or_distillation_their_terms_are_gone() -> None:
    boost = follow(options(feature_enhancement=False, distillation=False)).phase("boost")
    assert boost.losses.keys() == {"L_LA", "total"}
    only_kd = follow(options(feature_enhancement=False)).phase("boost")
    assert only_kd.losses.keys() == {"L_LA", "L_KD", "total"}
    assert only_kd.changed("new_branch_head.") == {False}


@pytest.mark.parametrize("alignment", ["none", "weights"])
def test_only_alignment_of_logits_scales_them(alignment: str) -> None:
    course = follow(options(alignment=alignment, beta_boost=0.9))
    task = course.phase("boost").task
    assert course.method.scales(task).tolist() == [1, 1, 1, 1]
    images, labels = batch_of(course.phase("boost").phase)
    with torch.no_grad():
        course.boosted.eval()
        found = course.phase("boost").phase.objective(images, labels)["L_LA"].item()
        assert found == pytest.approx(cross_entropy(course.boosted(images).logits, labels).item(), rel=1e-4)
    old, new = mean_norms(course.boosted.weight, 2)
    assert (old == pytest.approx(new, rel=1e-5)) == (alignment == "weights")


def test_more_images_of_known_classes_alone_bring_no_rows_to_align() -> None:
    method = follow(options(alignment="weights"), num_tasks=1).method
    before = values(method.network)
    task = Task(1, 2, 0, scenario()[0].new_images, method.memory.exemplars(("a", "b")))
    assert [part.name for part in method.phases(task) if isinstance(part, Phase)] == ["boost", "compress"]
    for name, value in method.network.state_dict().items():
        assert torch.equal(value, before[name]), f"nothing was trained here: {name}"


def test_blocks_of_the_head_are_held_as_the_settings_say() -> None:
    boost = follow(options(new_on_old="zero_with_bias", train_old_block=False)).phase("boost")
    is_trained = {"new_on_old": False, "new_bias": True, "new_block": True, "old_block": False, "old_bias": False}
    assert {name: boost.changed(name) for name in is_trained} == {name: {is_one} for name, is_one in is_trained.items()}
    assert not boost.after["new_on_old"].any()


def test_without_compression_the_network_grows_by_a_backbone_a_task() -> None:
    course = follow(options(compression=False, herding_features="compressed"), num_tasks=3)
    assert "compress" not in course.story
    assert course.method.memory.num_classes == 6, "exemplars are chosen by the only network that there is"
    assert [len(network.branches) for network in course.networks] == [1, 2, 3]
    assert (course.method.result_name, len(course.method.new_network([2] * 3).branches)) == ("boosted", 3)
    backbone = sum(parameter.numel() for parameter in build_backbone("resnet8").parameters())
    assert [network.num_parameters() for network in course.networks] == [
        backbone * (task + 1) + 2 * (task + 1) * (64 * (task + 1) + 1) for task in range(3)
    ]
    images, _ = batch_of(course.phase("boost", 2).phase)
    boosted = course.evaluated[-1][2].eval()
    with torch.no_grad():
        torch.testing.assert_close(course.method.network.eval()(images).logits, boosted(images).logits)


@pytest.mark.parametrize("choice", ["boosted", "compressed"])
def test_exemplars_are_chosen_by_the_features_of_the_chosen_network(choice: str) -> None:
    course = follow(options(herding_features=choice))
    order = ["boost", "remember", "evaluate boosted", "compress"]
    assert course.story[3:] == (order if choice == "boosted" else [*order[:1], *order[2:], "remember"])
    chooser = course.boosted if choice == "boosted" else course.method.network
    assert course.choosers[-1] is chooser
    engine = Engine(CPU, scenario().mean, scenario().std)
    chosen = select(
        lambda images: engine.infer(chooser, images).features,
        scenario()[1].new_images,
        [2, 3],
        QUOTA,
        "herding",
        generator(Address(0, "unused")),
    )
    for class_id, images in chosen.items():
        assert torch.equal(course.method.memory.stack_of(class_id).tensor, images.images)


def test_unlabeled_images_are_for_compression_alone() -> None:
    extra = ImageSet(torch.randint(256, (9, 3, 8, 8), dtype=torch.uint8), torch.full((9,), -1), ())
    course = follow(options(), unlabeled=extra)
    compress, boost = course.phase("compress").phase.data, course.phase("boost").phase.data
    assert int((compress.labels == -1).sum()) == 9
    assert torch.equal(compress.images[compress.labels == -1], extra.images)
    assert torch.equal(compress.select(compress.labels >= 0).images, boost.images)
    assert int((boost.labels == -1).sum()) == 0
    assert int((course.phase("learn", 0).phase.data.labels == -1).sum()) == 0
    assert course.phase("compress").task.class_counts.tolist() == COUNTS
    assert course.method.memory.num_images == 4 * QUOTA
    same_until_then = default().phase("boost").after
    assert all(torch.equal(value, same_until_then[name]) for name, value in course.phase("boost").after.items())


def test_several_branches_are_boosted_one_after_the_other_and_their_mean_is_compressed() -> None:
    course = follow(options(boost_branches=2, alignment="weights"))
    assert course.story[3:] == ["boost", "boost-2", "remember", "evaluate boosted", "compress"]
    first, second, compress = (course.phase(name) for name in ("boost", "boost-2", "compress"))
    (teacher,) = compress.phase.teachers
    images, _ = batch_of(compress.phase)
    with torch.no_grad():
        parts = [phase.phase.network.eval()(images).logits for phase in (first, second)]
        torch.testing.assert_close(teacher(images).logits, sum(parts) / 2)
    for phase in (first, second):
        old, new = mean_norms(phase.phase.network.weight, 2)
        assert old == pytest.approx(new, rel=1e-5), "each is aligned"
    assert not torch.allclose(*parts), "the branches have learned different things"
    blocks = [phase.before["new_block"] for phase in (first, second)]
    assert not torch.equal(*blocks), "and have started from different heads"
    assert (1, "boosted", teacher) in course.evaluated
    assert course.choosers[-1] is teacher
    assert len(course.method.network.branches) == 1
    for trained in (first, second):
        assert all(torch.equal(first.before[name], trained.before[name]) for name in first.before if "branches" in name)


def test_a_kept_boosted_network_gives_the_same_logits_again() -> None:
    course = follow(options(sums="probabilities"))
    images, _ = batch_of(course.phase("boost").phase)
    kept = course.method.network_of("boosted", [2, 2], course.boosted.state_dict()).eval()
    with torch.no_grad():
        torch.testing.assert_close(kept(images).logits, course.boosted.eval()(images).logits)


def test_the_student_and_its_teacher_see_the_same_mixed_images(monkeypatch: pytest.MonkeyPatch) -> None:
    course = follow(options(compress_cutmix=0.25))
    compress = course.phase("compress")
    images, labels = batch_of(compress.phase)
    mixed = cutmix(images, 1.0)
    monkeypatch.setattr("foster.methods.foster.cutmix", lambda images, share: mixed if share == 0.25 else images)
    course.method.network.eval()
    with torch.no_grad():
        found = compress.phase.objective(images, labels)["L_BKD"].item()
        student, teacher = course.method.network(mixed).logits, course.boosted(mixed).logits
    settings = course.method.settings
    targets = (teacher / settings.temperature).softmax(1) * weights_by_hand(COUNTS, settings.beta_of_compression)
    targets /= targets.sum(1, keepdim=True)
    assert found == pytest.approx(cross_entropy(student / settings.temperature, targets).item(), rel=1e-4)


@pytest.mark.parametrize("num_branches", [1, 2])
def test_the_old_network_may_teach_the_known_classes_beside_the_teacher(num_branches: int) -> None:
    course = follow(options(compress_old_weight=0.5, boost_branches=num_branches))
    compress, old = course.phase("compress"), course.networks[0].eval()
    images, labels = batch_of(compress.phase)
    course.method.network.eval()
    with torch.no_grad():
        found = compress.phase.objective(images, labels)["L_OLD"].item()
        student, targets = course.method.network(images).logits[:, :2], (old(images).logits / 2).softmax(1)
    assert found == pytest.approx(0.5 * cross_entropy(student / 2, targets).item(), rel=1e-4)
    assert compress.losses.keys() == {"L_BKD", "L_OLD", "total"}


def test_the_first_network_divides_the_probability_of_its_classes_for_the_student(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("foster.settings.methods.FEW_NEW", 10)
    course = follow(options(recall_first=True))
    compress, first = course.phase("compress"), course.networks[0]
    assert compress.phase.teachers == (course.boosted, course.method.first)
    assert is_frozen(first)
    assert not first.training
    images, labels = batch_of(compress.phase)
    course.method.network.eval()
    with torch.no_grad():
        found = compress.phase.objective(images, labels)["L_BKD"].item()
        student, teacher, of_first = (
            network(images).logits for network in (course.method.network, course.boosted, first)
        )
    settings, probability = course.method.settings, teacher.softmax(1)
    weights, temperature = weights_by_hand(COUNTS, settings.beta_of_compression), settings.temperature
    num_first = of_first.shape[1]
    probability[:, :num_first] = probability[:, :num_first].sum(1, keepdim=True) * of_first.softmax(1)
    targets = (probability.log() / temperature).softmax(1) * weights
    targets /= targets.sum(1, keepdim=True)
    assert found == pytest.approx(cross_entropy(student / temperature, targets).item(), rel=1e-4)


@pytest.mark.parametrize(
    ("num_known", "labels", "teaches"),
    [(21, [21, 22], True), (20, [20, 21], False), (21, [1, 21, 22], False), (21, [2, 21, 22], True)],
    ids=["few new classes", "a tenth", "more images of a first class", "more images of a later class"],
)
def test_the_first_network_teaches_beside_few_new_classes(num_known: int, labels: list[int], teaches: bool) -> None:
    method = follow(options(recall_first=True), num_tasks=1).method
    names = tuple(map(str, range(num_known + 2)))
    task = Task(
        5, num_known, 2, ImageSet(torch.zeros(len(labels), 3, 8, 8, dtype=torch.uint8), torch.tensor(labels), names)
    )
    assert method.recalls_first(task) == teaches
    method.first = None
    assert not method.recalls_first(task)
