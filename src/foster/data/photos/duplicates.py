"""Photos that are the same or nearly the same: saved again, resized, lighter or darker, but not cropped or rotated.

A sketch of a photo is a difference hash of 128 bits (whether each cell of a grid is lighter than its neighbours to the
left and above) and a thumbnail. Candidates share a part of the bits and are found by sorting; thumbnails decide.
"""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SIDE = 16
"""Pixels a side of a thumbnail."""

NUM_CELLS = 8
"""Cells a side of the grid."""

MARGIN = 2
"""Grey levels by which a cell must be lighter, so that an even surface has no pattern."""

NUM_BANDS = 8
"""Parts of the bits. Sketches that differ in fewer bits share a part."""

NEIGHBOURS = 24
"""How many photos that share a part of the bits a photo is compared with, in the order of all their bits."""

LEAST_CORRELATION = 0.985
MOST_LEVELS = 3.0
"""Thumbnails of one photo have at least this correlation or, with hardly any pattern, at most this mean difference."""

LEAST_SPREAD = 6.0
"""Thumbnails with a smaller standard deviation, in grey levels, have hardly any pattern."""


class Sketch(NamedTuple):
    """For comparing photos: a hash of all pixels, a difference hash, a thumbnail uint8 `[SIDE, SIDE, 3]`."""

    pixels: str
    bits: bytes
    thumbnail: NDArray[np.uint8]


def sketch(picture: Image.Image) -> Sketch:
    """The sketch of an upright RGB picture of any size."""
    grey = picture.convert("L")
    across = _levels(grey, (NUM_CELLS + 1, NUM_CELLS))
    down = _levels(grey, (NUM_CELLS, NUM_CELLS + 1))
    lighter = [across[:, 1:] > across[:, :-1] + MARGIN, down[1:] > down[:-1] + MARGIN]
    bits = np.packbits(np.concatenate([part.ravel() for part in lighter])).tobytes()
    thumbnail = np.asarray(picture.resize((SIDE, SIDE), Image.Resampling.BOX), dtype=np.uint8)
    size = f"{picture.width} x {picture.height} ".encode()
    return Sketch(hashlib.sha256(size + picture.tobytes()).hexdigest(), bits, thumbnail)


def _levels(grey: Image.Image, size: tuple[int, int]) -> NDArray[np.int16]:
    return np.asarray(grey.resize(size, Image.Resampling.BOX), dtype=np.int16)


def alike(sketches: Sequence[Sketch]) -> list[list[int]]:
    """Groups of positions of photos that are the same or nearly, each group and all of them in order."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    first: dict[str, int] = {}  # of equal photos, one is compared with others
    pairs = [(first.setdefault(one.pixels, position), position) for position, one in enumerate(sketches)]
    different = list(first.values())
    near = _near_pairs([sketches[position] for position in different])
    pairs += [(different[left], different[right]) for left, right in near]
    graph = coo_array((np.ones(len(pairs)), np.array(pairs, np.int64).reshape(-1, 2).T), (len(sketches),) * 2)
    groups: dict[int, list[int]] = {}
    for position, group in enumerate(connected_components(graph, directed=False)[1].tolist()):
        groups.setdefault(group, []).append(position)
    return [members for members in groups.values() if len(members) > 1]


def _near_pairs(sketches: Sequence[Sketch]) -> list[tuple[int, int]]:
    """Pairs of different photos that are nearly the same. Time and memory grow with their number, not with its square:
    each is compared with NEIGHBOURS others for each band."""
    if len(sketches) < 2:
        return []
    bits = np.stack([np.frombuffer(one.bits, dtype=">u2") for one in sketches]).astype(np.uint16)
    thumbnails = np.stack([one.thumbnail.reshape(-1, 3) for one in sketches])
    codes = []  # of pairs: left position times their number, and right position
    for band in range(NUM_BANDS):
        keys = np.roll(bits, -band, axis=1)
        order = np.lexsort(keys.T[::-1])
        for distance in range(1, min(NEIGHBOURS, len(order) - 1) + 1):
            left, right = order[:-distance], order[distance:]
            shares = keys[left, 0] == keys[right, 0]
            left, right = left[shares], right[shares]
            codes.append(np.minimum(left, right) * len(order) + np.maximum(left, right))
    pairs = np.stack(np.divmod(np.unique(np.concatenate(codes)), len(sketches)), axis=1)
    return [(int(left), int(right)) for left, right in pairs[_is_near(thumbnails, pairs)]]


def _is_near(thumbnails: NDArray[np.uint8], pairs: NDArray[np.int64]) -> NDArray[np.bool_]:
    """A mask `[P]` for pairs `[P, 2]` of thumbnails `[N, SIDE * SIDE, 3]`, some at a time."""
    parts = []
    for some in np.array_split(pairs, max(1, len(pairs) // 4096)):
        one, other = (thumbnails[some[:, side]].astype(np.float32) for side in (0, 1))
        levels = np.abs(one - other).mean((1, 2))
        one, other = (part - part.mean(1, keepdims=True) for part in (one, other))  # a tint is no pattern
        spreads = one.std((1, 2)), other.std((1, 2))
        correlation = (one * other).mean((1, 2)) / np.maximum(spreads[0] * spreads[1], 1e-6)
        has_pattern = np.minimum(*spreads) >= LEAST_SPREAD
        parts.append(np.where(has_pattern, correlation >= LEAST_CORRELATION, levels <= MOST_LEVELS))
    return np.concatenate(parts)
