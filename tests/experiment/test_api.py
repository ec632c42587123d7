"""`foster.run` and `foster.plan`, as a script calls them."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from photo_folders import write_classes

import foster
from foster.events import EpochEnded, Event, PhaseStarted, RunEnded, TaskEnded, TaskStarted

TINY: dict[str, Any] = {
    "dataset": "synthetic",
    "synthetic": {"num_classes": 6, "train_per_class": 8, "test_per_class": 2, "image_size": 8},
    "increment": 2,
    "memory_total": 12,
    "batch_size": 8,
    "epochs_scale": 0.01,
    "backbone": "resnet8",
    "augmentation": "none",
    "device": "cpu",
    "method": "replay",
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def plain() -> foster.Result:
    """A run without a folder."""
    return foster.run(**TINY)


def test_a_run_without_a_folder_is_silent_writes_nothing_and_sets_no_signal_handlers(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = tmp_path / "temporary"
    places.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(places))
    handlers: list[object] = []
    result = foster.run(**TINY, listener=lambda event: handlers.append(signal.getsignal(signal.SIGINT)))
    assert set(handlers) == {signal.getsignal(signal.SIGINT)}
    assert capfd.readouterr() == ("", "")
    assert sorted(tmp_path.iterdir()) == [places]
    assert not list(places.iterdir())
    assert len(result.accuracy) == 3
    assert result.finished


def test_a_listener_computes_metrics_of_its_own_when_a_task_has_ended(tmp_path: Path) -> None:
    found, told = [], []

    def measure(event: Event) -> None:
        if isinstance(event, TaskEnded):
            (so_far,) = foster.load_results(tmp_path / "run")
            labels, predicted = so_far.predictions_after(event.task)
            found.append(100 * (labels == predicted).mean())
            told.append(event.accuracy)

    result = foster.run(**TINY, folder=tmp_path / "run", listener=measure)
    assert found == pytest.approx(told)
    assert told == result.accuracy


def test_the_result_is_that_of_the_same_run_in_a_folder(plain: foster.Result, tmp_path: Path) -> None:
    there = foster.run(**TINY, folder=tmp_path / "run", resume=True)  # which begins one where the folder holds none
    with pytest.raises(foster.DataError, match="needs the folder of the run"):
        plain.predictions_after(0)
    for name in ("accuracy", "accuracy_matrix", "average_incremental_accuracy", "final_accuracy", "forgetting"):
        assert getattr(there, name) == getattr(plain, name)
    weights, others = there.network.state_dict(), plain.network.state_dict()
    assert all(torch.equal(weights[name], others[name]) for name in weights)
    assert (tmp_path / "run" / "settings.toml").exists()


def test_keywords_are_settings_nested_or_dotted() -> None:
    told: list[Event] = []
    result = foster.run(
        "digits",
        **{**TINY, "method": "foster", "epochs_scale": 1.0, "memory_total": None, "memory_per_class": 2},
        foster={"first": {"epochs": 2}, "boost": {"epochs": 1}},
        **{"foster.compress.epochs": 3},
        seed=7,
        listener=told.append,
    )
    phases = {event.phase: event.epochs for event in told if isinstance(event, PhaseStarted)}
    assert phases == {"learn": 2, "boost": 1, "compress": 3}
    assert result.settings["foster"]["first"]["learning_rate"] == 0.1, "what a table does not name stays"
    assert (result.seed, result.settings["memory_per_class"]) == (7, 2)
    assert isinstance(told[-1], RunEnded)


def test_numbers_of_numpy_are_numbers() -> None:
    asked = {**TINY, "method": "foster", "seed": np.int64(3), "epochs_scale": np.float64(0.01)}
    settings = foster.plan(**asked, foster={"beta_boost": list(np.linspace(0.9, 0.95, 2))}).settings
    assert (settings.seed, settings.epochs_scale) == (3, 0.01)
    assert settings.options.beta_boost == (0.9, 0.95)  # type: ignore[attr-defined]


def test_an_augmentation_is_a_table_of_its_own() -> None:
    plan = foster.plan(**{**TINY, "augmentation": {"flip": True}})
    assert plan.settings.augmentation_settings.flip
    assert not plan.settings.augmentation_settings.crop_padding


@pytest.mark.parametrize(
    ("keywords", "facts"),
    [
        ({"metod": "wa"}, "'metod'.*'method'"),
        ({"method": "wax"}, "'wax'.*'wa'"),
        ({"wa": {"temperature": 1.0}}, r"wa\.temperature.*replay"),
        ({"batch_size": object()}, "batch_size.*object"),
        ({"backbone": torch.nn.Flatten()}, "backbone.*register_backbone"),
        ({"dataset": object()}, "dataset.*register_dataset"),
        ({"resume": True}, "resume=True.*folder"),
        ({"source": "cifar10-b0"}, "'cifar10-b0'"),
    ],
)
def test_a_mistake_is_one_line_before_anything_is_trained(keywords: dict[str, Any], facts: str) -> None:
    with pytest.raises((foster.SettingsError, foster.DataError), match=facts):
        foster.run(**{**TINY, **keywords})


def test_progress_is_shown_if_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    foster.run(**TINY, progress=True)
    first = capfd.readouterr().err.splitlines()[0]
    assert first == "replay on synthetic-b0-inc2: 3 tasks on cpu", "a folder that goes again is nobody's business"


@pytest.fixture
def heard_interrupts() -> Iterator[None]:
    """Ctrl-C is Python's KeyboardInterrupt, also where the tests were started with the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard_interrupts")
def test_a_keyboard_interrupt_comes_through_at_once_and_the_folder_can_be_resumed(
    plain: foster.Result, tmp_path: Path
) -> None:
    def interrupt(event: Event) -> None:
        if isinstance(event, EpochEnded) and event.task == 1:
            os.kill(os.getpid(), signal.SIGINT)

    path = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt) as caught:
        foster.run(**TINY, folder=path, listener=interrupt)
    assert "resume=True" in caught.value.__notes__[0]
    (half,) = foster.load_results(path)
    assert (half.finished, len(half.accuracy)) == (False, 1)
    with pytest.raises(foster.FolderError, match="resume=True"):
        foster.run(**TINY, folder=path)
    with pytest.raises(foster.FolderError, match="seed"):
        foster.run(**TINY, folder=path, resume=True, seed=5)
    told: list[Event] = []
    whole = foster.run(**TINY, folder=path, resume=True, listener=told.append)
    assert [event.task for event in told if isinstance(event, TaskStarted)] == [1, 2]
    assert whole.accuracy_matrix == plain.accuracy_matrix
    again = foster.run(**TINY, folder=path, resume=True)
    assert again.to_dict() == whole.to_dict()
    assert all(torch.equal(a, b) for a, b in zip(again.network.parameters(), whole.network.parameters(), strict=True))


def test_photos_that_came_since_the_last_call_are_seen(tmp_path: Path) -> None:
    write_classes(tmp_path / "photos", cat=4, dog=4)
    photos = {**TINY, "dataset": "folder", "data": tmp_path / "photos", "photos": {"test_share": 0.25}}
    del photos["synthetic"]
    assert foster.plan(**photos).tasks[0].new_images == 6
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name / "more.png").write_bytes((tmp_path / "photos" / name / "0.png").read_bytes())
    assert foster.plan(**photos).tasks[0].new_images == 8


def test_a_plan_takes_the_same_arguments_and_tells_what_the_run_does(plain: foster.Result) -> None:
    plan = foster.plan(**TINY)
    assert plain.to_dict()["params_by_task"] == [task.params for task in plan.tasks]
    assert plan.time is None
    assert foster.plan(**TINY, measure=True).time is not None
