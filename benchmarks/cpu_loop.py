"""The training loop of the engine against a plain PyTorch loop on the CPU; both are timed alternately in one run.

    python benchmarks/cpu_loop.py
    python benchmarks/cpu_loop.py --image-size 32 --batch-size 32 --threads 2 --out cpu.json

Both train a replay phase of ResNet-32 from the same weights, without augmentation. The engine's time includes all of
`fit`: optimizer, shuffling, steps, loss sums, and the checks for finite numbers.
"""

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from foster.data.feed import ResidentFeed
from foster.data.images import ImageSet
from foster.data.memory import ExemplarMemory
from foster.data.task import Task
from foster.methods.base import Context
from foster.methods.replay import Replay
from foster.networks import BACKBONES
from foster.networks.network import Network
from foster.seeding import Address, initialisation
from foster.settings.augmentation import Augmentation
from foster.settings.fit import FitSettings
from foster.settings.methods import ReplaySettings
from foster.training.engine import Engine
from foster.training.fit import fit
from foster.training.phase import Phase

MEAN, STD = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)
NUM_KNOWN, NUM_NEW = 10, 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--image-size", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--steps", type=int, default=4, help="full batches of an epoch; half a batch follows them")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7, help="how often each loop is timed")
    parser.add_argument("--backbone", default="resnet32")
    parser.add_argument("--threads", type=int, help="CPU threads; by default as many as torch takes")
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    engine = Engine(torch.device("cpu"), MEAN, STD)
    num_images = given.steps * given.batch_size + given.batch_size // 2
    phase = replay_phase(engine, given.backbone, num_images, given.image_size, given.epochs)
    loops: dict[str, Callable[[Phase, int], None]] = {"plain": plain_loop, "engine": engine_loop}
    timings: dict[str, list[float]] = {name: [] for name in loops}
    for is_warm in [False, *[True] * given.rounds]:
        for name, loop in loops.items():
            copied = with_copied_network(phase)
            began = time.perf_counter()
            loop(copied, given.batch_size)
            if is_warm:
                timings[name].append(time.perf_counter() - began)
    num_steps = given.epochs * (given.steps + 1)
    milliseconds = {name: statistics.median(found) * 1e3 / num_steps for name, found in timings.items()}
    # Neighbours in time saw the same load of the machine, so that their ratio is steadier than either.
    pairs = zip(timings["engine"], timings["plain"], strict=True)
    ratio = statistics.median(ours / plain for ours, plain in pairs)
    numbers = {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "backbone": given.backbone,
        "image_size": given.image_size,
        "batch_size": given.batch_size,
        "ms_a_step": milliseconds,
        "engine_over_plain": ratio,
    }
    print(
        f"{given.backbone}, batch {given.batch_size}, images {given.image_size} x {given.image_size}, "
        f"{numbers['threads']} threads, torch {torch.__version__}, medians of {given.rounds} rounds: "
        + ", ".join(f"{name} {value:.2f} ms a step" for name, value in milliseconds.items())
        + f", engine / plain {ratio:.3f}"
    )
    if given.out:
        given.out.write_text(json.dumps(numbers, indent=1) + "\n")


def replay_phase(engine: Engine, backbone: str, num_images: int, image_size: int, epochs: int) -> Phase:
    """The second task of replay on random images."""
    chance = torch.Generator().manual_seed(0)
    names = tuple(f"class {k}" for k in range(NUM_KNOWN + NUM_NEW))

    def images(count: int, first: int, last: int) -> ImageSet:
        pixels = torch.randint(256, (count, 3, image_size, image_size), dtype=torch.uint8, generator=chance)
        return ImageSet(pixels, torch.randint(first, last, (count,), generator=chance), names)

    num_exemplars = num_images // 4
    task = Task(
        1,
        NUM_KNOWN,
        NUM_NEW,
        images(num_images - num_exemplars, NUM_KNOWN, NUM_KNOWN + NUM_NEW),
        images(num_exemplars, 0, NUM_KNOWN),
    )
    context = Context(BACKBONES[backbone], 1, engine.infer, engine.device)
    method = Replay(ReplaySettings(), ExemplarMemory(total=200), context)
    with initialisation(Address(1, "benchmark")):
        method.network = Network.create(method.new_backbone(), NUM_KNOWN)
        phase = method.learn(task)
    return replace(phase, fit=FitSettings(epochs=epochs, learning_rate=0.01))


def with_copied_network(phase: Phase) -> Phase:
    """The phase with a copy of its network, in contiguous layout."""
    network = copy.deepcopy(phase.network)

    def objective(images: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"L_CE": cross_entropy(network(images).logits, labels)}

    return replace(phase, network=network, objective=objective)


def engine_loop(phase: Phase, batch_size: int) -> None:
    engine = Engine(torch.device("cpu"), MEAN, STD)
    feed = ResidentFeed(phase.data, Augmentation(), batch_size, Address(1, "feed"), engine.device)
    for _ in fit(phase, feed, engine, lambda event: None, task=1):
        pass


def plain_loop(phase: Phase, batch_size: int) -> None:
    """The plain loop: index a batch, normalise, forward, backward, step."""
    settings, network = phase.fit, phase.network.train()
    optimizer = torch.optim.SGD(
        network.parameters(), settings.learning_rate, settings.momentum, weight_decay=settings.weight_decay
    )
    images, labels = phase.data.images, phase.data.labels
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (MEAN, STD))
    for _ in range(settings.epochs):
        total = 0.0
        for batch in torch.randperm(len(labels)).split(batch_size):
            pixels = (images[batch].float() / 255 - mean) / std
            loss = cross_entropy(network(pixels).logits, labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()


if __name__ == "__main__":
    main()
