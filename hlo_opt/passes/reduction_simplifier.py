"""Reduces that fold one element for each result: what they do is done by element, and no kernel has to walk a row or a
column for it.

JAX's raw dumps are full of them: `sum(keepdims=True)` and the gradients of broadcasts reduce dimensions of size 1.
Source of the idea: xla/hlo/transforms/simplifiers/algebraic_simplifier.cc (HandleReduce), which drops the init value.
Here it stays where it may change something: 0 + -0 is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np

from hlo_opt.ir import Computation, Instruction, edit
from hlo_opt.ops.reduction.reducers import monoid, starts_with_identity
from hlo_opt.ops.sets import keeps_values
from hlo_opt.passes.base import PassContext, RewritingPass
from hlo_opt.passes.expansion import BroadcastingWriter

_MOVES = frozenset({"reshape", "broadcast", "transpose", "copy", "bitcast"})


@dataclass(frozen=True)
class ReductionSimplifier(RewritingPass):
    """Replace a reduce over dimensions of size 1 by a reshape, with the init value combined where it is not the
    reducer's identity. The values stay the same, to the bit."""

    name: ClassVar[str] = "reduction-simplifier"
    preserves: ClassVar[Literal["graph", "meaning"]] = "meaning"
    simplifies: ClassVar[bool] = True
    idempotent: ClassVar[bool] = True

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        for reduce in [i for i in computation.instructions if i.opcode == "reduce" and _folds_one(i)]:
            yield partial(_put, reduce)


def _folds_one(reduce: Instruction) -> bool:
    """Whether a reduce of one array by a plain operation folds exactly one element for each result."""
    shape = reduce.operands[0].shape
    if reduce.shape.is_tuple or reduce.control_predecessors or any(shape.dynamic):
        return False
    folded = math.prod(shape.dimensions[d] for d in reduce.ints("dimensions"))
    return folded == 1 and monoid(reduce.called_by("to_apply")) is not None


def _put(reduce: Instruction) -> None:
    """Replace the reduce by the value."""
    edit.replace_all_uses(reduce, _by_element(reduce))
    edit.remove(reduce)


def _by_element(reduce: Instruction) -> Instruction:
    """The value of such a reduce."""
    writer, (value, init) = BroadcastingWriter(reduce.computation), reduce.operands
    changes = not starts_with_identity(reduce) or (_is_positive_zero(init) and not _never_negative_zero(value))
    while value.opcode == "reshape" and value.shape != reduce.shape:  # reshapes of reshapes
        value = value.operands[0]
    element = writer.reshape(value, reduce.shape)
    if not changes:
        return element
    start = init if not reduce.shape.rank else writer.emit("broadcast", reduce.shape, init, dimensions=())
    return writer.emit(str(monoid(reduce.called_by("to_apply"))), reduce.shape, start, element)


def _is_positive_zero(init: Instruction) -> bool:
    """Whether it is +0, whose sign an addition may change."""
    if init.literal is None or not (init.shape.type.is_float or init.shape.type.is_complex):
        return False
    number = np.asarray(init.literal.value).reshape(-1)[0]
    signs = np.signbit(np.real(number)), not init.shape.type.is_complex or np.signbit(np.imag(number))
    return bool(number == 0) and not all(signs)


def _never_negative_zero(value: Instruction) -> bool:
    """Whether no element can be -0, because the elements come from a sum that starts at +0."""
    while keeps_values(value, _MOVES):
        value = value.operands[0]
    if value.opcode != "reduce" or value.shape.is_tuple or monoid(value.called_by("to_apply")) != "add":
        return False
    return _is_positive_zero(value.operands[1])
