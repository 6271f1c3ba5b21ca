"""Reductions (folds) over NumPy arrays, shared by reduce, reduce-window, scatter and select-and-scatter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hlo_opt.ir import Computation, ElementType
from hlo_opt.ir.attribute import WindowDimension
from hlo_opt.ir.values import Array, DType
from hlo_opt.ops.elementwise.functions import FUNCTIONS
from hlo_opt.ops.numeric import maximum, minimum
from hlo_opt.ops.reduction.reducers import monoid
from hlo_opt.ops.spec import Evaluator

_PREDICATES = {"add": np.logical_or, "multiply": np.logical_and, "maximum": np.logical_or, "minimum": np.logical_and}


def combine(ufunc: np.ufunc, left: Array, right: Array) -> Array:
    """Apply the function, with 0 greater than -0."""
    if ufunc is np.maximum:
        return maximum(left, right)
    return minimum(left, right) if ufunc is np.minimum else ufunc(left, right)


def fold_axes(ufunc: np.ufunc, source: Array, axes: tuple[int, ...], dtype: DType) -> Array:
    """`ufunc.reduce`, with 0 greater than -0."""
    result: Array = np.asarray(ufunc.reduce(source, axis=axes, dtype=dtype))
    if ufunc not in (np.maximum, np.minimum) or result.dtype.kind != "f" or result.all():
        return result
    wanted = ufunc is np.minimum
    there = np.any((source == 0) & (np.signbit(source) == wanted), axis=axes)
    zero = np.where(there == wanted, dtype.type(-0.0), dtype.type(0.0))
    return np.where(result == 0, zero, result)


def identity_of(ufunc: np.ufunc, dtype: DType) -> Any:
    """The identity of a function of `ufunc_of`."""
    if ufunc in (np.maximum, np.minimum):
        sign = -1 if ufunc is np.maximum else 1
        if dtype.kind == "f":
            return dtype.type(sign * np.inf)
        return np.iinfo(dtype).min if sign < 0 else np.iinfo(dtype).max
    if ufunc is np.bitwise_and:
        return np.invert(np.zeros((), dtype))
    return dtype.type(ufunc in (np.multiply, np.logical_and))


SEQUENTIAL = 256
"""Longer folds with a user-defined reducer combine neighbours pairwise; XLA assumes that reducers are associative."""


def ufunc_of(computation: Computation, element_type: ElementType) -> np.ufunc | None:
    """The NumPy function of a reducer that is a single operation on this type; None for other reducers."""
    name = monoid(computation)
    if name is None or (element_type.is_complex and name not in ("add", "multiply")):
        return None
    return ufunc_named(name, element_type)


def ufunc_named(name: str, element_type: ElementType) -> np.ufunc:
    """The NumPy function of an operation in `MONOIDS` on this type."""
    function: np.ufunc = getattr(np, FUNCTIONS[name])
    return _PREDICATES.get(name, function) if element_type.kind == "pred" else function


def wide_dtype(element_type: ElementType, name: str | None) -> DType:
    """The NumPy accumulator type: f64 for sums and products, more than `hlo_opt.ops.reduction.reducers` requires.

    Other folds of narrow floats use f32 (exact), narrow integers 64 bits (wrapped at the end).
    """
    if element_type.is_float:
        return np.dtype(np.float64 if element_type.bits == 64 or name in ("add", "multiply") else np.float32)
    if element_type.is_complex and name in ("add", "multiply"):
        return np.dtype(np.complex128)
    if element_type.is_integer and element_type.bits < 8:
        return np.dtype(np.int64 if element_type.kind == "signed" else np.uint64)
    return element_type.dtype


def fold(
    evaluator: Evaluator, computation: Computation, accumulators: list[Array], values: list[Array], *, wide: bool
) -> list[Array]:
    """Fold axis 0 of the values, in order, into accumulators of the remaining shape. `wide` as in
    `Evaluator.map_elements`."""

    def combined(left: Sequence[Array], right: Sequence[Array]) -> list[Array]:
        return evaluator.map_elements(computation, [*left, *right], wide=wide)

    count = values[0].shape[0]
    while count > SEQUENTIAL:
        even = count // 2 * 2
        paired = combined([v[0:even:2] for v in values], [v[1:even:2] for v in values])
        values = [
            np.concatenate([pair, old[even:]]) if even < count else pair
            for pair, old in zip(paired, values, strict=True)
        ]
        count = values[0].shape[0]
    for position in range(count):
        accumulators = combined(accumulators, [v[position] for v in values])
    return accumulators


def combine_at(
    evaluator: Evaluator,
    computation: Computation,
    targets: list[Array],
    positions: Array,
    values: list[Array],
    *,
    wide: bool,
) -> None:
    """targets[k][p] = f(targets.., values..) for every position p in turn, in place; targets are flat arrays.

    Repeated positions are applied in order, distinct ones all at once. `wide` as in `Evaluator.map_elements`.
    """
    if not positions.size:
        return
    rounds = _occurrence(positions)
    order = stable_order(rounds)
    ends = np.cumsum(np.bincount(rounds))
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        chosen = order[start:end]
        where = positions[chosen]
        current, updates = [t[where] for t in targets], [v[chosen] for v in values]
        results = evaluator.map_elements(computation, [*current, *updates], wide=wide)
        for target, new in zip(targets, results, strict=True):
            target[where] = new


def _occurrence(positions: Array) -> Array:
    """For each position, the number of equal positions before it."""
    order = stable_order(positions)
    ranked = positions[order]
    fresh = np.concatenate([[True], ranked[1:] != ranked[:-1]])
    starts = np.maximum.accumulate(np.where(fresh, np.arange(len(ranked)), 0))
    counts = np.empty(len(ranked), dtype=np.int64)
    counts[order] = np.arange(len(ranked)) - starts
    return counts


def stable_order(values: Array) -> Array:
    """A stable argsort of non-negative integers, in passes of 16 bits, for which NumPy has a radix sort."""
    order = np.argsort(values.astype(np.uint16), kind="stable")
    most, shift = int(values.max(initial=0)), 16
    while most >> shift:
        order = order[np.argsort((values[order] >> shift).astype(np.uint16), kind="stable")]
        shift += 16
    return order


# ---- long windows, such as those of cumulative sums, without one step per window position
#
# The reducer is assumed associative and commutative, as in XLA (xla/service/reduce_window_rewriter.cc splits such
# windows too), so dimensions are folded one after another, and a window is composed of windows whose sizes are powers
# of two.

Combine = Callable[[list[Array], list[Array]], list[Array]]

LONG = 32
"""Windows with more positions in some dimension are folded by `fold_long`."""


def is_long(parts: Sequence[WindowDimension]) -> bool:
    """Whether a window has a dimension with many positions."""
    return any(w.size > LONG for w in parts)


def fold_long(
    inputs: list[Array],
    identities: list[Any],
    parts: Sequence[WindowDimension],
    combine: Combine,
    ufunc: np.ufunc | None,
) -> list[Array]:
    """The folds of all windows, without the init value; the identities for empty windows.

    `combine` folds two lists of arrays elementwise; `ufunc` is the same for one input, where NumPy has the function.
    """
    for axis, w in enumerate(parts):
        if w != WindowDimension(1):
            moved = [np.moveaxis(i, axis, -1) for i in inputs]
            inputs = [np.moveaxis(i, -1, axis) for i in _fold_last(moved, identities, w, combine, ufunc)]
    return inputs


def _fold_last(
    inputs: list[Array], identities: list[Any], w: WindowDimension, combine: Combine, ufunc: np.ufunc | None
) -> list[Array]:
    size = inputs[0].shape[-1]
    spread = (size - 1) * w.lhs_dilate + 1 if size else 0
    padded = spread + w.pad_low + w.pad_high
    reach = (w.size - 1) * w.rhs_dilate + 1
    count = (padded - reach) // w.stride + 1 if padded >= reach else 0
    if not count:
        return [i[..., :0] for i in inputs]
    starts = np.arange(count) * w.stride - w.pad_low
    if ufunc is not None and size and w.lhs_dilate == w.rhs_dilate == 1:
        if starts[-1] <= 0:  # all windows are prefixes
            return [_prefixes(inputs[0], starts + w.size, identities[0], ufunc)]
        if starts[0] + w.size >= size:  # all windows are suffixes
            return [_prefixes(inputs[0][..., ::-1], size - starts, identities[0], ufunc)]
    laid = [_padded(i, identity, w, spread, padded) for i, identity in zip(inputs, identities, strict=True)]
    length = padded - reach + 1
    folded: list[Array] | None = None
    offset, have, rest = 0, 1, w.size
    while True:
        if rest & 1:
            part = [x[..., offset * w.rhs_dilate :][..., :length] for x in laid]
            folded = part if folded is None else combine(folded, part)
            offset += have
        rest >>= 1
        if not rest:
            break
        step = have * w.rhs_dilate
        laid = combine([x[..., :-step] for x in laid], [x[..., step:] for x in laid])
        have *= 2
    assert folded is not None
    return [x[..., :: w.stride] for x in folded]


def _prefixes(value: Array, lengths: Array, identity: Any, ufunc: np.ufunc) -> Array:
    """The folds of prefixes of these lengths."""
    total = ufunc.accumulate(value, axis=-1, dtype=value.dtype)
    folds = np.take(total, np.clip(lengths, 1, value.shape[-1]) - 1, axis=-1)
    folds[..., lengths <= 0] = identity
    return folds


def _padded(value: Array, identity: Any, w: WindowDimension, spread: int, padded: int) -> Array:
    """The elements with identities between and around them; negative padding crops."""
    padded_value = np.full(
        (*value.shape[:-1], max(spread + max(w.pad_low, 0) + max(w.pad_high, 0), 0)), identity, value.dtype
    )
    start = max(w.pad_low, 0)
    padded_value[..., start : start + spread : w.lhs_dilate] = value
    first = max(-w.pad_low, 0)
    return padded_value[..., first : first + padded]
