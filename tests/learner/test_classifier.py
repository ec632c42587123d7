"""A network that answers: in full precision, in batches, by its head or by the nearest mean."""

import pytest
import torch
from small_learners import digits, small_learner
from torch import Tensor, nn

from foster.bundle.manifest import Preprocessing
from foster.data.photos.decode import Resizing
from foster.learner.classifier import Classifier
from foster.learner.closed_form import frozen_network
from foster.networks.adapted import choose_backbone
from foster.networks.efficientnet_lite import FoldedUnit
from foster.networks.heads import RootHead
from foster.networks.statistics import unit_roots

PREPROCESSING = Preprocessing(height=8, width=8, mean=(0.5,) * 3, std=(0.25,) * 3)  # type: ignore[arg-type]


def test_answers_are_computed_in_full_precision_and_without_a_search_whatever_was_set_before() -> None:
    learner = small_learner()
    learner.learn(digits("zero", "one", last=10))
    classifier = learner.classifier()
    cudnn, seen = torch.backends.cudnn, []
    classifier.network.head.register_forward_hook(lambda *_: seen.append((cudnn.allow_tf32, cudnn.benchmark)))
    images = digits("zero", last=3)[0]
    with cudnn.flags(enabled=True, benchmark=True, allow_tf32=True):
        classifier.probabilities(images)
        classifier.all_scores(images)
        assert (cudnn.allow_tf32, cudnn.benchmark) == (True, True)
    assert seen == [(False, False)] * 2


@pytest.mark.parametrize(("size", "expected"), [((8, 8), [512, 88]), ((224, 224), [5, 4]), ((1500, 1500), [1, 1])])
def test_large_images_are_classified_in_batches_of_a_useful_size(size: tuple[int, int], expected: list[int]) -> None:
    class Noting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.sizes: list[int] = []
            self.head = nn.Identity()

        def features(self, images: Tensor) -> Tensor:
            self.sizes.append(len(images))
            return images[:, :, 0, 0]

    network = Noting()
    classifier = Classifier(network, PREPROCESSING)  # type: ignore[arg-type]
    images = torch.empty(1, 3, *size, dtype=torch.uint8).expand(sum(expected), -1, -1, -1)
    assert classifier.probabilities(images).shape == (sum(expected), 3)
    assert network.sizes == expected


class Corner(nn.Module):
    """Its features, and its logits, are the colour of the first pixel."""

    head = nn.Identity()

    def features(self, images: Tensor) -> Tensor:
        return images[:, :, 0, 0]


def test_logits_are_divided_by_the_temperature() -> None:
    red = torch.tensor([255, 0, 0], dtype=torch.uint8).view(1, 3, 1, 1).expand(1, 3, 2, 2)
    classifier = Classifier(Corner(), PREPROCESSING, temperature=4.0)  # type: ignore[arg-type]
    logits = torch.tensor([[2.0, -2.0, -2.0]])
    torch.testing.assert_close(classifier.features(red), logits)
    torch.testing.assert_close(classifier.probabilities(red), (logits / 4).softmax(1))


class Rooted(Corner):
    head = RootHead.from_values(torch.eye(3), torch.zeros(3))


def test_features_are_described_as_the_head_sees_them() -> None:
    images = torch.arange(4 * 3 * 4, dtype=torch.uint8).view(4, 3, 2, 2) * 5
    for network, seen in ((Corner(), lambda features: features), (Rooted(), unit_roots)):
        classifier = Classifier(network, PREPROCESSING)  # type: ignore[arg-type]
        probability, features = classifier.described(images)
        torch.testing.assert_close(probability, classifier.probabilities(images))
        torch.testing.assert_close(features, seen(classifier.features(images)))


def test_a_pretrained_network_is_folded_for_inference_and_not_for_export() -> None:
    side = Resizing(48, 48)
    network, preprocessing = frozen_network(choose_backbone("efficientnet_lite0", side.size), side)
    random = torch.Generator().manual_seed(0)
    network.head = RootHead.from_values(torch.randn(3, network.feature_size, generator=random), torch.zeros(3))
    classifier = Classifier(network, preprocessing)
    names = list(classifier.state_dict())
    images = torch.randint(256, (5, 3, *side.size), dtype=torch.uint8, generator=random)
    with torch.no_grad():
        expected, features = classifier(images), network.features(classifier.prepared(images))
    torch.testing.assert_close(classifier.probabilities(images), expected, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(classifier.features(images), features, rtol=1e-3, atol=1e-4)
    assert list(classifier.state_dict()) == names
    assert not any(isinstance(module, FoldedUnit) for module in classifier.modules())
