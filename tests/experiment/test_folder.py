"""The folder of a run, whatever it holds."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from faults import accepted
from tiny_runs import tiny_settings

import foster
from foster import events
from foster.errors import FolderError
from foster.events import ignore
from foster.experiment import folder as module
from foster.experiment.event_log import FollowedRun
from foster.experiment.folder import RunFolder, differing_key
from foster.experiment.run import begin
from foster.settings import toml as toml_text
from foster.settings.experiment import load_settings
from foster.system.locking import locked
from foster.system.signals import StopRequest


@pytest.mark.parametrize("content", [b"", b"\xff", b"[" * 100_000, b"null", b'{"finished": "yes"}', b'{"a": tru'])
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


def test_a_run_that_names_no_smallest_batch_goes_on_with_every_last_batch(tmp_path: Path):
    """Such a run is older than the setting; a new one names it, and published protocols always had all batches."""
    for dataset, expected in (("digits", 2), ("cifar100", "auto")):
        path = tmp_path / dataset
        overrides = [f"dataset={dataset}", "increment=5", "memory_total=100", "augmentation=shift"]
        with RunFolder(path).opened(load_settings(None, overrides)):
            pass
        assert RunFolder(path).settings().smallest_batch == "auto"
        (path / "events.jsonl").touch()
        text = (path / "settings.toml").read_text()
        (path / "settings.toml").write_text(text.replace('smallest_batch = "auto"\n', ""))
        assert RunFolder(path).settings().smallest_batch == expected


@pytest.mark.parametrize("cut", ["", '{"time": "2026-11-15T', '{"event": "Epo\x00\x00\x00', "\xff\xfe", "[1, 2]", "17"])
def test_events_survive_a_line_that_was_cut_and_the_next_ones_are_whole(cut: str, tmp_path: Path):
    path = tmp_path / "run" / "events.jsonl"
    with RunFolder(path.parent).opened(tiny_settings()) as folder:
        folder.note(events.Warned("first"))
    with path.open("ab") as file:
        file.write(cut.encode("latin1"))
    assert FollowedRun(path.parent).read_events() == [events.Warned("first")]
    with RunFolder(path.parent).opened() as folder:
        folder.note(events.Warned("on a line of its own"))
    assert FollowedRun(path.parent).read_events() == [events.Warned("first"), events.Warned("on a line of its own")]


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


def test_a_new_run_takes_no_folder_that_holds_anything_and_leaves_it_as_it_is(tmp_path: Path):
    file, full, begun = tmp_path / "file", tmp_path / "full", tmp_path / "begun"
    file.write_text("mine")
    full.mkdir()
    (full / "mine").touch()
    with RunFolder(begun).opened(tiny_settings()) as folder:
        folder.note(events.CheckpointWritten(0, "learn", 1, 0.1))
    for path, reason in ((file, "is a file"), (full, "not empty"), (begun, "continue")):
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(FolderError, match=reason):
            begin(tiny_settings(), RunFolder(path), ignore, StopRequest())
        assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(FolderError, match=r"seed = 1993, not 2;"):
        begin(tiny_settings("foster", "seed=2"), RunFolder(begun), ignore, StopRequest())
    folder.write_results({"finished": True})
    with pytest.raises(FolderError, match="finished"):
        folder.check_free()


def test_a_run_that_failed_before_it_learned_anything_is_begun_anew(tmp_path: Path):
    """Such as one with a method of one's own that had a mistake."""
    folder = RunFolder(tmp_path / "run")
    with folder.opened(tiny_settings()):
        folder.note(events.RunFailed("a mistake"))
        folder.checkpoints.folder.mkdir()
    folder.check_free(other := tiny_settings("foster", "seed=2"))
    with folder.opened(other):
        assert folder.settings() == other
        assert not FollowedRun(folder.path).read_events()
        folder.note(events.RunFailed("another"))
    (folder.path / "mine").touch()
    with pytest.raises(FolderError, match="foster resume"):
        folder.check_free(other)


def test_checkpoints_whose_events_are_lost_and_settings_of_the_users_own_are_not_overwritten(tmp_path: Path):
    folder, other = RunFolder(tmp_path), tiny_settings("foster", "seed=2")
    (tmp_path / "settings.toml").write_text(tiny_settings().toml())
    with pytest.raises(FolderError, match="not empty"):
        folder.check_free(other)
    folder.checkpoints.save({}, {}, {})
    with pytest.raises(FolderError, match=r"seed = 1993, not 2;"):
        folder.check_free(other)


def test_the_command_that_continues_a_run_trusts_the_plug_ins_that_were_just_run(tmp_path: Path):
    folder = RunFolder(tmp_path / "a run")
    assert folder.resume_command() == folder.resume_command(tiny_settings()) == f"foster resume '{folder.path}'"
    with_plugin = tiny_settings().model_copy(update={"plugins": ("my_lab",)})
    assert folder.resume_command(with_plugin) == f"foster resume '{folder.path}' --trust-plugins"


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_run_into_a_folder_that_is_being_written_names_the_process_that_writes(
    tmp_path: Path, has_begun: bool
) -> None:
    given, folder = tmp_path / "given.toml", tmp_path / "run"
    given.write_text(tiny_settings().toml())
    with locked(folder):
        if has_begun:
            shutil.copy(given, folder / "settings.toml")
        for act in (RunFolder(folder).check_free, lambda: foster.run(str(given), folder=folder, resume=True)):
            with pytest.raises(FolderError, match=f"process {os.getpid()} on "):
                act()


def test_a_run_that_another_process_began_meanwhile_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    @contextmanager
    def held(path: Path) -> Iterator[None]:
        path.mkdir()
        (path / "settings.toml").write_text("theirs")
        (path / "results.json").touch()
        yield

    monkeypatch.setattr(module, "locked", held)
    with pytest.raises(FolderError, match="foster resume"), RunFolder(tmp_path / "run").opened(tiny_settings()):
        pass
    assert (tmp_path / "run" / "settings.toml").read_text() == "theirs"


def test_settings_are_written_again_only_where_they_changed(tmp_path: Path):
    settings = tiny_settings()
    with RunFolder(tmp_path / "run").opened(settings) as folder:
        pass
    file = tmp_path / "run" / "settings.toml"
    file.write_text(f"# a remark\n{file.read_text()}")
    folder.keep_settings(settings)
    assert file.read_text().startswith("# a remark\n")
    folder.keep_settings(folder.settings(["engine.threads=3"]))
    assert folder.settings().engine.threads == 3


@pytest.mark.parametrize(
    ("before", "now", "counted", "expected"),
    [
        ({"increment": 5, "method": "wa"}, {"increment": 10, "method": "der"}, (), "method"),
        ({"seed": 1, "increment": 5}, {"seed": 2, "increment": 10}, (), "increment"),
        ({}, {"memory_total": 5}, (), "memory_total"),
        ({"memory_total": 5}, {}, (), "memory_total"),
        ({"engine": {"threads": 1}}, {"engine": {"threads": 2}}, (), None),
        ({"engine": {"threads": 1}}, {"engine": {"threads": 2}}, ("engine.threads",), "engine.threads"),
        ({"engine": {"threads": 1}}, {"engine": {"threads": 2}}, ("engine",), "engine.threads"),
        ({"engine": {"threads": 1}}, {"engine": {"threads": 2}}, ("engine.thread",), None),
    ],
)
def test_what_makes_runs_differ_is_the_method_before_all_others(
    before: dict[str, Any], now: dict[str, Any], counted: tuple[str, ...], expected: str | None
):
    assert differing_key(before, now, counted) == expected
