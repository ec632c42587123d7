"""An export that takes no time, in place of `as_onnx`, for which torch traces the network for seconds."""

from collections.abc import Callable

import numpy as np
import torch

from foster.learner.export import Exported, Run

Make = Callable[[Exported, torch.Tensor, str], tuple[bytes, Run]]


def made_at_once(spoil: Callable[[np.ndarray], np.ndarray] = lambda found: found) -> Make:
    """A file that gives what the network gives, but spoilt."""

    def make(module: Exported, example: torch.Tensor, facts: str) -> tuple[bytes, Run]:
        def run(images: np.ndarray) -> np.ndarray:
            with torch.no_grad():
                return spoil(module(torch.from_numpy(images)).numpy())

        return b"a file", run

    return make
