"""Factors that are the same for all terms of a sum move out of it, where the sum then depends on fewer other sums.

The gradient of a layer norm sums a row's deviations times the inverse of their spread, which is a sum itself. Without
this factor, both sums can be folded in one reading.

A scalar factor of an array moves out of a product with it as well (`2 * x @ c.T` in a distance), where the library
would need the multiplied array for this product alone, and what reads the product can multiply.

A power of two that multiplies an array multiplies the smaller array that is its next factor (the gradient of a variance
is `2 * (x - mean)` times something for each row).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Literal

from hlo_opt.ir import Computation, Instruction, Shape, edit
from hlo_opt.ir.element_type import BF16, F32, F64
from hlo_opt.ops.reduction.reducers import monoid, starts_with_identity
from hlo_opt.ops.sets import is_elementwise
from hlo_opt.passes.base import PassContext, RewritingPass
from hlo_opt.passes.expansion import BroadcastingWriter
from hlo_opt.passes.simplify.reading import exponent


@dataclass
class Term:
    """The operand of a sum as a product: factors that are constant over the summed dimensions (a scalar, or an array of
    the sum's shape), arrays whose deviation from their mean is a factor, and the rest."""

    sign: int = 1
    kept: list[Instruction] = field(default_factory=list)
    deviations: list[Instruction] = field(default_factory=list)
    rest: list[Instruction] = field(default_factory=list)

    def times(self, writer: BroadcastingWriter, value: Instruction) -> Instruction:
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
    """Move factors that depend on other reductions out of sums, and scalar factors out of products. The values stay the
    same up to rounding; infinite factors may give NaN elsewhere. Powers of two move to smaller factors of their
    products, which rounds nothing where the small product is neither infinite nor nearly zero."""

    name: ClassVar[str] = "sum-factoring"
    preserves: ClassVar[Literal["graph", "meaning"]] = "meaning"
    simplifies: ClassVar[bool] = True

    def rewrites(self, computation: Computation, context: PassContext) -> Iterator[Callable[[], object]]:
        levels: dict[Instruction, int] = {}

        def take_out(reduce: Instruction, term: Term) -> None:
            levels[_without_factors(reduce, term)] = levels[reduce]

        def multiply_after(dot: Instruction, side: int) -> None:
            levels[_multiplied_after(dot, side)] = levels[dot]

        def multiply_smaller(product: Instruction, value: Instruction, spread: Instruction) -> None:
            levels[_multiplied_smaller(product, value, spread)] = levels[spread]

        for i in list(computation.instructions):
            above = max((levels[o] for o in i.operands), default=0)
            levels[i] = above + (i.opcode == "reduce")
            for side in (0, 1) if i.opcode == "dot" and _may_be_multiplied(i) else ():
                if _is_for_products(i.operands[side]):
                    yield partial(multiply_after, i, side)
                    break
            if (spread := _smaller(i)) is not None:
                for value in filter(_is_for_smaller, i.operands):
                    yield partial(multiply_smaller, i, value, spread)
                    break
            if not above or not is_plain_sum(i):
                continue
            term = term_of(i)
            if term.kept and term.rest and max(levels.get(r, 0) for r in term.rest) < above:
                yield partial(take_out, i, term)


def _without_factors(reduce: Instruction, term: Term) -> Instruction:
    """Replace the sum. Returns the new value."""
    writer = BroadcastingWriter(reduce.computation)
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


def _may_be_multiplied(dot: Instruction) -> bool:
    """Whether the kernels that read a product can multiply it, and round no product to less than f32."""
    shapes = [dot.shape, *(o.shape for o in dot.operands)]
    if dot.control_predecessors or dot.operands[0] is dot.operands[1] or any(any(s.dynamic) for s in shapes):
        return False
    if len({s.type for s in shapes}) > 1 or dot.shape.type not in (F32, F64):
        return False
    read_by_kernels = all(is_elementwise(u) or u.opcode == "reduce" for u in dot.users)
    return bool(dot.users) and not dot.is_root and read_by_kernels


def _is_for_products(value: Instruction) -> bool:
    """Whether an array is another one times a scalar, is written for products alone, which can be multiplied instead,
    and the other one is in memory anyway."""
    split = _scaled(value)
    if split is None or not all(u.opcode == "dot" and _may_be_multiplied(u) for u in value.users):
        return False
    array = split[0]
    return not value.is_root and (array.parameter_number is not None or len(array.users) > 1)


_WIDE_RANGE = (BF16, F32, F64)
_MOST_DOUBLED = 16
"""The most that a factor is doubled or halved."""


def _is_for_smaller(value: Instruction) -> bool:
    """Whether a value is an array times a power of two, and all that read it multiply it by smaller arrays."""
    split = _scaled(value)
    if split is None or value.is_root or value.shape.type not in _WIDE_RANGE:
        return False
    k = exponent(split[1])
    return k is not None and abs(k) <= _MOST_DOUBLED and bool(value.users) and all(map(_smaller, value.users))


def _smaller(product: Instruction) -> Instruction | None:
    """The operand of a multiply that spreads an array that is not known over a larger one; None for others."""
    if product.opcode != "multiply" or product.control_predecessors:
        return None
    return next(filter(_spreads_smaller, product.operands), None)


def _spreads_smaller(value: Instruction) -> bool:
    if value.opcode != "broadcast" or value.operands[0].literal is not None:
        return False
    return 2 * value.operands[0].shape.element_count <= value.shape.element_count


def _multiplied_smaller(product: Instruction, value: Instruction, spread: Instruction) -> Instruction:
    """Multiply by a power of two what an array times this power is multiplied by, instead. Returns the broadcast of
    that."""
    split = _scaled(value)
    assert split is not None
    array, scalar = split
    writer = BroadcastingWriter(value.computation)
    inner = spread.operands[0]
    factor = writer.emit("broadcast", inner.shape, scalar, dimensions=()) if inner.shape.rank else scalar
    small = writer.emit("multiply", inner.shape, inner, factor)
    wide = edit.create(value.computation, "broadcast", "broadcast", spread.shape, [small], dict(spread.attributes))
    edit.set_operands(product, (array, wide))
    return wide


def _scaled(value: Instruction) -> tuple[Instruction, Instruction] | None:
    """The array and the scalar that are the factors of a value."""
    if value.opcode != "multiply" or value.control_predecessors:
        return None
    for array, factor in (value.operands, value.operands[::-1]):
        if factor.opcode == "broadcast" and not factor.operands[0].shape.rank:
            return array, factor.operands[0]
    return None


def _multiplied_after(dot: Instruction, side: int) -> Instruction:
    """Replace a dot by one without a scalar factor of an operand, and a multiply. Returns the new value."""
    split = _scaled(dot.operands[side])
    assert split is not None
    array, scalar = split
    operands = [array if k == side else o for k, o in enumerate(dot.operands)]
    plain = edit.create(dot.computation, dot.name, "dot", dot.shape, operands, dict(dot.attributes))
    writer = BroadcastingWriter(dot.computation)
    value = writer.emit("multiply", dot.shape, plain, writer.emit("broadcast", dot.shape, scalar, dimensions=()))
    edit.replace_all_uses(dot, value)
    edit.remove(dot)
    return value
