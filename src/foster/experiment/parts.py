"""Build the data, the backbone and the method that the settings ask for."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from foster.data.download import Follower
from foster.data.images import ImageSet
from foster.data.memory import ExemplarMemory
from foster.data.photos.store import PhotoLoader
from foster.data.scenario import Scenario, class_order_from_names, class_order_from_seed, hold_out
from foster.data.sources import arrivals, load, load_unlabeled, task_counts, with_counts
from foster.errors import SettingsError
from foster.experiment.engine import check_engine, place_for_photos
from foster.methods import method_class
from foster.methods.base import Context, Method
from foster.networks.adapted import BackboneChoice, choose_backbone
from foster.settings.datasets import ChannelValues, DatasetFacts
from foster.settings.experiment import Settings
from foster.settings.plugins import plugin_hashes
from foster.training.engine import Engine, find_device


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
        facts = with_counts(facts, settings.dataset_settings)
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


def normalisation(backbone: BackboneChoice, scenario: Scenario) -> tuple[ChannelValues, ChannelValues]:
    """Mean and standard deviation by which images are normalised: those of a pretrained backbone, else of the data."""
    return backbone.mean or scenario.mean, backbone.std or scenario.std


def load_scenario(settings: Settings, follower: Follower | None = None) -> Scenario:
    """The data of a run as a scenario. With a validation share, held-out training images replace the test images.

    `follower` gets the progress of a download.
    """
    dataset = load(settings.dataset, settings.dataset_settings, follower, build_loader(settings, follower))
    side, tasks, is_given = dataset.train.image_size[1], task_counts(dataset.train), settings.tasks == "given"
    facts = replace(settings.facts, num_classes=len(dataset.class_names), image_size=side, tasks=tasks)
    check_fits(settings, facts)
    if settings.validation_share:
        train, test = hold_out(dataset.train, settings.validation_share, settings.seed, is_given)
        dataset = replace(dataset, train=train, test=test)
    if is_given:
        order, _ = arrivals(dataset.train)
    elif settings.class_order:
        order = class_order_from_names(settings.class_order, dataset.class_names)
    else:
        seed = settings.seed if settings.order_seed is None else settings.order_seed
        order = class_order_from_seed(len(dataset.class_names), seed)
    return Scenario(dataset, settings.scenario, order, settings.sizes_of_tasks(facts), is_given)


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


def build_method(settings: Settings, scenario: Scenario, engine: Engine, follower: Follower) -> Method[Any]:
    """The chosen method, with the unlabeled images that it trains on."""
    unlabeled = _unlabeled(settings, scenario.image_size, follower)
    choice = chosen_backbone(settings)
    place = (engine.infer, engine.device, settings.selection, unlabeled, engine.normalised)
    context = Context(choice.make, settings.seed, *place)
    return method_at(settings, context, choice.is_pretrained)


def _unlabeled(settings: Settings, image_size: tuple[int, int], follower: Follower) -> ImageSet | None:
    source = settings.options.unlabeled_source
    return load_unlabeled(source, image_size, settings.dataset_settings.data_dir, follower) if source else None


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
    return plugin_hashes(settings.plugins, settings.plugin_names)


def has_same_plugins(results: Mapping[str, Any], settings: Settings) -> bool:
    """Whether the results were computed by the plug-ins of `settings` as they are now; True where it is not known."""
    environment = results.get("environment")
    saved = environment.get("plugins") if isinstance(environment, dict) else None
    versions = saved if isinstance(saved, dict) else {}
    return all(versions.get(name, version) == version for name, version in plugins_used(settings).items())
