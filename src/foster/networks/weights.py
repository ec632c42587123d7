"""Pretrained weights from a file: read without pickle, and put into a backbone under its own names."""

import re
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from foster.errors import SettingsError
from foster.networks.efficientnet_lite import renamed_port

WRAPPER_PREFIXES = ("module.", "model.", "backbone.", "branches.0.")
HEAD_PREFIXES = ("fc.", "head.", "classifier.")
RESNET_NAMES = (
    (r"^conv1\.", "stem.0."),
    (r"^bn1\.", "stem.1."),
    (r"^layer(\d+)\.", lambda match: f"body.{int(match[1]) - 1}."),
    (r"\.bn(\d)\.", r".norm\1."),
    (r"\.downsample\.", ".shortcut."),
)
"""From the names that torchvision and timm give to the parts of a ResNet to ours."""


def read_weights(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if path.suffix != ".safetensors":
        raise SettingsError(
            f"weights: '{path}' is not a .safetensors file; others can hide programs. "
            "safetensors.torch.save_file(model.state_dict(), 'weights.safetensors') makes one"
        )
    try:
        if not path.is_file():
            raise SettingsError(f"weights: there is no file '{path}'")
        return load_file(path)
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is damaged"
        raise SettingsError(f"weights: cannot read '{path}': {reason}") from None


def load_weights(target: nn.Module, state: Mapping[str, Tensor], origin: str) -> None:
    """Put weights from outside into a backbone, without those of their head; refuse what does not fit."""
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
    """`state` under the names of `wanted`: without a wrapper's prefix, and from the usual ResNet names to ours."""
    names = {name: name for name in state}
    for prefix in WRAPPER_PREFIXES:
        if any(name.startswith(prefix) for name in state) and not any(name.startswith(prefix) for name in wanted):
            names = {old: new.removeprefix(prefix) for old, new in names.items()}
    if "_conv_stem.weight" in names.values():
        return renamed_port({names[old]: tensor for old, tensor in state.items()})
    if "layer1.0.conv1.weight" in names.values() and "body.0.0.conv1.weight" in wanted:
        for pattern, replacement in RESNET_NAMES:
            names = {old: re.sub(pattern, replacement, new) for old, new in names.items()}
    return {names[old]: tensor for old, tensor in state.items()}
