"""Pipes, devices, folders and links where a file should be: one line, and never a wait without end."""

import os
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from limits import time_limit
from tiny_runs import Interruption, interrupted, tiny_settings

import foster
from foster import events
from foster.bundle.manifest import read_manifest
from foster.bundle.promotion import promote
from foster.cli import main
from foster.cli.launch import relaunch
from foster.data.photos.sources import find_photos
from foster.errors import FosterError
from foster.experiment.event_log import read_events
from foster.experiment.folder import RunFolder
from foster.reports.results import read_result
from foster.settings.experiment import load_settings
from foster.sweep.table import RunStatus
from foster.system.locking import writer_of

Replace = Callable[[Path], None]


def by_pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def by_endless_device(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


def by_folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


REPLACEMENTS = [by_pipe, by_endless_device, by_folder]
"""A device cannot be made here, but it can be linked to."""


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    """A device that never ends would otherwise fill the machine before any time is up."""
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**31, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def refused(action: Callable[[], object]) -> str:
    """The one line with which `action` refuses, at once."""
    with time_limit(), pytest.raises(FosterError) as error:
        action()
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("replace", REPLACEMENTS)
@pytest.mark.parametrize("name", ["bundle.json", "network.safetensors", "labels.txt"])
def test_a_bundle_of_special_files_is_refused(name: str, replace: Replace, bundle: Path) -> None:
    replace(bundle / name)
    assert name in refused(lambda: foster.load(bundle, device="cpu"))
    if name == "bundle.json":
        refused(lambda: read_manifest(bundle))


def test_the_command_says_so_in_one_line(
    bundle: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    by_pipe(bundle / "bundle.json")
    monkeypatch.setattr("sys.argv", ["foster", "info", str(bundle)])
    with time_limit(), pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    expected = f"foster: bundle '{bundle / 'bundle.json'}' cannot be read: it is not an ordinary file\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize("replace", REPLACEMENTS)
def test_a_history_of_promotions_that_is_no_file_is_refused(replace: Replace, bundle: Path) -> None:
    replace(bundle.parent / "current.json")
    assert "current.json' cannot be read" in refused(lambda: promote(bundle))


def test_a_history_of_promotions_of_endless_depth_is_refused(bundle: Path) -> None:
    (bundle.parent / "current.json").write_text("[" * 100_000, encoding="utf-8")
    assert "current.json' is damaged" in refused(lambda: promote(bundle))


@pytest.mark.parametrize("replace", [by_pipe, by_endless_device])
def test_a_settings_file_that_is_none_is_refused(replace: Replace, tmp_path: Path) -> None:
    replace(tmp_path / "my.toml")
    said = refused(lambda: load_settings(str(tmp_path / "my.toml")))
    assert said == f"cannot read settings file '{tmp_path / 'my.toml'}': it is not an ordinary file"


def test_a_settings_file_may_be_a_link_to_one(tmp_path: Path) -> None:
    (tmp_path / "real.toml").write_text(tiny_settings().toml(), encoding="utf-8")
    (tmp_path / "link.toml").symlink_to("real.toml")
    assert load_settings(str(tmp_path / "link.toml")) == tiny_settings()


def test_a_settings_file_of_any_size_is_not_read_as_a_whole(tmp_path: Path) -> None:
    with (tmp_path / "huge.toml").open("wb") as file:
        file.truncate(2**40)
    assert refused(lambda: load_settings(str(tmp_path / "huge.toml"))).endswith("it has more than 16,777,216 bytes")


@pytest.mark.parametrize("replace", [by_pipe, by_endless_device])
def test_a_list_of_photos_that_is_no_file_is_refused(replace: Replace, tmp_path: Path) -> None:
    replace(tmp_path / "photos.csv")
    assert refused(lambda: find_photos(tmp_path / "photos.csv")).endswith("it is not an ordinary file")


@pytest.fixture(scope="module")
def stopped_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    interrupted(tiny_settings("replay"), path, Interruption(lambda event: isinstance(event, events.TaskEnded)))
    return path


@pytest.mark.parametrize("replace", REPLACEMENTS)
@pytest.mark.parametrize("name", ["settings.toml", "events.jsonl"])
def test_a_run_with_special_files_is_not_resumed(name: str, replace: Replace, stopped_run: Path, tmp_path: Path):
    path = Path(shutil.copytree(stopped_run, tmp_path / "run"))
    replace(path / name)
    assert name in refused(lambda: relaunch(path, None, quiet=True))


@pytest.mark.parametrize("replace", REPLACEMENTS)
def test_no_reader_of_a_run_waits_for_special_files(replace: Replace, tmp_path: Path) -> None:
    for name in ("results.json", "events.jsonl", "lock"):
        replace(tmp_path / name)
    folder = RunFolder(tmp_path)
    for action in (
        folder.read_results,
        lambda: read_events(tmp_path / "events.jsonl"),
        lambda: read_result(tmp_path / "results.json"),
        lambda: folder.note(events.Warned("x")),
    ):
        refused(action)
    with time_limit():
        assert not folder.is_finished
        assert writer_of(tmp_path) == ""
        RunStatus("run", tmp_path).read_events()
