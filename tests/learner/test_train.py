"""The training inside a learn: gentle where the backbone began pretrained, and later learns as later tasks."""

import copy
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from small_learners import digits, small_learner
from torch import Tensor

import foster
from foster.errors import SettingsError
from foster.events import Event, PhaseStarted, TaskStarted
from foster.learner.learner import Learner
from foster.networks import build_backbone
from foster.training.phase import Phase
from foster.training.task import TaskState, Trainer

STEM = "branches.0.stem.0.weight"


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A file with the weights of a ResNet-8."""
    from safetensors.torch import save_file

    torch.manual_seed(5)
    save_file(build_backbone("resnet8").state_dict(), tmp_path / "resnet8.safetensors")
    return tmp_path / "resnet8.safetensors"


@pytest.fixture
def rates(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """The learning rate of every phase that was trained, but for second tries."""
    found: dict[str, float] = {}
    train = Trainer.train

    def recorded(trainer: Trainer, phase: Phase, state: TaskState, save: Callable[[], None] | None) -> None:
        if not phase.name.endswith(" again"):
            found[f"{state.task + 1} {phase.name}"] = round(phase.fit.learning_rate, 6)
        train(trainer, phase, state, save)

    monkeypatch.setattr(Trainer, "train", recorded)
    return found


def stem(learner: Learner) -> Tensor:
    assert learner.knowledge is not None
    return learner.knowledge.network.state_dict()[STEM]


def stem_in(file: Path) -> Tensor:
    from safetensors.torch import load_file

    return load_file(file)["stem.0.weight"]


EXPECTED = {
    "foster": {"1 learn": 0.01, "2 boost": 0.01, "2 compress": 0.01},
    "der": {"1 learn": 0.01, "2 expand": 0.01},
    "bic": {"1 learn": 0.01, "2 learn": 0.01, "2 correct": 0.1},
}
"""The correction of BiC trains two numbers and no backbone."""


@pytest.mark.parametrize("method", EXPECTED)
def test_a_pretrained_backbone_is_trained_gently_in_later_learns_too(
    method: str, weights: Path, rates: dict[str, float], tmp_path: Path
) -> None:
    learner = small_learner(method, weights=str(weights))
    learner.learn(*digits("zero", "one"))
    learner = foster.load(learner.save(tmp_path / "bundle"), device="cpu")
    weights.unlink()  # what goes on from trained weights does not need it
    learner.learn(*digits("two", "three"))
    assert rates == EXPECTED[method]


def test_a_backbone_from_scratch_keeps_the_published_rates_of_its_batch_size(rates: dict[str, float]) -> None:
    learner = small_learner(batch_size=None)
    learner.learn(*digits("zero", "one"))
    learner.learn(*digits("two", "three"), batch_size=128)
    assert rates == {"1 learn": 0.0125, "2 boost": 0.1, "2 compress": 0.1}


def test_joint_starts_every_learn_from_the_pretrained_weights(
    weights: Path, rates: dict[str, float], tmp_path: Path
) -> None:
    learner = small_learner("joint", weights=str(weights))
    learner.learn(*digits("zero", "one"))
    assert not torch.allclose(stem(learner), stem_in(weights), atol=1e-4)
    learner.learn(*digits("two", "three"), learning_rate_scale=1e-9)
    assert torch.allclose(stem(learner), stem_in(weights), atol=1e-4)
    assert rates == {"1 learn": 0.01, "2 learn": 0}
    assert str(tmp_path) not in (learner.save(tmp_path / "bundle") / "bundle.json").read_text()


def test_joint_says_one_clear_line_where_its_pretrained_weights_are_gone(
    weights: Path, rates: dict[str, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = small_learner("joint", weights=str(weights), batch_size=None)
    learner.learn(*digits("zero", "one"))
    bundle = learner.save(tmp_path / "bundle")
    moved = shutil.move(weights, tmp_path / "moved.safetensors")
    monkeypatch.chdir(bundle)
    message = (
        "weights: there is no file 'resnet8.safetensors'; method 'joint' starts anew from it in every learn: "
        "say where it is now with weights=PATH, or start from random weights with weights="
    )
    with pytest.raises(SettingsError) as error:
        foster.load(bundle, device="cpu").learn(*digits("two", "three"))
    assert str(error.value) == message
    foster.load(bundle, device="cpu").learn(*digits("zero", first=40, last=60))  # nothing starts anew
    learner = foster.load(bundle, device="cpu")
    learner.learn(*digits("two", "three"), weights=str(moved), learning_rate_scale=1e-9)
    assert torch.allclose(stem(learner), stem_in(Path(moved)), atol=1e-4)
    learner = foster.load(bundle, device="cpu")
    learner.configure(["weights="])
    learner.learn(*digits("two", "three"))
    assert rates["2 learn"] == 0.0125


def head_weights(learner: Learner) -> torch.Tensor:
    assert learner.knowledge is not None
    return learner.knowledge.network.get_parameter("head.weight").detach()


def test_the_third_learn_is_task_two_and_has_the_second_value_of_a_list() -> None:
    learner = small_learner(foster={"beta_boost": [0.5, 0.9]})
    learner.learn(digits("zero", "one", last=20))
    learner.learn(digits("two", last=20))
    told: list[Event] = []
    found = {}
    for betas in ((0.5, 0.9), (0.1, 0.9), (0.5, 0.1)):
        third = copy.deepcopy(learner)
        third.learn(digits("three"), listener=told.append, foster={"beta_boost": betas})
        found[betas] = head_weights(third)
    assert [event.task for event in told if isinstance(event, TaskStarted)] == [2, 2, 2]
    assert torch.equal(found[0.5, 0.9], found[0.1, 0.9])
    assert not torch.equal(found[0.5, 0.9], found[0.5, 0.1])


def test_where_no_class_is_new_nothing_is_aligned() -> None:
    learner = small_learner(foster={"alignment": "weights", "align_teacher": True, "align_student": True})
    learner.learn(digits("zero", "one"))
    told: list[Event] = []
    report = learner.learn(digits("one", first=50, last=90), listener=told.append)
    assert [event.phase for event in told if isinstance(event, PhaseStarted)] == ["boost", "compress"]
    assert (report.new_classes, report.more_of) == ((), {"one": 40})
