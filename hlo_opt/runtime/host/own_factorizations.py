"""The factorizations of matrices that the host computes itself, as the words of `host_factorization.h`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from hlo_opt.ir import Shape
from hlo_opt.ops.call_config import is_lower
from hlo_opt.ops.custom_calls.table import routine
from hlo_opt.ops.sets import takes_root
from hlo_opt.ops.shapes import flag
from hlo_opt.runtime.host.own_calls import as_one
from hlo_opt.runtime.host.own_routines import Number
from hlo_opt.runtime.schedule.ops import CallOp


class Factored(IntEnum):
    """What is computed; `host_factorization.h` has the same numbers."""

    LU = 0
    LOWER = 1
    UPPER = 2
    POSITIVE_LOWER = 3
    POSITIVE_UPPER = 4
    REFLECTIONS = 5
    EXPANDED = 6


_CALLED = {
    "getrf": (Factored.LU, (2, 2, 1, 0)),
    "potrf": (Factored.POSITIVE_UPPER, (2, 2, 0)),
    "geqrf": (Factored.REFLECTIONS, (2, 2, 1)),
    "orgqr": (Factored.EXPANDED, (2, 1, 2)),
}
"""What LAPACK's routines compute, and of each operand and result the dimensions behind those of the batch."""
_IN_LAPACK = frozenset({Factored.LOWER, Factored.UPPER, Factored.POSITIVE_LOWER, Factored.POSITIVE_UPPER})
LARGEST = 256
"""The most rows of a matrix whose factors NumPy has from LAPACK that the host computes itself: LAPACK works in
blocks."""


def factorization_of(op: CallOp, shapes: Sequence[Shape]) -> tuple[int, ...] | None:
    """What a factorization of f32 or f64 matrices computes with, then the words that `factor_words` is given. None for
    other steps, for large matrices that LAPACK factors, and where the dimensions of a batch do not lie as one."""
    i = op.instruction
    called = routine(i.word("custom_call_target", ""))
    buffers = (*op.inputs, *op.outputs)
    what: Factored
    ranks: tuple[int, ...]
    if takes_root(i):
        what, ranks = Factored.LOWER if flag(i, "lower") else Factored.UPPER, (2, 2)
    elif called in _CALLED:
        what, ranks = _CALLED[called]
    else:
        return None
    every = [shapes[b] for b in buffers]
    if len(every) != len(ranks) or not all(s.is_array and s.element_count and not any(s.dynamic) for s in every):
        return None
    matrix = every[0]
    number = {"f32": Number.F32, "f64": Number.F64}.get(matrix.type.name)
    batches = as_one(*((s, range(s.rank - own)) for s, own in zip(every, ranks, strict=True)))
    if number is None or batches is None or (what in _IN_LAPACK and matrix.dimensions[-1] > LARGEST):
        return None
    systems, *apart = batches
    if what is Factored.POSITIVE_UPPER and is_lower(i):
        what = Factored.POSITIVE_LOWER
    order = (0, 2, 1) if what is Factored.EXPANDED else range(len(every))  # the factors come last
    words = [number, what, *matrix.dimensions[-2:], systems, len(every)]
    for k in order:
        own = [*every[k].strides[every[k].rank - ranks[k] :], 0, 0][:2]
        words += [buffers[k], *own, apart[k]]
    return (*words, every[1].dimensions[-1]) if what is Factored.EXPANDED else tuple(words)
