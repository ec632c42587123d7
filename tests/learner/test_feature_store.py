"""The features and sums of photos that were learned in closed form."""

import torch
from torch import Tensor

from foster.learner.feature_store import GONE, NOT_MEASURED, FeatureStore


def some_features(num: int, seed: int = 0) -> Tensor:
    return torch.randn(num, 3, generator=torch.Generator().manual_seed(seed)).half()


def store_of(labels: list[int], per_class: int) -> FeatureStore:
    """Photos with these class ids, and the features of `per_class` of each class."""
    ids = [f"photo-{k}" for k in range(len(labels))]
    empty = FeatureStore.empty(3)
    return empty.added(some_features(len(labels)), torch.tensor(labels), ids, max(labels) + 1, per_class)


def test_the_part_of_a_class_whose_features_are_kept_in_part_is_estimated_as_if_none_were() -> None:
    labels = [0, 1, 0, 1, 1]
    in_part, without = (store_of(labels, per_class).regrouped([[0]]).statistics for per_class in (2, 0))
    torch.testing.assert_close(in_part.second_moment, without.second_moment)
    two_gone = store_of([0, 1, 2, 2], per_class=2).regrouped([[2]])
    torch.testing.assert_close(two_gone.statistics.sums[0], two_gone.features.double().sum(0))


def test_the_limit_of_kept_features_counts_those_of_all_learns() -> None:
    store = store_of([0, 1, 0], per_class=2)
    again = store.added(some_features(3, seed=1), torch.tensor([0, 1, 1]), ["a", "y", "z"], 2, 2)
    assert torch.bincount(again.kept_labels).tolist() == [2, 2]
    assert again.kept_ids == ("photo-0", "photo-1", "a", "y"), "those with the smallest ids"
    assert again.answers.tolist() == [NOT_MEASURED] * 6
    more = again.added(some_features(1, seed=2), torch.tensor([1]), ["b"], 2, 3)
    assert more.kept_ids == (*again.kept_ids, "b")
    assert more.kept_labels.tolist() == [0, 1, 0, 1, 1]
    without = store.added(some_features(1), torch.tensor([1]), ["a"], 2, 0)
    assert len(without.features) == len(without.rows) == 0, "a lower limit holds for photos of earlier learns, too"
    assert without.statistics.counts.tolist() == [2, 2]
    assert without.measurable(some_features(1))[0].tolist() == [3]


def test_a_merged_class_keeps_features_of_all_its_parts() -> None:
    ids = ["1", "3", "5", "2", "4", "6"]
    parts = FeatureStore.empty(3).added(some_features(6), torch.tensor([0, 0, 0, 1, 1, 1]), ids, 2, 3)
    again = parts.regrouped([[0, 1]]).added(some_features(1), torch.tensor([0]), ["7"], 1, 3)
    assert again.kept_ids == ("1", "3", "2")
    assert torch.equal(again.features, some_features(6)[[0, 1, 3]])


def test_a_photo_without_kept_features_stays_in_the_sums_and_in_the_list() -> None:
    store = store_of([0, 0, 0], per_class=2)
    left = store.without({(0, "photo-0"), (0, "photo-2")})
    assert left.ids == ("photo-1", "photo-2")
    assert left.statistics.counts.tolist() == [2]


def test_an_answer_is_forgotten_at_the_next_measurement() -> None:
    store = store_of([0, 1, 1], per_class=3).with_answers(torch.tensor([0, 1]), torch.tensor([0, 0]))
    again = store.with_answers(torch.tensor([2]), torch.tensor([1]))
    assert again.answers.tolist() == [NOT_MEASURED, NOT_MEASURED, 1]


def test_answers_follow_their_classes_to_new_ids() -> None:
    store = store_of([0, 1, 2, 2, 1], per_class=3).with_answers(torch.arange(4), torch.tensor([2, 0, 1, 2]))
    after = store.regrouped([[1], [2]])
    assert after.labels.tolist() == [0, 1, 1, 0]
    assert after.answers.tolist() == [GONE, 0, 1, NOT_MEASURED]


def test_a_store_whose_photos_have_all_been_taken_out_is_written_and_read() -> None:
    tensors = store_of([0], per_class=1).without({(0, "photo-0")}).tensors()
    again = FeatureStore.of(tensors, 1, "a bundle")
    assert again is not None
    assert again.ids == ()
