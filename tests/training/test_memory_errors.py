"""Memory that is full: one line with the numbers, and what helps."""

from collections.abc import Callable

import pytest
import torch
from tiny_runs import only_line

from foster.errors import DeviceError, FosterError
from foster.training.memory_errors import explained_memory_errors

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")
GENERAL_FAILURE = getattr(torch, "AcceleratorError", RuntimeError)
NUMBERS = "this run needed up to 77.0 GiB, 1.5 of 80.0 GiB are free"


@pytest.fixture
def full_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (3 * 2**29, 80 * 2**30))
    monkeypatch.setattr("torch.cuda.max_memory_allocated", lambda device: 77 * 2**30)


@pytest.mark.usefixtures("full_gpu")
def test_a_full_gpu_gives_one_line_with_the_numbers_and_what_to_lower():
    with pytest.raises(DeviceError) as error, explained_memory_errors(GPU, 512):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of")
    assert only_line(error) == (
        f"out of memory on cuda:0: tried to allocate 2.50 GiB, {NUMBERS}; lower batch_size (now 512), "
        "keep the images off the GPU (engine.resident=off) or use device=cpu"
    )


@pytest.mark.usefixtures("full_gpu")
def test_a_run_on_a_full_gpu_is_told_what_can_still_change_in_the_middle_of_it():
    with pytest.raises(DeviceError) as error, explained_memory_errors(GPU, 512, "foster resume 'my run'"):
        raise torch.OutOfMemoryError("CUDA out of memory.")
    assert only_line(error) == (
        f"out of memory on cuda:0: {NUMBERS}; continue with the images off the GPU: foster resume 'my run' "
        "engine.resident=off, or with device=cpu; a lower batch_size (now 512) needs a new run"
    )


@pytest.mark.usefixtures("full_gpu")
@pytest.mark.parametrize(
    "found",
    [
        GENERAL_FAILURE("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        torch.OutOfMemoryError("Allocation on device 0 would exceed allowed memory"),
    ],
)
def test_a_full_gpu_is_known_by_all_its_names(found: Exception):
    with pytest.raises(DeviceError, match=f"^out of memory on cuda:0: {NUMBERS}; "), explained_memory_errors(GPU, 512):
        raise found


def fail_as_on_arm() -> None:
    raise RuntimeError(
        "[enforce fail at alloc_cpu.cpp:113] data. DefaultCPUAllocator: not enough memory: you tried to allocate "
        "4611686018427387904 bytes."
    )


@pytest.mark.parametrize("device", [CPU, GPU])
@pytest.mark.parametrize("fill", [lambda: torch.empty(2**60), fail_as_on_arm], ids=["here", "on ARM"])
def test_a_full_cpu_gives_one_line_also_where_training_is_on_a_gpu(fill: Callable[[], object], device: torch.device):
    with pytest.raises(DeviceError) as error, explained_memory_errors(device, 512):
        fill()
    assert only_line(error) == (
        "out of memory on cpu: tried to allocate 4611686018427387904 bytes; lower batch_size (now 512)"
    )


def test_other_errors_stay_what_they_are():
    with pytest.raises(RuntimeError, match="illegal memory access") as error, explained_memory_errors(GPU, 2):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    assert not isinstance(error.value, FosterError)
