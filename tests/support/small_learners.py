"""Learners of some handwritten digits, in a second or two."""

from functools import cache
from typing import Any

import torch
from torch import Tensor

import foster
from foster.data.images import ImageSet
from foster.data.photos.find import find_photos
from foster.data.sources import load as load_dataset
from foster.learner.learner import Learner
from foster.learner.plan import make_plan
from foster.learner.training_plan import TrainingPlan, plan_training

Labelled = tuple[Tensor, list[str]]


@cache
def training_digits() -> ImageSet:
    return load_dataset("digits").train


@cache
def unseen_digits() -> ImageSet:
    return load_dataset("digits").test


def digits(*names: str, first: int = 0, last: int | None = 40, data: ImageSet | None = None) -> Labelled:
    """Some images of each named digit, with their names."""
    data = data or training_digits()
    ids = [data.class_names.index(name) for name in names]
    stacks = [data.of_classes(k, k + 1).images[first:last] for k in ids]
    return torch.cat(stacks), [name for name, stack in zip(names, stacks, strict=True) for _ in stack]


def together(*parts: Labelled) -> Labelled:
    return torch.cat([images for images, _ in parts]), [name for _, names in parts for name in names]


def small_learner(method: str = "foster", **settings: Any) -> Learner:
    """One that trains no longer than it must: few steps, of large batches."""
    plain = {"backbone": "resnet8", "batch_size": 64, "epochs_scale": 0.005, "memory_total": 60, "device": "cpu"}
    return foster.Learner(method, **{**plain, **settings})


def longer_learner(method: str = "foster", **settings: Any) -> Learner:
    """One that learns enough to tell digits apart."""
    return small_learner(method, **{"batch_size": None, "epochs_scale": 0.02, **settings})


def planned(learner: Learner, photos: Labelled) -> TrainingPlan:
    """What a first learn of these images decides before anything is trained."""
    return plan_training(make_plan(None, learner.settings, find_photos(*photos)))


def is_same(one: Learner, other: Learner) -> bool:
    """Whether the weights of both are equal, bit for bit."""
    first, second = (learner.knowledge.network.state_dict() for learner in (one, other))
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
