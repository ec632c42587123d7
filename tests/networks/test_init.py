"""Backbones by name: their published sizes, their features, and the variants for cosine heads."""

import pytest
import torch
from registries import registries_kept
from torch import Tensor, nn

from foster.errors import SettingsError
from foster.networks import BACKBONES, build_backbone, cosine_variant, register_backbone


def num_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def images(num_images: int = 4, size: int = 32) -> Tensor:
    return torch.randn(num_images, 3, size, size, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def without_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights have no values on the device "meta", but to draw none takes most of the time."""
    for name in ("kaiming_uniform_", "kaiming_normal_"):
        monkeypatch.setattr(torch.nn.init, name, lambda weight, **options: weight)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Stem 432 + 32; one block: 2 * (16*16*9 + 32) = 4672; 32*16*9 + 32*32*9 + 128 = 13952; likewise 55552.
        ("resnet8", 464 + 4672 + 13952 + 55552),
        ("resnet14", 464 + 2 * 4672 + (13952 + 18560) + (55552 + 73984)),
        ("resnet32", 463_504),
        # Projections of 16*32 + 64 and 32*64 + 128 weights stand where the plain family pads with zeros.
        ("cosine_resnet8", 464 + 4672 + 13952 + 55552 + 576 + 2176),
        ("cosine_resnet32", 466_256),
        ("resnet18", 11_176_512),
        ("resnet18_fine_stem", 11_176_512 - 64 * 3 * (49 - 9)),
        ("resnet18_small_images", 11_176_512 - 64 * 3 * (49 - 9)),
        ("cosine_resnet18", 11_176_512),
        ("cosine_resnet18_fine_stem", 11_176_512 - 64 * 3 * (49 - 9)),
    ],
)
def test_a_backbone_has_exactly_the_published_number_of_parameters(
    name: str, expected: int, without_values: None
) -> None:
    with torch.device("meta"):
        assert num_parameters(build_backbone(name)) == expected


def fill_with_noise(weight: Tensor, **options: str) -> Tensor:
    """Numbers as `kaiming_normal_` draws them, again and again."""
    noise = (
        torch.randn(4099, generator=torch.Generator().manual_seed(0))
        * (2 / (len(weight) * weight[0, 0].numel())) ** 0.5
    )
    times = -(-weight.numel() // len(noise))
    return weight.data.copy_(noise.repeat(times)[: weight.numel()].view_as(weight))


@pytest.mark.parametrize(
    "name", ["resnet8", "cosine_resnet8", "resnet18", "cosine_resnet18_fine_stem", "efficientnet_lite0"]
)
def test_features_are_the_pooled_last_stage_at_any_image_size_and_negative_in_cosine_backbones_alone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # To draw first weights takes most of the time: torch's own are replaced by ours, and ours are the same few numbers.
    monkeypatch.setattr("torch.nn.init.kaiming_uniform_", lambda weight, **options: weight)
    monkeypatch.setattr("torch.nn.init.kaiming_normal_", fill_with_noise)
    backbone = build_backbone(name)
    with torch.no_grad():
        stages = backbone.stages(images(2, 16))
    if "resnet" in name:  # the blocks of the others end without one
        assert all((maps >= 0).all() for maps in stages[:-1])
    assert bool((stages[-1] < 0).any()) is name.startswith("cosine_")
    backbone.eval()
    for size in (8, 33):
        with torch.no_grad():
            features, maps = backbone(images(2, size)), backbone.stages(images(2, size))[-1]
        assert features.shape == (2, backbone.feature_size)
        torch.testing.assert_close(features, maps.flatten(2).mean(2))


def test_the_variant_of_a_backbone_for_cosine_heads_has_the_same_number_of_features(without_values: None) -> None:
    twins = {name.removeprefix("cosine_"): name for name in BACKBONES if name.startswith("cosine_")}
    assert len(twins) >= 9
    for name, twin in twins.items():
        assert cosine_variant(name) == twin
        with torch.device("meta"):
            assert build_backbone(cosine_variant(name)).feature_size == build_backbone(name).feature_size


def test_an_unknown_backbone_is_refused_with_the_closest_name() -> None:
    with pytest.raises(SettingsError, match=r"'resnet33'.*'resnet32'"):
        build_backbone("resnet33")
    with pytest.raises(SettingsError, match="resnet18"):
        build_backbone("perceptron")


def test_a_module_is_not_registered_in_place_of_what_makes_it() -> None:
    with registries_kept(), pytest.raises(SettingsError, match=r"'mine'.*class"):
        register_backbone("mine")(nn.Flatten())  # type: ignore[type-var]
