"""Bounds calibrated against the moved values: the bounds give the shape, the moved values the scale.

Interval arithmetic assumes the worst case for every rounding and ignores that two values may come from one source, so
that bounds grow far beyond actual errors, the more so the longer a computation is. The moved values do not. So an
element's radius (the larger distance from its value to a bound) is at most a factor times what the moved values use
of theirs: the largest share among elements of a similar relative radius. Thus no element counts as certain because
the moved values happened to meet its value, and none gets more than its own bounds.

The factor depends on how alike the moved values are. If many elements move independently, the largest share of each
simulated backend is nearly the same, and so will be a real one's: `LEAST`. If one source moves everything, as with a
scalar, these shares scatter, and the factor is `LEAST` times the ratio of the largest to the smallest, up to `MOST`.

Moved values move about as far as real backends do (see `analysis`), and errors are roughly normal: the largest of
`LANES` moves is less than 1/`MOST` of a real one about once in ten thousand cases. An element's own moves prove
nothing alone, because differences vanish and return, especially in loops, and wander between elements.

Sources: R. E. Moore, "Interval Analysis", 1966, for bounds; D. S. Parker, "Monte Carlo Arithmetic", UCLA CSD-970002,
1997, and J. Vignes, "Discrete Stochastic Arithmetic for Validating Results of Numerical Software", Numerical
Algorithms 37, 2004, for moved values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hlo_opt.ir.values import Array, DType
from hlo_opt.ops.spread import is_narrow
from hlo_opt.ops.values import HIGH, LANES, LOW, MOVED, VALUE
from hlo_opt.runtime.differences import ulp_of

LEAST, MOST = 3.0, 8.0
"""How many times further than the moved values a backend may be off, at least and at most."""

_FEW = 32  # arrays with at most this many elements, and smaller groups, use the pool of all elements
_GROUPS = 200  # groups by exponent of the relative radius
_NEAR = 2  # neighbouring groups on either side that count as similar
_FLOOR = 4.0  # ULP kept by a bound of f32 or f64, since it may be one operation's tolerance; narrow types keep one


def calibrated(rows: Array, dtype: DType | None = None) -> Array:
    """The rows with tighter bounds where the moved values allow it. `dtype` is the type that the rows will be rounded
    to, if not their own."""
    if rows.dtype.kind == "c":
        return rows
    wide = rows.astype(np.float64) if rows.dtype != np.float64 else rows
    value = wide[VALUE]
    with np.errstate(all="ignore"):
        radius = np.maximum(wide[HIGH] - value, value - wide[LOW])
        usable = np.asarray((radius > 0) & np.isfinite(radius))
        if not usable.any():
            return rows
        moves = np.abs(wide[MOVED:] - value)
        shares = np.where(usable & np.isfinite(moves), moves / np.where(usable, radius, 1.0), usable)
        if value.size <= _FEW:
            kept = min(1.0, _allowed(shares.reshape(LANES, -1).max(axis=1)))
            if kept == 1.0:
                return rows
        else:
            kept = np.minimum(1.0, _pooled(shares, radius, np.abs(value), usable))
        own = rows.dtype
        floor = ulp_of(value.astype(own)) if is_narrow(own) else _FLOOR * np.spacing(np.abs(value.astype(own)))
        radius = np.minimum(radius, np.maximum(kept * radius, floor if dtype is None else 0.0))
        low = np.where(usable, np.maximum(wide[LOW], value - radius), wide[LOW])
        high = np.where(usable, np.minimum(wide[HIGH], value + radius), wide[HIGH])
    tightened = np.array(rows)
    tightened[LOW], tightened[HIGH] = low.astype(own), high.astype(own)
    return tightened


def _allowed(largest: Array) -> Any:
    """The share of its bounds that a backend may use, given the largest share of each simulated one (one row each)."""
    most, least = largest.max(axis=0), largest.min(axis=0)
    with np.errstate(all="ignore"):
        scatter = np.where(least > 0, most / least, np.inf)
    shares = most * np.minimum(LEAST * scatter, MOST)
    return float(shares) if largest.ndim == 1 else shares


def _pooled(shares: Array, radius: Array, size: Array, usable: Array) -> Array:
    """For each element the share of its bounds that may be used, from all elements of a similar relative radius."""
    exponent = np.frexp(radius / np.where(size > 0, size, np.inf))[1]
    exponent = np.where(size > 0, exponent, 99)
    group = np.clip(exponent + _GROUPS // 2, 0, _GROUPS - 1)
    flat = group[usable]
    number = np.bincount(flat, minlength=_GROUPS)
    largest = np.zeros((LANES, _GROUPS))
    for lane in range(LANES):
        np.maximum.at(largest[lane], flat, shares[lane][usable])
    near, count = largest.copy(), number.copy()
    for step in range(1, _NEAR + 1):
        for to, source in ((np.s_[..., step:], np.s_[..., :-step]), (np.s_[..., :-step], np.s_[..., step:])):
            near[to] = np.maximum(near[to], largest[source])
            count[to] += number[source]
    near[:, count < _FEW] = largest.max(axis=1)[:, None]
    return np.asarray(_allowed(near))[group]
