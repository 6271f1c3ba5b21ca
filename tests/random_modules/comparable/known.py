"""What is known of a value before it is computed: the interval it lies in, and whether every implementation gives it
bit for bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hlo_opt.ir import ElementType

Number = int | float

BOUND = 64.0
"""Floats beyond this are clamped before they are used: products and powers of what is left stay finite in every
type."""


@dataclass(frozen=True)
class Known:
    """Values lie in [low, high], both parts of a complex one too. `exact`: no rounding that an implementation may do
    otherwise has gone into them."""

    low: Number
    high: Number
    exact: bool

    def within(self, low: Number, high: Number) -> bool:
        return low <= self.low and self.high <= high

    def union(self, other: Known) -> Known:
        return Known(min(self.low, other.low), max(self.high, other.high), self.exact and other.exact)

    def inexact(self) -> Known:
        return Known(self.low, self.high, False)


TRUTH = Known(0, 1, True)


def limits(element_type: ElementType) -> tuple[Number, Number]:
    """The interval that operands of a type come from unless an operation asks for less."""
    if element_type.is_integer:
        if element_type.kind == "unsigned":
            return 0, (1 << element_type.bits) - 1
        return -(1 << (element_type.bits - 1)), (1 << (element_type.bits - 1)) - 1
    if element_type.kind == "pred":
        return 0, 1
    if element_type.is_complex:
        return -4.0, 4.0
    return (-4.0, 4.0) if element_type.bits < 16 else (-BOUND, BOUND)


def wrapped(element_type: ElementType, low: Number, high: Number) -> Known:
    """The interval of an integer result, which wraps around."""
    least, most = limits(element_type)
    if least <= low and high <= most:
        return Known(low, high, True)
    return Known(least, most, True)


def corners(function: Callable[[Number, Number], Number], a: Known, b: Known) -> tuple[Number, Number]:
    """The least and the greatest value of a function that is monotone in each argument."""
    found = [function(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return min(found), max(found)


def largest(known: Known) -> Number:
    """The greatest absolute value."""
    return max(abs(known.low), abs(known.high))


def finite(value: Number) -> Number:
    """An interval's end as a number that can be computed with."""
    return value if math.isfinite(value) else math.copysign(1e30, value)
