"""The same numbers in every run, where they are asked for; what cannot give them is named in one line."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

import foster
from foster.errors import SettingsError
from foster.losses import local_similarity
from foster.networks.determinism import explained_indeterminism


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)


class Restless(nn.Module):
    """A backbone with an operation that torch refuses under `use_deterministic_algorithms`."""

    def __init__(self, only_in_training: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, stride=2)
        self.only_in_training = only_in_training

    def forward(self, images: Tensor) -> Tensor:
        if self.training or not self.only_in_training:
            torch.zeros(2).put_(torch.tensor([0]), torch.tensor([1.0]))
        features: Tensor = self.conv(images).flatten(1)
        return features


@pytest.mark.parametrize("only_in_training", [True, False])
def test_a_backbone_that_cannot_be_deterministic_is_refused_with_what_to_do(only_in_training: bool) -> None:
    images, labels = torch.randint(256, (32, 3, 8, 8), dtype=torch.uint8), ["a", "b"] * 16
    options = {"backbone": Restless(only_in_training), "device": "cpu", "epochs_scale": 0.006}
    learner = foster.Learner("replay", **options, engine={"deterministic": True})
    with pytest.raises(SettingsError) as error:
        learner.learn(images, labels)
    assert str(error.value) == (
        "engine.deterministic=true: put_ cannot give the same numbers in every run on this device; "
        "use a backbone without it, or engine.deterministic=false"
    )
    learner.learn(images, labels, engine={"deterministic": False})
    assert learner.class_names == ("a", "b")


def test_the_library_below_is_named_where_it_cannot_be_deterministic() -> None:
    message = (
        "Deterministic behavior was enabled with `torch.use_deterministic_algorithms(True)`, but this operation is not "
        "deterministic because it uses CuBLAS and you have CUDA >= 10.2."
    )
    with pytest.raises(SettingsError, match="a matrix product cannot give"), explained_indeterminism():
        raise RuntimeError(message)


def test_other_errors_of_a_backbone_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="shapes"), explained_indeterminism():
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")


def operations(tensor: Tensor) -> set[str]:
    """The names of all steps of the backward pass."""
    found, waiting = set(), [tensor.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found:
            found.add(node)
            waiting += [function for function, _ in node.next_functions]
    return {node.name() for node in found}


def test_the_loss_of_podnet_has_the_gradients_of_gather_and_scatter_but_neither_of_them() -> None:
    """Their deterministic backward passes may wait for the host, which no recorded step can do."""
    chance = torch.Generator().manual_seed(0)
    logits = torch.randn(16, 7, generator=chance, requires_grad=True)
    labels = torch.randint(7, (16,), generator=chance)
    loss = local_similarity(logits, labels, margin=0.6)
    assert not any(word in name for name in operations(loss) for word in ("Gather", "Scatter", "Index"))
    rivals = logits.scatter(1, labels[:, None], -torch.inf).logsumexp(1)
    expected = torch.relu(rivals - (logits.gather(1, labels[:, None]).squeeze(1) - 0.6)).mean()
    assert torch.equal(loss, expected)
    found, wanted = torch.autograd.grad(loss, logits)[0], torch.autograd.grad(expected, logits)[0]
    assert torch.equal(found, wanted)
