"""Constants that a program computed from the size: two dumps at two sizes say which formula gives both numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hlo_opt.ir import ElementType, Literal, Shape
from hlo_opt.ir.literal import SizedLiteral
from hlo_opt.ir.size import Size
from hlo_opt.ir.values import Array

DIVISORS = {16: (1, 4), 32: (1, 4, 64, 1024), 64: (1, 4, 64, 1024)}
"""By the bits of a float: factors are fractions of no greater divisor, small ones first. More bits of a factor than are
left to compare would fit any two numbers."""
_AS_IT_IS = {"f32": "(float)({})", "f64": "({})"}
"""Floats whose numbers a kernel computes itself; those of other types are written for each size."""


@dataclass(frozen=True)
class Formula:
    """A number that follows the size n: `factor * (n + shift) ** power`, and `power` may be a half. Floats are computed
    in f64 and rounded once."""

    factor: Fraction
    shift: int
    power: Fraction

    def of(self, sizes: Array, element_type: ElementType) -> Array:
        """The numbers at sizes, in the element type. Integers that are not whole are rounded towards zero."""
        over, under = self.factor.numerator, self.factor.denominator
        if element_type.is_integer:
            return np.asarray(over * (sizes + self.shift) ** int(self.power) // under).astype(element_type.dtype)
        n = np.asarray(sizes + self.shift, np.float64)
        with np.errstate(all="ignore"):
            root = np.sqrt(n) if self.power.denominator == 2 else n
            whole = root**2 if abs(self.power) == 2 else root
            value = over / (under * whole) if self.power < 0 else over * whole / under
            return value.astype(element_type.dtype)

    def literal(self, shape: Shape, size: int) -> Literal:
        """A constant of this shape, the same number everywhere, at a size, which may be one of a range."""
        if isinstance(size, Size):
            numbers = self.of(size.range.all, shape.type)
            return SizedLiteral(shape, size, numbers, self._text(size, shape.type))
        number = self.of(np.asarray([size], np.int64), shape.type)[0]
        return Literal(shape, value=np.broadcast_to(number, tuple(map(int, shape.dimensions))))

    def _text(self, size: Size, element_type: ElementType) -> str | None:
        """The number in C++; None for types whose numbers are written out."""
        over, under = self.factor.numerator, self.factor.denominator
        if element_type.is_integer:
            if element_type.bits != 32 or self.power != 1 or element_type.kind != "signed":
                return None
            return str((size + self.shift) * over // under)
        if element_type.name not in _AS_IT_IS:
            return None
        n = f"(double){size + self.shift}"
        root = f"sqrt({n})" if self.power.denominator == 2 else n
        whole = f"({root} * {root})" if abs(self.power) == 2 else root
        text = f"{over}.0 / ({under}.0 * {whole})" if self.power < 0 else f"{over}.0 * {whole} / {under}.0"
        return _AS_IT_IS[element_type.name].format(text)

    def __str__(self) -> str:
        n = f"n {'-' if self.shift < 0 else '+'} {abs(self.shift)}" if self.shift else "n"
        over, under = self.factor.numerator, self.factor.denominator
        if self.power == self.factor == 1:
            return n
        inner = f"({n})" if self.shift else n
        whole = f"sqrt({n})" if self.power.denominator == 2 else f"{inner}^2" if abs(self.power) == 2 else inner
        if self.power < 0:
            return f"{over} / {whole}" if under == 1 else f"{over} / ({under} * {whole})"
        return (f"{over} * " if over != 1 else "") + whole + (f" / {under}" if under != 1 else "")


def fitting(element_type: ElementType, sizes: tuple[int, int], numbers: Array) -> Formula | None:
    """The formula that gives two numbers of the element type, one for each size; None where none does."""
    if not (element_type.is_integer or element_type.is_float):
        return None
    for formula in _candidates(element_type, sizes[0], float(numbers[0])):
        if formula.of(np.asarray(sizes, np.int64), element_type).tobytes() == numbers.tobytes():
            return formula
    return None


def _candidates(element_type: ElementType, size: int, number: float) -> Iterator[Formula]:
    """Formulas that give a number at a size, simple ones first."""
    if not np.isfinite(number):
        return
    if element_type.is_integer:
        yield Formula(Fraction(1), int(number) - size, Fraction(1))
        for degree in (1, 2):
            yield Formula(Fraction(int(number), size**degree), 0, Fraction(degree))
        return
    for divisor in DIVISORS.get(element_type.bits, ()):
        for power in (Fraction(1), Fraction(-1), Fraction(1, 2), Fraction(-1, 2), Fraction(2), Fraction(-2)):
            for shift in (0, -1, 1):
                if size + shift > 0:
                    factor = Fraction(number / float(size + shift) ** float(power)).limit_denominator(divisor)
                    if factor:
                        yield Formula(factor, shift, power)
    if number.is_integer() and element_type.bits >= 32:
        yield Formula(Fraction(1), int(number) - size, Fraction(1))
