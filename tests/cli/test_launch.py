"""What may change between two starts of one run."""

from pathlib import Path

import pytest
from tiny_runs import tiny_settings

from foster.cli.experiments import resume
from foster.errors import FolderError
from foster.experiment.folder import RunFolder


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A run that was killed before its first checkpoint."""
    path = tmp_path / "run"
    with RunFolder(path).opened(tiny_settings("finetune", "data=first")):
        return path


def test_a_new_place_of_the_data_is_kept_for_the_next_time(begun: Path):
    resume(begun, data=Path("second"), quiet=True)
    assert RunFolder(begun).settings() == tiny_settings("finetune", "data=second")


def test_a_finished_run_is_not_run_again_and_other_settings_of_it_are_refused(
    begun: Path, capsys: pytest.CaptureFixture[str]
):
    resume(begun, quiet=True)
    before = (begun / "results.json").read_bytes()
    resume(begun, ["checkpoint_minutes=3"])
    assert "is finished" in capsys.readouterr().err
    assert (begun / "results.json").read_bytes() == before
    with pytest.raises(FolderError, match="seed = 1993, not 5"):
        resume(begun, ["seed=5"])
