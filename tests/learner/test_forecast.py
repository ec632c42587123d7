"""How long a learn will take: a rehearsal that leaves everything as it was."""

import pytest
import torch
from small_learners import digits, small_learner
from torch import Tensor

from foster.events import Event, LearnPlanned
from foster.learner.forecast import BYTES_OF_PROCESS, Forecast, TimedPhase
from foster.learner.learner import Learner


def test_a_forecast_adds_up_what_comes_before_and_all_epochs_of_all_phases() -> None:
    phases = (TimedPhase("boost", 10, 0.5), TimedPhase("compress", 4, 2.0))
    assert [phase.seconds for phase in phases] == [5.0, 8.0]
    assert Forecast(3.0, phases, num_bytes=1).seconds == 16.0


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
