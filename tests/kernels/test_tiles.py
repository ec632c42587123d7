"""How the kernels cut convolutions into pieces."""

import pytest

from foster.kernels.tiles import Geometry, convolution_tile, gradient_tile


@pytest.mark.parametrize(
    ("channels", "size", "num_layers"), [(16, 32, 10), (32, 16, 9), (64, 8, 9), (16, 32, 1), (64, 8, 1)]
)
def test_a_launch_has_about_the_programs_of_its_tile(channels: int, size: int, num_layers: int) -> None:
    geometry = Geometry(channels, channels, size, size, size, size, down=1, up=1)
    tile = gradient_tile(geometry, num_layers)
    shares = tile.shares(128 * size * size, 9, num_layers)
    num_programs = shares.num_shares * (9 // tile.taps) * num_layers
    assert 0.75 * tile.num_programs < num_programs <= tile.num_programs
    assert shares.num_shares * shares.blocks_per_share >= shares.num_blocks
    assert (shares.num_shares - 1) * shares.blocks_per_share < shares.num_blocks


@pytest.mark.parametrize("channels", [(3, 16), (16, 16), (16, 32), (32, 64), (64, 64)], ids=str)
def test_every_tile_covers_its_channels_in_whole_pieces(channels: tuple[int, int]) -> None:
    geometry = Geometry(*channels, 8, 8, 8, 8, down=1, up=1)
    tile = convolution_tile(geometry)
    assert channels[1] % tile.channels == 0
    for num_layers in (1, 5):
        assert geometry.num_taps % gradient_tile(geometry, num_layers).taps == 0


def test_a_window_on_three_channels_is_one_contraction() -> None:
    narrow, wide = (Geometry(channels, 16, 8, 8, 8, 8, down=1, up=1) for channels in (3, 16))
    assert (narrow.depth, narrow.num_taps) == (32, 1)
    assert (wide.depth, wide.num_taps) == (16, 9)
