"""A method, a dataset and a backbone from a file outside the package are citizens like ours."""

import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from PIL import Image
from registries import TABLES, registries_kept
from torch.utils.data import TensorDataset
from typer.testing import CliRunner, Result

import foster
from foster.bundle.folder import BundleError, read_manifest
from foster.cli import app
from foster.events import CheckpointWritten, Event
from foster.experiment.parts import surveyed_facts
from foster.settings import plugins
from foster.settings.experiment import load_settings

PLUGIN = Path(__file__).parents[1] / "support" / "outside" / "my_lab.py"
PAGE = Path(__file__).parents[2] / "docs" / "plugins.md"
SETTINGS = """
plugins = ["my_lab"]
method = "smooth"
dataset = "stripes"
increment = 2
memory_total = 8
batch_size = 16
augmentation = "none"
backbone = "pooled"
device = "cpu"
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the plug-in and a settings file, which is the current one; all is forgotten afterwards."""
    shutil.copy(PLUGIN, tmp_path)
    (tmp_path / "mine.toml").write_text(SETTINGS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with registries_kept():
        yield tmp_path
    sys.modules.pop("my_lab", None)


def forget() -> None:
    """As a new process is: the plug-in was never imported."""
    for key, origin in list(plugins._ORIGINS.items()):
        if origin.plugin == "my_lab":
            del plugins._ORIGINS[key]
            for table in TABLES[:3]:
                table.pop(key[1], None)
    sys.modules.pop("my_lab", None)


def call(*arguments: object, code: int = 0) -> str:
    result: Result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


def stop_in_the_second_task(event: Event) -> None:
    if isinstance(event, CheckpointWritten) and (event.task, event.phase) == (1, "more"):
        raise KeyboardInterrupt


def test_a_run_is_planned_interrupted_and_resumed_and_stands_in_the_table(
    lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "learn" in call("plan", "mine.toml")
    whole = foster.run("mine.toml", seed=1)
    with pytest.raises(KeyboardInterrupt):
        foster.run("mine.toml", folder="one", seed=1, checkpoint_minutes=0, listener=stop_in_the_second_task)
    assert tomllib.loads(Path("one/settings.toml").read_text())["plugins"] == [str(lab / "my_lab.py")]
    forget()
    (lab / "elsewhere").mkdir()
    monkeypatch.chdir(lab / "elsewhere")
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder != str(lab)])
    Path("my_lab.py").write_text("raise SystemExit('a stranger')")
    assert "--trust-plugins" in call("resume", "../one", "-q", code=2)
    assert "smooth" in call("resume", "../one", "-q", "--trust-plugins"), "with the file that the run had"
    monkeypatch.chdir(lab)
    assert foster.load_results("one")[0].accuracy == whole.accuracy
    assert list(whole.environment["plugins"]) == ["my_lab"]
    assert foster.load_results("one")[0].environment == whole.environment
    forget()
    assert "smooth" in call("table", "one")


def test_a_sweep_runs_it_in_processes_of_its_own(lab: Path) -> None:
    folder = lab / "conf"
    folder.mkdir()
    for name in ("mine.toml", "my_lab.py"):
        (lab / name).rename(folder / name)
    call("sweep", "conf/mine.toml", "smooth.smoothing=0.5", "--out", "all")
    planned = call("sweep", "conf/mine.toml", "smooth.smoothing=0,0.5", "--out", "all", "--dry-run")
    assert [word for word in planned.split() if word in ("finished", "waiting")] == ["waiting", "finished"]
    assert "smooth" in call("table", "all")


@pytest.mark.parametrize("finished", [False, True], ids=["interrupted", "finished"])
def test_a_run_folder_imports_no_plug_in_until_its_user_says_so(lab: Path, finished: bool) -> None:
    with pytest.raises(KeyboardInterrupt):
        foster.run("mine.toml", folder="one", seed=1, checkpoint_minutes=0, listener=stop_in_the_second_task)
    if finished:
        foster.run("mine.toml", folder="one", seed=1, resume=True)
    forget()
    (lab / "my_lab.py").rename(lab / "one" / "my_lab.py")
    settings = Path("one/settings.toml")
    settings.write_text(settings.read_text().replace(str(lab / "my_lab.py"), str(lab / "one" / "my_lab.py")))
    (lab / "one" / "my_lab.py").write_text("raise SystemExit('a stranger')")
    looks = [
        "list presets one",
        "plan one",
        "plan one/settings.toml",
        "run one --out two",
        "sweep one seed=1,2 --dry-run",
        "sweep one seed=1,2",
    ]
    looks += [] if finished else ["resume one", "resume one device=cpu"]
    for look in looks:
        found = call(*look.split(), code=2)
        assert "my_lab.py" in found
        assert "--plugin my_lab" in found
        assert "--trust-plugins" in found
    if finished:
        assert "nothing is left to do" in call("resume", "one")
    assert "smooth" in call("table", "one")
    with pytest.raises(foster.SettingsError, match="import my_lab first"):
        foster.run("one")
    assert "a stranger" in call("plan", "one", "--trust-plugins", code=2)
    shutil.copy(PLUGIN, lab)
    assert "learn" in call("plan", "one", "--plugin", "my_lab"), "their own file, not that of the folder"


def test_a_plug_in_that_was_edited_in_the_middle_of_a_run_is_refused_or_recorded(lab: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        foster.run("mine.toml", folder="one", seed=1, checkpoint_minutes=0, listener=stop_in_the_second_task)
    forget()
    with (lab / "my_lab.py").open("a") as file:
        file.write("# edited")
    with pytest.raises(foster.FolderError, match=r"'my_lab' was edited .* allow_changed_plugin=True"):
        foster.run("mine.toml", folder="one", seed=1, resume=True)
    assert "--allow-changed-plugin" in call("resume", "one", "--trust-plugins", code=2)
    call("resume", "one", "--trust-plugins", "--allow-changed-plugin", "-q")
    environment = foster.load_results("one")[0].environment
    (before,) = environment["plugins_before"]
    assert before.keys() == environment["plugins"].keys() == {"my_lab"}
    assert before != environment["plugins"]
    forget()
    with (lab / "my_lab.py").open("a") as file:
        file.write("# edited again")
    with pytest.raises(foster.FolderError, match="allow_changed_plugin=True"):
        foster.run("mine.toml", folder="one", seed=1, resume=True)
    assert foster.run("mine.toml", folder="one", seed=1, resume=True, allow_changed_plugin=True).finished


@pytest.fixture
def photos(lab: Path) -> Path:
    for name, colour in (("dark", 10), ("light", 200)):
        folder = lab / "photos" / name
        folder.mkdir(parents=True)
        for k in range(12):
            Image.new("RGB", (8, 8), (colour + k, colour + 2 * k, colour)).save(folder / f"{k}.png")
    return lab / "photos"


def test_a_bundle_names_the_plug_in_that_it_needs_and_never_imports_it_by_itself(photos: Path) -> None:
    keys = ("method=smooth", "backbone=pooled", "device=cpu", "epochs_scale=0.5")
    call("learn", photos, "--bundle", "first", *keys, "--plugin", "my_lab", "-q")
    forget()
    assert "plug-ins my_lab" in call("info", "first")
    refused = call("predict", "first", photos, code=2)
    assert all(fact in refused for fact in ("'first'", "'my_lab'", "--plugin"))
    assert "my_lab" not in sys.modules
    assert "dark" in call("predict", "first", photos / "dark", "--plugin", "my_lab")
    forget()
    learner = foster.load("first", plugins=["my_lab"])
    Image.new("RGB", (8, 8), (100, 100, 100)).save(photos / "dark" / "more.png")
    learner.learn(photos)
    assert foster.load(learner.save("second")).predict(photos / "light")[0].label == "light"
    forged = read_manifest(Path("first")).model_copy(update={"method": "magic", "settings": {"method": "magic"}})
    Path("first/bundle.json").write_text(forged.text())
    with pytest.raises(BundleError, match=r"'first'.*'magic'"):
        foster.load("first")


def test_what_is_wrong_with_its_settings_is_told_as_for_ours(lab: Path) -> None:
    found = call("run", "mine.toml", "smooth.smothing=0.2", code=2)
    assert "'smooth.smothing'" in found
    assert "'smooth.smoothing'" in found
    assert "'stripes'" in call("run", "mine.toml", "dataset=strips", code=2)
    assert "'pooled'" in call("run", "mine.toml", "backbone=poled", code=2)
    assert "replay with smoothed labels" in call("list", "methods", "--plugin", "my_lab")
    assert "smoothing = 0.1" in call("list", "methods", "smooth", "--plugin", "my_lab.py")


def test_a_dataset_whose_numbers_nobody_told_is_counted(lab: Path) -> None:
    settings = load_settings("mine.toml", ["dataset=uncounted"])
    facts = surveyed_facts(settings)
    assert (facts.num_classes, facts.num_train, facts.image_size) == (4, 48, 8)


def test_the_page_on_plug_ins_shows_one_that_works(lab: Path) -> None:
    code = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (lab / "my_lab.py").write_text("\n\n".join(code))
    few = {"epochs_scale": 0.01, "batch_size": 30, "device": "cpu", "augmentation": "none"}
    keys = {"method": "replay", "dataset": "noise", "backbone": "tiny", "increment": 2, "memory_total": 8}
    assert len(foster.run(plugins=["my_lab"], **keys, **few).accuracy) == 2
    result = foster.run(plugins=["my_lab"], **keys | {"dataset": "darker", "tasks": "given"}, **few)
    assert (result.scenario, len(result.accuracy), result.task_sizes) == ("darker-tasks", 2, (4, 0))

    grey = torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    images = sys.modules["my_lab"].image_set(TensorDataset(grey, torch.tensor([0, 1, 0, 1, 1])), ["a", "b"])
    assert (images.labels.tolist(), images.class_names) == ([0, 1, 0, 1, 1], ("a", "b"))
    assert (images.images / 255 - grey).abs().max() < 0.003
