"""A network that answers: in full precision, in batches, by its head or by the nearest mean."""

from pathlib import Path
from typing import Any

import pytest
import torch
from small_learners import digits, longer_learner, small_learner, unseen_digits
from torch import Tensor, nn

import foster
from foster.bundle.manifest import Preprocessing
from foster.errors import DeviceError
from foster.learner.classifier import Classifier

PREPROCESSING = Preprocessing(height=8, width=8, mean=(0.5,) * 3, std=(0.25,) * 3)  # type: ignore[arg-type]
FULL = "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79 GiB"


def test_a_device_that_is_full_in_a_prediction_gives_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = small_learner()
    learner.learn(digits("zero", "one"))

    def full(*arguments: Any) -> Tensor:
        raise torch.OutOfMemoryError(FULL)

    monkeypatch.setattr(Classifier, "_features", full)
    for ask in (learner.predict, lambda images: learner.evaluate(images, ["zero"] * len(images))):
        with pytest.raises(DeviceError) as error:
            ask(digits("zero", last=3)[0])
        assert "out of memory on cpu" in str(error.value)
        assert "20.00 GiB" in str(error.value)


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


def test_a_nearest_mean_method_answers_by_its_exemplars_also_after_loading(tmp_path: Path) -> None:
    learner = longer_learner("icarl")
    learner.learn(digits("zero", "one", "two"))
    images = unseen_digits().images[:20]
    assert learner.classifier().class_means is not None
    again = foster.load(learner.save(tmp_path / "icarl"), device="cpu")
    assert [found.record() for found in again.predict(images)] == [found.record() for found in learner.predict(images)]
