"""What a kernel is told of the maps that it adds, and the room for its result."""

import torch

from foster.kernels.epilogues import Added, empty_maps
from foster.kernels.tiles import Geometry


def test_maps_that_are_added_are_told_by_their_own_shape_and_that_of_the_result() -> None:
    maps = torch.zeros(2, 3, 5, 7)
    assert Added(maps, down=2).shape(3, 4) == Geometry(3, 3, 5, 7, 3, 4, down=2, up=1)
    assert Added(maps, up=2).shape(10, 14) == Geometry(3, 3, 5, 7, 10, 14, down=1, up=2)


def test_room_for_maps_is_bfloat16_and_channels_last() -> None:
    maps = empty_maps(torch.zeros(4, 1), 16, 3, 5)
    assert (maps.shape, maps.dtype) == ((4, 16, 3, 5), torch.bfloat16)
    assert maps.is_contiguous(memory_format=torch.channels_last)
