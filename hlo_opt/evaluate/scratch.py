"""Bytes that NumPy takes on the way to one value, besides the value: operands and results in wider types, index arrays, copies in another order.

Estimates, from how the faces of the op table work; tests hold them against what is really allocated.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from hlo_opt.evaluate.direct import direct
from hlo_opt.ir import ElementType, Instruction, Shape
from hlo_opt.ops import find
from hlo_opt.ops.contraction import DotDimensions
from hlo_opt.ops.convolution import convolution_dimensions
from hlo_opt.ops.elementwise import Evaluation
from hlo_opt.ops.folding import SEQUENTIAL, ufunc_of
from hlo_opt.ops.reducers import monoid
from hlo_opt.ops.reduction import reduced

_INDEX = 8  # bytes of a 64-bit index


def scratch_bytes(instruction: Instruction, inner: int) -> int:
    """Bytes besides operands and result. `inner` is what one run of a called scalar computation takes (a reducer, a comparator)."""
    spec = find(instruction.opcode)
    if spec is not None and isinstance(spec.evaluate, Evaluation):
        return _elementwise(instruction, spec.evaluate)
    estimate = _ESTIMATES.get(instruction.opcode)
    return 0 if estimate is None else estimate(instruction, inner)


def _count(shape: Shape) -> int:
    return sum(max(0, math.prod(leaf.dimensions)) for leaf in shape.leaves() if leaf.is_array)


def _size(shape: Shape) -> int:
    return sum(_count(leaf) * leaf.type.bytes for leaf in shape.leaves() if leaf.is_array)


def _arrays(instruction: Instruction) -> list[Shape]:
    return [o.shape for o in instruction.operands if o.shape.is_array]


def wide_bytes(element_type: ElementType, *, further: bool = False) -> int:
    """Bytes of an element in the type that NumPy computes in (`hlo_opt.ops.numeric.widen`)."""
    own = element_type.bytes
    if element_type.is_narrow_float:
        own = 4
    if further and (element_type.is_float or element_type.is_complex):
        own = 16 if element_type.is_complex else 8
    return own


def _elementwise(instruction: Instruction, evaluation: Evaluation) -> int:
    """Widened operands, the result before it is rounded, and as much again for a meaning of several steps."""
    if not instruction.shape.is_array or direct(instruction) is not None or evaluation.precision == "own":
        return 0
    further = evaluation.precision == "f64"
    found = 0
    for shape in _arrays(instruction):
        wide = wide_bytes(shape.type, further=further)
        if wide != shape.type.bytes or shape.type.bits < 8:
            found += _count(shape) * wide
    own = instruction.shape.type
    wide = wide_bytes(own, further=further)
    if wide != own.bytes or own.bits < 8:
        found += _count(instruction.shape) * wide
    return found if instruction.opcode in _ONE_STEP else found + 2 * _count(instruction.shape) * max(wide, 4)


_ONE_STEP = frozenset({
    "add", "subtract", "multiply", "negate", "abs", "and", "or", "xor", "not", "compare", "maximum", "minimum", "convert",
    "cosine", "exponential", "exponential-minus-one", "log", "log-plus-one", "sine", "tan", "tanh", "sinh", "cosh",
    "ceil", "floor", "round-nearest-even", "is-finite", "real", "imag",
})  # fmt: skip
"""Elementwise operations that are one NumPy function; others make some arrays on the way."""


def _reduction(instruction: Instruction, inner: int) -> int:
    """A plain reducer reads operands of a type that is wide enough where they are; any other one works on pairs or slices of them."""
    half = len(instruction.operands) // 2
    shapes = [o.shape for o in instruction.operands[:half]]
    reducer = instruction.called_by("to_apply")
    if ufunc_of(reducer, shapes[0].type) is not None and instruction.opcode == "reduce":
        wide = wide_bytes(shapes[0].type)
        copied = wide != shapes[0].type.bytes and monoid(reducer) != "add"
        return (_size(shapes[0]) // shapes[0].type.bytes * wide if copied else 0) + 16 * _count(instruction.shape)
    results = _count(instruction.shape)
    if instruction.opcode == "reduce-window":
        return 2 * sum(_count(s) * max(wide_bytes(s.type), 4) for s in shapes) + results * (16 + inner)
    folded = math.prod(shapes[0].dimensions[d] for d in reduced(instruction))
    pairs = _count(shapes[0]) // 2 if folded > SEQUENTIAL else 0
    return sum(map(_size, shapes)) + (pairs + results) * inner


def _product(instruction: Instruction, inner: int) -> int:
    """Both sides in the type that sums are in, once more where the order of a matrix product is another; the result before it is rounded."""
    element_type, found = instruction.shape.type, DotDimensions.of(instruction)
    wide = max(4, wide_bytes(element_type))
    if element_type.is_integer and element_type.bits < 64:
        wide = 8
    total = 0 if wide == element_type.bytes else 2 * wide * _count(instruction.shape)
    lhs, rhs = _arrays(instruction)[:2]
    left = (*found.lhs_batch, *found.free(lhs.rank, right=False), *found.lhs_contracting)
    right = (*found.rhs_batch, *found.rhs_contracting, *found.free(rhs.rank, right=True))
    for shape, order in ((lhs, left), (rhs, right)):
        total += _count(shape) * (wide if order == tuple(range(shape.rank)) else wide + shape.type.bytes)
    return total


def _grouped(instruction: Instruction, inner: int) -> int:
    """A product whose sides are taken apart or scaled first."""
    return (
        4
        * max(4, wide_bytes(instruction.shape.type))
        * sum(map(_count, [*_arrays(instruction)[:2], instruction.shape]))
    )


def _convolution(instruction: Instruction, inner: int) -> int:
    """The padded and spread input twice, the kernel twice, the input under one position of the kernel, and two results."""
    found = convolution_dimensions(instruction)
    value, kernel = _arrays(instruction)[:2]
    spread = math.prod(value.dimensions[d] for d in found.lhs[:2])
    patch = spread * math.prod(instruction.shape.dimensions[d] for d in found.output[2])
    for size, part in zip((value.dimensions[d] for d in found.lhs[2]), found.window, strict=True):
        spread *= max(0, (size - 1) * part.lhs_dilate + 1 + part.pad_low + part.pad_high)
    whole = instruction.shape.type.is_integer or instruction.shape.type.kind == "pred"
    wide = 8 if whole else wide_bytes(instruction.shape.type)
    return wide * (2 * _count(value) + 2 * spread + 2 * _count(kernel) + patch + 2 * _count(instruction.shape))


def _sort(instruction: Instruction, inner: int) -> int:
    """A key and an index per element, and copies of both while they are ordered."""
    count = _count(_arrays(instruction)[0])
    return count * (4 * _INDEX) + count * inner


def _gather(instruction: Instruction, inner: int) -> int:
    """The indices in 64 bits, twice each, and the positions of a window."""
    return 3 * _INDEX * _count(instruction.operands[1].shape)


def _scatter(instruction: Instruction, inner: int) -> int:
    """For each update: where it goes, its value, the order; and a mask over the target."""
    half = len(instruction.operands) // 2
    updates = _count(instruction.operands[-1].shape)
    targets = _count(instruction.operands[0].shape)
    return (
        updates * (5 * _INDEX + half * 16 + inner)
        + 17 * targets
        + 3 * _INDEX * _count(instruction.operands[half].shape)
    )


def _wide_copies(instruction: Instruction, inner: int) -> int:
    """Operands and result in a wide type, twice."""
    wide = sum(_count(s) * wide_bytes(s.type, further=True) for s in _arrays(instruction))
    own = sum(_count(s) * wide_bytes(s.type, further=True) for s in instruction.shape.leaves() if s.is_array)
    return 2 * (wide + own)


def _random(instruction: Instruction, inner: int) -> int:
    """The rounds hold some words for each word of the result."""
    return 3 * max(_size(instruction.shape), 4 * _count(instruction.shape))


def _applied(instruction: Instruction, inner: int) -> int:
    return inner * _count(instruction.shape)


_ESTIMATES: dict[str, Callable[[Instruction, int], int]] = {
    "all-reduce": _applied,
    "batch-norm-grad": _wide_copies,
    "batch-norm-inference": _wide_copies,
    "batch-norm-training": _wide_copies,
    "cholesky": _wide_copies,
    "convolution": _convolution,
    "dot": _product,
    "fft": _wide_copies,
    "gather": _gather,
    "map": _applied,
    "ragged-dot": _grouped,
    "reduce": _reduction,
    "reduce-scatter": _applied,
    "reduce-window": _reduction,
    "rng-bit-generator": _random,
    "scaled-dot": _grouped,
    "scatter": _scatter,
    "select-and-scatter": _scatter,
    "sort": _sort,
    "topk": _sort,
    "triangular-solve": _wide_copies,
}
