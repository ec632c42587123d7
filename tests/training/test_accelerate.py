"""Compiled backbones: switched on for a phase, and gone without a trace after it."""

import copy
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from foster.data.feed import make_feed
from foster.data.images import ImageSet
from foster.kernels import modules, use_kernels
from foster.networks import build_backbone
from foster.networks.boosted import BoostedNetwork
from foster.networks.modules import both, freeze, training_mode
from foster.networks.network import Network
from foster.networks.resnet import cifar_resnet
from foster.seeding import Address
from foster.settings.augmentation import Augmentation
from foster.settings.fit import FitSettings
from foster.training import step as accelerate
from foster.training.engine import Engine
from foster.training.fit import fit
from foster.training.phase import Phase
from foster.training.step import compiled_backbones

if TYPE_CHECKING:  # torch's compiler takes seconds to import: one test here needs it
    from torch._dynamo.testing import CompileCounter

IMAGES = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def without_compiler(monkeypatch: pytest.MonkeyPatch, stand_in: Callable[..., Any]) -> None:
    """Put `stand_in` in place of torch's compiler, which takes seconds to import."""
    monkeypatch.setitem(vars(torch), "_dynamo", SimpleNamespace(config=SimpleNamespace(recompile_limit=8)))
    monkeypatch.setattr(torch, "compile", stand_in)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What was compiled. In place of a compiler, which takes a minute, the functions run as they are."""
    functions: list[Any] = []

    def remember(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        functions.append(function)
        return function

    accelerate._compiled.cache_clear()
    without_compiler(monkeypatch, remember)
    yield functions
    accelerate._compiled.cache_clear()


def replaced(network: nn.Module) -> list[str]:
    """Methods that an instance has of its own, in place of those of its class."""
    return [
        name for module in network.modules() for name in vars(module) if callable(getattr(type(module), name, None))
    ]


def test_backbones_run_compiled_inside_and_as_written_after(compiled: list[Any]) -> None:
    network, teacher = (Network.create(build_backbone("resnet8"), 3).eval() for _ in range(2))
    images = torch.rand(2, 3, 8, 8)
    expected = network(images).logits
    with compiled_backbones((network, teacher), is_wanted=True) as switch:
        assert replaced(network)
        assert replaced(teacher)
        assert torch.equal(network(images).logits, expected)
        switch(False)
        assert not replaced(network)
        assert torch.equal(network(images).logits, expected)
        switch(True)
        assert replaced(network)
    assert compiled
    assert not replaced(network)
    assert not replaced(teacher)
    assert copy.deepcopy(network).state_dict().keys() == network.state_dict().keys()


def test_a_phase_that_fails_leaves_nothing_compiled(compiled: list[Any]) -> None:
    network = Network.create(build_backbone("resnet8"), 3)
    with pytest.raises(RuntimeError, match="in the middle"), compiled_backbones([network], is_wanted=True):
        raise RuntimeError("in the middle")
    assert compiled
    assert not replaced(network)


def test_only_full_batches_run_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Left-over sizes differ from task to task, and so does the size of a phase with less than one batch."""
    sizes: set[int] = set()

    def watched(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        def run(module: nn.Module, maps: torch.Tensor) -> Any:
            sizes.add(len(maps))
            return function(module, maps)

        return run

    accelerate._compiled.cache_clear()
    without_compiler(monkeypatch, watched)
    trained = []
    for count in (21, 5):
        network = Network.create(build_backbone("resnet8"), 2)
        data = ImageSet(torch.zeros(count, 3, 8, 8, dtype=torch.uint8), torch.arange(count) % 2, ("a", "b"))

        def objective(
            images: torch.Tensor, labels: torch.Tensor, network: Network = network
        ) -> dict[str, torch.Tensor]:
            trained.append(len(labels))
            return {"loss": functional.cross_entropy(network(images).logits, labels)}

        phase = Phase("learn", network, objective, FitSettings(epochs=1, learning_rate=0.1), data)
        feed = make_feed(data, Augmentation(), 8, Address(0, "feed"), torch.device("cpu"))
        engine = Engine(torch.device("cpu"), (0.5,) * 3, (0.5,) * 3, compile=True)
        for _ in fit(phase, feed, engine, lambda event: None, task=0):
            pass
    accelerate._compiled.cache_clear()
    assert trained == [8, 8, 5, 5]
    assert sizes == {8}


def test_fused_parts_are_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "is_available", lambda: True)
    monkeypatch.setattr("foster.training.step._compiled", lambda function: function)
    network = Network.create(cifar_resnet(8), 3)
    with compiled_backbones([network], is_wanted=True):
        assert any("forward" in vars(part) for part in network.modules())
    use_kernels(network)
    with compiled_backbones([network], is_wanted=True):
        assert not any("forward" in vars(part) or "stages" in vars(part) for part in network.modules())


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Iterator["CompileCounter"]:
    """Counts what the compiler is given. It traces and guards as always; what it traced then runs uncompiled."""
    from torch._dynamo.testing import CompileCounter

    counter, really_compile = CompileCounter(), torch.compile
    torch._dynamo.reset()
    accelerate._compiled.cache_clear()
    monkeypatch.setattr(
        torch, "compile", lambda function, **options: really_compile(function, backend=counter, **options)
    )
    yield counter
    accelerate._compiled.cache_clear()
    torch._dynamo.reset()


def compilations(counter: "CompileCounter", modules: list[nn.Module], loss: Callable[[], Tensor]) -> int:
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


@pytest.mark.slow
def test_boosting_and_compressing_compile_nothing_after_the_first_time(counter: "CompileCounter") -> None:
    network = Network.create(build_backbone("resnet8"), 2)
    found = [compilations(counter, [network], loss_of(network))]

    def learn_more(old: Network) -> Network:
        boosted = BoostedNetwork(old, 2)
        found.append(compilations(counter, [boosted], loss_of(boosted)))
        student = boosted.compressed()
        freeze(boosted)

        def distance() -> Tensor:
            taught, said = both(boosted, student, IMAGES)
            difference: Tensor = said.logits - taught.logits
            return difference.square().sum()

        found.append(compilations(counter, [student, boosted], distance))
        return student

    for _ in range(3):
        network = learn_more(network)
    assert found == [4, 4, 0, 0, 0, 0, 0]
