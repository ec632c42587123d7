"""What is known, with classes put together or left out."""

import copy

import pytest
import torch
from small_learners import digits, small_learner
from torch import Tensor

from foster.data.memory import ExemplarMemory
from foster.errors import DataError
from foster.learner.knowledge import Knowledge
from foster.learner.learner import Learner
from foster.learner.mending import Regrouping, _together, merged_row
from foster.networks.heads import Head


def known_by(learner: Learner) -> Knowledge:
    assert learner.knowledge is not None
    return learner.knowledge


def test_tasks_keep_what_is_left_of_their_classes() -> None:
    groups = Regrouping(((1, 4), (2,), (5,)), ("a", "b", "c"))
    assert groups.task_sizes((1, 2, 2, 1)) == (0, 2, 0, 1)


def test_probabilities_of_parts_are_added() -> None:
    summed = Regrouping(((0, 2), (3,)), ("a", "b")).summed(torch.tensor([[0.1, 0.2, 0.3, 0.4]]))
    torch.testing.assert_close(summed, torch.tensor([[0.4, 0.4, 0.2]]), msg="what is left out stands at the end")


def test_merged_exemplars_take_turns_within_what_a_class_may_keep_and_give_it_its_output() -> None:
    learner = small_learner(memory_total=None, memory_per_class=10, epochs_scale=0.001)
    learner.learn(digits("zero", "one", "two", last=20))
    known = known_by(learner)
    merged = copy.deepcopy(learner)
    merged.merge(["zero", "one"], "both")
    after = known_by(merged)
    both = after.exemplars.stack_of(0).tensor
    assert len(both) + len(after.held_out.stack_of(0).tensor) <= 10
    zero, one = known.exemplars.stack_of(0).tensor, known.exemplars.stack_of(1).tensor
    assert torch.equal(both[:4], torch.stack([zero[0], one[0], zero[1], one[1]]))
    assert after.task_sizes == (2,)
    before, head, exemplars = known.network.head, after.network.head, known.images_of(known.exemplars)
    assert isinstance(before, Head)
    assert isinstance(head, Head)
    features = learner.classifier().features(exemplars.images)
    row, bias = merged_row(*before.affine, features, exemplars.labels, [0, 1], known.temperature)
    torch.testing.assert_close((head.weight.detach(), head.bias.detach()), expected_head(before, row, bias))


def expected_head(before: Head, row: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Of the class that was two, and of the third."""
    return torch.stack([row, before.weight.detach()[2]]), torch.stack([bias, before.bias.detach()[2]])


def test_a_photo_that_two_merged_classes_keep_is_kept_once() -> None:
    pictures = torch.arange(5, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 4, 4).contiguous()
    memory = ExemplarMemory()
    for class_id, own in enumerate(([0, 1, 2], [2, 0, 3, 4])):
        memory.remember(class_id, pictures[own])
    together = _together(memory, [(0, 1)], None).stack_of(0).tensor
    assert together[:, 0, 0, 0].tolist() == [0, 2, 1, 3, 4]


def test_a_network_that_keeps_more_than_we_know_is_left_alone(learner: Learner) -> None:
    known = learner.knowledge
    assert known is not None
    known.network.register_buffer("importance", torch.ones(2))
    with pytest.raises(DataError, match="method 'foster' has a network of its own kind"):
        learner.forget("one")
    del known.network.importance

    class Strange(Head):
        pass

    known.network.head = Strange(known.network.feature_size, 2)
    with pytest.raises(DataError, match="cannot be merged or forgotten"):
        learner.forget("one")


def test_memories_without_images_stay_empty() -> None:
    learner = small_learner("finetune", epochs_scale=0.001, validation_share=0.0)
    learner.learn(digits("zero", "one", last=20))
    learner.forget("zero")
    after = known_by(learner)
    assert isinstance(after.exemplars, ExemplarMemory)
    assert after.exemplars.num_images == 0


def course(seed: int, count: int = 400) -> tuple[Tensor, Tensor]:
    """Features `[count, 8]` of four classes, and their labels."""
    chance = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (count,), generator=chance)
    return 3 * torch.eye(8)[labels] + torch.randn(count, 8, generator=chance), labels


WEIGHT, BIAS = torch.eye(4, 8) + 0.3, torch.tensor([0.2, -0.1, 0.0, 0.4])


@pytest.mark.parametrize("temperature", [0.7, 2.0])
def test_its_probability_is_nearly_the_sum_on_other_photos(temperature: float) -> None:
    row, bias = merged_row(WEIGHT, BIAS, *course(0), [1, 3], temperature)
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


def test_a_class_with_many_photos_counts_no_more_than_one_with_few() -> None:
    features, labels = course(0, count=40)
    row, bias = merged_row(WEIGHT, BIAS, features, labels, [1, 3])
    again = torch.cat([torch.arange(40), *[(labels == 0).nonzero()[:, 0]] * 9])
    same_row, same_bias = merged_row(WEIGHT, BIAS, features[again], labels[again], [1, 3])
    torch.testing.assert_close(same_row, row, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(same_bias, bias, rtol=1e-3, atol=1e-3)


def test_what_all_logits_have_in_common_changes_nothing() -> None:
    features, labels = course(0)
    common = torch.randn(8, generator=torch.Generator().manual_seed(2))
    row, bias = merged_row(WEIGHT, BIAS, features, labels, [0, 1])
    moved, same_bias = merged_row(WEIGHT + common, BIAS, features, labels, [0, 1])
    torch.testing.assert_close(moved, row + common, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(same_bias, bias, rtol=1e-3, atol=1e-3)


def test_where_there_are_no_others_the_mean_will_do() -> None:
    row, bias = merged_row(WEIGHT[:2], BIAS[:2], *course(0), [0, 1])
    torch.testing.assert_close(row, WEIGHT[:2].mean(0))
    torch.testing.assert_close(bias, BIAS[:2].mean())
