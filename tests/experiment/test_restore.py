"""The network of a finished run comes back from its folder."""

from pathlib import Path

import pytest
import torch
from tiny_runs import ignore, stopped_run, tiny_settings

from foster.errors import DataError
from foster.experiment.execute import begin
from foster.experiment.folder import RunFolder
from foster.experiment.restore import last_network
from foster.system.signals import StopRequest


def test_the_network_of_a_finished_run_is_the_one_that_was_trained(tmp_path: Path) -> None:
    finished = begin(tiny_settings("der"), RunFolder(tmp_path / "run"), ignore, StopRequest())
    chance = torch.get_rng_state()
    found = last_network(tmp_path / "run")
    assert torch.equal(torch.get_rng_state(), chance), "torch's own generator is left alone"
    trained = finished.network.state_dict()
    assert list(found.state_dict()) == list(trained)
    assert all(torch.equal(value, trained[name]) for name, value in found.state_dict().items())
    for path in (tmp_path / "run" / "checkpoints").iterdir():
        path.unlink()
    with pytest.raises(DataError, match="there is no checkpoint in"):
        last_network(tmp_path / "run")


def test_a_run_that_is_not_finished_has_no_network_yet(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not finished"):
        last_network(stopped_run(tmp_path / "run"))
