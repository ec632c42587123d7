"""The folder of a learn under way: its own, held by one, and gone when the work is done."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from foster.errors import DataError, FolderError
from foster.events import Warned, ignore
from foster.experiment.event_log import noting
from foster.learner.work_folder import WorkFolder, difference, opened
from foster.settings.learner import learner_settings
from foster.training.task import TaskState


def fingerprint(known: str = "", pictures: str = "a", **settings: Any) -> dict[str, Any]:
    nested = learner_settings(**settings).nested()
    return {"settings": nested, "known": known, "images": pictures}


def begun(folder: Path, **settings: Any) -> WorkFolder:
    """The work of a learn that was interrupted."""
    work = WorkFolder(folder)
    with suppress(KeyboardInterrupt), work.opened():
        TaskState(0).save(work.checkpoints, {"learning": fingerprint(**settings)}, ignore)
        raise KeyboardInterrupt
    assert work.path.is_dir()
    return work


def test_it_goes_when_the_work_is_done_and_stays_when_it_was_interrupted(tmp_path: Path) -> None:
    work = begun(tmp_path / "work")
    with work.opened():
        assert work.checkpoints.load(lambda message: None) is not None
    assert not work.path.exists()
    assert work.progress(fingerprint(), ignore) is None


def test_it_goes_where_nothing_was_saved_that_could_be_continued(tmp_path: Path) -> None:
    work = WorkFolder(tmp_path / "work")
    with suppress(DataError), work.opened():
        noting(ignore, work.checkpoints.folder)(Warned("a warning"))
        raise DataError("there are no new photos")
    assert not work.path.exists()


def test_a_folder_that_is_held_keeps_what_it_holds_and_another_process_away(tmp_path: Path) -> None:
    work = begun(tmp_path / "work")
    with work.held(), pytest.raises(FolderError, match="process"), work.opened():
        pass
    assert work.checkpoints.load(lambda message: None) is not None
    with WorkFolder(tmp_path / "other").held():
        assert (tmp_path / "other").is_dir()
    assert not (tmp_path / "other").exists()


def test_a_folder_is_opened_by_its_name_and_one_that_is_open_stays(tmp_path: Path) -> None:
    with opened(None) as work:
        assert work is None
    with opened(str(tmp_path / "work")) as work:
        with opened(work) as same:
            assert same is work
        assert work.path.is_dir()
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize(
    ("before", "now", "facts"),
    [
        ({"seed": 1}, {"seed": 2}, ("seed", "1", "2")),
        ({"epochs_scale": 0.5}, {}, ("epochs_scale", "0.5")),
        ({}, {"foster": {"beta_boost": 0.5}}, ("foster.beta_boost", "0.5")),
        ({"known": "x"}, {"known": "y"}, ("bundle",)),
        ({"pictures": "a"}, {"pictures": "b"}, ("images",)),
    ],
)
def test_the_first_thing_that_differs_is_named(
    before: dict[str, Any], now: dict[str, Any], facts: tuple[str, ...]
) -> None:
    reason = difference(fingerprint(**before), fingerprint(**now))
    assert all(fact in reason for fact in facts)


def test_where_it_computes_makes_no_difference() -> None:
    assert difference(fingerprint(device="cpu"), fingerprint(device="cuda")) is None
