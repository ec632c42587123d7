"""Memory that is full: one line with torch's numbers, and what helps."""

import pytest
import torch
from tiny_runs import only_line

from foster.errors import DeviceError, FosterError
from foster.training.memory_errors import explained_memory_errors

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")
GENERAL_FAILURE = getattr(torch, "AcceleratorError", RuntimeError)


@pytest.mark.parametrize(
    ("resume", "advice"),
    [("", "batch_size (now 512)"), ("foster resume 'my run'", "foster resume 'my run'")],
)
@pytest.mark.parametrize(
    "found",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of"),
        GENERAL_FAILURE("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    ],
)
def test_a_full_gpu_gives_one_line_with_the_cause_and_what_to_change(found: Exception, resume: str, advice: str):
    with pytest.raises(DeviceError) as error, explained_memory_errors(GPU, 512, resume):
        raise found
    assert only_line(error).startswith("out of memory on cuda:0: " + str(found).splitlines()[0])
    assert all(fact in only_line(error) for fact in ("engine.resident=off", "device=cpu", advice))


ON_ARM = "[enforce fail at alloc_cpu.cpp:113] data. DefaultCPUAllocator: not enough memory: you tried to allocate"


@pytest.mark.parametrize("device", [CPU, GPU])
@pytest.mark.parametrize("found", [MemoryError(), RuntimeError(f"{ON_ARM} 4611686018427387904 bytes.")])
def test_a_full_cpu_is_named_also_where_training_is_on_a_gpu(found: Exception, device: torch.device):
    with pytest.raises(DeviceError) as error, explained_memory_errors(device, 512):
        raise found
    assert only_line(error).startswith("out of memory on cpu: ")
    assert "batch_size (now 512)" in only_line(error)
    assert "resident" not in only_line(error)


def test_other_errors_stay_what_they_are():
    with pytest.raises(RuntimeError, match="illegal memory access") as error, explained_memory_errors(GPU, 2):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    assert not isinstance(error.value, FosterError)
