"""One run from its settings to its results, in its folder: begun, or continued where it stopped."""

from contextlib import suppress
from typing import Any, NamedTuple

from foster.errors import FolderError, FosterError
from foster.events import Listener, RunFailed
from foster.experiment.first_task import first_network
from foster.experiment.folder import RunFolder
from foster.experiment.run import Experiment
from foster.networks.network import Network
from foster.settings.experiment import Settings
from foster.system.signals import StopRequest


class Finished(NamedTuple):
    """What `results.json` holds, and the network after the last task."""

    results: dict[str, Any]
    network: Network


def begin(settings: Settings, folder: RunFolder, listener: Listener, stop: StopRequest) -> Finished:
    """A new run in a folder that holds nothing yet."""
    folder.check_free()
    # Data, device, backbone and a first task that is taken over are checked here, before the folder is made.
    experiment = Experiment(settings, folder, listener, stop)
    if settings.first_task_from:
        first_network(settings, experiment.method.result_name)
    # Who is asked to stop by now leaves no folder behind.
    stop.raise_if_set()
    with folder.opened(settings):
        return _finish(experiment)


def go_on(settings: Settings, folder: RunFolder, listener: Listener, stop: StopRequest) -> Finished:
    """The run that the folder holds, from its newest checkpoint; `settings` differ from its own in free ones alone."""
    experiment = Experiment(settings, folder, listener, stop)
    with folder.opened():
        folder.keep_settings(settings)
        return _finish(experiment)


def resumed_settings(settings: Settings, folder: RunFolder) -> Settings:
    """The settings to go on with where a run in `folder` is asked for once more: it must be the same run."""
    folder.check_same(settings)
    return settings.model_copy(update={"data": settings.data or folder.settings().data})


def _finish(experiment: Experiment) -> Finished:
    try:
        return Finished(experiment.run(), experiment.method.network)
    except FosterError as error:
        with suppress(FolderError):  # where even that cannot be written, who called is told anyway
            experiment.folder.note(RunFailed(str(error)))
        raise
