"""The ResNets for small images against an independent one; their shortcuts, initialisation and precision."""

import math

import pytest
import torch
from torch import Tensor, nn

from foster.networks import build_backbone


def images(num_images: int = 4, size: int = 32) -> Tensor:
    return torch.randn(num_images, 3, size, size, generator=torch.Generator().manual_seed(0))


def plain_resnet8(weights: dict[str, Tensor], maps: Tensor) -> Tensor:
    """ResNet-8 in training mode, written once more with AvgPool(1, stride) and a concatenation of x and 0 * x."""

    def convolved(maps: Tensor, conv: str, norm: str, stride: int) -> Tensor:
        maps = nn.functional.conv2d(maps, weights[f"{conv}.weight"], stride=stride, padding=1)
        mean = maps.mean((0, 2, 3), keepdim=True)
        variance = maps.var((0, 2, 3), keepdim=True, correction=0)
        gamma, beta = (weights[f"{norm}.{part}"].view(1, -1, 1, 1) for part in ("weight", "bias"))
        return (maps - mean) / torch.sqrt(variance + 1e-5) * gamma + beta

    maps = convolved(maps, "stem.0", "stem.1", 1).clamp(min=0)
    for stage in range(3):
        stride = 1 if stage == 0 else 2
        block = f"body.{stage}.0"
        inner = convolved(maps, f"{block}.conv1", f"{block}.norm1", stride).clamp(min=0)
        inner = convolved(inner, f"{block}.conv2", f"{block}.norm2", 1)
        if stage > 0:
            maps = nn.functional.avg_pool2d(maps, 1, stride)
            maps = torch.cat([maps, 0 * maps], dim=1)
        maps = (inner + maps).clamp(min=0)
    return maps.mean((2, 3))


@pytest.mark.parametrize("size", [32, 9])
def test_resnet_equals_an_independent_implementation_with_option_a_shortcuts(size: int) -> None:
    torch.manual_seed(1)
    backbone = build_backbone("resnet8")
    with torch.no_grad():
        for parameter in backbone.parameters():
            if parameter.ndim == 1:  # BatchNorm at 1 and 0 could hide a mistake
                parameter.uniform_(0.5, 1.5)
        expected = plain_resnet8(dict(backbone.named_parameters()), images(6, size))
        torch.testing.assert_close(backbone(images(6, size)), expected, rtol=1e-4, atol=1e-5)


def test_convolutions_start_normal_with_fan_out_and_batch_norm_at_one_and_zero() -> None:
    torch.manual_seed(0)
    for name in ("resnet32", "cosine_resnet32", "resnet18"):
        backbone = build_backbone(name)
        for module in backbone.modules():
            if isinstance(module, nn.BatchNorm2d):
                assert (module.weight == 1).all()
                assert (module.bias == 0).all()
            if isinstance(module, nn.Conv2d):
                assert module.bias is None
                num_weights = module.weight.numel()
                expected = math.sqrt(2 / (module.kernel_size[0] ** 2 * module.out_channels))
                # The deviation of n normal values is itself uncertain by 1 / sqrt(2 n); six times that never happens.
                assert module.weight.std().item() == pytest.approx(expected, rel=6 / math.sqrt(2 * num_weights))
                assert abs(module.weight.mean().item()) < 6 * expected / math.sqrt(num_weights)


@pytest.mark.parametrize("name", ["resnet14", "cosine_resnet32"])
def test_a_backbone_trains_in_bfloat16_and_channels_last(name: str) -> None:
    torch.manual_seed(0)
    backbone = build_backbone(name)
    batch = images(8, 16)
    expected = backbone(batch).detach()
    backbone.to(memory_format=torch.channels_last)
    torch.testing.assert_close(
        backbone(batch.to(memory_format=torch.channels_last)).detach(), expected, rtol=1e-4, atol=1e-5
    )
    with torch.autocast("cpu", torch.bfloat16):
        features = backbone(batch)
    assert features.dtype == torch.float32, "maps are bfloat16, but features are averaged in float32"
    torch.testing.assert_close(features.float().detach(), expected, rtol=0.1, atol=0.1)
    features.float().square().mean().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in backbone.parameters())


def test_the_stem_for_large_images_is_a_wide_convolution_and_max_pooling() -> None:
    stem, maps = build_backbone("resnet18").stem, images(2, 48)
    with torch.no_grad():
        wide = nn.functional.conv2d(maps, stem[0].weight, stride=2, padding=3)
        expected = nn.functional.max_pool2d(nn.functional.batch_norm(wide, None, None, training=True).relu(), 3, 2, 1)
        torch.testing.assert_close(stem(maps), expected, rtol=1e-4, atol=1e-5)
    assert stem[0].kernel_size == (7, 7)


def test_stage_shapes_of_the_two_families() -> None:
    with torch.no_grad():
        small = [tuple(maps.shape[1:]) for maps in build_backbone("resnet8").stages(images(1, 32))]
        large = [tuple(maps.shape[1:]) for maps in build_backbone("resnet18").stages(images(1, 64))]
        fine = [tuple(maps.shape[1:]) for maps in build_backbone("resnet18_fine_stem").stages(images(1, 64))]
        full = [tuple(maps.shape[1:]) for maps in build_backbone("resnet18_small_images").stages(images(1, 32))]
    assert small == [(16, 32, 32), (32, 16, 16), (64, 8, 8)]
    assert large == [(64, 16, 16), (128, 8, 8), (256, 4, 4), (512, 2, 2)]
    assert fine == [(64, 32, 32), (128, 16, 16), (256, 8, 8), (512, 4, 4)]
    assert full == [(64, 32, 32), (128, 16, 16), (256, 8, 8), (512, 4, 4)]
