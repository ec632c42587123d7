"""A run that was interrupted anywhere ends exactly as one that was not."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny_runs import (
    Interruption,
    Outcome,
    assert_same,
    interrupted,
    outcome,
    resume,
    start,
    start_or_resume,
    tiny_settings,
    told_kinds,
)

from foster import events
from foster.errors import DataError, FolderError
from foster.events import Event
from foster.experiment.folder import RunFolder
from foster.experiment.run import go_on
from foster.settings.methods import METHOD_SETTINGS
from foster.system.signals import Stopped, StopRequest

Reference = Callable[..., Outcome]
Stop = Callable[[str, Path], Path]
TWO_TASKS = ("synthetic.num_classes=4",)


def at(kind: type[Event], **fields: object) -> Callable[[Event], bool]:
    """The event of this kind with these fields."""
    return lambda event: isinstance(event, kind) and all(getattr(event, key) == value for key, value in fields.items())


BOOST = at(events.PhaseStarted, task=1, phase="boost")
PLACES = {
    "in the first epoch of all": (at(events.PhaseStarted, task=0), 0, (0, "learn", 0, 1)),
    "after the first task": (at(events.TaskEnded, task=0), 0, (1, "")),
    "in the middle of an epoch of boost": (BOOST, 0, (1, "boost", 0, 1)),
    "at the end of an epoch of boost": (BOOST, 0, (1, "boost", 1, 0)),
    "in the middle of the last epoch of boost": (BOOST, 0, (1, "boost", 1, 1)),
    "between boost and compress": (at(events.PhaseEnded, task=1, phase="boost"), 0, (1, "boost")),
    "after the boosted network": (at(events.Evaluated, task=1, variant="boosted"), 0, (1, "compress", 0, 1)),
    "at the end of compress": (at(events.PhaseEnded, task=1, phase="compress"), 0, (1, "compress")),
    "between two tasks": (at(events.TaskEnded, task=1), 0, (2, "")),
    "in the middle of compress": (at(events.PhaseStarted, task=2, phase="compress"), 1, (2, "compress", 0, 2)),
}
"""In the order in which a run comes by: when the stop is asked for, how many steps after that, and where the checkpoint
then stands: task and phase, and inside a phase the next epoch and step."""


def interruption(place: str) -> Interruption:
    is_the_place, num_steps, _ = PLACES[place]
    return Interruption(is_the_place, num_steps)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Stop:
    """Copies a run of foster that was stopped at a place, made once, to a folder of the test's own."""
    made: dict[str, Path] = {}

    def copied(place: str, path: Path) -> Path:
        if place not in made:
            made[place] = tmp_path_factory.mktemp("stopped") / "run"
            interrupted(tiny_settings(), made[place], interruption(place))
        return Path(shutil.copytree(made[place], path))

    return copied


def standing(path: Path) -> tuple[object, ...]:
    checkpoint = RunFolder(path).checkpoints.load(print)
    position = checkpoint.state.get("position", {})
    return (
        checkpoint.state["task"],
        checkpoint.state["phase"],
        *(position[key] for key in position if key != "loss_sums"),
    )


def test_foster_interrupted_and_resumed_equals_an_uninterrupted_run(tmp_path: Path, uninterrupted: Reference):
    for place, (_, _, expected) in PLACES.items():
        told = interrupted(tiny_settings(), tmp_path / "run", interruption(place))
        assert told_kinds(told)[-1] == "CheckpointWritten", "the last thing that a stopped run does is to save"
        assert standing(tmp_path / "run") == expected, place
    heard: list[Event] = []
    resume(tmp_path / "run", heard.append)
    assert told_kinds(heard)[:2] == ["RunStarted", "RunResumed"]
    assert_same(outcome(tmp_path / "run"), uninterrupted("foster"))


EVERYTHING = (
    "foster.boost_branches=2",
    "foster.compress_cutmix=0.5",
    "foster.compress_old_weight=1",
    "foster.recall_first=true",
    "foster.alignment=weights",
    "foster.herding_features=compressed",
)


@pytest.mark.parametrize(
    ("options", "places"),
    [
        (EVERYTHING, [(1, "boost-2", 0), (1, "compress", 2), (2, "compress", 2)]),
        (("foster.compression=false",), [(2, "boost", 0)]),
    ],
    ids=["everything", "without compression"],
)
def test_options_of_foster_survive_a_resume(
    options: tuple[str, ...],
    places: list[tuple[int, str, int]],
    tmp_path: Path,
    uninterrupted: Reference,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("foster.settings.methods.FEW_NEW", 10)  # so that the first network teaches
    options = (*options, "synthetic.num_classes=4", "increment=1")
    for task, phase, num_steps in places:
        place = Interruption(at(events.PhaseStarted, task=task, phase=phase), num_steps)
        interrupted(tiny_settings("foster", *options), tmp_path / "run", place)
    resume(tmp_path / "run")
    assert_same(outcome(tmp_path / "run"), uninterrupted("foster", *options))


LAST_PHASES = {"podnet": "finetune", "bic": "correct", "der": "expand"}
WITHOUT_LATER_PHASES = {
    "slda": at(events.Evaluated, task=0, variant="trained"),
    "ridge": at(events.TaskEnded, task=0),
}
"""And where they are stopped once more."""
OTHERS = [name for name in METHOD_SETTINGS if name not in ("foster", "replay", "finetune")]
"""Replay is resumed after every fault of test_faults.py, and fine-tuning is replay without a memory."""


@pytest.mark.parametrize("method", OTHERS)
def test_every_method_resumes_in_the_middle_of_its_last_phase(method: str, tmp_path: Path, uninterrupted: Reference):
    places = [at(events.PhaseStarted, task=1, phase=LAST_PHASES.get(method, "learn"))]
    if method in WITHOUT_LATER_PHASES:
        places = [at(events.PhaseStarted, task=0, phase="learn"), WITHOUT_LATER_PHASES[method]]
    for place in places:
        interrupted(tiny_settings(method, *TWO_TASKS), tmp_path / "run", Interruption(place))
    resume(tmp_path / "run")
    assert_same(outcome(tmp_path / "run"), uninterrupted(method, *TWO_TASKS))


def test_tasks_without_a_phase_are_saved_from_time_to_time_at_a_stop_and_at_the_end(
    tmp_path: Path, uninterrupted: Reference
):
    heard: list[Event] = []
    settings = tiny_settings("ridge", "checkpoint_minutes=60")
    start(settings, tmp_path / "whole", heard.append)
    assert [event.task for event in heard if isinstance(event, events.CheckpointWritten)] == [0, 3]
    told = interrupted(settings, tmp_path / "run", Interruption(at(events.Evaluated, task=1)))
    assert told_kinds(told)[-1] == "CheckpointWritten"
    resume(tmp_path / "run")
    expected = uninterrupted("ridge").parts["network"]
    untrained = tiny_settings("ridge", "checkpoint_minutes=60", "ridge.train_backbone=false")
    start(untrained, tmp_path / "untrained", heard.append)
    assert heard[-1].__class__.__name__ == "RunEnded"
    tasks = [event.task for event in heard if isinstance(event, events.CheckpointWritten)][2:]
    assert tasks == [1, 3], "where no phase was saved, the first task is"
    for folder in ("whole", "run"):
        found = outcome(tmp_path / folder).parts["network"]
        assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_another_seed_gives_other_weights(tmp_path: Path, uninterrupted: Reference):
    start(tiny_settings("replay", "seed=7"), tmp_path / "run")
    expected, weights = uninterrupted("replay").parts["network"], outcome(tmp_path / "run").parts["network"]
    assert not all(torch.equal(weights[name], value) for name, value in expected.items())


def test_a_run_that_was_killed_before_its_first_checkpoint_starts_anew_and_writes_lost_results_again(
    tmp_path: Path, uninterrupted: Reference
):
    with RunFolder(tmp_path / "run").opened(tiny_settings("replay")):
        pass
    start_or_resume(tmp_path / "run", tiny_settings("replay"))
    assert_same(outcome(tmp_path / "run"), uninterrupted("replay"))
    (tmp_path / "run" / "results.json").write_text('{"finished": tr', encoding="utf-8")
    assert not RunFolder(tmp_path / "run").is_finished
    resume(tmp_path / "run")
    assert_same(outcome(tmp_path / "run"), uninterrupted("replay"))


def test_a_checkpoint_of_other_settings_is_refused_with_the_key_and_both_values(tmp_path: Path, stopped: Stop):
    stopped("between two tasks", tmp_path / "run")
    settings = tmp_path / "run" / "settings.toml"
    text = settings.read_text(encoding="utf-8")
    settings.write_text(text.replace("batch_size = 16", "batch_size = 8"), encoding="utf-8")
    with pytest.raises(FolderError, match="batch_size = 16, not 8"):
        resume(tmp_path / "run")


@pytest.mark.parametrize("changed", ["classes", "network"])
def test_an_intact_checkpoint_of_other_classes_or_weights_is_refused_in_one_line(
    changed: str, tmp_path: Path, stopped: Stop
):
    folder = RunFolder(stopped("between two tasks", tmp_path / "run"))
    checkpoint = folder.checkpoints.load(print)
    state, parts = checkpoint.state, checkpoint.parts
    if changed == "classes":
        state = state | {"classes": ["cat", "dog"]}
    else:
        parts = parts | {"network": parts["network"] | {"head.weight": torch.zeros(1, 1)}}
    folder.checkpoints.save(state, parts, {})
    with pytest.raises((DataError, FolderError), match=r"classes|checkpoint") as caught:
        resume(tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_a_stop_while_the_images_are_read_leaves_an_interrupted_run_as_it_is(stopped: Stop, tmp_path: Path) -> None:
    path = stopped("between boost and compress", tmp_path / "run")
    before = (path / "events.jsonl").read_bytes()
    stop = StopRequest()
    stop.set()
    with pytest.raises(Stopped):
        go_on(tiny_settings(), RunFolder(path), events.ignore, stop)
    assert (path / "events.jsonl").read_bytes() == before
