"""A stranger's plug-in: a method, a dataset and a backbone in one file that is no part of the package."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

import foster
from foster import Evaluate, FitSettings, ImageSet, Method, MethodSettings, Phase, Task
from foster.data.sources import Request
from foster.losses import cross_entropy


class SmoothSettings(MethodSettings):
    summary = "replay with smoothed labels"
    first: FitSettings = FitSettings(epochs=2)
    later: FitSettings = FitSettings(epochs=2)
    smoothing: float = 0.1


@foster.register_method("smooth")
class Smooth(Method[SmoothSettings]):
    """Cross-entropy on new images and exemplars, mixed with that of a uniform answer."""

    def phases(self, task: Task) -> Iterator[Phase | Evaluate]:
        first = self.learn(task)
        yield first
        if not task.is_first:
            yield Evaluate("halfway", self.network)
            yield replace(first, name="more")
        self.remember(task)

    def learn(self, task: Task) -> Phase:
        network, smoothing = self.grow(task), self.settings.smoothing

        def objective(images: Tensor, labels: Tensor) -> dict[str, Tensor]:
            logits = network(images).logits
            uniform = -logits.log_softmax(1).mean()
            return {"L_CE": (1 - smoothing) * cross_entropy(logits, labels), "L_uniform": smoothing * uniform}

        schedule = self.settings.first if task.is_first else self.settings.later
        return Phase("learn", network, objective, schedule, task.training)


@foster.register_dataset("stripes", num_classes=4, num_train=48, num_test=16, image_size=8)
def read_stripes(request: Request) -> tuple[ImageSet, ImageSet]:
    """Stripes of four directions."""
    rows, columns = torch.meshgrid(torch.arange(8), torch.arange(8), indexing="ij")
    patterns = torch.stack([rows, columns, rows + columns, rows - columns]).remainder(4).lt(2)

    def draw(per_class: int, seed: int) -> ImageSet:
        noise = torch.randint(0, 90, (4, per_class, 3, 8, 8), generator=torch.Generator().manual_seed(seed))
        images = (patterns[:, None, None] * 160 + noise).flatten(0, 1).to(torch.uint8)
        return ImageSet(images, torch.arange(4).repeat_interleave(per_class), ("rows", "columns", "down", "up"))

    return draw(12, request.seed), draw(4, request.seed + 1)


@foster.register_dataset("uncounted")
def read_uncounted(request: Request) -> tuple[ImageSet, ImageSet]:
    return read_stripes(request)


@foster.register_backbone("pooled")
def pooled() -> nn.Module:
    """A module that knows nothing of foster."""
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(512, 6))
