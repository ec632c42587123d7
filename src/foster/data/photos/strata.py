"""Photos in groups of which each process has equally many, so that the batches do not depend on how many there are."""

import torch
from torch import Tensor

NUM_STRATA = 32
"""So many groups there are at most, and so many processes may share the photos."""

FEWEST_IN_A_STRATUM = 8


def num_strata(num_photos: int, batch_size: int) -> int:
    """Into how many strata photos are divided: a power of two that divides the batch, of eight photos or more each."""
    count = NUM_STRATA
    while count > 1 and (batch_size % count or num_photos < FEWEST_IN_A_STRATUM * count):
        count //= 2
    return count


def most_strata(batch_size: int) -> int:
    """Into how many of them photos are divided at most, however many there are."""
    return num_strata(FEWEST_IN_A_STRATUM * NUM_STRATA, batch_size)


def strata(homes: Tensor, count: int) -> list[Tensor]:
    """Positions in `count` groups of equal size, one more in some: each in the group of its home, `[N]` below
    `NUM_STRATA`, unless that is full."""
    size = len(homes) // count
    own = [(homes * count // NUM_STRATA == group).nonzero().squeeze(1) for group in range(count)]
    over = torch.cat([positions[size:] for positions in own])
    groups = []
    for positions in own:
        short = max(0, size - len(positions))
        groups.append(torch.cat((positions[:size], over[:short])))
        over = over[short:]
    return [torch.cat((positions, over[k : k + 1])) for k, positions in enumerate(groups)]
