"""fit: the only training loop, for every method. One pass of it is `step.Step`, which has the only backward pass."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from torch import Tensor, nn

from foster.data.feed import Feed
from foster.events import Listener
from foster.networks.freezing import training_mode
from foster.networks.layout import channels_last
from foster.seeding import random_layers
from foster.training.checkpoint import explained_misfit
from foster.training.distributed import agree_on_statistics
from foster.training.engine import Engine
from foster.training.epoch_log import EpochLog
from foster.training.optim import Optimizer, learning_rate
from foster.training.phase import Phase
from foster.training.step import ready_step


@dataclass(frozen=True)
class FitState:
    """All that changes while a phase is trained. `epoch` and `step` say which step is the next, `loss_sums` what was
    summed so far in that epoch; `teachers` has the tensors of the phase's teachers that have changed."""

    network: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    epoch: int
    step: int = 0
    loss_sums: tuple[float, ...] = ()
    teachers: Mapping[str, Tensor] = field(default_factory=dict)


class SavePoint(NamedTuple):
    """A point at which the training can be saved or stopped: after `num_steps` of an epoch."""

    num_steps: int
    is_epoch_end: bool
    state: Callable[[], FitState]
    """The state, once its losses and weights are known to be numbers. It shares its tensors with the training."""


def fit(
    phase: Phase, feed: Feed, engine: Engine, listener: Listener, *, task: int, start: FitState | None = None
) -> Generator[SavePoint, None, None]:
    """Train `phase.network` in place until the phase's last epoch, from `start` where one is given.

    Yields after each step but the last: the caller decides what is saved and whether the training goes on.
    """
    network = channels_last(phase.network)
    training_mode(network)
    optimizer = Optimizer(network, phase.fit, engine.device)
    if start is not None:
        _restore(start, phase, optimizer)
    first_epoch, first_step, sums = (start.epoch, start.step, start.loss_sums) if start else (0, 0, ())
    with random_layers(engine.device) as seed_layers, ready_step(phase, feed, engine, optimizer) as step:
        log = EpochLog(phase, feed.num_images, listener, task, first_epoch, sums)

        def state(epoch: int, num_done: int) -> FitState:
            log.flush()
            is_over = num_done == feed.num_steps
            sums = () if is_over else log.sums_so_far(epoch, step.term_names, step.loss_sums)
            log.check_weights(epoch)
            position = (epoch + 1, 0) if is_over else (epoch, num_done)
            return FitState(network.state_dict(), optimizer.tensors(), *position, sums)

        for epoch in range(first_epoch, phase.fit.epochs):
            rate = learning_rate(phase.fit, epoch)
            optimizer.set_rate(rate)
            if phase.on_epoch is not None:
                if start is not None and first_step:
                    _call_again(phase, epoch, start, optimizer)
                else:
                    phase.on_epoch(epoch)
            seed = replace(feed.address(epoch), purpose="layers").number()
            for index, batch in enumerate(feed.batches(epoch, first_step), start=first_step + 1):
                # In every step, so that a phase that goes on in the middle of an epoch needs no state of it.
                seed_layers(seed + index)
                step(batch)
                if index < feed.num_steps:
                    yield SavePoint(index, is_epoch_end=False, state=partial(state, epoch, index))
            first_step = 0
            log.close(epoch, rate, step.term_names, step.loss_sums)
            if epoch + 1 < phase.fit.epochs:
                yield SavePoint(feed.num_steps, is_epoch_end=True, state=partial(state, epoch, feed.num_steps))
        agree_on_statistics(network)
        log.flush()
        log.check_weights(phase.fit.epochs - 1)
    training_mode(network)


def restore_trained(network: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Leave `network` exactly as `fit` left it when it ended with these weights, memory layout included."""
    with explained_misfit():
        channels_last(network).load_state_dict(weights)
    training_mode(network)


def _call_again(phase: Phase, epoch: int, start: FitState, optimizer: Optimizer) -> None:
    """Call `on_epoch` in the middle of an epoch: what it does to the network and the teachers was done before."""
    assert phase.on_epoch is not None
    teachers = {name: tensor.detach().clone() for name, tensor in phase.teacher_tensors().items()}
    phase.on_epoch(epoch)
    _restore(replace(start, teachers=teachers), phase, optimizer)


def _restore(start: FitState, phase: Phase, optimizer: Optimizer) -> None:
    with explained_misfit():
        phase.network.load_state_dict(start.network)
        optimizer.restore(start.optimizer)
        phase.restore_teachers(start.teachers)
