"""Build the engine that the settings ask for on this machine, and describe it for `results.json`."""

import os
import platform
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.utils._triton import has_triton

from foster import kernels
from foster.data.photos.store import Place
from foster.errors import DataError, DeviceError, SettingsError, explained
from foster.settings.engine import EngineSettings
from foster.system.files import user_path
from foster.system.processes import process_group
from foster.training.engine import Engine, find_device
from foster.version import __version__, source

PLACES: dict[str, Place] = {"auto": "auto", "on": "device", "off": "host", "disk": "disk"}
"""Where photos of many sizes are kept, for each value of `engine.resident`."""


def engine_settings(asked: EngineSettings, is_builtin: bool) -> EngineSettings:
    """A backbone from outside is compiled, recorded or run with our kernels only on request: compiling and recording
    need a step without Python decisions, and the kernels would replace modules that it may call itself."""
    accelerators = () if is_builtin else ("compile", "capture", "kernels")
    return asked.model_copy(update={name: "off" for name in accelerators if getattr(asked, name) == "auto"})


def place_for_photos(engine: EngineSettings) -> tuple[Place, Path | None]:
    """Where photos of many sizes are to be kept, and the folder of those that are kept on disk."""
    cache = user_path(engine.photo_cache) if engine.photo_cache else None
    if engine.resident == "disk" and cache is None:
        raise SettingsError("engine.resident=disk needs a folder for the decoded photos: set engine.photo_cache=FOLDER")
    if cache is not None:
        with explained(DataError, f"engine.photo_cache: cannot write '{cache}'"):
            cache.mkdir(parents=True, exist_ok=True)
    return PLACES[engine.resident], cache


def build_engine(settings: EngineSettings, device_name: str, mean: tuple[float, ...], std: tuple[float, ...]) -> Engine:
    """The engine on the requested device. An accelerator set to `auto` is used where possible; one that is `on` and
    cannot be used is an error."""
    if settings.deterministic:
        # cuBLAS reads this variable when it is first used.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if settings.deterministic or torch.are_deterministic_algorithms_enabled():
        torch.use_deterministic_algorithms(settings.deterministic)
        # New tensors need no filling: no kernel here reads what it has not written.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    if settings.threads:
        torch.set_num_threads(settings.threads)
    device = find_device(device_name)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.cuda.reset_peak_memory_stats(device)
        torch.backends.cudnn.benchmark = not settings.deterministic
    return planned_engine(settings, device_name, mean, std)


def planned_engine(
    settings: EngineSettings, device_name: str, mean: tuple[float, ...], std: tuple[float, ...]
) -> Engine:
    """The same engine without side effects on the process."""
    device = find_device(device_name)
    on_gpu = device.type == "cuda"
    if settings.statistics == "shared" and not on_gpu and not process_group().is_alone:
        raise DeviceError("engine.statistics=shared needs GPUs; use engine.statistics=process")
    with torch.cuda.device(device) if on_gpu else nullcontext():
        dtype = _precision(settings.precision, on_gpu)
        against = obstacles(settings, on_gpu, dtype)
        for name, obstacle in against.items():
            if getattr(settings, name) == "on" and obstacle:
                raise DeviceError(f"engine.{name}=on cannot be used here: {obstacle}; use engine.{name}=auto")
        used = {name: getattr(settings, name) != "off" and not obstacle for name, obstacle in against.items()}
        resident, statistics = settings.resident, settings.statistics
        return Engine(device, mean, std, dtype, **used, resident=resident, statistics=statistics)


def check_engine(settings: EngineSettings, device_name: str) -> None:
    """Refuse a device or an accelerator that is not there, before any data is read."""
    planned_engine(settings, device_name, (0.0,) * 3, (1.0,) * 3)


def _precision(name: str, on_gpu: bool) -> torch.dtype:
    """`auto` is bfloat16 on a GPU that computes in it, and float32 elsewhere."""
    if name == "auto":
        name = "bfloat16" if on_gpu and torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[name]


def obstacles(settings: EngineSettings, on_gpu: bool, dtype: torch.dtype) -> dict[str, str]:
    """Why each accelerator cannot be used; an empty string where it can."""
    if not on_gpu:
        return dict.fromkeys(("compile", "capture", "kernels"), "it needs a GPU")
    compile_obstacle = "" if has_triton() else "it needs Triton"
    is_sharing = settings.statistics == "shared" and not process_group().is_alone
    if is_sharing:
        compile_obstacle = "it excludes engine.statistics=shared"
    if settings.deterministic:
        # The compiler chooses how to sum by timing, which differs from run to run.
        compile_obstacle = "it excludes engine.deterministic=true"
    kernels_obstacle = "" if kernels.is_available() else "they need Triton and a GPU of compute capability 8.0"
    if is_sharing:
        kernels_obstacle = "they exclude engine.statistics=shared"
    if dtype is not torch.bfloat16:
        kernels_obstacle = "they compute in bfloat16 (engine.precision)"
    return {"compile": compile_obstacle, "capture": "", "kernels": kernels_obstacle}


def describe_environment(engine: Engine) -> dict[str, Any]:
    """Versions, hardware and precision, for `results.json`."""
    on_gpu = engine.device.type == "cuda"
    return {
        "foster": __version__,
        "commit": source().commit,
        "changed": source().is_changed,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
        "device": torch.cuda.get_device_name(engine.device) if on_gpu else "CPU",
        "cpu_threads": torch.get_num_threads(),
        "processes": process_group().size,
        "precision": str(engine.dtype).removeprefix("torch."),
        "compile": engine.compile,
        "capture": engine.capture,
        "kernels": engine.kernels,
        "peak_gpu_bytes": torch.cuda.max_memory_allocated(engine.device) if on_gpu else None,
        "peak_gpu_reserved_bytes": torch.cuda.max_memory_reserved(engine.device) if on_gpu else None,
    }
