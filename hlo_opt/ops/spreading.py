"""How an elementwise operation makes the bounds of its result of those of its operands: the face that the analysis of rounding reads.

Arithmetic that is exact in every backend gives equal results for equal operands; what is said here is how bounds that differ go through (`ops.intervals`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hlo_opt.ir import Instruction
from hlo_opt.ops.lazy import lazy


def interval(name: str) -> Callable[..., Any]:
    """A rule of `ops.intervals`, which is imported when it is first asked for."""
    return lazy("intervals", name)


def always(instruction: Instruction) -> bool:
    return True


def never(instruction: Instruction) -> bool:
    return False


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
