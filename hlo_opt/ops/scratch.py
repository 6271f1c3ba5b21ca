"""The `scratch` faces: bytes that NumPy allocates temporarily for one value, besides the value.

A face gets the instruction, and what one run of a called scalar computation (reducer, comparator) takes. These are
estimates from how the `evaluate` faces work; tests compare them with real allocations.
"""

from __future__ import annotations

import math

from hlo_opt.ir import ElementType, Instruction, Shape
from hlo_opt.ops.contraction.table import DotDimensions, convolution_dimensions
from hlo_opt.ops.reduction.folding import SEQUENTIAL, ufunc_of
from hlo_opt.ops.reduction.reducers import monoid
from hlo_opt.ops.reduction.table import reduced

_INDEX = 8  # bytes of a 64-bit index


def count(shape: Shape) -> int:
    return sum(max(0, math.prod(leaf.dimensions)) for leaf in shape.leaves() if leaf.is_array)


def arrays(instruction: Instruction) -> list[Shape]:
    return [o.shape for o in instruction.operands if o.shape.is_array]


def wide_bytes(element_type: ElementType, *, further: bool = False) -> int:
    """Bytes of an element in the type that NumPy computes in (`hlo_opt.ops.numeric.widen`)."""
    own = element_type.bytes
    if element_type.is_narrow_float:
        own = 4
    if further and (element_type.is_float or element_type.is_complex):
        own = 16 if element_type.is_complex else 8
    return own


def reduce(instruction: Instruction, inner: int) -> int:
    """A single-operation reducer reads wide enough operands in place; others work on pairs or slices of them."""
    half = len(instruction.operands) // 2
    shapes = [o.shape for o in instruction.operands[:half]]
    reducer = instruction.called_by("to_apply")
    if ufunc_of(reducer, shapes[0].type) is not None:
        wide = wide_bytes(shapes[0].type)
        copied = wide != shapes[0].type.bytes and monoid(reducer) != "add"
        return (shapes[0].byte_size // shapes[0].type.bytes * wide if copied else 0) + 16 * count(instruction.shape)
    folded = math.prod(shapes[0].dimensions[d] for d in reduced(instruction))
    pairs = count(shapes[0]) // 2 if folded > SEQUENTIAL else 0
    return sum(s.byte_size for s in shapes) + (pairs + count(instruction.shape)) * inner


def reduce_window(instruction: Instruction, inner: int) -> int:
    """The padded operands in a wider type, twice, and temporaries per result."""
    shapes = [o.shape for o in instruction.operands[: len(instruction.operands) // 2]]
    return 2 * sum(count(s) * max(wide_bytes(s.type), 4) for s in shapes) + count(instruction.shape) * (16 + inner)


def product(instruction: Instruction, inner: int) -> int:
    """The operands in the accumulator type, twice where they are transposed for the matrix product; the unrounded
    result."""
    element_type, numbers = instruction.shape.type, DotDimensions.of(instruction)
    wide = max(4, wide_bytes(element_type))
    if element_type.is_integer and element_type.bits < 64:
        wide = 8
    total = 0 if wide == element_type.bytes else 2 * wide * count(instruction.shape)
    lhs, rhs = arrays(instruction)[:2]
    left = (*numbers.lhs_batch, *numbers.free(lhs.rank, right=False), *numbers.lhs_contracting)
    right = (*numbers.rhs_batch, *numbers.rhs_contracting, *numbers.free(rhs.rank, right=True))
    for shape, order in ((lhs, left), (rhs, right)):
        total += count(shape) * (wide if order == tuple(range(shape.rank)) else wide + shape.type.bytes)
    return total


def grouped(instruction: Instruction, inner: int) -> int:
    """A product whose operands are split or scaled first."""
    return (
        4 * max(4, wide_bytes(instruction.shape.type)) * sum(map(count, [*arrays(instruction)[:2], instruction.shape]))
    )


def convolution(instruction: Instruction, inner: int) -> int:
    """The padded and dilated input twice, the kernel twice, one window position, and two results."""
    numbers = convolution_dimensions(instruction)
    value, kernel = arrays(instruction)[:2]
    spread = math.prod(value.dimensions[d] for d in numbers.lhs[:2])
    patch = spread * math.prod(instruction.shape.dimensions[d] for d in numbers.output[2])
    for along, part in zip((value.dimensions[d] for d in numbers.lhs[2]), numbers.window, strict=True):
        spread *= max(0, (along - 1) * part.lhs_dilate + 1 + part.pad_low + part.pad_high)
    whole = instruction.shape.type.is_integer or instruction.shape.type.kind == "pred"
    wide = 8 if whole else wide_bytes(instruction.shape.type)
    return wide * (2 * count(value) + 2 * spread + 2 * count(kernel) + patch + 2 * count(instruction.shape))


def sort(instruction: Instruction, inner: int) -> int:
    """A key and an index per element, and copies of both while sorting."""
    return count(arrays(instruction)[0]) * (4 * _INDEX + inner)


def gather(instruction: Instruction, inner: int) -> int:
    """The indices in 64 bits, twice, and the positions in a window."""
    return 3 * _INDEX * count(instruction.operands[1].shape)


def scatter(instruction: Instruction, inner: int) -> int:
    """Per update its position, value and order; and a mask over the target."""
    half = len(instruction.operands) // 2
    updates = count(instruction.operands[-1].shape)
    targets = count(instruction.operands[0].shape)
    return (
        updates * (5 * _INDEX + half * 16 + inner) + 17 * targets + 3 * _INDEX * count(instruction.operands[half].shape)
    )


def wide_copies(instruction: Instruction, inner: int) -> int:
    """Operands and result in a wide type, twice."""
    wide = sum(count(s) * wide_bytes(s.type, further=True) for s in arrays(instruction))
    own = sum(count(s) * wide_bytes(s.type, further=True) for s in instruction.shape.leaves() if s.is_array)
    return 2 * (wide + own)


def random(instruction: Instruction, inner: int) -> int:
    """Some words per word of the result."""
    return 3 * max(instruction.shape.byte_size, 4 * count(instruction.shape))


def applied(instruction: Instruction, inner: int) -> int:
    return inner * count(instruction.shape)
