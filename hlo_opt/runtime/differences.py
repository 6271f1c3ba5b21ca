"""How far apart two arrays are, and how far they may be: bounds that follow from the tolerances of the op table.

The model. An operation's `tolerance` says by how many ULP a backend may differ from the reference. What such differences may do to the outputs is measured, not
guessed: the original is evaluated again a few times, each operation that has a tolerance moved at random within it (`hlo_opt.runtime.perturb`). How far an output
moves then, times a stated factor, is its bound. So cancellation widens a bound as it must, exact operations keep theirs at zero, and a program
that rounds nowhere has to agree bit for bit. Integers and predicates must be equal, NaN and infinities must stand in the same places, except where
the moved runs themselves differ there: then `FACTOR` times as many elements as in the worst moved run may be off, but no more than an eighth of the output
or twice what that run had.
(Monte Carlo arithmetic: Parker, "Monte Carlo Arithmetic: exploiting randomness in floating-point arithmetic", UCLA CSD-970002, 1997.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hlo_opt.runtime.memory import Array
from hlo_opt.runtime.ulp import is_floating, real_parts, ulp_distance, ulp_of

FACTOR = 4.0
"""How much further than the moved runs an output may be off. Each operation moves by at least half its tolerance in each of three runs, so that real differences,
which seldom reach the tolerance, stay within this with a very high probability."""

_OUTLIER = 64.0  # a moved element this many times further off than the median took another branch; it says nothing about its neighbours

Mask = np.ndarray[Any, np.dtype[np.bool_]]
Reals = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Difference:
    """An element that is off. `index` has one entry per dimension; `ulp` is infinite where only one value is NaN, and 0 for integers."""

    output: int
    index: tuple[int, ...]
    expected: str
    actual: str
    ulp: float
    bound: float

    def __str__(self) -> str:
        place = f"out{self.output}[{', '.join(map(str, self.index))}]"
        if self.ulp == 0:
            return f"{place}: expected {self.expected}, got {self.actual} (must be equal)"
        return f"{place}: expected {self.expected}, got {self.actual}, {self.ulp:.4g} ULP apart (bound {self.bound:.4g} ULP)"


@dataclass(frozen=True)
class OutputReport:
    """How one output compares.

    max_ulp, max_error  the largest distance, in ULP and absolute (integers: 0 ULP)
    share               how much of its bound the element uses up that comes nearest to it, of those within
    differing           elements beyond their bound
    allowed             how many of these the moved runs excuse
    """

    output: int
    type: str
    dimensions: tuple[int, ...]
    max_ulp: float
    max_error: float
    share: float
    differing: int
    allowed: int
    first: Difference | None

    @property
    def ok(self) -> bool:
        return self.differing <= self.allowed


@dataclass(frozen=True)
class Bound:
    """How far each element of an output may be off. `slack` is absolute; `allowed` counts elements that may be off by anything."""

    slack: Reals
    allowed: int


def bound_of(reference: Array, moved: Sequence[Array]) -> Bound:
    """The bound that the moved runs of the original give. Without moved runs everything must be equal."""
    reference = real_parts(reference)
    runs = [real_parts(m) for m in moved]
    if not is_floating(reference.dtype):
        off = max((int(np.count_nonzero(m != reference)) for m in runs), default=0)
        return Bound(np.zeros(reference.shape), _allowed(off, reference.size))
    base = reference.astype(np.float64)
    finite = np.isfinite(base)
    errors = np.zeros(base.shape)
    off = 0
    for run in runs:
        values = run.astype(np.float64)
        same_kind = finite & np.isfinite(values)
        with np.errstate(invalid="ignore", over="ignore"):
            errors = np.maximum(errors, np.where(same_kind, np.abs(values - base), 0.0))
        off = max(off, int(np.count_nonzero(~same_kind & ~_equal_or_nan(values, base))))
    scale = _scale(base, finite)
    relative = np.divide(errors, scale, out=np.zeros_like(errors), where=scale > 0)
    seen = relative[relative > 0]
    typical = min(float(seen.max()), _OUTLIER * float(np.median(seen))) if seen.size else 0.0
    outliers = int(np.count_nonzero(relative > typical)) if seen.size else 0
    return Bound(FACTOR * np.maximum(errors, typical * scale), _allowed(off + outliers, reference.size))


def _allowed(off: int, size: int) -> int:
    return min(int(FACTOR * off), max(2 * off, size // 8))


def _scale(base: Reals, finite: Mask) -> Reals:
    """The magnitude that errors are measured against: an element's own, but not below the middle one of its output."""
    magnitude = np.where(finite, np.abs(np.where(finite, base, 0.0)), 0.0)
    positive = magnitude[magnitude > 0]
    middle = float(np.median(positive)) if positive.size else 0.0
    return np.maximum(magnitude, middle)


def _equal_or_nan(a: Reals, b: Reals) -> Mask:
    return np.asarray((a == b) | (np.isnan(a) & np.isnan(b)))


def compare_output(number: int, expected: Array, actual: Array, bound: Bound) -> OutputReport:
    """Compare one output. Another shape or type differs everywhere."""
    name, dimensions = expected.dtype.name, expected.shape
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        first = Difference(number, (), f"{name}{list(dimensions)}", f"{actual.dtype.name}{list(actual.shape)}", 0, 0)
        return OutputReport(number, name, dimensions, 0.0, 0.0, 0.0, max(1, expected.size), 0, first)
    left, right = real_parts(expected), real_parts(actual)
    if is_floating(left.dtype):
        distance, error, off = _float_differences(left, right, bound)
    else:
        off = np.asarray(left != right)
        distance = np.zeros(left.shape)
        error = np.abs(left.astype(np.float64) - right.astype(np.float64))
    found: Difference | None = None
    if off.any():
        index = tuple(int(i) for i in np.unravel_index(int(np.argmax(off.reshape(-1))), off.shape))
        unit = float(ulp_of(left[index])) if is_floating(left.dtype) else 0.0
        limit = float(bound.slack[index]) / unit if unit else 0.0
        place = index[: len(dimensions)]
        shown = (str(expected[place]), str(actual[place]))
        found = Difference(number, place, *shown, float(distance[index]), limit)
    finite = error[np.isfinite(error)]
    within = (error > 0) & ~off
    share = float((error[within] / bound.slack[within]).max()) if within.any() else 0.0
    return OutputReport(
        number,
        name,
        dimensions,
        float(distance.max(initial=0.0)),
        float(finite.max(initial=0.0)),
        share,
        int(np.count_nonzero(off)),
        bound.allowed,
        found,
    )


def _float_differences(left: Array, right: Array, bound: Bound) -> tuple[Reals, Reals, Mask]:
    """ULP distance, absolute difference and whether it is beyond the bound, element by element."""
    a, b = left.astype(np.float64), right.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.where(finite, np.abs(a - b), np.where(_equal_or_nan(a, b), 0.0, np.inf))
    return ulp_distance(left, right), error, np.asarray(error > bound.slack)
