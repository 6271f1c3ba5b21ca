"""What the host's own routines compute of library calls, as the words that `host_runtime.cpp` runs: the first elements
of rows, and triangular systems."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum

from hlo_opt.ir import Shape
from hlo_opt.ops.linalg.table import solved
from hlo_opt.ops.sets import solves_triangles, takes_first
from hlo_opt.runtime.schedule.ops import Call


class Number(IntEnum):
    """What a routine computes with; `host_runtime.cpp` has the same. Integers of 32 bits wrap, so their sign does not
    matter."""

    F32 = 0
    F64 = 1
    S32 = 2


class Key(IntEnum):
    """How elements are ordered; `host_selection.h` has the same."""

    F32 = 0
    F16 = 1
    S32 = 2
    U32 = 3
    S16 = 4
    U16 = 5
    S8 = 6
    U8 = 7


_KEYS = {**{key.name.lower(): key for key in Key}, "bf16": Key.F16, "pred": Key.U8}


def selection_of(op: Call, shapes: Sequence[Shape]) -> tuple[int, ...] | None:
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


def substitution_of(op: Call, shapes: Sequence[Shape]) -> tuple[int, ...] | None:
    """Rows and right sides of triangular systems of f32 or f64; strides in elements of matrix, right sides and solution
    by row and by column; how many systems, and how far apart their parts are; whether they are upper triangles, whether
    the diagonal is ones, and what they compute with. None for other steps, and where systems do not lie as one
    dimension."""
    i = op.instruction
    if not solves_triangles(i) or len(op.inputs) != 2 or len(op.outputs) != 1:
        return None
    found = [shapes[b] for b in (*op.inputs, *op.outputs)]
    matrix, given = found[:2]
    number = {"f32": Number.F32, "f64": Number.F64}.get(matrix.type.name)
    plain = all(s.element_count and not any(s.dynamic) for s in found)
    batches = as_one(*((s, range(s.rank - 2)) for s in found))
    if number is None or not plain or batches is None:
        return None
    left, lower, transpose, unit = solved(i)
    strides = [(s.strides[-2], s.strides[-1]) for s in found]
    columns = given.dimensions[-1] if left else given.dimensions[-2]
    if transpose in ("TRANSPOSE", "ADJOINT"):
        strides[0], lower = strides[0][::-1], not lower
    if not left:  # x a = b is a' x' = b'
        strides, lower = [pair[::-1] for pair in strides], not lower
    across = (stride for pair in strides for stride in pair)
    return (matrix.dimensions[-1], columns, *across, *batches, int(not lower), int(unit), number)


def as_one(*sides: tuple[Shape, Sequence[int]]) -> tuple[int, ...] | None:
    """Dimensions that arrays have in common as one: its size, and its stride in each; None where they do not lie so."""
    found: tuple[int, ...] | None = None
    for dimensions in zip(*(dims for _, dims in sides), strict=True):
        size = sides[0][0].dimensions[dimensions[0]]
        strides = [shape.strides[d] for (shape, _), d in zip(sides, dimensions, strict=True)]
        if size == 1:
            continue
        if found is not None and any(before != size * here for before, here in zip(found[1:], strides, strict=True)):
            return None
        found = (size if found is None else size * found[0], *strides)
    return found or (1, *(0 for _ in sides))


_BEFORE, _SPATIAL = 10, 11
"""Words of a convolution before those of its spatial dimensions, and of each of these."""


def phases_of(described: Sequence[int]) -> list[tuple[int, ...]]:
    """A convolution, as `convolution_of` says, as several whose images have no gaps, one for each place that a result
    may have between the elements of a dilated image: the others would multiply zeros. In front of each, in elements,
    where its weights and its results begin. One, where a gap is wider than the window or a window moves by more than
    one place."""
    found: list[tuple[int, int, tuple[int, ...]]] = [(0, 0, ())]
    for first in range(_BEFORE, len(described), _SPATIAL):
        parts = list(_phases_along(described[first : first + _SPATIAL]))
        found = [(w + more, r + further, (*words, *part)) for w, r, words in found for more, further, part in parts]
    return [(w, r, *described[:_BEFORE], *words) for w, r, words in found]


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
