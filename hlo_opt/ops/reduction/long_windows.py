"""Folds over long windows, such as those of cumulative sums, without a step for every position of the window.

The reducer is taken to be associative and commutative, as XLA takes every reducer (xla/service/reduce_window_rewriter.cc splits such windows too), so dimensions
are folded one after another, and a window of a length is put together from windows of powers of two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hlo_opt.ir.attribute import WindowDimension
from hlo_opt.ir.values import Array

Combine = Callable[[list[Array], list[Array]], list[Array]]

LONG = 32
"""Windows of more positions in one dimension are folded here."""


def is_long(parts: Sequence[WindowDimension]) -> bool:
    """Whether a window has a dimension of many positions."""
    return any(w.size > LONG for w in parts)


def fold_long(
    inputs: list[Array],
    identities: list[Any],
    parts: Sequence[WindowDimension],
    combine: Combine,
    ufunc: np.ufunc | None,
) -> list[Array]:
    """The folds of all windows, without the init value; windows with nothing in them give the identities.

    `combine` folds two lists of arrays, element by element; `ufunc` is the same where there is one input and NumPy has the function.
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
        if starts[-1] <= 0:  # every window starts at the front
            return [_prefixes(inputs[0], starts + w.size, identities[0], ufunc)]
        if starts[0] + w.size >= size:  # every window reaches the end
            return [_prefixes(inputs[0][..., ::-1], size - starts, identities[0], ufunc)]
    laid = [_padded(i, identity, w, spread, padded) for i, identity in zip(inputs, identities, strict=True)]
    length = padded - reach + 1
    found: list[Array] | None = None
    offset, have, rest = 0, 1, w.size
    while True:
        if rest & 1:
            part = [x[..., offset * w.rhs_dilate :][..., :length] for x in laid]
            found = part if found is None else combine(found, part)
            offset += have
        rest >>= 1
        if not rest:
            break
        step = have * w.rhs_dilate
        laid = combine([x[..., :-step] for x in laid], [x[..., step:] for x in laid])
        have *= 2
    assert found is not None
    return [x[..., :: w.stride] for x in found]


def _prefixes(value: Array, lengths: Array, identity: Any, ufunc: np.ufunc) -> Array:
    """The folds of so many elements from the front."""
    total = ufunc.accumulate(value, axis=-1, dtype=value.dtype)
    made = np.take(total, np.clip(lengths, 1, value.shape[-1]) - 1, axis=-1)
    made[..., lengths <= 0] = identity
    return made


def _padded(value: Array, identity: Any, w: WindowDimension, spread: int, padded: int) -> Array:
    """The elements with identities between and around them; negative padding cuts some off."""
    made = np.full((*value.shape[:-1], max(spread + max(w.pad_low, 0) + max(w.pad_high, 0), 0)), identity, value.dtype)
    start = max(w.pad_low, 0)
    made[..., start : start + spread : w.lhs_dilate] = value
    first = max(-w.pad_low, 0)
    return made[..., first : first + padded]
