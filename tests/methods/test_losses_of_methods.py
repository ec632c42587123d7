"""Fine-tuning, replay, LwF, iCaRL and WA: what each minimises, from whom it learns, and what it forgets."""

import pytest
import torch
from small_course import course_of, named_method, normalised, task_of, terms
from torch.nn.functional import cross_entropy

from foster.methods.wa import WeightAlignment
from foster.networks.modules import is_frozen
from foster.networks.network import Backbone
from foster.settings.methods import WaSettings
from foster.training.phase import Evaluate

DISTILLING = ["lwf", "icarl", "wa", "bic"]


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
        of_seen, targets = (logits[:, 4:], labels - 4) if is_of_new else (logits, labels)
        expected = {"L_CE": weight * cross_entropy(of_seen, targets).item()}
        if distillation_weight:
            old = (learned.phase.teachers[0](images).logits / 2).softmax(1)
            expected["L_KD"] = distillation_weight * cross_entropy(logits[:, :4] / 2, old).item()
    assert found == pytest.approx(expected, rel=1e-4)
    assert (task.exemplars is None) == is_of_new


@pytest.mark.parametrize("name", ["finetune", *DISTILLING, "podnet", "coil", "der", "foster"])
def test_every_loss_term_has_a_gradient_in_the_backbone_that_is_trained(name: str) -> None:
    method = named_method(name)
    for index in (0, 1):
        task, num_seen = task_of(method, index), 0
        some = task.training.select(torch.arange(0, len(task.training), 6))
        for phase in method.phases(task):
            if isinstance(phase, Evaluate):
                continue
            backbones = [part for part in phase.network.modules() if isinstance(part, Backbone)]
            weights = [weight for weight in backbones[-1].parameters() if weight.requires_grad]
            if weights:  # else the head alone is trained
                num_seen += 1
                for term in phase.objective(normalised(some.images), some.labels).values():
                    assert torch.autograd.grad(term, weights, retain_graph=True)
        assert num_seen == (2 if (name, index) == ("foster", 1) else 1)


@pytest.mark.parametrize("name", DISTILLING)
def test_the_teacher_is_the_network_before_the_task_and_never_changes(name: str) -> None:
    course = course_of(name)
    for learned in course.named("learn"):
        (teacher,) = learned.phase.teachers
        assert is_frozen(teacher)
        before, now = course.network_after_task[learned.task.index - 1], teacher.state_dict()
        assert before.keys() == now.keys()
        assert all(torch.equal(before[key], now[key]) for key in before)


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
