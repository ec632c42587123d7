"""EfficientNet-Lite0: a small backbone for photos, without squeeze-and-excitation and with ReLU6 (Tan and Le, 2019)."""

import copy
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional

from foster.networks.modules import ModuleType
from foster.networks.network import Backbone, stage_outputs

NORM_EPSILON = 1e-3
STEM_WIDTH, FEATURE_SIZE = 32, 1280


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


class FixedStatisticsNorm(nn.BatchNorm2d):
    """BatchNorm that always uses its pretrained statistics; only scale and shift are trained.

    Otherwise weights trained on few photos would fit the statistics of small batches, which prediction does not use.
    """

    def train(self, mode: bool = True) -> "FixedStatisticsNorm":
        return super().train(False)

    def folded_into(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The weight and bias of a convolution that equals the convolution with `weight` followed by this norm."""
        mean, variance = self.running_mean, self.running_var
        assert mean is not None, "this norm needs its statistics"
        assert variance is not None
        scale = self.weight * (variance + self.eps).rsqrt()
        return weight * scale[:, None, None, None], self.bias - mean * scale


class Unit(nn.Sequential):
    """A convolution, its norm and further modules. Convolution and norm are computed as one convolution, with gradients
    of both: separate norms take a quarter of a training step on a CPU."""

    def parts(self) -> tuple[SameConv, FixedStatisticsNorm, list[nn.Module]]:
        convolution, norm, *others = self
        assert isinstance(convolution, SameConv)
        assert isinstance(norm, FixedStatisticsNorm)
        return convolution, norm, others

    def forward(self, maps: Tensor) -> Tensor:
        convolution, norm, others = self.parts()
        maps = convolution.filtered(maps, *norm.folded_into(convolution.weight))
        for other in others:
            maps = other(maps)
        return maps


class FoldedUnit(nn.Module):
    """A Unit for inference: equal up to rounding, and faster on a CPU.

    The norm is folded into the weight once. A convolution of single positions is a matrix product. With a stride of 2,
    the odd padding is a row and a column of zeros in the kernel, so that maps are not copied into larger ones.
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, unit: Unit) -> None:
        super().__init__()
        convolution, norm, others = unit.parts()
        weight, bias = (part.detach() for part in norm.folded_into(convolution.weight))
        self.kernel, self.stride, self.groups = convolution.kernel_size[0], convolution.stride[0], convolution.groups
        if self.kernel == 1:
            weight = weight.flatten(1)
        elif self.stride == 2:
            weight = functional.pad(weight, (1, 0, 1, 0))
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)
        self.others = nn.ModuleList(others)

    def forward(self, maps: Tensor) -> Tensor:
        if self.kernel == 1:
            maps = functional.linear(maps.permute(0, 2, 3, 1), self.weight, self.bias).permute(0, 3, 1, 2)
        else:
            height, width = (self.kernel // 2 + (self.stride - 1) * (size % 2) for size in maps.shape[2:])
            maps = functional.conv2d(maps, self.weight, self.bias, self.stride, (height, width), 1, self.groups)
        for other in self.others:
            maps = other(maps)
        return maps


def _unit(in_channels: int, out_channels: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> nn.Module:
    """Convolution, BatchNorm and ReLU6. ReLU6 works in place, because allocating memory takes longer than computing."""
    convolution = SameConv(in_channels, out_channels, kernel, stride, groups=groups, bias=False)
    return Unit(convolution, FixedStatisticsNorm(out_channels, NORM_EPSILON), nn.ReLU6(inplace=True))


class Block(nn.Module):
    """An inverted residual block: expand, depthwise convolution, project; added to its input if the shapes agree."""

    def __init__(self, in_channels: int, out_channels: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = expansion * in_channels
        self.expand = _unit(in_channels, wide) if expansion > 1 else nn.Identity()
        self.filter = _unit(wide, wide, kernel, stride, groups=wide)
        self.project = Unit(
            SameConv(wide, out_channels, 1, bias=False), FixedStatisticsNorm(out_channels, NORM_EPSILON)
        )
        self.is_residual = stride == 1 and in_channels == out_channels

    def forward(self, maps: Tensor) -> Tensor:
        out: Tensor = self.project(self.filter(self.expand(maps)))
        return maps + out if self.is_residual else out


class EfficientNetLite(Backbone):
    """A stem that halves the resolution, seven stages that halve it four times, and a last layer of 1,280 channels.

    Its tensors are in the order of the PyTorch port of the published network, whose weights are loaded by position.
    """

    feature_size = FEATURE_SIZE

    def __init__(self) -> None:
        super().__init__()
        parts = [_unit(3, STEM_WIDTH, kernel=3, stride=2)]
        channels = STEM_WIDTH
        for stage in STAGES:
            blocks = []
            for position in range(stage.num_blocks):
                stride = stage.stride if position == 0 else 1
                blocks.append(Block(channels, stage.width, stage.kernel, stride, stage.expansion))
                channels = stage.width
            parts.append(nn.Sequential(*blocks))
        parts.append(_unit(channels, FEATURE_SIZE))
        self.body = nn.ModuleList(parts)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def stages(self, images: Tensor) -> list[Tensor]:
        return stage_outputs(self.body, images)


def folded(network: ModuleType) -> ModuleType:
    """A copy of a network for inference on a CPU, each Unit in it a FoldedUnit; the network itself if it has none."""
    if not any(isinstance(module, Unit) for module in network.modules()):
        return network
    network = copy.deepcopy(network)
    for parent in list(network.modules()):
        for name, child in parent.named_children():
            if isinstance(child, Unit):
                parent.add_module(name, FoldedUnit(child))
    return network
