import signal
from collections.abc import Iterator

import pytest
import torch

from foster.stopping import SIGNALS

# Tests train small networks, often in several processes at once: more threads would only be in each other's way.
torch.set_num_threads(1)


@pytest.fixture
def default_signals() -> Iterator[None]:
    """No signal is ignored by what a test starts, also where the tests were started by `nohup`, which is inherited."""
    previous = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS if _is_ignored(number)}
    yield
    for number, handler in previous.items():
        signal.signal(number, handler)


def _is_ignored(number: signal.Signals) -> bool:
    return signal.getsignal(number) is signal.SIG_IGN
