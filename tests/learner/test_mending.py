"""Rename, merge and forget: a classifier that goes on, and honest words about what was lost."""

import copy
from pathlib import Path

import pytest
import torch
from small_learners import digits, small_learner, unseen_digits
from torch import Tensor

import foster
from foster.errors import DataError
from foster.learner.learner import Learner
from foster.learner.mending import Regrouping, files_together, merged_row
from foster.methods.base import Method
from foster.methods.foster import Foster
from foster.networks.heads import Head

FOUR = ("zero", "one", "two", "three")


@pytest.fixture(scope="module")
def taught_four() -> Learner:
    learner = small_learner(memory_total=120, epochs_scale=0.02)
    learner.learn(digits("zero", "one"))
    learner.learn(digits("two", "three"))
    return learner


@pytest.fixture
def four(taught_four: Learner) -> Learner:
    """Knows four digits of two tasks."""
    return copy.deepcopy(taught_four)


def unseen(*names: str) -> torch.Tensor:
    return digits(*names, data=unseen_digits(), last=10)[0]


def test_a_renamed_class_is_the_same_class(four: Learner, tmp_path: Path) -> None:
    before = four.knowledge
    answers = [(answer.label, answer.confidence) for answer in four.predict(unseen("one", "two"))]
    assert str(four.rename("one", "Éins 一")) == "renamed one to Éins 一"
    again = foster.load(four.save(tmp_path / "renamed"), device="cpu")
    assert again.class_names == ("zero", "Éins 一", "two", "three")
    told = [(answer.label, answer.confidence) for answer in again.predict(unseen("one", "two"))]
    assert told == [("Éins 一" if label == "one" else label, sure) for label, sure in answers]
    assert again.knowledge.exemplars.files == before.exemplars.files
    assert again.knowledge.held_out.files == before.held_out.files
    assert again.knowledge.temperature == before.temperature
    images, names = digits("one", last=60)
    report = again.learn(images, ["Éins 一"] * len(names), epochs_scale=0.001)
    assert set(report.more_of) == {"Éins 一"}


def test_a_merged_class_has_the_sum_of_its_parts(four: Learner, tmp_path: Path) -> None:
    before = copy.deepcopy(four)
    report = four.merge(["three", "one"], "one or three")
    assert four.class_names == ("zero", "one or three", "two")
    assert four.knowledge.task_sizes == (2, 1)
    assert report.renamed == {"one": "one or three", "three": "one or three"}
    old, new = (one.knowledge.exemplars.memory for one in (before, four))
    assert len(new.stack_of(1)) == len(old.stack_of(1)) + len(old.stack_of(3))
    known, head, merged = before.knowledge, before.knowledge.network.head, four.knowledge.network.head
    assert isinstance(head, Head)
    assert isinstance(merged, Head)
    exemplars = known.images_of(known.exemplars)
    features = before.classifier().features(exemplars.stack)
    row, bias = merged_row(head.weight, head.bias, features, exemplars.labels, [1, 3], known.temperature)
    torch.testing.assert_close((merged.weight[1].detach(), merged.bias[1].detach()), (row, bias))
    images = unseen(*FOUR)
    parts, whole = before.classifier().probabilities(images), four.classifier().probabilities(images)
    assert (parts[:, [1, 3]].sum(1) - whole[:, 1]).abs().mean() < 0.06
    again = foster.load(four.save(tmp_path / "merged"), device="cpu")
    assert torch.equal(again.classifier().probabilities(images), whole)


def test_a_forgotten_class_is_gone(four: Learner, tmp_path: Path) -> None:
    before = copy.deepcopy(four)
    report = four.forget("zero")
    check = next(check for check in report.checks if check.kind == "held-out")
    assert {entry.name for entry in check.known} == {"one", "two", "three"}
    assert check.drop <= 0, "fewer classes to choose from"
    assert check.num_negative_flips == 0
    assert report.is_trained, "the backbone is as it was"
    folder = four.save(tmp_path / "forgotten")
    again = foster.load(folder, device="cpu")
    assert again.class_names == ("one", "two", "three")
    assert again.knowledge.task_sizes == (1, 2)
    assert not [label for answer in again.predict(unseen("zero")) for label in answer.top if label.label == "zero"]
    gone = {path.name[5:] for path in before.save(tmp_path / "before").glob("*/0000/*.png")}
    assert not gone & {path.name[5:] for path in folder.rglob("*.png")}
    rows, kept = again.knowledge.network.head.state_dict(), before.knowledge.network.head.state_dict()
    assert all(torch.equal(rows[name], kept[name][1:]) for name in rows)


@pytest.mark.parametrize("method", ["der", "icarl"])
def test_other_methods_are_mended_and_learn_on(method: str, tmp_path: Path) -> None:
    learner = small_learner(method, memory_total=80, epochs_scale=0.002)
    learner.learn(digits("zero", "one", "two", last=20))
    learner.learn(digits("three", last=20))
    learner.merge(["one", "three"], "both")
    learner.forget("zero")
    assert learner.knowledge.task_sizes == (2, 0)
    learner = foster.load(learner.save(tmp_path / "mended"), device="cpu")
    learner.learn(digits("zero", last=20))
    assert learner.class_names == ("both", "two", "zero")
    again = foster.load(learner.save(tmp_path / "more"), device="cpu")
    images = unseen(*FOUR)
    assert torch.equal(again.classifier().probabilities(images), learner.classifier().probabilities(images))


def test_a_first_task_of_which_nothing_is_left_still_loads_and_learns(four: Learner, tmp_path: Path) -> None:
    four.forget("zero", "one")
    assert four.knowledge.task_sizes == (0, 2)
    again = foster.load(four.save(tmp_path / "rest"), device="cpu")
    again.learn(*digits("four", last=20), epochs_scale=0.001)
    assert again.class_names == ("two", "three", "four")
    again.forget("three", "four")
    assert again.class_names == ("two",)
    assert [answer.confidence for answer in again.predict(unseen("two"))] == [1.0] * 10


@pytest.mark.parametrize(
    ("mend", "line"),
    [
        (lambda learner: learner.rename("on", "x"), "'on'.*'one'"),
        (lambda learner: learner.rename("one", "two"), "'two'.*merge"),
        (lambda learner: learner.rename("one", "one"), "'one'"),
        (lambda learner: learner.rename("one", "a/b"), "'a/b'"),
        (lambda learner: learner.merge(["one", "two"], "../x"), "'../x'"),
        (lambda learner: learner.rename("one", " "), "empty"),
        (lambda learner: learner.rename("one", "unknown"), "'unknown'"),
        (lambda learner: learner.rename("one", "a\nb"), "control characters"),
        (lambda learner: learner.merge(["one", "one"], "x"), "two different"),
        (lambda learner: learner.merge(["one", "two"], "zero"), "'zero'"),
        (lambda learner: learner.merge(["one", "tow"], "x"), "'tow'.*'two'"),
        (lambda learner: learner.forget(*FOUR), "class"),
    ],
)
def test_a_wrong_name_gets_one_line_and_changes_nothing(four: Learner, mend: object, line: str) -> None:
    before = four.knowledge
    with pytest.raises(DataError, match=line):
        mend(four)  # type: ignore[operator]
    assert four.knowledge is before


def test_a_method_without_exemplars_forgets_but_does_not_merge(tmp_path: Path) -> None:
    learner = small_learner("lwf", epochs_scale=0.001, validation_share=0.3)
    learner.learn(digits("zero", "one", "two"))
    learner.learn(digits("three"))
    with pytest.raises(DataError, match="keeps no exemplars"):
        learner.learn(digits("three", first=40, last=44))
    with_statistics = small_learner("slda", epochs_scale=0.001)
    with_statistics.learn(digits("zero", "one", last=8))
    assert with_statistics.learn(digits("one", first=8, last=12)).more_of == {"one": 4}
    with pytest.raises(DataError, match="'lwf'"):
        learner.merge(["zero", "one"], "both")
    learner.forget("zero")
    assert foster.load(learner.save(tmp_path / "saved"), device="cpu").class_names == ("one", "two", "three")


def test_probabilities_of_parts_are_added() -> None:
    summed = Regrouping(((0, 2), (3,)), ("a", "b")).summed(torch.tensor([[0.1, 0.2, 0.3, 0.4]]))
    torch.testing.assert_close(summed, torch.tensor([[0.4, 0.4, 0.2]]), msg="what is left out stands at the end")


def test_merged_exemplars_take_turns_within_what_a_class_may_keep() -> None:
    learner = small_learner(memory_total=None, memory_per_class=10, epochs_scale=0.001)
    learner.learn(digits("zero", "one", "two", last=20))
    before = learner.knowledge
    learner.merge(["zero", "one"], "both")
    after = learner.knowledge
    both = after.exemplars.memory.stack_of(0).tensor
    assert len(both) + len(after.held_out.memory.stack_of(0).tensor) <= 10
    zero, one = (before.exemplars.memory.stack_of(k).tensor for k in (0, 1))
    assert torch.equal(both[:4], torch.stack([zero[0], one[0], zero[1], one[1]]))
    assert after.task_sizes == (2,)


def test_a_photo_that_two_merged_classes_keep_is_kept_once() -> None:
    by_class = [tuple((name, b"") for name in names) for names in ("abc", "cade")]
    (both,) = files_together(by_class, [(0, 1)], None)
    assert [name for name, _ in both] == ["a", "c", "b", "d", "e"]


def test_a_network_that_keeps_more_than_we_know_is_left_alone(
    learner: Learner, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = learner.knowledge

    class Strange(Head):
        pass

    usual_head = known.network.head
    known.network.head = Strange(known.network.feature_size, 2)
    with pytest.raises(DataError, match="'foster'"):
        learner.forget("one")
    known.network.head = usual_head

    monkeypatch.setattr(Foster, "new_network", lambda self, sizes: Method.new_network(self, sizes))
    with pytest.raises(DataError, match="'foster'"):
        learner.forget("one")


def course(seed: int, count: int = 400) -> tuple[Tensor, Tensor]:
    """Features `[count, 8]` of four classes, and their labels."""
    chance = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (count,), generator=chance)
    return 3 * torch.eye(8)[labels] + torch.randn(count, 8, generator=chance), labels


WEIGHT, BIAS = torch.eye(4, 8) + 0.3, torch.tensor([0.2, -0.1, 0.0, 0.4])


@pytest.mark.parametrize("temperature", [0.7, 2.0])
def test_its_probability_is_nearly_the_sum_on_other_photos(temperature: float) -> None:
    features, labels = course(0)
    row, bias = merged_row(WEIGHT, BIAS, features, labels, [1, 3], temperature)
    twice = torch.cat((torch.arange(len(labels)), *(labels == 0).nonzero(as_tuple=True)))
    again = merged_row(WEIGHT, BIAS, features[twice], labels[twice], [1, 3], temperature)
    torch.testing.assert_close(again, (row, bias), msg="every class counts the same, however many photos it has")
    features, _ = course(1)
    before = ((features @ WEIGHT.T + BIAS) / temperature).softmax(1)
    weight, biases = torch.stack([WEIGHT[0], row, WEIGHT[2]]), torch.stack([BIAS[0], bias, BIAS[2]])
    after = ((features @ weight.T + biases) / temperature).softmax(1)
    wanted = torch.stack([before[:, 0], before[:, [1, 3]].sum(1), before[:, 2]], dim=1)
    mean = torch.stack([WEIGHT[0], WEIGHT[[1, 3]].mean(0), WEIGHT[2]])
    plain = ((features @ mean.T + BIAS[[0, 1, 2]]) / temperature).softmax(1)
    assert (after - wanted).abs().mean() < 0.03
    assert (after - wanted).abs().mean() < (plain - wanted).abs().mean() / 3, "better than the mean of the rows"
    assert (after.argmax(1) == wanted.argmax(1)).float().mean() > 0.97
