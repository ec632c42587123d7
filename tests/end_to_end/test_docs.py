"""The pages and the notebook in docs/ as they stand: what they show works."""

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from registries import registries_kept
from small_learners import digits, small_learner
from typer.testing import CliRunner

import foster
from foster.cli import app
from foster.data import sources
from foster.data.images import ImageSet
from foster.events import EpochEnded, Event
from foster.settings.experiment import load_settings

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, kind: str) -> list[str]:
    """The code of a page, block by block."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def as_if_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In an empty folder; what is registered and imported there is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # a notebook's takes its place
    with registries_kept():
        yield
    sys.modules.pop("my_lab", None)


@pytest.fixture
def few_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of the images of the digits."""

    def read_few(request: sources.Request) -> tuple[ImageSet, ImageSet]:
        train, test = read_all(request)
        return train.select(torch.arange(0, len(train), 16)), test.select(torch.arange(0, len(test), 4))

    read_all = sources.read_digits
    monkeypatch.setattr(sources, "read_digits", read_few)


@pytest.mark.usefixtures("few_digits")
def test_your_own_method_is_thirty_lines_and_works_as_the_page_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    method, use, *_ = blocks("own-method.md", "python")
    told = [line for line in method.splitlines() if line.strip() and not line.startswith("from ")]
    assert len(told) <= 30
    (tmp_path / "my_lab.py").write_text(method)
    (commands,) = blocks("own-method.md", "bash")
    lines = [line for line in commands.splitlines() if not re.match(r"foster (sweep|learn) ", line)]
    assert len(lines) == 3
    monkeypatch.syspath_prepend(tmp_path)
    exec(use, {})
    for line in lines:
        done = CliRunner().invoke(app, shlex.split(line)[1:])
        assert done.exit_code == 0, (line, done.output)
        print(done.output)
    out = capsys.readouterr().out
    assert "digits-b0-inc2: method balanced" in out
    assert "<Result digits-b0-inc2, balanced, seed 1993: 5 tasks" in out
    assert "20 tune" not in out
    assert "2 tune" in out
    assert "runs/balanced" in out


def test_a_part_of_foster_is_changed_as_the_page_shows_it_and_nothing_else(tmp_path: Path) -> None:
    *_, method, _ = blocks("own-method.md", "python")
    (tmp_path / "my_foster.py").write_text(method)
    plugins = [str(tmp_path / "my_foster.py")]
    shape = {"num_classes": 4, "train_per_class": 12, "image_size": 8}
    keys = {"dataset": "synthetic", "synthetic": shape, "backbone": "resnet8"}
    few = {"epochs_scale": 0.02, "batch_size": 16, "device": "cpu", "augmentation": "shift"}
    shared = {"plugins": plugins, "base_classes": 2, "increment": 2, **keys, **few}
    losses: dict[str, list[dict[str, float]]] = {"foster": [], "weighted": []}

    for name, seen in losses.items():

        def listen(event: Event, seen: list[dict[str, float]] = seen) -> None:
            if isinstance(event, EpochEnded) and event.phase == "boost":
                seen.append(event.losses)

        foster.run("cifar100-b50-inc10", method=name, **shared, listener=listen)
    (theirs, *_), (ours, *_) = losses.values()
    assert ours["L_FE"] < 0.7 * theirs["L_FE"]
    assert ours["L_LA"] == pytest.approx(theirs["L_LA"], rel=0.1)
    for changes in ([], ["recipe=plus"], ["foster.beta_boost=0.9"]):
        known, own = (
            load_settings("cifar100-b50-inc10", [*changes, f"method={name}"], plugins=plugins).options.model_dump()
            for name in losses
        )
        assert own == known | {"enhancement_weight": 0.5}
    own = load_settings("cifar100-b50-inc10", ["method=weighted", "weighted.beta_boost=0.9"], plugins=plugins)
    assert own.options.beta_boost_of(1) == 0.9


def test_a_method_that_uses_all_of_a_batch_works_as_the_page_shows_it(tmp_path: Path) -> None:
    *_, method = blocks("own-method.md", "python")
    (tmp_path / "my_lab.py").write_text(method)
    shape = {"num_classes": 6, "train_per_class": 12, "image_size": 8}
    keys = {"dataset": "synthetic", "synthetic": shape, "backbone": "resnet8"}
    few = {"epochs_scale": 0.02, "batch_size": 16, "memory_total": 12, "device": "cpu", "augmentation": "shift"}
    result = foster.run("digits", method="recall", plugins=["my_lab"], **keys, **few)
    assert len(result.accuracy) == 3
    learner = small_learner("recall")
    learner.learn(*digits("one", "two", last=20))
    learner.save(tmp_path / "bundle")  # which keeps no logits beside its exemplars
    again = foster.load(tmp_path / "bundle", device="cpu")
    again.learn(*digits("three", last=20))
    assert again.class_names == ("one", "two", "three")


@pytest.mark.usefixtures("few_digits")
def test_the_notebook_runs_as_it_stands(tmp_path: Path) -> None:
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    cells = [cell for cell in json.loads((DOCS / "notebook.ipynb").read_text())["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] for cell in cells), "committed without outputs"
    shell = InteractiveShell(config=Config({"HistoryManager": {"enabled": False}}))
    shown = []
    for cell in cells:
        done = shell.run_cell("".join(cell["source"]))
        done.raise_error()
        shown.append(shell.display_formatter.format(done.result)[0])
    assert any("image/png" in data for data in shown), "a figure is shown"
    texts = "\n".join(data["text/plain"] for data in shown)
    assert "digits-b0-inc5: method foster" in texts
    for method in ("finetune", "replay", "foster", "balanced"):
        assert re.search(rf"^{method} .*\d\d\.\d", texts, re.MULTILINE), f"{method} stands in the table"
    assert not list(tmp_path.iterdir()), "nothing is written"
