"""Start or continue a run for a person: progress on the terminal, signals, and what to do next."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foster.errors import FolderError, FosterError
from foster.events import RunFailed
from foster.experiment.folder import RunFolder, resume_command
from foster.experiment.run import Experiment
from foster.reports.progress import progress_for
from foster.reports.results import find_results
from foster.reports.tables import accuracy_table
from foster.settings.experiment import Settings
from foster.system.output import complain, report
from foster.system.signals import Stopped, stop_on_signals


def launch(
    settings: Settings, path: Path, *, quiet: bool = False, is_resuming: bool = False, is_shown: bool = True
) -> dict[str, Any]:
    """Run `settings` in the folder `path`; with `is_resuming`, continue the run that the folder holds."""
    folder = RunFolder(path)
    if is_resuming and folder.holds_run:
        folder.check_same(settings)
        data = settings.data or folder.settings().data
        return _continue(folder, settings.model_copy(update={"data": data}), quiet)
    folder.check_free()
    with stop_on_signals() as stop, progress_for(quiet=quiet) as listener:
        # Data, device and backbone are checked here, before the folder is made.
        experiment = Experiment(settings, folder, listener, stop)
        # Who is asked to stop by now leaves no folder behind.
        stop.raise_if_set()
        with folder.opened(settings):
            results = _finish(experiment, folder)
    if is_shown:
        _show(path)
    return results


def relaunch(path: Path, data: Path | None, overrides: Sequence[str] = (), *, quiet: bool = False) -> dict[str, Any]:
    """Continue the run in `path`, with its own settings; `data` says where the data files are now, and `overrides`
    change where and how it computes."""
    folder = RunFolder(path)
    settings = folder.settings(overrides)
    if data is not None:
        settings = settings.model_copy(update={"data": str(data)})
    return _continue(folder, settings, quiet)


def _continue(folder: RunFolder, settings: Settings, quiet: bool) -> dict[str, Any]:
    if folder.is_finished:
        complain(f"'{folder.path}' is finished; nothing is left to do")
        _show(folder.path)
        return folder.read_results()
    with stop_on_signals() as stop, progress_for(quiet=quiet) as listener:
        experiment = Experiment(settings, folder, listener, stop)
        with folder.opened():
            folder.keep_settings(settings)
            results = _finish(experiment, folder)
    _show(folder.path)
    return results


def _finish(experiment: Experiment, folder: RunFolder) -> dict[str, Any]:
    try:
        return experiment.run()
    except Stopped as stopped:
        stopped.add_hint(f"all is saved; continue with: {resume_command(folder.path)}")
        raise
    except FosterError as error:
        _note_failure(folder, str(error))
        raise


def _note_failure(folder: RunFolder, message: str) -> None:
    """Leave the reason in the events; where even that cannot be written, the message on the terminal is enough."""
    try:
        folder.note(RunFailed(message))
    except FolderError:
        return


def _show(path: Path) -> None:
    report(accuracy_table(find_results([path])), f"results: {path / 'results.json'}", place=path)
