"""What a run keeps for figures and reports: the predictions after each task and, if asked to, its networks."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import safetensors
import safetensors.numpy
import safetensors.torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foster.errors import DataError, FolderError
from foster.networks.modules import on_host
from foster.system.counts import counted
from foster.system.files import read_limited, write_bytes

PREDICTIONS, NETWORKS = "predictions.safetensors", "networks"
_LABELS = "labels"
MAX_PREDICTIONS_BYTES = 2**30
_DAMAGE = (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError)
_NETWORK_FILE = re.compile(r"task-(\d{2,6})-([a-z0-9_]{1,64})\.safetensors")


@dataclass(frozen=True)
class Predictions:
    """True and predicted class ids `[N]` of the test images of all classes seen after `task`.

    `by_variant` has an entry for each network and classifier that was evaluated, under the method's own name for it.
    """

    task: int
    labels: NDArray[np.int64]
    by_variant: dict[str, NDArray[np.int64]]


def keep_predictions(folder: Path, task: int, labels: Tensor, by_variant: Mapping[str, Tensor]) -> None:
    """Add the predictions `[N]` of one evaluation after `task`; those after later tasks are dropped."""
    try:
        kept = {index: found for index, found in _read(folder).items() if index <= task}
    except DataError:
        kept = {}
    added = {name: ids.cpu().numpy() for name, ids in {**by_variant, _LABELS: labels}.items()}
    kept[task] = kept.get(task, {}) | added
    # Ids are small: two bytes each, in all but uncommonly large experiments.
    small = {
        f"{index}/{name}": ids.astype(np.min_scalar_type(int(ids.max(initial=256))))
        for index, found in kept.items()
        for name, ids in found.items()
    }
    write_bytes(folder / PREDICTIONS, safetensors.numpy.save(small))


def read_predictions(folder: Path, task: int | None = None) -> Predictions:
    """The predictions after a task, by default after the last one that was evaluated; a DataError if there are none."""
    kept = _read(folder)
    task = max(kept) if task is None else task
    if task not in kept:
        tasks = counted(len(kept), "task")
        raise DataError(f"'{folder}' keeps predictions after {tasks}, but not after task {task + 1}")
    labels = kept[task].pop(_LABELS)
    return Predictions(task, labels, kept[task])


def _read(folder: Path) -> dict[int, dict[str, NDArray[np.int64]]]:
    """The predictions after each task, with its labels."""
    path = folder / PREDICTIONS
    kept: dict[int, dict[str, NDArray[np.int64]]] = {}
    try:
        for key, ids in safetensors.numpy.load(read_limited(path, MAX_PREDICTIONS_BYTES)).items():
            task, _, name = key.partition("/")
            kept.setdefault(int(task), {})[name] = ids.astype(np.int64)
        if not kept or any(ids.ndim != 1 or ids.shape != a[_LABELS].shape for a in kept.values() for ids in a.values()):
            raise ValueError("labels and predictions do not belong together")
    except FileNotFoundError:
        raise DataError(f"'{folder}' keeps no predictions ({PREDICTIONS})") from None
    except _DAMAGE as error:
        raise DataError(f"'{path}' cannot be read: {error}") from None
    return kept


def keep_network(folder: Path, task: int, variant: str, network: nn.Module) -> None:
    if (folder / NETWORKS).is_symlink():
        raise FolderError(f"'{folder / NETWORKS}' is a link; networks are only written in the folder itself")
    path = folder / NETWORKS / f"task-{task + 1:02d}-{variant}.safetensors"
    weights = {name: on_host(tensor) for name, tensor in network.state_dict().items()}
    write_bytes(path, safetensors.torch.save(weights))


def kept_networks(folder: Path) -> dict[tuple[int, str], Path]:
    """The files of all networks that a run kept, by task and variant, in order."""
    names = sorted((folder / NETWORKS).iterdir()) if (folder / NETWORKS).is_dir() else []
    matches = [(path, _NETWORK_FILE.fullmatch(path.name)) for path in names]
    return {(int(match[1]) - 1, match[2]): path for path, match in matches if match}
