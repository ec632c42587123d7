"""A look at photos before anything is trained."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rendered_photos import rendered_photo
from small_learners import digits
from torch import Tensor

import foster
from foster.errors import DataError
from foster.learner.check import KINDS, CheckReport, Finding, Photo, check_photos, classifier_for
from foster.learner.learner import Learner
from foster.networks.statistics import unit_roots

THINGS = ("house", "star", "clock")


class Colours:
    """Describes a photo by its mean colours in nine fields."""

    image_size = (12, 12)

    def described(self, images: Tensor) -> tuple[Tensor, Tensor]:
        colours = images.float().unfold(2, 4, 4).unfold(3, 4, 4).mean((4, 5)).flatten(1)
        return torch.empty(len(images), 0), unit_roots(colours)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve photos each of three things, told apart by a colour of their own."""
    folder = tmp_path_factory.mktemp("clean")
    for number, thing in enumerate(THINGS):
        (folder / thing).mkdir()
        chance = np.random.default_rng(number)
        tint = Image.new("RGB", (120, 80), tuple(255 * (k == number) for k in range(3)))
        for k in range(12):
            photo = Image.blend(rendered_photo(thing, chance, (120, 80)), tint, 0.6)
            photo.save(folder / thing / f"{k}.png")
    return folder


@pytest.fixture
def photos(clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("foster.learner.check.classifier_for", lambda learner, device: Colours())
    return Path(shutil.copytree(clean, tmp_path / "photos"))


def found(report: CheckReport) -> dict[str, list[set[str]]]:
    """The names of photos that belong together, or what is said where there are none, by kind."""
    kinds: dict[str, list[set[str]]] = {}
    for finding in report.findings:
        names = {str(Path(photo.name).relative_to(Path(photo.name).parents[1])) for photo in finding.photos}
        kinds.setdefault(finding.kind, []).append(names or {finding.detail})
    return {kind: sorted(groups, key=min) for kind, groups in kinds.items()}


def test_the_same_large_photo_on_both_sides_is_the_same(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "test" / "star").mkdir(parents=True)
    noise = Image.fromarray(np.random.default_rng(7).integers(0, 256, (30, 40, 3), dtype=np.uint8))
    noise.resize((2400, 1800)).save(photos / "star" / "large.jpg")
    shutil.copy(photos / "star" / "large.jpg", tmp_path / "test" / "star")
    report = check_photos(photos, test=tmp_path / "test")
    assert [finding.detail for finding in report.of_kind("in-test")] == ["the same photo"]


def test_clean_photos_are_found_clean(photos: Path) -> None:
    report = foster.check_photos(photos)
    assert found(report) == {}
    assert report.class_counts == dict.fromkeys(THINGS, 12)
    assert report.remarks == ()


def test_everything_that_is_wrong_is_found_once(photos: Path) -> None:
    (photos / "house" / "broken.jpg").write_bytes(b"broken")
    turned = Image.open(photos / "house" / "1.png").transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    turned.resize((30, 12)).save(photos / "house" / "tiny.png")
    shutil.copy(photos / "star" / "2.png", photos / "star" / "copy.png")
    Image.open(photos / "star" / "3.png").resize((90, 60)).save(photos / "star" / "small.jpg", quality=70)
    shutil.copy(photos / "clock" / "4.png", photos / "house" / "clock.png")
    shutil.move(photos / "star" / "5.png", photos / "clock" / "star.png")
    (photos / "few").mkdir()
    Image.new("RGB", (120, 80)).save(photos / "few" / "0.png")
    (photos / "empty").mkdir()
    test = photos.parent / "test"
    (test / "star").mkdir(parents=True)
    Image.open(photos / "star" / "6.png").save(test / "star" / "known.jpg", quality=80)
    for name in ("other", "again"):  # twice among the test photos alone
        Image.new("RGB", (120, 80), (9, 200, 30)).save(test / "star" / f"{name}.png")
    report = check_photos(photos, test=test)
    assert found(report) == {
        "unreadable": [{"house/broken.jpg"}],
        "two-classes": [{"house/clock.png", "clock/4.png"}],
        "in-test": [{"star/6.png", "star/known.jpg"}],
        "mislabelled": [{"clock/star.png"}, {"house/clock.png"}],
        "duplicate": [{"star/2.png", "star/copy.png"}],
        "near-duplicate": [{"star/3.png", "star/small.jpg"}],
        "tiny": [{"house/tiny.png"}],
        "small-class": [{"few: 1 photo"}],
        "empty-class": [{"empty"}],
    }
    looks_like = {finding.photos[0].label: finding.looks_like for finding in report.of_kind("mislabelled")}
    assert looks_like == {"house": "clock", "clock": "star"}
    assert {finding.kind for finding in report.problems} == {"unreadable", "two-classes", "in-test"}
    quick = check_photos(photos, test=test, has_labels_judged=False)
    assert quick.of_kind("mislabelled") == ()
    assert len(quick.findings) == len(report.findings) - 2


def test_a_bundle_judges_what_it_knows_and_names_what_it_keeps(learner: Learner) -> None:
    images, names = digits("zero", "one", first=40, last=70)
    wrong = names.index("one")
    names[wrong] = "zero"
    kept, _ = digits("zero", last=1)
    report = check_photos((torch.cat([images, kept]), [*names, "one"]), learner)
    assert [finding.photos[0].name for finding in report.of_kind("kept-elsewhere")] == [f"image {len(images)}"]
    assert f"image {wrong}" in {finding.photos[0].name for finding in report.of_kind("mislabelled")}
    assert all(finding.looks_like in learner.class_names for finding in report.of_kind("mislabelled"))
    named = check_photos((kept, ["Zero"] * len(kept)), learner, has_labels_judged=False)
    assert [finding.detail for finding in named.of_kind("similar-names")] == ["zero and Zero"]


def test_photos_that_a_bundle_has_learned_are_judged_by_the_other_photos(learner: Learner) -> None:
    exemplars = learner.knowledge.images_of(learner.knowledge.exemplars)
    names = [learner.class_names[k] for k in exemplars.labels.tolist()]
    wrong = names.index("one")
    names[wrong] = "zero"
    report = check_photos((exemplars.images, names), learner)
    assert [finding.photos[0].name for finding in report.of_kind("mislabelled")] == [f"image {wrong}"]
    assert [finding.photos[0].name for finding in report.of_kind("kept-elsewhere")] == [f"image {wrong}"]
    (remark,) = check_photos((exemplars.images[:4], names[:4]), learner).remarks
    assert "4 photos" in remark


def test_a_class_of_one_photo_in_many_sizes_does_not_stop_the_check(photos: Path) -> None:
    shutil.rmtree(photos / "clock")
    (photos / "clock").mkdir()
    with Image.open(photos / "star" / "0.png") as picture:
        mirrored = picture.transpose(Image.Transpose.FLIP_TOP_BOTTOM).rotate(90, expand=True)
    for k in range(6):
        mirrored.resize((80 - k, 120 - k)).save(photos / "clock" / f"{k}.png")
    report = check_photos(photos)
    assert [len(group) for group in found(report)["near-duplicate"]] == [6]
    assert "mislabelled" not in found(report)
    shutil.rmtree(photos / "star")
    (remark,) = check_photos(photos).remarks
    assert "18 photos were not judged" in remark, "the six are one"


def test_too_few_classes_are_not_judged_and_nothing_readable_is_an_error(photos: Path, tmp_path: Path) -> None:
    for thing in THINGS[1:]:
        shutil.rmtree(photos / thing)
    (remark,) = check_photos(photos).remarks
    assert "5 " in remark
    (tmp_path / "bad" / "a").mkdir(parents=True)
    (tmp_path / "bad" / "a" / "x.jpg").write_bytes(b"x")
    with pytest.raises(DataError, match="no image"):
        check_photos(tmp_path / "bad")


def test_without_a_bundle_the_pretrained_backbone_describes_photos() -> None:
    classifier = classifier_for(None, "cpu")
    probability, features = classifier.described(torch.zeros(2, 3, *classifier.image_size, dtype=torch.uint8))
    assert probability.shape == (2, 0)
    assert features.shape == (2, 1280)


def test_problems_are_told_from_remarks() -> None:
    photos = (Photo("a/1.jpg", "a", "a/1.jpg"), Photo("t/1.jpg", "a", "t/1.jpg", is_test=True))
    findings = (Finding("in-test", photos, "the same photo"), Finding("mislabelled", photos[:1], "looks like b", "b"))
    report = CheckReport("photos", {"a": 3, "b": 4}, 1, {}, findings)
    assert str(report) == "7 photos of 2 classes: 1 problem and 1 remark"
    assert report.problems == findings[:1]
    assert report.of_kind("mislabelled") == findings[1:]
    record = json.loads(json.dumps(report.record()))
    assert record["problems"] == 1
    assert record["findings"][0]["photos"][1] == {"image": "t/1.jpg", "label": "a", "part": "test"}
    assert record["findings"][1]["looks_like"] == "b"
    assert all(kind.title for kind in KINDS.values())
