# mypy: ignore-errors
"""BatchNorm in training, forward and backward: passes over maps [pixels, channels], and between them the reduction to a
few numbers for each channel.

    coefficients           float32 [4, channels]: mean, 1 / standard deviation, scale, shift
    gradient coefficients  float32 [3, channels]: A, B, D of dx = A dy + B x + D
    partials               float32 [2, channels, blocks]: two sums over each block of pixels
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.extra.cuda import gdc_wait

from foster.kernels.device.layouts import maps_layout
from foster.kernels.device.windows import load_middle, relu


@gluon.jit
def sum_partials(partials, num_blocks, size: gl.constexpr, warps: gl.constexpr):
    """The two sums over all blocks, for this program's channel."""
    held: gl.constexpr = gl.BlockedLayout([1], [32], [warps], [0])
    block = gl.arange(0, size, layout=held)
    row = partials + gl.program_id(0) * num_blocks
    other_row = row + gl.num_programs(0) * num_blocks
    first = gl.zeros([size], gl.float32, held)
    second = gl.zeros([size], gl.float32, held)
    for start in range(0, num_blocks, size):
        is_block = start + block < num_blocks
        first += gl.load(row + start + block, mask=is_block, other=0.0)
        second += gl.load(other_row + start + block, mask=is_block, other=0.0)
    return gl.sum(first, axis=0), gl.sum(second, axis=0)


@gluon.jit(do_not_specialize=["num_blocks"])
def finish_statistics(
    partials, gamma, beta, running_mean, running_var, coefficients, num_blocks, per_pixel, unbiased, momentum, eps,
    size: gl.constexpr, warps: gl.constexpr, is_early: gl.constexpr,
):  # fmt: skip
    """Compute the coefficients of one channel and update its running statistics. With n pixels, `per_pixel` is 1 / n
    and `unbiased` is n / (n - 1)."""
    if is_early:
        gdc_wait()
    channel = gl.program_id(0)
    num_channels = gl.num_programs(0)
    total, squares = sum_partials(partials, num_blocks, size, warps)
    mean = total * per_pixel
    # E[x^2] - E[x]^2 has a smaller rounding error than the values: these have 8 bits, their sums 24. But it can be
    # negative.
    variance = relu(squares * per_pixel - mean * mean)
    deviation = gl.rsqrt(variance + eps)
    scale = gl.load(gamma + channel).to(gl.float32) * deviation
    shift = gl.load(beta + channel).to(gl.float32) - mean * scale
    gl.store(coefficients + channel, mean)
    gl.store(coefficients + num_channels + channel, deviation)
    gl.store(coefficients + 2 * num_channels + channel, scale)
    gl.store(coefficients + 3 * num_channels + channel, shift)
    before = gl.load(running_mean + channel).to(gl.float32)
    after = before + momentum * (mean - before)
    gl.store(running_mean + channel, after.to(running_mean.dtype.element_ty))
    before = gl.load(running_var + channel).to(gl.float32)
    after = before + momentum * (variance * unbiased - before)
    gl.store(running_var + channel, after.to(running_var.dtype.element_ty))


@gluon.jit(do_not_specialize=["num_blocks"])
def finish_gradient(
    partials, coefficients, gamma_gradient, beta_gradient, gradient_coefficients, num_blocks, per_pixel,
    size: gl.constexpr, warps: gl.constexpr, is_early: gl.constexpr,
):  # fmt: skip
    """Compute the gradients of one channel's parameters, and its gradient coefficients A, B and D.

    With g the gradient of the BatchNorm's output and deviation = 1 / standard deviation,
    dx = scale (g - mean(g) - (x - mean) deviation^2 mean(g (x - mean))).
    """
    if is_early:
        gdc_wait()
    channel = gl.program_id(0)
    num_channels = gl.num_programs(0)
    total, products = sum_partials(partials, num_blocks, size, warps)
    mean = gl.load(coefficients + channel)
    deviation = gl.load(coefficients + num_channels + channel)
    scale = gl.load(coefficients + 2 * num_channels + channel)
    gl.store(gamma_gradient + channel, (products * deviation).to(gamma_gradient.dtype.element_ty))
    gl.store(beta_gradient + channel, total.to(beta_gradient.dtype.element_ty))
    of_maps = -scale * deviation * deviation * products * per_pixel
    constant = -scale * total * per_pixel - of_maps * mean
    gl.store(gradient_coefficients + channel, scale)
    gl.store(gradient_coefficients + num_channels + channel, of_maps)
    gl.store(gradient_coefficients + 2 * num_channels + channel, constant)


@gluon.jit
def load_gradient(gradient, opened, offset, is_pixel):
    """The gradient in float32, set to 0 where the output `opened` of the ReLU is 0. None: there is no ReLU."""
    g = gl.load(gradient + offset, mask=is_pixel, other=0.0).to(gl.float32)
    if opened is not None:
        is_open = gl.load(opened + offset, mask=is_pixel, other=0.0).to(gl.float32) > 0.0
        g = gl.where(is_open, g, 0.0)
    return g


@gluon.jit(do_not_specialize=["num_pixels"])
def normalise(
    maps, coefficients, added, output, num_pixels,
    added_shape: gl.constexpr, is_rectified: gl.constexpr,
    channels: gl.constexpr, pixels: gl.constexpr, warps: gl.constexpr, is_early: gl.constexpr,
):  # fmt: skip
    """output = ReLU(maps x scale + shift + added) for one block of pixels; addition and ReLU are optional."""
    if is_early:
        gdc_wait()
    held: gl.constexpr = maps_layout(channels, warps, 8)
    pixel = gl.program_id(0) * pixels + gl.arange(0, pixels, layout=gl.SliceLayout(1, held))
    channel = gl.arange(0, channels, layout=gl.SliceLayout(0, held))
    is_pixel = (pixel < num_pixels)[:, None]
    offset = (pixel * channels)[:, None] + channel[None, :]
    y = gl.load(maps + offset, mask=is_pixel, other=0.0).to(gl.float32)
    scale = gl.load(coefficients + 2 * channels + channel)[None, :]
    shift = gl.load(coefficients + 3 * channels + channel)[None, :]
    y = y * scale + shift
    if added is not None:
        y += load_middle(added, pixel, channel, num_pixels, added_shape).to(gl.float32)
    if is_rectified:
        y = relu(y)
    gl.store(output + offset, y.to(gl.bfloat16), mask=is_pixel)


@gluon.jit(do_not_specialize=["num_pixels"])
def sum_gradient(
    gradient, opened, maps, coefficients, partials, num_pixels,
    channels: gl.constexpr, pixels: gl.constexpr, warps: gl.constexpr, is_early: gl.constexpr,
):  # fmt: skip
    """Sum the gradient, and the gradient times (maps - mean), over one block of pixels."""
    if is_early:
        gdc_wait()
    # Each lane holds 4 channels, not 8, which halves the shuffles of the reduction.
    held: gl.constexpr = maps_layout(channels, warps, 4)
    pixel = gl.program_id(0) * pixels + gl.arange(0, pixels, layout=gl.SliceLayout(1, held))
    channel = gl.arange(0, channels, layout=gl.SliceLayout(0, held))
    is_pixel = (pixel < num_pixels)[:, None]
    offset = (pixel * channels)[:, None] + channel[None, :]
    g = load_gradient(gradient, opened, offset, is_pixel)
    centred = gl.load(maps + offset, mask=is_pixel, other=0.0).to(gl.float32) - gl.load(coefficients + channel)[None, :]
    target = partials + channel * gl.num_programs(0) + gl.program_id(0)
    gl.store(target, gl.sum(g, axis=0))
    gl.store(target + channels * gl.num_programs(0), gl.sum(g * centred, axis=0))


@gluon.jit(do_not_specialize=["num_pixels"])
def pass_gradient(
    gradient, opened, maps, gradient_coefficients, result, passed, num_pixels,
    channels: gl.constexpr, pixels: gl.constexpr, warps: gl.constexpr, is_early: gl.constexpr,
):  # fmt: skip
    """result = A g + B maps + D for one block of pixels, where g is the gradient behind the ReLU; g is stored in
    `passed`, if given."""
    if is_early:
        gdc_wait()
    held: gl.constexpr = maps_layout(channels, warps, 8)
    pixel = gl.program_id(0) * pixels + gl.arange(0, pixels, layout=gl.SliceLayout(1, held))
    channel = gl.arange(0, channels, layout=gl.SliceLayout(0, held))
    is_pixel = (pixel < num_pixels)[:, None]
    offset = (pixel * channels)[:, None] + channel[None, :]
    g = load_gradient(gradient, opened, offset, is_pixel)
    y = gl.load(maps + offset, mask=is_pixel, other=0.0).to(gl.float32)
    of_gradient = gl.load(gradient_coefficients + channel)[None, :]
    of_maps = gl.load(gradient_coefficients + channels + channel)[None, :]
    constant = gl.load(gradient_coefficients + 2 * channels + channel)[None, :]
    gl.store(result + offset, (of_gradient * g + (of_maps * y + constant)).to(gl.bfloat16), mask=is_pixel)
    if passed is not None:
        gl.store(passed + offset, g.to(gl.bfloat16), mask=is_pixel)
