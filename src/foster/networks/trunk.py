"""A backbone in two: a trunk that is frozen and shared by all networks, and tails that are trained."""

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from foster.errors import SettingsError
from foster.networks.freezing import freeze
from foster.networks.network import Backbone, stage_outputs


class Trunk(nn.Module):
    """The first parts of a backbone: normalised images `[N, 3, H, W]` to maps `[N, C, h, w]`. It is never trained.

    Its BatchNorm is folded into the convolutions before it: one operation where there were two.
    """

    def __init__(self, parts: list[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.Sequential(*parts)
        freeze(self)
        for module in list(self.modules()):
            if isinstance(module, nn.Sequential):
                _fold(module)

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.parts(images)
        return maps

    def train(self, mode: bool = True) -> "Trunk":
        """A trunk stays in eval mode."""
        return super().train(False)


class Tail(Backbone):
    """The last parts of a backbone, from a trunk's maps to features."""

    def __init__(self, parts: list[nn.Module], feature_size: int) -> None:
        super().__init__()
        self.body = nn.ModuleList(parts)
        self.feature_size = feature_size

    def stages(self, images: Tensor) -> list[Tensor]:
        """`images` are maps of a trunk, `[N, C, h, w]`."""
        return stage_outputs(self.body, images)


def cut(backbone: Backbone, num_parts: int, name: str) -> tuple[Trunk, Tail]:
    """The trunk of the first `num_parts` parts, and the tail of the others; the backbone must not be used any more."""
    parts = backbone.parts()
    if not parts:
        raise SettingsError(f"trunk: backbone '{name}' cannot be cut in two; use trunk=none")
    if not 1 <= num_parts < len(parts):
        raise SettingsError(
            f"trunk: backbone '{name}' has {len(parts)} parts, of which 1 to {len(parts) - 1} can be "
            f"frozen, not {num_parts}"
        )
    return Trunk(parts[:num_parts]), Tail(parts[num_parts:], backbone.feature_size)


@torch.no_grad()
def _fold(units: nn.Sequential) -> None:
    """Convolutions that are followed by BatchNorm take it in; an identity stands in its place."""
    for index in range(len(units) - 1):
        convolution, norm = units[index], units[index + 1]
        if isinstance(convolution, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
            units[index] = fuse_conv_bn_eval(convolution, norm)
            units[index + 1] = nn.Identity()
