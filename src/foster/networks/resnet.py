"""ResNets for small images, with three stages of 16, 32 and 64 channels and 64 features; and ResNet-18 for large
images, with four stages of 64 to 512 channels and 512 features."""

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional

from foster.networks.network import Backbone, stage_outputs

Shortcut = Callable[[int, int, int], nn.Module]
"""(in channels, out channels, stride) -> the shortcut of a block."""


class PaddedSubsample(nn.Module):
    """The shortcut without parameters ("option A"): every `stride`-th pixel, with zeros for additional channels."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.num_missing = out_channels - in_channels
        self.stride = stride

    def forward(self, maps: Tensor) -> Tensor:
        return functional.pad(maps[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.num_missing))


def projection(in_channels: int, out_channels: int, stride: int) -> nn.Module:
    """The shortcut with parameters ("option B"): a 1x1 convolution and BatchNorm."""
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, kernel_size=1, stride=stride, bias=False), nn.BatchNorm2d(out_channels)
    )


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut. If the shape does not change, the shortcut is the identity."""

    def __init__(self, in_channels: int, out_channels: int, stride: int, shortcut: Shortcut) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, kernel_size=3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, kernel_size=3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out_channels)
        keeps_shape = stride == 1 and in_channels == out_channels
        self.shortcut = nn.Identity() if keeps_shape else shortcut(in_channels, out_channels, stride)
        self.last_activation: nn.Module = nn.ReLU()

    def forward(self, maps: Tensor) -> Tensor:
        residual = functional.relu(self.norm1(self.conv1(maps)))
        residual = self.norm2(self.conv2(residual))
        activated: Tensor = self.last_activation(residual + self.shortcut(maps))
        return activated


class ResNet(Backbone):
    """A stem and one stage of `num_blocks` blocks for each of `widths`. All stages but the first halve the resolution.

    Without `has_last_relu`, the last block has no ReLU, so that features may be negative (for cosine heads).
    """

    def __init__(
        self,
        stem: nn.Module,
        widths: tuple[int, ...],
        num_blocks: int,
        shortcut: Shortcut,
        has_last_relu: bool = True,
    ) -> None:
        super().__init__()
        self.feature_size = widths[-1]
        self.stem = stem
        stages = []
        in_channels = widths[0]
        for index, width in enumerate(widths):
            first = Block(in_channels, width, 1 if index == 0 else 2, shortcut)
            stages.append([first, *(Block(width, width, 1, shortcut) for _ in range(num_blocks - 1))])
            in_channels = width
        if not has_last_relu:
            stages[-1][-1].last_activation = nn.Identity()
        self.body = nn.ModuleList(nn.Sequential(*blocks) for blocks in stages)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def compiled_parts(self) -> list[nn.Module]:
        return [self.stem, *(block for stage in self.body for block in stage.children())]

    def stages(self, images: Tensor) -> list[Tensor]:
        return stage_outputs(self.body, self.stem(images))


def small_stem(width: int) -> nn.Module:
    """A 3x3 convolution at full resolution, BatchNorm and ReLU."""
    return nn.Sequential(nn.Conv2d(3, width, kernel_size=3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())


def cifar_resnet(depth: int, shortcut: Shortcut = PaddedSubsample, has_last_relu: bool = True) -> ResNet:
    """The CIFAR ResNet of `depth` 6n + 2: 8, 14, 20, 32, 44, 56, ..."""
    return ResNet(small_stem(16), (16, 32, 64), (depth - 2) // 6, shortcut, has_last_relu)


def standard_stem() -> nn.Module:
    """A 7x7 convolution and max pooling, for large images: the stages have a quarter of the image's resolution."""
    return nn.Sequential(
        nn.Conv2d(3, 64, kernel_size=7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(kernel_size=3, stride=2, padding=1),
    )


def fine_stem() -> nn.Module:
    """A 3x3 convolution and max pooling: the stages have half of the image's resolution, at about four times the
    cost."""
    return nn.Sequential(small_stem(64), nn.MaxPool2d(kernel_size=3, stride=2, padding=1))


def resnet18(stem: Callable[[], nn.Module], has_last_relu: bool = True) -> ResNet:
    return ResNet(stem(), (64, 128, 256, 512), 2, projection, has_last_relu)
