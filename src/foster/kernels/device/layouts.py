# mypy: ignore-errors
"""Register layouts: which thread holds which element, such that a global load is already a tensor-core operand.

The tensor core (`mma.m16n8k16`) multiplies A [16, 16] by B [16, 8] into C [16, 8]. Lane 4g + t (g < 8, t < 4) of a warp
holds

    A  rows g and g + 8, contraction indices 2t, 2t + 1, 2t + 8 and 2t + 9
    B  column g,         contraction indices 2t, 2t + 1, 2t + 8 and 2t + 9
    C  rows g and g + 8, columns 2t and 2t + 1

Contraction indices, rows and columns may be permuted without changing the product. The layouts below choose
permutations such that the elements of one lane are neighbours in memory: a lane loads 4 to 16 bytes directly into an
operand and stores 4 to 16 bytes of the result, without shared memory or shuffles. The `named_*` functions of the
kernels apply the permutation by reshape and permute; `convert_layout(..., assert_trivial=True)` makes the compiler
refuse one that would move data.
"""

from triton.experimental.gluon import constexpr_function
from triton.experimental.gluon import language as gl


@constexpr_function
def powers(count, unit):
    """unit, 2 unit, 4 unit, ...: one basis value for each bit of an index below `count`."""
    return [unit << bit for bit in range(count.bit_length() - 1)]


@constexpr_function
def exponent(size):
    """n of a size 2^n."""
    return size.bit_length() - 1


@constexpr_function
def depth_bits(depth):
    """The bits of a contraction index within one tap: those held by one lane, and those selected by t."""
    return {16: ([1, 2], [4, 8]), 32: ([1, 2, 4], [8, 16]), 64: ([1, 2, 4, 32], [8, 16])}[depth]


@constexpr_function
def image_layout(pixels, depth, warps_pixels, warps_channels):
    """Input [pixels, depth], operand B of the forward pass: lane 4g + t holds 4 or 8 adjacent channels of pixel g."""
    held, chosen = depth_bits(depth)
    registers = [[0, c] for c in held] + [[p, 0] for p in powers(pixels // (8 * warps_pixels), 8 * warps_pixels)]
    lanes = [[0, c] for c in chosen] + [[1, 0], [2, 0], [4, 0]]
    warps = [[p, 0] for p in powers(warps_pixels, 8)] + [[0, 0] for _ in powers(warps_channels, 1)]
    return gl.DistributedLinearLayout(registers, lanes, warps, [], [pixels, depth])


@constexpr_function
def weight_layout(channels, depth, warps_pixels, warps_channels):
    """Weight [channels, depth] of one tap, operand A of the forward pass."""
    held, chosen = depth_bits(depth)
    unit = channels // (8 * warps_channels)
    registers = [[0, 1], [1, 0], [0, 2]] + [[0, c] for c in held[2:]] + [[m, 0] for m in powers(unit // 2, 2)]
    lanes = [[0, c] for c in chosen] + [[unit, 0], [2 * unit, 0], [4 * unit, 0]]
    warps = [[0, 0] for _ in powers(warps_pixels, 1)]
    warps += [[m, 0] for m in powers(warps_channels, channels // warps_channels)]
    return gl.DistributedLinearLayout(registers, lanes, warps, [], [channels, depth])


@constexpr_function
def weight_shared_layout(channels, depth, warps_channels):
    """The weight in shared memory, ordered such that one 16-byte read gives a lane its operand A."""
    held, chosen = depth_bits(depth)
    unit = channels // (8 * warps_channels)
    bases = [[0, 1], [1, 0], [0, 2]] + [[0, c] for c in chosen] + [[unit, 0], [2 * unit, 0], [4 * unit, 0]]
    bases += [[0, c] for c in held[2:]] + [[m, 0] for m in powers(unit // 2, 2)]
    bases += [[m, 0] for m in powers(warps_channels, channels // warps_channels)]
    return gl.SharedLinearLayout(bases)


@constexpr_function
def weight_load_layout(channels, depth, num_warps, stride_out, stride_in):
    """Weight [channels, depth] for coalesced loads from global memory."""
    if stride_out == 1:
        threads = min(32, channels // 4)
        return gl.BlockedLayout([4, 1], [threads, 32 // threads], [1, num_warps], [0, 1])
    vector = 4 if stride_in == 1 else 1
    threads = min(32, depth // vector)
    return gl.BlockedLayout([1, vector], [32 // threads, threads], [num_warps, 1], [1, 0])


@constexpr_function
def output_layout(pixels, channels, warps_pixels, warps_channels):
    """Result [pixels, channels]: a lane holds adjacent channels of pixels 2t and 2t + 1."""
    unit = channels // (8 * warps_channels)
    registers = [[0, c] for c in powers(unit, 1)] + [[1, 0]]
    registers += [[p, 0] for p in powers(pixels // (8 * warps_pixels), 8 * warps_pixels)]
    lanes = [[2, 0], [4, 0], [0, unit], [0, 2 * unit], [0, 4 * unit]]
    warps = [[p, 0] for p in powers(warps_pixels, 8)]
    warps += [[0, c] for c in powers(warps_channels, channels // warps_channels)]
    return gl.DistributedLinearLayout(registers, lanes, warps, [], [pixels, channels])


@constexpr_function
def pixels_layout(groups, pixels, channels, warps, other_warps, is_operand_a):
    """Input, or gradient of the output, [groups, pixels, channels], to be contracted over pixels: lane 4g + t holds the
    adjacent channels of g, of every fourth pixel from t on. Each group has its own warps; `warps` of them divide the
    channels."""
    unit = channels // (8 * warps)
    registers = [[0, 0, c] for c in powers(unit, 1)] + [[0, p, 0] for p in powers(pixels // 4, 4)]
    lanes = [[0, 1, 0], [0, 2, 0], [0, 0, unit], [0, 0, 2 * unit], [0, 0, 4 * unit]]
    within = [[0, 0, c] for c in powers(warps, channels // warps)]
    others = [[0, 0, 0] for _ in powers(other_warps, 1)]
    split = others + within if is_operand_a else within + others
    return gl.DistributedLinearLayout(
        registers, lanes, split + [[b, 0, 0] for b in powers(groups, 1)], [], [groups, pixels, channels]
    )


@constexpr_function
def partial_layout(groups, depth, num_warps):
    """Sums [groups, channels, depth] for the reduction over groups: one thread holds all groups."""
    threads = min(32, depth // 4)
    return gl.BlockedLayout([groups, 1, 4], [1, 32 // threads, threads], [1, num_warps, 1], [2, 1, 0])


@constexpr_function
def reduction_layout(num_elements, num_warps):
    """Partial sums [rows, elements] for the reduction over rows."""
    threads = min(32, num_elements // 4)
    return gl.BlockedLayout([1, 4], [32 // threads, threads], [num_warps, 1], [1, 0])


@constexpr_function
def maps_layout(channels, num_warps, vector):
    """Maps [pixels, channels] for BatchNorm: one access has `vector` adjacent channels."""
    threads = channels // vector
    return gl.BlockedLayout([1, vector], [32 // threads, threads], [num_warps, 1], [1, 0])


@constexpr_function
def product_layout(is_along_terms, num_warps):
    """Products [rows, columns, terms] for the reduction over terms. A thread loads four terms, or four columns, at
    once; each warp has its own rows, and four lanes divide the terms of a result."""
    if is_along_terms:
        return gl.BlockedLayout([1, 1, 4], [1, 8, 4], [num_warps, 1, 1], [2, 1, 0])
    return gl.BlockedLayout([1, 4, 1], [1, 8, 4], [num_warps, 1, 1], [1, 2, 0])
