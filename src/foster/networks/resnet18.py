"""ResNet-18, 34 and 50: four stages of 64 to 512 channels, 512 or 2,048 features, behind one of three stems."""

from collections.abc import Callable

from torch import nn

from foster.networks.resnet_cifar import Block, Bottleneck, ResNet, projection, small_stem

Stem = Callable[[], nn.Module]


def standard_stem() -> nn.Module:
    """A 7x7 convolution and max pooling: the stages see a quarter of the image's side. For large images."""
    return nn.Sequential(
        nn.Conv2d(3, 64, kernel_size=7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(kernel_size=3, stride=2, padding=1),
    )


def fine_stem() -> nn.Module:
    """A 3x3 convolution and max pooling: the stages see half of the image's side, at about four times the cost."""
    return nn.Sequential(small_stem(64), nn.MaxPool2d(kernel_size=3, stride=2, padding=1))


def full_size_stem() -> nn.Module:
    """A 3x3 convolution alone: the stages see the image's full side. For small images."""
    return small_stem(64)


DEPTHS: dict[int, tuple[tuple[int, int, int, int], type[Block] | type[Bottleneck]]] = {
    18: ((2, 2, 2, 2), Block),
    34: ((3, 4, 6, 3), Block),
    50: ((3, 4, 6, 3), Bottleneck),
}
"""How many blocks each stage has, and of which kind."""


def resnet(depth: int, stem: Stem = standard_stem, has_last_relu: bool = True) -> ResNet:
    """The ResNet of a depth in `DEPTHS`; without `has_last_relu` its features may be negative (for cosine heads)."""
    num_blocks, block = DEPTHS[depth]
    return ResNet(stem(), (64, 128, 256, 512), num_blocks, projection, has_last_relu, block)


def resnet18(stem: Stem = standard_stem, has_last_relu: bool = True) -> ResNet:
    return resnet(18, stem, has_last_relu)
