"""The plug-ins in docs/examples: each runs, and goes on bit for bit after a cut at any step."""

import copy
import random
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from PIL import Image
from registries import registries_kept
from tiny_runs import OVERRIDES, Interruption, assert_same, interrupted, outcome, resume, start

import foster
from foster.events import Event, PhaseStarted
from foster.networks import build_backbone
from foster.settings.experiment import Settings, load_settings

SPLIT_BATCHNORM = Path(__file__).parents[2] / "docs" / "examples" / "split_batchnorm.py"
EXAMPLES = sorted(set(SPLIT_BATCHNORM.parent.glob("*.py")) - {SPLIT_BATCHNORM})
METHODS = {"mean_teacher": "mean-teacher"}
"""The methods that are not called as their files."""


@pytest.fixture(params=EXAMPLES, ids=lambda path: path.stem)
def example(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    with registries_kept():
        yield request.param
    sys.modules.pop(request.param.stem, None)


def settings_of(example: Path) -> Settings:
    """2 tasks; phases of 2 to 4 epochs of 2 or 3 steps."""
    method = METHODS.get(example.stem, example.stem)
    chosen = [*OVERRIDES, "synthetic.num_classes=4", "epochs_scale=0.03", f"method={method}"]
    return load_settings("digits", chosen, plugins=[str(example)])


def test_it_is_short_and_goes_on_bit_for_bit_after_a_cut_at_any_step(example: Path, tmp_path: Path) -> None:
    assert sum(bool(line) for line in example.read_text().splitlines()) <= 60
    settings = settings_of(example)
    start(settings, tmp_path / "whole")
    draw = random.Random(example.stem)
    task, num_steps = draw.randrange(2), draw.randrange(1, 4)

    def is_the_place(event: Event) -> bool:
        return isinstance(event, PhaseStarted) and event.task == task

    interrupted(settings, tmp_path / "cut", Interruption(is_the_place, num_steps))
    resume(tmp_path / "cut")
    assert_same(outcome(tmp_path / "cut"), outcome(tmp_path / "whole"))
    planned = foster.plan(tmp_path / "whole", plugins=[str(example)])
    assert len(planned.tasks) == 2


def test_its_bundle_is_opened_and_learns_more(example: Path, tmp_path: Path) -> None:
    for colour, name in enumerate(("dark", "light", "lighter")):
        folder = tmp_path / ("first" if colour < 2 else "second") / name
        folder.mkdir(parents=True)
        for k in range(12):
            Image.new("RGB", (8, 8), (80 * colour + k, 80 * colour + 2 * k, 80 * colour)).save(folder / f"{k}.png")
    method = METHODS.get(example.stem, example.stem)
    few = {"backbone": "resnet8", "image_size": 8, "epochs_scale": 0.02, "device": "cpu"}
    learner = foster.Learner(method=method, plugins=[str(example)], **few)
    learner.learn(tmp_path / "first")
    opened = foster.load(learner.save(tmp_path / "bundle"), plugins=[str(example)])
    opened.learn(tmp_path / "second")
    again = foster.load(opened.save(tmp_path / "next"), plugins=[str(example)])
    assert again.class_names == ("dark", "light", "lighter")


def test_split_batchnorm_normalises_quarters_of_a_batch_as_four_processes_do() -> None:
    with registries_kept():
        split = runpy.run_path(str(SPLIT_BATCHNORM))["resnet32_split4"]()
    whole = build_backbone("resnet32")
    whole.load_state_dict(split.state_dict())
    quarters = torch.randn(16, 3, 8, 8).chunk(4)
    processes = [copy.deepcopy(whole) for _ in quarters]
    expected = torch.cat([process(quarter) for process, quarter in zip(processes, quarters, strict=True)])
    torch.testing.assert_close(split(torch.cat(quarters)), expected)
    torch.testing.assert_close(split.state_dict(), processes[0].state_dict())
