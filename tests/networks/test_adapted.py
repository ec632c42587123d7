import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from foster.errors import SettingsError
from foster.networks.adapted import choose_backbone
from foster.networks.network import Backbone


class Maps(nn.Module):
    """Gives maps `[N, 7, h, w]`."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 7, 3, padding=1)
        self.norm = nn.BatchNorm2d(7)

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = self.norm(self.conv(images))
        return out


def flat() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 5))


def test_a_module_that_gives_features_is_a_backbone() -> None:
    choice = choose_backbone(flat, (8, 8))
    backbone = choice.make()
    images = torch.randn(4, 3, 8, 8)
    assert isinstance(backbone, Backbone)
    assert backbone.feature_size == 5
    assert backbone(images).shape == (4, 5)
    assert [stage.shape for stage in backbone.stages(images)] == [(4, 5, 1, 1)]
    assert choice.name == "custom:flat"
    assert not choice.is_builtin


def test_a_module_that_gives_maps_is_averaged_over_positions() -> None:
    module = Maps().eval()
    backbone = choose_backbone(module, (8, 8)).make().eval()
    images = torch.randn(2, 3, 8, 8)
    assert torch.allclose(backbone(images), module(images).mean(dim=(2, 3)))
    assert backbone.feature_size == 7


def test_every_backbone_is_a_copy_of_the_given_module() -> None:
    module = flat()
    choice = choose_backbone(module, (8, 8))
    first, second = choice.make(), choice.make()
    with torch.no_grad():
        next(first.parameters()).fill_(1.0)
    assert not torch.equal(next(second.parameters()), next(first.parameters()))
    assert torch.equal(next(second.parameters()), next(module.parameters()))


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Linear(4, 4), "cannot take images of 8 x 8"),
        (nn.Flatten(0), r"\[N, d\]"),
        (lambda: NeedsLargeImages(), "cannot take images of 8 x 8"),
    ],
)
def test_a_module_that_is_no_backbone_is_refused_with_a_reason(module: Any, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        choose_backbone(module, (8, 8)).make()


class Tiny(Backbone):
    """As CONTRIBUTING.md says how to write one, with 7 features."""

    feature_size = 7

    def __init__(self) -> None:
        super().__init__()
        self.maps = Maps()

    def stages(self, images: Tensor) -> list[Tensor]:
        return [self.maps(images)]


class NeedsLargeImages(Tiny):
    def stages(self, images: Tensor) -> list[Tensor]:
        return [self.maps(images)[:, :, 4:-4, 4:-4].reshape(len(images), 7, 8, 8)]


def test_a_backbone_that_keeps_its_word_is_taken_as_it_is() -> None:
    made = choose_backbone(Tiny, (8, 8)).make()
    assert isinstance(made, Tiny)
    assert made.training
    assert int(made.maps.norm.num_batches_tracked) == 0


def test_a_backbone_that_began_with_weights_is_known_by_them_when_the_file_is_gone() -> None:
    trained = choose_backbone("resnet8", (8, 8), "gone.safetensors", is_trained=True)
    assert trained.is_pretrained
    assert trained.make().feature_size == 64
    assert choose_backbone("resnet8", (8, 8), "gone.safetensors").is_pretrained
    assert not choose_backbone("resnet8", (8, 8)).is_pretrained


def test_a_timm_that_cannot_be_imported_is_one_clear_line_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "timm.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SettingsError, match="operator torchvision::nms does not exist"):
        choose_backbone("timm:resnet18", (64, 64))


def test_timm_models_come_pretrained_at_first_and_bare_for_a_trained_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def create_model(name: str, pretrained: bool, num_classes: int) -> nn.Module:
        assert (name, num_classes) == ("tiny", 0)
        asked.append(pretrained)
        return flat()

    timm = SimpleNamespace(
        is_model=lambda name: name == "tiny",
        list_models=lambda pattern: ["tiny"],
        create_model=create_model,
        get_pretrained_cfg=lambda name: SimpleNamespace(mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2)),
    )
    monkeypatch.setitem(sys.modules, "timm", timm)
    fresh, trained = choose_backbone("timm:tiny", (8, 8)), choose_backbone("timm:tiny", (8, 8), is_trained=True)
    assert fresh.make().feature_size == trained.make().feature_size == 5
    assert asked == [True, False]
    assert (fresh.mean, fresh.is_pretrained) == ((0.5, 0.5, 0.5), True)
    assert trained.is_pretrained, "it began so"
    with pytest.raises(SettingsError, match=r"'tini'.*tiny"):
        choose_backbone("timm:tini", (8, 8))
