"""Start or continue a run for a person: progress on the terminal, signals, and what to do next."""

import shlex
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from foster.config import Settings
from foster.errors import FolderError, FosterError
from foster.events import RunFailed
from foster.reports.progress import progress_for
from foster.reports.results import find_results
from foster.reports.tables import accuracy_table
from foster.run import Experiment
from foster.run_folder import RunFolder
from foster.stopping import Stopped, stop_on_signals


def launch(
    settings: Settings, path: Path, *, quiet: bool = False, is_resuming: bool = False, is_shown: bool = True
) -> dict[str, Any]:
    """Run `settings` in the folder `path`; with `is_resuming`, continue the run that the folder holds."""
    folder = RunFolder(path)
    if is_resuming and folder.holds_run:
        _check_same(settings, folder)
        return relaunch(path, Path(settings.data) if settings.data else None, quiet=quiet)
    folder.check_free()
    with stop_on_signals() as stop, progress_for(quiet=quiet) as listener:
        # Data, device and backbone are checked here, before the folder is made.
        experiment = Experiment(settings, folder, listener, stop)
        with folder.opened(settings):
            results = _finish(experiment, folder)
    if is_shown:
        _show(path)
    return results


def relaunch(path: Path, data: Path | None, *, quiet: bool = False) -> dict[str, Any]:
    """Continue the run in `path`, with its own settings; `data` says where the data files are now."""
    folder = RunFolder(path)
    settings = folder.settings()
    if data is not None:
        settings = settings.model_copy(update={"data": str(data)})
    if folder.is_finished:
        print(f"'{path}' is finished; nothing is left to do", file=sys.stderr)
        _show(path)
        return folder.read_results()
    with stop_on_signals() as stop, progress_for(quiet=quiet) as listener:
        experiment = Experiment(settings, folder, listener, stop)
        with folder.opened():
            results = _finish(experiment, folder)
    _show(path)
    return results


def _finish(experiment: Experiment, folder: RunFolder) -> dict[str, Any]:
    try:
        return experiment.run()
    except Stopped as stopped:
        stopped.add_hint(f"all is saved; continue with: foster resume {shlex.quote(str(folder.path))}")
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


def _check_same(settings: Settings, folder: RunFolder) -> None:
    """A run is continued with the settings it was started with, apart from where the data files are."""
    ours, theirs = settings.nested(), folder.settings().nested()
    for key in sorted(ours.keys() | theirs.keys()):
        if key != "data" and ours.get(key) != theirs.get(key):
            raise FolderError(
                f"'{folder.path}' holds a run with other settings ({key} differs); "
                f"continue that one with 'foster resume {folder.path}', or choose another folder with --out"
            )


def _show(path: Path) -> None:
    Console().print(accuracy_table(find_results([path])))
    print(f"results: {path / 'results.json'}")
