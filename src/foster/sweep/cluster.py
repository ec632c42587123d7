"""A sweep on a Ray cluster: each run is the same process as on one machine.

All machines must see the same folders. The runs of a lost machine continue from their checkpoints on the others.
"""

import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from foster.errors import DeviceError, SettingsError
from foster.sweep.grid import PlannedRun
from foster.sweep.job import LOST, Slot, needed_slots, spawned

LOCAL = "local"


class _Runner:
    """A Ray actor on a machine of the cluster: it runs one process, and passes lines and signals to it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: str) -> None:
        known = {name: value for name, value in os.environ.items() if name.startswith("CUDA")}
        self._process = spawned(command, {**environment, **known}, Path(log))

    def wait(self) -> int:
        return self._process.wait()

    def write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.write(line)

    def signal(self, number: int) -> None:
        self._process.send_signal(number)


class RemoteProcess:
    """A process on a machine of the cluster, with the interface of `subprocess.Popen`."""

    def __init__(self, actor: Any) -> None:
        # There is nothing to close: the process ends with its actor, when no reference to the actor is left.
        self.stdin = SimpleNamespace(write=actor.write.remote, close=lambda: None)
        self._actor = actor
        self._outcome = actor.wait.remote()

    def poll(self) -> int | None:
        ray = _ray()
        ready, _ = ray.wait([self._outcome], timeout=0)
        if not ready:
            return None
        try:
            return int(ray.get(self._outcome))
        except ray.exceptions.RayError:
            return LOST

    def send_signal(self, number: int) -> None:
        self._actor.signal.remote(number)


@dataclass(frozen=True)
class Cluster:
    """Starts processes on the machines of a Ray cluster, each with a share of a GPU or of the cores."""

    jobs_per_gpu: int
    jobs: int

    def slots(self, runs: Sequence[PlannedRun]) -> list[Slot]:
        """The slots for these runs on the machines that are alive."""
        machines = _machines()
        num_gpus = int(sum(machine.get("GPU", 0) for machine in machines))
        on_gpus = [Slot("any", is_remote=True)] * self.jobs_per_gpu * num_gpus
        return needed_slots(runs, on_gpus, [Slot(is_remote=True)] * self.jobs * len(machines))

    def cores(self, is_on_gpu: bool) -> float:
        """The cores of each run: an equal share of a machine, on the machine with the smallest shares."""
        machines = [machine for machine in _machines() if machine.get("CPU") and (machine.get("GPU") or not is_on_gpu)]
        shares = [
            machine["CPU"] / (self.jobs_per_gpu * machine["GPU"] if is_on_gpu else self.jobs) for machine in machines
        ]
        return min(shares, default=1.0)

    def start(self, command: Sequence[str], environment: Mapping[str, str], log: Path, slot: Slot) -> RemoteProcess:
        cores = self.cores(slot.gpu is not None)
        share: dict[str, float] = {"num_cpus": cores if cores < 1 else int(cores)}  # Ray takes whole numbers above 1
        if slot.gpu is not None:
            share = {"num_cpus": 0.0, "num_gpus": 1.0 / self.jobs_per_gpu}
        threads = os.environ.get("OMP_NUM_THREADS", str(max(1, int(cores))))
        runner = _ray().remote(_Runner).options(max_concurrency=3, **share)
        return RemoteProcess(runner.remote(list(command), {**environment, "OMP_NUM_THREADS": threads}, str(log)))


def _machines() -> list[dict[str, float]]:
    """The resources of each machine that is alive."""
    return [node["Resources"] for node in _ray().nodes() if node["Alive"]]


def _ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise SettingsError("--cluster needs Ray: pip install 'foster-cil[cluster]'") from None


@contextmanager
def connected(address: str, jobs_per_gpu: int, jobs: int) -> Iterator[Cluster]:
    """The cluster at `address`, or one on this machine alone for `local`."""
    ray = _ray()
    # Ray knows the address "local". Without it, Ray would connect to a running cluster of another process.
    quiet: dict[str, Any] = {"address": address, "logging_level": "ERROR", "log_to_driver": False}
    if address == LOCAL:
        quiet["include_dashboard"] = False
    try:
        ray.init(**quiet)
    except Exception as error:  # Ray raises Exception itself if a node does not start in time
        raise DeviceError(f"there is no Ray cluster at '{address}': {str(error).splitlines()[0]}") from None
    try:
        yield Cluster(jobs_per_gpu, jobs)
    finally:
        ray.shutdown()
