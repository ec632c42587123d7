"""Quarter turns beside the upright images of the first task."""

import torch
from small_course import SHORT, new_method, task_of, terms, train

from foster.methods.quarter_turns import quarter_turned
from foster.methods.ridge import RandomFeatureRidge
from foster.settings.methods import RidgeSettings
from foster.training.phase import Phase

SETTINGS = RidgeSettings(first=SHORT, num_features=16)


def test_images_are_turned_by_one_two_and_three_quarters_in_rotation() -> None:
    images = torch.arange(5 * 3 * 4 * 4, dtype=torch.float32).view(5, 3, 4, 4)
    turned, quarters = quarter_turned(images)
    assert quarters.tolist() == [1, 2, 3, 1, 2]
    for image, seen, number in zip(images, turned, quarters.tolist(), strict=True):
        torch.testing.assert_close(torch.rot90(seen, -number, (1, 2)), image, rtol=0, atol=0)
    assert (turned != images).flatten(1).any(1).all()


def test_the_first_task_learns_to_tell_turns_and_the_network_stays_as_large_as_without_them() -> None:
    upright, turned = (
        new_method(RandomFeatureRidge, SETTINGS.model_copy(update={"first_turns": turns}))
        for turns in ("none", "beside")
    )
    task = task_of(turned, 0)
    next(iter(upright.phases(task)))
    phase = next(iter(turned.phases(task)))
    assert isinstance(phase, Phase)
    before = terms(phase, task)
    train(phase, task)
    after = terms(phase, task)
    assert set(after) == {"L_CE", "L_turn"}
    assert after["L_turn"] < before["L_turn"]
    assert list(turned.network.state_dict()) == list(upright.network.state_dict())
