"""Faults from outside: a full disk, a read-only folder, data or checkpoints that are gone, a loss that explodes."""

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from faults import FullDisk
from small_cifar import archive_of, published, small_files, write
from tiny_runs import (
    Interruption,
    Outcome,
    assert_same,
    ignore,
    interrupted,
    only_line,
    outcome,
    records_of,
    resume,
    start,
    start_or_resume,
    stopped_run,
    tiny_settings,
)

from foster import events
from foster.data.images import ImageSet
from foster.errors import DataError, FolderError, TrainingError
from foster.events import Event
from foster.experiment.folder import RunFolder
from foster.experiment.run import begin
from foster.reports.progress import LineProgress
from foster.settings.datasets import CATALOGUE
from foster.settings.fit import FitSettings
from foster.system.signals import StopRequest

Reference = Callable[..., Outcome]


WRITES = [
    ("settings.toml", 0),
    ("events.jsonl", 0),
    ("-fit.safetensors", 0),
    ("-optimizer.safetensors", 0),
    ("manifest-", 0),
    ("results.json", 0),
    ("-memory.safetensors", 0),
    ("-network.safetensors", 1),
]
"""The files that a full disk leaves half written, one after the other, and how many of them are whole before that."""


def test_a_full_disk_gives_one_line_and_the_run_goes_on_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uninterrupted: Reference
):
    path, settings = tmp_path / "run", tiny_settings("replay")
    for name, num_whole in WRITES:
        disk = FullDisk(name, num_whole)
        with monkeypatch.context() as patch:
            patch.setattr("os.write", disk)
            with pytest.raises(FolderError, match="No space left on device") as error:
                start_or_resume(path, settings)
        assert disk.has_failed
        assert str(path) in only_line(error)
        assert not list(path.rglob("*.part"))
    start_or_resume(path, settings)
    assert_same(outcome(path), uninterrupted("replay"))
    assert records_of(path / "events.jsonl")[-1]["event"] == "RunEnded"


def test_a_folder_that_cannot_be_gives_one_line(tmp_path: Path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(FolderError):
        start(tiny_settings("replay"), tmp_path / "file" / "run")
    assert (tmp_path / "file").read_text() == "x"


def run_stopped_in_second_task(folder: Path) -> Path:
    in_second_task = Interruption(lambda event: isinstance(event, events.PhaseStarted) and event.task == 1, 2)
    interrupted(tiny_settings("replay"), folder / "run", in_second_task)
    return folder / "run"


def test_a_damaged_checkpoint_gives_one_warning_line_and_the_run_ends_the_same(
    tmp_path: Path, uninterrupted: Reference
):
    path = run_stopped_in_second_task(tmp_path)
    newest = max((path / "checkpoints").glob("*-fit.safetensors"))
    newest.write_bytes(newest.read_bytes()[:-9])
    shown = io.StringIO()
    resume(path, LineProgress(shown))
    warnings = [line for line in shown.getvalue().splitlines() if line.startswith("warning: checkpoint '")]
    assert warnings
    noted = [event["message"] for event in records_of(path / "events.jsonl") if event["event"] == "Warned"]
    assert [f"warning: {message}" for message in noted] == warnings
    assert_same(outcome(path), uninterrupted("replay"))


def test_a_damaged_file_that_both_checkpoints_share_gives_one_line_and_nothing_is_changed(tmp_path: Path):
    path = run_stopped_in_second_task(tmp_path)
    newest = max((path / "checkpoints").glob("*-memory.safetensors"))
    newest.write_bytes(newest.read_bytes()[:-9])
    before = {file.name: file.read_bytes() for file in (path / "checkpoints").iterdir()}
    with pytest.raises(FolderError) as error:
        resume(path)
    assert only_line(error).startswith("no checkpoint in ")
    assert {file.name: file.read_bytes() for file in (path / "checkpoints").iterdir()} == before


@pytest.mark.parametrize("left", [("results.json", "events.jsonl"), ("events.jsonl",)])
def test_a_run_whose_checkpoints_are_gone_does_not_start_anew_over_its_results(
    left: tuple[str, ...], tmp_path: Path, uninterrupted: Reference
):
    path = stopped_run(tmp_path / "run")
    (path / "checkpoints").rename(tmp_path / "aside")
    for name in {"results.json", "events.jsonl"} - {*left}:
        (path / name).rename(tmp_path / name)
    before = {name: (path / name).read_bytes() for name in left}
    expected = f"'{path}'.*'{path}/checkpoints'"
    with pytest.raises(FolderError, match=expected) as error:
        resume(path)
    only_line(error)
    assert all((path / name).read_bytes().startswith(before[name]) for name in left)
    (tmp_path / "aside").rename(path / "checkpoints")
    resume(path)
    whole = uninterrupted("replay")
    assert_same(replace(outcome(path), losses=whole.losses), whole)  # what was told before may be gone


def test_data_that_disappears_gives_one_line_on_resume_and_is_not_needed_between_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    source = published(archive_of(small_files()))  # at an address where nobody listens
    facts = replace(CATALOGUE["cifar100"], published=source, num_classes=3, num_train=5, num_test=2)
    monkeypatch.setitem(CATALOGUE, "cifar100", facts)
    monkeypatch.setenv("no_proxy", "*")
    data, aside = tmp_path / "data", tmp_path / "aside"
    files = write(data / source.folder, small_files())
    overrides = ("dataset=cifar100", f"data={data}", "base_classes=1", "increment=1", "memory_per_class=2")

    def lose_data(event: Event) -> None:
        if isinstance(event, events.TaskEnded) and data.exists():
            data.rename(aside)

    start(tiny_settings("replay", *overrides), tmp_path / "whole", lose_data)
    assert not data.exists()
    aside.rename(data)
    path = stopped_run(tmp_path / "run", *overrides)
    data.rename(aside)
    with pytest.raises(DataError, match=f"{source.archive} into {data}") as error:
        resume(path)
    only_line(error)
    aside.rename(data)
    (files / "train").write_bytes(b"\x80\x02}q")
    with pytest.raises(DataError, match="train") as error:
        resume(path)
    only_line(error)
    write(files, small_files())
    resume(path)
    assert_same(outcome(path), outcome(tmp_path / "whole"))


@pytest.mark.parametrize(
    ("method", "rate", "place"),
    [
        ("replay", "replay.first.learning_rate=1e9", "in task 1, phase learn, epoch [12];"),
        ("foster", "foster.compress.learning_rate=1e18", "in task 2, phase compress, epoch [12];"),
    ],
)
def test_an_exploding_loss_names_its_place_and_keeps_the_last_good_checkpoint(
    method: str, rate: str, place: str, tmp_path: Path
):
    with pytest.raises(TrainingError, match=place) as error:
        begin(tiny_settings(method, rate), RunFolder(tmp_path / "run"), ignore, StopRequest())
    only_line(error)
    assert error.value.exit_code == 1
    last = records_of(tmp_path / "run" / "events.jsonl")[-1]
    assert (last["event"], last["message"]) == ("RunFailed", str(error.value))
    checkpoint = RunFolder(tmp_path / "run").checkpoints.load(print)
    if "task 1" in place:
        assert checkpoint is None or checkpoint.state["position"]["epoch"] == 1
        return
    results = RunFolder(tmp_path / "run").read_results()
    assert (results["finished"], len(results["accuracy"])) == (False, 1), "the first task is not lost"
    assert checkpoint.state["task"] == 1
    floats = [value for part in checkpoint.parts.values() for value in part.values() if value.is_floating_point()]
    assert all(bool(value.isfinite().all()) for value in floats)


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
@pytest.mark.parametrize("is_asked_in_epoch", [False, True])
def test_no_state_is_kept_after_a_loss_that_is_not_a_number(value: float, is_asked_in_epoch: bool):
    """Also when a checkpoint is due in the middle of the epoch in which it happens."""
    from foster.data.feed import ResidentFeed
    from foster.seeding import Address
    from foster.settings.augmentation import Augmentation
    from foster.training.engine import Engine
    from foster.training.fit import fit
    from foster.training.phase import Phase

    data = ImageSet(torch.zeros(8, 3, 8, 8, dtype=torch.uint8), torch.zeros(8, dtype=torch.int64), ("a",))
    network = torch.nn.Conv2d(3, 1, 1)
    num_steps = 0

    def objective(images: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        nonlocal num_steps
        num_steps += 1
        loss = network(images).square().mean()
        return {"L_fine": loss, "L_bad": loss.detach() * 0 + (value if num_steps >= 6 else 0)}

    cpu = torch.device("cpu")
    feed = ResidentFeed(data, Augmentation(), 2, Address(0, "feed"), cpu)
    phase = Phase("learn", network, objective, FitSettings(epochs=4), data)
    kept = []

    points = fit(phase, feed, Engine(cpu, (0.5,) * 3, (0.5,) * 3), ignore, task=0)
    with pytest.raises(TrainingError, match=r"L_bad (nan|-inf).* epoch 2;"):
        kept.extend(point.state() for point in points if is_asked_in_epoch or point.is_epoch_end)
    assert len(kept) == (5 if is_asked_in_epoch else 1), "steps 1 to 5, or epoch 1"
