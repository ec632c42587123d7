"""How the training step is made fast."""

import re
from typing import Literal

from pydantic import Field

from foster.errors import short
from foster.settings.fit import Frozen

Choice = Literal["auto", "on", "off"]


class EngineSettings(Frozen):
    """How the training step is made fast. `auto` uses each accelerator if it can work; `on` is an error if it
    cannot."""

    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """The number format of convolutions and activations in training; auto is bfloat16 on a GPU that supports it."""
    compile: Choice = "auto"
    """Compile blocks for which there are no kernels of ours (torch.compile)."""
    capture: Choice = "auto"
    """Record the whole step as one CUDA graph."""
    kernels: Choice = "auto"
    """Use our own kernels for the blocks of narrow networks."""
    resident: Literal["auto", "on", "off", "disk"] = "auto"
    """on: all training images stay on the device; off: in the host's memory, copied some batches at a time; disk:
    photos of many sizes in `photo_cache`."""
    photo_cache: str = ""
    """A folder for the pixels of photos that are kept on disk."""
    statistics: Literal["process", "shared"] = "process"
    """With several processes (torchrun): BatchNorm over the images of each process, or of all."""
    deterministic: bool = False
    """The same numbers in every run on the same GPU, at some cost; on a CPU they are the same anyway."""
    threads: int = Field(default=0, ge=0, le=1024)
    """CPU threads; 0 leaves the choice to torch."""


def device_problem(name: str) -> str | None:
    """Why this is not the name of a device; None if it is one."""
    is_one = re.fullmatch(r"auto|cpu|cuda(:\d+)?", name)
    return None if is_one else f"choose from auto, cpu, cuda or cuda:N, not {short(name)}"
