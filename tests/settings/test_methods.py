"""The defaults of every method: its usual schedules and constants."""

from itertools import combinations
from typing import Any

import pytest

from foster.settings.fit import FitSettings
from foster.settings.methods import METHOD_SETTINGS, FosterSettings

USUAL_FIRST = ("milestones", 200, (60, 120, 170), 0.1, 5e-4)
FOSTER_FIRST = ("cosine", 200, (), 0.1, 5e-4)
BIC = ("milestones", 170, (60, 100, 140), 0.1, 2e-4)
PODNET = ("cosine", 160, (), 0.1, 5e-4)
COIL = ("milestones", 160, (80, 120), 0.1, 5e-4)

SCHEDULES = {
    # kind, epochs, milestones, learning rate, weight decay
    "finetune": {"first": USUAL_FIRST, "later": ("milestones", 80, (40, 70), 0.1, 2e-4)},
    "replay": {"first": USUAL_FIRST, "later": ("milestones", 70, (30, 50), 0.1, 2e-4)},
    "lwf": {
        "first": ("milestones", 200, (60, 120, 160), 0.1, 5e-4),
        "later": ("milestones", 250, (60, 120, 180, 220), 0.1, 2e-4),
    },
    "icarl": {"first": USUAL_FIRST, "later": ("milestones", 170, (80, 120), 0.1, 2e-4)},
    "bic": {"first": BIC, "later": BIC, "correction": BIC},
    "wa": {"first": USUAL_FIRST, "later": ("milestones", 170, (60, 100, 140), 0.1, 2e-4)},
    "podnet": {"first": PODNET, "later": PODNET, "finetune": ("cosine", 20, (), 0.005, 5e-4)},
    "coil": {"first": COIL, "later": COIL},
    "der": {"first": USUAL_FIRST, "later": ("milestones", 170, (80, 120, 150), 0.1, 2e-4)},
    "foster": {
        "first": FOSTER_FIRST,
        "boost": ("cosine", 170, (), 0.1, 5e-4),
        "compress": ("cosine", 130, (), 0.1, 0.0),
    },
    "joint": {"first": FOSTER_FIRST},
    "slda": {"first": FOSTER_FIRST},
    "ridge": {"first": FOSTER_FIRST},
}

CONSTANTS: dict[str, dict[str, Any]] = {
    "lwf": {"temperature": 2.0, "distillation_weight": 3.0},
    "icarl": {"temperature": 2.0},
    "bic": {"temperature": 2.0, "validation_share": 0.1},
    "wa": {"temperature": 2.0, "weighting": "fixed", "distillation_weight": 2.0},
    "podnet": {"num_proxies": 10, "spatial_weight": 5.0, "flat_weight": 1.0, "margin": 0.6, "hinge": False},
    "coil": {"temperature": 2.0, "sinkhorn": 0.464, "norm": 3.0, "transport_weight": 1e-3},
    "der": {"align": True},
    "slda": {
        "first_turns": "none",
        "train_backbone": True,
        "num_stages": 2,
        "grid": 2,
        "mirror": True,
        "shrinkage": 0.3,
    },
    "ridge": {
        "first_turns": "none",
        "train_backbone": True,
        "num_stages": 3,
        "grid": 2,
        "mirror": True,
        "num_features": 8192,
        "penalty": 100.0,
    },
}
"""What a method is published with, beside its schedules."""


@pytest.mark.parametrize("name", METHOD_SETTINGS)
def test_every_phase_of_every_method_has_its_usual_schedule(name: str) -> None:
    fits = {key: value for key, value in METHOD_SETTINGS[name]() if isinstance(value, FitSettings)}
    found = {
        key: (fit.schedule, fit.epochs, fit.milestones, fit.learning_rate, fit.weight_decay)
        for key, fit in fits.items()
    }
    assert found == SCHEDULES.get(name), f"write down the schedule of '{name}', from its paper, in SCHEDULES above"
    assert {(fit.momentum, fit.decay) for fit in fits.values()} == {(0.9, 0.1)}


@pytest.mark.parametrize("name", CONSTANTS)
def test_the_constants_of_a_method_are_the_published_ones(name: str) -> None:
    found = {key: value for key, value in METHOD_SETTINGS[name]() if not isinstance(value, FitSettings)}
    assert found == CONSTANTS[name]


def test_what_foster_leaves_to_the_learner_is_the_published_number_in_a_run() -> None:
    options = FosterSettings()
    assert (options.beta_boost_of(1), options.beta_of_compression) == (0.95, 0.97)


@pytest.mark.parametrize(
    ("fact", "value", "names"),
    [
        ("published_augmentation", "auto", ["foster", "joint", "slda", "ridge"]),
        ("classifies_by", "nearest_mean", ["icarl", "podnet", "coil"]),
        ("uses_memory", False, ["finetune", "lwf", "joint", "slda", "ridge"]),
        ("keeps_all_images", True, ["joint"]),
        ("refreshes_by_phases", True, ["foster", "slda", "ridge"]),
    ],
)
def test_facts_of_methods_are_those_of_their_papers(fact: str, value: object, names: list[str]) -> None:
    assert [name for name, settings in METHOD_SETTINGS.items() if getattr(settings, fact) == value] == names


@pytest.mark.parametrize(
    ("first", "second"),
    list(combinations([("boost_branches", 2), ("sums", "probabilities"), ("compression", False)], 2)),
)
def test_several_branches_sums_of_probabilities_and_no_compression_exclude_each_other(
    first: tuple[str, Any], second: tuple[str, Any]
) -> None:
    for one in (first, second):
        assert FosterSettings(**dict([one])).problem(3) is None
    problem = str(FosterSettings(**dict([first, second])).problem(3))
    assert f"foster.{first[0]}" in problem
    assert f"foster.{second[0]}" in problem
