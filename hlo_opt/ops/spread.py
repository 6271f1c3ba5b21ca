"""Building and splitting values with bounds: see `Spread` in `hlo_opt.ops.values`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from hlo_opt.ir import ELEMENT_TYPES, ElementType
from hlo_opt.ir.values import Array, DType
from hlo_opt.ops.values import HIGH, LOW, ROWS, SWAPPED, VALUE, Dynamic, Spread, Value, parts


def is_spread(value: Value) -> bool:
    """Whether any array of the value is uncertain."""
    if type(value) is Spread:
        return True
    return isinstance(value, tuple) and any(map(is_spread, value))


def leaves(value: Value) -> Iterator[Value]:
    """The arrays of a value, depth first, certain or not."""
    if isinstance(value, tuple):
        for element in value:
            yield from leaves(element)
    else:
        yield value


def picked(value: Value, number: int) -> Value:
    """One row of a value, which may be a tuple."""
    if type(value) is Spread:
        return value.row(number)
    return tuple(picked(v, number) for v in value) if isinstance(value, tuple) else value


def stacked(values: Sequence[Value], *, look: bool = True) -> Value:
    """The value with these rows; `look` as in `settled`."""
    first = values[0]
    if isinstance(first, tuple):
        return tuple(stacked([parts(v)[k] for v in values], look=look) for k in range(len(first)))
    if isinstance(first, Dynamic):
        rows = [v.padded if isinstance(v, Dynamic) else np.asarray(v) for v in values]
        if all(r.shape == rows[0].shape for r in rows):
            return Spread(np.stack(rows), sizes=first.sizes)
        return first
    return settled(np.stack([np.asarray(v) for v in values]), look=look)


def by_rows(run: Callable[[list[Value]], Value], values: Sequence[Value]) -> Value:
    """An operation without a face for all rows, run row by row."""
    return stacked([run([picked(v, k) for v in values]) for k in range(ROWS)])


def rows_of(value: Value) -> Array:
    """The rows of a value; a certain value has one."""
    return value.rows if type(value) is Spread else np.asarray(value)[None]


def aligned(values: Sequence[Value]) -> list[Array]:
    """The rows of several values, with scalars reshaped so that all broadcast."""
    arrays = [rows_of(v) for v in values]
    rank = max(a.ndim for a in arrays)
    return [a if a.ndim == rank else a.reshape(a.shape[0], *a.shape[1:], *(1,) * (rank - a.ndim)) for a in arrays]


def full(rows: Array) -> Array:
    """All rows, repeated where there is only one."""
    return rows if rows.shape[0] == ROWS else np.repeat(rows, ROWS, axis=0)


def swapped(rows: Array) -> Array:
    """The rows with low and high bound exchanged, for a non-increasing function."""
    return rows if rows.shape[0] == 1 else rows[SWAPPED]


def certain(rows: Array) -> Array:
    """Which elements are equal in every correct backend."""
    if rows.shape[0] == 1:
        return np.ones(rows.shape[1:], np.bool_)
    if rows.dtype.kind == "c":
        return certain(rows.real) & certain(rows.imag)
    same = rows[LOW] == rows[HIGH]
    if is_real(rows.dtype):
        same |= np.isnan(rows[LOW]) & np.isnan(rows[HIGH])
    return np.asarray(same)


def settled(rows: Array, depth: int = 0, *, look: bool = True) -> Value:
    """The value of these rows: a plain array where all elements are certain, checked if `look`."""
    if look and certain(rows).all():
        return rows[VALUE]
    return Spread(rows, depth)


def is_real(dtype: DType) -> bool:
    """Whether the type is a floating-point type."""
    return dtype.kind == "f" or (dtype.kind == "V" and "float" in dtype.name)


def is_narrow(dtype: DType) -> bool:
    """Whether the type is a float of at most 16 bits."""
    return is_real(dtype) and dtype.itemsize < 4


def element_type_of(dtype: DType) -> ElementType:
    """The element type that NumPy stores in this dtype."""
    import ml_dtypes

    if dtype.kind in "biuc" or dtype.type in (np.float16, np.float32, np.float64):
        letter = {"b": "pred", "i": "s", "u": "u", "f": "f", "c": "c"}[dtype.kind]
        return ELEMENT_TYPES[letter if letter == "pred" else f"{letter}{8 * dtype.itemsize}"]
    names = {"bfloat16": "bf16", "int4": "s4", "uint4": "u4", "int2": "s2", "uint2": "u2"}
    assert hasattr(ml_dtypes, dtype.name)
    return ELEMENT_TYPES[names.get(dtype.name, dtype.name.replace("float", "f").replace("_", ""))]


def limits(element_type: ElementType) -> tuple[Any, Any]:
    """The least and the greatest value of an integer type or pred, in its own dtype."""
    dtype = element_type.dtype
    if element_type.kind == "pred":
        return np.False_, np.True_
    low, high = element_type.limits
    return np.asarray(low).astype(dtype)[()], np.asarray(high).astype(dtype)[()]


def set_aside(rows: Array, where: Array, element_type: ElementType) -> None:
    """Make elements unbounded: they may have any value."""
    if not where.any():
        return
    dtype = rows.dtype
    if is_real(dtype):
        low: Any = -np.inf
        high: Any = np.inf
        if not np.isinf(np.asarray(np.inf).astype(dtype)):  # some 8-bit types have no infinity
            import ml_dtypes

            high = float(ml_dtypes.finfo(dtype).max)
            low = -high
    elif dtype.kind == "c":
        low, high = complex(-np.inf, -np.inf), complex(np.inf, np.inf)
    else:
        low, high = limits(element_type)
    np.copyto(rows[LOW, ...], np.asarray(low).astype(dtype), where=where)
    np.copyto(rows[HIGH, ...], np.asarray(high).astype(dtype), where=where)


def ordered(rows: Array, element_type: ElementType) -> None:
    """Repair rows after a rule: make elements with a NaN bound unbounded (unless all rows are NaN), and include the
    reference's value.

    Complex numbers: per part.
    """
    if rows.dtype.kind == "c":
        ordered(rows.real, element_type)
        ordered(rows.imag, element_type)
        return
    value, low, high = rows[VALUE, ...], rows[LOW, ...], rows[HIGH, ...]
    if is_real(rows.dtype):
        lost = np.isnan(low) | np.isnan(high) | np.isnan(value)
        if lost.any():
            same = np.isnan(low) & np.isnan(high) & np.isnan(value)
            set_aside(rows, lost & ~same, element_type)
    outside = (value < low) | (value > high)
    if outside.any():
        if is_real(rows.dtype):
            np.copyto(low, np.minimum(low, value), where=outside)
            np.copyto(high, np.maximum(high, value), where=outside)
        else:
            set_aside(rows, outside, element_type)


def aside(rows: Array) -> Array:
    """Which elements of floating-point rows are unbounded."""
    if rows.dtype.kind == "c":
        low, high = rows[LOW], rows[HIGH]
        return np.asarray((low != high) & (np.isinf(low) | np.isinf(high)))
    return np.asarray((rows[LOW] != rows[HIGH]) & (np.isinf(rows[LOW]) | np.isinf(rows[HIGH])))
