"""A beginner's photos with default settings: never worse than a frozen backbone and the nearest class mean."""

import pickle
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from made_once import made_once
from PIL import Image
from rendered_photos import THINGS, write_photos

import foster
from foster.data.photos.decode import Resizing
from foster.data.photos.find import find_photos
from foster.data.photos.reading import read_photos
from foster.evaluation.predict import class_means, nearest_mean_scores
from foster.events import Decoding, Event, LearnPlanned
from foster.learner.learner import Learner
from foster.networks.adapted import choose_backbone

NAMES = list(THINGS)
SIZE, SIDE = (120, 80), 96
"""Of the photos, and of what the network sees of them: a quarter of the usual number of pixels."""


class Course(NamedTuple):
    """What was learned, loaded; the folder with photos and bundle; the events; and answers before it was saved."""

    learner: Learner
    folder: Path
    events: list[Event]
    answers: list[dict[str, Any]]


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Course:
    """Five classes and then five more, from small photos, and the bundle of all."""

    def make(folder: Path) -> None:
        write_photos(folder / "first", NAMES[:5], 10, size=SIZE)
        write_photos(folder / "second", NAMES[5:10], 10, size=SIZE)
        for part in ("first", "second"):
            shutil.copytree(folder / part, folder / "both", dirs_exist_ok=True)
        write_photos(folder / "test", NAMES[:10], 6, seed=1, size=SIZE)
        events: list[Event] = []
        learner = foster.Learner(image_size=SIDE, device="cpu")
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


class NearestMeans:
    """What every learner must beat: a frozen pretrained backbone and the nearest of the class means of `train`."""

    def __init__(self, train: Path, side: int) -> None:
        self._side = side
        self._backbone = choose_backbone("efficientnet_lite0", (side, side)).make().eval()
        self._names = find_photos(train).class_names
        self._means = class_means(*self._features_of(train), len(self._names))

    def accuracy(self, test: Path) -> float:
        """In percent, on photos of the same classes."""
        features, labels = self._features_of(test)
        return 100 * float((nearest_mean_scores(features, self._means).argmax(1) == labels).float().mean())

    @torch.no_grad()
    def _features_of(self, folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
        photos = find_photos(folder)
        read = read_photos(photos, Resizing(self._side, self._side))
        parts = [self._backbone((part.float() / 255 - 0.5) / 0.5) for part in read.stack.tensor.split(8)]
        return torch.cat(parts), torch.tensor([self._names.index(photos.labels[k]) for k in read.positions])


def test_it_is_never_worse_than_the_simple_way(course: Course) -> None:
    assert "closed_form with efficientnet_lite0 at 96 x 96, 10 classes" in repr(course.learner)
    simple = NearestMeans(course.folder / "both", SIDE).accuracy(course.folder / "test")
    report = course.learner.evaluate(course.folder / "test")
    assert report.accuracy >= simple
    assert report.accuracy > 55
    assert sum(sum(row.values()) for row in report.confusion.values()) == report.num_images == 60
    assert report.num_trained_on == 0
    some = [*(course.folder / "first" / NAMES[0]).iterdir()]
    assert course.learner.evaluate(some, [NAMES[0]] * 10).num_trained_on == 10


def test_the_bundle_answers_alike_without_the_package(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("foster.networks.adapted.packaged_weights")
    loaded = foster.load(course.folder / "bundle", device="cpu")
    assert [found.record() for found in loaded.predict(some_of(course.folder))] == course.answers


def test_things_that_were_never_learned_are_refused_more_often(course: Course, tmp_path: Path) -> None:
    write_photos(tmp_path, NAMES[:10], 2, seed=5, size=SIZE)
    torch.manual_seed(0)
    (tmp_path / "unknown").mkdir()
    for number in range(20):
        noise = torch.randint(256, (80, 120, 3), dtype=torch.uint8).numpy()
        Image.fromarray(noise).save(tmp_path / "unknown" / f"{number}.png")
    (tmp_path / "unknown" / "broken.png").write_bytes(b"broken")
    report = course.learner.evaluate(tmp_path)
    assert [Path(entry.name).name for entry in report.unreadable] == ["broken.png"]
    assert report.unknown.num_refused > 10 > report.unknown.num_known_refused
    answers = course.learner.predict(tmp_path / "unknown", unknown_below="auto")
    assert sum(answer.is_unknown for answer in answers) == report.unknown.num_refused


def test_what_will_be_done_is_told_first_and_then_how_far_it_is(course: Course) -> None:
    plans = [event for event in course.events if isinstance(event, LearnPlanned)]
    assert plans[0].lines[0].startswith("5 new classes (")
    assert plans[1].lines[0].endswith("50 photos; 5 classes known")
    progress = [event for event in course.events if isinstance(event, Decoding)]
    assert (progress[-1].num_done, progress[-1].num_total) == (50, 50)
