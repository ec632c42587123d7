# mypy: ignore-errors
# ruff: noqa: RUF005  (Gluon has no tuple unpacking)
"""Gradients of convolution weights: sums over all pixels in a fixed order, by two kernels. One launch computes several
layers of the same shape."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2
from triton.language.extra.cuda import gdc_wait

from foster.kernels.device.layouts import partial_layout, pixels_layout, reduction_layout
from foster.kernels.device.windows import load_tap, place_windows


@gluon.jit
def named_gradient(y, groups: gl.constexpr, pixels: gl.constexpr, channels: gl.constexpr, warps: gl.constexpr):
    """Permute [groups, pixels, channels] to operand A [groups, channels, pixels]."""
    y = y.reshape([groups, pixels // 16, 2, 2, 4, warps, 8, channels // (16 * warps), 2])
    return y.permute([0, 7, 5, 8, 6, 1, 2, 4, 3]).reshape([groups, channels, pixels])


@gluon.jit
def named_pixels(x, groups: gl.constexpr, pixels: gl.constexpr, depth: gl.constexpr, warps: gl.constexpr):
    """Permute [groups, pixels, depth] to operand B [groups, pixels, depth]."""
    x = x.reshape([groups, pixels // 16, 2, 2, 4, warps, 8, depth // (8 * warps)])
    return x.permute([0, 1, 2, 4, 3, 7, 5, 6]).reshape([groups, pixels, depth])


@gluon.jit
def unnamed_sums(sums, groups: gl.constexpr, channels: gl.constexpr, depth: gl.constexpr, warps_out: gl.constexpr,
                 warps_in: gl.constexpr):  # fmt: skip
    """Undo the permutations of the product [groups, channels, depth]."""
    sums = sums.reshape([groups, channels // (16 * warps_out), warps_out, 2, 8, depth // (8 * warps_in), warps_in, 8])
    return sums.permute([0, 2, 4, 1, 3, 6, 7, 5]).reshape([groups, channels, depth])


@gluon.jit
def pixels_in_block(groups: gl.constexpr, pixels: gl.constexpr, held: gl.constexpr):
    """The numbers 0, 1, 2, ... as [groups, pixels]."""
    group = gl.arange(0, groups, layout=gl.SliceLayout(1, gl.SliceLayout(2, held)))
    pixel = gl.arange(0, pixels, layout=gl.SliceLayout(0, gl.SliceLayout(2, held)))
    return (group * pixels)[:, None] + pixel[None, :]


@gluon.jit
def one_of(pointers, index, count: gl.constexpr):
    """pointers[index] of a tuple of `count`, for an index that is not a compile-time constant."""
    chosen = pointers[0]
    for other in gl.static_range(1, count):
        chosen = gl.where(index == other, pointers[other], chosen)
    return chosen


@gluon.jit(do_not_specialize=["num_pixels", "num_blocks", "blocks_per_program"])
def weight_gradients(
    images, gradients, partial_sums, num_pixels, num_blocks, blocks_per_program, num_layers: gl.constexpr,
    shape: gl.constexpr, tile: gl.constexpr, is_even: gl.constexpr, is_early: gl.constexpr,
):  # fmt: skip
    """One program sums gradient [pixel, out]^T x window [pixel, in] over a share of the pixels, for some taps of one
    layer.

    `images` and `gradients` are tuples with one entry for each layer. A block has `groups` x `pixels` pixels (`tile` is
    a GradientTile); each group has its own warps, and the sums of all groups are added at the end. The result is
    partial_sums [layers, shares, taps, out_channels, depth].
    """
    if is_early:
        gdc_wait()
    in_channels: gl.constexpr = shape.in_channels
    out_channels: gl.constexpr = shape.out_channels
    pixels: gl.constexpr = tile.pixels
    groups: gl.constexpr = tile.groups
    taps: gl.constexpr = tile.taps
    warps_out: gl.constexpr = tile.warps_out
    warps_in: gl.constexpr = tile.warps_in
    depth: gl.constexpr = 32 if in_channels == 3 else in_channels
    num_taps: gl.constexpr = 1 if in_channels == 3 else 9
    product: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [groups, warps_out, warps_in], [1, 16, 8])
    operand_a: gl.constexpr = gl.DotOperandLayout(0, product, 2)
    operand_b: gl.constexpr = gl.DotOperandLayout(1, product, 2)
    y_held: gl.constexpr = pixels_layout(groups, pixels, out_channels, warps_out, warps_in, True)
    x_held: gl.constexpr = pixels_layout(groups, pixels, depth, warps_in, warps_out, False)
    y_pixel = pixels_in_block(groups, pixels, y_held)
    x_pixel = pixels_in_block(groups, pixels, x_held)
    channel = gl.arange(0, out_channels, layout=gl.SliceLayout(0, gl.SliceLayout(1, y_held)))[None, None, :]
    k = gl.arange(0, depth, layout=gl.SliceLayout(0, gl.SliceLayout(1, x_held)))[None, None, :]

    layer = gl.program_id(2)
    layer_images = one_of(images, layer, num_layers)
    gradient = one_of(gradients, layer, num_layers)

    zero = gl.zeros([groups, out_channels, depth], gl.float32, product)
    sums = ()
    for _ in gl.static_range(taps):
        sums = sums + (zero,)
    first_block = gl.program_id(0) * blocks_per_program
    for block in range(first_block, gl.minimum(first_block + blocks_per_program, num_blocks)):
        pixel = block * (groups * pixels) + y_pixel
        is_pixel = ((pixel < num_pixels) | is_even)[:, :, None]
        y = gl.load(gradient + (pixel * out_channels)[:, :, None] + channel, mask=is_pixel, other=0.0)
        a = gl.convert_layout(
            named_gradient(y, groups, pixels, out_channels, warps_out), operand_a, assert_trivial=True
        )
        pixel = block * (groups * pixels) + x_pixel
        is_pixel = ((pixel < num_pixels) | is_even)[:, :, None]
        row, column, middle = place_windows(pixel, shape)
        row = row[:, :, None]
        column = column[:, :, None]
        pointers = layer_images + (middle * in_channels)[:, :, None]
        if in_channels != 3:
            pointers = pointers + k
        added = ()
        for index in gl.static_range(taps):
            if taps == 9:
                down_shift = index // 3 - 1
                across_shift = index % 3 - 1
            elif taps == 3:
                down_shift = gl.program_id(1) - 1
                across_shift = index - 1
            else:
                down_shift = gl.program_id(1) // 3 - 1
                across_shift = gl.program_id(1) % 3 - 1
            x = load_tap(pointers, k, row, column, is_pixel, down_shift, across_shift, shape)
            b = gl.convert_layout(named_pixels(x, groups, pixels, depth, warps_in), operand_b, assert_trivial=True)
            added = added + (mma_v2(a, b, sums[index]),)
        sums = added

    stored: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [2, 1, 0])
    shared = ()
    for index in gl.static_range(taps):
        total = unnamed_sums(sums[index], groups, out_channels, depth, warps_out, warps_in)
        shared = shared + (gl.allocate_shared_memory(gl.float32, [groups, out_channels, depth], stored, total),)
    read: gl.constexpr = partial_layout(groups, depth, groups * warps_out * warps_in)
    written: gl.constexpr = gl.SliceLayout(0, read)
    channel = gl.arange(0, out_channels, layout=gl.SliceLayout(1, written))
    k = gl.arange(0, depth, layout=gl.SliceLayout(0, written))
    share = layer * gl.num_programs(0) + gl.program_id(0)
    target = partial_sums + (share * num_taps + gl.program_id(1) * taps) * (out_channels * depth)
    target = target + (channel * depth)[:, None] + k[None, :]
    for index in gl.static_range(taps):
        gl.store(target + index * (out_channels * depth), gl.sum(shared[index].load(read), axis=0))


@gluon.jit(do_not_specialize=["num_shares"])
def sum_partial_sums(
    partial_sums, results, num_shares, num_layers: gl.constexpr,
    in_channels: gl.constexpr, out_channels: gl.constexpr, strides: gl.constexpr,
    rows: gl.constexpr, elements: gl.constexpr, warps: gl.constexpr, is_early: gl.constexpr,
):  # fmt: skip
    """Add the partial_sums [layers, shares, taps, out_channels, depth] over shares into one layer's gradient, in the
    layout and type of its weight. `results` is a tuple with one entry for each layer."""
    if is_early:
        gdc_wait()
    depth: gl.constexpr = 32 if in_channels == 3 else in_channels
    num_taps: gl.constexpr = 1 if in_channels == 3 else 9
    read: gl.constexpr = reduction_layout(elements, warps)
    row = gl.arange(0, rows, layout=gl.SliceLayout(1, read))
    element = gl.program_id(0) * elements + gl.arange(0, elements, layout=gl.SliceLayout(0, read))
    layer = gl.program_id(1)
    offset = ((layer * num_shares + row) * (num_taps * out_channels * depth))[:, None] + element[None, :]
    total = gl.sum(gl.load(partial_sums + offset, mask=(row < num_shares)[:, None], other=0.0), axis=0)
    k = element % depth
    channel = element // depth % out_channels
    tap = element // (out_channels * depth)
    if in_channels == 3:
        tap = k // 3
        k = k % 3
    result = one_of(results, layer, num_layers)
    target = result + channel * strides.out + k * strides.into + tap * strides.tap
    gl.store(target, total.to(result.dtype.element_ty), mask=tap < 9)
