"""Which folder a run of a sweep has, whatever was swept into the same place before."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tiny_sweeps

from foster.data.images import ImageSet
from foster.data.sources import Request, register_dataset
from foster.errors import FolderError, SettingsError
from foster.experiment import parts
from foster.settings.datasets import CATALOGUE
from foster.sweep.grid import PlannedRun, plan_runs
from foster.sweep.run import placed

TINY = [*tiny_sweeps.TINY, "epochs_scale=0.005"]


@pytest.fixture
def hold(tmp_path: Path) -> Callable[..., list[PlannedRun]]:
    """Does as if a sweep had run into the folder, and returns its runs."""

    def make(*overrides: str, is_finished: bool = True) -> list[PlannedRun]:
        runs = placed(plan_runs("digits", overrides), tmp_path)
        for run in runs:
            folder = tmp_path / run.name
            folder.mkdir(exist_ok=True)
            (folder / "settings.toml").write_text(run.settings.toml())
            (folder / "results.json").write_text(f'{{"finished": {str(is_finished).lower()}}}')
        return runs

    return make


def names(runs: list[PlannedRun]) -> list[str]:
    return [run.name for run in runs]


def num_folders(path: Path) -> int:
    return len(list(path.iterdir()))


def test_sweeps_that_overlap_share_their_runs_whatever_their_axes(
    hold: Callable[..., list[PlannedRun]], tmp_path: Path
):
    wide = hold("method=foster,replay", "seed=1,2")
    assert names(hold("method=foster", "seed=1,2")) == names(wide)[:2]
    assert names(hold("seed=2,1")) == [wide[1].name, wide[0].name]
    assert names(hold("seed=2", "method=replay")) == names(wide)[3:]
    assert num_folders(tmp_path) == 4
    hold("method=foster,replay,wa", "seed=1,2,3")
    assert num_folders(tmp_path) == 9


def test_the_same_settings_are_the_same_run_however_they_were_given(
    hold: Callable[..., list[PlannedRun]], tmp_path: Path
):
    (first,) = hold("epochs_scale=0.5", "batch_size=64")
    assert names(hold("batch_size=0x40", "epochs_scale=5e-1")) == [first.name]
    (tmp_path / first.name).rename(tmp_path / "my own name")
    assert names(hold("batch_size=64", "epochs_scale=0.5")) == ["my own name"]


def test_a_run_of_other_settings_keeps_its_name_and_the_new_one_gets_an_ending(
    hold: Callable[..., list[PlannedRun]], tmp_path: Path
):
    """As after a change in the file that the settings come from."""
    (run,) = plan_runs("digits", [])
    (tmp_path / run.name).mkdir()
    (other,) = plan_runs("digits", ["batch_size=16"])
    (tmp_path / run.name / "settings.toml").write_text(other.settings.toml())
    (ours,) = hold()
    assert ours.name.startswith(f"{run.name}-")
    assert names(hold()) == [ours.name]
    assert names(hold("batch_size=16")) == [run.name]
    assert num_folders(tmp_path) == 2


def test_where_and_how_a_run_computes_may_change_in_between(hold: Callable[..., list[PlannedRun]]):
    first = hold("seed=1,2")
    again = hold("seed=1,2", "device=cpu", "checkpoint_minutes=1", "engine.precision=float32", "data=/")
    assert names(again) == names(first)


def test_what_a_sweep_varies_on_purpose_has_a_folder_each(hold: Callable[..., list[PlannedRun]], tmp_path: Path):
    hold("seed=1")
    both = hold("seed=1", "engine.precision=float32,bfloat16")
    assert num_folders(tmp_path) == 3
    assert names(hold("seed=1", "engine.precision=float32,bfloat16")) == names(both)
    assert names(hold("engine.precision=bfloat16", "seed=1,2"))[0] == both[1].name


def test_a_run_of_an_edited_plug_in_is_trained_again_beside_the_one_before(
    hold: Callable[..., list[PlannedRun]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def hold_version(version: str) -> str:
        """The name of the run's folder, as if the plug-in now had this hash."""
        monkeypatch.setattr(parts, "plugin_hashes", lambda asked, names: {"lab": version})
        (run,) = hold()
        results = {"finished": True, "environment": {"plugins": {"lab": version}}}
        (tmp_path / run.name / "results.json").write_text(json.dumps(results))
        return run.name

    folders = [hold_version(version) for version in "abcba"]
    assert len(set(folders)) == 3
    assert folders[3:] == folders[1::-1], "an earlier version is recognised"


@pytest.fixture
def own_dataset() -> Iterator[str]:
    """The name of a dataset of a plug-in, whose images are what lies in the data folder."""

    @register_dataset("lab", num_classes=2, num_train=4, num_test=2, image_size=8)
    def read_lab(request: Request) -> tuple[ImageSet, ImageSet]:
        raise AssertionError(request)

    yield "lab"
    del CATALOGUE["lab"]


@pytest.mark.parametrize("dataset", ["folder", "lab"])
@pytest.mark.usefixtures("own_dataset")
def test_images_in_another_folder_are_other_runs_unless_the_folder_was_moved(dataset: str, tmp_path: Path):
    out = tmp_path / "out"

    def place(folder: str) -> PlannedRun:
        """The run of a finished sweep over the images in `folder`."""
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        overrides = [f"dataset={dataset}", "base_classes=0", "increment=1", "memory_total=2", "backbone=resnet8"]
        (run,) = placed(plan_runs("digits", overrides, data=str(tmp_path / folder)), out)
        (out / run.name).mkdir(parents=True, exist_ok=True)
        (out / run.name / "settings.toml").write_text(run.settings.toml())
        (out / run.name / "results.json").write_text('{"finished": true}')
        return run

    january, june, elsewhere = place("january"), place("june"), place("elsewhere/january")
    assert len({january.name, june.name, elsewhere.name}) == 3
    assert january.settings.scenario != june.settings.scenario, "tables do not average them"
    assert place("january").name == january.name
    (tmp_path / "june").rename(tmp_path / "elsewhere" / "june")
    assert place("elsewhere/june").name == june.name


def test_of_two_folders_with_the_same_run_the_finished_one_is_taken(
    hold: Callable[..., list[PlannedRun]], tmp_path: Path
):
    (run,) = hold(is_finished=False)
    (tmp_path / "older").mkdir()
    for name, content in (("settings.toml", run.settings.toml()), ("results.json", '{"finished": true}')):
        (tmp_path / "older" / name).write_text(content)
    assert names(placed(plan_runs("digits", []), tmp_path)) == ["older"]


def test_settings_that_cannot_be_read_belong_to_no_run_and_are_never_overwritten(tmp_path: Path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "settings.toml").write_text("[")
    (run,) = placed(plan_runs("digits", []), tmp_path)
    (tmp_path / "broken").rename(tmp_path / run.name)
    with pytest.raises(SettingsError, match="TOML"):
        placed(plan_runs("digits", []), tmp_path)


def test_a_folder_with_something_else_in_it_is_refused(tmp_path: Path):
    (run,) = plan_runs("digits", [])
    (tmp_path / run.name).mkdir()
    (tmp_path / run.name / "thesis.txt").write_text("important")
    with pytest.raises(FolderError, match=re.escape(str(tmp_path / run.name))):
        placed([run], tmp_path)


def test_a_first_task_to_take_over_must_be_there_where_a_run_begins(
    hold: Callable[..., list[PlannedRun]], tmp_path: Path
):
    overrides = [f"first_task_from={tmp_path / 'gone'}"]
    with pytest.raises(SettingsError, match="first_task_from"):
        placed(plan_runs("digits", overrides), tmp_path)
    (begun,) = hold()
    assert names(placed(plan_runs("digits", overrides), tmp_path)) == [begun.name]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("weights=nowhere.safetensors", "weights: .*'nowhere.safetensors'"),
        ("backbone=timm:resnet0", "backbone 'timm:resnet0'"),
        ("backbone=resnet33", "unknown backbone 'resnet33'"),
        ("device=cuda:1", "device: 'cuda:1'"),
    ],
)
def test_what_would_make_every_run_fail_at_once_is_told_before_the_first(
    override: str, message: str, tmp_path: Path
) -> None:
    runs = plan_runs("digits", [override, "seed=1,2"])
    with pytest.raises(SettingsError, match=message):
        placed(runs, tmp_path)
