"""COIL: classifiers transported between similar classes, on the images that a task may see."""

import numpy as np
import pytest
import torch
from small_course import SHORT, digits, learn, new_method, normalised, task_of, terms
from torch import Tensor
from torch.nn import functional

from foster.data.images import ImageSet
from foster.data.task import Task
from foster.evaluation.predict import class_means
from foster.losses import cosines, cross_entropy, distillation
from foster.methods.coil import Coil, sinkhorn, transported
from foster.methods.cosine import cosine_head
from foster.networks.modules import is_frozen
from foster.settings.fit import FitSettings
from foster.settings.methods import CoilSettings
from foster.training.phase import Evaluate, Phase

LATER = FitSettings(epochs=4, learning_rate=0.05)


def coil(entropy: float = 0.464) -> Coil:
    settings = CoilSettings(first=SHORT, later=LATER, sinkhorn=entropy, transport_weight=0.5)
    method = new_method(Coil, settings)
    assert isinstance(method, Coil)
    return method


def first_phase(method: Coil, task: Task) -> Phase:
    phase = next(iter(method.phases(task)))
    assert not isinstance(phase, Evaluate)
    return phase


def test_a_new_class_starts_from_the_classifier_of_the_known_class_that_it_resembles() -> None:
    method = coil(entropy=0.005)
    learn(method, 1)
    known = cosine_head(method.network).proxies.detach().squeeze(1)
    # Two new classes whose images are those of the known classes 2 and 0.
    twins = torch.cat([method.memory.stack_of(2).tensor, method.memory.stack_of(0).tensor])
    labels = torch.tensor([4] * 6 + [5] * 6)
    names = digits().class_names[:6]
    task = Task(1, 4, 2, ImageSet(twins, labels, names), method.memory.exemplars(names))
    first_phase(method, task)
    new = cosine_head(method.network).new_proxies.detach().squeeze(1)
    assert new.norm(dim=1).mean().item() == pytest.approx(known.norm(dim=1).mean().item())
    started = functional.normalize(new)
    similarity = started @ functional.normalize(known).T
    # Each column takes as much as each row gives, so a new class starts from two known ones, its twin among them.
    assert (similarity[0, 2] > similarity[1, 2]).item()
    assert (similarity[1, 0] > similarity[0, 0]).item()
    assert 2 in similarity[0].topk(2).indices
    assert 0 in similarity[1].topk(2).indices


def distance_from_best(plan: torch.Tensor, known: torch.Tensor, new: torch.Tensor) -> float:
    """How far a plan is from the best one between these centres of classes; 0 for the best one itself."""
    cost = (known[:, None] - new[None]).abs().pow(3).sum(2).pow(1 / 3)
    # Of all plans with these shares, log P + cost / entropy is a sum of a row and a column part for the right one.
    potential = plan.log() + cost / 0.464
    mixed = potential - potential.mean(0, keepdim=True) - potential.mean(1, keepdim=True) + potential.mean()
    return mixed.abs().max().item()


def test_the_plan_comes_from_centres_of_new_images_and_exemplars_in_the_old_network() -> None:
    method = coil()
    learn(method, 1)
    task, old = task_of(method, 1), method.network
    plan = method.plan(task, old)
    assert plan.shape == (4, 2)
    torch.testing.assert_close(plan.sum(0), torch.full((2,), 1 / 2))
    torch.testing.assert_close(plan.sum(1), torch.full((4,), 1 / 4))
    assert task.exemplars is not None
    known = class_means(method.context.infer(old, task.exemplars.images).features, task.exemplars.labels, 4)
    new = class_means(method.context.infer(old, task.new_images.images).features, task.new_images.labels - 4, 2)
    assert distance_from_best(plan, known, new) < 1e-4


def test_the_base_loss_weighs_distillation_by_the_share_of_known_classes() -> None:
    method = coil()
    learn(method, 1)
    teacher, task = method.network, task_of(method, 1)
    phase = first_phase(method, task)
    cosine_head(method.network).scale.data.mul_(3)  # else old and new would agree on known classes before any training
    found = terms(phase, task)
    images = normalised(task.training.images)
    old, new = teacher.eval()(images), method.network.eval()(images)
    share = 4 / 6
    assert found["L_KD"] == pytest.approx(share * distillation(new.logits[:, :4], old.logits, 2.0).item())
    assert found["L_CE"] == pytest.approx((1 - share) * cross_entropy(new.logits, task.training.labels).item())


@pytest.mark.parametrize(
    ("epoch", "prospective_weight", "retrospective_weight"),
    [(0, 0.5, 0.0), (1, 0.0, 0.5 * (1 / 4) ** 2), (3, 0.0, 0.5 * (3 / 4) ** 2)],
)
def test_both_transports_are_weighted_distillations_between_scaled_cosines(
    epoch: int, prospective_weight: float, retrospective_weight: float
) -> None:
    method = coil()
    learn(method, 1)
    teacher, task = method.network, task_of(method, 1)
    plan = method.plan(task, teacher)
    phase = first_phase(method, task)
    head, images = cosine_head(method.network), normalised(task.training.images)
    prospect = head.new_proxies.detach().squeeze(1).clone()
    chance = torch.Generator().manual_seed(1)
    with torch.no_grad():  # away from the start, where features and new classifiers are those of the old network
        for parameter in (head.new_proxies, *method.network.branches.parameters()):
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=chance))
        head.scale.fill_(7.0)
    assert phase.on_epoch is not None
    phase.on_epoch(epoch)
    found = terms(phase, task)
    old, new = teacher.eval()(images), method.network.eval()(images)
    features, retrospect = new.features, transported(plan.T, head.new_proxies.detach().squeeze(1))

    def towards(target_logits: torch.Tensor, logits: torch.Tensor) -> float:
        return functional.cross_entropy(logits / 2, (target_logits / 2).softmax(1)).item()

    prospective = towards(7 * cosines(features, prospect), 7 * cosines(features, head.new_proxies.squeeze(1)))
    retrospective = towards(old.logits, 7 * cosines(features, retrospect))
    assert found["L_PT"] == pytest.approx(prospective_weight * prospective, rel=1e-4)
    assert found["L_RT"] == pytest.approx(retrospective_weight * retrospective, rel=1e-4)


def test_retrospective_transport_teaches_features_and_new_classifiers_but_not_the_teacher() -> None:
    method = coil()
    learn(method, 1)
    teacher, task = method.network, task_of(method, 1)
    phase = first_phase(method, task)
    assert phase.teachers == (teacher,)
    assert is_frozen(teacher)
    assert phase.on_epoch is not None
    phase.on_epoch(3)
    phase.objective(normalised(task.training.images[:16]), task.training.labels[:16])["L_RT"].backward()
    head = cosine_head(method.network)
    assert head.new_proxies.grad is not None
    assert (head.new_proxies.grad != 0).any()
    assert head.old_proxies.grad is None
    assert head.old_proxies.requires_grad, "the base loss trains known classifiers"
    assert head.scale.grad is None
    assert (next(method.network.branches[0].parameters()).grad != 0).any()
    assert all(parameter.grad is None for parameter in teacher.parameters())


def test_a_known_class_without_exemplars_is_represented_by_its_classifier() -> None:
    method = coil()
    learn(method, 1)
    method.memory.remember(1, method.memory.stack_of(1).tensor[:0])
    task, old = task_of(method, 1), method.network
    centres = class_means(method.context.infer(old, task.training.images).features, task.training.labels, 6)
    assert not centres[1].isfinite().any()
    classifier = cosine_head(method.network).proxies.detach()[1, 0]
    centres[1] = classifier / classifier.norm()
    assert distance_from_best(method.plan(task, old), centres[:4], centres[4:]) < 1e-4
    assert all(torch.tensor(value).isfinite() for value in terms(first_phase(method, task), task).values())


def random_cost(num_rows: int, num_columns: int) -> Tensor:
    return torch.rand(num_rows, num_columns, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("num_rows", "num_columns"), [(90, 10), (50, 2), (3, 7), (1, 4), (5, 1)])
def test_every_class_gives_and_receives_its_equal_share(num_rows: int, num_columns: int) -> None:
    plan = sinkhorn(2 * random_cost(num_rows, num_columns), entropy=0.464)
    assert plan.shape == (num_rows, num_columns)
    assert (plan > 0).all()
    torch.testing.assert_close(plan.sum(1), torch.full((num_rows,), 1 / num_rows))
    torch.testing.assert_close(plan.sum(0), torch.full((num_columns,), 1 / num_columns))


def test_little_entropy_gives_the_plan_of_least_cost() -> None:
    num_rows, num_columns = 6, 4
    cost = random_cost(num_rows, num_columns).double()
    plan = sinkhorn(cost, entropy=0.002, num_rounds=1000)
    rows = np.kron(np.eye(num_rows), np.ones(num_columns))
    columns = np.kron(np.ones(num_rows), np.eye(num_columns))
    shares = np.concatenate([np.full(num_rows, 1 / num_rows), np.full(num_columns, 1 / num_columns)])
    from scipy.optimize import linprog

    exact = linprog(cost.flatten().numpy(), A_eq=np.concatenate([rows, columns]), b_eq=shares)
    assert (plan * cost).sum().item() == pytest.approx(exact.fun, abs=1e-3)


def test_costs_that_underflow_outside_the_log_domain_are_no_trouble() -> None:
    cost = 1e6 * (1 - torch.eye(5))
    torch.testing.assert_close(sinkhorn(cost, entropy=0.1), torch.eye(5) / 5)


def test_classifiers_are_means_of_directions_weighted_by_the_plan() -> None:
    plan = torch.tensor([[0.3, 0.2], [0.2, 0.3]])
    there = transported(plan, torch.tensor([[3.0, 4.0], [0.0, 2.0]]))
    # Column 0 takes 0.6 of the direction (0.6, 0.8) and 0.4 of (0, 1); column 1 the other way round.
    torch.testing.assert_close(there, torch.tensor([[0.36, 0.88], [0.24, 0.92]]))
