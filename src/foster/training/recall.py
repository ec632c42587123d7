"""What frozen branches make of a trunk's maps, computed once a phase: in its steps it is only looked up."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from foster.data.feed import Feed
from foster.networks.freezing import is_frozen
from foster.networks.network import Backbone
from foster.system.crew import crew
from foster.training.views import ViewFeed

MOST_BYTES = 2**28
"""Features of one branch that would take more are computed in every step."""


@contextmanager
def recalled_features(modules: Iterable[nn.Module], feed: Feed, num_epochs: int) -> Iterator[None]:
    """Inside, frozen branches of `modules` look up the features of what `feed` shows, on a CPU and where that is less
    work. Any other input, such as a mix of two images, they see as ever.

    All features are computed beforehand, always in the same batches: a phase that goes on in the middle finds the same.
    """
    if (
        not isinstance(feed, ViewFeed)
        or feed.device.type != "cpu"
        or num_epochs <= feed.num_views
        or not crew().is_alone
    ):
        yield
        return
    inside = (part for module in modules for part in module.modules())
    frozen = {part for part in inside if isinstance(part, Backbone) and is_frozen(part)}
    branches = [part for part in frozen if 4 * feed.num_rows * part.feature_size <= MOST_BYTES]
    for branch in branches:
        branch.forward = _recalling(branch, feed)  # type: ignore[assignment]
    try:
        yield
    finally:
        for branch in branches:
            del branch.forward


def _recalling(branch: Backbone, feed: ViewFeed) -> Callable[[Tensor], Tensor]:
    """The branch's `forward`, which knows what it makes of every view."""
    compute = branch.forward
    with torch.no_grad():
        table = torch.cat([compute(maps) for maps in feed.all_maps()])

    def forward(images: Tensor) -> Tensor:
        rows = feed.rows_of(images)
        return compute(images) if rows is None else table[rows]

    return forward
