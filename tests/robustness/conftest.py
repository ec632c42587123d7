from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from tiny_runs import Outcome, outcome, start, tiny_settings


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny tensors are faster on one thread, and equal bits need equal threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Outcome]:
    """The outcome of a whole tiny run of a method, made once."""
    made: dict[tuple[str, ...], Outcome] = {}

    def of(method: str, *overrides: str) -> Outcome:
        key = (method, *overrides)
        if key not in made:
            torch.set_num_threads(1)
            path: Path = tmp_path_factory.mktemp("uninterrupted") / "run"
            start(tiny_settings(*key), path)
            made[key] = outcome(path)
        return made[key]

    return of
