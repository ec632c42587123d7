"""What is known, with classes put together or left out."""

import pytest
import torch
from small_learners import digits, small_learner

from foster.data.memory import ExemplarMemory
from foster.errors import DataError
from foster.learner.knowledge import Knowledge
from foster.learner.learner import Learner
from foster.learner.regrouping import Regrouping, _together, regrouped
from foster.networks.heads import Head


def mended(learner: Learner, regrouping: Regrouping) -> Knowledge:
    known = learner.knowledge
    assert known is not None
    return regrouped(known, learner.settings, regrouping, lambda images: learner.classifier().features(images.images))


def test_tasks_keep_what_is_left_of_their_classes() -> None:
    groups = Regrouping(((1, 4), (2,), (5,)), ("a", "b", "c"))
    assert groups.task_sizes((1, 2, 2, 1)) == (0, 2, 0, 1)
    assert groups.merged == [0]


def test_probabilities_of_parts_are_added() -> None:
    summed = Regrouping(((0, 2), (3,)), ("a", "b")).summed(torch.tensor([[0.1, 0.2, 0.3, 0.4]]))
    torch.testing.assert_close(summed, torch.tensor([[0.4, 0.4, 0.2]]), msg="what is left out stands at the end")


def test_merged_exemplars_take_turns_within_what_a_class_may_keep() -> None:
    learner = small_learner(memory_total=None, memory_per_class=10, epochs_scale=0.001)
    learner.learn(digits("zero", "one", last=20))
    known = learner.knowledge
    assert known is not None
    after = mended(learner, Regrouping(((0, 1),), ("both",)))
    both = after.exemplars.stack_of(0)
    assert len(both) + len(after.held_out.stack_of(0)) <= 10
    zero, one = known.exemplars.stack_of(0), known.exemplars.stack_of(1)
    assert torch.equal(both[:4], torch.stack([zero[0], one[0], zero[1], one[1]]))
    assert after.task_sizes == (1,)


def test_a_photo_that_two_merged_classes_keep_is_kept_once() -> None:
    pictures = torch.arange(5, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 4, 4).contiguous()
    memory = ExemplarMemory()
    for class_id, own in enumerate(([0, 1, 2], [2, 0, 3, 4])):
        memory.remember(class_id, pictures[own])
    together = _together(memory, [(0, 1)], None).stack_of(0)
    assert together[:, 0, 0, 0].tolist() == [0, 2, 1, 3, 4]


def test_a_network_that_keeps_more_than_we_know_is_left_alone(learner: Learner) -> None:
    known = learner.knowledge
    assert known is not None
    only = Regrouping(((0,),), ("zero",))
    known.network.register_buffer("importance", torch.ones(2))
    with pytest.raises(DataError, match="method 'foster' has a network of its own kind"):
        mended(learner, only)
    del known.network.importance

    class Strange(Head):
        pass

    known.network.head = Strange(known.network.feature_size, 2)
    with pytest.raises(DataError, match="cannot be merged or forgotten"):
        mended(learner, only)


def test_memories_without_images_stay_empty() -> None:
    learner = small_learner("finetune", epochs_scale=0.001, validation_share=0.0)
    learner.learn(digits("zero", "one", last=20))
    known = learner.knowledge
    assert known is not None
    after = mended(learner, Regrouping(((1,),), ("one",)))
    assert isinstance(after.exemplars, ExemplarMemory)
    assert after.exemplars.num_images == 0
