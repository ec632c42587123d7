"""What is told of epochs: one epoch late, means over images, and never of losses that are not numbers."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from foster.data.images import ImageSet
from foster.errors import TrainingError
from foster.events import EpochEnded, Event
from foster.settings.fit import FitSettings
from foster.training.fit import EpochLog
from foster.training.phase import Phase

DATA = ImageSet(torch.zeros(4, 3, 2, 2, dtype=torch.uint8), torch.zeros(4, dtype=torch.int64), ("a",))


def phase_of(network: nn.Module) -> Phase:
    return Phase("boost", network, lambda images, labels: {}, FitSettings(epochs=3, learning_rate=0.2), DATA)


def test_an_epoch_is_told_when_the_next_one_is_closed_or_the_log_is_flushed() -> None:
    told: list[Event] = []
    log, sums = EpochLog(phase_of(nn.Linear(1, 1)), 4, told.append, task=1), torch.tensor([8.0, 2.0])
    log.close(0, 0.2, ("L_A", "L_B"), sums)
    assert told == []
    assert sums.tolist() == [0.0, 0.0], "the next epoch sums up anew"
    sums += 4
    log.close(1, 0.1, ("L_A", "L_B"), sums)
    log.flush()
    log.flush()
    first, second = told
    assert isinstance(first, EpochEnded)
    assert isinstance(second, EpochEnded)
    assert (first.task, first.phase, first.epoch, first.epochs, first.learning_rate) == (1, "boost", 0, 3, 0.2)
    assert first.losses == {"L_A": 2.0, "L_B": 0.5, "total": 2.5}
    assert (second.epoch, second.losses["total"], second.learning_rate) == (1, 2.0, 0.1)


def test_the_losses_from_before_an_interruption_count_in_their_epoch_alone() -> None:
    told: list[Event] = []
    log = EpochLog(phase_of(nn.Linear(1, 1)), 4, told.append, 0, start=1, sums_before=(6.0,))
    assert log.sums_so_far(1, ("L",), torch.tensor([1.0])) == (7.0,)
    log.close(1, 0.1, ("L",), torch.tensor([2.0]))
    assert log.sums_so_far(2, ("L",), torch.tensor([1.0])) == (1.0,)
    log.close(2, 0.1, ("L",), torch.tensor([2.0]))
    log.flush()
    assert [event.losses["L"] for event in told if isinstance(event, EpochEnded)] == [2.0, 0.5]


def test_the_time_left_is_that_of_usual_epochs_and_less_by_what_has_passed_since(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[Event] = []
    clock = iter([0.0, 10.0, 12.0, 12.0, 14.0, 14.0, 16.0])  # read when made, at each close, at each report
    monkeypatch.setattr("foster.training.fit.time", SimpleNamespace(monotonic=lambda: next(clock)))
    log = EpochLog(phase_of(nn.Linear(1, 1)), 4, told.append, task=0)
    for epoch in range(3):
        log.close(epoch, 0.1, ("L",), torch.tensor([1.0]))
    log.flush()
    ended = [event for event in told if isinstance(event, EpochEnded)]
    assert [event.seconds for event in ended] == [10, 2, 2]
    # After the first: two of 10 s, of which 2 s have passed. After the second: one of 2 s, which has passed.
    assert [event.seconds_left for event in ended] == [18, 0, 0]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_losses_and_weights_that_are_not_numbers_are_refused_with_their_place(bad: float) -> None:
    network = nn.Linear(1, 1)
    log = EpochLog(phase_of(network), 4, lambda event: None, task=1)
    where = r"in task 2, phase boost, epoch 3; try a learning rate below 0\.2$"
    with pytest.raises(TrainingError, match=r"the loss is not a finite number \(L .*" + where):
        log.sums_so_far(2, ("L",), torch.tensor([bad]))
    log.check_weights(2)
    network.weight.data.fill_(bad)
    with pytest.raises(TrainingError, match="the weights are not finite numbers " + where):
        log.check_weights(2)
