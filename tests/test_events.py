"""Events as lines of JSON, each with its name."""

import dataclasses
import json

import pytest

from foster import events
from foster.events import Event, TaskEnded

KINDS = [kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, Event)]


def test_an_event_is_one_line_with_its_name_and_all_its_fields() -> None:
    event = events.Warned("two\nlines")
    line = event.json("2026-01-02T03:04:05")
    assert "\n" not in line
    assert json.loads(line) == {"time": "2026-01-02T03:04:05", "event": "Warned", "message": "two\nlines"}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_event_cannot_be_changed(kind: type[Event]) -> None:
    assert dataclasses.fields(kind) or kind is Event
    with pytest.raises(dataclasses.FrozenInstanceError):
        object.__new__(kind).event = "another"  # type: ignore[attr-defined]


def test_every_kind_of_event_has_a_name_of_its_own() -> None:
    names = [kind.__name__ for kind in KINDS]
    assert len(set(names)) == len(names) > 10
    assert TaskEnded in KINDS
