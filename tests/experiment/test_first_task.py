"""A first task that another run has learned is taken over, and the result is the same."""

import shutil
from pathlib import Path

import pytest
from tiny_runs import start, tiny_settings

from foster import events
from foster.errors import SettingsError
from foster.events import ignore
from foster.experiment.first_task import check_phases, first_task
from foster.experiment.folder import RunFolder
from foster.experiment.plan import make_plan, measured_plan
from foster.experiment.run import begin
from foster.system.signals import StopRequest


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    start(tiny_settings("foster", "keep_networks=true"), folder)
    return folder


def test_the_first_task_is_not_trained_again_and_all_that_follows_is_the_same(whole: Path, tmp_path: Path):
    heard: list[events.Event] = []
    results = start(tiny_settings("foster", f"first_task_from={whole}"), tmp_path, heard.append)
    trained = [(event.task, event.phase) for event in heard if isinstance(event, events.PhaseStarted)]
    assert trained == [(1, "boost"), (1, "compress"), (2, "boost"), (2, "compress")]
    expected = RunFolder(whole).read_results()
    for key in ("accuracy_matrix", "variants"):
        assert results[key] == expected[key]
    assert results["task_seconds"][0] > expected["task_seconds"][0], "the time of the training counts"
    assert "first_task_from" not in results["settings"], "where files lie is nobody's business"


def test_a_first_task_with_quarter_turns_is_taken_over_without_the_head_that_tells_them(tmp_path: Path):
    turned = ("ridge", "ridge.first_turns=beside")
    expected = start(tiny_settings(*turned, "keep_networks=true"), tmp_path / "whole")
    results = start(tiny_settings(*turned, f"first_task_from={tmp_path / 'whole'}"), tmp_path / "run")
    assert results["accuracy_matrix"] == expected["accuracy_matrix"]
    with pytest.raises(SettingsError, match=r"first_turns = 'beside'"):
        first_task(tiny_settings("ridge", f"first_task_from={tmp_path / 'whole'}"))


def test_methods_whose_first_task_is_the_same_take_it_over_from_each_other(whole: Path, tmp_path: Path):
    expected = start(tiny_settings("ridge", "keep_networks=true"), tmp_path / "ridge")
    for other in (whole, tmp_path / "ridge"):
        results = start(tiny_settings("ridge", f"first_task_from={other}"), tmp_path / f"from {other.name}")
        assert results["accuracy_matrix"] == expected["accuracy_matrix"]
    with pytest.raises(SettingsError, match=r"'podnet'.*'foster'"):
        first_task(tiny_settings("podnet", f"first_task_from={whole}"))


def test_what_comes_after_the_first_task_may_differ(whole: Path):
    changes = ("foster.beta_boost=0.5", "foster.boost.epochs=1", "order_seed=1993")  # which is the seed's own order
    changed = tiny_settings("foster", f"first_task_from={whole}", *changes)
    first = first_task(changed)
    assert first is not None
    assert first.seconds == RunFolder(whole).read_results()["task_seconds"][0]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (("seed=3",), "seed = 1993 and not 3"),
        (("order_seed=4",), "order_seed = 1993 and not 4"),
        (("foster.first.epochs=9",), "first.epochs = 200 and not 9"),
        (("base_classes=3",), "base_classes = 2 and not 3"),
        (("task_sizes=[3, 3]",), "base_classes = 2 and not 3"),
        (("augmentation=none",), "augmentation"),
        (("method=ridge", "ridge.first.epochs=9"), "first.epochs = 200 and not 9"),
        (("method=slda", "slda.first_turns=beside"), "first_turns = 'none' and not 'beside'"),
    ],
)
def test_a_first_task_that_was_another_one_is_refused(whole: Path, changes: tuple[str, ...], reason: str):
    with pytest.raises(SettingsError, match=f"first_task_from: .*{reason}"):
        first_task(tiny_settings("foster", f"first_task_from={whole}", *changes))


def test_where_a_method_has_a_first_task_of_its_own_all_its_settings_decide(tmp_path: Path):
    (tmp_path / "settings.toml").write_text(tiny_settings("podnet").toml())
    with pytest.raises(SettingsError, match=r"first_task_from: .*num_proxies = 10 and not 3"):
        first_task(tiny_settings("podnet", f"first_task_from={tmp_path}", "podnet.num_proxies=3"))


def test_a_run_that_kept_no_networks_is_refused(whole: Path, tmp_path: Path):
    shutil.copytree(whole, tmp_path / "run", ignore=shutil.ignore_patterns("networks"))
    with pytest.raises(SettingsError, match="keep_networks=true"):
        first_task(tiny_settings("foster", f"first_task_from={tmp_path / 'run'}"))


def test_a_first_task_that_is_not_there_leaves_no_folder_behind(tmp_path: Path):
    settings = tiny_settings("foster", f"first_task_from={tmp_path / 'none'}")
    with pytest.raises(SettingsError, match="first_task_from"):
        begin(settings, RunFolder(tmp_path / "run"), ignore, StopRequest())
    assert not (tmp_path / "run").exists()


def test_a_plan_leaves_out_the_first_task_that_is_taken_over_and_refuses_one_that_is_not_there(
    whole: Path, tmp_path: Path
):
    closed = measured_plan(tiny_settings("ridge", f"first_task_from={whole}"))
    assert (closed.total_steps, closed.time.seconds) == (0, 0), "nothing is left to train"
    usual, taken = (make_plan(tiny_settings("foster", *more)) for more in ((), (f"first_task_from={whole}",)))
    assert taken.tasks[0].phases == ()
    assert taken.total_steps == usual.total_steps - usual.tasks[0].num_steps
    assert taken.tasks[1:] == usual.tasks[1:]
    for folder, reason in ((tmp_path, "holds no run"), (whole, "seed = 1993 and not 3")):
        with pytest.raises(SettingsError, match=f"first_task_from: .*{reason}"):
            make_plan(tiny_settings("foster", f"first_task_from={folder}", "seed=3"))


def test_a_first_task_of_several_phases_cannot_be_taken_over(whole: Path):
    settings = tiny_settings("foster", f"first_task_from={whole}")
    check_phases(settings, 1)
    with pytest.raises(SettingsError, match=r"first_task_from: .*'foster'"):
        check_phases(settings, 2)
