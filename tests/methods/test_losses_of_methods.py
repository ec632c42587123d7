"""Fine-tuning, replay, LwF, iCaRL and WA: what each minimises, from whom it learns, and what it forgets."""

import pytest
import torch
from small_course import course_of, digits, engine, learn, named_method, normalised, task_of, terms
from torch import Tensor, nn

from foster.methods.wa import WeightAlignment
from foster.networks.modules import is_frozen
from foster.settings.methods import WaSettings

DISTILLING = ["lwf", "icarl", "wa", "bic"]


def log_softmax(logits: Tensor) -> Tensor:
    return logits - logits.exp().sum(1, keepdim=True).log()


def cross_entropy(logits: Tensor, labels: Tensor) -> float:
    return -log_softmax(logits)[torch.arange(len(labels)), labels].mean().item()


@pytest.mark.parametrize("name", ["finetune", "replay", *DISTILLING])
def test_the_loss_terms_are_those_of_the_published_runs(name: str) -> None:
    """Of the second task, with 4 known classes and 2 new ones; distillation is at temperature 2."""
    weights = {"lwf": (1, 3), "icarl": (1, 1), "wa": (1, 2), "bic": (2 / 6, 4 / 6)}
    learned = course_of(name).named("learn")[0]
    task = learned.task
    images, labels = normalised(task.training.images), task.training.labels
    found = terms(learned.phase, task)
    with torch.no_grad():
        logits = learned.phase.network(images).logits
        is_of_new = name in ("finetune", "lwf")
        weight, distillation_weight = weights.get(name, (1, 0))
        expected = {
            "L_CE": weight * cross_entropy(logits[:, 4:], labels - 4)
            if is_of_new
            else weight * cross_entropy(logits, labels)
        }
        if distillation_weight:
            old = log_softmax(learned.phase.teachers[0](images).logits / 2).exp()
            expected["L_KD"] = -distillation_weight * (old * log_softmax(logits[:, :4] / 2)).sum(1).mean().item()
    assert found == pytest.approx(expected, rel=1e-4)
    assert (task.exemplars is None) == is_of_new


@pytest.mark.parametrize("name", DISTILLING)
def test_the_teacher_is_the_network_before_the_task_and_never_changes(name: str) -> None:
    course = course_of(name)
    for learned in course.named("learn"):
        (teacher,) = learned.phase.teachers
        assert is_frozen(teacher)
        before, now = course.network_after_task[learned.task.index - 1], teacher.state_dict()
        assert before.keys() == now.keys()
        assert all(torch.equal(before[key], now[key]) for key in before)


@pytest.mark.parametrize("name", ["replay", "icarl", "wa", "bic"])
def test_the_memory_holds_its_quota_of_every_class_seen(name: str) -> None:
    assert course_of(name).method.memory.counts.tolist() == [6] * 9


def accuracy(network: nn.Module, first: int, last: int) -> float:
    images = digits().test_up_to(1).of_classes(first, last)
    return (engine().infer(network, images.images).logits.argmax(1) == images.labels).double().mean().item()


def test_fine_tuning_forgets_and_replay_remembers_more() -> None:
    """After two tasks; the old rows of a fine-tuned head are left to weight decay alone."""
    finetune, replay = (learn(named_method(name, epochs=12), num_tasks=2) for name in ("finetune", "replay"))
    for course in (finetune, replay):
        assert accuracy(course.method.network, 4, 6) > 0.8
    assert accuracy(replay.method.network, 0, 4) > accuracy(finetune.method.network, 0, 4) + 0.3
    (second,) = finetune.named("learn")
    ratio = second.after["head.weight"][:4] / second.before["head.weight"][:4]
    torch.testing.assert_close(ratio, ratio.mean().expand_as(ratio), rtol=0, atol=1e-4)
    assert 0.9 < ratio.mean() < 1


def test_wa_gives_new_rows_the_mean_norm_of_old_ones_and_changes_nothing_else() -> None:
    course = course_of("wa")
    for learned in course.named("learn"):
        task, trained = learned.task, learned.after
        aligned = course.network_after_task[task.index]
        norms = aligned["head.weight"].norm(dim=1)
        torch.testing.assert_close(norms[task.num_known :].mean(), norms[: task.num_known].mean())
        assert torch.equal(aligned["head.weight"][: task.num_known], trained["head.weight"][: task.num_known])
        ratios = aligned["head.weight"][task.num_known :] / trained["head.weight"][task.num_known :]
        torch.testing.assert_close(ratios, ratios.mean().expand_as(ratios))
        assert abs(ratios.mean().item() - 1) > 0.001
        assert all(torch.equal(aligned[key], trained[key]) for key in trained if key != "head.weight")


def test_wa_can_weigh_its_terms_by_the_share_of_known_classes() -> None:
    method = named_method("wa")
    method.settings = WaSettings(weighting="share")
    assert isinstance(method, WeightAlignment)
    assert method.loss_weights(task_of(method, 1)) == pytest.approx((2 / 6, 4 / 6))
