"""The steps of a task on the shared loop: in order, from where it stands, saved where it may stop."""

import copy
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_course import engine, new_method, task_of
from torch import Tensor, nn

from foster.events import CheckpointWritten, Event, PhaseStarted, TaskStarted
from foster.losses import cross_entropy
from foster.methods.foster import Foster
from foster.settings.augmentation import Augmentation
from foster.settings.fit import FitSettings
from foster.settings.methods import FosterSettings
from foster.system.processes import ProcessGroup
from foster.system.signals import Stopped, StopRequest
from foster.training import task as module
from foster.training.checkpoint import CheckpointStore
from foster.training.phase import Phase
from foster.training.task import TaskState, Trainer

SHORT = FitSettings(epochs=2, learning_rate=0.05)
SETTINGS = FosterSettings(first=SHORT, boost=SHORT, compress=SHORT)


class StopAfter(StopRequest):
    """A stop that is asked for after some steps."""

    def __init__(self, num_steps: int) -> None:
        super().__init__()
        self.num_left = num_steps

    @property
    def is_set(self) -> bool:
        self.num_left -= 1
        if self.num_left < 0:
            self.set(signal.SIGINT)
        return self.num_left < 0


def trainer_with(told: list[Event], stop: StopRequest | None = None, minutes: float = 5.0) -> Trainer:
    return Trainer(engine(), Augmentation(), 32, 5, told.append, stop or StopRequest(), minutes, num_tasks=3)


def second_task(trainer: Trainer, store: CheckpointStore | None, state: TaskState) -> tuple[Foster, list[str]]:
    """FOSTER after its second task, trained by `trainer` from `state` on, and the networks that were evaluated."""
    method = new_method(Foster, SETTINGS)
    assert isinstance(method, Foster)
    first = task_of(method, 0)
    for _ in method.phases(first):
        pass  # as if the first task had been learned: the weights do not matter here
    seen: list[str] = []
    save = None if store is None else lambda: state.save(store, {"whose": "ours"}, trainer.listener)
    task = task_of(method, 1)
    trainer.begin(task)
    epochs = trainer.learn(method.phases(task), state, lambda wanted: seen.append(wanted.variant), save)
    assert epochs == {"boost": 2, "compress": 2}
    return method, seen


def test_phases_are_trained_and_networks_evaluated_in_the_order_of_the_story() -> None:
    told: list[Event] = []
    method, seen = second_task(trainer_with(told), None, TaskState(1))
    assert seen == ["boosted"]
    assert [event.phase for event in told if isinstance(event, PhaseStarted)] == ["boost", "compress"]
    started = next(event for event in told if isinstance(event, TaskStarted))
    assert (started.task, started.num_tasks, started.num_known, started.num_new) == (1, 3, 4, 2)
    assert method.memory.num_classes == 6
    assert not any(isinstance(event, CheckpointWritten) for event in told)


def test_images_have_another_order_for_each_seed_task_and_phase() -> None:
    method, trainer = new_method(Foster, SETTINGS), trainer_with([])
    phase = next(iter(method.phases(task_of(method, 0))))
    orders = [
        each._feed(replace(phase, name=name), task).start.number()
        for each in (trainer, replace(trainer, seed=6))
        for name in ("learn", "boost")
        for task in (0, 1)
    ]
    assert len(set(orders)) == 8


@pytest.mark.parametrize(("minutes", "epochs"), [(0.0, [1, 0]), (1e-9, [0, 0, 1, 1, 1, 0]), (5.0, [0])])
def test_checkpoints_are_written_after_every_epoch_every_interval_and_every_phase(
    minutes: float, epochs: list[int], tmp_path: Path
) -> None:
    """Two phases of two epochs of three steps; what a phase ends with is written in any case."""
    told: list[Event] = []
    second_task(trainer_with(told, minutes=minutes), CheckpointStore(tmp_path), TaskState(1))
    written = [event for event in told if isinstance(event, CheckpointWritten)]
    found = [(event.task, event.phase, event.epoch) for event in written]
    assert found == [(1, phase, epoch) for phase in ("boost", "compress") for epoch in epochs]


def with_mean_teacher(trainer: Trainer, store: CheckpointStore, state: TaskState) -> list[Tensor]:
    """The weights of a network and of its mean teacher after two phases; the second begins with the teacher's."""
    method = new_method(Foster, SETTINGS)
    task = task_of(method, 0)
    for _ in method.phases(task):
        pass
    teacher, network = copy.deepcopy(method.network), method.network

    def on_epoch(epoch: int) -> None:
        for average, tensor in zip(teacher.state_dict().values(), network.state_dict().values(), strict=True):
            average.copy_(0.5 * average + 0.5 * tensor)

    def objective(images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        with torch.no_grad():
            wanted = teacher(images).logits
        logits = network(images).logits
        return {"L_CE": cross_entropy(logits, labels), "L_MT": (logits - wanted).square().mean()}

    def phases() -> Iterator[Phase]:
        phase = Phase("follow", network, objective, SHORT, task.training, (teacher.eval(),), on_epoch)
        yield phase
        network.load_state_dict(teacher.state_dict())
        yield replace(phase, name="again", on_epoch=None)

    trainer.learn(phases(), state, lambda wanted: None, lambda: state.save(store, {}, trainer.listener))
    return [*network.state_dict().values(), *teacher.state_dict().values()]


@pytest.fixture(scope="module")
def whole_with_teacher(tmp_path_factory: pytest.TempPathFactory) -> list[Tensor]:
    return with_mean_teacher(trainer_with([]), CheckpointStore(tmp_path_factory.mktemp("whole")), TaskState(0))


@pytest.mark.parametrize("num_steps", [5, 9], ids=["in the second epoch", "in the next phase"])
def test_a_teacher_that_changes_while_a_phase_is_trained_is_resumed(
    num_steps: int, whole_with_teacher: list[Tensor], tmp_path: Path
) -> None:
    store = CheckpointStore(tmp_path)
    with pytest.raises(Stopped):
        with_mean_teacher(trainer_with([], StopAfter(num_steps)), store, TaskState(0))
    checkpoint = store.load(pytest.fail)
    assert checkpoint is not None
    found = with_mean_teacher(trainer_with([]), store, TaskState.of(checkpoint))
    assert all(map(torch.equal, found, whole_with_teacher))


def test_processes_agree_on_their_statistics_at_the_same_steps_whether_they_are_stopped_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[int] = []

    def note_step(network: nn.Module) -> None:
        places.append(max(int(count) for name, count in network.named_buffers() if name.endswith("tracked")))

    monkeypatch.setattr(module, "process_group", lambda: ProcessGroup(0, 2))
    monkeypatch.setattr(module, "agreed", bool)
    monkeypatch.setattr(module, "agree_on_statistics", note_step)
    monkeypatch.setattr(module, "STEPS_BETWEEN_AGREEMENTS", 3)

    def learned(state: TaskState, stop: StopRequest | None = None) -> list[int]:
        places.clear()
        second_task(replace(trainer_with([], stop), batch_size=12), CheckpointStore(tmp_path), state)
        return places.copy()

    with pytest.raises(Stopped):
        learned(TaskState(1), StopAfter(2))
    before = places.copy()
    checkpoint = CheckpointStore(tmp_path).load(pytest.fail)
    assert checkpoint is not None
    after = learned(TaskState.of(checkpoint))
    assert before + after == learned(TaskState(1)) == 2 * [3, 6, 7, 10, 13]
