"""Whether kernels of ours give what XLA's code gives on the same inputs: a region is compared before it is timed.

Both round differently, so that equal bits cannot be asked for. In this order, the first that holds ends it:

1. The results are equal, or a few roundings apart.
2. XLA's own results move as far where each number among its inputs is a rounding larger or smaller.
3. Our bounds of rounding, those of `hlo-opt check`, hold our results, or do not hold XLA's either: then these say
   nothing.

What is left is wrong. Where the bounds would take too long, results must be as near as two forms of a kernel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from hlo_opt.diag import BackendError, HloOptError
from hlo_opt.diag.time_limit import TimeUpError, check_time, time_until
from hlo_opt.evaluate.elided import elided_constants
from hlo_opt.evaluate.memory import bytes_of, check_memory, default_limit
from hlo_opt.ir import Module
from hlo_opt.ir.values import Array
from hlo_opt.ops.spread import picked
from hlo_opt.ops.values import ROWS, VALUE
from hlo_opt.runtime.differences import Enclosure, far_apart, is_floating, real_parts
from hlo_opt.runtime.host.crashes import CRASHED
from hlo_opt.runtime.rounding.analysis import analyse_devices
from hlo_opt.runtime.rounding.verdict import enclosures

ROUNDINGS, OF_LARGEST = 16, 4
"""How far apart results may be in any case: so many roundings of their type, of the element or of the middle one of its
array, whichever is larger; or so many of the largest one, since terms of that size may cancel."""

NARROW_ROUNDINGS, NARROW_OF_LARGEST = 2, 1
"""The same for types with 16 bits or fewer, a rounding of which is seen."""

DRAWS = 4
"""How often XLA's code runs on moved inputs."""

NEARLY = 8
"""How many times as far, and in how many times as many elements, ours may be off as XLA's own results move: the largest
of a few draws is not the largest of all."""

SECONDS = 5.0
"""The time for runs on moved inputs, and that for the bounds of rounding."""

PIECE = 1 << 20
"""Elements that are compared at once, so that large arrays take little memory."""

SAMPLE = 1 << 14
"""Elements whose sizes stand for those of the array."""

Run = Callable[[Sequence[Array]], Sequence[Array]]
"""Results for inputs."""

WRONG, UNDECIDED, CRASHES = "JAX212", "JAX213", "JAX214"


@dataclass(frozen=True)
class Disagreement:
    """Why results of ours are not accepted. `code`: `WRONG`, `UNDECIDED` where that could not be told in time, or
    `CRASHES` where there are none."""

    code: str
    text: str


def disagreement(module: Module, ours: Run, theirs: Run, inputs: Sequence[Array]) -> Disagreement | None:
    """What is wrong with results of ours for a module; None where nothing is. `theirs` runs XLA's code. Raises what
    both raise, but for a crash of ours, and TimeUpError where the caller has no time left."""
    try:
        given = ours(inputs)
    except BackendError as fault:
        if fault.code != CRASHED:
            raise
        return Disagreement(CRASHES, fault.message)
    begun = time.monotonic()
    wanted = theirs(inputs)
    seconds = time.monotonic() - begun
    excess = _all_excess(given, wanted)
    if not any(e.size for e in excess):
        return None
    if DRAWS * seconds > SECONDS:  # the bounds take longer still
        return _too_far(given, wanted)
    moves = []
    for draw in range(DRAWS):
        check_time()
        moved = theirs(rounded_off(inputs, np.random.default_rng(draw)))
        moves.append(_all_excess(moved, wanted))
    if all(_covered(own, [m[k] for m in moves]) for k, own in enumerate(excess)):
        return None
    try:
        with time_until(time.monotonic() + SECONDS):
            return _outside_bounds(module, inputs, given, wanted)
    except HloOptError as fault:
        if isinstance(fault, TimeUpError):
            check_time()
        return _too_far(given, wanted)


def rounded_off(arrays: Sequence[Array], generator: np.random.Generator) -> list[Array]:
    """Arrays whose floating-point numbers are each a rounding larger or smaller; others stay."""
    return [_rounded_off(a, generator) if is_floating(a.dtype) else a for a in arrays]


def _rounded_off(array: Array, generator: np.random.Generator) -> Array:
    wide = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    with np.errstate(all="ignore"):
        return np.asarray(wide * (1 + _rounding(array) * generator.choice([-1.0, 1.0], array.shape))).astype(
            array.dtype
        )


def _rounding(array: Array) -> float:
    return float(ml_dtypes.finfo(array.dtype).eps)


def _all_excess(given: Sequence[Array], wanted: Sequence[Array]) -> list[Array]:
    return [_excess(a, b) for a, b in zip(given, wanted, strict=True)]


def _excess(given: Array, wanted: Array) -> Array:
    """By how much elements are further apart than a few roundings, the largest first, without those that are not."""
    rounding = least = 0.0
    if is_floating(wanted.dtype):
        narrow = wanted.dtype.itemsize <= 2
        rounding, given, wanted = _rounding(wanted), real_parts(given), real_parts(wanted)
        middle, largest = _sizes(wanted)
        least = rounding * (NARROW_OF_LARGEST if narrow else OF_LARGEST) * largest
        rounding *= NARROW_ROUNDINGS if narrow else ROUNDINGS
        least = max(least, rounding * middle)
    found = []
    for a, b in _pieces(given, wanted):
        if a.tobytes() == b.tobytes():
            continue
        with np.errstate(all="ignore"):
            x, y = a.astype(np.float64), b.astype(np.float64)
            far = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.abs(x - y))
            size = np.where(np.isfinite(y), np.abs(y), 0.0)
            over = np.where(np.isnan(far), np.inf, far) - np.maximum(rounding * size, least)
        found.append(over[over > 0])
    return np.sort(np.concatenate(found))[::-1] if found else np.zeros(0)


def _pieces(a: Array, b: Array) -> Iterator[tuple[Array, Array]]:
    a, b = a.reshape(-1), b.reshape(-1)
    for start in range(0, a.size, PIECE):
        yield a[start : start + PIECE], b[start : start + PIECE]


def _sizes(array: Array) -> tuple[float, float]:
    """The middle and the largest magnitude, of a sample of large arrays."""
    with np.errstate(all="ignore"):
        sizes = np.abs(array.reshape(-1)[:: max(1, array.size // SAMPLE)].astype(np.float64))
    sizes = sizes[np.isfinite(sizes)]
    return (float(np.median(sizes)), float(sizes.max())) if sizes.size else (0.0, 0.0)


def _covered(own: Array, moves: Sequence[Array]) -> bool:
    """Whether nearly as many elements move nearly as far; both have the largest first."""
    widest = np.zeros(own.size)
    for move in moves:
        often = np.repeat(move, NEARLY)[: own.size]
        widest[: often.size] = np.maximum(widest[: often.size], often)
    return bool((own <= NEARLY * widest).all())


def _outside_bounds(
    module: Module, inputs: Sequence[Array], given: Sequence[Array], wanted: Sequence[Array]
) -> Disagreement | None:
    """Step 3. Raises an HloOptError where there are no bounds, and TimeUpError where they take too long."""
    if elided_constants(module):
        return _too_far(given, wanted)
    rows = (ROWS + 2) * sum(bytes_of(i.shape) for i in (*module.entry.parameters, module.entry.root))
    check_memory(module, default_limit(), beside=rows)
    (analysis,) = analyse_devices(module, [inputs], rewritten=True)
    expected = [np.asarray(picked(value, VALUE)) for value in analysis.outputs]
    for number, (bounds, e, a, b) in enumerate(
        zip(enclosures(analysis, expected), expected, given, wanted, strict=True)
    ):
        wrong = bounds.holds(e, b) & ~bounds.holds(e, a)
        if wrong.any():
            return Disagreement(WRONG, _told(number, a, b, wrong, bounds))
    return None


def _told(number: int, given: Array, wanted: Array, wrong: Array, bounds: Enclosure) -> str:
    """The first wrong element."""
    index = tuple(int(k) for k in np.unravel_index(int(np.argmax(wrong.reshape(-1))), wrong.shape))
    place = index[: wanted.ndim]
    return (
        f"result {number}[{', '.join(map(str, place))}] is {given[place]} instead of {wanted[place]}, rounding allows "
        f"{bounds.low[index]} to {bounds.high[index]}; {int(np.count_nonzero(wrong))} of {wrong.size} elements"
    )


def _too_far(given: Sequence[Array], wanted: Sequence[Array]) -> Disagreement | None:
    for number, (a, b) in enumerate(zip(given, wanted, strict=True)):
        if far_apart(a, b):
            return Disagreement(UNDECIDED, f"result {number}")
    return None
