"""How long a learn will take: a rehearsal that leaves everything as it was."""

from foster.learner.forecast import Forecast, TimedPhase


def test_a_forecast_adds_up_what_comes_before_and_all_epochs_of_all_phases() -> None:
    phases = (TimedPhase("boost", 10, 0.5), TimedPhase("compress", 4, 2.0))
    assert [phase.seconds for phase in phases] == [5.0, 8.0]
    assert Forecast(3.0, phases, num_bytes=1).seconds == 16.0
