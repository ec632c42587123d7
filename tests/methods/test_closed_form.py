"""Closed-form methods: one trained task, then sums; for experiments and for learners."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_course import SEED, SHORT, digits, learn, new_method, task_of, train
from small_learners import digits as labelled_digits
from small_learners import longer_learner, unseen_digits

import foster
from foster.data.images import as_stack
from foster.methods.closed_form import ClosedForm, ClosedFormNetwork
from foster.methods.ridge import RandomFeatureRidge
from foster.methods.slda import StreamingDiscriminants
from foster.networks.statistics import random_weights
from foster.seeding import Address
from foster.settings.methods import RidgeSettings, SldaSettings
from foster.training.phase import Evaluate, Phase

METHODS = {
    "slda": (StreamingDiscriminants, SldaSettings(first=SHORT)),
    "ridge": (RandomFeatureRidge, RidgeSettings(first=SHORT, num_features=64)),
}


def learned(name: str, num_tasks: int) -> ClosedForm:
    kind, settings = METHODS[name]
    method = new_method(kind, settings)
    learn(method, num_tasks)
    assert isinstance(method, ClosedForm)
    return method


@pytest.mark.parametrize("name", METHODS)
def test_only_the_first_task_is_trained_and_the_backbone_stays_as_it_was_then(name: str) -> None:
    kind, settings = METHODS[name]
    method = new_method(kind, settings)
    yielded, backbones = [], []
    for index in range(3):
        task = task_of(method, index)
        parts = []
        for part in method.phases(task):
            parts.append(part)
            if isinstance(part, Phase):
                train(part, task)
        yielded.append([part.variant if isinstance(part, Evaluate) else part.name for part in parts])
        backbones.append(method.network.branches.state_dict())
    assert yielded == [["learn", "trained"], [], []]
    assert all(torch.equal(backbones[0][key], value) for later in backbones for key, value in later.items())
    assert method.memory.num_images == 0
    assert not any(parameter.requires_grad for parameter in method.network.parameters())


def test_the_heads_have_the_numbers_of_their_settings_and_the_seed_of_the_run() -> None:
    slda = new_method(StreamingDiscriminants, SldaSettings(shrinkage=0.3)).new_head(9, [2])
    ridge = new_method(RandomFeatureRidge, RidgeSettings(num_features=64, penalty=7.0)).new_head(9, [2])
    assert (slda.shrinkage, ridge.penalty) == (0.3, 7.0)
    weight, bias = random_weights(9, 64, Address(SEED, "random features"))
    assert torch.equal(ridge.random_weight, weight)
    assert torch.equal(ridge.random_bias, bias)


@pytest.mark.parametrize("name", METHODS)
def test_every_image_and_its_mirror_image_count_once(name: str) -> None:
    method = learned(name, 2)
    network = method.network
    assert isinstance(network, ClosedFormNetwork)
    assert network.feature_size == 4 * {"slda": 32 + 64, "ridge": 16 + 32 + 64}[name], "of the last stages"
    images = [digits()[index].new_images for index in range(2)]
    assert network.head.counts.tolist() == [2 * int(count) for each in images for count in each.class_counts() if count]
    first = method.views(network, images[0])[0].double()  # the features that standardise those of all tasks
    torch.testing.assert_close(network.head.mean, first.mean(0).float())
    is_constant = first.std(0) == 0
    torch.testing.assert_close(network.head.deviation[~is_constant], first.std(0, correction=0)[~is_constant].float())
    flipped = replace(images[0], stack=as_stack(images[0].images.flip(3)))
    (plain, mirrored), (of_flipped, _) = (method.views(network, each)[0].chunk(2) for each in (images[0], flipped))
    torch.testing.assert_close(mirrored, of_flipped)
    assert not torch.equal(plain, mirrored)


def test_without_training_the_backbone_stays_as_the_seed_makes_it() -> None:
    one, two = (new_method(StreamingDiscriminants, SldaSettings(train_backbone=False)) for _ in range(2))
    learn(one, 1)
    learn(two, 2)
    assert two.network.num_classes == 6
    weights = two.network.branches.state_dict()
    assert all(torch.equal(value, weights[key]) for key, value in one.network.branches.state_dict().items())


@pytest.mark.parametrize("name", METHODS)
def test_a_learner_learns_more_classes_more_images_saves_and_loads(name: str, tmp_path: Path) -> None:
    options = {"ridge": {"num_features": 128}} if name == "ridge" else {}
    learner = longer_learner(name, **options)
    learner.learn(labelled_digits("zero", "one", "two"))
    learner.learn(labelled_digits("three", "four"))
    learner.learn(labelled_digits("one", first=40, last=60))
    knowledge = learner.knowledge
    assert knowledge is not None
    assert isinstance(knowledge.network, ClosedFormNetwork)
    counts = knowledge.network.head.counts
    assert counts[1] > counts[0], "more photos of a known class are added"
    learner.save(tmp_path / "bundle")
    images = unseen_digits().of_classes(0, 5)
    found = foster.load(tmp_path / "bundle", device="cpu").predict(images.images)
    assert [each.record() for each in found] == [each.record() for each in learner.predict(images.images)]
    right = [each.label == images.class_names[label] for each, label in zip(found, images.labels, strict=True)]
    assert sum(right) > 0.8 * len(right)
    learner.merge(["zero", "one"], "few")
    assert sorted(learner.class_names) == ["few", "four", "three", "two"]
