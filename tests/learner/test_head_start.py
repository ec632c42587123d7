"""A head start is what linear discriminants say of the features, in plain and in boosted networks."""

import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import Tensor, nn

from foster.data.images import ImageSet, Stack, concatenate
from foster.learner.head_start import SHRINKAGE, left_out_scores, linear_discriminants, start_head
from foster.networks import build_backbone
from foster.networks.boosted import BoostedNetwork
from foster.networks.heads import Head
from foster.networks.network import Network, Output


def clusters(num_classes: int = 4, size: int = 6) -> tuple[Tensor, Tensor]:
    chance = torch.Generator().manual_seed(2)
    labels = torch.arange(num_classes).repeat_interleave(25)
    means = 2 * torch.randn(num_classes, size, generator=chance, dtype=torch.float64)
    return means[labels] + torch.randn(len(labels), size, generator=chance, dtype=torch.float64), labels


def infer(network: nn.Module, images: Stack) -> Output:
    with torch.no_grad():
        out = network.eval()(images.tensor.float() / 255)
    return Output(out.logits, out.features)


def pictures(num_classes: int) -> ImageSet:
    labels = torch.arange(num_classes).repeat_interleave(12)
    noise = torch.randint(256, (len(labels), 3, 8, 8), generator=torch.Generator().manual_seed(1))
    bright = (noise // 4 + 45 * labels.view(-1, 1, 1, 1)).clamp_max(255).to(torch.uint8)
    return ImageSet(bright, labels, tuple("abcdefgh"[:num_classes]))


def test_they_decide_as_those_of_scikit_learn() -> None:
    features, labels = clusters()
    weight, bias = linear_discriminants(features, labels, 4)
    reference = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=SHRINKAGE).fit(features.numpy(), labels.numpy())
    found = (features @ weight.T + bias).argmax(1)
    assert (found.numpy() == reference.predict(features.numpy())).mean() > 0.98
    torch.testing.assert_close(weight.sum(0), torch.zeros(6, dtype=torch.float64))


def test_compact_classes_do_not_saturate_the_softmax() -> None:
    features, labels = clusters()
    means = torch.stack([features[labels == k].mean(0) for k in range(4)])
    compact = means[labels] + (features - means[labels]) / 50
    weight, bias = linear_discriminants(compact, labels, 4)
    probability = (compact @ weight.T + bias).softmax(1)
    assert (probability.argmax(1) == labels).all()
    assert probability.amax(1).min() < 0.9999, "something is left to be learned"


def test_photos_that_had_no_part_in_discriminants_say_how_sure_they_may_be() -> None:
    """As each photo is left out in turn, by hand; a class of one photo is not there without it."""
    chance = torch.Generator().manual_seed(3)
    labels = torch.tensor([0] * 20 + [1] * 19 + [2] * 2 + [3])
    features = torch.randn(42, 60, generator=chance, dtype=torch.float64)
    features += 0.3 * torch.randn(4, 60, generator=chance, dtype=torch.float64)[labels]
    features[40] += 30  # far from the only other one of its class
    means = torch.stack([features[labels == k].mean(0) for k in range(4)])
    spread = features - means[labels]
    size = spread.square().mean() * torch.eye(60, dtype=torch.float64)
    precision = ((1 - SHRINKAGE) * spread.T @ spread / 42 + SHRINKAGE * size).inverse()
    scores, are_honest = left_out_scores(features, labels, means, precision)
    assert are_honest.tolist() == [True] * 41 + [False]
    assert scores.isfinite().all()
    for left_out in (0, 20, 40):
        others = torch.arange(42) != left_out
        fewer = torch.stack([features[others & (labels == k)].mean(0) for k in range(4)])
        around = features[others] - fewer[labels[others]]
        inverse = ((1 - SHRINKAGE) * around.T @ around / 42 + SHRINKAGE * size).inverse()
        expected = features[left_out] @ inverse @ fewer.T - (fewer @ inverse * fewer).sum(1) / 2
        torch.testing.assert_close(scores[left_out], expected)


def test_a_plain_network_knows_its_classes_at_once() -> None:
    torch.manual_seed(1)
    network, data = Network.create(build_backbone("resnet8"), 4), pictures(4)
    start_head(network, infer, data)
    assert (infer(network, data.images).logits.argmax(1) == data.labels).float().mean() > 0.9


def test_a_boosted_network_begins_as_the_plain_one_of_all_classes() -> None:
    torch.manual_seed(1)
    old, data = Network.create(build_backbone("resnet8"), 2), pictures(4)
    boosted, plain = BoostedNetwork.expand(old, 2), Network([old.trained_copy(0)], old.head.grown(2))
    start_head(boosted, infer, data)
    start_head(plain, infer, data)
    expected = infer(plain, data.images).logits
    torch.testing.assert_close(infer(boosted, data.images).logits, expected, rtol=1e-3, atol=1e-3)


def test_what_a_boosted_network_keeps_as_it_is_has_no_head_start() -> None:
    old = Network.create(build_backbone("resnet8"), 2)
    boosted = BoostedNetwork.expand(old, 2, "zero", train_old_block=False)
    known = [parameter.detach().clone() for parameter in (boosted.old_block, boosted.old_bias)]
    start_head(boosted, infer, pictures(4))
    assert not boosted.new_on_old.any()
    assert not boosted.new_bias.any()
    assert torch.equal(boosted.old_block, known[0])
    assert torch.equal(boosted.old_bias, known[1])
    assert (boosted.new_block[:2] - boosted.new_block[2:]).abs().max() > 0


def test_a_network_of_two_old_branches_is_left_alone() -> None:
    two = Network([build_backbone("resnet8"), build_backbone("resnet8")], Head(128, 2))
    boosted = BoostedNetwork.expand(two, 2)
    before = boosted.weight.detach().clone()
    start_head(boosted, infer, pictures(4))
    assert torch.equal(boosted.weight, before)


def test_images_without_a_label_take_no_part() -> None:
    torch.manual_seed(1)
    network, data = Network.create(build_backbone("resnet8"), 2), pictures(2)
    start_head(network, infer, data)
    labelled = network.head.state_dict()["weight"].clone()
    others = ImageSet(255 - data.images, torch.full((len(data),), -1), data.class_names)
    start_head(network, infer, concatenate(data, others))
    assert torch.equal(network.head.state_dict()["weight"], labelled)


def test_a_class_without_an_image_leaves_the_head_alone() -> None:
    network, data = Network.create(build_backbone("resnet8"), 3), pictures(2)
    before = network.head.state_dict()["weight"].clone()
    start_head(network, infer, data)
    assert torch.equal(network.head.state_dict()["weight"], before)


@pytest.mark.filterwarnings("error")
def test_classes_of_one_photo_each_have_a_head_start_without_a_word() -> None:
    features = torch.tensor([[1.0, 0.0, 0.2], [0.0, 1.0, 0.1]], dtype=torch.float64)
    weight, bias = linear_discriminants(features, torch.tensor([0, 1]), 2)
    assert (features @ weight.T + bias).argmax(1).tolist() == [0, 1]


@pytest.mark.parametrize("noise", [0.0, 1e-9])
def test_of_one_photo_or_its_copies_a_head_start_is_finite_and_right(noise: float) -> None:
    chance = torch.Generator().manual_seed(5)
    photos = torch.rand(3, 64, generator=chance, dtype=torch.float64).repeat_interleave(1 if not noise else 2, 0)
    photos = photos + noise * torch.rand(photos.shape, generator=chance, dtype=torch.float64)
    labels = torch.arange(3).repeat_interleave(len(photos) // 3)
    weight, bias = linear_discriminants(photos, labels, 3)
    logits = photos.float() @ weight.float().T + bias.float()
    assert logits.abs().max() < 1000
    assert torch.equal(logits.argmax(1), labels)


def test_photos_that_are_all_the_same_have_a_head_that_says_nothing() -> None:
    weight, bias = linear_discriminants(torch.ones(4, 6, dtype=torch.float64), torch.tensor([0, 0, 1, 1]), 2)
    assert not weight.any()
    assert not bias.any()
