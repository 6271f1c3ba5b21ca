"""Bounds held against the moved values: the bounds give the shape, the moved values the scale.

Interval arithmetic takes every rounding for the worst one and forgets that two values come from one source, so that bounds grow far beyond what happens,
the more so the longer a computation is. The moved values do not. So an element's radius, the larger distance of its value to a bound, is at most
`FACTOR` times what the moved values use up of theirs: the largest share among elements of a like relative radius, so that no element is taken for
certain because the moved values happened to meet its value, and none gets more than its own bounds. Random errors are normal to a good approximation, and the
moved values move about three times as far as real backends do (see `analysis`), so that the largest of `LANES` moves is less than 1/`FACTOR_ALONE` of a real one
about once in a million cases. Where many elements are pooled, `FACTOR` is enough.

Sources: R. E. Moore, "Interval Analysis", 1966, for bounds; D. S. Parker, "Monte Carlo Arithmetic", UCLA CSD-970002, 1997, and J. Vignes,
"Discrete Stochastic Arithmetic for Validating Results of Numerical Software", Numerical Algorithms 37, 2004, for moved values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hlo_opt.runtime.rounding.spread import HIGH, LOW, MOVED, VALUE, is_narrow
from hlo_opt.runtime.ulp import ulp_of

Array = Any

FACTOR = 4.0
"""How many times further than the moved values a backend may be off."""
FACTOR_ALONE = 8.0
"""The same for elements that are too few to be pooled."""

_FEW = 32  # an array of so many elements, or a group, is one group with the rest
_GROUPS = 200  # by the exponent of the relative radius
_NEAR = 2  # groups on either side that count as alike


def calibrated(rows: Array, dtype: np.dtype[Any] | None = None) -> Array:
    """The rows with narrower bounds where the moved values allow it. `dtype` is the type that the rows will be rounded to, where it is not their own."""
    if rows.dtype.kind == "c":
        return rows
    wide = rows.astype(np.float64) if rows.dtype != np.float64 else rows
    value = wide[VALUE]
    with np.errstate(all="ignore"):
        radius = np.maximum(wide[HIGH] - value, value - wide[LOW])
        usable = (radius > 0) & np.isfinite(radius)
        if not usable.any():
            return rows
        moves = np.abs(wide[MOVED:] - value).max(axis=0)
        share = np.where(usable & np.isfinite(moves), moves / np.where(usable, radius, 1.0), usable)
        if value.size <= _FEW:
            kept = min(1.0, FACTOR_ALONE * float(share.max()))
            if kept == 1.0:
                return rows
        else:
            kept = np.minimum(1.0, FACTOR * _pooled(share, radius, np.abs(value), usable))
        own = rows.dtype
        unit = ulp_of(value.astype(own)) if dtype is None and is_narrow(own) else np.spacing(np.abs(value.astype(own)))
        radius = np.maximum(kept * radius, unit)
        low = np.where(usable, np.maximum(wide[LOW], value - radius), wide[LOW])
        high = np.where(usable, np.minimum(wide[HIGH], value + radius), wide[HIGH])
    made = np.array(rows)
    made[LOW], made[HIGH] = low.astype(own), high.astype(own)
    return made


def _pooled(share: Array, radius: Array, size: Array, usable: Array) -> Array:
    """For each element the largest share among those of a like relative radius."""
    exponent = np.frexp(radius / np.where(size > 0, size, np.inf))[1]
    exponent = np.where(size > 0, exponent, 99)
    group = np.clip(exponent + _GROUPS // 2, 0, _GROUPS - 1)
    flat, shares = group[usable], share[usable]
    largest, number = np.zeros(_GROUPS), np.bincount(flat, minlength=_GROUPS)
    np.maximum.at(largest, flat, shares)
    near, count = largest.copy(), number.copy()
    for step in range(1, _NEAR + 1):
        for to, source in ((np.s_[step:], np.s_[:-step]), (np.s_[:-step], np.s_[step:])):
            near[to] = np.maximum(near[to], largest[source])
            count[to] += number[source]
    near[count < _FEW] = largest.max()
    return near[group]
