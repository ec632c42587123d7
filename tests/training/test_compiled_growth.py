"""Networks that grow with the tasks, and how often torch really compiles on the way; no stand-in for the compiler."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter

from foster.networks import build_backbone
from foster.networks.boosted import BoostedNetwork
from foster.networks.freezing import freeze, training_mode
from foster.networks.network import Network
from foster.system.streams import beside
from foster.training import accelerate
from foster.training.accelerate import compiled_backbones

IMAGES = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Iterator[CompileCounter]:
    """Counts what the compiler is given. It traces and guards as always; what it traced then runs uncompiled."""
    counter, really_compile = CompileCounter(), torch.compile
    torch._dynamo.reset()
    accelerate._compiled.cache_clear()
    monkeypatch.setattr(
        torch, "compile", lambda function, **options: really_compile(function, backend=counter, **options)
    )
    yield counter
    accelerate._compiled.cache_clear()
    torch._dynamo.reset()


def compilations(counter: CompileCounter, modules: list[nn.Module], loss: Callable[[], Tensor]) -> int:
    """How many parts are compiled in a phase of two steps on `modules`."""
    before = counter.frame_count
    for module in modules:
        training_mode(module)
    with compiled_backbones(modules, is_wanted=True):
        for _ in range(2):
            loss().backward()
    return int(counter.frame_count) - before


def loss_of(network: nn.Module) -> Callable[[], Tensor]:
    def loss() -> Tensor:
        logits: Tensor = network(IMAGES).logits
        return logits.sum()

    return loss


def test_a_network_that_grows_by_a_branch_a_task_compiles_nothing_after_the_second(counter: CompileCounter) -> None:
    network = Network.create(build_backbone("resnet8"), 2)
    found = []
    for _ in range(6):
        found.append(compilations(counter, [network], loss_of(network)))
        network = network.with_new_branch(2)
    # The stem and the three kinds of block: being trained, and in the second task frozen as well.
    assert found == [4, 4, 0, 0, 0, 0]


def test_boosting_and_compressing_compile_nothing_after_the_first_time(counter: CompileCounter) -> None:
    network = Network.create(build_backbone("resnet8"), 2)
    found = [compilations(counter, [network], loss_of(network))]

    def learn_more(old: Network) -> Network:
        boosted = BoostedNetwork.expand(old, 2)
        found.append(compilations(counter, [boosted], loss_of(boosted)))
        student = boosted.compressed()
        freeze(boosted)

        def distance() -> Tensor:
            taught, said = beside(lambda: boosted(IMAGES), lambda: student(IMAGES))
            difference: Tensor = said.logits - taught.logits
            return difference.square().sum()

        found.append(compilations(counter, [student, boosted], distance))
        return student

    for _ in range(3):
        network = learn_more(network)
    assert found == [4, 4, 0, 0, 0, 0, 0]
