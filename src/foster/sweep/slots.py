"""Where the runs of a sweep find room: GPUs that several share, or the CPU, and what each run sees of them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from foster.errors import DeviceError
from foster.settings.experiment import Settings
from foster.sweep.grid import PlannedRun
from foster.system.memory import num_cores


@dataclass(frozen=True)
class Slot:
    """A place that one run at a time can have: a share of a GPU, as CUDA_VISIBLE_DEVICES calls it, or of the CPU."""

    gpu: str | None = None
    is_remote: bool = False
    """Whether it is on some machine of a cluster, which then says which GPU it is."""

    @property
    def name(self) -> str:
        if self.is_remote:
            return "cluster"
        return "CPU" if self.gpu is None else f"GPU {self.gpu}"


def find_slots(runs: Sequence[PlannedRun], jobs_per_gpu: int, jobs: int) -> list[Slot]:
    """The places for these runs: `jobs_per_gpu` on each visible GPU, `jobs` on the CPU where runs need it."""
    gpus = visible_gpus()
    wanted = {needs_gpu(run.settings, bool(gpus)) for run in runs}
    if True in wanted and not gpus:
        raise DeviceError("device 'cuda' was asked for, but no GPU is visible to torch; use device=cpu or auto")
    slots = [Slot(gpu) for _ in range(jobs_per_gpu) for gpu in gpus] if True in wanted else []
    return slots + ([Slot()] * jobs if False in wanted else [])


def visible_gpus() -> list[str]:
    """What to set CUDA_VISIBLE_DEVICES to, for each GPU that this process may use."""
    import torch

    num_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = allowed.split(",") if allowed else [str(index) for index in range(num_gpus)]
    return [name.strip() for name in names[:num_gpus]]


def needs_gpu(settings: Settings, has_gpus: bool) -> bool:
    return has_gpus if settings.device == "auto" else settings.device != "cpu"


def environment_for(num_slots: int) -> dict[str, str]:
    """For every run: its share of the CPU's cores, and this very package, wherever it was imported from."""
    environment = dict(os.environ)
    environment.setdefault("OMP_NUM_THREADS", str(max(1, num_cores() // max(1, num_slots))))
    package_folder = str(Path(__file__).parents[2])
    known = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = f"{package_folder}{os.pathsep}{known}" if known else package_folder
    return environment
