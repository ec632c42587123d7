"""Behind a frozen backbone a learn adds features and solves: the same head as if all photos had come at once."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from small_learners import digits, small_learner, together, unseen_digits
from torch import Tensor

import foster
from foster.bundle.folder import BundleError, read_manifest
from foster.bundle.history import FORGOTTEN, with_names
from foster.data.photos.decode import image_id
from foster.errors import DataError, SettingsError
from foster.evaluation.gradcam import grad_cam
from foster.events import Decoding, Event
from foster.learner import closed_form, train
from foster.learner.learner import Learner
from foster.learner.reports import SharedPhotos
from foster.networks import build_backbone
from foster.networks.statistics import discriminants_of_few
from foster.settings.learner_defaults import PRETRAINED
from foster.system.signals import Stopped, StopRequest

FOUR = ("zero", "one", "two", "three")


def frozen_learner(weights: Path, **settings: Any) -> Learner:
    return foster.Learner(backbone="resnet8", weights=str(weights), device="cpu", **settings)


def head(learner: Learner) -> Tensor:
    return learner.knowledge.network.head.weight.detach()


def scale_of_head(learner: Learner) -> float:
    """What the weights that follow from the sums were divided by."""
    store = learner.knowledge.store
    weight, _ = discriminants_of_few(store.statistics)
    return float((weight - weight.mean(0)).norm() / head(learner).norm())


def direction(learner: Learner) -> Tensor:
    """The head without its scale, which follows from which photos were measured."""
    return head(learner) / head(learner).norm()


def test_learns_one_after_the_other_give_the_head_of_all_photos_at_once(weights: Path, tmp_path: Path) -> None:
    whole, parted = (frozen_learner(weights, memory_per_class=9) for _ in range(2))
    whole.learn(together(digits("zero", "one"), digits("two", "three"), digits("one", first=40, last=60)))
    parted.learn(digits("zero", "one"))
    parted = foster.load(parted.save(tmp_path / "v1"), device="cpu")
    assert "foster" not in read_manifest(tmp_path / "v1").settings, (
        "a bundle does not depend on a method it has no use for"
    )
    parted.learn(digits("two", "three"))
    before, (more, _) = parted.knowledge.store, digits("one", first=40, last=60)
    num_right = int((before.answers[before.labels == 1] == 1).sum())
    num_right += int((parted.classifier().all_scores(more).argmax(1) == 1).sum())
    report = parted.learn(digits("one", first=40, last=60))
    assert report.more_of == {"one": 20}
    (one,) = (entry for entry in report.held_out.known if entry.name == "one")
    assert (one.num_images, one.num_right_before) == (60, num_right), "the new ones count, too"
    assert parted.knowledge.num_calibration_images == 180
    assert whole.class_names == parted.class_names == FOUR
    torch.testing.assert_close(direction(parted), direction(whole), rtol=1e-4, atol=1e-6)
    assert parted.knowledge.method == "closed_form"
    store = parted.knowledge.store
    assert store.statistics.counts.tolist() == [40, 60, 40, 40]
    entries = sorted(store.entries())
    smallest = {entry for k in range(4) for entry in [entry for entry in entries if entry[0] == k][:9]}
    assert parted.knowledge.exemplars.entries() == whole.knowledge.exemplars.entries() == smallest
    assert parted.evaluate(*digits(*FOUR, data=unseen_digits(), last=None)).accuracy > 80


def test_no_class_is_called_as_things_that_were_not_learned_are(weights: Path) -> None:
    images, _ = digits("zero", "one")
    assert "'unknown'" in refusal(frozen_learner(weights), (images, ["zero"] * 40 + ["unknown"] * 40))


def test_no_photo_need_be_kept_for_anything(weights: Path, tmp_path: Path) -> None:
    learner = frozen_learner(weights, memory_total=0)
    learner.learn(digits("zero", "one", "two"))
    report = learner.learn(digits("three", "four"), max_drop=50)
    assert {entry.name for entry in report.held_out.known} == {"zero", "one", "two"}
    assert report.num_exemplars == 0
    learner.rename("zero", "nought")
    learner.merge(["one", "two"], "one or two")
    learner.forget("four")
    bundle = learner.save(tmp_path / "bundle")
    assert {path.name for path in bundle.iterdir()} == {
        "bundle.json",
        "network.safetensors",
        "features.safetensors",
        "labels.txt",
    }
    again = foster.load(bundle, device="cpu")
    assert again.class_names == ("nought", "one or two", "three")
    images, _ = digits("zero", "three", data=unseen_digits(), last=10)
    answers = again.predict(images, unknown_below="auto")
    assert [answer.record() for answer in answers] == [
        answer.record() for answer in learner.predict(images, unknown_below="auto")
    ]
    assert again.evaluate(images, ["nought"] * 10 + ["three"] * 10).accuracy > 80
    assert "all 40 images" in refusal(again, digits("three"))
    photos = write_digits(tmp_path / "photos", "zero", "three")
    photo = digits("three")[0][0]
    Image.fromarray(photo.permute(1, 2, 0).numpy()).save(tmp_path / "learned.png")
    assert foster.load(bundle, device="cpu").remove_photos(tmp_path / "learned.png").removed == (image_id(photo),)
    shutil.copy(photos / "three" / "0.png", photos / "zero" / "moved.png")
    found = foster.check_photos(photos, bundle=bundle, device="cpu").findings
    assert any(finding.photos for finding in found), "the photo that lies in two classes"


def write_digits(folder: Path, *names: str) -> Path:
    """Some digits as PNG files, a subfolder a class."""
    for name in names:
        (folder / name).mkdir(parents=True)
        for k, image in enumerate(digits(name, data=unseen_digits(), last=10)[0]):
            Image.fromarray(image.permute(1, 2, 0).numpy()).save(folder / name / f"{k}.png")
    return folder


def refusal(learner: Learner, photos: Any) -> str:
    with pytest.raises(DataError) as refused:
        learner.learn(photos)
    return str(refused.value)


def test_with_sums_alone_the_head_is_the_same(weights: Path, tmp_path: Path) -> None:
    learners = [frozen_learner(weights), frozen_learner(weights, features_per_class=0, memory_total=0)]
    for learner in learners:
        learner.learn(digits("zero", "one", "two"))
        learner.learn(digits("three"))
    full, sums = learners
    scale = scale_of_head(sums)
    checks = [learner.merge(["one", "three"], "both").checks for learner in learners]
    assert [len(found) for found in checks] == [1, 0]
    torch.testing.assert_close(direction(sums), direction(full), rtol=1e-4, atol=1e-6)
    assert scale_of_head(sums) == pytest.approx(scale, rel=1e-4), "no photo is measured, so confidence stays as it was"
    store = foster.load(sums.save(tmp_path / "sums"), device="cpu").knowledge.store
    assert (len(store.features), len(store.ids)) == (0, 160)
    assert int((store.answers >= 0).sum()) == 40, "those of the last learn are still known"
    reports = [learner.forget("two") for learner in learners]
    assert [report.is_estimated for report in reports] == [False, True]
    for learner in learners:
        assert learner.knowledge.familiarity is not None
        assert len(learner.knowledge.familiarity.statistics.counts) == learner.knowledge.num_classes == 2
        learner.forget("both")
        assert learner.knowledge.familiarity is None, "with one class, nothing is unknown"


def test_a_forgotten_class_leaves_nothing_but_the_classes_that_stay(weights: Path, tmp_path: Path) -> None:
    learner, without = frozen_learner(weights), frozen_learner(weights)
    images, _ = digits("zero", last=40)
    learner.learn(together((images, ["Anna"] * 40), digits("one", "two")))
    learner.learn(digits("three"))
    without.learn(digits("one", "two"))
    without.learn(digits("three"))
    learner.forget("Anna")
    assert learner.knowledge.temperature == pytest.approx(without.knowledge.temperature, rel=1e-3)
    assert learner.knowledge.history[-1]["unknown_threshold"] == learner.knowledge.familiarity.threshold
    torch.testing.assert_close(direction(learner), direction(without), rtol=1e-4, atol=1e-6)
    bundle, other = learner.save(tmp_path / "forgotten"), without.save(tmp_path / "never")
    assert "Anna" not in (bundle / "bundle.json").read_text(encoding="utf-8")
    stores = [foster.load(one, device="cpu").knowledge.store for one in (bundle, other)]
    assert stores[0].entries() == stores[1].entries()
    assert torch.equal(stores[0].features, stores[1].features)
    torch.testing.assert_close(stores[0].statistics.second_moment, stores[1].statistics.second_moment)
    ids = [{entry.id for entry in read_manifest(one).exemplars} for one in (bundle, other)]
    assert ids[0] == ids[1]


def test_a_class_that_was_merged_twice_is_forgotten_with_all_its_earlier_names(weights: Path) -> None:
    learner = frozen_learner(weights)
    learner.learn(digits(*FOUR, last=5))
    learner.merge(["zero", "one"], "low")
    learner.merge(["low", "two"], "lower")
    learner.forget("lower")
    told = json.dumps([dict(entry) for entry in learner.knowledge.history])
    assert "three" in told
    assert not [name for name in ("zero", "one", "low", "two") if name in told]


def test_a_photo_that_was_taken_for_the_forgotten_class_was_wrong_before(weights: Path, tmp_path: Path) -> None:
    learner = frozen_learner(weights)
    photos = together(*(digits(name, last=30) for name in ("eight", "one", "nine")))
    learned = learner.learn(photos)
    store = learner.knowledge.store
    assert bool(((store.answers == 0) & (store.labels > 0)).any()), "some photo must have been taken for an eight"
    (check,) = learner.forget("eight").checks
    assert {entry.name: (entry.num_images, entry.num_right_before) for entry in check.classes} == {
        entry.name: (entry.num_images, entry.num_right_after) for entry in learned.held_out.classes[1:]
    }
    sums = frozen_learner(weights, features_per_class=0)  # without features, nothing is measured again
    sums.learn(photos)
    sums.forget("eight")
    assert foster.load(sums.save(tmp_path / "rest"), device="cpu").class_names == ("one", "nine")


def test_a_renamed_class_has_its_new_name_everywhere(weights: Path, tmp_path: Path) -> None:
    learner = frozen_learner(weights)
    images, _ = digits("zero", last=20)
    learner.learn(together((images, ["Anna"] * 20), digits("one", last=20)))
    before = head(learner).clone()
    learner.rename("Anna", "person 1")
    assert torch.equal(head(learner), before)
    text = (learner.save(tmp_path / "renamed") / "bundle.json").read_text(encoding="utf-8")
    assert "Anna" not in text
    assert json.loads(text)["history"][0]["new_classes"] == ["person 1", "one"]
    history = [{"source": "Photos of anna and Bob"}]
    assert with_names(history, {"Anna": "person 1"}) == ({"source": "Photos of person 1 and Bob"},)
    assert with_names(history, {"Anna": None}) == ({"source": FORGOTTEN},)
    learner.forget("person 1")
    assert "person 1" not in (learner.save(tmp_path / "gone") / "bundle.json").read_text(encoding="utf-8")


def test_a_removed_photo_was_never_learned(weights: Path) -> None:
    learner, without = frozen_learner(weights), frozen_learner(weights)
    images, names = digits("zero", "one", last=20)
    learner.learn(images, names)
    without.learn(images[1:], names[1:])
    store = learner.knowledge.store
    wanted = store.ids[0]
    assert learner.remove_photos(wanted).removed == (wanted,)
    torch.testing.assert_close(direction(learner), direction(without), rtol=1e-4, atol=1e-6)
    assert wanted not in {photo_id for _, photo_id in learner.knowledge.exemplars.entries()}
    with pytest.raises(DataError, match=f"'{wanted}'"):
        learner.remove_photos(wanted)
    zeros = [photo for photo, label in zip(store.ids, store.labels.tolist(), strict=True) if label == 0]
    with pytest.raises(DataError, match=r"last photo of class 'zero'"):
        learner.remove_photos(*zeros[1:])


def test_a_photo_that_stays_in_the_sums_is_not_said_to_be_removed(weights: Path) -> None:
    learner = frozen_learner(weights, features_per_class=3)
    learner.learn(*digits("zero", "one", last=10))
    store = learner.knowledge.store
    zeros = [photo for photo, label in zip(store.ids, store.labels.tolist(), strict=True) if label == 0]
    first, *_, last = sorted(zeros)
    with pytest.raises(DataError, match=rf"{last}.*features_per_class"):
        learner.remove_photos(last)
    assert learner.knowledge.store is store
    assert learner.remove_photos(first).removed == (first,)


class KilledError(Exception):
    pass


def test_a_learn_that_was_killed_and_repeated_gives_the_same_bundle_and_computes_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was computed before, and by however many threads. This backbone rounds otherwise with two of them."""
    monkeypatch.setattr("foster.data.photos.decode.DECODED_AT_ONCE", 4)
    num_threads = torch.get_num_threads()
    photos = digits(*FOUR, last=4)
    pretrained = {"backbone": "efficientnet_lite0", "image_size": 48, "device": "cpu"}
    whole = foster.Learner(**pretrained)
    whole.learn(photos)
    computed: list[int] = []
    compute = closed_form.stored_features

    def counting(features: Tensor) -> Tensor:
        computed.append(len(features))
        return compute(features)

    monkeypatch.setattr(closed_form, "stored_features", counting)

    def listener(num_left: int) -> Any:
        def listen(event: Event) -> None:
            nonlocal num_left
            num_left -= isinstance(event, Decoding)
            if not num_left:
                raise KilledError

        return listen

    learner = foster.Learner(**pretrained)
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            with pytest.raises(KilledError):
                learner.learn(photos, work_folder=tmp_path / "work", listener=listener(number))
            assert learner.knowledge is None
        learner.learn(photos, work_folder=tmp_path / "work")
    finally:
        torch.set_num_threads(num_threads)
    assert sum(computed) == 16
    assert not (tmp_path / "work").exists()
    contents = [
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.*") if path.name != "bundle.json"}
        for folder in (whole.save(tmp_path / "whole"), learner.save(tmp_path / "parted"))
    ]
    assert contents[0] == contents[1]
    stop = StopRequest()
    stop.set()
    with pytest.raises(Stopped):
        foster.Learner(**pretrained).learn(photos, stop=stop)


def test_a_stop_does_not_wait_until_a_whole_batch_is_decoded(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop, seen = StopRequest(), list[str]()

    def identified(image: Tensor) -> str:
        stop.set()
        seen.append(image_id(image))
        return seen[-1]

    monkeypatch.setattr(closed_form, "image_id", identified)
    with pytest.raises(Stopped):
        frozen_learner(weights).learn(digits("zero", "one"), stop=stop)
    assert len(seen) <= 16, "one by each thread, of 80"


def test_features_of_another_backbone_are_not_taken_from_an_interrupted_learn(weights: Path, tmp_path: Path) -> None:
    torch.manual_seed(6)
    save_file(build_backbone("resnet8").state_dict(), tmp_path / "others.safetensors")
    photos, work = digits("zero", "one", last=10), tmp_path / "work"

    def kill(event: Event) -> None:
        if isinstance(event, Decoding):
            raise KilledError

    with pytest.raises(KilledError):
        frozen_learner(weights).learn(photos, work_folder=work, listener=kill)
    assert list(work.rglob("features-*"))
    resumed, whole = (frozen_learner(tmp_path / "others.safetensors") for _ in range(2))
    resumed.learn(photos, work_folder=work)
    whole.learn(photos)
    assert torch.equal(head(resumed), head(whole))


def test_every_photo_is_measured_by_a_head_that_has_not_seen_it(weights: Path) -> None:
    learner = frozen_learner(weights)
    images = torch.randint(256, (60, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    report = learner.learn(images, ["heads", "tails", "edge"] * 20)
    assert report.held_out.num_images == 60
    low, high = report.held_out.interval
    assert low < 100 / 3 < high, "noise cannot be told apart, however well it is learned by heart"
    assert (low, high) != (0.0, 100.0)
    assert report.num_held_out == 0
    assert learner.knowledge.num_calibration_images == 60


def test_classes_of_one_photo_and_a_class_alone_are_learned(weights: Path) -> None:
    learner = frozen_learner(weights)
    with pytest.warns(UserWarning, match="second class"):
        report = learner.learn(digits("zero", last=1))
    assert report.unmeasured_classes == ("zero",)
    learner.learn(digits("one", last=1))
    images, names = digits("zero", "one", last=1)
    assert [answer.label for answer in learner.predict(images)] == names
    more = learner.learn(digits("zero", first=1, last=2))
    assert [(entry.name, entry.num_images) for entry in more.held_out.known] == [("zero", 1)], "not the unmeasured one"


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"training": "fast", "epochs_scale": 0.5}, "training, epochs_scale"),
        ({"foster": {"temperature": 3, "boost": {"epochs": 7}}}, "foster.boost, foster.temperature"),
    ],
)
def test_settings_of_a_training_are_said_to_have_no_effect(weights: Path, settings: dict[str, Any], named: str) -> None:
    with pytest.warns(UserWarning, match=rf": {named} \(method=foster") as warned:
        frozen_learner(weights, **settings).learn(digits("zero", "one", last=4))
    assert warned[0].filename == __file__, "it shows the line of the caller"


def test_photos_of_two_classes_similar_names_and_what_cannot_be_read_are_told(weights: Path) -> None:
    learner = frozen_learner(weights)
    images, _ = digits("zero", last=10)
    report = learner.learn(together((images, ["a"] * 10), (images[:3], ["b"] * 3), digits("one", last=10)))
    assert report.shared == SharedPhotos(3, "image 0", ("a", "b"))
    assert learner.learn(images[:4], ["c"] * 4).shared == SharedPhotos(4, "image 0", ("a", "b", "c"))
    twos, tiny = list(digits("two", last=5)[0]), torch.zeros(3, 2, 2, dtype=torch.uint8)
    report = learner.learn([tiny, *twos, twos[0], tiny, images[0]], ["d", *["A"] * 6, "a", "a"])
    assert (report.new_classes, report.empty_classes, report.more_of) == (("A",), ("d",), {})
    assert report.similar_names == (("a", "A"),)
    assert (report.num_trained, report.num_repeated) == (5, 2)
    assert [photo.name for photo in report.unreadable] == ["image 0", "image 7"]
    assert {answer.label for answer in learner.predict(twos)} == {"A"}
    with pytest.raises(DataError, match=r"4 unreadable of 6 photos.*limit 3.*max_unreadable"):
        learner.learn([tiny] * 4 + twos[:2], ["e"] * 6)


def test_foster_goes_on_from_the_photos_that_are_kept(weights: Path, tmp_path: Path) -> None:
    learner = frozen_learner(weights, batch_size=32)
    learner.learn(digits("zero", "one"))
    bundle = learner.save(tmp_path / "closed")
    report = learner.learn(digits("two"), method="foster", epochs_scale=0.005)
    assert learner.class_names == ("zero", "one", "two")
    assert report.new_classes == ("two",)
    assert learner.knowledge.method == "foster"
    assert report.variants.keys() >= {"closed form"}
    learner.learn(digits("three"), epochs_scale=0.005)
    again = foster.load(learner.save(tmp_path / "trained"), device="cpu")
    assert again.knowledge.task_sizes == (3, 1)
    store = again.knowledge.store
    assert store.statistics.num_classes == 4
    without = foster.load(bundle, device="cpu")
    without.configure(memory_total=0)
    without.learn(digits("two", last=10))
    for memory_total in (0, 100):
        with pytest.raises(DataError, match="no photo is kept of 'zero'"):
            without.learn(digits("three", last=10), method="foster", memory_total=memory_total)


def test_a_bundle_in_closed_form_is_compared_with_the_network_that_is_trained_from_it(weights: Path) -> None:
    learner = frozen_learner(weights, batch_size=32, memory_per_class=8)
    learner.learn(digits("zero", "one", last=20))
    closed_form = learner.classifier()
    others, _ = digits("one", first=20)  # the closed form takes them for "one", the network learns them as "zero"
    again = together(digits("zero", first=10, last=20), (others, ["zero"] * 20), digits("two"))
    changes: dict[str, Any] = {
        "method": "foster",
        "epochs_scale": 0.03,
        "validation_share": 0.2,
        "memory_per_class": 40,
    }
    report = learner.learn(again, **changes)
    earlier = {image_id(image) for image in digits("zero", last=20)[0]}
    held_out = learner.knowledge.images_of(learner.knowledge.held_out)
    assert earlier.isdisjoint(image_id(image) for image in held_out.images)
    assert report.num_held_out == 4 + 8  # a fifth of the 20 photos of "zero" that are new, and of the 40 of "two"
    assert report.uncompared == ("one",)
    (zero,) = report.held_out.known
    answers = closed_form.all_scores(held_out.of_classes(0, 1).images).argmax(1)
    assert (zero.name, zero.num_images) == ("zero", 4)
    assert zero.num_right_before == int((answers == 0).sum())
    assert [entry.name for entry in report.held_out.new] == ["two"]
    counts = learner.knowledge.store.statistics.counts.tolist()
    assert counts == [20 + 20 - 4, 20, 40 - 8], "a photo that comes again, or is kept, is summed once"
    given = {image_id(image) for image in torch.cat((digits("one", last=20)[0], again[0]))} | earlier
    assert set(learner.knowledge.store.ids) == given - {image_id(image) for image in held_out.images}


def test_beside_a_network_from_scratch_stands_what_the_closed_form_would_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "PRETRAINED", PRETRAINED)
    monkeypatch.setattr(train, "frozen_side_for", lambda on_gpu: 48)
    images, names = digits("one", "seven", last=8)
    learner = small_learner(validation_share=0.3)
    report = learner.learn(images, names)
    held_out = {photo_id for _, photo_id in learner.knowledge.held_out.entries()}
    spared = torch.tensor([image_id(image) in held_out for image in images])
    labels = [name for name, is_spared in zip(names, spared.tolist(), strict=True) if not is_spared]
    frozen = foster.Learner("closed_form", image_size=48, device="cpu")
    frozen.learn(images[~spared], labels)
    others = [name for name, is_spared in zip(names, spared.tolist(), strict=True) if is_spared]
    expected = frozen.evaluate(images[spared], others).class_accuracy
    assert report.num_held_out == len(others) >= 4
    assert report.variants["closed form"] == pytest.approx(expected)
    assert report.is_better_in_closed_form, "the training was far too short"
    learner = foster.load(learner.save(tmp_path / "trained"), device="cpu")
    learner.learn(digits("two", last=4))
    store = learner.knowledge.store
    assert store.statistics.counts.tolist() == [*frozen.knowledge.store.statistics.counts.tolist(), 3]


def test_its_answers_are_explained(weights: Path) -> None:
    learner = frozen_learner(weights)
    learner.learn(digits("zero", "one", last=10))
    classifier, images = learner.classifier(), digits("zero", "one", last=2)[0]
    heat = grad_cam(classifier.network, classifier.prepared(images), torch.tensor([0, 0, 1, 1]), classifier.scores_of)
    assert bool(heat.isfinite().all())
    assert float(heat.max()) == pytest.approx(1.0)


def test_the_closed_form_needs_a_pretrained_backbone() -> None:
    with pytest.raises(SettingsError, match=r"method.*'resnet8'"):
        foster.Learner("closed_form", backbone="resnet8", device="cpu").learn(digits("zero", "one", last=5))


def _altered(tensors: dict[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    yield {name: value for name, value in tensors.items() if name != "sums"}
    yield {**tensors, "labels": tensors["labels"] + 7}
    yield {**tensors, "rows": tensors["rows"] + 10**6}
    yield {**tensors, "second_moment": tensors["second_moment"][:-1]}
    yield {**tensors, "features": tensors["features"].float()}
    yield {**tensors, "ids": tensors["ids"][:, :3].contiguous()}


def test_features_that_do_not_fit_a_bundle_are_refused(weights: Path) -> None:
    from foster.learner.feature_store import FeatureStore

    learner = frozen_learner(weights)
    learner.learn(digits("zero", "one", last=10))
    store = learner.knowledge.store
    assert FeatureStore.of(store.tensors(), 2, "mine") is not None
    for tensors in _altered(store.tensors()):
        with pytest.raises(BundleError, match="'mine'"):
            FeatureStore.of(tensors, 2, "mine")
