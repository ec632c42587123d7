"""Joint training: everything is kept, and every task starts from scratch."""

import torch
from small_course import SHORT, learn, new_method, task_of, values

from foster.data.memory import ExemplarMemory
from foster.methods.base import Method
from foster.methods.joint import Joint
from foster.settings.methods import JointSettings
from foster.training.phase import Evaluate


def joint() -> Method[JointSettings]:
    return new_method(Joint, JointSettings(first=SHORT), ExemplarMemory())


def test_a_later_task_starts_from_scratch_whatever_was_learned_before() -> None:
    trained, untrained = joint(), joint()
    learn(trained, 1)
    first = next(iter(untrained.phases(task_of(untrained, 0))))
    assert not isinstance(first, Evaluate)
    untrained.memory.load_state(trained.memory.state())
    phases = [next(iter(method.phases(task_of(method, 1)))) for method in (trained, untrained)]
    assert not any(isinstance(phase, Evaluate) for phase in phases)
    starts = [values(method.network) for method in (trained, untrained)]
    assert all(torch.equal(starts[0][name], starts[1][name]) for name in starts[0])
    assert trained.network.num_classes == 6
    # Not the same start as the first task had, either: a task has an address of its own.
    assert not torch.equal(starts[0]["branches.0.stem.0.weight"], values(first.network)["branches.0.stem.0.weight"])
