"""A run whose checkpoint was changed by somebody who made its hashes right: it goes on, or says why not in one line."""

import copy
from pathlib import Path
from typing import Any

import pytest
from faults import places, time_limit
from tiny_runs import Interruption, interrupted, tiny_settings

from foster import events
from foster.errors import FosterError
from foster.events import Event, ignore
from foster.experiment.folder import RunFolder
from foster.experiment.run import Experiment
from foster.system.signals import StopRequest
from foster.training.checkpoint import Checkpoint, CheckpointStore

VALUES: tuple[Any, ...] = (None, [], {}, [1], "x", -1, 10**30, 7.5, float("nan"), True)


def is_late(event: Event) -> bool:
    return isinstance(event, events.EpochEnded) and event.task == 1 and event.phase == "compress"


def test_any_value_in_any_place_of_a_checkpoint_is_taken_or_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(tiny_settings(), tmp_path / "run", Interruption(is_late, num_steps=1))
    folder = RunFolder(tmp_path / "run")
    saved = folder.checkpoints.load(ignore)
    experiment = Experiment(folder.settings(), folder, ignore, StopRequest())
    forged = [(saved.state, {name: part for name, part in saved.parts.items() if name != gone}) for gone in saved.parts]
    # Single settings have a test of their own.
    wanted = [place for place in places(saved.state) if place == ("settings",) or place[0] != "settings"]
    for number, place in enumerate(wanted):
        state = copy.deepcopy(saved.state)
        holder: Any = state
        for part in place[:-1]:
            holder = holder[part]
        holder[place[-1]] = VALUES[number % len(VALUES)]
        forged.append((state, saved.parts))
    num_refused = 0
    for state, parts in forged:
        found = Checkpoint(state, parts)
        monkeypatch.setattr(CheckpointStore, "load", lambda store, warn, found=found: found)
        message = ""
        try:
            with time_limit(10):
                experiment._start()
                experiment.record.summary()
        except FosterError as error:
            message = str(error)
            num_refused += 1
        assert "\n" not in message
        assert len(message) < 1000
    assert num_refused > len(forged) / 2
