"""What a learner knows, as a classifier."""

import torch
from small_learners import digits, small_learner
from torch import Tensor
from torch.nn import functional

from foster.learner.knowledge import Knowledge


def mean_by_hand(knowledge: Knowledge, images: Tensor) -> Tensor:
    """The unit-length mean of the unit-length features of some images of a class."""
    given = knowledge.preprocessing
    mean, std = (torch.tensor(numbers).view(1, 3, 1, 1) for numbers in (given.mean, given.std))
    with torch.no_grad():
        features = knowledge.network.eval().features((images / 255 - mean) / std)
    return functional.normalize(functional.normalize(features).mean(0), dim=0)


def test_the_nearest_mean_is_that_of_the_exemplars_and_not_of_held_out_images() -> None:
    learner = small_learner("icarl")
    learner.learn(digits("zero", "one"))
    knowledge = learner.knowledge
    assert knowledge is not None
    found = knowledge.classifier(torch.device("cpu")).class_means
    assert found is not None
    of_exemplars, of_held_out = (
        torch.stack([mean_by_hand(knowledge, memory.stack_of(class_id).tensor) for class_id in range(2)])
        for memory in (knowledge.exemplars, knowledge.held_out)
    )
    torch.testing.assert_close(found, of_exemplars, rtol=1e-4, atol=1e-5)
    assert (found - of_held_out).abs().max().item() > 0.01
