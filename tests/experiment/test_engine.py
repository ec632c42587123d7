"""From settings to an engine: which accelerators are used where, and what is said of those that cannot be."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from foster import kernels
from foster.errors import DataError, DeviceError, SettingsError
from foster.experiment.engine import build_engine, describe_environment, obstacles, place_for_photos
from foster.settings.engine import EngineSettings
from foster.system.processes import ProcessGroup

MEAN_AND_STD = (0.5,) * 3, (0.25,) * 3


@pytest.fixture
def triton_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foster.experiment.engine.has_triton", lambda: True)
    monkeypatch.setattr(kernels, "is_available", lambda: True)


@pytest.fixture
def leaving_no_trace(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    # torch's own function imports its compiler first, which takes seconds.
    monkeypatch.setattr(torch, "use_deterministic_algorithms", torch._C._set_deterministic_algorithms)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("name", ["compile", "capture", "kernels"])
def test_an_accelerator_that_is_wanted_and_cannot_work_is_an_error(name: str) -> None:
    with pytest.raises(DeviceError, match=f"engine.{name}=on .*engine.{name}=auto"):
        build_engine(EngineSettings.model_validate({name: "on"}), "cpu", *MEAN_AND_STD)


@pytest.mark.parametrize("choice", ["auto", "off"])
def test_on_a_cpu_no_accelerator_is_used_and_the_environment_says_so(choice: str) -> None:
    settings = EngineSettings.model_validate(dict.fromkeys(("compile", "capture", "kernels"), choice))
    environment = describe_environment(build_engine(settings, "cpu", *MEAN_AND_STD))
    assert [environment[name] for name in ("compile", "capture", "kernels")] == [False] * 3
    assert environment["precision"] == "float32"


def test_the_environment_tells_how_many_processes_shared_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foster.experiment.engine.process_group", lambda: ProcessGroup(0, 2))
    assert describe_environment(build_engine(EngineSettings(), "cpu", *MEAN_AND_STD))["processes"] == 2


@pytest.mark.usefixtures("triton_is_there")
def test_on_a_gpu_with_triton_nothing_stands_against_them() -> None:
    assert not any(obstacles(EngineSettings(), on_gpu=True, dtype=torch.bfloat16).values())


@pytest.mark.usefixtures("triton_is_there")
def test_in_float32_and_in_deterministic_runs_some_cannot_work() -> None:
    assert "bfloat16" in obstacles(EngineSettings(), on_gpu=True, dtype=torch.float32)["kernels"]
    found = obstacles(EngineSettings(deterministic=True), on_gpu=True, dtype=torch.bfloat16)
    assert "engine.deterministic" in found["compile"]
    assert not found["capture"]
    assert not found["kernels"]


def test_without_triton_a_gpu_still_records_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foster.experiment.engine.has_triton", lambda: False)
    monkeypatch.setattr(kernels, "is_available", lambda: False)
    found = obstacles(EngineSettings(), on_gpu=True, dtype=torch.bfloat16)
    assert "Triton" in found["compile"]
    assert "Triton" in found["kernels"]
    assert not found["capture"]


@pytest.mark.usefixtures("leaving_no_trace")
def test_a_deterministic_run_asks_every_library_for_it_and_the_next_run_does_not() -> None:
    build_engine(EngineSettings(deterministic=True), "cpu", *MEAN_AND_STD)
    assert torch.are_deterministic_algorithms_enabled()
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    build_engine(EngineSettings(), "cpu", *MEAN_AND_STD)
    assert not torch.are_deterministic_algorithms_enabled()


def test_where_photos_are_kept_follows_from_the_settings(tmp_path: Path) -> None:
    cache = tmp_path / "new" / "cache"
    for resident, place in (("auto", "auto"), ("on", "device"), ("off", "host"), ("disk", "disk")):
        assert place_for_photos(EngineSettings(resident=resident, photo_cache=str(cache))) == (place, cache)
    assert cache.is_dir()
    assert place_for_photos(EngineSettings(resident="off")) == ("host", None)
    with pytest.raises(SettingsError, match=r"engine\.resident=disk"):
        place_for_photos(EngineSettings(resident="disk"))
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"engine\.photo_cache"):
        place_for_photos(EngineSettings(photo_cache=str(tmp_path / "file" / "cache")))
