"""The ResNets for large images: the maps of their stages behind each stem, and the last ReLU."""

import torch
from torch import Tensor

from foster.networks import build_backbone


def images(num_images: int = 4, size: int = 32) -> Tensor:
    return torch.randn(num_images, 3, size, size, generator=torch.Generator().manual_seed(0))


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


def test_cosine_resnet18_is_resnet18_before_its_last_relu() -> None:
    torch.manual_seed(0)
    plain, cosine = build_backbone("resnet18").eval(), build_backbone("cosine_resnet18").eval()
    cosine.load_state_dict(plain.state_dict())
    with torch.no_grad():
        expected, actual = plain.stages(images(2)), cosine.stages(images(2))
    assert torch.equal(actual[2], expected[2])
    assert (actual[3] < 0).any()
    assert torch.equal(actual[3].clamp(min=0), expected[3])
