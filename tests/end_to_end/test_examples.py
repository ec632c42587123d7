"""The plug-ins in docs/examples: each runs, and goes on bit for bit after a cut at any step."""

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from registries import registries_kept
from tiny_runs import OVERRIDES, Interruption, assert_same, interrupted, outcome, resume, start

import foster
from foster.events import Event, PhaseStarted
from foster.settings.experiment import Settings, load_settings

EXAMPLES = sorted((Path(__file__).parents[2] / "docs" / "examples").glob("*.py"))
CHOICES = {"mean_teacher": "method=mean-teacher", "split_batchnorm": "backbone=resnet32_split4"}
"""The overrides that choose an example, if not `method=` and the name of its file."""


@pytest.fixture(params=EXAMPLES, ids=lambda path: path.stem)
def example(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    with registries_kept():
        yield request.param
    sys.modules.pop(request.param.stem, None)


def settings_of(example: Path) -> Settings:
    """3 tasks; phases of 2 to 4 epochs of 2 or 3 steps."""
    choice = CHOICES.get(example.stem, f"method={example.stem}")
    return load_settings("digits", [*OVERRIDES, "epochs_scale=0.03", choice], plugins=[str(example)])


def test_it_is_short_and_goes_on_bit_for_bit_after_a_cut_at_any_step(example: Path, tmp_path: Path) -> None:
    assert sum(bool(line) for line in example.read_text().splitlines()) <= 60
    settings = settings_of(example)
    start(settings, tmp_path / "whole")
    draw = random.Random(example.stem)
    task, num_steps = draw.randrange(3), draw.randrange(1, 4)

    def is_the_place(event: Event) -> bool:
        return isinstance(event, PhaseStarted) and event.task == task

    interrupted(settings, tmp_path / "cut", Interruption(is_the_place, num_steps))
    resume(tmp_path / "cut")
    assert_same(outcome(tmp_path / "cut"), outcome(tmp_path / "whole"))
    planned = foster.plan(tmp_path / "whole", plugins=[str(example)])
    assert len(planned.tasks) == 3
