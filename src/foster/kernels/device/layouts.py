# mypy: ignore-errors
"""Which thread holds which element: layouts for which a global load is already a tensor-core operand.

The tensor core (`mma.m16n8k16`) multiplies A [16, 16] by B [16, 8]. Lane 4g + t (g < 8, t < 4) of a warp holds, of

    A  rows g and g + 8, contraction indices 2t, 2t + 1, 2t + 8 and 2t + 9
    B  column g,         contraction indices 2t, 2t + 1, 2t + 8 and 2t + 9
    C  rows g and g + 8, columns 2t and 2t + 1

Neither the order of the contraction indices nor the order of rows and columns changes a sum, so they may carry other
names than their places in memory. The names below are chosen such that what one lane needs lies side by side in
memory: a lane loads 4 to 16 bytes at once straight into an operand, and writes 4 to 16 bytes of the result. No shared
memory and no shuffle stands between. The `named_*` functions rename; `convert_layout(..., assert_trivial=True)`
makes the compiler refuse names that would move data.
"""

from triton.experimental.gluon import constexpr_function
from triton.experimental.gluon import language as gl


@constexpr_function
def powers(count, unit):
    """unit, 2 unit, 4 unit, ...: one basis vector for each bit of an index below `count`."""
    return [unit << bit for bit in range(count.bit_length() - 1)]


@constexpr_function
def exponent(size):
    """The n of a size that is 2 to the n."""
    return size.bit_length() - 1


@constexpr_function
def depth_bits(depth):
    """The bits of a contraction index inside one tap: (held by a lane, chosen by t)."""
    return {16: ([1, 2], [4, 8]), 32: ([1, 2, 4], [8, 16]), 64: ([1, 2, 4, 32], [8, 16])}[depth]


@constexpr_function
def image_layout(pixels, depth, warps_pixels, warps_channels):
    """Input [pixels, depth]: lane 4g + t holds 4 or 8 neighbouring channels of pixel g. Operand B of the forward."""
    held, chosen = depth_bits(depth)
    registers = [[0, c] for c in held] + [[p, 0] for p in powers(pixels // (8 * warps_pixels), 8 * warps_pixels)]
    lanes = [[0, c] for c in chosen] + [[1, 0], [2, 0], [4, 0]]
    warps = [[p, 0] for p in powers(warps_pixels, 8)] + [[0, 0] for _ in powers(warps_channels, 1)]
    return gl.DistributedLinearLayout(registers, lanes, warps, [], [pixels, depth])


@constexpr_function
def weight_layout(channels, depth, warps_pixels, warps_channels):
    """Weight [channels, depth] of one tap. Operand A of the forward."""
    held, chosen = depth_bits(depth)
    unit = channels // (8 * warps_channels)
    registers = [[0, 1], [1, 0], [0, 2]] + [[0, c] for c in held[2:]] + [[m, 0] for m in powers(unit // 2, 2)]
    lanes = [[0, c] for c in chosen] + [[unit, 0], [2 * unit, 0], [4 * unit, 0]]
    warps = [[0, 0] for _ in powers(warps_pixels, 1)]
    warps += [[m, 0] for m in powers(warps_channels, channels // warps_channels)]
    return gl.DistributedLinearLayout(registers, lanes, warps, [], [channels, depth])


@constexpr_function
def weight_shared_layout(channels, depth, warps_channels):
    """The same in shared memory, so ordered that one 16-byte read gives a lane its whole operand A."""
    held, chosen = depth_bits(depth)
    unit = channels // (8 * warps_channels)
    bases = [[0, 1], [1, 0], [0, 2]] + [[0, c] for c in chosen] + [[unit, 0], [2 * unit, 0], [4 * unit, 0]]
    bases += [[0, c] for c in held[2:]] + [[m, 0] for m in powers(unit // 2, 2)]
    bases += [[m, 0] for m in powers(warps_channels, channels // warps_channels)]
    return gl.SharedLinearLayout(bases)


@constexpr_function
def weight_load_layout(channels, depth, num_warps, stride_out, stride_in):
    """Weight [channels, depth] as it is read from memory: neighbouring threads take neighbouring elements."""
    if stride_out == 1:
        threads = min(32, channels // 4)
        return gl.BlockedLayout([4, 1], [threads, 32 // threads], [1, num_warps], [0, 1])
    vector = 4 if stride_in == 1 else 1
    threads = min(32, depth // vector)
    return gl.BlockedLayout([1, vector], [32 // threads, threads], [num_warps, 1], [1, 0])


@constexpr_function
def output_layout(pixels, channels, warps_pixels, warps_channels):
    """Result [pixels, channels]: a lane holds neighbouring channels of pixels 2t and 2t + 1."""
    unit = channels // (8 * warps_channels)
    registers = [[0, c] for c in powers(unit, 1)] + [[1, 0]]
    registers += [[p, 0] for p in powers(pixels // (8 * warps_pixels), 8 * warps_pixels)]
    lanes = [[2, 0], [4, 0], [0, unit], [0, 2 * unit], [0, 4 * unit]]
    warps = [[p, 0] for p in powers(warps_pixels, 8)]
    warps += [[0, c] for c in powers(warps_channels, channels // warps_channels)]
    return gl.DistributedLinearLayout(registers, lanes, warps, [], [pixels, channels])


@constexpr_function
def pixels_layout(groups, pixels, channels, warps, other_warps, is_operand_a):
    """Input or output gradient [groups, pixels, channels], contracted over pixels: lane 4g + t holds, of each fourth
    pixel from t on, the neighbouring channels of g. One warp for each group; `warps` share the channels among them."""
    unit = channels // (8 * warps)
    registers = [[0, 0, c] for c in powers(unit, 1)] + [[0, p, 0] for p in powers(pixels // 4, 4)]
    lanes = [[0, 1, 0], [0, 2, 0], [0, 0, unit], [0, 0, 2 * unit], [0, 0, 4 * unit]]
    own = [[0, 0, c] for c in powers(warps, channels // warps)]
    others = [[0, 0, 0] for _ in powers(other_warps, 1)]
    split = others + own if is_operand_a else own + others
    return gl.DistributedLinearLayout(
        registers, lanes, split + [[b, 0, 0] for b in powers(groups, 1)], [], [groups, pixels, channels]
    )


@constexpr_function
def partial_layout(groups, depth, num_warps):
    """Sums [groups, channels, depth] as they are added up over groups and written: all groups in one thread."""
    threads = min(32, depth // 4)
    return gl.BlockedLayout([groups, 1, 4], [1, 32 // threads, threads], [1, num_warps, 1], [2, 1, 0])


@constexpr_function
def reduction_layout(num_elements, num_warps):
    """Partial sums [rows, elements], added up over rows."""
    threads = min(32, num_elements // 4)
    return gl.BlockedLayout([1, 4], [32 // threads, threads], [num_warps, 1], [1, 0])


@constexpr_function
def maps_layout(channels, num_warps, vector):
    """Maps [pixels, channels] as BatchNorm reads and writes them: `vector` neighbouring channels in one access."""
    threads = channels // vector
    return gl.BlockedLayout([1, vector], [32 // threads, threads], [num_warps, 1], [1, 0])


@constexpr_function
def product_layout(is_along_terms, num_warps):
    """Products [rows, columns, terms] before they are added up over terms. A thread loads four terms at once, or four
    columns; each warp has rows of its own, and four lanes share the terms of a result."""
    if is_along_terms:
        return gl.BlockedLayout([1, 1, 4], [1, 8, 4], [num_warps, 1, 1], [2, 1, 0])
    return gl.BlockedLayout([1, 4, 1], [1, 8, 4], [num_warps, 1, 1], [1, 2, 0])
