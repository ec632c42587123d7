"""A beginner's photos with default settings: never worse than a frozen backbone and the nearest class mean."""

import io
import pickle
import shutil
import time
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from made_once import made_once
from PIL import Image
from rendered_photos import THINGS, write_photos
from simple_way import NearestMeans

import foster
from foster.events import Decoding, Event, LearnPlanned
from foster.learner.learner import Learner

NAMES = list(THINGS)


class Course(NamedTuple):
    """What was learned, loaded; the folder with photos and bundle; the events; and answers before it was saved."""

    learner: Learner
    folder: Path
    events: list[Event]
    answers: list[dict[str, Any]]


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Course:
    """Six classes and then six more, from small photos, and the bundle of all."""

    def make(folder: Path) -> None:
        size = (120, 80)
        write_photos(folder / "first", NAMES[:6], 12, size=size)
        write_photos(folder / "second", NAMES[6:12], 12, size=size)
        for part in ("first", "second"):
            shutil.copytree(folder / part, folder / "both", dirs_exist_ok=True)
        write_photos(folder / "test", NAMES[:12], 8, seed=1, size=size)
        events: list[Event] = []
        learner = foster.Learner(training="fast", device="cpu")
        learner.learn(folder / "first", listener=events.append)
        learner.learn(folder / "second", listener=events.append)
        learner.save(folder / "bundle")
        answers = [found.record() for found in learner.predict(some_of(folder))]
        (folder / "told").write_bytes(pickle.dumps((events, answers)))

    folder = made_once(tmp_path_factory, "course-of-photos", make)
    events, answers = pickle.loads((folder / "told").read_bytes())
    return Course(foster.load(folder / "bundle", device="cpu"), folder, events, answers)


def some_of(folder: Path) -> list[Path]:
    """Ten photos that were not trained on."""
    return sorted((folder / "test").rglob("*.jpg"))[:10]


def test_photos_are_learned_in_closed_form_on_a_pretrained_backbone(course: Course) -> None:
    settings = course.learner.settings
    assert (settings.backbone, settings.method, settings.image_size) == (
        "efficientnet_lite0",
        "closed_form",
        (192, 192),
    )
    assert "efficientnet_lite0 at 192 x 192, 12 classes" in repr(course.learner)


def test_it_is_never_worse_than_the_simple_way(course: Course) -> None:
    simple = NearestMeans(course.folder / "both", 192).accuracy(course.folder / "test")
    report = course.learner.evaluate(course.folder / "test")
    assert report.accuracy >= simple
    assert report.accuracy > 55
    assert sum(sum(row.values()) for row in report.confusion.values()) == report.num_images == 96
    assert report.num_trained_on == 0


def test_photos_that_were_trained_on_are_told(course: Course) -> None:
    report = course.learner.evaluate(course.folder / "first")
    assert report.num_trained_on == 72


def test_the_bundle_answers_alike_without_the_package(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("foster.networks.adapted.packaged_weights")
    loaded = foster.load(course.folder / "bundle", device="cpu")
    assert [found.record() for found in loaded.predict(some_of(course.folder))] == course.answers


def test_things_that_were_never_learned_are_refused_more_often(course: Course, tmp_path: Path) -> None:
    write_photos(tmp_path, NAMES[:12], 4, seed=5, size=(120, 80))
    torch.manual_seed(0)
    (tmp_path / "unknown").mkdir()
    for number in range(20):
        noise = torch.randint(256, (80, 120, 3), dtype=torch.uint8).numpy()
        Image.fromarray(noise).save(tmp_path / "unknown" / f"{number}.png")
    (tmp_path / "unknown" / "broken.png").write_bytes(b"broken")
    if course.learner.knowledge is None or course.learner.knowledge.familiarity is None:
        pytest.fail("144 photos are measured, which is enough")
    report = course.learner.evaluate(tmp_path)
    assert report.unknown is not None
    assert [Path(entry.name).name for entry in report.unreadable] == ["broken.png"]
    assert report.unknown.auroc > 0.8
    assert report.unknown.num_refused / 20 > report.unknown.num_known_refused / 48
    answers = course.learner.predict(tmp_path / "unknown", unknown_below="auto")
    assert sum(answer.is_unknown for answer in answers) == report.unknown.num_refused


def test_what_will_be_done_is_told_first_and_then_how_far_it_is(course: Course) -> None:
    plans = [event for event in course.events if isinstance(event, LearnPlanned)]
    assert plans[0].lines[0].startswith("6 new classes (car, cup, fish, house, star, tree): ")
    assert plans[1].lines[0].endswith("72 photos; 6 classes known")
    assert all(plan.seconds > 0 and plan.num_bytes > 2**20 for plan in plans)
    progress = [event for event in course.events if isinstance(event, Decoding)]
    assert (progress[-1].num_done, progress[-1].num_total) == (72, 72)


@pytest.mark.slow
def test_twenty_classes_of_sixty_photos_as_good_as_the_simple_way_in_three_times_its_seconds(
    tmp_path: Path,
) -> None:
    """Ten classes and ten more. Processor seconds, all in one process: a busy machine slows both alike."""
    write_photos(tmp_path / "first", NAMES[:10], 60)
    write_photos(tmp_path / "second", NAMES[10:20], 60)
    write_photos(tmp_path / "both", NAMES[:20], 60)
    write_photos(tmp_path / "test", NAMES[:20], 20, seed=1)
    learner = foster.Learner(training="fast", device="cpu")
    seconds: dict[str, float] = {}
    with redirect_stderr(io.StringIO()):
        for part in ("first", "second"):
            began = time.process_time()
            learner.learn(tmp_path / part)
            seconds[part] = time.process_time() - began
    began = time.process_time()
    simple = NearestMeans(tmp_path / "both", 192)
    seconds["simple"] = time.process_time() - began
    files = sorted((tmp_path / "test").rglob("*.jpg"))
    began = time.process_time()
    assert len(learner.predict(files)) == 400
    seconds["predict"] = time.process_time() - began
    found = learner.evaluate(tmp_path / "test").accuracy, simple.accuracy(tmp_path / "test")
    print(found, seconds)
    assert found[0] >= max(90, found[1])
    assert max(seconds["first"], seconds["second"]) < 180, "two cores have 180 processor seconds in 90 s"
    assert seconds["first"] + seconds["second"] <= 3 * seconds["simple"]
    assert 400 / seconds["predict"] > 20, "on one core"
