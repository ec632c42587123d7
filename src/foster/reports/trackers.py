"""Where else the events of a run go: TensorBoard, and whatever tracker a laboratory has."""

import importlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from foster.errors import FosterError, SettingsError, words_of
from foster.events import EpochEnded, Evaluated, Event, Listener, RunStarted
from foster.settings.experiment import Settings
from foster.settings.plugins import load_plugins
from foster.system.output import complain

Tracker = Callable[[Path, Settings], Listener]
"""(the run's folder, its settings) -> who is told of every event. A `close` of the listener is called at the end. The
folder is there from `RunStarted` on: a run begins in one that is empty."""


def tracked(names: Sequence[str], folder: Path, settings: Settings, listener: Listener, ends: ExitStack) -> Listener:
    """The listener and all trackers in `names`, `MODULE:NAME` each, as one listener; `ends` closes them."""
    trackers = {name: _tracker(name, folder, settings) for name in names}
    for tracker in trackers.values():
        ends.callback(getattr(tracker, "close", lambda: None))

    def tell(event: Event) -> None:
        listener(event)
        for name, tracker in list(trackers.items()):
            try:
                tracker(event)
            except Exception as error:
                # A server that is gone must not cost a run.
                del trackers[name]
                complain(f"tracker '{name}' is told no more: {str(error) or type(error).__name__}")

    return tell if trackers else listener


def _tracker(name: str, folder: Path, settings: Settings) -> Listener:
    module, separator, attribute = name.partition(":")
    if not separator:
        raise SettingsError(f"'{name}' is no tracker: write MODULE:NAME, such as my_lab:mlflow_tracker (--track)")
    try:
        load_plugins([module])  # which looks in the current folder, too
    except SettingsError as error:
        raise SettingsError(f"tracker '{name}': {error} (--track)") from error
    try:
        make: Tracker = getattr(importlib.import_module(module), attribute)
        return make(folder, settings)
    except FosterError:
        raise
    except Exception as error:  # of somebody's own module, or of a server that is not there
        raise SettingsError(
            f"tracker '{name}' cannot be had: {type(error).__name__}: {words_of(error)} (--track)"
        ) from error


class TensorBoard:
    """Loss terms, learning rate and accuracies as scalars in RUN/tensorboard."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise SettingsError("--tensorboard needs TensorBoard: pip install 'foster-cil[tensorboard]'") from None
        self._open: Callable[[], Any] = lambda: SummaryWriter(str(folder / "tensorboard"))
        self._writer: Any = None
        self._num_epochs = 0

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunStarted):  # before that, a run must find its folder empty
            self._writer = self._open()
        elif isinstance(event, EpochEnded):
            self._num_epochs += 1
            for term, value in event.losses.items():
                self._writer.add_scalar(f"{event.phase}/{term}", value, self._num_epochs)
            self._writer.add_scalar(f"{event.phase}/learning_rate", event.learning_rate, self._num_epochs)
        elif isinstance(event, Evaluated):
            for name in ("accuracy", "new_accuracy", "old_accuracy"):
                value = getattr(event, name)
                if value is not None:
                    self._writer.add_scalar(f"{name}/{event.variant}", value, event.task + 1)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
