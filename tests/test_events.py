"""Events as lines of JSON, each with its name."""

import json

from foster import events


def test_an_event_is_one_line_with_its_name_and_all_its_fields() -> None:
    event = events.Warned("two\nlines")
    line = event.json("2026-01-02T03:04:05")
    assert "\n" not in line
    assert json.loads(line) == {"time": "2026-01-02T03:04:05", "event": "Warned", "message": "two\nlines"}
