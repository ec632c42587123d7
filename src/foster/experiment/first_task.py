"""Use the first task of another run instead of training it again."""

from pathlib import Path
from typing import Any

from foster.errors import FosterError, SettingsError, short
from foster.experiment.artifacts import kept_networks, read_weights
from foster.experiment.folder import RunFolder
from foster.settings.base import FREE_SETTINGS, MEMORY_KEYS, flat
from foster.settings.experiment import Settings
from foster.system.files import user_path
from foster.training.checkpoint import Tensors

SILENT = frozenset({*FREE_SETTINGS, *MEMORY_KEYS, "recipe", "base_classes", "increment", "task_sizes", "options"})
"""Settings that the first task does not depend on, or that `_facts` adds in another form."""


def first_network(settings: Settings) -> Tensors:
    """The weights of the network that was trained in the first task of the run that the settings name."""
    return read_weights(first_network_file(settings))


def first_seconds(settings: Settings) -> float:
    """How long that run took for its first task."""
    return float(RunFolder(user_path(Path(settings.first_task_from))).read_results()["task_seconds"][0])


def check_first_task(settings: Settings) -> None:
    """Refuse a `first_task_from` that is missing or was trained with other settings."""
    if settings.first_task_from:
        first_network_file(settings)


def first_network_file(settings: Settings) -> Path:
    """The file of these weights; a SettingsError says why they cannot be used."""
    path = user_path(Path(settings.first_task_from))
    try:
        their_settings = RunFolder(path).settings()
    except FosterError as error:
        raise SettingsError(f"first_task_from: {error}") from None
    variant = their_settings.options.first_variant or their_settings.options.classifies_by
    other, wanted = _facts(their_settings), _facts(settings)
    if other.get("method") != wanted.get("method"):
        raise SettingsError(
            f"first_task_from: '{settings.method}' does not train the first task of '{their_settings.method}', the "
            f"method of '{path}'"
        )
    for key in wanted | other:
        if wanted.get(key) != other.get(key):
            raise SettingsError(
                f"first_task_from: the first task of '{path}' was another one, with {key} = {short(other.get(key))} "
                f"and not {short(wanted.get(key))}"
            )
    file = kept_networks(path).get((0, variant))
    if file is None:
        raise SettingsError(
            f"first_task_from: '{path}' keeps no network '{variant}' of its first task; run it with keep_networks=true"
        )
    return file


def check_phases(settings: Settings, num_phases: int) -> None:
    """Refuse a first task of more than one phase: the kept network is the result of the last one only."""
    if num_phases > 1:
        raise SettingsError(f"first_task_from: the first task of '{settings.method}' has more than one phase")


def _facts(settings: Settings) -> dict[str, Any]:
    """The settings that the first task depends on, with dotted keys."""
    options = settings.options.model_dump(mode="json")
    decisive = settings.options.first_task_options
    compared = {key: value for key, value in options.items() if decisive is None or key in decisive}
    plain = settings.model_dump(mode="json", exclude=set(SILENT))
    first = settings.task_sizes[0] if settings.task_sizes else settings.base_classes or settings.increment
    plain["order_seed"] = settings.seed if settings.order_seed is None else settings.order_seed
    if decisive and "first" in decisive:  # whatever method asks for it, the same network is trained
        del plain["method"]
        return flat({**plain, "base_classes": first, **compared})
    return flat({**plain, "base_classes": first, settings.method: compared})
