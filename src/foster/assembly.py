"""From settings to parts: data, engine and method. Below here, nothing knows the settings of an experiment."""

import os
import platform
from pathlib import Path
from typing import Any

import torch

import foster
from foster.config import EngineSettings, Settings
from foster.data.augmentation import Augmentation
from foster.data.catalogue import SyntheticShape
from foster.data.memory import ExemplarMemory
from foster.data.scenario import Scenario, class_order_from_names, class_order_from_seed
from foster.data.sources import Dataset, load
from foster.data.unlabeled import load_unlabeled
from foster.data.validation import hold_out
from foster.errors import SettingsError, suggestion
from foster.method_settings import FosterSettings
from foster.methods import method_class
from foster.methods.base import Method, Workplace
from foster.networks import BACKBONES
from foster.training.engine import Engine, find_device


def check_parts(settings: Settings) -> None:
    """Refuse a backbone or a device that is not there, before any data is read."""
    if settings.backbone not in BACKBONES:
        hint = suggestion(settings.backbone, BACKBONES)
        raise SettingsError(f"unknown backbone '{settings.backbone}'{hint} (backbone in the settings)")
    find_device(settings.device)


def load_scenario(settings: Settings) -> Scenario:
    """The data of a run, cut into tasks; with a validation share, held-out training images take the tests' place."""
    shape = SyntheticShape(**settings.synthetic.model_dump())
    dataset = load(settings.dataset, _data_dir(settings), settings.seed, shape)
    if settings.validation_share:
        train, test = hold_out(dataset.train, settings.validation_share, settings.seed)
        dataset = Dataset(dataset.name, train, test, dataset.mean, dataset.std)
    return Scenario(dataset, settings.base_classes, settings.increment, _class_order(settings, dataset.class_names))


def _class_order(settings: Settings, class_names: tuple[str, ...]) -> tuple[int, ...]:
    if settings.class_order:
        return class_order_from_names(settings.class_order, class_names)
    seed = settings.seed if settings.order_seed is None else settings.order_seed
    return class_order_from_seed(len(class_names), seed)


def _data_dir(settings: Settings) -> Path | None:
    return Path(settings.data) if settings.data else None


def build_engine(settings: EngineSettings, device_name: str, mean: tuple[float, ...], std: tuple[float, ...]) -> Engine:
    """The engine on the asked-for device; `auto` accelerators are on where there is a GPU."""
    if settings.deterministic:
        # The library reads this when it first meets the GPU.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if settings.deterministic or torch.are_deterministic_algorithms_enabled():
        torch.use_deterministic_algorithms(settings.deterministic)
    if settings.threads:
        torch.set_num_threads(settings.threads)
    device = find_device(device_name)
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.set_device(device)
        torch.backends.cudnn.benchmark = not settings.deterministic
    precision = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    precision["auto"] = torch.bfloat16 if on_gpu else torch.float32

    def is_on(choice: str) -> bool:
        return on_gpu and choice != "off"

    return Engine(
        device=device,
        mean=mean,
        std=std,
        dtype=precision[settings.precision],
        # The compiler may choose how to sum by timing, which differs from run to run.
        compile=is_on(settings.compile) and not settings.deterministic,
        capture=is_on(settings.capture),
        kernels=is_on(settings.kernels),
        resident=settings.resident,
    )


def build_augmentation(settings: Settings) -> Augmentation:
    return Augmentation(**dict(settings.augmentation_settings))


def build_method(settings: Settings, image_size: tuple[int, int], engine: Engine) -> Method[Any]:
    """The chosen method with an empty memory, its schedules scaled by `epochs_scale`."""
    options = settings.options.scaled(settings.epochs_scale)
    unlabeled = None
    if isinstance(options, FosterSettings) and options.unlabeled:
        unlabeled = load_unlabeled(options.unlabeled, image_size, _data_dir(settings))
    total, per_class = settings.memory_total, settings.memory_per_class
    memory = ExemplarMemory(total, per_class) if options.uses_memory else ExemplarMemory()
    workplace = Workplace(settings.backbone, settings.seed, engine.infer, engine.device, settings.selection, unlabeled)
    return method_class(settings.method)(options, memory, workplace)


def describe_environment(engine: Engine) -> dict[str, Any]:
    """What a number was measured with."""
    on_gpu = engine.device.type == "cuda"
    return {
        "foster": foster.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
        "device": torch.cuda.get_device_name(engine.device) if on_gpu else "CPU",
        "cpu_threads": torch.get_num_threads(),
        "precision": str(engine.dtype).removeprefix("torch."),
        "compile": engine.compile,
        "capture": engine.capture,
        "kernels": engine.kernels,
        "peak_gpu_bytes": torch.cuda.max_memory_allocated(engine.device) if on_gpu else None,
    }
