"""Whole small runs on a GPU: the same numbers where they are asked for, and a GPU that is really full."""

import gc
import multiprocessing
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tiny_runs import (
    Interruption,
    assert_same,
    ignore,
    interrupted,
    outcome,
    resume,
    start,
    tiny_settings,
)
from torch import Tensor, nn

from foster import events
from foster.cli import experiments
from foster.data.feed import ResidentFeed
from foster.data.images import ImageSet
from foster.errors import DeviceError
from foster.events import Event
from foster.experiment.folder import RunFolder
from foster.seeding import Address
from foster.settings.augmentation import Augmentation
from foster.settings.experiment import Settings
from foster.settings.fit import FitSettings
from foster.training.engine import Engine
from foster.training.fit import fit
from foster.training.phase import Phase

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

DEVICE = torch.device("cuda", 0)
SPAWN = multiprocessing.get_context("spawn")
SECONDS = 300
LARGER = (
    "device=cuda",
    "synthetic.train_per_class=40",
    "synthetic.image_size=32",
    "backbone=resnet32",
    "batch_size=32",
    "augmentation=auto",
    "epochs_scale=0.03",
)


def gpu_settings(method: str) -> Settings:
    """All accelerators as they are by default."""
    return tiny_settings(method, *LARGER, "engine.deterministic=true")


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)
    torch.cuda.set_per_process_memory_fraction(1.0, DEVICE)


def run_whole(settings: Settings, path: Path) -> None:
    start(settings, path)


def run_in_two_parts(settings: Settings, path: Path) -> None:
    """Stopped in the second task, in the middle of an epoch of its last phase, and resumed."""
    phases: list[str] = []

    def is_the_place(event: Event) -> bool:
        if isinstance(event, events.PhaseStarted) and event.task == 1:
            phases.append(event.phase)
        return len(phases) == (2 if settings.method == "foster" else 1)

    interrupted(settings, path, Interruption(is_the_place, num_steps=3))
    resume(path)


@pytest.mark.parametrize("method", ["foster", "podnet"])
def test_deterministic_runs_and_one_that_was_interrupted_end_with_the_same_bits(method: str, tmp_path: Path):
    """Each in a process of its own, as users start them: the library reads its environment once."""
    settings = gpu_settings(method)
    for name, work in (("first", run_whole), ("second", run_whole), ("resumed", run_in_two_parts)):
        process = SPAWN.Process(target=work, args=(settings, tmp_path / name))
        process.start()
        process.join(SECONDS)
        assert process.exitcode == 0
    first = outcome(tmp_path / "first")
    assert first.results["environment"]["capture"] is True
    assert_same(outcome(tmp_path / "second"), first)
    assert_same(outcome(tmp_path / "resumed"), first)


def test_the_peak_of_a_run_is_not_that_of_a_larger_run_before_it(tmp_path: Path):
    peaks = []
    for side in (64, 16):
        settings = tiny_settings("replay", *LARGER, f"synthetic.image_size={side}")
        peaks.append(start(settings, tmp_path / str(side))["environment"]["peak_gpu_bytes"])
        gc.collect()
    assert peaks[1] < peaks[0]


def test_a_gpu_that_is_really_full_gives_one_line_and_the_advice_works(tmp_path: Path):
    path = tmp_path / "run"

    def fill(event: Event) -> None:
        if isinstance(event, events.TaskEnded):
            torch.cuda.empty_cache()
            torch.cuda.set_per_process_memory_fraction(1e-5, DEVICE)

    with pytest.raises(DeviceError) as error:
        start(tiny_settings("foster", *LARGER), path, fill)
    message = str(error.value)
    assert "\n" not in message
    assert message.startswith("out of memory on cuda:0: ")
    assert f"foster resume {path}" in message
    assert "engine.resident=off" in message
    assert RunFolder(path).checkpoints.load(print) is not None
    torch.cuda.set_per_process_memory_fraction(1.0, DEVICE)
    experiments.resume(path, ["engine.resident=off"], quiet=True)
    results = RunFolder(path).read_results()
    assert results["finished"] is True
    assert len(results["accuracy"]) == 3


def trained(failure: str) -> tuple[list[Tensor], int]:
    """The weights after two epochs of recorded steps, the first recording of which runs out of memory."""
    chance = torch.Generator().manual_seed(0)
    images = torch.randint(256, (50, 3, 8, 8), dtype=torch.uint8, generator=chance)
    data = ImageSet(images, torch.arange(50) % 4, ("a", "b", "c", "d"))
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4))
    network.to(DEVICE)
    num_failures = 0

    def objective(batch: Tensor, labels: Tensor) -> dict[str, Tensor]:
        nonlocal num_failures
        loss = nn.functional.cross_entropy(network(batch), labels)
        if failure and torch.cuda.is_current_stream_capturing() and not num_failures:
            num_failures += 1
            if failure == "raised":
                raise torch.OutOfMemoryError("CUDA out of memory.")
            torch.empty(2**46, dtype=torch.uint8, device=DEVICE)
        return {"L": loss}

    engine = Engine(DEVICE, (0.5,) * 3, (0.5,) * 3, capture=True)
    feed = ResidentFeed(data, Augmentation(), 16, Address(0, "feed"), DEVICE)
    phase = Phase("learn", network, objective, FitSettings(epochs=2, learning_rate=0.05), data)
    for _ in fit(phase, feed, engine, ignore, task=0):
        pass
    return [tensor.detach().cpu() for tensor in network.state_dict().values()], num_failures


@pytest.mark.parametrize("failure", ["raised", "real"])
def test_a_recording_that_runs_out_of_memory_is_tried_once_more_and_changes_nothing(failure: str):
    expected, _ = trained("")
    found, num_failures = trained(failure)
    assert num_failures == 1
    for first, second in zip(found, expected, strict=True):
        torch.testing.assert_close(first, second)
