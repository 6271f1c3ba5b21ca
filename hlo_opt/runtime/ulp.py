"""Distances between floating-point values, counted in units in the last place (ULP)."""

from __future__ import annotations

from typing import Any

import numpy as np

from hlo_opt.ir.values import Array, DType


def real_parts(array: Array) -> Array:
    """Complex numbers as pairs of reals, in a new last dimension; other arrays as they are."""
    if array.dtype.kind != "c":
        return array
    part = np.dtype(f"float{4 * array.dtype.itemsize}")
    return np.ascontiguousarray(array).view(part).reshape(*array.shape, 2)


def is_floating(dtype: DType) -> bool:
    """Whether values of the type are rounded: floats (ml_dtypes' too) and complex numbers."""
    return dtype.kind in "fc" or (dtype.kind == "V" and "float" in dtype.name)


def ordinals(array: Array) -> Array:
    """Integers in the order of the values: neighbours differ by 1, both zeros are 0. Means nothing for NaN."""
    width = array.dtype.itemsize
    bits = np.ascontiguousarray(array).view(f"u{width}").reshape(array.shape)
    sign_bit = 1 << (_value_bits(array.dtype) - 1)
    magnitude = (bits & bits.dtype.type(sign_bit - 1)).astype(np.int64)
    negative = (bits & bits.dtype.type(sign_bit)) != 0
    return np.asarray(np.where(negative, -magnitude, magnitude), np.int64)


def _value_bits(dtype: DType) -> int:
    """Width of a value: ml_dtypes keeps types under 8 bits in a byte."""
    for prefix, bits in (("float4_", 4), ("float6_", 6)):
        if dtype.name.startswith(prefix):
            return bits
    return 8 * dtype.itemsize


def ulp_distance(a: Array, b: Array) -> Array:
    """How many representable values lie between a and b, element by element: 0 for equal values (and for two NaNs), infinity for one NaN."""
    left, right = ordinals(a), ordinals(b)
    near = (left - right).astype(np.float64)
    far = left.astype(np.float64) - right.astype(np.float64)
    distance = np.abs(np.where(np.sign(left) * np.sign(right) < 0, far, near))
    nan_a, nan_b = np.isnan(a), np.isnan(b)
    return np.where(nan_a & nan_b, 0.0, np.where(nan_a | nan_b, np.inf, distance))


def ulp_of(array: Array) -> Array:
    """The size of one ULP at each value, as float64: the distance to the next value away from zero; 0 for NaN and infinities."""
    if array.dtype in (np.float32, np.float64):  # many times as fast
        with np.errstate(invalid="ignore"):
            spacing = np.spacing(np.abs(array)).astype(np.float64)
        return np.where(np.isfinite(spacing), spacing, 0.0)
    import ml_dtypes

    info: Any = ml_dtypes.finfo(array.dtype)
    values = np.abs(array.astype(np.float64))
    finite = np.isfinite(values)
    _, exponent = np.frexp(np.where(finite, np.maximum(values, float(info.smallest_normal)), 1.0))
    return np.where(finite, np.ldexp(float(info.eps), exponent - 1), 0.0)
