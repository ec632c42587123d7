"""The accelerated training step: recorded and compiled, it does what the plain one does, and the host never waits."""

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from foster.data.feed import Batch, Feed, make_feed
from foster.data.images import ImageSet
from foster.data.memory import ExemplarMemory
from foster.data.task import Task
from foster.events import EpochEnded, Event
from foster.kernels import is_available
from foster.losses import cross_entropy
from foster.methods.base import Context
from foster.methods.coil import Coil
from foster.methods.foster import Foster
from foster.methods.podnet import Podnet
from foster.methods.replay import Replay
from foster.networks import BACKBONES
from foster.networks.modules import channels_last, freeze
from foster.seeding import Address
from foster.settings.augmentation import Augmentation
from foster.settings.fit import FitSettings
from foster.settings.methods import CoilSettings, FosterSettings, PodnetSettings, ReplaySettings
from foster.training.engine import Engine
from foster.training.fit import fit
from foster.training.optim import Optimizer
from foster.training.phase import Phase, takes_batch
from foster.training.step import gradients, ready_step

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
FIT = FitSettings(epochs=2, learning_rate=0.02)
BATCH_SIZE = 20
PHASES = ["boost", "compress", "student", "replay", "coil", "podnet", "adam", "batch", "sharp", "penalty"]
STUDENT = {"compress_cutmix": 0.5, "compress_old_weight": 1.0}
"""A student with all that may be asked of one; its teacher has several branches."""


@pytest.fixture(autouse=True)
def exact_arithmetic(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """float32 means float32, and the same convolution algorithms every time; the first network teaches the student."""
    monkeypatch.setattr("foster.settings.methods.FEW_NEW", 10)
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic
    matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic = False, False, True
    yield
    matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic = before


def engine_with(
    dtype: torch.dtype = torch.float32, *, compiled: bool = False, captured: bool = False, kernels: bool = False
) -> Engine:
    return Engine(DEVICE, (0.5,) * 3, (0.25,) * 3, dtype, compile=compiled, capture=captured, kernels=kernels)


def images(first: int, last: int, names: tuple[str, ...]) -> ImageSet:
    """Twenty noisy images of each class from `first` to `last`."""
    chance = torch.Generator().manual_seed(first)
    patterns = torch.rand(last - first, 1, 3, 16, 16, generator=chance)
    noise = torch.rand(last - first, 20, 3, 16, 16, generator=chance)
    pixels = (255 * (0.6 * patterns + 0.4 * noise)).to(torch.uint8).flatten(0, 1)
    return ImageSet(pixels, torch.arange(first, last).repeat_interleave(20), names)


def make_phase(name: str) -> Phase:
    """A phase of the second task: the same network and data whenever it is asked for."""
    context = Context(BACKBONES["resnet8"], 3, engine_with().infer, DEVICE)
    for_cosines = replace(context, backbone=BACKBONES["cosine_resnet8"])
    memory = ExemplarMemory(per_class=5)
    chosen = FosterSettings(first=FIT, boost=FIT, compress=FIT, **STUDENT if name == "student" else {})
    foster = Foster(chosen, memory, context)
    others: dict[str, Any] = {
        "replay": Replay(ReplaySettings(first=FIT, later=FIT), memory, context),
        "coil": Coil(CoilSettings(first=FIT, later=FIT), memory, for_cosines),
        "podnet": Podnet(PodnetSettings(first=FIT, later=FIT), memory, for_cosines),
    }
    variants = {"adam": with_adam, "batch": of_batch, "sharp": sharpness_aware, "penalty": with_penalty}
    method = others["replay"] if name in variants else others.get(name, foster)
    first = Task(0, 0, 2, images(0, 2, ("a", "b")))
    method.learn_first(first)
    method.remember(first)
    if name == "student":
        foster.first = freeze(copy.deepcopy(foster.network))
    names = ("a", "b", "c", "d")
    second = Task(1, 2, 2, images(2, 4, names), memory.exemplars(names))
    if method is not foster:
        phase: Phase = next(iter(method.phases(second)))
        return variants[name](phase) if name in variants else phase
    boosted = foster.boosted_network(second)
    if name == "boost":
        return foster.boost(second, boosted)
    others = [foster.boosted_network(second, 2)] if name == "student" else []
    teacher = foster.after_boost(second, [boosted, *others])
    with foster.initialising(second, "student"):
        student = boosted.compressed()
    return foster.compress(second, teacher, student, boosted.old)


def with_adam(phase: Phase) -> Phase:
    return replace(phase, fit=FIT.model_copy(update={"optimizer": "adam", "learning_rate": 1e-3, "head_rate": 2.0}))


def of_batch(phase: Phase) -> Phase:
    """All that a batch may hold, and a teacher that follows after every step."""
    network, teacher = phase.network, freeze(copy.deepcopy(phase.network))
    weights = torch.linspace(0.5, 1.5, len(phase.data), device=DEVICE)

    def objective(batch: Batch) -> dict[str, Tensor]:
        assert batch.replay is not None
        one, other = batch.views
        logits = network(one).logits
        losses = functional.cross_entropy(logits, batch.labels, reduction="none")
        return {
            "L_CE": (weights[batch.index] * torch.where(batch.exemplar, 2.0, 1.0) * losses).mean(),
            "L_agree": (logits.softmax(1) - teacher(other).logits.softmax(1)).square().mean(),
            "L_replay": cross_entropy(network(batch.replay.images).logits, batch.replay.labels),
        }

    def after_step() -> None:
        for mean, now in zip(teacher.state_dict().values(), network.state_dict().values(), strict=True):
            mean.lerp_(now, 0.1) if mean.is_floating_point() else mean.copy_(now)

    of_memory = phase.data.select(phase.data.beside["exemplar"])
    more = {"teachers": (teacher,), "after_step": after_step, "num_views": 2, "replay": of_memory}
    return replace(phase, objective=objective, **more)  # type: ignore[arg-type]


def sharpness_aware(phase: Phase) -> Phase:
    """An objective that computes with gradients, as docs/examples/sam.py."""
    network = phase.network

    def objective(images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        weights = dict(network.named_parameters())
        slopes = gradients(cross_entropy(network(images).logits, labels), weights.values())
        length = torch.stack([slope.norm() for slope in slopes]).norm()
        uphill = {key: weights[key] + 0.05 / length * slope for key, slope in zip(weights, slopes, strict=True)}
        statistics = {key: buffer.clone() for key, buffer in network.named_buffers()}
        return {"L_SAM": cross_entropy(functional_call(network, {**uphill, **statistics}, (images,)).logits, labels)}

    return replace(phase, objective=objective)


def with_penalty(phase: Phase) -> Phase:
    """An objective that computes with weights outside of the network, as docs/examples/ewc.py."""
    network = phase.network

    def objective(images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        size = torch.stack([weight.square().sum() for weight in network.parameters()]).sum()
        return {"L_CE": cross_entropy(network(images).logits, labels), "L_2": 1e-3 * size}

    return replace(phase, objective=objective)


def feed_of(phase: Phase, batch_size: int = BATCH_SIZE) -> Feed:
    """50 images: two full batches and one of ten images."""
    wanted = (phase.num_views, takes_batch(phase.objective), phase.replay)
    return make_feed(phase.data, Augmentation(crop_padding=1), batch_size, Address(3, "feed"), DEVICE, "on", *wanted)


def flat(network: nn.Module) -> dict[str, Tensor]:
    """All weights in one float64 vector, and all BatchNorm statistics in another."""
    statistics = [tensor for tensor in network.buffers() if tensor.is_floating_point()]
    groups: dict[str, list[Tensor]] = {"weights": list(network.parameters()), "statistics": statistics}
    return {name: torch.cat([value.detach().double().flatten() for value in group]) for name, group in groups.items()}


def difference(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """How much two pairs of vectors differ, as a share of their size; the worse of the two."""
    return max(float((found[name] - expected[name]).norm() / expected[name].norm()) for name in expected)


class Trained:
    """What a phase became under an engine: how far its weights moved, and the losses of each epoch."""

    def __init__(self, name: str, engine: Engine, batch_size: int = BATCH_SIZE) -> None:
        phase = make_phase(name)
        before = flat(phase.network)
        self.losses: list[dict[str, float]] = []
        for _ in fit(phase, feed_of(phase, batch_size), engine, self._listen, task=1):
            pass
        self.movement = {name: after - before[name] for name, after in flat(phase.network).items()}

    def _listen(self, event: Event) -> None:
        if isinstance(event, EpochEnded):
            self.losses.append(event.losses)

    def distance(self, other: "Trained") -> float:
        """How much the movements differ, as a share of their size."""
        return difference(self.movement, other.movement)


@pytest.mark.parametrize("name", PHASES)
def test_a_recorded_step_equals_the_plain_one(name: str) -> None:
    """Over two epochs with an incomplete last batch, momentum, a falling rate and BatchNorm statistics."""
    plain, recorded = Trained(name, engine_with()), Trained(name, engine_with(captured=True))
    assert recorded.distance(plain) < 1e-2
    assert len(recorded.losses) == len(plain.losses) == 2
    for found, expected in zip(recorded.losses, plain.losses, strict=True):
        assert found == pytest.approx(expected, rel=1e-3)


@pytest.mark.skipif(not is_available(), reason="the kernels cannot run here")
@pytest.mark.parametrize("name", PHASES)
def test_with_kernels_a_recorded_step_equals_the_plain_one_bit_for_bit(name: str) -> None:
    """As runs are by default; the frozen branch or the teacher runs beside the trained network while recorded."""
    plain = Trained(name, engine_with(torch.bfloat16, kernels=True))
    recorded = Trained(name, engine_with(torch.bfloat16, kernels=True, captured=True))
    assert recorded.losses == plain.losses
    for group, movement in plain.movement.items():
        assert torch.equal(recorded.movement[group], movement), group


def test_recordings_of_phases_that_are_over_keep_no_memory() -> None:
    reserved = []
    for _ in range(4):
        Trained("boost", engine_with(torch.bfloat16, captured=True))
        reserved.append(torch.cuda.memory_reserved(DEVICE))
    assert reserved[-1] == reserved[1]


@pytest.mark.parametrize("name", PHASES)
def test_recording_leaves_everything_as_it_was(name: str) -> None:
    phase = make_phase(name)
    tensors = phase.network.state_dict() | phase.teacher_tensors()
    before = {key: value.clone() for key, value in tensors.items()}
    optimizer = Optimizer(phase.network, phase.fit, DEVICE)
    with ready_step(phase, feed_of(phase), engine_with(captured=True), optimizer) as step:
        for key, value in tensors.items():
            assert torch.equal(value, before[key]), key
        assert not step.loss_sums.any()
    assert not any(momentum.any() for momentum in optimizer.tensors().values())


@pytest.mark.parametrize(
    "kernels", [False, pytest.param(True, marks=pytest.mark.skipif(not is_available(), reason="none"))]
)
@pytest.mark.parametrize("name", PHASES)
def test_the_host_never_waits_for_a_recorded_step(name: str, kernels: bool) -> None:
    phase = make_phase(name)
    optimizer = Optimizer(channels_last(phase.network), phase.fit, DEVICE)
    feed = feed_of(phase)
    if phase.on_epoch is not None:
        phase.on_epoch(0)
    with ready_step(phase, feed, engine_with(torch.bfloat16, captured=True, kernels=kernels), optimizer) as step:
        list(feed.batches(0))
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            batches = list(feed.batches(1))
            for batch in batches:
                step(batch)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert [len(batch.labels) for batch in batches] == [20, 20, 10]
    assert torch.isfinite(step.loss_sums).all()
    named = dict(zip(step.term_names, step.loss_sums.tolist(), strict=True))
    assert all(loss > 0 for name, loss in named.items() if name != "L_RT"), named  # which has no weight at first


def test_a_recorded_training_goes_on_from_the_middle_of_an_epoch() -> None:
    phase = make_phase("boost")
    points = fit(phase, feed_of(phase), engine_with(captured=True), lambda event: None, task=1)
    states = [copy.deepcopy(point.state()) for point in points]
    state = states[4]  # after steps 1 and 2, the epoch's end, and steps 1 and 2 of the next
    assert (state.epoch, state.step) == (1, 2)
    again = make_phase("boost")
    for _ in fit(again, feed_of(again), engine_with(captured=True), lambda event: None, task=1, start=state):
        pass
    assert difference(flat(again.network), flat(phase.network)) < 1e-4


def test_a_compiled_step_equals_the_plain_one() -> None:
    plain = Trained("boost", engine_with())
    compiled = Trained("boost", engine_with(compiled=True, captured=True))
    assert compiled.distance(plain) < 2e-2
    for found, expected in zip(compiled.losses, plain.losses, strict=True):
        assert found == pytest.approx(expected, rel=5e-3)


def test_in_bfloat16_a_compiled_step_is_as_near_to_float32_as_the_plain_one() -> None:
    """Two steps of all images: longer trainings drift apart by rounding alone."""
    exact = Trained("boost", engine_with(), batch_size=64)
    plain = Trained("boost", engine_with(torch.bfloat16), batch_size=64)
    compiled = Trained("boost", engine_with(torch.bfloat16, compiled=True, captured=True), batch_size=64)
    assert plain.distance(exact) < 0.2
    assert compiled.distance(exact) < 1.5 * plain.distance(exact) + 0.02
    assert compiled.losses[0] == pytest.approx(exact.losses[0], rel=2e-2)
