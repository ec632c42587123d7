"""Closed-form heads: what they compute, how they grow and are loaded, and the features that they see."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from foster.evaluation.gradcam import grad_cam
from foster.methods.closed_form import ClosedFormNetwork, averages
from foster.networks import build_backbone
from foster.networks.closed_form import ClosedFormHead, DiscriminantHead, RidgeHead
from foster.networks.statistics import Statistics, discriminants
from foster.seeding import Address

ADDRESS = Address(3, "random features")
KINDS = {
    "slda": lambda in_features, num_classes: DiscriminantHead(in_features, num_classes, 0.2),
    "ridge": lambda in_features, num_classes: RidgeHead(in_features, num_classes, 40, 2.0, ADDRESS),
}


def labelled() -> tuple[Tensor, Tensor]:
    """Features `[60, 6]` around the centres of four classes, and labels."""
    source = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 4
    centres = 5 * torch.randn(4, 6, generator=source) + 3
    return centres[labels] + torch.randn(60, 6, generator=source), labels


def test_the_solutions_are_those_of_standardised_and_of_random_features() -> None:
    features, labels = labelled()
    standardised = (features - features.mean(0)) / features.std(0, correction=0)
    slda = KINDS["slda"](6, 4).standardised_by(features).with_images(features, labels)
    weight, bias = discriminants(Statistics.empty(4, 6).added(standardised, labels), 0.2)
    assert_close(slda(features), (standardised.double() @ weight.T + bias).float(), rtol=1e-4, atol=1e-4)
    ridge = KINDS["ridge"](6, 4).standardised_by(features).with_images(features, labels)
    hidden = (standardised @ ridge.random_weight + ridge.random_bias).relu().double()
    regularised = hidden.T @ hidden + 2.0 * torch.eye(hidden.shape[1])
    weight = torch.linalg.solve(regularised, hidden.T @ torch.eye(4).double()[labels])
    assert_close(ridge(features), (hidden @ weight).float(), rtol=1e-4, atol=1e-4)
    for head in (slda, ridge):
        assert (head(features).argmax(1) == labels).all()


@pytest.mark.parametrize("kind", KINDS)
def test_tasks_one_after_the_other_give_the_head_of_all_images_at_once(kind: str) -> None:
    features, labels = labelled()
    start = KINDS[kind](6, 2).standardised_by(features)
    known = labels < 2
    first = start.with_images(features[known], labels[known])
    assert_close(first.grown(2)(features), torch.nn.functional.pad(first(features), (0, 2)))
    second = first.grown(2).with_images(features[~known], labels[~known])
    whole = start.grown(2).with_images(features, labels)
    assert_close(second(features), whole(features), rtol=1e-4, atol=1e-5)
    assert (first.num_classes, second.num_classes) == (2, 4)
    assert first.statistics.num_images == int(known.sum()), "a head that has grown leaves the one before as it was"


@pytest.mark.parametrize("kind", KINDS)
def test_merged_classes_have_the_head_that_they_would_have_had(kind: str) -> None:
    features, labels = labelled()
    start = KINDS[kind](6, 4).standardised_by(features)
    merged = start.with_images(features, labels).regrouped([[3], [0, 1], [2]])
    names = torch.tensor([1, 1, 2, 0])
    expected = KINDS[kind](6, 3).standardised_by(features).with_images(features, names[labels])
    assert_close(merged(features), expected(features), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_frame_takes_its_sizes_from_the_state_but_for_the_number_of_classes(kind: str) -> None:
    features, labels = labelled()
    head = KINDS[kind](6, 4).standardised_by(features).with_images(features, labels)
    frame = KINDS[kind](0, 4)
    frame.load_state_dict(head.state_dict())
    assert torch.equal(frame(features), head(features))
    assert frame.statistics.num_bytes == head.statistics.num_bytes
    with pytest.raises(RuntimeError, match="size mismatch"):
        KINDS[kind](0, 3).load_state_dict(head.state_dict())


def test_a_network_shows_its_head_the_grid_of_its_last_stages_maps() -> None:
    backbone, images = build_backbone("resnet8").eval(), torch.randn(2, 3, 16, 16)
    network = ClosedFormNetwork([backbone], ClosedFormHead(0, 0, 0), num_stages=2, grid=2)
    features = network.features(images)
    assert features.shape == (2, 4 * (32 + 64))
    middle, last = backbone.stages(images)[1:]
    assert_close(features[:, 0], middle[:, 0, :4, :4].mean((1, 2)))
    assert_close(features[:, -1], last[:, -1, 2:, 2:].mean((1, 2)))
    assert_close(averages(last, 1), backbone(images))
    assert averages(last[:, :, :1, :1], 2).shape == (2, 64), "a map of one pixel has one part"
    head = DiscriminantHead(384, 2, 0.2).standardised_by(features).with_images(features, torch.arange(2))
    heat = grad_cam(network.with_head(head), images, torch.tensor([0, 1]))
    assert heat.shape == (2, 16, 16)
    assert heat.max() == 1, "Grad-CAM explains such a network, too"
    merged = network.with_head(head).regrouped([[1, 0]])
    assert merged.num_classes == 1
    assert torch.equal(merged.features(images), features)
