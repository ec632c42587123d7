"""From settings to the data, the backbone and the method of a run."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tiny_runs import tiny_settings

from foster.data.download import Follower
from foster.data.scenario import class_order_from_seed
from foster.errors import DataError, DeviceError, SettingsError
from foster.experiment.engine import build_engine
from foster.experiment.folder import RunFolder
from foster.experiment.parts import build_loader, build_method, check_data, check_parts, load_scenario, normalisation
from foster.experiment.run import Experiment
from foster.networks import build_backbone
from foster.networks.adapted import IMAGENET_MEAN, IMAGENET_STD
from foster.settings.experiment import load_settings
from foster.system.signals import StopRequest

WITHOUT_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU may have it")


@pytest.mark.parametrize(
    "change",
    ["backbone=resnet33", "device=cuda:99", pytest.param("engine.kernels=on", marks=WITHOUT_GPU)],
)
def test_what_cannot_be_had_is_refused_before_any_data_is_looked_for(change: str, tmp_path: Path) -> None:
    settings = load_settings("cifar100-b0-inc10", [change], data=str(tmp_path / "nowhere"))
    with pytest.raises((DeviceError, SettingsError), match=change.partition("=")[0]):
        Experiment(settings, RunFolder(tmp_path / "run"), lambda event: None, StopRequest())
    assert not list(tmp_path.iterdir())


def test_a_run_begins_with_pretrained_weights_and_is_gentle_with_them(tmp_path: Path) -> None:
    file = tmp_path / "resnet8.safetensors"
    trained = build_backbone("resnet8")
    save_file(trained.state_dict(), file)
    settings = tiny_settings("bic", f"weights={file}")
    choice = check_parts(settings)
    assert (choice.mean, choice.std, choice.is_pretrained) == (IMAGENET_MEAN, IMAGENET_STD, True)
    engine = build_engine(settings.engine, "cpu", choice.mean, choice.std)
    scenario = load_scenario(settings)
    assert normalisation(choice, scenario) == (IMAGENET_MEAN, IMAGENET_STD)
    assert normalisation(check_parts(tiny_settings()), scenario) == (scenario.mean, scenario.std)
    method = build_method(settings, scenario, engine, Follower())
    assert torch.equal(method.new_backbone().state_dict()["stem.0.weight"], trained.state_dict()["stem.0.weight"])
    assert method.settings.first.learning_rate == pytest.approx(0.01)
    assert settings.published()["weights"] == file.name
    assert "weights" not in tiny_settings().nested()
    with pytest.raises(SettingsError, match="weights: "):
        check_parts(tiny_settings("bic", "weights=nothing.safetensors"))
    with pytest.raises(SettingsError, match="anything"):
        check_parts(tiny_settings("bic", "backbone=timm:anything"))


def test_an_order_seed_of_0_is_a_seed() -> None:
    assert load_scenario(tiny_settings("foster", "order_seed=0")).class_order == class_order_from_seed(6, 0)


def test_a_class_order_may_be_of_numbers(tmp_path: Path) -> None:
    (tmp_path / "order.txt").write_text("".join(f"{k}\n" for k in range(9, -1, -1)))
    for order in (list(range(9, -1, -1)), tmp_path / "order.txt"):
        scenario = load_scenario(load_settings("digits", [f"class_order={order}"]))
        assert scenario.class_names[:3] == ("nine", "eight", "seven")


def test_all_data_of_a_run_is_read_wherever_its_device_is(tmp_path: Path) -> None:
    check_data(tiny_settings("foster", "device=cuda:7"), Follower())
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"damaged")
    with pytest.raises(DataError, match=r"cifar-10-python"):
        check_data(tiny_settings("foster", "foster.unlabeled=cifar10", f"data={tmp_path}"), Follower())


def test_photos_are_loaded_as_the_settings_of_photos_say() -> None:
    follower = Follower()
    asked = ("photos.image_size=48", "photos.max_unreadable=3", "engine.resident=off")
    loader = build_loader(load_settings("imagenet100-b0-inc10", [*asked, "device=cpu"]), follower)
    assert (loader.image_size, loader.max_unreadable, loader.place) == (48, 3, "host")
    assert loader.follower is follower
