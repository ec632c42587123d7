"""What a learner knows: as a classifier, and back from a bundle."""

from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch
from bundles import forge
from small_learners import digits, small_learner
from torch import Tensor
from torch.nn import functional

import foster
from foster.bundle.folder import BundleError
from foster.bundle.manifest import WEIGHTS
from foster.learner.knowledge import Knowledge
from foster.methods.base import Method
from foster.networks.boosted import BoostedNetwork


def mean_by_hand(knowledge: Knowledge, images: Tensor) -> Tensor:
    """The unit-length mean of the unit-length features of some images of a class."""
    given = knowledge.preprocessing
    mean, std = (torch.tensor(numbers).view(1, 3, 1, 1) for numbers in (given.mean, given.std))
    with torch.no_grad():
        features = knowledge.network.eval().features((images / 255 - mean) / std)
    return functional.normalize(functional.normalize(features).mean(0), dim=0)


def test_a_classifier_is_calibrated_and_its_nearest_means_are_those_of_the_exemplars_alone() -> None:
    learner = small_learner("icarl")
    learner.learn(digits("zero", "one"))
    knowledge = learner.knowledge
    classifier = replace(knowledge, temperature=2.0).classifier(torch.device("cpu"))
    images = digits("zero", "one", first=40, last=45)[0]
    expected = (classifier.all_scores(images) / 2).softmax(1)
    torch.testing.assert_close(classifier.probabilities(images), expected, rtol=1e-4, atol=1e-6)
    found = classifier.class_means
    of_exemplars, of_held_out = (
        torch.stack([mean_by_hand(knowledge, memory.stack_of(class_id).tensor) for class_id in range(2)])
        for memory in (knowledge.exemplars.memory, knowledge.held_out.memory)
    )
    torch.testing.assert_close(found, of_exemplars, rtol=1e-4, atol=1e-5)
    assert (found - of_held_out).abs().max().item() > 0.01


def test_a_bundle_after_many_tasks_is_loaded_as_one_after_the_first(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, make = [], Method.new_backbone
    monkeypatch.setattr(Method, "new_backbone", lambda method: made.append(method) or make(method))
    monkeypatch.setattr(BoostedNetwork, "__init__", lambda *given: pytest.fail("a past task was built again"))
    forge(bundle, task_sizes=[1, 1] + [0] * 998)
    assert foster.load(bundle, device="cpu").class_names == ("zero", "one")
    assert len(made) == 1


def test_a_bundle_that_claims_more_backbones_than_it_has_is_refused_before_one_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = small_learner("der")
    learner.learn(digits("zero", "one"))
    bundle = learner.save(tmp_path / "v1")
    forge(bundle, task_sizes=[1, 1] + [0] * 998)
    monkeypatch.setattr(Method, "new_backbone", lambda method: pytest.fail("a backbone was made"))
    with pytest.raises(BundleError):
        foster.load(bundle, device="cpu")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_numbers_are_refused(bundle: Path, value: float) -> None:
    weights = safetensors.torch.load_file(bundle / WEIGHTS)
    weights["head.bias"] = torch.full_like(weights["head.bias"], value)
    forge(bundle, {WEIGHTS: safetensors.torch.save(weights)})
    with pytest.raises(BundleError, match="finite"):
        foster.load(bundle, device="cpu")
