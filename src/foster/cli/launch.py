"""Start or continue a run for a person: progress on the terminal, signals, and what to do next."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from foster.data.download import Follower
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
from foster.system.signals import Stopped, stop_on_signals


def launch(
    settings: Settings,
    path: Path,
    *,
    quiet: bool = False,
    is_resuming: bool = False,
    is_shown: bool = True,
    trackers: Sequence[str] = (),
    allows_changed_plugin: bool = False,
) -> dict[str, Any]:
    """Run `settings` in the folder `path`; with `is_resuming`, continue the run that the folder holds."""
    folder = RunFolder(path)
    is_continued = is_resuming and folder.holds_run
    if is_continued:
        settings = resumed_settings(settings, folder)
    if is_continued and folder.is_finished:
        return _finished(folder, is_shown)
    work = partial(go_on, allows_changed_plugin=allows_changed_plugin) if is_continued else begin
    results = _watched(work, settings, folder, quiet, trackers)
    _show(path, is_shown)
    return results


def _finished(folder: RunFolder, is_shown: bool = True) -> dict[str, Any]:
    complain(f"'{folder.path}' is finished; nothing is left to do")
    results = folder.read_results()
    _show(folder.path, is_shown)
    return results


def _show(path: Path, is_shown: bool) -> None:
    if is_shown and speaks():
        report(accuracy_table(find_results([path])), f"results: {path / 'results.json'}", path=path)


def relaunch(
    path: Path,
    data: Path | None,
    overrides: Sequence[str] = (),
    *,
    quiet: bool = False,
    trackers: Sequence[str] = (),
    plugins: Sequence[str] | None = None,
    trusts_plugins: bool = False,
    allows_changed_plugin: bool = False,
) -> dict[str, Any]:
    """Continue the run in `path`, with its own settings; `data` says where the data files are now, and `overrides`
    change where and how it computes. The plug-ins that it names are imported with `trusts_plugins` alone."""
    folder = RunFolder(path)
    if folder.holds_run and folder.is_finished and not overrides:
        return _finished(folder)
    settings = folder.settings(overrides, plugins=plugins, trusts_plugins=trusts_plugins)
    if data is not None:
        settings = settings.model_copy(update={"data": str(data)})
    return launch(
        settings,
        path,
        quiet=quiet,
        is_resuming=True,
        trackers=trackers,
        allows_changed_plugin=allows_changed_plugin,
    )


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


def _watched(
    work: Callable[..., Finished], settings: Settings, folder: RunFolder, quiet: bool, trackers: Sequence[str]
) -> dict[str, Any]:
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
                stopped.add_hint(f"all is saved; continue with: {folder.resume_command_for(settings)}")
            raise
