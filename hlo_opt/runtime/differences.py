"""How far apart two arrays are, in units in the last place (ULP) and otherwise, and how far they may be.

The original's analysis (`hlo_opt.runtime.rounding.analysis`) encloses every element of an output: another correct
backend has a value from `low` to `high`, and what has equal bounds must be equal. No element is excused by count.
Elements that hang on a tie, where a comparison or a rounding to an integer may go either way, are set aside: they have
no bound, and their share is reported.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
    """How many representable values lie between a and b, element by element: 0 for equal values (and for two NaNs),
    infinity for one NaN."""
    left, right = ordinals(a), ordinals(b)
    near = (left - right).astype(np.float64)
    far = left.astype(np.float64) - right.astype(np.float64)
    distance = np.abs(np.where(np.sign(left) * np.sign(right) < 0, far, near))
    nan_a, nan_b = np.isnan(a), np.isnan(b)
    return np.where(nan_a & nan_b, 0.0, np.where(nan_a | nan_b, np.inf, distance))


def ulp_of(array: Array) -> Array:
    """The size of one ULP at each value, as float64: the distance to the next value away from zero; 0 for NaN and
    infinities."""
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


FAR = 1e-3
"""Two forms of a kernel may round differently. Results that are further apart than this part of the largest one are
wrong, or must be looked at."""


def far_apart(a: Array, b: Array) -> bool:
    """Whether arrays of one shape and type differ by more than rounding mostly does: by more than `FAR`, integers at
    all."""
    if not is_floating(a.dtype):
        return not np.array_equal(a, b)
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    a, b = a.astype(wide), b.astype(wide)
    with np.errstate(all="ignore"):
        size = np.abs(a[np.isfinite(a)]).max(initial=0.0)
        near = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= FAR * size)
    return not bool(near.all())


LOOSE = 0.05
"""A bound above this part of an element's value says little about it."""
LOOSE_SHARE = 0.5
"""An output is weak when elements with such bounds make up more than this part of the sum of its magnitudes: one
twentieth more in all of it might pass."""

Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, eq=False)
class Enclosure:
    """What an output may be, element by element, both bounds included. Complex numbers are pairs of reals in a last
    dimension."""

    low: Array
    high: Array

    @staticmethod
    def exact(array: Array) -> Enclosure:
        """The array itself."""
        parts = real_parts(array)
        return Enclosure(parts, parts)

    def set_aside(self) -> Mask:
        """The elements that may be anything: one bound is infinite, or an integer is open at all."""
        open_ = np.asarray(~_same(self.low, self.high))
        if not is_floating(self.low.dtype):
            return open_
        return np.asarray(open_ & ~(np.isfinite(self.low) & np.isfinite(self.high)))

    def holds(self, expected: Array, actual: Array) -> Mask:
        """The elements of another backend's output that are equal to the reference's, set aside, or within the
        bounds. Of complex numbers the parts."""
        left, right = real_parts(expected), real_parts(actual)
        with np.errstate(invalid="ignore"):
            inside = (right >= self.low) & (right <= self.high)
        return np.asarray(_same(left, right) | self.set_aside() | inside)

    def loose_share(self, expected: Array) -> float:
        """The part of the sum of magnitudes that elements with bounds above `LOOSE` of their value make up; of integers
        the part of the elements that are open."""
        value = real_parts(expected)
        if not value.size:
            return 0.0
        if not is_floating(value.dtype):
            return float(np.count_nonzero(self.set_aside()) / value.size)
        with np.errstate(all="ignore"):
            wide = value.astype(np.float64)
            far = np.maximum(self.high.astype(np.float64) - wide, wide - self.low.astype(np.float64))
            size = np.where(np.isfinite(wide), np.abs(wide), 0.0)
            loose = np.asarray((far > LOOSE * size) & ~_same(self.low, self.high))
            total = float(size.sum())
        return float(size[loose].sum()) / total if total and np.isfinite(total) else float(loose.mean())


def ulps(value: float) -> str:
    """A number of ULP, four figures, written out: `0.5`, `1,665,000`."""
    return f"{value:.4g}" if not 9999.5 <= value < 1e15 else f"{float(f'{value:.4g}'):,.0f}"


@dataclass(frozen=True)
class ElementDifference:
    """An element that is off. `index` has one entry per dimension; `ulp` is infinite where only one value is NaN, and 0
    for integers; `device` is None where there is one only."""

    output: int
    index: tuple[int, ...]
    expected: str
    actual: str
    ulp: float
    bound: float
    device: int | None = None

    def __str__(self) -> str:
        own = "" if self.device is None else f".d{self.device}"
        place = f"out{self.output}{own}[{', '.join(map(str, self.index))}]"
        if self.bound == 0:
            return f"{place}: expected {self.expected}, got {self.actual} (must be equal)"
        return (
            f"{place}: expected {self.expected}, got {self.actual}, {ulps(self.ulp)} ULP apart (bound "
            f"{ulps(self.bound)} ULP)"
        )


@dataclass(frozen=True)
class OutputReport:
    """How one output compares.

    max_ulp, max_error, max_relative  the largest distance, in ULP (integers: 0), absolute, and as a part of the
    element's value
    share        the part of its bound that the element uses up that comes nearest to it, of those within
    rounded      elements that differ within their bounds
    differing    elements beyond their bounds
    set_aside    elements that hang on a tie and have no bound
    loose        the part of the output, by magnitude, whose bound is above 5 % of the value; 0 where all is equal
    weak         why agreement says little here; None where it does not
    first        the first element beyond its bound
    devices      how many devices it is the output of, all together
    """

    output: int
    type: str
    dimensions: tuple[int, ...]
    max_ulp: float
    max_error: float
    max_relative: float
    share: float
    rounded: int
    differing: int
    set_aside: int
    loose: float
    weak: str | None
    first: ElementDifference | None
    devices: int = 1

    @property
    def elements(self) -> int:
        """How many elements the output has on all devices."""
        return self.devices * math.prod(self.dimensions)

    @property
    def ok(self) -> bool:
        return not self.differing


def over_devices(reports: Sequence[OutputReport]) -> OutputReport:
    """The reports on one output of every device as one: the worst of each, and what says little only where it does on
    all."""
    if len(reports) == 1:
        return reports[0]
    off = next(((device, r.first) for device, r in enumerate(reports) if r.first is not None), None)
    return replace(
        _worst(reports),
        rounded=sum(r.rounded for r in reports),
        differing=sum(r.differing for r in reports),
        set_aside=sum(r.set_aside for r in reports),
        loose=max(r.loose for r in reports),
        first=None if off is None else replace(off[1], device=off[0]),
        devices=len(reports),
    )


def over_draws(reports: Sequence[OutputReport]) -> OutputReport:
    """The reports on one output for several sets of inputs as one: the worst of each, and what says little only where
    it does with all."""
    return replace(
        _worst(reports),
        rounded=max(r.rounded for r in reports),
        differing=max(r.differing for r in reports),
        set_aside=max(r.set_aside for r in reports),
        loose=min(r.loose for r in reports),
        first=next((r.first for r in reports if r.first is not None), None),
    )


def over_forms(reports: Sequence[OutputReport]) -> OutputReport:
    """The reports on one output for several forms of a program as one: the worst of each."""
    if len(reports) == 1:
        return reports[0]
    return replace(
        over_draws(reports),
        loose=max(r.loose for r in reports),
        weak=next((r.weak for r in reports if r.weak), None),
    )


def _worst(reports: Sequence[OutputReport]) -> OutputReport:
    """The first report with the largest differences of all."""
    return replace(
        reports[0],
        max_ulp=max(r.max_ulp for r in reports),
        max_error=max(r.max_error for r in reports),
        max_relative=max(r.max_relative for r in reports),
        share=max(r.share for r in reports),
        weak=reports[0].weak if all(r.weak for r in reports) else None,
    )


def _same(a: Array, b: Array) -> Mask:
    """Where two arrays are equal, NaN for NaN."""
    if not is_floating(a.dtype):
        return np.asarray(a == b)
    return np.asarray((a == b) | (np.isnan(a) & np.isnan(b)))


def compare_output(number: int, expected: Array, actual: Array, enclosure: Enclosure | None = None) -> OutputReport:
    """Compare one output; without an enclosure it must be equal. Another shape or type differs everywhere."""
    name, dimensions = expected.dtype.name, expected.shape
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        first = ElementDifference(
            number, (), f"{name}{list(dimensions)}", f"{actual.dtype.name}{list(actual.shape)}", 0, 0
        )
        return OutputReport(number, name, dimensions, 0.0, 0.0, 0.0, 0.0, 0, max(1, expected.size), 0, 0.0, None, first)
    bounds = Enclosure.exact(expected) if enclosure is None else enclosure
    left, right = real_parts(expected), real_parts(actual)
    floating = is_floating(left.dtype)
    equal, aside = _same(left, right), bounds.set_aside()
    off = np.asarray(~bounds.holds(expected, actual))
    with np.errstate(all="ignore"):  # a NaN that signals is one that differs
        a, b = left.astype(np.float64), right.astype(np.float64)
        error = np.where(equal, 0.0, np.abs(a - b))
        size = np.abs(a)
        relative = np.where(size > 0, error / size, np.where(error > 0, np.inf, 0.0))
        slack = np.where(b > a, bounds.high.astype(np.float64) - a, a - bounds.low.astype(np.float64))
        used = np.where(~equal & ~off & ~aside & (slack > 0), error / slack, 0.0)
    distance = ulp_distance(left, right) if floating else np.zeros(left.shape)
    worst: ElementDifference | None = None
    if off.any():
        index = tuple(int(i) for i in np.unravel_index(int(np.argmax(off.reshape(-1))), off.shape))
        unit = float(ulp_of(left[index])) if floating else 0.0
        limit = max(0.0, float(slack[index])) / unit if unit else 0.0
        place = index[: len(dimensions)]
        shown = (str(expected[place]), str(actual[place]))
        worst = ElementDifference(number, place, *shown, float(distance[index]), limit if np.isfinite(limit) else 0.0)
    return OutputReport(
        number,
        name,
        dimensions,
        float(distance.max(initial=0.0)),
        float(error[np.isfinite(error)].max(initial=0.0)),
        float(relative[np.isfinite(relative)].max(initial=0.0)),
        float(used.max(initial=0.0)),
        _count(~equal & ~off, len(dimensions)),
        _count(off, len(dimensions)),
        _count(aside, len(dimensions)),
        0.0 if enclosure is None else bounds.loose_share(expected),
        None,
        worst,
    )


def _count(mask: Mask, rank: int) -> int:
    """The number of elements of which some part is in the mask."""
    return int(np.count_nonzero(mask if mask.ndim == rank else mask.any(axis=-1)))
