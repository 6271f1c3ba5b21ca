"""Sorting on a GPU with CuPy's stable sort of integer keys. See `library.arrays` for the conventions."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from hlo_opt.ir.values import Array
from hlo_opt.library.arrays import Described, flat, logical, widened
from hlo_opt.library.steps import CallStep, computed

SortKey = tuple[tuple[Sequence[CallStep], int], bool, bool]
"""((steps, number of their result), whether floats compare in total order, whether the order is descending)"""


def sorting_key(xp: ModuleType, values: Array, is_total: bool, is_descending: bool) -> Array:
    """Integers that order as the values do.

    The total order of floats is -NaN < -inf < ... < -0 < +0 < ... < inf < NaN; without `is_total`, -0 equals +0.
    """
    if values.dtype.kind == "b":
        values = values.astype(xp.uint8)
    if values.dtype.kind == "f":
        kind = f"int{8 * values.dtype.itemsize}"
        bits = xp.ascontiguousarray(values).view(kind).reshape(values.shape)
        least = xp.asarray(-(2 ** (8 * values.dtype.itemsize - 1))).astype(kind)
        if not is_total:  # compare bits: CuPy's arithmetic flushes denormals to zero
            bits = xp.where(bits == least, bits.dtype.type(0), bits)
        values = bit_order(xp, bits)
    return ~values if is_descending else values


def bit_order(xp: ModuleType, bits: Array) -> Array:
    """Integers in the total order of the floats whose bits these signed integers are."""
    least = bits.dtype.type(-(2 ** (8 * bits.dtype.itemsize - 1)))
    return xp.where(bits < 0, least - bits - bits.dtype.type(1), bits)


def order_by(xp: ModuleType, keys: Sequence[Array], axis: int) -> Array:
    """The stable order of elements along a dimension. The first key is the most significant."""
    order = xp.argsort(keys[-1], axis=axis, kind="stable")
    for key in keys[-2::-1]:
        place = xp.argsort(xp.take_along_axis(key, order, axis=axis), axis=axis, kind="stable")
        order = xp.take_along_axis(order, place, axis=axis)
    return order


def sort_call(
    xp: ModuleType, buffers: Sequence[Array], shapes: Sequence[Described], axis: int, keys: Sequence[SortKey]
) -> list[Array]:
    """Stable `sort` on buffers. `keys` are `SortKey`s, the most significant first."""
    half = len(buffers)
    arrays = [xp.moveaxis(logical(b, s[2], s[3]), axis, -1) for b, s in zip(buffers, shapes[:half], strict=True)]
    wide = [
        xp.moveaxis(logical(widened(xp, b, s[0]), s[2], s[3]), axis, -1)
        for b, s in zip(buffers, shapes[:half], strict=True)
    ]
    sorted_by = [(computed(xp, steps, wide, {})[number], is_total, falls) for (steps, number), is_total, falls in keys]
    of_all = [xp.ascontiguousarray(xp.broadcast_to(sorting_key(xp, *key), arrays[0].shape)) for key in sorted_by]
    order = order_by(xp, of_all, -1)
    sorted_arrays = [xp.moveaxis(xp.take_along_axis(a, order, axis=-1), -1, axis) for a in arrays]
    return [flat(xp, a, s[3]) for a, s in zip(sorted_arrays, shapes[half:], strict=True)]


def sort_fusion_call(
    xp: ModuleType,
    buffers: Sequence[Array],
    shapes: Sequence[Described],
    sources: Sequence[Any],
    axis: int,
    keys: Sequence[SortKey],
) -> list[Array]:
    """`sort_call` with some operands generated: `sources[i]` is a buffer number, or (dimension, shape) of an `iota`."""
    memory, operand_shapes = [], []
    for source in sources:
        if isinstance(source, int):
            memory.append(buffers[source])
            operand_shapes.append(shapes[source])
            continue
        dimension, shape = source
        along = [-1 if d == dimension else 1 for d in range(len(shape[2]))]
        counted = xp.arange(shape[2][dimension]).astype(shape[1]).reshape(along)
        memory.append(flat(xp, xp.broadcast_to(counted, shape[2]), shape[3]))
        operand_shapes.append(shape)
    return sort_call(xp, memory, [*operand_shapes, *shapes[len(buffers) :]], axis, keys)


def top_call(
    xp: ModuleType, buffers: Sequence[Array], shapes: Sequence[Described], count: int, is_largest: bool
) -> list[Array]:
    """The `count` largest (or smallest) elements of the last dimension and their positions, as `topk`.

    Of equal elements the first come first; NaN counts as the largest.
    """
    source, *results = shapes
    array = logical(buffers[0], source[2], source[3])
    wide = logical(widened(xp, buffers[0], source[0]), source[2], source[3])
    key = xp.ascontiguousarray(sorting_key(xp, wide, True, is_largest))
    order = xp.argsort(key, axis=-1, kind="stable")[..., :count]
    results_ = [xp.take_along_axis(array, order, axis=-1), order.astype(results[1][1])]
    return [flat(xp, a, s[3]) for a, s in zip(results_, results, strict=True)]


def radix_sort_call(
    xp: ModuleType, buffers: Sequence[Array], shapes: Sequence[Described], is_descending: bool
) -> list[Array]:
    """CUB's radix sort of the first buffer along the last dimension; the other buffers are permuted alike.

    Order is that of the bits, except that -0 equals +0. Further results are workspace, zeros.
    """
    half = len(buffers)
    wide = logical(widened(xp, buffers[0], shapes[0][0]), shapes[0][2], shapes[0][3])
    order = xp.argsort(xp.ascontiguousarray(sorting_key(xp, wide, False, is_descending)), axis=-1, kind="stable")
    sorted_buffers = [
        flat(xp, xp.take_along_axis(logical(b, s[2], s[3]), order, axis=-1), r[3])
        for b, s, r in zip(buffers, shapes[:half], shapes[half:], strict=False)
    ]
    return [*sorted_buffers, *(xp.zeros(r[2], r[1]).reshape(-1) for r in shapes[2 * half :])]
