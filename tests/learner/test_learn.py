"""Whatever a learner is built on and whatever goes wrong, `learn` works the same way or says one clear line."""

from pathlib import Path
from typing import Any

import pytest
import torch
from small_learners import digits, is_same, small_learner
from torch import Tensor, nn

import foster
from foster.bundle.folder import BundleError
from foster.errors import DataError
from foster.events import CheckpointWritten, Evaluated, Event, TaskStarted
from foster.experiment.engine import engine_settings
from foster.learner.learner import Learner
from foster.settings.engine import EngineSettings
from foster.system.signals import Stopped, StopRequest
from foster.training.engine import Engine


class Odd(nn.Module):
    """One convolution under two names, a weight and statistics of five dimensions, which have no channels-last layout,
    and dropout, which draws from torch's generator in every step."""

    def __init__(self) -> None:
        super().__init__()
        self.first = self.again = nn.Conv2d(3, 3, 3, padding=1)
        self.last = nn.Conv2d(3, 8, 3)
        self.shift = nn.Parameter(torch.zeros(1, 8, 1, 1, 1))
        self.register_buffer("scale", torch.ones(1, 8, 1, 1, 1))
        self.dropout = nn.Dropout(0.5)

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = self.dropout(self.last(self.again(self.first(images))))
        return out * self.get_buffer("scale")[0, :, 0] + self.shift[0, :, 0]


class Choosy(nn.Module):
    """Cannot take a batch of no images."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3)

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = self.convolution(images)
        return out.clamp_max(out.max())


def stopping_at(number: int, stop: StopRequest) -> Any:
    """A listener that asks for a stop when the checkpoint of this number was written."""
    num_written = 0

    def listen(event: Event) -> None:
        nonlocal num_written
        num_written += isinstance(event, CheckpointWritten)
        if num_written == number:
            stop.set()

    return listen


def test_any_module_is_learned_interrupted_continued_saved_and_loaded(tmp_path: Path) -> None:
    def fresh(seed: int = 1993) -> Learner:
        return small_learner(backbone=Odd, seed=seed, epochs_scale=0.01, batch_size=32, checkpoint_minutes=1e-9)

    first, second = digits("zero", "one"), digits("two", last=20)
    whole, parted = fresh(), fresh()
    whole.learn(first)
    whole.learn(second)
    parted.learn(first)
    is_finished, num_stops = False, 0
    while not is_finished:
        stop = StopRequest()
        try:
            torch.manual_seed(num_stops)  # what others drew before does not matter
            parted.learn(second, work_folder=tmp_path / "work", stop=stop, listener=stopping_at(3, stop))
            is_finished = True
        except Stopped:
            num_stops += 1
    assert num_stops >= 2
    assert is_same(parted, whole)
    other = fresh(seed=1)
    other.learn(first)
    other.learn(second)
    assert not is_same(other, whole)
    parted.save(tmp_path / "bundle")
    with pytest.raises(BundleError, match="custom:Odd"):
        foster.load(tmp_path / "bundle")
    with pytest.raises(BundleError, match="network"):
        foster.load(tmp_path / "bundle", backbone=lambda: nn.Flatten())
    again = foster.load(tmp_path / "bundle", backbone=Odd, device="cpu")
    images = digits("zero", "two", last=10)[0]
    assert [found.record() for found in again.predict(images)] == [found.record() for found in whole.predict(images)]
    again.learn(digits("three", last=20))


def test_who_is_asked_to_stop_before_the_training_begins_none() -> None:
    stop, told = StopRequest(), list[Event]()
    stop.set()
    with pytest.raises(Stopped):
        small_learner().learn(digits("zero", "one", last=10), stop=stop, listener=told.append)
    assert not any(isinstance(event, TaskStarted) for event in told)


def test_a_stop_does_not_wait_for_the_closed_form_of_thousands_of_photos_that_were_trained_on(weights: Path) -> None:
    learner, stop = small_learner(weights=str(weights)), StopRequest()

    def listener(event: Event) -> None:
        if isinstance(event, Evaluated):  # all is trained
            stop.set()

    with pytest.raises(Stopped):
        learner.learn(digits("zero", "one"), stop=stop, listener=listener)
    assert learner.knowledge is None


def test_a_module_is_never_given_a_batch_of_no_images() -> None:
    learner = small_learner("icarl", backbone=Choosy, validation_share=0)
    learner.learn(digits("zero", "one", last=10))
    nothing, _ = digits("zero", last=0)
    assert learner.classifier().all_scores(nothing).shape == (0, 2)
    assert len(learner.classifier().features(nothing)) == 0


def test_a_learn_asks_for_the_engine_that_suits_its_backbone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[EngineSettings] = []

    def build_engine(settings: EngineSettings, device: str, mean: Any, std: Any) -> Engine:
        asked.append(settings)
        return Engine(torch.device(device), mean, std)

    monkeypatch.setattr("foster.learner.train.build_engine", build_engine)
    for backbone in ("resnet8", Odd):
        small_learner(backbone=backbone).learn(digits("zero", "one", last=10))
    assert [settings.capture for settings in asked] == ["auto", "off"]
    assert engine_settings(EngineSettings(capture="on"), is_builtin=False).capture == "on"


def test_one_image_of_each_class_is_enough() -> None:
    learner = small_learner(image_size=8)
    learner.learn(digits("zero", "one", last=1))
    learner.learn(digits("two", last=1))
    assert learner.class_names == ("zero", "one", "two")


def test_what_will_not_fit_into_memory_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A learn holds its images five times at its peak, an evaluation once."""
    learner = small_learner()
    learner.learn(digits("zero", "one"))
    images, names = digits("two", "three")
    room = {"SC_PAGE_SIZE": images.numel(), "SC_PHYS_PAGES": 5}
    monkeypatch.setattr("foster.system.memory.os.sysconf", room.__getitem__)
    with pytest.raises(DataError, match="80 images of 8 x 8 need"):
        learner.learn(images, names)
    assert learner.evaluate(images, ["zero"] * 80).num_images == 80
    room["SC_PHYS_PAGES"] = 6
    learner.learn(images, names)
