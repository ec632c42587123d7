"""Quarter turns beside the upright images of the first task."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_course import SHORT, learn, new_method, task_of, terms, train
from torch import nn

import foster
from foster.data.images import ImageSet
from foster.errors import SettingsError
from foster.events import Event
from foster.methods.foster import Foster
from foster.methods.quarter_turns import TurnedNetwork, with_turned
from foster.methods.ridge import RandomFeatureRidge
from foster.networks.boosted import BoostedNetwork
from foster.networks.heads import Head
from foster.settings.methods import FosterSettings, RidgeSettings
from foster.training.phase import Evaluate, Phase

SETTINGS = RidgeSettings(first=SHORT, num_features=16)


def test_the_loss_is_small_only_where_both_the_class_and_the_turn_are_recognised() -> None:
    head = Head.from_values(20 * torch.eye(8), torch.zeros(8))
    network = TurnedNetwork(nn.Identity(), head)
    labels, quarters = torch.tensor([0, 1]), torch.tensor([0, 0, 1, 3])
    seen = torch.tensor([0, 4, 1, 7])  # each class has four places, one for each number of quarter turns
    assert network.loss(torch.eye(8)[seen], labels, quarters).item() < 1e-6
    for wrong in (torch.tensor([0, 4, 0, 4]), torch.tensor([0, 4, 5, 3])):
        features = torch.eye(8)[wrong].requires_grad_()
        loss = network.loss(features, labels, quarters)
        assert loss.item() > 5
        assert torch.autograd.grad(loss, features)[0].any(), "the backbone learns by it"


def test_images_are_followed_by_the_same_turned_by_one_two_and_three_quarters_in_rotation() -> None:
    images = torch.arange(5 * 3 * 4 * 4, dtype=torch.float32).view(5, 3, 4, 4)
    seen, quarters = with_turned(images)
    assert quarters.tolist() == [0, 0, 0, 0, 0, 1, 2, 3, 1, 2]
    for image, view, number in zip(images.repeat(2, 1, 1, 1), seen, quarters.tolist(), strict=True):
        torch.testing.assert_close(torch.rot90(view, -number, (1, 2)), image, rtol=0, atol=0)


def test_the_first_task_learns_to_tell_turns_and_the_network_stays_as_large_as_without_them() -> None:
    upright, turned = (
        new_method(RandomFeatureRidge, SETTINGS.model_copy(update={"first_turns": turns}))
        for turns in ("none", "beside")
    )
    task = task_of(turned, 0)
    plain, phase = (next(iter(method.phases(task))) for method in (upright, turned))
    assert isinstance(plain, Phase)
    assert isinstance(phase, Phase)
    before = terms(phase, task)
    assert before["L_CE"] == pytest.approx(terms(plain, task)["L_CE"], rel=1e-4), "classes are learned upright"
    train(phase, task)
    after = terms(phase, task)
    assert set(after) == {"L_CE", "L_turn"}
    assert after["L_turn"] < before["L_turn"]
    assert list(turned.network.state_dict()) == list(upright.network.state_dict())


def test_a_new_branch_learns_turns_while_boosting_and_the_boosted_network_stays_as_large() -> None:
    settings = FosterSettings(first=SHORT, boost=SHORT, compress=SHORT, boost_turns="beside")
    method = new_method(Foster, settings)
    learn(method, 1)
    task = task_of(method, 1)
    phases = method.phases(task)
    phase = next(phases)
    assert isinstance(phase, Phase)
    before = terms(phase, task)
    train(phase, task)
    after = terms(phase, task)
    assert set(after) == {"L_LA", "L_FE", "L_KD", "L_turn"}
    assert after["L_turn"] < before["L_turn"]
    boosted = next(phases)
    assert isinstance(boosted, Evaluate)
    assert isinstance(boosted.network, BoostedNetwork)


def test_turned_images_have_no_part_in_the_other_losses_of_boosting() -> None:
    method = new_method(Foster, FosterSettings(first=SHORT, boost=SHORT, compress=SHORT, boost_turns="beside"))
    learn(method, 1)
    task = task_of(method, 1)
    boosted = method.boosted_network(task)
    turned = method.boost(task, boosted)
    method.settings = method.settings.model_copy(update={"boost_turns": "none"})
    upright = method.boost(task, boosted)
    with_turns, without = terms(turned, task), terms(upright, task)
    assert without == pytest.approx({name: with_turns[name] for name in without}, rel=1e-4)


def test_images_that_are_not_square_are_refused() -> None:
    method = new_method(RandomFeatureRidge, SETTINGS.model_copy(update={"first_turns": "beside"}))
    task = task_of(method, 0)
    wide = ImageSet(torch.zeros(4, 3, 8, 12, dtype=torch.uint8), torch.tensor([0, 0, 1, 1]), task.training.class_names)
    with pytest.raises(SettingsError, match="8 x 12"):
        next(iter(method.phases(replace(task, new_images=wide))))


def test_a_learner_may_ask_for_turns() -> None:
    settings = {"backbone": "resnet8", "image_size": 16, "epochs_scale": 0.001, "memory_total": 8, "device": "cpu"}
    learner = foster.Learner(**settings, foster={"first_turns": "beside", "boost_turns": "beside"})
    images = np.random.default_rng(0).integers(0, 256, (16, 16, 16, 3), dtype=np.uint8)
    told: list[Event] = []  # who listens is told the time that the learn will take
    for known in (0, 2):
        learner.learn(
            [*images[4 * known : 4 * known + 8]], labels=[f"{known}", f"{known + 1}"] * 4, listener=told.append
        )
    assert learner.class_names == ("0", "1", "2", "3")
