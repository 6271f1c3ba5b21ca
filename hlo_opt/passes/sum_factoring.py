"""Factors that are the same for all terms of a sum move out of it, where the sum then depends on fewer other sums.

The gradient of a layer norm sums a row's deviations times the inverse of their spread, which is a sum itself. Without
this factor, both sums can be folded in one reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Literal

from hlo_opt.ir import Computation, Instruction, Shape, edit
from hlo_opt.ir.element_type import F32, F64
from hlo_opt.ops.reduction.reducers import monoid, starts_with_identity
from hlo_opt.passes.base import PassContext, RewritingPass
from hlo_opt.passes.expansion import Writer


@dataclass
class Term:
    """The operand of a sum as a product: factors that are constant over the summed dimensions (a scalar, or an array of
    the sum's shape), arrays whose deviation from their mean is a factor, and the rest."""

    sign: int = 1
    kept: list[Instruction] = field(default_factory=list)
    deviations: list[Instruction] = field(default_factory=list)
    rest: list[Instruction] = field(default_factory=list)

    def times(self, writer: Writer, value: Instruction) -> Instruction:
        """The product of a sum of the rest and the factors outside."""
        for factor in self.kept:
            if not factor.shape.rank:
                factor = writer.emit("broadcast", value.shape, factor, dimensions=())
            value = writer.emit("multiply", value.shape, value, factor)
        return writer.emit("negate", value.shape, value) if self.sign < 0 else value


def is_plain_sum(reduce: Instruction) -> bool:
    """Whether an instruction adds up floats that no step rounds to less than f32, from 0."""
    if reduce.opcode != "reduce" or not starts_with_identity(reduce) or reduce.control_predecessors:
        return False
    shape = reduce.operands[0].shape
    return monoid(reduce.called_by("to_apply")) == "add" and shape.type in (F32, F64) and not any(shape.dynamic)


def term_of(reduce: Instruction, deviates: Callable[[Instruction], bool] = lambda value: False) -> Term:
    """The product that a sum's operand is; `deviates` says whether a difference is a deviation. Not recursive, so
    chains may be long."""
    term, stack = Term(), [reduce.operands[0]]
    while stack:
        value = stack.pop()
        if value.opcode == "multiply" and len(value.operands) == 2:
            stack += reversed(value.operands)
        elif value.opcode == "negate":
            term.sign = -term.sign
            stack.append(value.operands[0])
        elif value.opcode == "broadcast" and _is_kept(value, reduce):
            term.kept.append(value.operands[0])
        elif value.opcode == "subtract" and deviates(value):
            term.deviations.append(value.operands[0])
        else:
            term.rest.append(value)
    return term


def spreads(value: Instruction, reduce: Instruction) -> bool:
    """Whether a broadcast repeats each result of a reduce over the reduced elements."""
    gone = set(reduce.ints("dimensions"))
    rest = tuple(d for d in range(value.shape.rank) if d not in gone)
    return tuple(value.ints("dimensions")) == rest


def _is_kept(value: Instruction, reduce: Instruction) -> bool:
    inner: Shape = value.operands[0].shape
    return not inner.rank or (spreads(value, reduce) and inner.dimensions == reduce.shape.dimensions)


@dataclass(frozen=True)
class SumFactoring(RewritingPass):
    """Move factors that depend on other reductions out of sums. The values stay the same up to rounding; infinite
    factors may give NaN elsewhere."""

    name: ClassVar[str] = "sum-factoring"
    preserves: ClassVar[Literal["graph", "meaning"]] = "meaning"
    simplifies: ClassVar[bool] = True

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        levels: dict[Instruction, int] = {}

        def take_out(reduce: Instruction, term: Term) -> None:
            levels[_without_factors(reduce, term)] = levels[reduce]

        for i in list(computation.instructions):
            above = max((levels[o] for o in i.operands), default=0)
            levels[i] = above + (i.opcode == "reduce")
            if not above or not is_plain_sum(i):
                continue
            term = term_of(i)
            if term.kept and term.rest and max(levels.get(r, 0) for r in term.rest) < above:
                yield partial(take_out, i, term)


def _without_factors(reduce: Instruction, term: Term) -> Instruction:
    """Replace the sum. Returns the new value."""
    writer = Writer(reduce.computation)
    value, *others = term.rest
    for other in others:
        value = writer.emit("multiply", value.shape, value, other)
    total = edit.create(
        reduce.computation, reduce.name, "reduce", reduce.shape, (value, reduce.operands[1]), dict(reduce.attributes)
    )
    product = term.times(writer, total)
    edit.replace_all_uses(reduce, product)
    edit.remove(reduce)
    return product
