"""Scatters that add updates to zeros, and whose result is added to an array: the updates are added to that array.

The gradient of an embedding table is a scatter into zeros, which the optimizer adds to its momentum. Without the zeros
a table is written and read less. XLA does so for all types (AlgebraicSimplifierVisitor::HandleAdd in
xla/hlo/transforms/simplifiers/algebraic_simplifier.cc); here sums of narrow floats are left, where each of many small
updates would be rounded away beside a large element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

from hlo_opt.ir import Computation, Instruction, edit
from hlo_opt.ops.reduction.reducers import monoid
from hlo_opt.ops.sets import SIGNS, combines_updates
from hlo_opt.passes.base import PassContext, RewritingPass
from hlo_opt.passes.simplify.reading import is_number


@dataclass(frozen=True)
class ScatterAccumulation(RewritingPass):
    """Replace x + scatter(zeros, updates) by a scatter of the updates into x. The values stay the same up to
    rounding."""

    name: ClassVar[str] = "scatter-accumulation"
    preserves: ClassVar[Literal["graph", "meaning"]] = "meaning"
    simplifies: ClassVar[bool] = True

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        awaited = {before for i in computation.instructions for before in i.control_predecessors}
        for i in [i for i in computation.instructions if SIGNS.get(i.opcode) == 1]:
            scatter = next((o for o in i.operands if _adds_to_zeros(o)), None)
            if scatter is not None and awaited.isdisjoint((i, scatter)) and not i.control_predecessors:
                yield partial(_put, i, scatter)


def _adds_to_zeros(scatter: Instruction) -> bool:
    """Whether a value is a scatter of sums into zeros with one user, which reads it once."""
    if not combines_updates(scatter) or len(scatter.operands) != 3 or scatter.control_predecessors or scatter.is_root:
        return False
    shape, users = scatter.shape, list(scatter.users)
    if any(shape.dynamic) or len(users) != 1 or users[0].operands.count(scatter) != 1:
        return False
    if shape.type.is_narrow_float or monoid(scatter.called_by("to_apply")) != "add":
        return False
    return shape.same_bytes(users[0].shape) and is_number(scatter.operands[0], 0)


def _put(total: Instruction, scatter: Instruction) -> None:
    (other,) = [o for o in total.operands if o is not scatter]
    edit.set_operands(scatter, [other, *scatter.operands[1:]])
    edit.set_shape(scatter, total.shape)
    edit.redirect_users(total, scatter)
    edit.remove(total)
