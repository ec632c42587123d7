"""What a learner says about itself holds: what was held out, what was lost, and how sure it is."""

import copy
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from small_learners import digits, small_learner, together

import foster
from foster.bundle.history import checked_entry
from foster.data.feed import Feed, make_feed
from foster.data.images import ImageSet
from foster.data.memory import ExemplarMemory
from foster.data.photos.decode import image_id
from foster.events import Event, Warned
from foster.learner import train
from foster.learner.learner import Learner
from foster.learner.reports import CalibrationWarning, MendReport, UpdateError
from foster.learner.train import TrainingPlan, plan_training
from foster.learner.update_check import compare
from foster.training import task as task_module


def known(learner: Learner) -> Any:
    assert learner.knowledge is not None
    return learner.knowledge


def ids_of(memory: ExemplarMemory, class_ids: Iterable[int]) -> set[str]:
    return {image_id(image) for class_id in class_ids for image in memory.stack_of(class_id).tensor}


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The ids of all images that training has seen so far."""
    seen: set[str] = set()

    def recording(data: ImageSet, *rest: Any) -> Feed:
        seen.update(image_id(image) for image in data.images)
        return make_feed(data, *rest)

    monkeypatch.setattr(task_module, "make_feed", recording)
    return seen


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[TrainingPlan]:
    found: list[TrainingPlan] = []

    def recording(*given: Any) -> TrainingPlan:
        found.append(plan_training(*given))
        return found[-1]

    monkeypatch.setattr(train, "plan_training", recording)
    return found


@pytest.mark.parametrize(
    ("first", "second", "holds_out_of_known"),
    [("standard", "standard", True), ("standard", "fast", True), ("paper", "standard", False)],
)
def test_photos_that_come_again_are_not_measured_on_once_they_were_trained_on(
    trained: set[str], plans: list[TrainingPlan], first: str, second: str, holds_out_of_known: bool
) -> None:
    learner = small_learner(training=first, memory_total=30)
    learner.learn(digits("zero", "one", "two", last=110))
    before = set(trained)
    grown = digits("zero", "one", "two", "three", last=None)
    report = learner.learn(grown, training=second, epochs_scale=0.005)
    held_out = plans[-1].held_out
    fresh = plans[-1].new_held_out
    assert bool((fresh.labels < 3).any()) == holds_out_of_known
    assert (fresh.labels == 3).sum() >= 10
    assert not before & {image_id(image) for image in held_out.images}
    assert report.num_held_out == len(fresh)


def test_the_places_survive_a_bundle_and_an_old_bundle_without_them_holds_nothing_out(tmp_path: Any) -> None:
    learner = small_learner()
    learner.learn(digits("zero", "one"))
    places = known(learner).trained_from
    assert all(0 < place < 0.5 for place in places.values())
    again = foster.load(learner.save(tmp_path / "bundle"), device="cpu")
    assert known(again).trained_from == places
    for entry in known(again).history:
        del entry["trained_from"]
    assert known(again).trained_from == {"zero": 0.0, "one": 0.0}


def test_a_learner_that_never_held_out_anything_spends_all_its_memory_on_exemplars() -> None:
    learner = small_learner(training="paper")
    for name in ("zero", "one", "two"):
        learner.learn(digits(name))
    assert known(learner).exemplars.counts.tolist() == [20, 20, 20]
    assert known(learner).held_out.num_images == 0


def test_a_class_is_not_forgotten_unseen_because_others_have_many_held_out_images() -> None:
    learner = small_learner(training="paper", epochs_scale=0.05, memory_total=80)
    learner.learn(digits("zero", "one", "two", "three", last=80))
    before = learner.knowledge
    more = together(digits("zero", last=None), digits("four", last=60))
    spoilt = {"compress": {"weight_decay": 0.5}}
    with pytest.raises(UpdateError, match=r"the known classes fell from .* by more than 5 points") as refused:
        learner.learn(more, max_drop=5, training="standard", epochs_scale=0.02, validation_share=0.3, foster=spoilt)
    exemplars = next(check for check in refused.value.report.checks if check.kind == "exemplar")
    assert exemplars.drop > 50
    assert learner.knowledge is before


def test_a_limit_that_cannot_be_watched_is_said() -> None:
    learner = small_learner("lwf", training="paper")
    learner.learn(digits("zero", "one"))
    again = copy.deepcopy(learner)
    told: list[Event] = []
    report = learner.learn(digits("two"), max_drop=5, listener=told.append)
    assert report.uncompared == ("zero", "one")
    (warned,) = [event for event in told if isinstance(event, Warned)]
    assert "there is no image of 2 known classes, such as 'zero'" in warned.message
    with pytest.warns(UserWarning, match="max_drop does not protect"):
        again.learn(digits("two"), max_drop=5)


def test_confidence_that_nobody_compared_is_not_used_silently(recwarn: pytest.WarningsRecorder) -> None:
    learner = small_learner(training="paper")
    learner.learn(digits("zero", "one"))
    image = digits("zero", last=1)[0][0]
    learner.predict(image)
    assert not recwarn.list
    with pytest.warns(CalibrationWarning, match="confidence is not calibrated"):
        learner.predict(image, unknown_below=0.9)
    learner.learn(digits("zero", "one", "two", first=40, last=None), training="standard", epochs_scale=0.005)
    assert known(learner).num_calibration_images > 0
    recwarn.clear()
    learner.predict(image, unknown_below=0.9)
    assert not recwarn.list


@pytest.mark.filterwarnings("ignore::foster.learner.reports.CalibrationWarning")
def test_a_class_named_unknown_is_told_from_an_unknown_image() -> None:
    learner = small_learner()
    images, _ = digits("zero", "one", last=20)
    learner.learn(images, labels=["unknown"] * 20 + ["one"] * 20)
    plain, careful = ([found.record() for found in learner.predict(images, unknown_below=p)] for p in (0.0, 1.0))
    assert {(record["label"], record["is_unknown"]) for record in plain} == {("unknown", False), ("one", False)}
    assert {(record["label"], record["is_unknown"]) for record in careful} == {("unknown", True)}


@pytest.mark.parametrize("change", [lambda learner: None, lambda learner: learner.configure(training="paper")])
def test_the_budget_holds_with_any_mix_of_presets(change: Callable[[Learner], None]) -> None:
    learner = small_learner(memory_total=33)
    for name in ("zero", "one", "two", "three"):
        learner.learn(digits(name))
        change(learner)
        learner.configure(epochs_scale=0.005)
        stored = known(learner).exemplars.num_images + known(learner).held_out.num_images
        assert stored <= 33


def test_a_report_is_a_line_and_an_entry_of_the_history() -> None:
    check = compare("held-out", [0, 1], [0, 1], [0, 0], ("cat", "dog"), 2)
    renamed = MendReport({"cat": "tiger"})
    merged = MendReport({"cat": "pet", "dog": "pet"}, num_exemplars=7, checks=(check,))
    forgot = MendReport({}, ("cow",), checks=(check,))
    assert [str(one) for one in (renamed, merged, forgot)] == [
        "renamed cat to tiger",
        "merged cat, dog into pet",
        "forgot cow",
    ]
    for one in (renamed, merged, forgot):
        checked_entry(one.record())
    assert renamed.record() == {"renamed": {"cat": "tiger"}}
    assert merged.record()["checks"]["held-out"]["negative_flips"] == 1
