"""A phase that ends near chance is tried again once, from where it began, at a tenth of the rate."""

from collections.abc import Iterator

import pytest
import torch
from small_learners import digits, small_learner
from torch import Tensor, nn

from foster.data.images import ImageSet
from foster.learner.second_try import NUM_LOOKED_AT, _spread, with_second_try
from foster.networks import build_backbone
from foster.networks.network import Network, Output
from foster.settings.fit import FitSettings
from foster.training.phase import Evaluate, Phase


def infer(network: nn.Module, images: Tensor) -> Output:
    with torch.no_grad():
        out = network.eval()(images.float() / 255)
    return Output(out.logits, out.features)


def phase() -> Phase:
    torch.manual_seed(1)
    network = Network.create(build_backbone("resnet8"), 4)
    images = torch.randint(256, (40, 3, 8, 8), dtype=torch.uint8)
    data = ImageSet(images, torch.arange(4).repeat(10), tuple("abcd"))
    return Phase("learn", network, lambda images, labels: {}, FitSettings(epochs=3, learning_rate=0.1), data)


def spoiled(step: Phase) -> None:
    """All images become class 0."""
    with torch.no_grad():
        step.network.head.weight.zero_()
        step.network.head.bias.copy_(torch.tensor([1.0, 0, 0, 0]))


def test_what_is_looked_at_is_labelled_and_from_all_over_the_set() -> None:
    labels = torch.tensor([-1] * 500 + [0] * 400 + [1] * 400)
    data = ImageSet(torch.zeros(1, 3, 1, 1, dtype=torch.uint8).expand(1300, -1, -1, -1), labels, ("a", "b"))
    looked_at = _spread(data)
    assert len(looked_at) == NUM_LOOKED_AT
    assert looked_at.class_counts().min() > 100
    assert (looked_at.labels >= 0).all()


def test_it_is_started_again_from_where_it_began() -> None:
    first, said = phase(), []
    before = {name: value.clone() for name, value in first.network.state_dict().items()}
    steps: Iterator[Phase | Evaluate] = with_second_try(iter([first]), infer, 4, said.append)
    spoiled(next(steps))  # type: ignore[arg-type]
    again = next(steps)
    assert isinstance(again, Phase)
    assert (again.name, again.fit.learning_rate, again.fit.epochs) == ("learn again", pytest.approx(0.01), 3)
    assert all(torch.equal(value, before[name]) for name, value in again.network.state_dict().items())
    spoiled(again)
    assert list(steps) == [], "once"
    assert said == ["learn: it learned nothing, and was started again at a rate of 0.01"]


def test_a_learn_at_a_rate_that_is_far_too_high_says_so_and_still_learns() -> None:
    learner = small_learner(learning_rate_scale=60.0, epochs_scale=0.03)
    report = learner.learn(*digits("zero", "one", "two"))
    assert report.restarts == ("learn: it learned nothing, and was started again at a rate of 0.6",)


def test_a_learn_that_works_is_left_alone() -> None:
    report = small_learner(epochs_scale=0.05).learn(*digits("zero", "one"))
    assert report.restarts == ()
