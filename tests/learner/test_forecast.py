"""How long a learn will take: a rehearsal that leaves everything as it was."""

from types import SimpleNamespace

import pytest
import torch
from small_learners import digits, small_learner
from torch import Tensor, nn

from foster.data.images import ImageSet
from foster.events import EpochEnded, Event, LearnPlanned, PhaseEnded, PhaseStarted
from foster.learner.learner import Learner
from foster.learner.plan import BYTES_OF_PROCESS
from foster.learner.train import Forecast, LearnClock, TimedPhase
from foster.settings.fit import FitSettings
from foster.training.fit import EpochLog
from foster.training.phase import Phase

ONE = ImageSet(torch.zeros(1, 3, 4, 4, dtype=torch.uint8), torch.zeros(1, dtype=torch.int64), ("a",))


def test_a_forecast_adds_up_what_comes_before_and_all_epochs_of_all_phases() -> None:
    phases = (TimedPhase("boost", 10, 0.5), TimedPhase("compress", 4, 2.0))
    assert [phase.seconds for phase in phases] == [5.0, 8.0]
    assert Forecast(phases, num_bytes=1, seconds_beside=3.0).seconds == 16.0


@pytest.mark.parametrize("error", [0.5, 1.0, 2.0])
def test_the_time_left_is_right_within_a_third_from_the_second_epoch_on(
    error: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the rehearsal took an epoch for, with a first epoch that takes twice as long, and with what is measured
    after each phase."""
    now, told = 0.0, dict[tuple[str, int], tuple[float, float]]()
    for module in ("training.fit", "learner.train"):
        monkeypatch.setattr(f"foster.{module}.time", SimpleNamespace(monotonic=lambda: now))

    def note(event: Event) -> None:
        if isinstance(event, EpochEnded):
            told[event.phase, event.epoch] = now, event.seconds_left

    course = {"boost": (8, 2.0), "boost again": (8, 2.0), "compress": (6, 3.0)}
    rehearsed = tuple(TimedPhase(name, *course[name]) for name in ("boost", "compress"))
    rehearsed = tuple(TimedPhase(part.name, part.epochs, error * part.seconds_an_epoch) for part in rehearsed)
    clock = LearnClock(note, Forecast(rehearsed, num_bytes=1, seconds_beside=8.0))
    now += 12.0
    for name, (epochs, seconds) in course.items():
        clock(PhaseStarted(1, 2, name, epochs, 10))
        phase = Phase(name, nn.Linear(1, 1), lambda images, labels: {}, FitSettings(epochs=epochs), ONE)
        log = EpochLog(phase, 4, clock, task=1)
        for epoch in range(epochs):
            now += seconds * (2 if (name, epoch) == ("boost", 0) else 1)
            log.close(epoch, 0.1, ("L",), torch.tensor([1.0]))
        log.flush()
        clock(PhaseEnded(1, name, seconds))
        now += 4.0
    assert len(told) == 22
    # A second try is nothing that anybody can foresee: while the first one runs, it is not counted.
    foreseen = {name: seconds * epochs for name, (epochs, seconds) in course.items() if name != "boost again"}
    end_of_first = 12.0 + 8 * 2.0 + 2.0 + 4.0
    for (name, epoch), (moment, left) in told.items():
        if epoch and name == "boost":
            assert left == pytest.approx(end_of_first - moment + foreseen["compress"] + 4.0, rel=0.3)
        elif epoch:
            assert left == pytest.approx(now - moment, rel=0.3)


def weights_of(learner: Learner) -> dict[str, Tensor]:
    assert learner.knowledge is not None
    return dict(learner.knowledge.network.state_dict())


@pytest.mark.parametrize("method", ["foster", "podnet"])
def test_who_is_told_how_long_it_takes_learns_the_same(method: str) -> None:
    told: list[Event] = []
    heard, unheard = small_learner(method), small_learner(method)
    for names in (("zero", "one"), ("two",)):
        heard.learn(digits(*names, last=12), listener=told.append)
        unheard.learn(digits(*names, last=12))
    weights = weights_of(unheard)
    assert all(torch.equal(value, weights[name]) for name, value in weights_of(heard).items())
    plans = [event for event in told if isinstance(event, LearnPlanned)]
    assert len(plans) == 2
    assert all(plan.seconds > 0 and plan.num_bytes > BYTES_OF_PROCESS for plan in plans)
