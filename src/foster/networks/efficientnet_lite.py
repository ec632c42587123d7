"""EfficientNet-Lite: a small backbone for photos, without squeeze-and-excitation and with ReLU6 (Tan and Le, 2019)."""

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional

from foster.networks.network import Backbone, stage_outputs

NORM_EPSILON = 1e-3
STEM_WIDTH, FEATURE_SIZE = 32, 1280
DEPTH_UNIT = 8
"""The number of channels is a multiple of this."""


class _Stage(NamedTuple):
    """Blocks of one width; the first block has the stride."""

    num_blocks: int
    kernel: int
    stride: int
    expansion: int
    width: int


STAGES = (
    _Stage(1, 3, 1, 1, 16),
    _Stage(2, 3, 2, 6, 24),
    _Stage(2, 5, 2, 6, 40),
    _Stage(3, 3, 2, 6, 80),
    _Stage(3, 5, 1, 6, 112),
    _Stage(4, 5, 2, 6, 192),
    _Stage(1, 3, 1, 6, 320),
)


class _Scale(NamedTuple):
    width: float
    depth: float


SCALES = {0: _Scale(1.0, 1.0), 1: _Scale(1.0, 1.1), 2: _Scale(1.1, 1.2)}
"""Width and depth of each member of the family, as multiples of the first."""


class SameConv(nn.Conv2d):
    """A convolution whose output has ceil(size / stride) positions. Odd padding is larger at the right and the
    bottom."""

    def forward(self, maps: Tensor) -> Tensor:
        return self.filtered(maps, self.weight, self.bias)

    def filtered(self, maps: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The same convolution with another weight and bias."""
        kernel, stride = self.kernel_size[0], self.stride[0]
        height, width = (max(0, (-(-size // stride) - 1) * stride + kernel - size) for size in maps.shape[2:])
        if height % 2 == 0 and width % 2 == 0:
            padding = (height // 2, width // 2)
            return functional.conv2d(maps, weight, bias, stride, padding, 1, self.groups)
        maps = functional.pad(maps, (width // 2, width - width // 2, height // 2, height - height // 2))
        return functional.conv2d(maps, weight, bias, stride, 0, 1, self.groups)


class SteadyNorm(nn.BatchNorm2d):
    """BatchNorm that always uses its pretrained statistics; only scale and shift are trained.

    Otherwise weights trained on few photos would fit the statistics of small batches, which prediction does not use.
    """

    def train(self, mode: bool = True) -> "SteadyNorm":
        return super().train(False)

    def folded_into(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The weight and bias of a convolution that equals the convolution with `weight` followed by this norm."""
        mean, variance = self.running_mean, self.running_var
        assert mean is not None, "its statistics are what this norm goes by"
        assert variance is not None
        scale = self.weight * (variance + self.eps).rsqrt()
        return weight * scale[:, None, None, None], self.bias - mean * scale


class Unit(nn.Sequential):
    """A convolution, its SteadyNorm and further modules. The first two are computed as one convolution, with gradients
    of both: separate norms take a quarter of a training step on a CPU."""

    def forward(self, maps: Tensor) -> Tensor:
        convolution, norm, *others = self
        if isinstance(convolution, SameConv) and isinstance(norm, SteadyNorm):
            maps = convolution.filtered(maps, *norm.folded_into(convolution.weight))
        else:  # a frozen norm was folded into its convolution
            maps = norm(convolution(maps))
        for other in others:
            maps = other(maps)
        return maps


def _norm(channels: int) -> nn.Module:
    return SteadyNorm(channels, eps=NORM_EPSILON)


def _unit(in_channels: int, out_channels: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> nn.Module:
    """Convolution, BatchNorm and ReLU6. ReLU6 works in place, because allocating memory takes longer than computing."""
    convolution = SameConv(in_channels, out_channels, kernel, stride, groups=groups, bias=False)
    return Unit(convolution, _norm(out_channels), nn.ReLU6(inplace=True))


class Block(nn.Module):
    """An inverted residual block: expand, depthwise convolution, project; added to its input if the shapes agree."""

    def __init__(self, in_channels: int, out_channels: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = expansion * in_channels
        self.expand = _unit(in_channels, wide) if expansion > 1 else nn.Identity()
        self.filter = _unit(wide, wide, kernel, stride, groups=wide)
        self.project = Unit(SameConv(wide, out_channels, 1, bias=False), _norm(out_channels))
        self.is_residual = stride == 1 and in_channels == out_channels

    def forward(self, maps: Tensor) -> Tensor:
        out: Tensor = self.project(self.filter(self.expand(maps)))
        return maps + out if self.is_residual else out


class EfficientNetLite(Backbone):
    """A stem that halves the resolution, seven stages that halve it four times, and a last layer of 1,280 channels."""

    feature_size = FEATURE_SIZE

    def __init__(self, member: int = 0) -> None:
        super().__init__()
        parts = [_unit(3, STEM_WIDTH, kernel=3, stride=2)]
        channels = STEM_WIDTH
        for stage, num_blocks in zip(STAGES, _depths(member), strict=True):
            width = _scaled_width(stage.width, SCALES[member].width)
            blocks = []
            for position in range(num_blocks):
                stride = stage.stride if position == 0 else 1
                blocks.append(Block(channels, width, stage.kernel, stride, stage.expansion))
                channels = width
            parts.append(nn.Sequential(*blocks))
        parts.append(_unit(channels, FEATURE_SIZE))
        self.body = nn.ModuleList(parts)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def stages(self, images: Tensor) -> list[Tensor]:
        return stage_outputs(self.body, images)


def _depths(member: int) -> list[int]:
    """The number of blocks of every stage; the first and the last are the same in the whole family."""
    last = len(STAGES) - 1
    scale = SCALES[member].depth
    return [
        stage.num_blocks if index in (0, last) else math.ceil(scale * stage.num_blocks)
        for index, stage in enumerate(STAGES)
    ]


def _scaled_width(width: int, scale: float) -> int:
    """The multiple of `DEPTH_UNIT` next to `width * scale`, but never below nine tenths of it."""
    scaled = width * scale
    nearest = max(DEPTH_UNIT, int(scaled + DEPTH_UNIT / 2) // DEPTH_UNIT * DEPTH_UNIT)
    return nearest + DEPTH_UNIT if nearest < 0.9 * scaled else nearest


PORT_UNITS = {
    "_expand_conv": "expand.0",
    "_bn0": "expand.1",
    "_depthwise_conv": "filter.0",
    "_bn1": "filter.1",
    "_project_conv": "project.0",
    "_bn2": "project.1",
}
PORT_ENDS = {"_conv_stem": "body.0.0", "_bn0": "body.0.1", "_conv_head": "body.8.0", "_bn1": "body.8.1"}
"""The names of the PyTorch port of the published network, for the parts of a block, and before and after the blocks."""


def renamed_port(state: Mapping[str, Tensor], member: int = 0) -> dict[str, Tensor]:
    """The weights of the PyTorch port (`_conv_stem`, `_blocks.0._depthwise_conv`, ...) under our names; its classifier
    `_fc` becomes `head`."""
    blocks = [f"body.{stage}.{block}" for stage, count in enumerate(_depths(member), start=1) for block in range(count)]
    renamed = {}
    for name, tensor in state.items():
        owner, _, value = name.rpartition(".")
        block = re.fullmatch(r"_blocks\.(\d+)\.(\w+)", owner)
        if block and int(block[1]) < len(blocks) and block[2] in PORT_UNITS:
            owner = f"{blocks[int(block[1])]}.{PORT_UNITS[block[2]]}"
        elif owner in PORT_ENDS:
            owner = PORT_ENDS[owner]
        elif owner == "_fc":
            owner = "head"
        renamed[f"{owner}.{value}"] = tensor
    return renamed
