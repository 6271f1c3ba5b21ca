"""How the arrays of a module lie in memory: a buffer is a flat array whose elements are in the order of the shape's layout."""

from __future__ import annotations

from typing import Any

import numpy as np

from hlo_opt.ir import Shape

Array = np.ndarray[Any, np.dtype[Any]]


def physical(array: Array, shape: Shape) -> Array:
    """The flat array that holds a logical array as the shape's layout says. Shares memory with the argument where it can."""
    if shape.is_row_major:
        return np.ascontiguousarray(array).reshape(-1)
    order = tuple(reversed(shape.minor_to_major))
    return np.ascontiguousarray(np.transpose(array, order)).reshape(-1)


def logical(memory: Array, shape: Shape) -> Array:
    """The logical array in a flat buffer: a view, never a copy. The opposite of `physical`."""
    if shape.is_row_major:
        return memory.reshape(shape.dimensions)
    slow_to_fast = tuple(reversed(shape.minor_to_major))
    dense = memory.reshape([shape.dimensions[d] for d in slow_to_fast])
    return dense.transpose(np.argsort(slow_to_fast))


def is_native(dtype: np.dtype[Any]) -> bool:
    """Whether NumPy has the type without ml_dtypes."""
    return dtype.kind in "biufc" and dtype.isbuiltin == 1


def raw_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The NumPy type that stores the values of `dtype`: itself, or the unsigned integer of its width."""
    return dtype if is_native(dtype) else np.dtype(f"uint{8 * dtype.itemsize}")
