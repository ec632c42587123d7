"""What may change between two starts of one run."""

from pathlib import Path

import pytest

from foster.cli.experiments import resume
from foster.errors import FolderError
from foster.experiment.folder import RunFolder
from foster.settings.experiment import Settings, load_settings

TINY = (
    "dataset=synthetic",
    "synthetic={num_classes=4, train_per_class=6, test_per_class=4, image_size=8}",
    "memory_total=8",
    "device=cpu",
    "method=finetune",
    "epochs_scale=0.005",
)


def tiny(*overrides: str) -> Settings:
    return load_settings("digits", [*TINY, *overrides])


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A run that was killed before its first checkpoint."""
    path = tmp_path / "run"
    with RunFolder(path).opened(tiny("data=first")):
        return path


def test_a_new_place_of_the_data_is_kept_for_the_next_time(begun: Path):
    resume(begun, data=Path("second"), quiet=True)
    assert RunFolder(begun).settings() == tiny("data=second")


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
