"""The network of a finished run, from its folder."""

from pathlib import Path

import torch

from foster.errors import DataError
from foster.experiment.folder import RunFolder
from foster.experiment.plan import idle_method
from foster.networks.network import Network
from foster.training.fit import restore_trained


def last_network(path: Path) -> Network:
    """The network after the last task of the finished run in the folder `path`, on the CPU."""
    folder = RunFolder(path)
    if not folder.is_finished:
        # Its checkpoints may be those of the middle of a task, and another process may be writing them.
        raise DataError(f"the run in '{path}' is not finished; its network is there when it is")
    checkpoint = folder.checkpoints.load(lambda message: None)
    if checkpoint is None:
        raise DataError(f"there is no checkpoint in '{folder.checkpoints.folder}', from which to restore the network")
    settings = folder.settings()
    with torch.random.fork_rng(devices=[]):
        network = idle_method(settings).new_network(settings.task_sizes)
    restore_trained(network, checkpoint.parts["network"])
    return network
