import io
import shutil
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from foster import events
from foster.cli import app
from foster.errors import FolderError
from foster.events import Event
from foster.experiment.event_log import note, noting
from foster.reports.watching import RunView, sparkline, views_of, watch
from foster.system.locking import writer_of


def shown(view: object, width: int = 100) -> str:
    file = io.StringIO()
    Console(file=file, width=width).print(view)
    return file.getvalue()


@pytest.fixture(autouse=True)
def somebody_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foster.reports.watching.writer_of", lambda folder: "process 1")


def write(folder: Path, *told: Event) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for event in told:
        note(folder, event)


STARTED = [
    events.RunStarted("foster", "digits-b0-inc2", 5, "", "cpu"),
    events.TaskEnded(0, 90.0, 10, 40.0),
    events.PhaseStarted(1, 5, "boost", 20, 3),
]
ENDED = events.RunEnded(80.0, 60.0, 100.0)


def epoch(number: int, loss: float) -> Event:
    return events.EpochEnded(1, "boost", number, 20, {"L_LA": loss, "total": loss}, 0.1, 1.0, 19.0 - number)


def test_a_sparkline_shows_the_course_of_numbers_in_any_width():
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert sparkline([5, 5, 5]) == "▁▁▁"
    assert sparkline([float("nan"), 1, 2]) == "▁█"
    assert sparkline([]) == ""
    assert sparkline([0, 6, 0, 0, 7, 7], width=3) == "▄▁█", "means of 3, 0 and 7"
    assert len(sparkline(range(1000), width=48)) == 48


def test_a_view_follows_a_run_phase_by_phase(tmp_path: Path):
    view = RunView(tmp_path)
    view.look()
    assert view.state == "waiting"
    write(tmp_path, *STARTED, epoch(0, 2.0), epoch(1, 1.0))
    view.look()
    text = shown(view)
    assert "foster on digits-b0-inc2  running" in text
    assert "task 2/5 boost" in text
    assert "epoch 2/20" in text
    assert "1.000  █▁" in text
    # 18 s of the phase, and three tasks of 40 s each.
    assert "about 2 min 18 s left" in text
    for task, accuracy in ((0, 92.5), (1, 71.25)):
        write(tmp_path, events.Evaluated(task, "boosted", accuracy, 90.0, 70.0, 72.0, (70.0, 72.0)))
    write(tmp_path, ENDED)
    view.look()
    assert "accuracy boosted  71.25 %  █▁" in shown(view)
    assert view.progress.end is not None


def test_a_run_that_nobody_goes_on_with_is_not_said_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path, *STARTED, epoch(0, 2.0))
    monkeypatch.setattr("foster.reports.watching.writer_of", lambda folder: "")
    view = RunView(tmp_path)
    view.look()
    assert "digits-b0-inc2  stopped" in shown(view)


def test_a_failure_is_told_and_nothing_moves_the_cursor(tmp_path: Path):
    write(tmp_path, *STARTED, events.RunFailed("the loss is not a number\u001b[2J"))
    view = RunView(tmp_path)
    view.look()
    assert "the loss is not a number" in shown(view)
    assert "\u001b" not in shown(view)


def test_a_sweep_is_all_of_its_runs_and_what_is_none_is_refused(tmp_path: Path):
    for name in ("one", "two"):
        write(tmp_path / name, *STARTED)
    assert [view.name for view in views_of(tmp_path)] == ["one", "two"]
    with pytest.raises(FolderError, match="nothing"):
        views_of(tmp_path / "nothing")


def test_runs_of_a_sweep_that_are_over_stand_in_columns_with_their_accuracy(tmp_path: Path):
    for name, event in (("a", ENDED), ("longer", ENDED), ("failing", events.RunFailed("no"))):
        write(tmp_path / name, *STARTED, event)
    file = io.StringIO()
    watch(tmp_path, is_once=True, console=Console(file=file, width=100))
    lines = file.getvalue().splitlines()
    reached = ["finished", "average", "80.00", "%"]
    assert [line.split() for line in lines] == [["failing", "failed"], ["a", *reached], ["longer", *reached]]
    assert len({line.rindex(" f") for line in lines}) == 1


def test_a_learn_can_be_looked_at_while_it_lasts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from foster.learner.work_folder import WorkFolder

    monkeypatch.setattr("foster.reports.watching.writer_of", writer_of)
    bundle = tmp_path / "mine"
    with WorkFolder.beside(bundle).opened() as work:
        told = []
        tell = noting(told.append, work.checkpoints.folder)
        tell(events.LearnPlanned(("two classes",)))
        tell(events.Decoding("photos", 128, 600))
        (view,) = views_of(bundle)
        view.look()
        assert "running" in shown(view)
        assert "128 of 600" in shown(view)
        tell(events.PhaseStarted(0, 1, "learn", 20, 3))
        assert len(told) == 3
        view.look()
        assert "task 1/1 learn" in shown(view)
    assert not list(tmp_path.iterdir()), "nothing is left behind"


def test_without_a_terminal_it_is_shown_once(kept_runs):
    done = CliRunner().invoke(app, ["watch", str(kept_runs["foster"])])
    assert done.exit_code == 0
    assert "finished" in done.output
    assert "accuracy compressed" in done.output


def test_a_terminal_is_followed_until_the_run_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path, *STARTED)
    steps = iter([[epoch(0, 2.0)], [ENDED]])
    monkeypatch.setattr("time.sleep", lambda seconds: write(tmp_path, *next(steps)))
    file = io.StringIO()
    watch(tmp_path, console=Console(file=file, force_terminal=True, width=100, height=20))
    assert "epoch 1/20" in file.getvalue()
    assert "finished" in file.getvalue()


def test_runs_that_a_sweep_starts_later_are_shown_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path / "first", *STARTED)
    steps = iter([("second", *STARTED), ("first", ENDED), ("second", ENDED)])

    def go_on(seconds: float) -> None:
        name, *more = next(steps)
        write(tmp_path / name, *more)

    monkeypatch.setattr("time.sleep", go_on)
    file = io.StringIO()
    watch(tmp_path, console=Console(file=file, force_terminal=True, width=100, height=20))
    assert "second" in file.getvalue()
    assert not list(steps)


def test_a_learn_that_is_done_ends_the_watching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path / "work", *STARTED)
    looks = iter([lambda: None, lambda: shutil.rmtree(tmp_path / "work")])
    monkeypatch.setattr("time.sleep", lambda seconds: next(looks)())
    watch(tmp_path / "work", console=Console(file=io.StringIO(), force_terminal=True, width=100, height=20))
    assert not list(looks)
