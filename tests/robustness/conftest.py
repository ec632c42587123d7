import hashlib
from collections.abc import Callable, Iterator

import pytest
import torch
from made_once import made_once
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
            name = hashlib.sha256("\n".join(key).encode()).hexdigest()[:16]
            folder = made_once(tmp_path_factory, name, lambda folder: start(tiny_settings(*key), folder / "run"))
            made[key] = outcome(folder / "run")
        return made[key]

    return of
