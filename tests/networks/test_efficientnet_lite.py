"""EfficientNet-Lite is the published network: its size, its padding, and what its weights see in two photos."""

import pytest
import sklearn_images
import torch
from PIL import Image, ImageOps
from torch.nn import functional

from foster.data.photos.decode import Resizing
from foster.networks import build_backbone
from foster.networks.efficientnet_lite import EfficientNetLite, SameConv, folded
from foster.networks.pretrained import packaged_weights

PUBLISHED_PARAMETERS = 4_652_008
PALACE, BELL_COTE, DAISY = 698, 442, 985
"""ImageNet's ids of what scikit-learn's photos show: a Chinese palace and a yellow flower like a daisy."""


@pytest.fixture(scope="module")
def pretrained() -> EfficientNetLite:
    backbone = EfficientNetLite()
    *tensors, _, _ = packaged_weights()
    backbone.load_state_dict(dict(zip(backbone.state_dict(), tensors, strict=True)))
    return backbone.eval()


def photos(side: int) -> torch.Tensor:
    """scikit-learn's two photos, normalised as the weights expect, `[2, 3, side, side]`."""
    squares = [ImageOps.fit(Image.fromarray(image), (side, side)) for image in sklearn_images.photos()]
    pictures = torch.stack([Resizing(side, side)(image) for image in squares])
    return (pictures.float() / 255 - 0.5) / 0.5


def test_it_has_the_published_number_of_parameters() -> None:
    backbone = build_backbone("efficientnet_lite0")
    classifier = 1000 * (backbone.feature_size + 1)
    assert sum(parameter.numel() for parameter in backbone.parameters()) + classifier == PUBLISHED_PARAMETERS


def test_the_weights_of_the_package_know_a_palace_and_a_flower(pretrained: EfficientNetLite) -> None:
    with torch.no_grad():
        logits = functional.linear(pretrained(photos(192)), *packaged_weights()[-2:])
    china, flower = logits.topk(2).indices.tolist()
    assert {*china} <= {PALACE, BELL_COTE, 663}
    assert flower[0] == DAISY


@pytest.mark.parametrize(("kernel", "size"), [(3, 8), (5, 8), (3, 7), (5, 7)])
def test_padding_is_that_of_the_network_the_weights_were_trained_in(kernel: int, size: int) -> None:
    """Windows start at the first pixel where the size is even: an odd padding stands behind."""
    convolution = SameConv(1, 1, kernel, stride=2, bias=False)
    torch.nn.init.zeros_(convolution.weight)
    before = (kernel - 1) // 2 if size % 2 else (kernel - 2) // 2
    convolution.weight.data[0, 0, before, before] = 1  # sees the pixel at which its window is placed
    image = torch.arange(float(size * size)).view(1, 1, size, size)
    assert torch.equal(convolution(image), image[:, :, ::2, ::2])


@pytest.mark.parametrize("size", [(192, 192), (33, 64), (47, 32)])
def test_the_folded_network_equals_the_network_at_even_and_odd_sizes(
    pretrained: EfficientNetLite, size: tuple[int, int]
) -> None:
    images = functional.interpolate(photos(192), size, mode="bilinear")
    before = {name: tensor.clone() for name, tensor in pretrained.state_dict().items()}
    with torch.no_grad():
        expected, found = pretrained.stages(images), folded(pretrained).stages(images)
    for stage, same in zip(expected, found, strict=True):
        assert (stage - same).norm() <= 1e-4 * stage.norm()
    for name, tensor in pretrained.state_dict().items():
        assert torch.equal(tensor, before[name]), "the network itself is not folded"


def test_a_network_of_another_kind_is_not_copied() -> None:
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 1), torch.nn.BatchNorm2d(4))
    assert folded(network) is network
