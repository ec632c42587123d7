"""A `learn` that was interrupted anywhere ends, when it is repeated, with exactly the bundle of one that was not."""

import hashlib
import json
import os
import random
import re
import shlex
import shutil
import signal
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from commands import Command, write_photos
from faults import FullDisk
from forked import started
from made_once import made_once
from PIL import Image
from tiny_runs import Interruption, told_kinds

import foster
from foster import events
from foster.errors import FolderError
from foster.events import Event
from foster.learner.learner import Learner
from foster.learner.reports import UpdateError
from foster.system.signals import Stopped, StopRequest

TINY = {"backbone": "resnet8", "batch_size": 16, "memory_total": 20, "device": "cpu", "engine": {"threads": 1}}
SCHEDULE = {"epochs_scale": 0.012, "checkpoint_minutes": 0.0}
"""Phases of 2 epochs, saved after each."""
SECONDS = 120.0


class Shelf(NamedTuple):
    """Photos, a bundle that knows the first of them, and the bundle of an uninterrupted learn of the second."""

    first: Path
    second: Path
    old: Path
    whole: Path


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    def shelf_in(folder: Path) -> Shelf:
        return Shelf(folder / "first", folder / "second", folder / "v1", folder / "v2")

    def make(folder: Path) -> None:
        made = shelf_in(folder)
        learner = foster.Learner(**TINY, **SCHEDULE)
        learner.learn(write_photos(made.first, zero=18, one=18))
        learner.save(made.old)
        learner.learn(write_photos(made.second, two=20, three=20))
        learner.save(made.whole)

    return shelf_in(made_once(tmp_path_factory, "shelf-of-learns", make))


def content(bundle: Path) -> dict[str, Any]:
    """Everything in a bundle, apart from when it was made and how long that took."""
    files = {str(path.relative_to(bundle)): path for path in sorted(bundle.rglob("*")) if path.is_file()}
    manifest = json.loads(files.pop("bundle.json").read_bytes())
    history = [{k: v for k, v in entry.items() if k not in ("when", "seconds")} for entry in manifest["history"]]
    hashes = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    assert "network.safetensors" in hashes
    assert "photos.zip" in hashes
    return hashes | {"temperature": manifest["temperature"], "history": history}


def attempt(
    learner: Learner, source: Path, work: Path, interruption: StopRequest | None = None, **options: Any
) -> list[Event]:
    """Learn, or go on learning, until the end or the interruption; returns what was told."""
    told: list[Event] = []

    def listener(event: Event) -> None:
        told.append(event)
        if isinstance(interruption, Interruption):
            interruption.listen(event)

    try:
        learner.learn(source, work_folder=work, listener=listener, stop=interruption, **{**SCHEDULE, **options})
    except Stopped:
        assert interruption is not None
        assert told_kinds(told)[-1] == "CheckpointWritten", "the last thing that a stopped learn does is to save"
    else:
        assert interruption is None, "the learn was never interrupted"
    return told


def loaded(bundle: Path) -> Learner:
    learner = foster.load(bundle, device="cpu")
    learner.configure(["engine.threads=1"])
    return learner


def at(kind: type[Event], phase: str) -> Callable[[Event], bool]:
    return lambda event: isinstance(event, kind) and getattr(event, "phase", "") == phase


BOOST, COMPRESS = at(events.PhaseStarted, "boost"), at(events.PhaseStarted, "compress")
PLACES = {
    "in the middle of an epoch of boost": (BOOST, 1, ("boost", 0)),
    "at the end of an epoch of boost": (BOOST, 1, ("boost", 1)),
    "between boost and compress": (at(events.PhaseEnded, "boost"), 0, ("boost", 0)),
    "in the last epoch of compress": (COMPRESS, 5, ("compress", 1)),
    "when all is trained": (at(events.PhaseEnded, "compress"), 0, ("compress", 0)),
}
"""In the order in which a learn comes by: when the stop is asked for, how many steps after that, and where the learn
says it goes on."""


def test_an_interrupted_learn_is_continued_by_the_same_call_and_ends_the_same(shelf: Shelf, tmp_path: Path) -> None:
    work, told = tmp_path / "work", []
    for is_the_place, num_steps, _ in PLACES.values():
        learner = loaded(shelf.old)
        told += attempt(learner, shelf.second, work, Interruption(is_the_place, num_steps))
        assert learner.class_names == ("one", "zero"), "until all is learned, the learner is as it was"
    learner = loaded(shelf.old)
    moved = Path(shutil.copytree(shelf.second, tmp_path / "moved" / "second"))
    told += attempt(learner, moved, work)  # what counts is what is on the photos, not where they are
    resumed = [(event.phase, event.epoch) for event in told if isinstance(event, events.RunResumed)]
    assert resumed == [expected for _, _, expected in PLACES.values()]
    assert content(learner.save(tmp_path / "v2")) == content(shelf.whole)
    assert not work.exists()


def test_more_images_of_known_classes_alone_are_continued_as_well(tmp_path: Path) -> None:
    first = write_photos(tmp_path / "first", zero=18, one=18)
    more = write_photos(tmp_path / "more", one=58, first=40)
    found = {}
    for name in ("whole", "cut"):
        learner = foster.Learner("wa", **TINY, **SCHEDULE)
        learner.learn(first)
        if name == "cut":
            attempt(learner, more, tmp_path / "work", Interruption(at(events.PhaseStarted, "refresh"), 1))
        attempt(learner, more, tmp_path / "work")
        found[name] = content(learner.save(tmp_path / name))
    assert found["cut"] == found["whole"]


@pytest.fixture(scope="module")
def unfinished(shelf: Shelf, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A work folder of a learn that was stopped in boost; tests take copies."""
    work = tmp_path_factory.mktemp("unfinished") / "work"
    attempt(loaded(shelf.old), shelf.second, work, Interruption(BOOST, 3))
    return work


@pytest.fixture
def stopped(unfinished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(unfinished, tmp_path / ".v2.learning"))


def one_image_more(shelf: Shelf, tmp_path: Path) -> Path:
    folder = Path(shutil.copytree(shelf.second, tmp_path / "second"))
    Image.new("L", (8, 8), 77).save(folder / "two" / "99.png")
    return folder


def test_a_learn_of_other_images_settings_or_bundles_is_not_continued(
    shelf: Shelf, stopped: Path, tmp_path: Path
) -> None:
    before = {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()}
    learner = loaded(shelf.old)
    with pytest.raises(FolderError, match="other images"):
        attempt(learner, one_image_more(shelf, tmp_path), stopped)
    with pytest.raises(FolderError, match=r"batch_size = 16.* 8 now"):
        attempt(learner, shelf.second, stopped, batch_size=8)
    other = loaded(shelf.old)
    with torch.no_grad():
        other.knowledge.network.head.bias.add_(1)
    with pytest.raises(FolderError, match="another bundle"):
        attempt(other, shelf.second, stopped)
    assert {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()} == before
    attempt(learner, shelf.second, stopped, checkpoint_minutes=9)
    assert content(learner.save(tmp_path / "v2"))["network.safetensors"] == content(shelf.whole)["network.safetensors"]


def test_a_refused_update_leaves_nothing_behind(shelf: Shelf, stopped: Path) -> None:
    with pytest.raises(UpdateError):
        attempt(loaded(shelf.old), shelf.second, stopped, max_drop=-100)
    assert not stopped.exists()


def test_a_folder_that_holds_something_else_is_left_alone(shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "settings.toml").write_text("seed = 1", encoding="utf-8")
    with pytest.raises(FolderError, match=r"settings\.toml"):
        attempt(loaded(shelf.old), shelf.second, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoints", "settings.toml"}


def test_what_is_not_intact_is_said_with_what_to_do(shelf: Shelf, stopped: Path) -> None:
    for path in (stopped / "checkpoints").iterdir():
        path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(FolderError, match="intact"):
        attempt(loaded(shelf.old), shelf.second, stopped)


OPTIONS = ["checkpoint_minutes=0", "epochs_scale=0.012", "engine.threads=1", "device=cpu"]


def arguments(shelf: Shelf, bundle: Path, *options: str) -> list[str]:
    return ["learn", str(shelf.second), "--from", str(shelf.old), "--bundle", str(bundle), *OPTIONS, *options]


@pytest.fixture(scope="module")
def trained(shelf: Shelf, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A work folder of a learn that was stopped when all was trained; tests take copies."""
    work = tmp_path_factory.mktemp("trained") / "work"
    attempt(loaded(shelf.old), shelf.second, work, Interruption(*PLACES["when all is trained"][:2]))
    return work


def test_a_disk_that_is_full_when_the_bundle_is_written_costs_no_training(
    shelf: Shelf,
    trained: Path,
    tmp_path: Path,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.copytree(trained, tmp_path / ".v2.learning")
    for name in ("photos.zip", "bundle.json"):
        disk = FullDisk(name, num_whole=0)
        with monkeypatch.context() as patch:
            patch.setattr("os.write", disk)
            failed = command(*arguments(shelf, tmp_path / "v2"))
        assert disk.has_failed
        assert failed.code == 2
        assert {path.name for path in tmp_path.iterdir()} == {".v2.learning"}, "half a file is never left"
        assert "No space left on device" in failed.err.splitlines()[-1]
    for name in (".v2.0123_abc.part", ".v2.x.0123_abc.part", ".v20.0123_abc.part"):
        (tmp_path / name).mkdir()
    done = command(*arguments(shelf, tmp_path / "v2"))
    assert done.code == 0, done.err
    assert not re.search(r"epochs? of", done.err), "nothing is trained again"
    assert content(tmp_path / "v2") == content(shelf.whole)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"v2", ".v2.x.0123_abc.part", ".v20.0123_abc.part"}, (
        "what a killed writer of this bundle left goes, and nothing else"
    )


def num_saved(work: Path) -> int:
    """The number of the newest checkpoint."""
    try:
        names = [path.stem for path in (work / "checkpoints").glob("manifest-*.json")]
    except OSError:
        names = []
    return max((int(name.removeprefix("manifest-")) for name in names), default=0)


def wait_for_checkpoint(work: Path, number: int, process: BaseProcess) -> None:
    """Number 0 stands for the folder itself."""
    until = time.monotonic() + SECONDS
    while (num_saved(work) < number or not work.exists()) and process.is_alive():
        assert time.monotonic() < until, "the learn hangs"
        time.sleep(0.001)


def test_a_learn_that_is_killed_again_and_again_ends_the_same(shelf: Shelf, tmp_path: Path) -> None:
    """Its processes are forked by another one than this: the order of Python's sets differs between the two."""
    bundle, work, said = tmp_path / "v2", tmp_path / ".v2.learning", tmp_path / "said"
    chance = random.Random(1993)
    for num_checkpoints in (0, 2):
        process = started(arguments(shelf, bundle), said)
        wait_for_checkpoint(work, num_checkpoints, process)
        time.sleep(chance.random() * 0.01)
        process.kill()
        process.join(SECONDS)
        assert process.exitcode in (0, -signal.SIGKILL), said.read_text(encoding="utf-8")
    is_late = bundle.exists()  # the kill came after the bundle was written, perhaps before the work folder was removed
    if not is_late:
        process = started(arguments(shelf, bundle), said)
        process.join(SECONDS)
        assert process.exitcode == 0, said.read_text(encoding="utf-8")
    assert content(bundle) == content(shelf.whole)
    left = {path.name for path in tmp_path.iterdir()} - ({work.name} if is_late else set())
    assert left == {"v2", "said", "said.out"}


def test_a_signal_saves_and_says_the_command_that_continues(shelf: Shelf, tmp_path: Path) -> None:
    bundle, said = tmp_path / "my bundle", tmp_path / "said"
    given = arguments(shelf, bundle)
    work = tmp_path / ".my bundle.learning"
    process = started(given, said, held_at=(work / "checkpoints" / "manifest-00000001.json", ""))
    wait_for_checkpoint(work, 1, process)
    os.kill(process.pid, signal.SIGTERM)
    process.join(SECONDS)
    assert process.exitcode == 143
    assert not bundle.exists()
    told = said.read_text(encoding="utf-8").splitlines()[-1].partition("continue with: foster ")[2]
    assert shlex.split(told) == given
    assert num_saved(work)
