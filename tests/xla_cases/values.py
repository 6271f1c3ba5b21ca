"""Inputs: of every element type its special values, and the products of them."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from hlo_opt.ir import ELEMENT_TYPES

Array = np.ndarray[Any, Any]

PRED = ("pred",)
SIGNED = tuple(t.name for t in ELEMENT_TYPES.values() if t.kind == "signed" and t.numpy_name)
UNSIGNED = tuple(t.name for t in ELEMENT_TYPES.values() if t.kind == "unsigned" and t.numpy_name)
INTEGERS = (*SIGNED, *UNSIGNED)
FLOATS = tuple(t.name for t in ELEMENT_TYPES.values() if t.kind == "float")
COMPLEX = ("c64", "c128")
EVERYTHING = (*PRED, *INTEGERS, *FLOATS, *COMPLEX)


def dtype_of(name: str) -> np.dtype[Any]:
    return ELEMENT_TYPES[name].dtype


def cast(values: Any, name: str) -> Array:
    """Numbers as an element type, without warnings for those that do not fit."""
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(dtype_of(name))


@cache
def patterns(name: str) -> Array:
    """All values of a type of at most 16 bits: every pattern of bits."""
    element_type = ELEMENT_TYPES[name]
    if name == "pred":
        return np.array([False, True])
    if element_type.is_integer and element_type.bits < 8:
        low = 0 if element_type.kind == "unsigned" else -(1 << element_type.bits - 1)
        return np.arange(low, low + (1 << element_type.bits)).astype(element_type.dtype)
    count = np.arange(1 << element_type.bits)
    return count.astype(f"uint{8 * element_type.dtype.itemsize}").view(element_type.dtype)


@cache
def specials(name: str) -> Array:
    """Zeros, ones, extremes, denormal numbers, infinities, NaN and a few plain values; of small types everything."""
    element_type = ELEMENT_TYPES[name]
    if element_type.bits <= 4 or name == "pred":
        return patterns(name)
    if element_type.is_integer:
        limits = ml_dtypes.iinfo(element_type.dtype)
        wanted = [0, 1, 2, 3, 5, -1, -2, -7, element_type.bits - 1, element_type.bits, element_type.bits + 1]
        wanted += [limits.min, limits.min + 1, limits.max, limits.max - 1, limits.max // 2 + 1, limits.max // 3]
        kept = sorted({int(v) for v in wanted if limits.min <= v <= limits.max})
        return np.array(kept, dtype=element_type.dtype)
    if element_type.is_complex:
        parts = [0.0, -0.0, 1.0, -2.5, 0.375, np.inf, -np.inf, np.nan]
        pairs = [complex(a, b) for a in parts for b in parts]
        return np.array(pairs, dtype=element_type.dtype)
    if element_type.bits <= 8:
        return floats(name, (0.0, -0.0, 1.0, -1.0, 2.5, -0.75, 3.0))
    return floats(name, (0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.0, -0.7, 0.1, 7.3, -88.5, 1e4, 0.49999997))


def floats(name: str, plain: tuple[float, ...]) -> Array:
    """The given values and the extremes of a float type. Bit patterns that the type lacks (infinities, NaN) come out as
    what it has."""
    info = ml_dtypes.finfo(dtype_of(name))
    tiny, normal, most = (float(x) for x in (info.smallest_subnormal, info.smallest_normal, info.max))
    wanted = [*plain, np.inf, -np.inf, np.nan, tiny, -tiny, normal - tiny, normal, -normal, most, -most]
    return cast(wanted, name)


@cache
def numbers(name: str, count: int, seed: int = 0) -> Array:
    """Seeded plain values: a normal distribution, small integers."""
    generator = np.random.default_rng(seed)
    element_type = ELEMENT_TYPES[name]
    if name == "pred":
        return generator.integers(0, 2, count).astype(bool)
    if element_type.is_integer:
        limits = ml_dtypes.iinfo(element_type.dtype)
        return generator.integers(max(limits.min, -20), min(limits.max, 20) + 1, count).astype(element_type.dtype)
    if element_type.is_complex:
        return np.asarray(generator.normal(size=count) + 1j * generator.normal(size=count)).astype(element_type.dtype)
    return cast(generator.normal(0, 2, count), name)


def unary(name: str) -> Array:
    """What a function of one value is tried on: everything in at most 16 bits, else special values and a few hundred
    plain ones."""
    if ELEMENT_TYPES[name].bits <= 16:
        return patterns(name)
    if ELEMENT_TYPES[name].is_integer:
        return np.concatenate([specials(name), numbers(name, 60)])
    plain = numbers(name, 400, 1)
    return np.concatenate([specials(name), plain, plain * dtype_of(name).type(16), plain / dtype_of(name).type(1024)])


def finite(array: Array) -> Array:
    """The finite values among the given."""
    wide = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    return array[np.isfinite(wide)]


def product(*arrays: Array) -> tuple[Array, ...]:
    """All combinations: one long array per argument."""
    grids = np.meshgrid(*(np.arange(len(a)) for a in arrays), indexing="ij")
    return tuple(a[g.reshape(-1)] for a, g in zip(arrays, grids, strict=True))


def binary(name: str, other: str | None = None) -> tuple[Array, Array]:
    """All pairs of special values, then pairs of plain ones."""
    left, right = product(specials(name), specials(other or name))
    return np.concatenate([left, numbers(name, 64, 2)]), np.concatenate([right, numbers(other or name, 64, 3)])


def shaped(name: str, *sizes: int, seed: int = 4) -> Array:
    """Values of a type in an array, special ones among them."""
    count = int(np.prod(sizes, dtype=np.int64))
    pool = np.concatenate([numbers(name, max(count // 2, 1), seed), specials(name)])
    order = np.random.default_rng(seed).permutation(len(pool))
    cycle = list(itertools.islice(itertools.cycle(order), count))
    return pool[cycle].reshape(sizes)


def plain(name: str, *sizes: int, seed: int = 5) -> Array:
    """Plain values of a type in an array."""
    return numbers(name, int(np.prod(sizes, dtype=np.int64)), seed).reshape(sizes)
