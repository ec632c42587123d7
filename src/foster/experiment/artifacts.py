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

from foster.errors import DataError, FolderError
from foster.networks.modules import on_host
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
    """Add the predictions `[N]` of one evaluation after `task`; those after an earlier task are replaced."""
    try:
        kept = read_predictions(folder)
        arrays = dict(kept.by_variant) if kept.task == task else {}
    except DataError:
        arrays = {}
    arrays |= {name: ids.cpu().numpy() for name, ids in {**by_variant, _LABELS: labels}.items()}
    # Ids are small: two bytes each, in all but uncommonly large experiments.
    small = {
        f"{task}/{name}": ids.astype(np.min_scalar_type(int(ids.max(initial=256)))) for name, ids in arrays.items()
    }
    write_bytes(folder / PREDICTIONS, safetensors.numpy.save(small))


def read_predictions(folder: Path) -> Predictions:
    """The predictions after the last task that was evaluated; a DataError where there are none."""
    path = folder / PREDICTIONS
    try:
        tensors = safetensors.numpy.load(read_limited(path, MAX_PREDICTIONS_BYTES))
        (task,) = {int(key.partition("/")[0]) for key in tensors}
        arrays = {key.partition("/")[2]: ids.astype(np.int64) for key, ids in tensors.items()}
        labels = arrays.pop(_LABELS)
        if any(ids.ndim != 1 or ids.shape != labels.shape for ids in arrays.values()):
            raise ValueError("labels and predictions do not belong together")
    except FileNotFoundError:
        raise DataError(f"'{folder}' keeps no predictions ({PREDICTIONS})") from None
    except _DAMAGE as error:
        raise DataError(f"'{path}' cannot be read: {error}") from None
    return Predictions(task, labels, arrays)


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
