"""The learner on real small images: handwritten digits, learned a few at a time."""

import copy
import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, UnidentifiedImageError
from small_learners import digits, is_same, small_learner, unseen_digits

import foster
from foster.data.photos.decode import REASONS
from foster.errors import DataError
from foster.events import Event, PhaseStarted
from foster.learner.export import export_facts
from foster.learner.learner import Learner
from foster.learner.prediction import Prediction
from foster.learner.reports import UpdateError
from foster.settings.methods import METHOD_SETTINGS, ReplaySettings


def test_a_loaded_learner_learns_exactly_as_the_saved_one_would(taught: Learner, saved: Path) -> None:
    lively, again = copy.deepcopy(taught), foster.load(saved, device="cpu")
    source = digits("two", last=20)
    reports = [each.learn(source, epochs_scale=0.005) for each in (lively, again)]
    assert reports[0].checks == reports[1].checks
    assert is_same(lively, again)


def stored_ids(learner: Learner, use: str) -> set[str]:
    return {photo_id for _, photo_id in getattr(learner.knowledge, use).entries()}


def test_the_budget_holds_for_exemplars_and_held_out_images_together(learner: Learner) -> None:
    learner.learn(digits("two", "three", "four", last=20), memory_total=27)
    kept, held_out = learner.knowledge.exemplars.memory, learner.knowledge.held_out.memory
    assert kept.counts.tolist() == [4] * 5
    assert held_out.counts.tolist() == [1] * 5
    assert kept.num_images + held_out.num_images <= 27


def test_more_images_of_known_classes_alone_are_learned_and_selected_anew(learner: Learner) -> None:
    before = stored_ids(learner, "exemplars")
    events: list[Event] = []
    report = learner.learn(digits("one", first=50, last=130), listener=events.append)
    assert report.new_classes == ()
    assert report.more_of == {"one": 80}
    assert [event.phase for event in events if isinstance(event, PhaseStarted)] == ["boost", "compress"]
    assert [*report.epochs] == ["boost", "compress"]
    assert learner.class_names == ("zero", "one")
    assert stored_ids(learner, "exemplars") - before
    assert learner.knowledge.exemplars.memory.counts.tolist() == [27, 27]
    assert learner.knowledge.task_sizes == (2, 0), "the boosted network of such a task has one more branch"


def test_a_method_without_a_rule_for_known_classes_alone_refreshes(tmp_path: Path) -> None:
    learner = small_learner("wa")
    learner.learn(digits("zero", "one"))
    events: list[Event] = []
    learner.learn(digits("one", first=50, last=90), listener=events.append)
    assert [event.phase for event in events if isinstance(event, PhaseStarted)] == ["refresh"]
    learner.learn(digits("two"))
    again = foster.load(learner.save(tmp_path / "wa"), device="cpu")
    assert again.knowledge.task_sizes == (2, 1)


def test_a_method_without_a_memory_says_that_it_cannot_learn_more_of_known_classes() -> None:
    learner = small_learner("finetune")
    learner.learn(digits("zero", "one"))
    with pytest.raises(DataError, match=r"'finetune'.*'one'"):
        learner.learn(digits("one", "two", first=50, last=60))


def test_a_refused_update_changes_nothing_and_is_a_learner_of_its_own(learner: Learner, tmp_path: Path) -> None:
    knowledge, settings = learner.knowledge, learner.settings
    with pytest.raises(UpdateError, match="-100") as refused:
        learner.learn(digits("two"), max_drop=-100, memory_total=30)
    assert learner.knowledge is knowledge
    assert learner.settings is settings
    assert refused.value.report.new_classes == ("two",)
    assert refused.value.exit_code == 3
    kept = refused.value.refused
    assert foster.load(kept.save(tmp_path / "refused"), device="cpu").class_names == ("zero", "one", "two")
    learner.learn(digits("two"), max_drop=100)


def assert_same_answers(found: Sequence[Prediction], expected: Sequence[Prediction]) -> None:
    """Labels exactly; the last bits of probabilities depend on the batch size on some processors."""
    for one, other in zip(found, expected, strict=True):
        assert [candidate.label for candidate in one.top] == [candidate.label for candidate in other.top]
        assert [candidate.probability for candidate in one.top] == pytest.approx(
            [candidate.probability for candidate in other.top], abs=1e-4
        )
        assert (one.label, one.confidence) == (other.label, pytest.approx(other.confidence, abs=1e-4))


def test_paths_pil_images_arrays_and_tensors_give_the_same_answer(taught: Learner, tmp_path: Path) -> None:
    tensor = unseen_digits().images[3]
    array = tensor.permute(1, 2, 0).numpy()
    path = tmp_path / "digit.png"
    Image.fromarray(array).save(path)
    single = [taught.predict(given)[0] for given in (tensor, array, Image.fromarray(array), path, str(path))]
    batch = taught.predict(np.stack([array, array])) + taught.predict(tensor[None]) + taught.predict([path, array])
    assert_same_answers(single + batch, single[:1] * 10)


def test_a_batch_of_grey_images_is_many_images_and_a_colour_image_is_one(taught: Learner) -> None:
    grey = unseen_digits().images[:6, 0]
    expected = taught.predict(unseen_digits().images[:6])
    for batch in (grey, grey.numpy(), list(grey), grey[:, None]):
        assert_same_answers(taught.predict(batch), expected)
    for single in (grey[0], grey[:1], unseen_digits().images[0], grey[0].numpy(), grey[0].numpy()[..., None]):
        assert_same_answers(taught.predict(single), expected[:1])
    (wrong,) = taught.predict(unseen_digits().images[0].permute(1, 2, 0))
    assert wrong.error is not None


def test_answers_keep_the_given_order_and_a_broken_image_is_an_entry(taught: Learner, tmp_path: Path) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no image")
    dot = torch.zeros(3, 1, 1, dtype=torch.uint8)
    images: Sequence[Any] = [
        *unseen_digits().images[:300],
        broken,
        dot,
        tmp_path / "missing.png",
        *unseen_digits().images[300:310],
    ]
    found = taught.predict(images)
    assert [entry.error is not None for entry in found] == [False] * 300 + [True] * 3 + [False] * 10
    assert (found[300].name, found[300].error) == (str(broken), REASONS[UnidentifiedImageError])
    assert found[300].label is None
    assert "1 x 1" in str(found[301].error)
    alone = taught.predict(unseen_digits().images[305])[0]
    assert_same_answers([found[308]], [alone])


def test_no_more_classes_are_told_than_were_asked_for(taught: Learner) -> None:
    (both,), (best,) = (taught.predict(unseen_digits().images[0], top=top) for top in (5, 1))
    assert len(both.top) == 2
    assert best.top == both.top[:1]


@pytest.mark.filterwarnings("ignore::foster.learner.prediction.CalibrationWarning")
def test_unknown_is_answered_below_the_asked_confidence(taught: Learner) -> None:
    images = unseen_digits().images[:100]
    plain = taught.predict(images)
    careful = taught.predict(images, unknown_below=0.9)
    for before, after in zip(plain, careful, strict=True):
        assert after.is_unknown == (before.confidence < 0.9)
        assert after.label == ("unknown" if after.is_unknown else before.label)
        assert after.top == before.top
    assert 0 < sum(entry.is_unknown for entry in careful) < 100


def test_a_confidence_in_percent_is_refused(taught: Learner) -> None:
    with pytest.raises(DataError, match="from 0 to 1"):
        taught.predict(unseen_digits().images[0], unknown_below=70)
    with pytest.raises(DataError, match="a number of classes from 1"):
        taught.predict(unseen_digits().images[0], top=0)


def test_a_learner_that_knows_nothing_says_so(tmp_path: Path) -> None:
    learner = foster.Learner()
    assert learner.class_names == ()
    for work in (lambda: learner.predict("x.png"), lambda: learner.save(tmp_path / "b"), lambda: learner.evaluate("x")):
        with pytest.raises(DataError, match="learn"):
            work()


class Averaging(ReplaySettings):
    classifies_by = "nearest_mean"


def test_what_a_methods_settings_say_alone_decides_by_what_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHOD_SETTINGS, "averaging", Averaging)
    for method, is_by_mean in (("averaging", True), ("replay", False)):
        learner = small_learner(method)
        report = learner.learn(digits("zero", "one"))
        assert (learner.classifier().class_means is not None) is is_by_mean
        assert list(report.variants) == ["nearest_mean" if is_by_mean else "head"]


def bars(name: str, count: int) -> list[np.ndarray]:
    """Pictures of 30 x 50 with a bar that stands or lies, and some noise."""
    rng = np.random.default_rng(len(name))
    found = []
    for _ in range(count):
        picture = rng.integers(0, 60, (30, 50, 3), dtype=np.uint8)
        x, y = rng.integers(0, 40), rng.integers(0, 20)
        if name == "standing":
            picture[:, x : x + 8] = 250
        else:
            picture[y : y + 8] = 250
        found.append(picture)
    return found


def test_images_that_are_not_square_from_learning_to_export(tmp_path: Path) -> None:
    learner = small_learner(image_size="12x20")
    learner.learn([*bars("standing", 12), *bars("lying", 12)], labels=["standing"] * 12 + ["lying"] * 12)
    learner.learn([np.zeros((30, 50, 3), np.uint8) + k for k in range(12)], labels=["dark"] * 12)
    assert learner.knowledge.preprocessing.size == (12, 20)
    again = foster.load(learner.save(tmp_path / "bundle"), device="cpu")
    assert again.settings.image_size == (12, 20)
    assert again.knowledge.exemplars.memory.stack_of(0).shape[2:] == (12, 20)
    found, expected = (one.predict([*bars("standing", 5), *bars("lying", 5)]) for one in (again, learner))
    assert [entry.record() for entry in found] == [entry.record() for entry in expected]
    assert export_facts(again.knowledge)["input"]["shape"] == ["batch", 12, 20, 3]


def test_photos_can_be_deleted_and_unreadable_ones_are_reported(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    for name in ("zwei", "drei 三"):
        (folder / name).mkdir(parents=True)
        images = digits({"zwei": "two", "drei 三": "three"}[name], last=20)[0]
        for k, image in enumerate(images):
            Image.fromarray(image[0].numpy()).save(folder / name / f"{k}.png")
    (folder / "zwei" / "broken.jpg").write_bytes(b"broken")
    (folder / "zwei" / "photo.dng").write_bytes(b"x")
    (folder / "leer").mkdir()
    learner = small_learner()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = learner.learn(folder)
    assert learner.class_names == ("drei 三", "zwei")
    assert [Path(entry.name).name for entry in report.unreadable] == ["broken.jpg"]
    evaluation = learner.evaluate(folder)
    for found in (report, evaluation):
        assert found.passed_over == {".dng": 1}
        assert found.empty_classes == ("leer",)
    assert evaluation.record()["empty_classes"] == ["leer"]
    shutil.rmtree(folder)
    bundle = learner.save(tmp_path / "bundle")
    again = foster.load(bundle, device="cpu")
    again.learn(digits("four"))
    assert again.class_names == ("drei 三", "zwei", "four")
    assert again.knowledge.history[0]["source"] == "photos"
    assert again.knowledge.history[0]["passed_over"] == {".dng": 1}
    assert str(tmp_path) not in (bundle / "bundle.json").read_text(encoding="utf-8")


def test_a_method_with_a_cosine_head_gets_the_backbone_made_for_it(tmp_path: Path) -> None:
    learner = small_learner("podnet")
    learner.learn(digits("zero", "one", last=12))
    again = foster.load(learner.save(tmp_path / "bundle"), device="cpu")
    again.learn(digits("two", last=12))
    features = again.knowledge.network.eval().features(torch.randn(4, 3, 8, 8))
    assert (features < 0).any(), "no last ReLU"
    assert "cosine_resnet8" in (tmp_path / "bundle" / "bundle.json").read_text(encoding="utf-8")
