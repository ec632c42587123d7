from typing import Any

import pytest

from foster.kernels import compilation, weight_gradients


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels for weights, in the order in which they were started."""
    started: list[str] = []
    start = compilation.start

    def note(kernel: Any, *arguments: Any, **options: Any) -> None:
        started.append(kernel.function.__name__)
        start(kernel, *arguments, **options)

    monkeypatch.setattr(weight_gradients, "start", note)
    return started
