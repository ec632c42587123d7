"""Engine: the device and the precision of training and inference."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Literal, cast

import torch
from torch import Tensor, nn

from foster.data.images import Stack
from foster.errors import DeviceError
from foster.networks.modules import Normaliser, evaluating
from foster.networks.network import Output
from foster.settings.engine import device_problem
from foster.system.processes import local_device
from foster.training.distributed import in_shares

INFERENCE_IMAGES = 512
INFERENCE_PIXELS = {"cuda": 2**21, "cpu": 2**18}
"""The most images and pixels of an inference batch: on a GPU 512 images of 32 or 64 pixels a side, or 41 of 224. A
ResNet needs about 16 numbers a pixel at a time, a few hundred megabytes in all. On a CPU, larger batches would spend
more time on memory allocation than on computation."""


def find_device(name: str) -> torch.device:
    """The device by name; `auto` is a GPU if there is one."""
    if wrong := device_problem(name):
        raise DeviceError(f"device: {wrong}")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(local_device(name))
    if device.type == "cuda":
        device = torch.device("cuda", device.index or 0)
        num_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if device.index >= num_gpus:
            raise DeviceError(f"device '{name}': torch sees {num_gpus} GPUs; use device=cpu or auto")
    return device


def inference_batch_size(image_size: tuple[int, int], device: torch.device) -> int:
    """The batch size of inference for images of this height and width."""
    height, width = image_size
    pixels = INFERENCE_PIXELS.get(device.type, INFERENCE_PIXELS["cpu"])
    return max(1, min(INFERENCE_IMAGES, pixels // (height * width)))


def exact_convolutions() -> AbstractContextManager[object]:
    """Convolutions in full float32, without cuDNN's benchmark: batch sizes differ from task to task, and a benchmark
    for each would take longer than the inference itself."""
    return torch.backends.cudnn.flags(
        enabled=True, benchmark=False, deterministic=torch.backends.cudnn.deterministic, allow_tf32=False
    )


def in_batches(
    forward: Callable[[Stack], tuple[Tensor, ...]], images: Stack, device: torch.device
) -> tuple[Tensor, ...]:
    """Apply `forward` to images batch by batch, without gradients and in float32. It computes on `device`."""
    size = inference_batch_size((images.shape[2], images.shape[3]), device)
    images.load()  # all at once, over all cores
    with torch.no_grad(), exact_convolutions():
        parts = [forward(batch) for batch in images.split(size)]
    return tuple(torch.cat(column) for column in zip(*parts, strict=True))


@dataclass(frozen=True)
class Engine:
    """How networks run. `compile`, `capture` and `kernels` switch the accelerators of training; `resident` decides
    whether its images stay on the device."""

    device: torch.device
    mean: tuple[float, ...]
    std: tuple[float, ...]
    dtype: torch.dtype = torch.float32
    compile: bool = False
    capture: bool = False
    kernels: bool = False
    resident: Literal["auto", "on", "off", "disk"] = "auto"
    statistics: Literal["process", "shared"] = "process"
    """Whether each process has its own BatchNorm statistics, or all processes share them."""
    _normaliser: Normaliser = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_normaliser", Normaliser(self.mean, self.std, self.device))

    @property
    def autocast(self) -> AbstractContextManager[object]:
        if self.dtype is torch.float32:
            return nullcontext()
        # A step uses each cast weight once, so autocast's cache would only take memory.
        return torch.autocast(self.device.type, self.dtype, cache_enabled=False)

    def prepare(self, images: Tensor) -> Tensor:
        """Normalise uint8 images `[N, 3, H, W]` on the device, for training; the result is channels last."""
        normalised: Tensor = self._normaliser(images, self.dtype)
        return normalised

    def normalised(self, images: Stack) -> Tensor:
        """Normalise images on any device, for inference: float32, on the device."""
        return cast(Tensor, self._normaliser(images.on_device(self.device)))

    def infer(self, network: nn.Module, images: Stack | Tensor) -> Output:
        """Logits and features of uint8 images on any device, with `network` in eval mode; on the device.

        Always in float32, so that selected exemplars and reported accuracies do not depend on the training precision.
        """

        def forward(batch: Stack) -> Output:
            out = network(self.normalised(batch))
            return Output(out.logits, out.features)

        with evaluating(network):
            return Output(*in_shares(lambda part: in_batches(forward, part, self.device), images, self.device))
