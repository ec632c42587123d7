"""The events of a run as TensorBoard's scalars."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from foster.errors import SettingsError
from foster.events import EpochEnded, Evaluated, Event, Listener, RunStarted
from foster.experiment.event_log import FollowedRun


@contextmanager
def with_tensorboard(listener: Listener, folder: Path) -> Iterator[Listener]:
    """The listener, which also writes loss terms, learning rates and accuracies to `folder`/tensorboard."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise SettingsError("--tensorboard needs TensorBoard: pip install 'foster-cil[tensorboard]'") from None
    writer: Any = None
    numbers: dict[tuple[int, str, int], int] = {}
    """The number of each epoch, by task, phase and epoch; epochs before a resume are counted."""

    def write(event: Event) -> None:
        nonlocal writer
        listener(event)
        match event:
            case RunStarted():  # not earlier: a run starts in an empty folder
                writer = SummaryWriter(str(folder / "tensorboard"))
                before = FollowedRun(folder)
                before.read_events()
                numbers.update((key, number) for number, key in enumerate(before.progress.trained, start=1))
            case EpochEnded():
                number = numbers.setdefault((event.task, event.phase, event.epoch), len(numbers) + 1)
                for term, value in (*event.losses.items(), ("learning_rate", event.learning_rate)):
                    writer.add_scalar(f"{event.phase}/{term}", value, number)
            case Evaluated():
                for name in ("accuracy", "new_accuracy", "old_accuracy"):
                    if (value := getattr(event, name)) is not None:
                        writer.add_scalar(f"{name}/{event.variant}", value, event.task + 1)

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()
