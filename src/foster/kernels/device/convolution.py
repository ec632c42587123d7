# mypy: ignore-errors
# ruff: noqa: RUF005  (Gluon has no tuple unpacking)
"""The 3x3 convolution on the tensor cores, which also computes gradients of inputs: output [channels, pixels] =
weight [channels, depth] x windows [depth, pixels], summed over taps."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2
from triton.language.extra.cuda import gdc_wait

from foster.kernels.device.layouts import (
    image_layout,
    output_layout,
    weight_layout,
    weight_load_layout,
    weight_shared_layout,
)
from foster.kernels.device.windows import load_middle, load_tap, place_windows, relu


@gluon.jit
def named_image(x, pixels: gl.constexpr, depth: gl.constexpr):
    """Permute [pixels, depth] to operand B [depth, pixels]."""
    steps: gl.constexpr = 1 if depth == 16 else 2
    x = x.reshape([pixels, depth // (16 * steps), 4, steps, 2, 2])
    return x.permute([1, 3, 4, 2, 5, 0]).reshape([depth, pixels])


@gluon.jit
def named_weight(w, channels: gl.constexpr, depth: gl.constexpr, warps: gl.constexpr):
    """Permute [channels, depth] to operand A [channels, depth]."""
    steps: gl.constexpr = 1 if depth == 16 else 2
    w = w.reshape([warps, 8, channels // (16 * warps), 2, depth // (16 * steps), 4, steps, 2, 2])
    return w.permute([2, 0, 3, 1, 4, 6, 7, 5, 8]).reshape([channels, depth])


@gluon.jit
def unnamed_output(y, pixels: gl.constexpr, channels: gl.constexpr, warps: gl.constexpr):
    """Undo the permutations: product [channels, pixels] to [pixels, channels]."""
    y = y.reshape([channels // (16 * warps), warps, 2, 8, pixels])
    return y.permute([4, 1, 3, 0, 2]).reshape([pixels, channels])


@gluon.jit
def frozen_norm(y, channel, norm):
    """BatchNorm of y [pixels, channels] with running statistics."""
    gamma = gl.load(norm.gamma + channel).to(gl.float32)
    scale = gamma * gl.rsqrt(gl.load(norm.running_var + channel).to(gl.float32) + norm.eps)
    shift = gl.load(norm.beta + channel).to(gl.float32) - gl.load(norm.running_mean + channel).to(gl.float32) * scale
    return y * scale[None, :] + shift[None, :]


@gluon.jit(do_not_specialize=["num_pixels"])
def convolve(
    images, weight, output, num_pixels, norm, added, gate, partials,
    shape: gl.constexpr, strides: gl.constexpr, tile: gl.constexpr, is_even: gl.constexpr,
    added_shape: gl.constexpr, is_rectified: gl.constexpr, is_early: gl.constexpr,
):  # fmt: skip
    """One program computes one tile (`tile`, a ConvolutionTile) of the convolution of `images` with `weight`.

    `shape` is a Geometry: the output has `down` times fewer rows and columns than the input, or `up` times more; in the
    second case zeros are inserted between the input's rows and columns, as the gradient of a strided convolution needs.
    `strides` may reverse the taps. `is_even`: the number of pixels is a multiple of the tile, so no mask is needed.

    The epilogue has these steps, each only if its argument is not None: BatchNorm with running statistics (`norm`),
    addition of maps (`added`, with the Geometry `added_shape`), ReLU, the gradient of a ReLU after a BatchNorm
    (`gate`). The stored values are summed over the tile's pixels into `partials` [2, out_channels, blocks], together
    with their squares or, with a gate, their products with its centred maps. Pixels after the last are zero and add
    nothing.
    """
    if is_early:
        gdc_wait()
    in_channels: gl.constexpr = shape.in_channels
    out_channels: gl.constexpr = shape.out_channels
    pixels: gl.constexpr = tile.pixels
    channels: gl.constexpr = tile.channels
    warps_pixels: gl.constexpr = tile.warps_pixels
    warps_channels: gl.constexpr = tile.warps_channels
    depth: gl.constexpr = 32 if in_channels == 3 else in_channels
    num_taps: gl.constexpr = 1 if in_channels == 3 else 9
    product: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [warps_channels, warps_pixels], [16, 8])
    operand_a: gl.constexpr = gl.DotOperandLayout(0, product, 2)
    operand_b: gl.constexpr = gl.DotOperandLayout(1, product, 2)
    first_channel = gl.program_id(1) * channels
    first_pixel = gl.program_id(0) * pixels

    # Issue all loads that fit into registers before the first use of any of them.
    read: gl.constexpr = weight_load_layout(channels, depth, warps_pixels * warps_channels, strides.out, strides.into)
    start = weight + ((first_channel + gl.arange(0, channels, layout=gl.SliceLayout(1, read))) * strides.out)[:, None]
    k = gl.arange(0, depth, layout=gl.SliceLayout(0, read))[None, :]
    weights = ()
    for tap in gl.static_range(num_taps):
        if in_channels == 3:
            w = gl.load(start + k % 3 * strides.into + k // 3 * strides.tap, mask=k < 27, other=0.0)
        else:
            w = gl.load(start + k * strides.into + (8 - tap if strides.is_flipped else tap) * strides.tap)
        weights = weights + (w,)

    held: gl.constexpr = image_layout(pixels, depth, warps_pixels, warps_channels)
    pixel = first_pixel + gl.arange(0, pixels, layout=gl.SliceLayout(1, held))
    k = gl.arange(0, depth, layout=gl.SliceLayout(0, held))[None, :]
    row, column, middle = place_windows(pixel, shape)
    row = row[:, None]
    column = column[:, None]
    pointers = images + (middle * in_channels)[:, None]
    if in_channels != 3:
        pointers = pointers + k
    is_pixel = ((pixel < num_pixels) | is_even)[:, None]
    ahead = ()
    taps_ahead: gl.constexpr = num_taps if tile.taps_ahead > num_taps else tile.taps_ahead
    for tap in gl.static_range(taps_ahead):
        x = load_tap(pointers, k, row, column, is_pixel, tap // 3 - 1, tap % 3 - 1, shape)
        ahead = ahead + (x,)

    # Load what the epilogue needs while the tensor cores work.
    written: gl.constexpr = output_layout(pixels, channels, warps_pixels, warps_channels)
    out_pixel = first_pixel + gl.arange(0, pixels, layout=gl.SliceLayout(1, written))
    channel = first_channel + gl.arange(0, channels, layout=gl.SliceLayout(0, written))
    offset = (out_pixel * out_channels)[:, None] + channel[None, :]
    is_written = ((out_pixel < num_pixels) | is_even)[:, None]
    if added is not None:
        addend = load_middle(added, out_pixel, channel, num_pixels, added_shape)
    if gate is not None:
        gate_input = gl.load(gate.maps + offset, mask=is_written, other=0.0)

    stored: gl.constexpr = weight_shared_layout(channels, depth, warps_channels)
    shared = ()
    for tap in gl.static_range(num_taps):
        w = weights[tap].to(gl.bfloat16)
        shared = shared + (gl.allocate_shared_memory(gl.bfloat16, [channels, depth], stored, w),)

    sums = gl.zeros([channels, pixels], gl.float32, product)
    for tap in gl.static_range(num_taps):
        if tap < taps_ahead:
            x = ahead[tap]
        else:
            x = load_tap(pointers, k, row, column, is_pixel, tap // 3 - 1, tap % 3 - 1, shape)
        w = shared[tap].load(weight_layout(channels, depth, warps_pixels, warps_channels))
        a = gl.convert_layout(named_weight(w, channels, depth, warps_channels), operand_a, assert_trivial=True)
        b = gl.convert_layout(named_image(x, pixels, depth), operand_b, assert_trivial=True)
        sums = mma_v2(a, b, sums)

    y = gl.convert_layout(unnamed_output(sums, pixels, channels, warps_channels), written, assert_trivial=True)
    if norm is not None:
        y = frozen_norm(y, channel, norm)
    if added is not None:
        y += addend.to(gl.float32)
    if is_rectified:
        y = relu(y)
    if gate is not None:
        scale = gl.load(gate.coefficients + 2 * out_channels + channel)[None, :]
        shift = gl.load(gate.coefficients + 3 * out_channels + channel)[None, :]
        y = gl.where(gate_input.to(gl.float32) * scale + shift > 0.0, y, 0.0)
    result = y.to(gl.bfloat16)
    gl.store(output + offset, result, mask=is_written)
    if partials is not None:
        rounded = result.to(gl.float32)
        factor = rounded
        if gate is not None:
            factor = gate_input.to(gl.float32) - gl.load(gate.coefficients + channel)[None, :]
        target = partials + channel * gl.num_programs(0) + gl.program_id(0)
        gl.store(target, gl.sum(rounded, axis=0))
        gl.store(target + out_channels * gl.num_programs(0), gl.sum(rounded * factor, axis=0))
