"""What a reducer computes, where it is one of the few that everybody writes."""

from __future__ import annotations

from hlo_opt.ir import Computation

MONOIDS = frozenset({"add", "multiply", "maximum", "minimum", "and", "or", "xor"})
"""Operations on two scalars that are associative and commutative."""


def monoid(computation: Computation) -> str | None:
    """The opcode when the computation is `f(x, y) = x op y` on scalars of one type for an associative, commutative op; else None."""
    root = computation.root
    if root.opcode not in MONOIDS or len(root.operands) != 2 or not root.shape.is_array or root.shape.rank:
        return None
    left, right = root.operands
    numbers = {left.parameter_number, right.parameter_number}
    if numbers != {0, 1} or len(computation.parameters) != 2:
        return None
    same = left.shape.element_type == right.shape.element_type == root.shape.element_type
    return root.opcode if same else None


def adds(computation: Computation) -> bool:
    """Whether the computation adds two numbers, or two truth values."""
    return monoid(computation) == "add"


def picks(computation: Computation) -> int | None:
    """The number of the parameter that the computation returns as it is (1 for a scatter that overwrites), or None."""
    return computation.root.parameter_number
