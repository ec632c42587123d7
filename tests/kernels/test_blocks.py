"""Residual blocks and layers as single functions against a reference in float64, with emulated kernels.

`test_blocks_gpu.py` runs the compiled ones.
"""

import copy

import pytest
import torch
from block_reference import (
    MOST_ERROR,
    Shape,
    assert_trains_right,
    error,
    exact,
    make_block,
    random_maps,
    random_weights,
)

from foster.kernels import tiles, use_kernels
from foster.kernels.tiles import ConvolutionTile, Geometry
from foster.networks.resnet import small_stem

BLOCKS = [
    ("same", Shape(2, 16, 6, 6)),
    ("same", Shape(3, 64, 4, 4)),
    ("no_relu", Shape(2, 16, 5, 5)),
    ("option_a", Shape(3, 16, 8, 8)),
    ("option_a", Shape(2, 32, 7, 5)),
    ("projection", Shape(2, 16, 6, 6)),
]


@pytest.mark.parametrize(("kind", "shape"), BLOCKS, ids=str)
@pytest.mark.usefixtures("emulation")
def test_a_block_trains_as_the_exact_one(kind: str, shape: Shape) -> None:
    assert_trains_right(make_block(kind, shape.channels), random_maps(shape))


@pytest.mark.parametrize("tile", [ConvolutionTile(64, 16, 2, 1, 3), ConvolutionTile(16, 32, 1, 2)])
@pytest.mark.usefixtures("emulation")
def test_the_tiles_do_not_change_a_block(tile: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tiles.CONVOLUTION_TILES, (32, 32), ConvolutionTile(*tile))
    monkeypatch.setattr("foster.kernels.launch.NORM_ELEMENTS", 32 * tile[0])
    assert_trains_right(make_block("same", 32), random_maps(Shape(3, 32, 5, 6)))


@pytest.mark.usefixtures("emulation")
def test_the_tiles_for_many_pixels_do_not_change_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "MANY_PIXELS", 3 * 4 * 4)
    chosen = {tiles.convolution_tile(Geometry(64, 64, 4, 4, 4, 4, 1, 1), num_pixels) for num_pixels in (47, 48)}
    assert len(chosen) == 2
    assert_trains_right(make_block("same", 64), random_maps(Shape(3, 64, 4, 4)))


@pytest.mark.usefixtures("emulation")
def test_a_stem_trains_as_the_exact_one() -> None:
    torch.manual_seed(0)
    images = torch.randn(3, 3, 7, 6, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
    assert_trains_right(random_weights(small_stem(16)), images.contiguous(memory_format=torch.channels_last))


@pytest.mark.parametrize(("kind", "shape"), [BLOCKS[0], *BLOCKS[2:]], ids=str)
@pytest.mark.usefixtures("emulation")
def test_a_frozen_block_equals_the_exact_one(kind: str, shape: Shape) -> None:
    block, maps = make_block(kind, shape.channels).eval(), random_maps(shape)
    with torch.no_grad():
        expected = exact(copy.deepcopy(block).double(), maps.double())
        before = copy.deepcopy(block.state_dict())
        with torch.autocast("cpu", torch.bfloat16):
            found = use_kernels(block)(maps)
    assert error(found, expected) < MOST_ERROR["output"]
    assert all(torch.equal(value, before[name]) for name, value in block.state_dict().items())


@pytest.mark.usefixtures("emulation")
def test_what_is_not_a_number_stays_so() -> None:
    """Else a training that has gone wrong would have a finite loss."""
    block = use_kernels(make_block("same"))
    maps = random_maps(Shape(2, 16, 4, 4))
    maps[0, 0, 0, 0] = torch.nan
    with torch.no_grad():
        assert block(maps).isnan().any()
        assert block.eval()(maps).isnan().any()
