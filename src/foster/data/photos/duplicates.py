"""Photos that are the same or nearly the same: saved again, resized, lighter or darker, but not cropped or rotated.

Every photo is compared with every other by a thumbnail: 10,000 photos take seconds, and far less than to decode them.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from foster.system.files import sha256

SIDE = 16
"""Pixels a side of a thumbnail."""

COMPARED_AT_ONCE = 256

LEAST_CORRELATION = 0.985
MOST_LEVELS = 3.0
"""Thumbnails of one photo have at least this correlation or, with hardly any pattern, at most this mean difference."""

LEAST_SPREAD = 6.0
"""Thumbnails with a smaller standard deviation, in grey levels, have hardly any pattern."""


class Sketch(NamedTuple):
    """For comparing photos: a hash of all pixels, and a thumbnail uint8 `[SIDE, SIDE, 3]`."""

    pixels: str
    thumbnail: NDArray[np.uint8]


def sketch(picture: Image.Image) -> Sketch:
    """The sketch of an upright RGB picture of any size."""
    thumbnail = np.asarray(picture.resize((SIDE, SIDE), Image.Resampling.BOX), dtype=np.uint8)
    return Sketch(sha256(picture.tobytes()), thumbnail)


def alike(sketches: Sequence[Sketch]) -> list[list[int]]:
    """Groups of positions of photos that are the same or nearly, each group and all of them in order."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    first: dict[str, int] = {}  # of equal photos, one is compared with others
    equal = [first.setdefault(one.pixels, position) for position, one in enumerate(sketches)]
    different = np.array(list(first.values()), np.int64)
    group_of = np.array(equal, np.int64)
    if len(different) > 1:
        for left, right in _near_pairs(np.stack([sketches[position].thumbnail for position in different])):
            # Joined at once: thousands of frames of one film have more pairs than fit into memory.
            joined = (np.ones(len(left)), (group_of[different[left]], group_of[different[right]]))
            graph = coo_array(joined, (len(sketches),) * 2)
            group_of = connected_components(graph, directed=False)[1][group_of]
    groups: dict[int, list[int]] = {}
    for position, group in enumerate(group_of.tolist()):
        groups.setdefault(group, []).append(position)
    return [members for members in groups.values() if len(members) > 1]


def _near_pairs(thumbnails: NDArray[np.uint8]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """The positions of all pairs of thumbnails `[N, SIDE, SIDE, 3]` that are nearly the same, some at a time."""
    from scipy.spatial.distance import cdist

    levels = thumbnails.reshape(len(thumbnails), -1).astype(np.float32)
    tints = thumbnails.mean((1, 2), dtype=np.float32, keepdims=True)
    patterns = (thumbnails - tints).reshape(len(thumbnails), -1)  # a tint is no pattern
    spreads = patterns.std(1, keepdims=True)
    has_pattern = spreads[:, 0] >= LEAST_SPREAD
    units = patterns / np.maximum(spreads, 1e-6)
    for start in range(0, len(levels), COMPARED_AT_ONCE):
        some = slice(start, start + COMPARED_AT_ONCE)
        is_even = ~has_pattern[some]
        is_near = (units[some] @ units.T / units.shape[1] >= LEAST_CORRELATION) & has_pattern
        is_near[is_even] = cdist(levels[some][is_even], levels, "cityblock") <= MOST_LEVELS * levels.shape[1]
        left, right = np.nonzero(is_near)
        yield left + start, right
