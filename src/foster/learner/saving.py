"""Save what a learner knows as a bundle, and load it from a bundle."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from foster.bundle.folder import BundleError, ImageFiles, read_bundle, write_bundle
from foster.bundle.manifest import Manifest, Use
from foster.data.memory import ExemplarMemory
from foster.data.photos.decode import Resizing
from foster.errors import FosterError, words_of
from foster.learner.familiarity import PREFIX as FAMILIARITY
from foster.learner.familiarity import Familiarity
from foster.learner.feature_store import FeatureStore
from foster.learner.knowledge import KeptImages, Knowledge
from foster.methods import method_class
from foster.methods.base import Context, Method
from foster.networks.adapted import BackboneChoice, ModuleLike, choose_backbone
from foster.networks.heads import RootHead
from foster.networks.network import Network
from foster.seeding import Address, initialisation
from foster.settings.base import make
from foster.settings.learner import CLOSED_FORM, MACHINE_KEYS, LearnerSettings
from foster.settings.methods import METHOD_SETTINGS
from foster.settings.plugins import check_imported
from foster.system.files import user_path
from foster.training.engine import Engine


def save_knowledge(folder: Path, settings: LearnerSettings, knowledge: Knowledge) -> Path:
    """Write a bundle, whole or not at all."""
    folder = user_path(folder)
    kept = settings.nested()
    if knowledge.is_closed_form:  # it has no use for the settings of a training, and should not depend on them
        kept = {key: value for key, value in kept.items() if key not in METHOD_SETTINGS}
    facts = {
        "method": knowledge.method,
        "backbone": knowledge.backbone,
        "settings": kept,
        "classes": knowledge.class_names,
        "task_sizes": knowledge.task_sizes,
        "preprocessing": knowledge.preprocessing,
        "temperature": knowledge.temperature,
        "num_calibration_images": knowledge.num_calibration_images,
        "history": tuple(dict(entry) for entry in knowledge.history),
    }
    images: dict[Use, Sequence[ImageFiles]] = {
        "exemplars": knowledge.exemplars.files,
        "held-out": knowledge.held_out.files,
    }
    weights = dict(knowledge.network.state_dict())
    if knowledge.familiarity is not None:
        weights |= knowledge.familiarity.tensors(has_statistics=not knowledge.is_closed_form)
    features = knowledge.store.tensors() if knowledge.store else {}
    write_bundle(folder, facts, weights, images, features)
    return folder


def load_knowledge(folder: Path, backbone: ModuleLike | None) -> tuple[LearnerSettings, Knowledge]:
    """The settings and the knowledge of a bundle that is whole; images are decoded when they are needed."""
    bundle, title = read_bundle(user_path(folder)), str(folder)
    facts = bundle.manifest
    try:
        check_imported(facts.plugins, "it")
        # Settings of the machine in a stranger's bundle could name any folder.
        safe = {key: value for key, value in facts.settings.items() if key == "plugins" or key not in MACHINE_KEYS}
        settings = make(LearnerSettings, safe, f"bundle '{title}'")
        if settings.method != facts.method:
            raise BundleError(
                f"bundle '{title}' has the method '{facts.method}', but its settings have '{settings.method}'"
            )
        weights = {name: tensor for name, tensor in bundle.weights.items() if not name.startswith(FAMILIARITY)}
        network = _network(facts, settings, backbone, weights, title)
        store = FeatureStore.of(bundle.features, len(facts.classes), title)
        sums = store.statistics if store and settings.method == CLOSED_FORM else None
        familiarity = Familiarity.of(bundle.weights, sums)
        if settings.method == CLOSED_FORM and (store is None or store.statistics.num_features != network.feature_size):
            raise BundleError(f"bundle '{title}' has no sums of features that fit its network")
        shape = (len(facts.classes), network.feature_size)
        if familiarity is not None and familiarity.statistics.sums.shape != shape:
            raise BundleError(f"the test for unknown photos in bundle '{title}' does not fit its network")
    except BundleError:
        raise
    except FosterError as error:
        raise BundleError(f"bundle '{title}' cannot be used here: {error}") from None
    resizing = Resizing(*facts.preprocessing.size)
    knowledge = Knowledge(
        class_names=facts.classes,
        task_sizes=facts.task_sizes,
        method=settings.method,
        backbone=facts.backbone,
        preprocessing=facts.preprocessing,
        network=network,
        exemplars=KeptImages(bundle.files("exemplars"), resizing),
        held_out=KeptImages(bundle.files("held-out"), resizing),
        temperature=facts.temperature,
        num_calibration_images=facts.num_calibration_images,
        history=facts.history,
        familiarity=familiarity,
        store=store,
    )
    return settings, knowledge


def _network(
    facts: Manifest,
    settings: LearnerSettings,
    backbone: ModuleLike | None,
    weights: Mapping[str, Tensor],
    title: str,
) -> Network:
    """The network with a bundle's weights in it, on the CPU."""
    if facts.backbone.startswith("custom:") and backbone is None:
        raise BundleError(
            f"bundle '{title}' has a backbone that was given as a torch module ({facts.backbone}); "
            "load it from Python: foster.load(folder, backbone=...)"
        )
    preprocessing = facts.preprocessing
    chosen = facts.backbone if backbone is None else backbone
    choice = choose_backbone(chosen, preprocessing.size, is_trained=True)
    with initialisation(Address(settings.seed, "frame for saved weights")):
        if settings.method == CLOSED_FORM:
            whole = choice.make()
            if weights.get("head.weight", torch.empty(0)).shape != (len(facts.classes), whole.feature_size):
                raise BundleError(f"the weights in bundle '{title}' do not fit its network: another number of classes")
            network = Network([whole], RootHead(whole.feature_size, len(facts.classes)))
        else:
            cpu = torch.device("cpu")
            engine = Engine(cpu, preprocessing.mean, preprocessing.std)
            context = Context(choice.make, settings.seed, engine.infer, cpu)
            method = method_class(settings.method)(settings.options, ExemplarMemory(), context)
            _check_form(method, choice, facts, weights, title)
            network = method.new_network(facts.task_sizes)
    try:
        network.load_state_dict(dict(weights))
    except RuntimeError as error:
        reason = words_of(error)
        raise BundleError(f"the weights in bundle '{title}' do not fit its network: {reason}") from None
    return network


def _check_form(
    method: Method[Any], choice: BackboneChoice, facts: Manifest, weights: Mapping[str, Tensor], title: str
) -> None:
    """Check that the weights fit the network before it is built: a manifest may claim a network of any size."""
    given = sum(part.numel() for name, part in weights.items() if name.startswith("branches."))
    of_one = sum(part.numel() for part in choice.make().state_dict().values())
    parts = {name.removeprefix("head."): part.to("meta") for name, part in weights.items() if name.startswith("head.")}
    num_features = max((part.shape[-1] for part in parts.values() if part.ndim > 1), default=0)
    try:
        with torch.device("meta"):
            method.new_head(max(1, num_features), facts.task_sizes).load_state_dict(parts)
        is_possible = given >= method.num_branches(len(facts.task_sizes)) * of_one  # more if it has buffers of its own
    except RuntimeError:
        is_possible = False
    if not is_possible:
        raise BundleError(f"the weights in bundle '{title}' do not fit its network: another number of tasks or classes")
