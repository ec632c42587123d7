"""Build data, engine and method from settings. Modules below this one do not know the settings of an experiment."""

import os
import platform
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.utils._triton import has_triton

from foster import kernels
from foster.data.download import Follower
from foster.data.images import ImageSet
from foster.data.memory import ExemplarMemory
from foster.data.photos.store import PhotoLoader, Place
from foster.data.scenario import Scenario, class_order_from_names, class_order_from_seed, hold_out
from foster.data.sources import Dataset, arrivals, counted, load, load_unlabeled, task_counts
from foster.errors import DataError, DeviceError, SettingsError, explained
from foster.methods import method_class
from foster.methods.base import Context, Method
from foster.networks.adapted import BackboneChoice, choose_backbone
from foster.settings.datasets import DatasetFacts
from foster.settings.engine import EngineSettings
from foster.settings.experiment import Settings
from foster.settings.plugins import Kind, plugin_hashes
from foster.system.files import user_path
from foster.system.processes import process_group
from foster.training.engine import Engine, find_device
from foster.version import __version__, source

PLACES: dict[str, Place] = {"auto": "auto", "on": "device", "off": "host", "disk": "disk"}
"""Where photos of many sizes are kept, for each value of `engine.resident`."""


def check_parts(settings: Settings) -> BackboneChoice:
    """The chosen backbone. A missing or broken backbone, device or accelerator is refused before any data is read."""
    check_engine(settings.engine, settings.device)
    choice = chosen_backbone(settings)
    choice.make()
    return choice


def surveyed_facts(settings: Settings) -> DatasetFacts:
    """All facts of the run's dataset; its files are inspected for facts that the settings do not give."""
    facts = settings.facts
    if not facts.is_complete or (settings.tasks == "given" and not facts.tasks):
        facts = counted(facts, settings.data_asked)
    check_fits(settings, facts)
    return facts


def check_fits(settings: Settings, facts: DatasetFacts) -> None:
    """Refuse settings that do not fit a dataset with these facts."""
    if problem := settings.problem(facts):
        raise SettingsError(f"{problem} (dataset {settings.dataset})")
    if settings.class_order and facts.class_names:
        class_order_from_names(settings.class_order, facts.class_names)


def image_side(settings: Settings) -> int:
    """The side of the images in pixels; the files are inspected where the settings do not give it."""
    return settings.facts.image_size or surveyed_facts(settings).image_size


def check_named(settings: Settings) -> None:
    """Refuse a backbone or weights that are not there; nothing is downloaded, and no image read."""
    chosen_backbone(settings, is_trained=not settings.weights).make()


def chosen_backbone(settings: Settings, is_trained: bool = False) -> BackboneChoice:
    """The backbone of a run in the form that its method needs; `is_trained` skips pretrained weights."""
    name = method_class(settings.method).backbone_name(settings.backbone)
    side = image_side(settings)
    return choose_backbone(name, (side, side), settings.weights, is_trained)


def engine_settings(asked: EngineSettings, is_builtin: bool) -> EngineSettings:
    """A backbone from outside is compiled, recorded or run with our kernels only on request: compiling and recording
    need a step without Python decisions, and the kernels would replace modules that it may call itself."""
    accelerators = () if is_builtin else ("compile", "capture", "kernels")
    return asked.model_copy(update={name: "off" for name in accelerators if getattr(asked, name) == "auto"})


def load_scenario(settings: Settings, follower: Follower | None = None) -> Scenario:
    """The data of a run as a scenario. With a validation share, held-out training images replace the test images.

    `follower` is told the progress of a download.
    """
    dataset = load(settings.dataset, settings.data_asked, follower, build_loader(settings, follower))
    side, tasks, is_given = dataset.train.image_size[1], task_counts(dataset.train), settings.tasks == "given"
    facts = replace(settings.facts, num_classes=len(dataset.class_names), image_size=side, tasks=tasks)
    check_fits(settings, facts)
    if settings.validation_share:
        train, test = hold_out(dataset.train, settings.validation_share, settings.seed, is_given)
        dataset = Dataset(dataset.name, train, test, dataset.mean, dataset.std)
    if is_given:
        order, _ = arrivals(dataset.train)
    elif settings.class_order:
        order = class_order_from_names(settings.class_order, dataset.class_names)
    else:
        seed = settings.seed if settings.order_seed is None else settings.order_seed
        order = class_order_from_seed(len(dataset.class_names), seed)
    return Scenario(dataset, settings.scenario, order, settings.sizes_of_tasks(facts), is_given)


def place_for_photos(engine: EngineSettings) -> tuple[Place, Path | None]:
    """Where photos of many sizes are to be kept, and the folder of those that are kept on disk."""
    cache = user_path(engine.photo_cache) if engine.photo_cache else None
    if engine.resident == "disk" and cache is None:
        raise SettingsError("engine.resident=disk needs a folder for the decoded photos: set engine.photo_cache=FOLDER")
    if cache is not None:
        with explained(DataError, f"engine.photo_cache: cannot write '{cache}'"):
            cache.mkdir(parents=True, exist_ok=True)
    return PLACES[engine.resident], cache


def build_loader(settings: Settings, follower: Follower | None = None) -> PhotoLoader:
    """The loader that decodes photos of many sizes and keeps their pixels."""
    place, cache = place_for_photos(settings.engine)
    photos = settings.photos
    return PhotoLoader(
        photos.image_size,
        photos.kept_side,
        find_device(settings.device),
        place,
        cache,
        max_unreadable=photos.max_unreadable,
        follower=follower or Follower(),
    )


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
        torch.backends.cudnn.benchmark = not settings.deterministic
    return planned_engine(settings, device_name, mean, std)


def planned_engine(
    settings: EngineSettings, device_name: str, mean: tuple[float, ...], std: tuple[float, ...]
) -> Engine:
    """The same engine without side effects on the process, for plans."""
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


def build_method(settings: Settings, scenario: Scenario, engine: Engine, follower: Follower) -> Method[Any]:
    """The chosen method, with the unlabeled images that it trains on."""
    unlabeled = _unlabeled(settings, scenario.image_size, follower)
    choice = chosen_backbone(settings)
    place = (engine.infer, engine.device, settings.selection, unlabeled, engine.normalised)
    context = Context(choice.make, settings.seed, *place)
    return method_at(settings, context, choice.is_pretrained)


def _unlabeled(settings: Settings, image_size: tuple[int, int], follower: Follower) -> ImageSet | None:
    source = settings.options.unlabeled_source
    return load_unlabeled(source, image_size, settings.data_dir, follower) if source else None


def check_data(settings: Settings, follower: Follower) -> None:
    """Read all images of a run, so that missing or damaged ones are reported before it starts."""
    # The device may be on another machine.
    scenario = load_scenario(settings.model_copy(update={"device": "cpu"}), follower)
    _unlabeled(settings, scenario.image_size, follower)


def method_at(settings: Settings, context: Context, is_pretrained: bool = False) -> Method[Any]:
    """The chosen method with an empty memory, its schedules as the settings scale them."""
    options = settings.scheduled(settings.epochs_scale, is_pretrained)
    total, per_class = settings.memory_total, settings.memory_per_class
    memory = ExemplarMemory(total, per_class) if options.uses_memory else ExemplarMemory()
    return method_class(settings.method)(options, memory, context)


def plugins_used(settings: Settings) -> dict[str, str]:
    """The plug-ins of a run, and the hash of the files of each."""
    names: dict[Kind, str] = {
        "method": settings.method,
        "dataset": settings.dataset,
        "backbone": settings.backbone,
    }
    return plugin_hashes(settings.plugins, names)


def has_same_plugins(results: Mapping[str, Any], settings: Settings) -> bool:
    """Whether the results were computed by the plug-ins of `settings` as they are now; True where it is not known."""
    environment = results.get("environment")
    saved = environment.get("plugins") if isinstance(environment, dict) else None
    versions = saved if isinstance(saved, dict) else {}
    return all(versions.get(name, version) == version for name, version in plugins_used(settings).items())


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
        "precision": str(engine.dtype).removeprefix("torch."),
        "compile": engine.compile,
        "capture": engine.capture,
        "kernels": engine.kernels,
        "peak_gpu_bytes": torch.cuda.max_memory_allocated(engine.device) if on_gpu else None,
        "peak_gpu_reserved_bytes": torch.cuda.max_memory_reserved(engine.device) if on_gpu else None,
    }
