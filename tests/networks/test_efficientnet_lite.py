"""EfficientNet-Lite is the published network: its size, its padding, and what its weights see in two photos."""

import pytest
import sklearn_images
import torch
from PIL import Image, ImageOps
from torch.nn import functional

from foster.data.photos.decode import Resizing
from foster.networks import build_backbone
from foster.networks.adapted import choose_backbone
from foster.networks.efficientnet_lite import SameConv
from foster.networks.pretrained import packaged_weights

PUBLISHED_PARAMETERS = {"efficientnet_lite0": 4_652_008, "efficientnet_lite2": 6_092_072}
LENGTHS = {"efficientnet_lite0": (20.527, 19.925), "efficientnet_lite2": (20.519, 23.364)}
"""The lengths of the features of scikit-learn's photos at 192 pixels, computed in double precision from the packaged
files by the names in them, with other code."""
PALACE, BELL_COTE, DAISY, HONEYCOMB = 698, 442, 985, 599
"""ImageNet's ids of what scikit-learn's photos show: a Chinese palace, and a flower of many petals, for which there is
no class: Lite0 sees a daisy, Lite2 a honeycomb."""


def photos(side: int) -> torch.Tensor:
    """scikit-learn's two photos, normalised as the weights expect, `[2, 3, side, side]`."""
    squares = [ImageOps.fit(Image.fromarray(image), (side, side)) for image in sklearn_images.photos()]
    pictures = torch.stack([Resizing(side, side)(image) for image in squares])
    return (pictures.float() / 255 - 0.5) / 0.5


@pytest.mark.parametrize("name", PUBLISHED_PARAMETERS)
def test_it_has_the_published_number_of_parameters(name: str) -> None:
    backbone = build_backbone(name)
    classifier = 1000 * (backbone.feature_size + 1)
    assert sum(parameter.numel() for parameter in backbone.parameters()) + classifier == PUBLISHED_PARAMETERS[name]


@pytest.mark.parametrize(("name", "flower"), [("efficientnet_lite0", DAISY), ("efficientnet_lite2", HONEYCOMB)])
def test_the_weights_of_the_package_know_a_palace_and_a_flower(name: str, flower: int) -> None:
    with torch.no_grad():
        features = choose_backbone(name, (192, 192)).make().eval()(photos(192))
        logits = functional.linear(features, *packaged_weights(name)[-2:])
    assert features.norm(dim=1).tolist() == pytest.approx(LENGTHS[name], rel=0.01)
    palaces, flowers = logits.topk(2).indices.tolist()
    assert {*palaces} <= {PALACE, BELL_COTE, 663}
    assert flowers[0] == flower


@pytest.mark.parametrize(("kernel", "size"), [(3, 8), (5, 8), (3, 7), (5, 7)])
def test_padding_is_that_of_the_network_the_weights_were_trained_in(kernel: int, size: int) -> None:
    """Windows start at the first pixel where the size is even: an odd padding stands behind."""
    convolution = SameConv(1, 1, kernel, stride=2, bias=False)
    torch.nn.init.zeros_(convolution.weight)
    before = (kernel - 1) // 2 if size % 2 else (kernel - 2) // 2
    convolution.weight.data[0, 0, before, before] = 1  # sees the pixel at which its window is placed
    image = torch.arange(float(size * size)).view(1, 1, size, size)
    assert torch.equal(convolution(image), image[:, :, ::2, ::2])
