"""The folder of a run, whatever it holds."""

import json
from pathlib import Path
from typing import Any

import pytest
from any_input import SUPPRESSED
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tiny_runs import (
    stopped_run,
    tiny_settings,
)

from foster import events
from foster.errors import FolderError, FosterError
from foster.experiment.event_log import read_events
from foster.experiment.folder import RunFolder
from foster.settings import toml as toml_text
from foster.settings.base import keys_for
from foster.settings.experiment import Settings

MANY = settings(max_examples=150, deadline=None, suppress_health_check=SUPPRESSED)


def accepted(make: Any) -> Any:
    """What `make` gives, or None where it refuses; the command prints the message as one line."""
    try:
        return make()
    except FosterError as error:
        message = str(error)
    assert 0 < len(message) < 2000
    return None


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-3, 300)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["digits", "synthetic", "foster", "replay", "auto", "resnet8", "herding", "published", "plain"])
)


VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(keys_for(Settings)), inner, max_size=3),
    max_leaves=5,
)


def as_toml(value: Any) -> str:
    """Nearly always valid TOML: its scalars look like those of JSON."""
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{key}" = {as_toml(item)}' for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(as_toml(item) for item in value) + "]"
    return json.dumps(value)


@MANY
@given(content=st.binary(max_size=100) | VALUES.map(lambda value: as_toml(value).encode()))
@example(content=b"[" * 100_000)
@example(content=b"null")
@example(content=b'{"finished": "yes"}')
def test_results_of_any_content_are_never_taken_for_a_finished_run_by_mistake(content: bytes, tmp_path: Path):
    (tmp_path / "results.json").write_bytes(content)
    assert not RunFolder(tmp_path).is_finished
    accepted(RunFolder(tmp_path).read_results)


def test_a_folder_whose_settings_file_is_damaged_is_refused_in_one_line(tmp_path: Path):
    text = tiny_settings().toml()
    for end in range(0, len(text), 37):
        (tmp_path / "settings.toml").write_text(text[:end], encoding="utf-8")
        found = accepted(RunFolder(tmp_path).settings)
        assert found is None or toml_text.dumps(found.nested()) == found.toml()


@pytest.mark.parametrize("cut", ["", '{"time": "2026-11-15T', '{"event": "Epo\x00\x00\x00', "\xff\xfe", "[1, 2]", "17"])
def test_events_survive_a_line_that_was_cut_and_the_next_ones_are_whole(cut: str, tmp_path: Path):
    path = stopped_run(tmp_path / "run") / "events.jsonl"
    num_before = len(read_events(path))
    with path.open("ab") as file:
        file.write(cut.encode("latin1"))
    assert len(read_events(path)) == num_before
    with RunFolder(path.parent).opened() as folder:
        folder.note(events.Warned("on a line of its own"))
    found = read_events(path)
    assert len(found) == num_before + 1
    assert found[-1]["message"] == "on a line of its own"


def test_events_are_not_written_through_a_link(tmp_path: Path):
    precious = tmp_path / "precious"
    precious.write_text("keep me")
    (tmp_path / "events.jsonl").symlink_to(precious)
    with pytest.raises(FolderError, match="cannot write"):
        RunFolder(tmp_path).note(events.Warned("x"))
    assert precious.read_text() == "keep me"


def test_what_a_killed_start_left_behind_does_not_block_a_new_start(tmp_path: Path):
    path = tmp_path / "run"
    path.mkdir()
    (path / ".settings.toml.0123456789ab.part").write_text("method = ")
    (path / "lock").write_text('{"process": 1, "host": "x"}')
    with RunFolder(path).opened(tiny_settings()):
        assert not list(path.glob("*.part"))
