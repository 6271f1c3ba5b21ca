"""What the host's own routines compute of library calls, as the words that `host_runtime.cpp` runs: sorts, the
first elements of rows, triangular systems, and Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from enum import IntEnum

from hlo_opt.ir import Instruction, Shape
from hlo_opt.ops.call_config import solved_by_trsm
from hlo_opt.ops.calls.order import plain_sort
from hlo_opt.ops.custom_calls.table import routine
from hlo_opt.ops.linalg.table import solved
from hlo_opt.ops.sets import solves_triangles, takes_first, transforms_lines
from hlo_opt.runtime.host.own_routines import Number
from hlo_opt.runtime.schedule.ops import CallOp


class ElementOrder(IntEnum):
    """How elements are ordered; `host_selection.h` and `host_sort.h` have the same."""

    F32 = 0
    F16 = 1
    S32 = 2
    U32 = 3
    S16 = 4
    U16 = 5
    S8 = 6
    U8 = 7


_KEYS = {**{key.name.lower(): key for key in ElementOrder}, "bf16": ElementOrder.F16, "pred": ElementOrder.U8}
_INFINITY = {"f32": 0x7F800000, "bf16": 0x7F800000, "f16": 0x7C000000}
"""The bits of infinity, those of narrow types in front of zeros."""


def selection_of(op: CallOp, shapes: Sequence[Shape]) -> tuple[int, ...] | None:
    """Rows and columns of the array of a `topk`, elements that are kept of a row, their order, and whether the largest
    come first. None for other steps, and where rows do not lie one after another or their elements are wide."""
    i = op.instruction
    if not takes_first(i) or len(op.inputs) != 1 or len(op.outputs) != 2:
        return None
    values, kept, places = (shapes[b] for b in (*op.inputs, *op.outputs))
    key = _KEYS.get(values.type.name)
    plain = all(s.is_row_major and s.element_count and not any(s.dynamic) for s in (values, kept, places))
    if key is None or not plain or values.dimensions[-1] > 2**31 - 1:
        return None
    columns = values.dimensions[-1]
    largest = i.word("largest", "true") in ("true", "True")
    return (values.element_count // columns, columns, kept.dimensions[-1], key, int(largest))


def sort_of(op: CallOp, shapes: Sequence[Shape]) -> tuple[int, ...] | None:
    """What `sort_words` of `host_sort.h` is given. None for other steps, and where keys are wide, operands do not lie
    alike, or a comparator does more than to compare."""
    plain = plain_sort(op.instruction)
    every = [shapes[b] for b in (*op.inputs, *op.outputs)]
    if plain is None or not all(s.is_array and s.element_count and not any(s.dynamic) for s in every):
        return None
    along, sources, keys = plain
    first = every[0]
    alike = all(s.minor_to_major == first.minor_to_major and s.type.per_byte == 1 for s in every)
    length = first.dimensions[along]
    if not alike or length > 2**31 - 1 or len(sources) != len(op.outputs):
        return None
    words = [len(sources)]
    for source, b in zip(sources, op.outputs, strict=True):
        words += [-1 if source is None else op.inputs[source], b, shapes[b].type.bytes]
    words += [first.element_count // length, length, first.strides[along], len(keys)]
    for operand, falls, joins_nan, joins_zeros in keys:
        name = shapes[op.outputs[operand]].type.name
        key = _KEYS.get(name)
        if key is None or sources[operand] is None:
            return None
        words += [operand, key, int(falls), _INFINITY[name] if joins_nan else 0, int(joins_zeros)]
    return tuple(words)


def substitution_of(op: CallOp, shapes: Sequence[Shape]) -> tuple[int, ...] | None:
    """Rows and right sides of triangular systems of f32 or f64; strides in elements of matrix, right sides and solution
    by row and by column; how many systems, and how far apart their parts are; whether they are upper triangles, whether
    the diagonal is ones, and what they compute with. None for other steps, and where systems do not lie as one
    dimension."""
    i = op.instruction
    how = solved(i) if solves_triangles(i) else solved_by_trsm(i) if _is_trsm(i) else None
    if how is None or len(op.inputs) != 2 or len(op.outputs) != 1:
        return None
    all_shapes = [shapes[b] for b in (*op.inputs, *op.outputs)]
    matrix, sides = all_shapes[:2]
    number = {"f32": Number.F32, "f64": Number.F64}.get(matrix.type.name)
    plain = all(s.element_count and not any(s.dynamic) for s in all_shapes)
    batches = as_one(*((s, range(s.rank - 2)) for s in all_shapes))
    if number is None or not plain or batches is None:
        return None
    left, lower, transpose, unit = how
    strides = [(s.strides[-2], s.strides[-1]) for s in all_shapes]
    columns = sides.dimensions[-1] if left else sides.dimensions[-2]
    if transpose in ("TRANSPOSE", "ADJOINT"):
        strides[0], lower = strides[0][::-1], not lower
    if not left:  # x a = b is a' x' = b'
        strides, lower = [pair[::-1] for pair in strides], not lower
    across = (stride for pair in strides for stride in pair)
    return (matrix.dimensions[-1], columns, *across, *batches, int(not lower), int(unit), number)


def _is_trsm(instruction: Instruction) -> bool:
    return routine(instruction.word("custom_call_target", "")) == "trsm"


class Direction(IntEnum):
    """The direction of a Fourier transform; `host_transform.h` has the same numbers."""

    FFT = 0
    IFFT = 1
    RFFT = 2
    IRFFT = 3


LARGEST_FACTOR, LONGEST = 31, 1 << 22
"""The largest prime factor of lengths that the host transforms itself, and the largest length."""


def transform_of(op: CallOp, shapes: Sequence[Shape]) -> tuple[int, ...] | None:
    """The direction of an `fft`, what it computes with, how many arrays it transforms, and the number of their
    dimensions and their lengths. None for other steps, and where elements do not lie by rows, real lines are cut or
    padded, or a length has a large prime factor."""
    i = op.instruction
    if not transforms_lines(i) or len(op.inputs) != 1 or len(op.outputs) != 1:
        return None
    operand, result = (shapes[b] for b in (*op.inputs, *op.outputs))
    direction, lengths = Direction[i.word("fft_type")], i.ints("fft_length")
    if not all(s.is_row_major and s.element_count and not any(s.dynamic) for s in (operand, result)):
        return None
    if not all(0 < n <= LONGEST and _largest_factor(n) <= LARGEST_FACTOR for n in lengths):
        return None
    real, other = (result, operand) if direction is Direction.IRFFT else (operand, result)
    halved = [*real.dimensions[:-1], real.dimensions[-1] // 2 + 1]
    fits = list(other.dimensions) == (halved if direction >= Direction.RFFT else list(real.dimensions))
    if not fits or real.dimensions[real.rank - len(lengths) :] != tuple(lengths):
        return None
    number = Number.F64 if other.type.bits == 128 else Number.F32
    return (direction, number, math.prod(real.dimensions[: real.rank - len(lengths)]), len(lengths), *lengths)


def _largest_factor(number: int) -> int:
    """The largest prime factor up to `LARGEST_FACTOR`, or what is left without these."""
    largest = 1
    for factor in range(2, LARGEST_FACTOR + 1):
        while number % factor == 0:
            number, largest = number // factor, factor
    return max(largest, number)


def as_one(*sides: tuple[Shape, Sequence[int]]) -> tuple[int, ...] | None:
    """Dimensions that arrays have in common as one: its size, and its stride in each; None where they do not lie so."""
    dimensions = joined(*sides)
    return dimensions[0] if len(dimensions) == 1 else None


def joined(*sides: tuple[Shape, Sequence[int]]) -> list[tuple[int, ...]]:
    """Dimensions that arrays have in common, as few as they lie: of each its size, and its stride in each array. At
    least one, of size 1 where there is none."""
    runs: list[tuple[int, ...]] = []
    for dimensions in zip(*(dims for _, dims in sides), strict=True):
        size = sides[0][0].dimensions[dimensions[0]]
        strides = [shape.strides[d] for (shape, _), d in zip(sides, dimensions, strict=True)]
        if size == 1:
            continue
        if runs and all(before == size * here for before, here in zip(runs[-1][1:], strides, strict=True)):
            runs[-1] = (size * runs[-1][0], *strides)
        else:
            runs.append((size, *strides))
    return runs or [(1, *(0 for _ in sides))]


_BEFORE, _SPATIAL = 14, 11
"""Words of a convolution before those of its spatial dimensions, and of each of these."""


def phases_of(described: Sequence[int]) -> list[tuple[int, ...]]:
    """A convolution, as `convolution_of` says, as several whose images have no gaps, one for each place that a result
    may have between the elements of a dilated image: the others would multiply zeros. In front of each, in elements,
    where its weights and its results begin. One, where a gap is wider than the window or a window moves by more than
    one place."""
    described_phases: list[tuple[int, int, tuple[int, ...]]] = [(0, 0, ())]
    for first in range(_BEFORE, len(described), _SPATIAL):
        parts = list(_phases_along(described[first : first + _SPATIAL]))
        described_phases = [
            (w + more, r + further, (*words, *part))
            for w, r, words in described_phases
            for more, further, part in parts
        ]
    return [(w, r, *described[:_BEFORE], *words) for w, r, words in described_phases]


def _phases_along(dimension: Sequence[int]) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    places, window, stride, low, spread, apart, turned, size, image, weights, result = dimension
    if spread == 1 or stride != 1 or apart != 1 or window < spread or places < spread:
        yield 0, 0, tuple(dimension)
        return
    for place in range(spread):
        tap = (low - place) % spread  # the first place of the window that lies on an element
        taps = -(-(window - tap) // spread)
        begin = window - 1 - tap - spread * (taps - 1) if turned else tap
        own = (-(-(places - place) // spread), taps, 1, (low - place - tap) // spread, 1, 1, turned)
        yield begin * weights, place * result, (*own, size, image, spread * weights, spread * result)
