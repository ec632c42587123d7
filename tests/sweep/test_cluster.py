"""A sweep over a Ray cluster of two nodes on this machine, one of which is killed in the middle."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from held import held
from tiny_sweeps import TINY

from foster.errors import DeviceError
from foster.experiment.folder import RunFolder
from foster.sweep import cluster, run
from foster.sweep.cluster import connected
from foster.sweep.grid import plan_runs

ray = pytest.importorskip("ray")


def test_runs_of_a_lost_node_go_on_at_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.cluster_utils import Cluster

    machines = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    second = machines.add_node(num_cpus=1)
    is_killed = tmp_path / "killed"

    def kill_when_both_train() -> None:
        ends = time.monotonic() + 120
        while time.monotonic() < ends:
            begun = [path for path in tmp_path.glob("sweep/*/events.jsonl") if "CheckpointWritten" in path.read_text()]
            if len(begun) == 2:
                machines.remove_node(second, allow_graceful=False)
                is_killed.touch()
                return
            time.sleep(0.05)

    watcher = threading.Thread(target=kill_when_both_train)
    watcher.start()
    # Each run waits after its first checkpoint until the node is killed: neither can be too fast.
    for name, value in held(Path("events.jsonl"), "CheckpointWritten", is_killed).items():
        monkeypatch.setenv(name, value)
    asked = [*TINY, "method=replay", "seed=1,2", "epochs_scale=0.02", "checkpoint_minutes=0", "backbone=resnet8"]
    runs = plan_runs("digits", asked)
    said: list[str] = []
    monkeypatch.setattr(run, "display_for", lambda: _Display(said))
    try:
        with connected(machines.address, 1, 1) as found:
            assert len(found.slots(wants_gpu=False)) == 2
            run.sweep(runs, tmp_path / "sweep", found.slots(wants_gpu=False), found)
    finally:
        watcher.join()
        machines.shutdown()
    assert is_killed.exists()
    assert any("its machine is gone; it goes on" in line for line in said)
    assert all(RunFolder(tmp_path / "sweep" / planned.name).is_finished for planned in runs)


class _Display:
    """What is said, in a list."""

    def __init__(self, said: list[str]) -> None:
        self._said = said

    def __enter__(self) -> "_Display":
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing is left to do."""

    def say(self, line: str) -> None:
        self._said.append(line)

    def show(self, statuses: Any) -> None:
        """The table is not looked at here."""


def test_a_cluster_that_is_not_there_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Absent:
        @staticmethod
        def is_initialized() -> bool:
            return False

        @staticmethod
        def init(**options: Any) -> None:
            raise ConnectionError("Could not find any running Ray instance\nmore words")

    monkeypatch.setattr(cluster, "_ray", lambda: Absent)
    expected = r"there is no Ray cluster at '10\.0\.0\.1:6379': Could not find any running Ray instance$"
    with pytest.raises(DeviceError, match=expected), connected("10.0.0.1:6379", 1, 1):
        pass
