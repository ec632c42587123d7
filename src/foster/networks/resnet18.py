"""ResNet-18: four stages of 64 to 512 channels, 512 features, behind one of three stems."""

from collections.abc import Callable

from torch import nn

from foster.networks.resnet_cifar import ResNet, projection, small_stem

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


def resnet18(stem: Stem = standard_stem, has_last_relu: bool = True) -> ResNet:
    """ResNet-18 with two blocks a stage; without `has_last_relu` its features may be negative (for cosine heads)."""
    return ResNet(stem(), (64, 128, 256, 512), 2, projection, has_last_relu)
