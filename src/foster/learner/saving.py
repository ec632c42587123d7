"""What a learner knows, to and from a bundle."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from foster.bundle.files import BundleError
from foster.bundle.folder import read_bundle, write_bundle
from foster.bundle.manifest import Manifest, Use
from foster.data.memory import ExemplarMemory
from foster.errors import FosterError, words_of
from foster.learner.familiarity import PREFIX as FAMILIARITY
from foster.learner.familiarity import Familiarity
from foster.learner.knowledge import Knowledge, Memories
from foster.methods import method_class
from foster.methods.base import Method, Workplace
from foster.networks.adapted import ModuleLike, choose_backbone
from foster.networks.network import Network
from foster.networks.trunk import Trunk
from foster.seeding import Address, initialisation
from foster.settings.base import make
from foster.settings.learner import LearnerSettings
from foster.settings.plugins import check_imported, load_plugins
from foster.system.files import user_path
from foster.training.engine import Engine

TRUNK = "trunk."
"""How the names of a trunk's weights begin."""


def save_knowledge(folder: Path, settings: LearnerSettings, knowledge: Knowledge) -> Path:
    """Write a bundle, whole or not at all."""
    folder = user_path(folder)
    facts = {
        "method": knowledge.method,
        "backbone": knowledge.backbone,
        "settings": settings.nested(),
        "classes": knowledge.class_names,
        "task_sizes": knowledge.task_sizes,
        "preprocessing": knowledge.preprocessing,
        "temperature": knowledge.temperature,
        "num_calibration_images": knowledge.num_calibration_images,
        "history": tuple(dict(entry) for entry in knowledge.history),
    }
    memories: dict[Use, ExemplarMemory] = {"exemplars": knowledge.exemplars, "held-out": knowledge.held_out}
    weights = dict(knowledge.network.state_dict())
    if knowledge.trunk is not None:
        weights |= {f"{TRUNK}{name}": tensor for name, tensor in knowledge.trunk.state_dict().items()}
    if knowledge.familiarity is not None:
        weights |= knowledge.familiarity.tensors()
    write_bundle(folder, facts, weights, memories)
    return folder


def load_knowledge(folder: Path, backbone: ModuleLike | None) -> tuple[LearnerSettings, Knowledge]:
    """The settings and the knowledge of a bundle that is whole; images are decoded when they are needed."""
    bundle, title = read_bundle(user_path(folder)), str(folder)
    facts = bundle.manifest
    try:
        load_plugins(())
        check_imported(facts.plugins, "it")
        settings = make(LearnerSettings, facts.settings, f"bundle '{title}'")
        if settings.method != facts.method:
            raise BundleError(
                f"bundle '{title}' is of method '{facts.method}', its settings are of '{settings.method}'"
            )
        familiarity = Familiarity.of(bundle.weights)
        weights = {name: tensor for name, tensor in bundle.weights.items() if not name.startswith(FAMILIARITY)}
        network, trunk = _network(facts, settings, backbone, weights, title)
    except BundleError:
        raise
    except FosterError as error:
        raise BundleError(f"bundle '{title}' cannot be used here: {error}") from None
    knowledge = Knowledge(
        class_names=facts.classes,
        task_sizes=facts.task_sizes,
        method=settings.method,
        backbone=facts.backbone,
        preprocessing=facts.preprocessing,
        network=network,
        trunk=trunk,
        memories=Memories(lambda: bundle.memory("exemplars", title), lambda: bundle.memory("held-out", title)),
        temperature=facts.temperature,
        num_calibration_images=facts.num_calibration_images,
        history=facts.history,
        familiarity=familiarity,
    )
    return settings, knowledge


def _network(
    facts: Manifest,
    settings: LearnerSettings,
    backbone: ModuleLike | None,
    weights: Mapping[str, Tensor],
    title: str,
) -> tuple[Network, Trunk | None]:
    """The network with a bundle's weights in it, and what stands before it, on the CPU."""
    if facts.backbone.startswith("custom:") and backbone is None:
        raise BundleError(
            f"bundle '{title}' has a backbone that was given as a torch module ({facts.backbone}); "
            "load it from Python: foster.load(folder, backbone=...)"
        )
    preprocessing = facts.preprocessing
    chosen = facts.backbone if backbone is None else backbone
    choice = choose_backbone(chosen, preprocessing.size, is_trained=True, num_frozen=settings.num_frozen)
    cpu = torch.device("cpu")
    engine = Engine(cpu, preprocessing.mean, preprocessing.std)
    workplace = Workplace(choice.make, settings.seed, engine.infer, cpu)
    method = method_class(settings.method)(settings.options, ExemplarMemory(), workplace)
    _check_form(method, facts, weights, title)
    with initialisation(Address(settings.seed, "frame for saved weights")):
        network, trunk = method.new_network(facts.task_sizes), choice.make_trunk()
    try:
        if trunk is not None:
            of_trunk = {name: tensor for name, tensor in weights.items() if name.startswith(TRUNK)}
            trunk.load_state_dict({name.removeprefix(TRUNK): tensor for name, tensor in of_trunk.items()})
            weights = {name: tensor for name, tensor in weights.items() if name not in of_trunk}
        network.load_state_dict(dict(weights))
    except RuntimeError as error:
        reason = words_of(error)
        raise BundleError(f"the weights in bundle '{title}' do not fit its network: {reason}") from None
    return network, trunk


def _check_form(method: Method[Any], facts: Manifest, weights: Mapping[str, Tensor], title: str) -> None:
    """Refuse weights of another network before one is made: what a manifest claims may have any size."""
    num_branches = len({name.split(".")[1] for name in weights if name.startswith("branches.")})
    parts = {name.removeprefix("head."): part.to("meta") for name, part in weights.items() if name.startswith("head.")}
    num_features = max((part.shape[-1] for part in parts.values() if part.ndim > 1), default=0)
    try:
        with torch.device("meta"):
            method.new_head(max(1, num_features), facts.task_sizes).load_state_dict(parts)
        # A module from outside may hold no weights at all.
        is_possible = num_branches in (0, method.num_branches(len(facts.task_sizes)))
    except RuntimeError:
        is_possible = False
    if not is_possible:
        raise BundleError(f"the weights in bundle '{title}' do not fit its network: another number of tasks or classes")
