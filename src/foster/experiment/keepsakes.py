"""What a run keeps for figures and reports: the predictions of its last task and, if asked to, its networks."""

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

from foster.errors import DataError
from foster.networks.layout import on_host
from foster.system.files import read_plain, write_bytes

PREDICTIONS, NETWORKS = "predictions.safetensors", "networks"
_LABELS, _TASK = "labels", "task"
_DAMAGE = (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError)
_NETWORK_FILE = re.compile(r"task-(\d{2,6})-([a-z0-9_]{1,64})\.safetensors")


@dataclass(frozen=True)
class Predictions:
    """Of the test images of all classes that were seen after `task`: true and predicted class ids, `[N]` each.

    `by_variant` has an entry for each network and classifier that was evaluated, such as `boosted` and `compressed`.
    """

    task: int
    labels: NDArray[np.int64]
    by_variant: dict[str, NDArray[np.int64]]


def keep_predictions(folder: Path, task: int, labels: Tensor, by_variant: Mapping[str, Tensor]) -> None:
    """Add the predictions of one evaluation `[N]`; those of earlier tasks go."""
    try:
        before = read_predictions(folder)
        known = before.by_variant if before.task == task and len(before.labels) == len(labels) else {}
    except DataError:
        known = {}
    arrays = known | {name: found.cpu().numpy() for name, found in by_variant.items()}
    arrays |= {_LABELS: labels.cpu().numpy(), _TASK: np.array([task])}
    # Ids are small: two bytes each, in all but uncommonly large experiments.
    small = {name: values.astype(np.min_scalar_type(int(values.max(initial=256)))) for name, values in arrays.items()}
    write_bytes(folder / PREDICTIONS, safetensors.numpy.save(small))


def read_predictions(folder: Path) -> Predictions:
    """What `keep_predictions` has kept, or a `DataError` that says in one line why there is none."""
    path = folder / PREDICTIONS
    try:
        arrays = {name: ids.astype(np.int64) for name, ids in safetensors.numpy.load(read_plain(path)).items()}
        labels, task = arrays.pop(_LABELS), int(arrays.pop(_TASK)[0])
        if labels.ndim != 1 or any(ids.shape != labels.shape for ids in arrays.values()):
            raise ValueError("labels and predictions do not belong together")
    except FileNotFoundError:
        raise DataError(f"'{folder}' keeps no predictions ({PREDICTIONS}); runs of earlier versions did not") from None
    except _DAMAGE as error:
        raise DataError(f"'{path}' cannot be read: {error}") from None
    return Predictions(task, labels, arrays)


def keep_network(folder: Path, task: int, variant: str, network: nn.Module) -> None:
    """Write the weights of a network as it is after `task`."""
    path = folder / NETWORKS / f"task-{task + 1:02d}-{variant}.safetensors"
    weights = {name: on_host(tensor) for name, tensor in network.state_dict().items()}
    write_bytes(path, safetensors.torch.save(weights))


def kept_networks(folder: Path) -> dict[tuple[int, str], Path]:
    """The files of all networks that a run kept, by task and variant, in order."""
    try:
        names = sorted((folder / NETWORKS).iterdir()) if (folder / NETWORKS).is_dir() else []
    except OSError as error:
        raise DataError(f"cannot read '{folder / NETWORKS}': {error.strerror}") from None
    found = [(path, _NETWORK_FILE.fullmatch(path.name)) for path in names]
    return {(int(match[1]) - 1, match[2]): path for path, match in found if match}


def read_weights(path: Path) -> dict[str, Tensor]:
    """The weights that `keep_network` wrote."""
    try:
        return safetensors.torch.load(read_plain(path))
    except _DAMAGE as error:
        raise DataError(f"'{path}' cannot be read: {error}") from None
