"""The training inside a learn: what is held out, rates behind a pretrained backbone, later learns as later tasks."""

import copy
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from small_learners import digits, planned, small_learner, together
from torch import Tensor

import foster
from foster.data.images import ImageSet, concatenate
from foster.data.photos.decode import image_id
from foster.data.task import Task
from foster.errors import SettingsError, TrainingError
from foster.events import Event, TaskStarted
from foster.learner.learner import Learner
from foster.learner.plan import quotas
from foster.learner.training_plan import is_held_out, kept_held_out
from foster.methods.replay import Replay
from foster.training.phase import Evaluate, Phase
from foster.training.task import TaskState, Trainer

STEM = "branches.0.stem.0.weight"


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
    return learner.knowledge.network.state_dict()[STEM]


def stem_in(file: Path) -> Tensor:
    from safetensors.torch import load_file

    return load_file(file)["stem.0.weight"]


EXPECTED = {
    "foster": {"1 learn": 0.01, "2 boost": 0.01, "2 compress": 0.01},
    "der": {"1 learn": 0.01, "2 expand": 0.01},
}


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


def test_joint_starts_every_learn_from_the_pretrained_weights_and_says_where_they_are_gone(
    weights: Path, rates: dict[str, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = small_learner("joint", weights=str(weights), batch_size=None)
    learner.learn(*digits("zero", "one"))
    assert not torch.allclose(stem(learner), stem_in(weights), atol=1e-4)
    bundle = learner.save(tmp_path / "bundle")
    assert str(tmp_path) not in (bundle / "bundle.json").read_text()
    moved = shutil.move(weights, tmp_path / "moved.safetensors")
    monkeypatch.chdir(bundle)
    with pytest.raises(SettingsError, match=r"weights.*'resnet8\.safetensors'"):
        foster.load(bundle, device="cpu").learn(*digits("two", "three"))
    again = foster.load(bundle, device="cpu")
    again.learn(*digits("zero", first=40, last=60))  # nothing starts anew
    assert again.knowledge.exemplars.num_images > learner.knowledge.exemplars.num_images, "all images are kept"
    learner = foster.load(bundle, device="cpu")
    learner.learn(*digits("two", "three"), weights=str(moved), learning_rate_scale=1e-9)
    assert torch.allclose(stem(learner), stem_in(Path(moved)), atol=1e-4)
    learner = foster.load(bundle, device="cpu")
    learner.configure(["weights="])
    learner.learn(*digits("two", "three"))
    assert rates["2 learn"] == 0.0125


def head_weights(learner: Learner) -> torch.Tensor:
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


def test_earlier_classes_are_familiar_by_their_exemplars() -> None:
    learner = small_learner(validation_share=0.3)
    learner.learn(digits("zero", "one"))
    exemplars = learner.knowledge.exemplars.memory.counts.tolist()
    report = learner.learn(digits("two"))
    assert learner.knowledge.familiarity is not None
    assert learner.knowledge.familiarity.statistics.counts.tolist() == [*exemplars, report.num_trained]


def random_images(*counts: int, seed: int = 0) -> ImageSet:
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    chance = torch.Generator().manual_seed(seed)
    images = torch.randint(256, (len(labels), 3, 4, 4), dtype=torch.uint8, generator=chance)
    return ImageSet(images, labels, tuple(f"class {k}" for k in range(len(counts))))


def mask_of(images: ImageSet, share: float) -> torch.Tensor:
    return is_held_out(images, [image_id(image) for image in images.images], share)


def test_every_class_spares_its_share_but_never_its_last_images() -> None:
    images = random_images(1, 2, 3, 10, 100)
    held_out = images.select(mask_of(images, 0.1)).class_counts()
    assert held_out.tolist() == [0, 0, 1, 1, 10]
    assert images.select(mask_of(images, 0.5)).class_counts().tolist() == [0, 0, 2, 5, 50]
    assert not mask_of(images, 0.0).any()


def test_the_choice_depends_on_the_pixels_alone() -> None:
    images = random_images(50)
    order = torch.randperm(50, generator=torch.Generator().manual_seed(3))
    assert torch.equal(mask_of(images.select(order), 0.2), mask_of(images, 0.2)[order])


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_equal_pictures_of_different_classes_stand_on_the_same_side(share: float) -> None:
    """The second class holds the first one and as many pictures more, so that its tenth is another."""
    images = random_images(40, 40)
    copied = ImageSet(images.images[:40], torch.ones(40, dtype=torch.int64), images.class_names)
    everything = concatenate(images, copied)
    alone = [mask_of(everything.of_classes(k, k + 1), share) for k in (0, 1)]
    assert not torch.equal(alone[0], alone[1][40:]), "each class would choose for itself"
    mask = mask_of(everything, share)
    assert torch.equal(mask[:40], mask[80:])
    assert torch.equal(mask[:40], alone[0] & alone[1][40:])
    assert mask[:40].any()
    assert mask[40:80].any()


def test_what_was_learned_is_not_held_out_and_known_classes_need_none() -> None:
    images = random_images(100, 4, 100, 4)
    hashes = [image_id(image) for image in images.images]
    learned = set(hashes[:40])
    mask = is_held_out(images, hashes, 0.1, num_known=2, learned=learned)
    assert images.select(mask).class_counts().tolist() == [6, 0, 10, 1]
    assert not mask[:40].any()
    everything = is_held_out(images, hashes, 0.1, learned=set(hashes))
    assert not everything.any()


def test_a_photo_that_is_given_twice_is_trained_on_or_held_out_once() -> None:
    images = digits("zero", "one", last=20)
    once, twice = planned(small_learner(), images), planned(small_learner(), together(images, images))
    assert twice.report.num_repeated == 40
    for part in ("train", "held_out"):
        assert getattr(twice, part).stack.ids() == getattr(once, part).stack.ids()


@pytest.mark.parametrize(
    ("quota", "share", "expected"),
    [
        *((20, 0.1, (18, 2)), (5, 0.1, (4, 1)), (2, 0.5, (1, 1)), (1, 0.5, (1, 0)), (20, 0.0, (20, 0))),
        *((None, 0.1, (None, None)), (None, 0.0, (None, 0))),
    ],
)
def test_held_out_images_take_their_share_of_the_quota(quota: int | None, share: float, expected: object) -> None:
    assert quotas(quota, share) == expected


def test_what_is_kept_of_fewer_is_kept_of_more() -> None:
    images = random_images(10, 4)
    two, five = kept_held_out(images, 2), kept_held_out(images, 5)
    assert [*map(len, two)] == [2, 2]
    assert [*map(len, five)] == [5, 4]
    assert five[0][:2] == two[0]
    assert [*map(len, kept_held_out(images, None))] == [10, 4]


def test_a_method_that_keeps_a_tensor_which_a_bundle_would_lose_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Replay.phases

    def keeping(method: Replay, task: Task) -> Iterator[Phase | Evaluate]:
        yield from usual(method, task)
        method.network.branches[0].centres = torch.ones(2)

    monkeypatch.setattr(Replay, "phases", keeping)
    with pytest.raises(TrainingError, match="centres"):
        small_learner("replay", memory_total=20, epochs_scale=0.002).learn(digits("zero", "one", last=20))
