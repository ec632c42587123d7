"""DER: a branch a task, frozen ever after, and an auxiliary head that is thrown away."""

import pytest
import torch
from small_course import SHORT, changed, learn, new_method, normalised, task_of, train, values

from foster.data.task import Task
from foster.methods.base import Method
from foster.methods.der import DynamicallyExpandable, ExpandingNetwork
from foster.networks.heads import Head
from foster.networks.modules import is_frozen
from foster.settings.methods import DerSettings
from foster.training.phase import Evaluate, Phase


def der(align: bool = True) -> Method[DerSettings]:
    return new_method(DynamicallyExpandable, DerSettings(first=SHORT, later=SHORT, align=align))


def expansion(method: Method[DerSettings], index: int) -> tuple[Phase, Task]:
    """The first phase of a task, as it stands before training."""
    task = task_of(method, index)
    phase = next(iter(method.phases(task)))
    assert not isinstance(phase, Evaluate)
    return phase, task


def test_old_branches_never_change_while_the_new_one_and_the_whole_head_are_trained() -> None:
    method = der()
    learn(method, 2)
    phase, task = expansion(method, 2)
    before = values(method.network)
    assert isinstance(phase.network, ExpandingNetwork)
    assert phase.network.network is method.network
    train(phase, task)
    found = changed(before, method.network)
    assert {name.split(".")[1] for name in found if name.startswith("branches")} == {"2"}
    assert "branches.2.stem.1.running_mean" in found
    assert {"head.weight", "head.bias"} <= found
    old_block = method.network.head.weight[:6, :128]
    assert not torch.equal(old_block, before["head.weight"][:6, :128])
    assert all(is_frozen(branch) and not branch.training for branch in method.network.branches[:2])


def test_the_auxiliary_head_sees_the_newest_branch_alone_and_is_not_delivered() -> None:
    method = der()
    learn(method, 1)
    phase, task = expansion(method, 1)
    assert isinstance(phase.network, ExpandingNetwork)
    train(phase, task)  # before it, both branches see the same
    phase.network.eval()
    images = normalised(task.new_images.images[:5])
    out, delivered = phase.network(images), method.network(images)
    torch.testing.assert_close(out.logits, delivered.logits)
    newest_features = delivered.features[:, 64:]
    assert out.auxiliary_logits.shape == (5, 1 + task.num_new)
    torch.testing.assert_close(out.auxiliary_logits, phase.network.auxiliary_head(newest_features))
    assert not any("auxiliary" in name for name in method.network.state_dict())


def test_the_loss_is_over_all_classes_and_over_new_classes_and_one_for_the_rest() -> None:
    method = der()
    learn(method, 1)
    phase, task = expansion(method, 1)
    assert isinstance(phase.network, ExpandingNetwork)
    phase.network.eval()
    images, labels = normalised(task.training.images), task.training.labels
    out = phase.network(images)
    auxiliary_labels = torch.tensor([0, 0, 0, 0, 1, 2])[labels]
    found = phase.objective(images, labels)
    assert list(found) == ["L_CE", "L_aux"]
    torch.testing.assert_close(found["L_CE"], torch.nn.functional.cross_entropy(out.logits, labels))
    expected = torch.nn.functional.cross_entropy(out.auxiliary_logits, auxiliary_labels)
    torch.testing.assert_close(found["L_aux"], expected)


@pytest.mark.parametrize("align", [True, False])
def test_the_head_is_aligned_where_that_is_wanted(align: bool) -> None:
    method = der(align)
    learn(method, 2)
    head = method.network.head
    assert isinstance(head, Head)
    norms = head.weight.norm(dim=1)
    are_equal = norms[:4].mean().item() == pytest.approx(norms[4:].mean().item(), rel=1e-4)
    assert are_equal == align
