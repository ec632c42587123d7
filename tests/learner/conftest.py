import copy
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from small_learners import digits, longer_learner

from foster.learner.learner import Learner
from foster.networks import build_backbone


@pytest.fixture(scope="session")
def taught() -> Learner:
    """Knows two digits; tests take copies."""
    learner = longer_learner()
    learner.learn(digits("zero", "one"))
    return learner


@pytest.fixture
def learner(taught: Learner) -> Learner:
    """One of each test's own, that learns more in a few steps."""
    learner = copy.deepcopy(taught)
    learner.configure(batch_size=64, epochs_scale=0.005)
    return learner


@pytest.fixture(scope="session")
def saved(taught: Learner, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return taught.save(tmp_path_factory.mktemp("bundles") / "v1")


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """Random weights of a ResNet-8 in a file: as good as pretrained ones for all but accuracy."""
    torch.manual_seed(5)
    save_file(build_backbone("resnet8").state_dict(), tmp_path / "resnet8.safetensors")
    return tmp_path / "resnet8.safetensors"
