"""The events of a run: written to `events.jsonl` and shown as progress."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Event:
    """One event. Tasks and epochs are counted from 0 in events, and from 1 in messages, tables and figures."""

    def record(self) -> dict[str, Any]:
        """The event as plain data, with its name: `{"event": "EpochEnded", "task": 0, ...}`."""
        return {"event": type(self).__name__, **asdict(self)}


@dataclass(frozen=True)
class RunStarted(Event):
    """The data are read; the first task begins or continues. `folder` is empty if nothing is written."""

    method: str
    scenario: str
    num_tasks: int
    folder: str
    device: str


@dataclass(frozen=True)
class RunResumed(Event):
    """The run continues from a checkpoint. If `phase` is empty, the task starts from its beginning; if `is_phase_done`,
    no epoch of the phase is left."""

    task: int
    phase: str
    epoch: int
    is_phase_done: bool = False


@dataclass(frozen=True)
class TaskStarted(Event):
    """A task begins. `num_images` is the number of its training images, exemplars included."""

    task: int
    num_tasks: int
    num_known: int
    num_new: int
    num_images: int


@dataclass(frozen=True)
class LearnPlanned(Event):
    """The plan of a `learn`, as lines of text."""

    lines: tuple[str, ...]


@dataclass(frozen=True)
class PhaseStarted(Event):
    """A phase begins. `steps` is the number of optimizer steps of one epoch."""

    task: int
    num_tasks: int
    phase: str
    epochs: int
    steps: int


@dataclass(frozen=True)
class EpochEnded(Event):
    """An epoch ended. `losses` has the means over its images of each loss term, by name, and of their sum, `total`."""

    task: int
    phase: str
    epoch: int
    epochs: int
    losses: dict[str, float]
    learning_rate: float
    seconds: float
    seconds_left: float


@dataclass(frozen=True)
class PhaseEnded(Event):
    """A phase ended. `seconds` is the time since it started or was resumed."""

    task: int
    phase: str
    seconds: float


@dataclass(frozen=True)
class Evaluated(Event):
    """Accuracies in percent on all classes seen. They are None without test images; for old classes also in the first
    task."""

    task: int
    variant: str
    accuracy: float
    top5: float
    old_accuracy: float | None
    new_accuracy: float | None
    per_task: tuple[float | None, ...]


@dataclass(frozen=True)
class CheckpointWritten(Event):
    """A checkpoint was written, in `seconds`."""

    task: int
    phase: str
    epoch: int
    seconds: float


@dataclass(frozen=True)
class TaskEnded(Event):
    """A task is learned and evaluated. `accuracy` is that of the result, in percent; `seconds` includes the time before
    interruptions."""

    task: int
    accuracy: float
    num_exemplars: int
    seconds: float


@dataclass(frozen=True)
class RunEnded(Event):
    """All tasks are learned; accuracies in percent, and the seconds of all tasks."""

    average_incremental_accuracy: float
    final_accuracy: float
    seconds: float


@dataclass(frozen=True)
class Warned(Event):
    """A problem that does not stop the run, in one line."""

    message: str


@dataclass(frozen=True)
class Downloading(Event):
    """The number of received bytes of a published file, and its size if the server gives it.

    Sent many times, before the run has a folder. It is shown as progress and not written to `events.jsonl`.
    """

    name: str
    num_received: int
    num_total: int | None


@dataclass(frozen=True)
class Decoding(Event):
    """The number of decoded photos of a set, sent many times. It is shown as progress; only a `learn` writes it to
    `events.jsonl`."""

    what: str
    num_done: int
    num_total: int


@dataclass(frozen=True)
class PhotosDecoded(Event):
    """The photos of `what` are decoded and kept: `place` is device, host or disk."""

    what: str
    num_photos: int
    num_bytes: int
    place: str
    seconds: float


@dataclass(frozen=True)
class RunFailed(Event):
    """The run ended with an error; `message` is one line."""

    message: str


Listener = Callable[[Event], None]


def ignore(event: Event) -> None:
    """A listener that does nothing."""
