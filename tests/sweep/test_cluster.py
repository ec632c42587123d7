"""A sweep over a Ray cluster on this machine: one node, two of which one is killed, and a stand-in for Ray."""

import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from held import held
from tiny_sweeps import TINY, wait_until

from foster.errors import DeviceError
from foster.experiment.event_log import State
from foster.experiment.folder import RunFolder
from foster.settings.experiment import Settings
from foster.sweep import cluster, run
from foster.sweep.cluster import connected
from foster.sweep.grid import plan_runs
from foster.sweep.job import LOST, Slot, SweptRun, environment_for

needs_ray = pytest.mark.skipif(not find_spec("ray"), reason="ray is not installed")


def check_that_a_process_is_told_lines_and_signals_and_gives_its_exit_code(log: Path, num_machines: int = 1) -> None:
    script = "trap 'echo asked to stop; exit 7' TERM; read line; echo heard $line $MINE; "
    script += "for k in $(seq 500); do sleep 0.02; done"
    with connected("local", 1, 1) as found:
        slot, *others = found.slots(plan_runs("digits", ["device=cpu"]))
        assert len(others) == num_machines - 1
        process = found.start(["/bin/sh", "-c", script], {"MINE": "too"}, log, slot)
        process.stdin.write(b"this\n")  # before it can have started
        wait_until(lambda: log.exists() and "heard this too" in log.read_text())
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: process.poll() is not None)
        assert process.poll() == 7
    assert "asked to stop" in log.read_text()


@pytest.mark.slow
@needs_ray
def test_a_process_on_a_ray_cluster_is_told_lines_and_signals_and_gives_its_exit_code(tmp_path: Path) -> None:
    check_that_a_process_is_told_lines_and_signals_and_gives_its_exit_code(tmp_path / "log")


@pytest.mark.slow
@needs_ray
def test_runs_of_a_lost_node_go_on_at_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.cluster_utils import Cluster

    without = {
        "include_dashboard": False,
        "include_log_monitor": False,
        "no_monitor": True,
    }  # processes that nobody asks
    machines = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, **without})
    second = machines.add_node(num_cpus=1)
    said: list[str] = []
    is_missed = tmp_path / "missed"

    def checkpoints() -> list[Path]:
        return [path for path in tmp_path.glob("sweep/*/events.jsonl") if "CheckpointWritten" in path.read_text()]

    def kill_when_both_train() -> None:
        wait_until(lambda: len(checkpoints()) == 2)
        machines.remove_node(second, allow_graceful=False)
        wait_until(lambda: any("its machine was lost; it continues" in line for line in said))
        is_missed.touch()

    watcher = threading.Thread(target=kill_when_both_train)
    watcher.start()
    # Each run waits after its first checkpoint: the one that is lost for its end, and the other until that is known.
    for name, value in held(Path("events.jsonl"), "CheckpointWritten", is_missed).items():
        monkeypatch.setenv(name, value)
    asked = [*TINY, "method=replay", "seed=1,2", "epochs_scale=0.02", "checkpoint_minutes=0", "backbone=resnet8"]
    runs = plan_runs("digits", asked)
    monkeypatch.setattr(run, "say", said.append)
    try:
        with connected(machines.address, 1, 1) as found:
            assert len(found.slots(runs)) == 2
            run.sweep(runs, tmp_path / "sweep", found.slots(runs), found.start)
    finally:
        watcher.join()
        machines.shutdown()
    folders = [tmp_path / "sweep" / planned.name for planned in runs]
    assert all(RunFolder(folder).is_finished for folder in folders)
    resumed = [folder for folder in folders if "RunResumed" in (folder / "events.jsonl").read_text()]
    assert len(resumed) == 1


class _Lost(Exception):  # noqa: N818 (Ray calls it an error)
    """What Ray raises after a machine was lost."""


class _LocalRay:
    """Ray's part in a sweep, with threads of this process for machines, of which the last one is dead. Another is gone
    when its process exits with 77."""

    exceptions = SimpleNamespace(RayError=_Lost)

    def __init__(self) -> None:
        self.shares: list[dict[str, float]] = []
        self.connections: list[dict[str, Any]] = []
        self.cpus, self.gpus = 1.0, 0.0

    def init(self, **options: Any) -> None:
        self.connections.append(options)

    def shutdown(self) -> None:
        self.connections.clear()

    def nodes(self) -> list[dict[str, Any]]:
        resources = {"CPU": self.cpus, **({"GPU": self.gpus} if self.gpus else {})}
        return [{"Alive": is_alive, "Resources": resources} for is_alive in (True, True, False)]

    def remote(self, kind: type) -> Any:
        return SimpleNamespace(
            options=lambda **options: SimpleNamespace(remote=lambda *given: self._actor(kind(*given), **options))
        )

    def _actor(self, made: Any, max_concurrency: int = 1, **shares: float) -> Any:
        self.shares.append(shares)
        threads = ThreadPoolExecutor(max_concurrency)

        def call(method: Any) -> Any:
            return SimpleNamespace(remote=lambda *given: threads.submit(self._done, method, *given))

        return SimpleNamespace(wait=call(made.wait), write=call(made.write), signal=call(made.signal))

    def _done(self, method: Any, *given: Any) -> Any:
        if (outcome := method(*given)) == 77:
            raise _Lost
        return outcome

    def wait(self, futures: list[Future[Any]], timeout: float) -> tuple[list[Future[Any]], list[Future[Any]]]:
        return [one for one in futures if one.done()], [one for one in futures if not one.done()]

    def get(self, future: Future[Any]) -> Any:
        return future.result()


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> _LocalRay:
    stand_in = _LocalRay()
    monkeypatch.setattr(cluster, "_ray", lambda: stand_in)
    return stand_in


def test_a_process_elsewhere_is_told_lines_and_signals_and_gives_its_exit_code(
    local: _LocalRay, tmp_path: Path
) -> None:
    check_that_a_process_is_told_lines_and_signals_and_gives_its_exit_code(tmp_path / "log", num_machines=2)


def test_every_living_machine_has_its_places_and_a_process_its_share(local: _LocalRay, tmp_path: Path) -> None:
    with connected("local", jobs_per_gpu=2, jobs=4) as found:
        anywhere, on_gpus = plan_runs("digits", ["seed=1,2"]), plan_runs("digits", ["device=cuda"])
        assert found.slots(anywhere) == [Slot(is_remote=True)] * 8
        with pytest.raises(DeviceError, match="device=cpu"):
            found.slots(on_gpus)
        local.gpus = 3.0
        assert found.slots(anywhere) == found.slots(on_gpus) == [Slot("any", is_remote=True)] * 12
        started = [
            found.start(["/bin/true"], {}, tmp_path / "log", slot) for slot in (Slot(is_remote=True), Slot("any"))
        ]
        wait_until(lambda: all(process.poll() == 0 for process in started))
    assert local.shares == [{"num_cpus": 0.25}, {"num_cpus": 0.0, "num_gpus": 0.5}]


@pytest.mark.parametrize(("slot", "num_threads"), [(Slot(is_remote=True), "6"), (Slot("any", is_remote=True), "4")])
def test_runs_that_share_a_machine_of_a_cluster_share_its_cores(
    slot: Slot, num_threads: str, local: _LocalRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    local.cpus, local.gpus, log = 25.0, 2.0, tmp_path / "log"
    with connected("local", jobs_per_gpu=3, jobs=4) as found:
        process = found.start(["/bin/sh", "-c", "echo $OMP_NUM_THREADS"], environment_for(8), log, slot)
        wait_until(lambda: process.poll() == 0)
    assert log.read_text().split() == [num_threads]


def test_a_run_whose_machine_is_gone_is_started_again_and_the_others_are_not(
    stand_in: Callable[[str], None],
    local: _LocalRay,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    stand_in(f'echo started $*; case "$*" in *-s1,*) mkdir {tmp_path}/was-lost && exit 77;; esac; exit 0')
    runs = plan_runs("digits", ["seed=1,2", "device=cpu"])
    run.sweep(runs, Path("out"), [Slot(is_remote=True)] * 2, cluster.Cluster(1, 2).start, after_run=lambda: None)
    said = capsys.readouterr()
    assert f"{runs[0].name}: its machine was lost" in said.err
    assert "2 runs: 2 finished" in said.out
    logs = [(tmp_path / "out" / f"{planned.name}.log").read_text() for planned in runs]
    assert [log.count("started") for log in logs] == [2, 1]
    assert f"--out {tmp_path}" in logs[0], "another machine has another current folder"


def test_a_run_whose_machine_is_gone_after_ctrl_c_has_not_saved(tmp_path: Path) -> None:
    lost = SweptRun(tmp_path / "a", settings=Settings.model_construct())
    lost.state, lost.message = lost.ended(LOST, was_stopped=True)
    assert (lost.state, lost.message) == (State.KILLED, "its machine was lost")


@pytest.mark.parametrize("error", [ConnectionError, Exception])
def test_a_cluster_that_is_not_there_is_one_clear_line(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    class Absent:
        @staticmethod
        def init(**options: Any) -> None:
            raise error("Could not find any running Ray instance\nmore words")

    monkeypatch.setattr(cluster, "_ray", lambda: Absent)
    expected = r"there is no Ray cluster at '10\.0\.0\.1:6379': Could not find any running Ray instance$"
    with pytest.raises(DeviceError, match=expected), connected("10.0.0.1:6379", 1, 1):
        pass
