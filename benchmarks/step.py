"""The time of one optimizer step, with each accelerator switched on in turn, and of augmentation and evaluation.

    python benchmarks/step.py                 # on a GPU: ResNet-32, batch 128, 50 old and 10 new classes
    python benchmarks/step.py --out step.json
    python benchmarks/step.py --backbone resnet18 --image-size 224 --batch-size 256 --steps 50 --last 2

On a CPU the same measurements run at a small size.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from foster.data.augmentation.pipeline import Changes
from foster.data.feed import ResidentFeed
from foster.data.herding import herding_by_class
from foster.data.images import ImageSet
from foster.data.memory import ExemplarMemory
from foster.data.task import Task
from foster.methods.base import Context
from foster.methods.foster import Foster
from foster.networks import BACKBONES, build_backbone
from foster.networks.modules import training_mode
from foster.networks.network import Network
from foster.seeding import Address
from foster.settings.augmentation import AUGMENTATIONS, Augmentation
from foster.settings.methods import FosterSettings
from foster.training.engine import Engine
from foster.training.optim import Optimizer
from foster.training.phase import Phase
from foster.training.step import ready_step

MEAN, STD = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)
NUM_KNOWN, NUM_NEW = 50, 10


@dataclass(frozen=True)
class Case:
    """The network, the images and the classes of a measurement."""

    backbone: str = "resnet32"
    image_size: int = 32
    batch_size: int = 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    parser.add_argument("--steps", type=int, help="steps to time")
    parser.add_argument("--backbone", default="resnet32")
    parser.add_argument("--image-size", type=int, help="the images' side")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--last", type=int, default=0, help="measure only this many of the accelerators, from the last")
    arguments = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    size = arguments.image_size or (32 if on_gpu else 8)
    case = Case(arguments.backbone, size, arguments.batch_size)
    num_steps = arguments.steps or (200 if on_gpu else 4)
    numbers: dict[str, object] = {
        "device": torch.cuda.get_device_name() if on_gpu else "CPU",
        "torch": torch.__version__,
        "backbone": case.backbone,
        "image_size": size,
        "batch_size": case.batch_size,
        "steps": {},
    }
    torch.backends.cudnn.benchmark = True
    images = f"batch {case.batch_size}, images {size} x {size}"
    print(f"{numbers['device']}, torch {torch.__version__}, {case.backbone}, {images}")
    print(f"{'accelerators':<34}{'boost ms':>10}{'images/s':>10}{'compress ms':>13}{'images/s':>10}{'record s':>10}")
    for name, engine in list(engines(device).items())[-arguments.last :]:
        boost, compress, seconds = time_steps(engine, case, num_steps)
        thousand = 1e3 * case.batch_size
        numbers["steps"][name] = {"boost_ms": boost, "compress_ms": compress, "record_s": seconds}  # type: ignore[index]
        print(
            f"{name:<34}{boost:>10.3f}{thousand / boost:>10.0f}"
            f"{compress:>13.3f}{thousand / compress:>10.0f}{seconds:>10.1f}"
        )
    numbers |= time_surroundings(list(engines(device).values())[-1], case)
    for name in ("augmentation_ms", "exemplars_ms", "evaluation_ms"):
        print(f"{name:<34}{numbers[name]:>10.2f}")
    if on_gpu:
        # What is reserved, used or not, is what other processes miss.
        allocated, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
        numbers |= {"peak_gpu_bytes": allocated, "peak_reserved_gpu_bytes": reserved}
        print(f"{'peak GPU memory, MB':<34}{allocated / 1e6:>10.0f}")
        print(f"{'peak reserved GPU memory, MB':<34}{reserved / 1e6:>10.0f}")
    if arguments.out:
        arguments.out.write_text(json.dumps(numbers, indent=1) + "\n")


def engines(device: torch.device) -> dict[str, Engine]:
    """Engines by name; each has one more accelerator than the previous one."""
    plain = Engine(device, MEAN, STD)
    if device.type == "cpu":
        return {"float32, as written": plain}
    bf16 = replace(plain, dtype=torch.bfloat16)
    return {
        "float32, as written": plain,
        "+ bfloat16": bf16,
        "+ recorded as a CUDA graph": replace(bf16, capture=True),
        "+ compiled backbones": replace(bf16, capture=True, compile=True),
        "+ our convolution kernels": replace(bf16, capture=True, compile=True, kernels=True),
    }


def time_steps(engine: Engine, case: Case, num_steps: int) -> tuple[float, float, float]:
    """Milliseconds of a boost step and of a compress step, and the seconds that recording both took."""
    timings, recording = {}, 0.0
    for phase in foster_phases(engine, case):
        feed = ResidentFeed(phase.data, Augmentation(), case.batch_size, Address(1, "feed"), engine.device)
        network = phase.network.to(memory_format=torch.channels_last)
        training_mode(network)
        batch = next(iter(feed.batches(0)))
        began = time.monotonic()
        with ready_step(phase, feed, engine, Optimizer(network, phase.fit, engine.device)) as step:
            step(batch)
            wait(engine)
            recording += time.monotonic() - began
            timings[phase.name] = median_ms(partial(step, batch), engine, num_steps)
    return timings["boost"], timings["compress"], recording


def foster_phases(engine: Engine, case: Case) -> Iterator[Phase]:
    """The boost and the compress phase of one FOSTER task on random images."""
    chance = torch.Generator().manual_seed(0)
    size = case.image_size
    most = max(2 * case.batch_size, 7_000 * 32**2 // size**2)
    num_images = min(7_000, most) if engine.device.type == "cuda" else 256
    names = tuple(f"class {k}" for k in range(NUM_KNOWN + NUM_NEW))

    def images(count: int, first: int, last: int) -> ImageSet:
        pixels = torch.randint(256, (count, 3, size, size), dtype=torch.uint8, generator=chance)
        return ImageSet(pixels, torch.randint(first, last, (count,), generator=chance), names)

    exemplars = images(num_images * 2 // 7, 0, NUM_KNOWN)
    task = Task(1, NUM_KNOWN, NUM_NEW, images(num_images * 5 // 7, NUM_KNOWN, NUM_KNOWN + NUM_NEW), exemplars)
    context = Context(BACKBONES[case.backbone], 1, engine.infer, engine.device)
    method = Foster(FosterSettings(), ExemplarMemory(total=2000), context)
    method.network = Network.create(method.new_backbone(), NUM_KNOWN).to(engine.device)
    boosted = method.boosted_network(task)
    yield method.boost(task, boosted)
    yield method.compress(task, boosted, boosted.compressed(), boosted.old)


def time_surroundings(engine: Engine, case: Case) -> dict[str, float]:
    """Augmentation of 7,000 images, exemplars of 10 classes (features and herding), and a pass over 10,000 images."""
    size = case.image_size
    scale = max(1, size**2 // 32**2) if engine.device.type == "cuda" else 20
    images = torch.randint(256, (7_000 // scale, 3, size, size), dtype=torch.uint8, device=engine.device)
    settings = AUGMENTATIONS["auto" if size <= 64 else "photo-auto"]
    chance = torch.Generator().manual_seed(0)
    labels = torch.arange(5_000 // scale) % 10
    network = Network.create(build_backbone(case.backbone), 100).to(engine.device)
    test = torch.randint(256, (10_000 // scale, 3, size, size), dtype=torch.uint8)

    def augment() -> None:
        Changes(settings, images.shape, chance).done_to_all(images)

    def choose_exemplars() -> None:
        features = engine.infer(network, images[: 5_000 // scale]).features
        herding_by_class(features, labels, range(10), 200 // scale)

    return {
        "augmentation_ms": median_ms(augment, engine, 10, is_stream=False),
        "exemplars_ms": median_ms(choose_exemplars, engine, 5, is_stream=False),
        "evaluation_ms": median_ms(lambda: engine.infer(network, test), engine, 3, is_stream=False),
    }


def median_ms(function: Callable[[], object], engine: Engine, count: int, is_stream: bool = True) -> float:
    """Milliseconds of a call: measured over groups of asynchronous calls, or with a wait after each call."""
    group = max(1, count // 5) if is_stream else 1
    function()
    timings = []
    for _ in range(5 if is_stream else count):
        wait(engine)
        began = time.perf_counter()
        for _ in range(group):
            function()
        wait(engine)
        timings.append((time.perf_counter() - began) * 1e3 / group)
    return statistics.median(timings)


def wait(engine: Engine) -> None:
    if engine.device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
