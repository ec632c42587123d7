"""The learner on a GPU: what it learns there is saved, loaded and answered as on the CPU."""

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import foster
from foster.data.sources import load as load_dataset
from foster.events import CheckpointWritten, Event, RunResumed
from foster.learner.learner import Learner
from foster.seeding import random_layers
from foster.system.signals import Stopped, StopRequest

DEVICE = "cuda"

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

PLAIN = {"compile": "off", "kernels": "off"}
"""Steps are recorded, but nothing is compiled: that would take longer than all the rest."""
EXACT = {**PLAIN, "precision": "float32"}
DIGITS = load_dataset("digits")
Labelled = tuple[Tensor, list[str]]


def digits(*names: str, first: int = 0, last: int = 40) -> Labelled:
    """Some images of each named digit, with their names."""
    stacks = [DIGITS.train.of_classes(k, k + 1).images[first:last] for k in map(DIGITS.class_names.index, names)]
    return torch.cat(stacks), [name for name, stack in zip(names, stacks, strict=True) for _ in stack]


def small_learner(method: str = "foster", **settings: Any) -> Learner:
    plain = {"backbone": "resnet8", "epochs_scale": 0.03, "memory_total": 80, "device": DEVICE, "engine": PLAIN}
    return foster.Learner(method, **{**plain, **settings})


def weights_on(learner: Learner) -> list[Tensor]:
    """The weights of the backbone, where they are."""
    assert learner.knowledge is not None
    return [value.detach() for value in learner.knowledge.network.branches.parameters()]


def weights_of(learner: Learner) -> Tensor:
    """All weights of the backbone in one float64 vector on the CPU."""
    return torch.cat([value.cpu().double().flatten() for value in weights_on(learner)])


@pytest.fixture
def exact_arithmetic() -> Iterator[None]:
    """float32 means float32, and convolutions sum in the same order every time."""
    cudnn = torch.backends.cudnn
    before = cudnn.allow_tf32, cudnn.deterministic
    cudnn.allow_tf32, cudnn.deterministic = False, True
    yield
    cudnn.allow_tf32, cudnn.deterministic = before


def probabilities(learner: Learner) -> Tensor:
    return learner.classifier().probabilities(DIGITS.test.images)


def assert_answers_are_those_of_the_cpu(bundle: Path, **options: Any) -> None:
    here, there = (foster.load(bundle, device=device, **options) for device in (DEVICE, "cpu"))
    assert here.classifier().device.type == DEVICE
    found = probabilities(here)
    assert torch.isfinite(found).all()
    # After a learn in this process the convolutions may use TF32 and search for algorithms: not in an answer.
    assert float((found - probabilities(there)).abs().max()) < 1e-4
    images = DIGITS.test.images[:20]
    assert [entry.label for entry in here.predict(images)] == [entry.label for entry in there.predict(images)]


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Learner:
    """Four digits, learned in two calls, saved and loaded in between."""
    folder = tmp_path_factory.mktemp("bundles")
    learner = small_learner()
    learner.learn(digits("zero", "one"))
    learner.save(folder / "v1")
    again = foster.load(folder / "v1", device=DEVICE)
    again.configure(engine=PLAIN)
    report = again.learn(digits("two", "three"))
    assert set(report.variants) == {"boosted", "compressed"}
    return again


@pytest.fixture(scope="module")
def bundle(taught: Learner, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return taught.save(tmp_path_factory.mktemp("bundles") / "v2")


def test_what_is_learned_on_a_gpu_is_known_and_answered_alike_everywhere(bundle: Path) -> None:
    learner = foster.load(bundle, device=DEVICE)
    assert learner.class_names == ("zero", "one", "two", "three")
    assert learner.knowledge is not None
    assert learner.knowledge.history[-1]["device"].startswith(DEVICE)
    assert learner.evaluate(*digits(*learner.class_names, first=40, last=100)).accuracy > 60
    assert_answers_are_those_of_the_cpu(bundle)


def test_a_learn_on_the_cpu_goes_on_from_a_bundle_of_a_gpu_and_back(bundle: Path, tmp_path: Path) -> None:
    learner = foster.load(bundle, device="cpu")
    learner.learn(digits("four", last=20), epochs_scale=0.01)
    learner.configure(device=DEVICE, engine=PLAIN)
    learner.learn(digits("five", last=20), epochs_scale=0.01)
    assert learner.class_names[-2:] == ("four", "five")
    assert_answers_are_those_of_the_cpu(learner.save(tmp_path / "v3"))


@pytest.mark.parametrize("method", ["foster", "replay"])
def test_more_images_of_known_classes_alone_are_learned_in_a_recorded_step(method: str) -> None:
    """FOSTER's head then has a part for no new class at all: weights without a single number."""
    learner = small_learner(method)
    learner.learn(digits("zero", "one"))
    report = learner.learn(digits("one", first=40, last=70))
    assert report.new_classes == ()
    assert report.more_of == {"one": 30}
    assert learner.class_names == ("zero", "one")
    assert torch.isfinite(weights_of(learner)).all()
    assert learner.evaluate(*digits("zero", "one", first=70, last=110)).accuracy > 80


def stopping_after(num_checkpoints: int, stop: StopRequest, seen: list[Event]) -> Callable[[Event], None]:
    def listen(event: Event) -> None:
        seen.append(event)
        if sum(isinstance(entry, CheckpointWritten) for entry in seen) == num_checkpoints:
            stop.set()

    return listen


@pytest.mark.usefixtures("exact_arithmetic")
@pytest.mark.parametrize("num_checkpoints", [2, 14], ids=["in the first phase", "in the second"])
def test_an_interrupted_learn_goes_on_in_the_middle_of_a_phase(num_checkpoints: int, tmp_path: Path) -> None:
    settings = {"epochs_scale": 0.02, "batch_size": 40, "learning_rate_scale": 0.3, "checkpoint_minutes": 1e-9}
    whole, new = small_learner(engine=EXACT, **settings), digits("two", last=30)
    whole.learn(digits("zero", "one"))
    before, parted = weights_of(whole), copy.deepcopy(whole)
    whole.learn(new)
    seen: list[Event] = []
    stop = StopRequest()
    with pytest.raises(Stopped):
        parted.learn(new, work_folder=tmp_path, stop=stop, listener=stopping_after(num_checkpoints, stop, seen))
    assert torch.equal(weights_of(parted), before), "a learn that was stopped changes nothing"
    parted.learn(new, work_folder=tmp_path, listener=seen.append)
    (resumed,) = (event for event in seen if isinstance(event, RunResumed))
    assert resumed.phase == ("boost" if num_checkpoints == 2 else "compress")
    # Without the momentum or from a wrong epoch on, more than half of the way would be another.
    movement = weights_of(whole) - before
    assert float((weights_of(parted) - weights_of(whole)).norm() / movement.norm()) < 0.05


class Unusual(nn.Module):
    """Looks at its own numbers in Python, makes tensors on the way and draws at random: a recording would freeze it."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3, padding=1)
        self.dropout = nn.Dropout(0.3)
        self.shift = nn.Parameter(torch.zeros(1, 8, 1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.dropout(self.convolution(images))
        scale = torch.tensor(1.0 if maps.abs().max().item() < 1e6 else 0.0, device=maps.device)
        return scale * maps.relu() + self.shift[0, :, 0]


def test_a_module_that_lives_on_the_gpu_and_cannot_be_recorded_is_a_backbone(tmp_path: Path) -> None:
    module = Unusual().to(DEVICE)
    learner = small_learner(backbone=module, epochs_scale=0.01)
    learner.learn(digits("zero", "one"))
    learner.learn(digits("two", last=20))
    assert module.convolution.weight.device.type == DEVICE, "the given module stays where it is"
    saved = learner.save(tmp_path / "custom")
    assert_answers_are_those_of_the_cpu(saved, backbone=Unusual)


@pytest.mark.usefixtures("exact_arithmetic")
def test_random_layers_on_the_gpu_draw_the_same_in_every_run() -> None:
    found = []
    for num_drawn in (1, 2):
        torch.rand(num_drawn, device=DEVICE)
        learner = small_learner(backbone=Unusual, engine=EXACT, epochs_scale=0.01)
        learner.learn(digits("zero", "one"))
        found.append(weights_of(learner))
    # With other draws it would be about 0.03.
    assert float((found[0] - found[1]).norm() / found[0].norm()) < 1e-3


def test_a_recorded_random_layer_follows_the_seed_that_is_given_before_each_replay() -> None:
    layer, values = nn.Dropout(0.5), torch.ones(256, device=DEVICE)
    graph = torch.cuda.CUDAGraph()
    before = torch.cuda.get_rng_state()
    drawn = []
    with random_layers(torch.device(DEVICE, 0)) as seed:
        layer(values)
        with torch.cuda.graph(graph):
            out = layer(values)
        for number in (7, 8, 7):
            seed(number)
            graph.replay()
            drawn.append(out.clone())
    assert torch.equal(drawn[0], drawn[2])
    assert not torch.equal(drawn[0], drawn[1])
    assert torch.equal(torch.cuda.get_rng_state(), before)


def assert_its_export_answers_alike(learner: Learner, file: Path) -> None:
    report = learner.export(file)
    assert report.num_checked > 0
    assert report.largest_difference < 1e-4


def test_a_network_that_was_just_trained_on_a_gpu_is_exported_and_checked(taught: Learner, tmp_path: Path) -> None:
    assert weights_on(taught)[0].device.type == DEVICE
    assert_its_export_answers_alike(taught, tmp_path / "digits.onnx")


def test_a_learner_with_every_accelerator_learns_as_well(tmp_path: Path) -> None:
    learner = small_learner(engine={}, epochs_scale=0.02)
    learner.learn(digits("zero", "one"))
    learner.learn(digits("two", last=30))
    assert learner.evaluate(*digits("zero", "one", "two", first=40, last=100)).accuracy > 50
    assert_answers_are_those_of_the_cpu(learner.save(tmp_path / "fast"))
    assert_its_export_answers_alike(learner, tmp_path / "fast.onnx")
