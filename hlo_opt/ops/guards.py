"""C++ texts that the lowerings of several families share."""

from __future__ import annotations

from collections.abc import Iterable

from hlo_opt.ir import ElementType
from hlo_opt.ir.index_map import Condition, Expression, add, multiply
from hlo_opt.ops.code import Code, both, code
from hlo_opt.ops.lowering import KernelBuilder, compute_type


def guard(builder: KernelBuilder, conditions: Iterable[Condition]) -> Code:
    """A C++ condition that holds where all conditions do; `NOTHING` when they always do.

    A comparison that the range of its expression makes superfluous is left out.
    """
    parts: list[Code] = []
    for condition in conditions:
        expression = condition.expression
        if condition.always:
            continue
        text = builder.text(expression)
        if condition.low == condition.high:
            parts.append(code("({} == {})", text, condition.low))
            continue
        if expression.low < condition.low:
            parts.append(code("({} >= {})", text, condition.low))
        if expression.high > condition.high:
            parts.append(code("({} <= {})", text, condition.high))
    return both(*parts)


def never(conditions: Iterable[Condition]) -> bool:
    """Whether the ranges of the expressions alone make one of the conditions false."""
    return any(c.expression.high < c.low or c.expression.low > c.high for c in conditions)


def difference(left: Expression, right: Expression) -> Expression:
    """left - right"""
    return add(left, multiply(right, -1))


def zero(element_type: ElementType) -> Code:
    """A C++ zero of the compute type."""
    return code(f"({compute_type(element_type)})0")
