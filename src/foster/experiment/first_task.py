"""Use the first task of another run instead of training it again."""

from pathlib import Path
from typing import Any, NamedTuple

from foster.errors import FosterError, SettingsError, short
from foster.experiment.artifacts import kept_networks
from foster.experiment.folder import RunFolder
from foster.experiment.results import RESULTS, read_content
from foster.settings.base import FREE_SETTINGS, MEMORY_KEYS, flat
from foster.settings.experiment import Settings
from foster.system.files import user_path

NOT_COMPARED = frozenset({*FREE_SETTINGS, *MEMORY_KEYS, "recipe", "base_classes", "increment", "task_sizes", "options"})
"""Settings that the first task does not depend on, or that `_facts` adds in another form."""


class FirstTask(NamedTuple):
    """The first task of another run: the file of its network, and how long it took."""

    network: Path
    seconds: float


def first_task(settings: Settings) -> FirstTask | None:
    """The first task that `first_task_from` names; None without it. A SettingsError says why it cannot be used."""
    if not settings.first_task_from:
        return None
    path = user_path(settings.first_task_from)
    try:
        theirs = RunFolder(path).settings()
    except FosterError as error:
        raise SettingsError(f"first_task_from: {error}") from None
    other, wanted = _facts(theirs), _facts(settings)
    if other.get("method") != wanted.get("method"):
        raise SettingsError(
            f"first_task_from: '{settings.method}' does not train the first task of '{theirs.method}', the method of "
            f"'{path}'"
        )
    for key in wanted | other:
        if wanted.get(key) != other.get(key):
            raise SettingsError(
                f"first_task_from: the first task of '{path}' was another one, with {key} = {short(other.get(key))} "
                f"and not {short(wanted.get(key))}"
            )
    variant = theirs.options.first_variant or theirs.options.classifies_by
    file = kept_networks(path).get((0, variant))
    if file is None:
        raise SettingsError(
            f"first_task_from: '{path}' keeps no network '{variant}' of its first task; run it with keep_networks=true"
        )
    return FirstTask(file, float(read_content(path / RESULTS)["task_seconds"][0]))


def check_phases(settings: Settings, num_phases: int) -> None:
    """Refuse a first task of more than one phase: the kept network is the result of the last one only."""
    if num_phases > 1:
        raise SettingsError(f"first_task_from: the first task of '{settings.method}' has more than one phase")


def _facts(settings: Settings) -> dict[str, Any]:
    """The settings that the first task depends on, with dotted keys."""
    options = settings.options.model_dump(mode="json")
    decisive = settings.options.first_task_options
    compared = {key: value for key, value in options.items() if decisive is None or key in decisive}
    plain = settings.model_dump(mode="json", exclude=set(NOT_COMPARED))
    first = settings.task_sizes[0] if settings.task_sizes else settings.base_classes or settings.increment
    plain["order_seed"] = settings.seed if settings.order_seed is None else settings.order_seed
    if decisive and "first" in decisive:  # the first network does not depend on the method
        del plain["method"]
        return flat({**plain, "base_classes": first, **compared})
    return flat({**plain, "base_classes": first, settings.method: compared})
