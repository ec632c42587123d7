"""Start or continue a run for a person: progress on the terminal, signals, and what to do next."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from foster.data.download import Follower
from foster.events import Listener
from foster.experiment.folder import ReadFolder, RunFolder
from foster.experiment.parts import load_scenario
from foster.experiment.run import Finished, begin, go_on, resumed_settings
from foster.reports.progress import progress_for
from foster.reports.results import find_results
from foster.reports.tables import accuracy_table
from foster.reports.trackers import tracked
from foster.settings.experiment import Settings
from foster.system.crew import joined, speaks
from foster.system.output import complain, report
from foster.system.signals import Stopped, StopRequest, stop_on_signals


def launch(
    settings: Settings,
    path: Path,
    *,
    quiet: bool = False,
    is_resuming: bool = False,
    is_shown: bool = True,
    trackers: Sequence[str] = (),
) -> dict[str, Any]:
    """Run `settings` in the folder `path`; with `is_resuming`, continue the run that the folder holds."""
    folder = RunFolder(path)
    is_continued = is_resuming and folder.holds_run
    if is_continued:
        settings = resumed_settings(settings, folder)
    if is_continued and folder.is_finished:
        complain(f"'{path}' is finished; nothing is left to do")
        results = folder.read_results()
    else:
        results = _watched(go_on if is_continued else begin, settings, folder, quiet, trackers)
    if is_shown and speaks():
        report(accuracy_table(find_results([path])), f"results: {path / 'results.json'}", path=path)
    return results


def relaunch(
    path: Path, data: Path | None, overrides: Sequence[str] = (), *, quiet: bool = False, trackers: Sequence[str] = ()
) -> dict[str, Any]:
    """Continue the run in `path`, with its own settings; `data` says where the data files are now, and `overrides`
    change where and how it computes."""
    settings = RunFolder(path).settings(overrides, imports_plugins=True)
    if data is not None:
        settings = settings.model_copy(update={"data": str(data)})
    return launch(settings, path, quiet=quiet, is_resuming=True, trackers=trackers)


def prepare_photos(settings: Settings, cache: Path, *, quiet: bool = False) -> int:
    """Decode all photos of a scenario into the folder `cache`; returns the bytes of their pixels."""
    engine = settings.engine.model_copy(update={"photo_cache": str(cache), "resident": "disk"})
    with stop_on_signals() as stop, progress_for(quiet=quiet) as listener:
        scenario = load_scenario(settings.model_copy(update={"engine": engine}), Follower(listener, stop))
        try:
            return scenario.prepare()
        except Stopped as stopped:
            stopped.add_hint("what is decoded is kept; the same command goes on from there")
            raise


Work = Callable[[Settings, RunFolder, Listener, StopRequest], Finished]


def _watched(work: Work, settings: Settings, folder: RunFolder, quiet: bool, trackers: Sequence[str]) -> dict[str, Any]:
    """Do it with progress on the terminal; a signal stops it after the step under way."""
    with (
        stop_on_signals() as stop,
        joined() as team,
        progress_for(quiet=quiet or not team.is_first) as listener,
        ExitStack() as ends,
    ):
        own = folder if team.is_first else ReadFolder(folder.path)
        followed = tracked(trackers if team.is_first else (), folder.path, settings, listener, ends)
        try:
            return work(settings, own, followed, stop).results
        except Stopped as stopped:
            if folder.holds_run:
                stopped.add_hint(f"all is saved; continue with: {folder.resume_command}")
            raise
