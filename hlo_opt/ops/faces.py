"""Faces that entries of several families name: how exact a result is, how often elements of operands are read, how bounds go through an operation.

`lazy` names a function that is imported when it is first called, so that declaring the table loads no NumPy.
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

    __slots__ = ("_found", "_module", "_name")

    def __init__(self, module: str, name: str) -> None:
        self._module = module
        self._name = name
        self._found: Any = None

    def resolve(self) -> Any:
        """The function itself, or whatever bears the name; imports its module."""
        if self._found is None:
            self._found = getattr(importlib.import_module(f"hlo_opt.ops.{self._module}"), self._name)
        return self._found

    def __call__(self, *arguments: Any) -> Any:
        return self.resolve()(*arguments)


def always(instruction: Instruction, operand: int | None = None) -> bool:
    return True


def never(instruction: Instruction, operand: int | None = None) -> bool:
    return False


def bit_exact(element_type: ElementType) -> float:
    """The `tolerance` face of operations that round nothing."""
    return 0.0


def rounded(ulps: float) -> Callable[[ElementType], float]:
    """A `tolerance` face for operations that add up: so many ULP for floats and complex numbers, exact for the rest."""

    def tolerance(element_type: ElementType) -> float:
        return ulps if element_type.is_float or element_type.is_complex else 0.0

    return tolerance


# ---- the `aligned` and `reuses` faces: xla/hlo/ir/hlo_instruction.cc, IsElementwise and OperandElementUse


def first(instruction: Instruction, operand: int | None) -> bool:
    """In the first operand alone."""
    return operand == 0


def same_width(instruction: Instruction, operand: int | None) -> bool:
    """Where elements are as wide as before."""
    given, shape = instruction.operands[0].shape, instruction.shape
    return given.is_array and shape.is_array and given.type.bits == shape.type.bits


def behind_first(instruction: Instruction, operand: int) -> bool:
    """An index, or what is padded with."""
    return operand > 0


def behind_second(instruction: Instruction, operand: int) -> bool:
    return operand > 1


def second_half(instruction: Instruction, operand: int) -> bool:
    """An initial value."""
    return operand >= len(instruction.operands) // 2


# ---- the `spread` face: how an elementwise operation makes the bounds of its result of those of its operands, which the analysis of rounding reads
#
# Arithmetic that is exact in every backend gives equal results for equal operands; what is said here is how bounds that differ go through (`ops.intervals`).


def interval(name: str) -> Callable[..., Any]:
    """A rule of `ops.intervals`, which is imported when it is first asked for."""
    return lazy("intervals", name)


_NOT_KNOWN, _POINTWISE, _SAMPLED = map(interval, ("unknown", "pointwise", "sampled"))


@dataclass(frozen=True)
class Spreading:
    """The rules of one operation, and what they leave open.

    real      bounds of real numbers and truth values
    integer   where an operand holds integers
    complex   where an operand or the result is complex
    rounds    exact arithmetic with a result that is rounded
    keeps     the result is a number that was given, but for its sign and the type that it is held in: no order of a fold shows in it
    decides   whether the result jumps, so that bounds on both sides of a jump are a tie: a comparison, a rounding to whole numbers
    """

    real: Callable[..., Any] = _NOT_KNOWN
    integer: Callable[..., Any] = _POINTWISE
    complex: Callable[..., Any] = _SAMPLED
    rounds: bool = False
    keeps: bool = False
    decides: Callable[[Instruction], bool] = never

    def but(self, **changes: Any) -> Spreading:
        """The same with other fields."""
        return dataclasses.replace(self, **changes)


UNKNOWN = Spreading()
RISING = Spreading(interval("rising"))
"""A function of real numbers that rises in each operand."""
FALLING = Spreading(interval("falling"))
BY_PARTS = RISING.but(complex=RISING.real)
"""The same, which takes the parts of complex numbers one by one."""
ORDERED = RISING.but(integer=RISING.real, keeps=True)
"""A choice by order, of integers too."""
STEPS = RISING.but(decides=always)
"""A rounding to whole numbers."""


def one(name: str, **fields: Any) -> Spreading:
    """One rule for real numbers."""
    return Spreading(interval(name), **fields)


def any_type(name: str, **fields: Any) -> Spreading:
    """One rule for numbers of every type."""
    rule = interval(name)
    return Spreading(rule, rule, rule, **fields)
