"""The training loop on small data: what it logs, what it leaves alone, and how it stops."""

import copy
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from foster.data.feed import ResidentFeed
from foster.data.images import ImageSet
from foster.errors import TrainingError
from foster.events import EpochEnded, Event
from foster.networks import build_backbone
from foster.networks.modules import freeze
from foster.networks.network import Network
from foster.seeding import Address, initialisation
from foster.settings.augmentation import Augmentation
from foster.settings.fit import FitSettings
from foster.training.engine import Engine
from foster.training.fit import EpochLog, FitState, fit
from foster.training.phase import Objective, Phase

CPU = torch.device("cpu")
ENGINE = Engine(CPU, mean=(0.5,) * 3, std=(0.25,) * 3)


def images(count: int = 21) -> ImageSet:
    chance = torch.Generator().manual_seed(1)
    pixels = torch.randint(256, (count, 3, 8, 8), dtype=torch.uint8, generator=chance)
    return ImageSet(pixels, torch.arange(count) % 3, ("a", "b", "c"))


def small_network() -> Network:
    with initialisation(Address(1, "network")):
        return Network.create(build_backbone("resnet8"), 3)


def cross_entropy_of(network: nn.Module) -> Objective:
    return lambda batch, labels: {"L_CE": functional.cross_entropy(network(batch).logits, labels)}


@dataclass
class Log:
    """Everything that was told, and the parts of it that are epochs."""

    events: list[Event] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    @property
    def epochs(self) -> list[EpochEnded]:
        return [event for event in self.events if isinstance(event, EpochEnded)]


def train(
    network: nn.Module,
    objective: Objective,
    settings: FitSettings,
    data: ImageSet | None = None,
    batch_size: int = 8,
) -> Log:
    """A whole phase."""
    phase = Phase("learn", network, objective, settings, data or images())
    feed = ResidentFeed(phase.data, Augmentation(), batch_size, Address(1, "feed", 4, "learn"), CPU)
    log = Log()
    for _ in fit(phase, feed, ENGINE, log, task=4):
        pass
    return log


def copied(state: FitState) -> FitState:
    """A state of its own: the training goes on with the tensors of the given one."""
    return copy.deepcopy(state)


class OneNumber(nn.Module):
    """A network of a single weight, so that losses and updates can be worked out by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))


def test_each_loss_term_is_logged_by_name_as_the_mean_over_images() -> None:
    network = OneNumber()
    weight = network.weight

    def objective(batch: Tensor, labels: Tensor) -> dict[str, Tensor]:
        return {"L_ONE": labels.double().mean() + 0 * weight, "L_TWO": 10 + 0 * weight}

    log = train(network, objective, FitSettings(epochs=2, learning_rate=0.1))
    for event in log.epochs:
        # Batches of 8, 8 and 5: the mean over 21 images, not over batches.
        assert event.losses["L_ONE"] == pytest.approx(images().labels.double().mean().item(), rel=1e-6)
        assert event.losses["L_TWO"] == pytest.approx(10)
        assert event.losses["total"] == pytest.approx(event.losses["L_ONE"] + 10, rel=1e-6)
        assert list(event.losses) == ["L_ONE", "L_TWO", "total"]
    assert [(event.task, event.phase, event.epoch, event.epochs) for event in log.epochs] == [
        (4, "learn", 0, 2),
        (4, "learn", 1, 2),
    ]


def test_training_equals_a_plain_loop() -> None:
    settings = FitSettings(epochs=2, learning_rate=0.05, weight_decay=1e-3)
    network = small_network()
    reference = copy.deepcopy(network)
    log = train(network.eval(), cross_entropy_of(network), settings)

    optimizer = torch.optim.SGD(reference.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    feed = ResidentFeed(images(), Augmentation(), 8, Address(1, "feed", 4, "learn"), CPU)
    reference.train()
    totals = []
    for epoch, rate in enumerate((0.05, 0.025)):
        optimizer.param_groups[0]["lr"] = rate
        total = 0.0
        for batch in feed.batches(epoch):
            optimizer.zero_grad()
            normalised = (batch.images.float() / 255 - 0.5) / 0.25
            loss = functional.cross_entropy(reference(normalised).logits, batch.labels)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch.labels)
        totals.append(total / len(images()))
    assert [event.losses["L_CE"] for event in log.epochs] == pytest.approx(totals, rel=1e-4)
    assert [event.learning_rate for event in log.epochs] == pytest.approx([0.05, 0.025])
    for name, value in reference.state_dict().items():
        torch.testing.assert_close(network.state_dict()[name], value, rtol=1e-3, atol=1e-5)


def test_frozen_parts_stay_bit_identical_with_their_statistics() -> None:
    network = small_network()
    freeze(network.branches)
    before = copy.deepcopy(network.state_dict())
    train(network.train(), cross_entropy_of(network), FitSettings(epochs=2, learning_rate=0.5))
    for name, value in network.state_dict().items():
        is_same = torch.equal(value, before[name])
        assert is_same == name.startswith("branches"), name
    assert network.head.training
    assert not network.branches.training


def test_a_last_step_that_ruins_the_weights_is_noticed_though_its_loss_was_finite() -> None:
    network = OneNumber()
    with pytest.raises(TrainingError, match=r"weights .* task 5, phase learn, epoch 1"):
        # One batch; the gradient of sqrt at 0 is infinite.
        train(network, lambda batch, labels: {"L": network.weight.sqrt()}, FitSettings(epochs=1), batch_size=32)


class Dropping(OneNumber):
    """Notes what its dropout makes of 64 ones."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)
        self.masks: list[tuple[float, ...]] = []

    def forward(self, batch: Tensor) -> Tensor:
        self.masks.append(tuple(self.dropout(torch.ones(64)).tolist()))
        return self.weight


def test_random_layers_draw_anew_in_every_step_of_every_epoch() -> None:
    network = Dropping()
    train(network, lambda batch, labels: {"L": network(batch)}, FitSettings(epochs=2), images(24))
    assert len(network.masks) == 2 * 3
    assert len(set(network.masks)) == 2 * 3
    for number, mask in enumerate(network.masks):
        epoch, step = divmod(number, 3)
        torch.manual_seed(
            Address(1, "layers", 4, "learn", epoch).number() + step + 1
        )  # what interrupted phases rely on
        assert tuple(nn.Dropout(0.5)(torch.ones(64)).tolist()) == mask


ADAM = FitSettings(epochs=2, learning_rate=0.01, optimizer="adamw", head_rate=2, warmup_epochs=1)


@pytest.mark.parametrize("settings", [FitSettings(epochs=2, learning_rate=0.1), ADAM], ids=["sgd", "adamw"])
def test_training_from_any_step_on_equals_training_without_a_break(settings: FitSettings) -> None:
    """Where layers draw at random, and whatever was drawn before."""

    def run(start: FitState | None) -> tuple[Network, Log, list[FitState]]:
        network, log = small_network(), Log()
        network.branches[0].get_submodule("stem").append(nn.Dropout(0.5))  # type: ignore[operator]
        torch.rand(3)
        phase = Phase("learn", network, cross_entropy_of(network), settings, images())
        feed = ResidentFeed(phase.data, Augmentation(crop_padding=1), 8, Address(1, "feed"), CPU)
        return network, log, [copied(point.state()) for point in fit(phase, feed, ENGINE, log, task=0, start=start)]

    whole, whole_log, states = run(None)
    assert [(state.epoch, state.step) for state in states] == [(0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    for number, state in enumerate(states, start=1):
        network, log, later = run(state)
        for name, value in whole.state_dict().items():
            assert torch.equal(network.state_dict()[name], value), name
        assert log.epochs[-1].losses == pytest.approx(whole_log.epochs[-1].losses, rel=1e-12)
        for found, expected in zip(later, states[number:], strict=True):
            assert found.loss_sums == pytest.approx(expected.loss_sums, rel=1e-12)


def test_the_time_left_is_that_of_usual_epochs_and_less_by_what_has_passed_since(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[Event] = []
    network = OneNumber()
    phase = Phase("learn", network, lambda batch, labels: {}, FitSettings(epochs=3), images())
    clock = iter([0.0, 10.0, 12.0, 12.0, 14.0, 14.0, 16.0])  # read when made, at each close, at each report
    monkeypatch.setattr("foster.training.fit.time", SimpleNamespace(monotonic=lambda: next(clock)))
    log = EpochLog(phase, 21, told.append, task=0)
    for epoch in range(3):
        log.close(epoch, 0.1, ("L",), torch.tensor([1.0]))
    log.flush()
    ended = [event for event in told if isinstance(event, EpochEnded)]
    assert [event.seconds for event in ended] == [10, 2, 2]
    # After the first: two of 10 s, of which 2 s have passed. After the second: one of 2 s, which has passed.
    assert [event.seconds_left for event in ended] == [18, 0, 0]
