"""Faces shared by several op families: exactness, reuse of operand elements, propagation of value bounds.

`lazy` defers imports, so that declaring the table does not load NumPy.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hlo_opt.ir import ElementType, Instruction


class lazy:  # noqa: N801 - used as a function
    """`lazy("movement.meaning", "pad")` is the function `pad` of `hlo_opt.ops.movement.meaning`."""

    __slots__ = ("_module", "_name", "_object")

    def __init__(self, module: str, name: str) -> None:
        self._module = module
        self._name = name
        self._object: Any = None

    def resolve(self) -> Any:
        """The named object; imports its module on first use."""
        if self._object is None:
            self._object = getattr(importlib.import_module(f"hlo_opt.ops.{self._module}"), self._name)
        return self._object

    def __call__(self, *arguments: Any) -> Any:
        return self.resolve()(*arguments)


def always(instruction: Instruction, operand: int | None = None) -> bool:
    return True


def never(instruction: Instruction, operand: int | None = None) -> bool:
    return False


def bit_exact(element_type: ElementType) -> float:
    """The `tolerance` face of operations that do not round."""
    return 0.0


def rounded(ulps: float) -> Callable[[ElementType], float]:
    """A `tolerance` face for operations that accumulate: `ulps` for floats and complex numbers, 0 for others."""

    def tolerance(element_type: ElementType) -> float:
        return ulps if element_type.is_float or element_type.is_complex else 0.0

    return tolerance


# ---- the `aligned` and `reuses` faces: xla/hlo/ir/hlo_instruction.cc, IsElementwise and OperandElementUse


def first(instruction: Instruction, operand: int | None) -> bool:
    """Only for operand 0."""
    return operand == 0


def same_width(instruction: Instruction, operand: int | None) -> bool:
    """Whether element widths are equal."""
    first, shape = instruction.operands[0].shape, instruction.shape
    return first.is_array and shape.is_array and first.type.bits == shape.type.bits


def behind_first(instruction: Instruction, operand: int) -> bool:
    """True for operands after the first: indices, or a padding value."""
    return operand > 0


def behind_second(instruction: Instruction, operand: int) -> bool:
    return operand > 1


def second_half(instruction: Instruction, operand: int) -> bool:
    """True for initial values."""
    return operand >= len(instruction.operands) // 2


# ---- the `spread` face: how bounds propagate through an elementwise operation, for the analysis of rounding errors
#
# Arithmetic that every backend computes exactly maps equal operands to equal results; rules say how bounds propagate
# (`ops.intervals`).


def interval(name: str) -> Callable[..., Any]:
    """A rule of `ops.intervals`, imported on first use."""
    return lazy("intervals", name)


_NOT_KNOWN, _POINTWISE, _SAMPLED = map(interval, ("unknown", "pointwise", "sampled"))


@dataclass(frozen=True)
class Spreading:
    """The bound propagation rules of one operation.

    real      rule for real numbers and predicates
    integer   rule where an operand is an integer
    complex   rule where an operand or the result is complex
    rounds    the operation is exact arithmetic followed by rounding
    keeps     the result is one of the operands, apart from sign and type, so the order of a reduction does not show in
              it
    decides   whether the result is discontinuous (comparison, rounding to integers), so that bounds across a jump are a
              tie
    """

    real: Callable[..., Any] = _NOT_KNOWN
    integer: Callable[..., Any] = _POINTWISE
    complex: Callable[..., Any] = _SAMPLED
    rounds: bool = False
    keeps: bool = False
    decides: Callable[[Instruction], bool] = never

    def but(self, **changes: Any) -> Spreading:
        """A copy with some fields replaced."""
        return dataclasses.replace(self, **changes)


UNKNOWN = Spreading()
RISING = Spreading(interval("rising"))
"""A real function that is non-decreasing in each operand."""
FALLING = Spreading(interval("falling"))
BY_PARTS = RISING.but(complex=RISING.real)
"""`RISING`, applied to real and imaginary parts separately."""
ORDERED = RISING.but(integer=RISING.real, keeps=True)
"""A selection by order, also of integers."""
STEPS = RISING.but(decides=always)
"""Rounding to integers."""


def one(name: str, **fields: Any) -> Spreading:
    """One rule for real numbers."""
    return Spreading(interval(name), **fields)


def any_type(name: str, **fields: Any) -> Spreading:
    """One rule for all types."""
    rule = interval(name)
    return Spreading(rule, rule, rule, **fields)
