"""Sizes that are known only when a kernel starts, as integers that remember how they follow from one size.

A `Size` is an `int`: its value at one size of a range, the example. It also has its value at every other size of the
range, and its C++ text in terms of `size`. So code that plans and emits a kernel for fixed sizes runs unchanged, and
its text comes out for all of them. Where such code decides by a size (a comparison, a remainder, a truth), it goes on
as the example does, and the range loses the sizes for which it would have gone elsewhere. What is left at the end are
sizes for which the same code does the same. The idea is that of `SymInt` in PyTorch, whose guards are formulas; here
they are sets of sizes.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NoReturn, Self, TypeAlias

import numpy as np

from hlo_opt.ir.shape import Shape
from hlo_opt.ir.values import Array

NAME = "size"
"""The name of the size in C++ texts."""
_INT = 2**31 - 1
_ATOM, _PRODUCT, _SUM, _BITS = 2, 1, 0, -1


SizeOperator: TypeAlias = "Callable[[Array | np.int64, Array | np.int64], Array | np.int64 | np.bool_]"
"""An operator over the values of sizes."""


class Range:
    """The sizes for which a text is written. `live` says which of `all` are left after what was decided so far."""

    def __init__(self, sizes: Sequence[int], left: Sequence[int], example: int) -> None:
        """All sizes, ascending, of which those in `left` are still to be written for, the example among them."""
        self.all: Array = np.asarray(sizes, np.int64)
        self.live: Array = np.isin(self.all, np.asarray(left))
        self.at = int(np.searchsorted(self.all, example))

    @property
    def sizes(self) -> list[int]:
        """The sizes that are left, ascending."""
        return [int(n) for n in self.all[self.live]]

    def size(self) -> int:
        """The size itself."""
        return self.of(self.all, NAME, _ATOM)

    def of(self, values: Array, text: str, rank: int) -> int:
        """The number with a value for each size of the range; a plain one where all that are left agree."""
        mine = values[self.live]
        if (mine == mine[0]).all():
            return int(mine[0])
        number = Size(int(values[self.at]))
        number.range, number.values = self, values
        number.text, number.rank = _linear(self.all, values) or (text, rank)
        return number

    def decide(self, outcomes: Array) -> int:
        """The outcome at the example. Sizes with another one are left out."""
        outcome = outcomes[self.at]
        if not (outcomes[self.live] == outcome).all():
            self.live &= outcomes == outcome
        return int(outcome)


def _linear(sizes: Array, values: Array) -> tuple[str, int] | None:
    """The text of `size * a + b`, where that is what the values are."""
    if len(sizes) < 3:
        return None
    slope, rest = divmod(int(values[-1]) - int(values[0]), int(sizes[-1]) - int(sizes[0]))
    start = int(values[0]) - slope * int(sizes[0])
    if rest or slope < 0 or not (values == slope * sizes + start).all():
        return None
    wide = "(long long)" * (int(values.max()) > _INT or int(values.min()) < -_INT)
    text, rank = f"{wide}{NAME}", _PRODUCT if wide else _ATOM
    if slope != 1:
        text, rank = f"{text} * {slope}", _PRODUCT
    if start:
        text, rank = f"{text} {'-' if start < 0 else '+'} {abs(start)}", _SUM
    return text, rank


class Size(int):
    """A number that follows from the size of a range. Its `int` value is the one at the example."""

    range: Range
    values: Array
    text: str
    rank: int
    negated: str | None = None
    _key: int | None = None

    # ---- texts

    def __str__(self) -> str:
        return self.text if self.rank == _ATOM else f"({self.text})"

    __repr__ = __str__

    def __format__(self, form: str) -> str:
        return format(str(self), form)

    # ---- arithmetic

    def _with(self, other: float, work: SizeOperator, sign: str, rank: int, swapped: bool = False) -> int:
        if not isinstance(other, int):
            return NotImplemented
        values = other.values if isinstance(other, Size) else np.int64(other)
        left, right = (values, self.values) if swapped else (self.values, values)
        one, two = (other, self) if swapped else (self, other)
        result = np.asarray(work(left, right), np.int64)
        wide = "(long long)" * bool(np.abs(result).max() > _INT)
        text = f"{wide}{_inner(one, rank)} {sign} {_inner(two, rank + 1)}"
        return self.range.of(result, text, rank)

    def __add__(self, other: int) -> int:
        return self._with(other, operator.add, "+", _SUM)

    def __radd__(self, other: int) -> int:
        return self._with(other, operator.add, "+", _SUM, swapped=True)

    def __sub__(self, other: int) -> int:
        return self._with(other, operator.sub, "-", _SUM)

    def __rsub__(self, other: int) -> int:
        return self._with(other, operator.sub, "-", _SUM, swapped=True)

    def __mul__(self, other: int) -> int:
        return self._with(other, operator.mul, "*", _PRODUCT)

    def __rmul__(self, other: int) -> int:
        return self._with(other, operator.mul, "*", _PRODUCT, swapped=True)

    def __floordiv__(self, other: int) -> int:
        return _divided(self, other)

    def __rfloordiv__(self, other: int) -> int:
        return _divided(other, self)

    def __mod__(self, other: int) -> int:
        return self - other * (self // other)

    def __rmod__(self, other: int) -> int:
        return other - self * (other // self)

    def __divmod__(self, other: int) -> tuple[int, int]:
        return self // other, self % other

    def __rdivmod__(self, other: int) -> tuple[int, int]:
        return other // self, other % self

    def __neg__(self) -> int:
        if self.negated is None:
            return 0 - self
        return self.range.of(-self.values, self.negated, _PRODUCT)

    def __abs__(self) -> int:
        return -self if self < 0 else self

    def __truediv__(self, other: float) -> float:
        return Ratio.of(self, other) if isinstance(other, int) else float(int(self)) / other

    def __rtruediv__(self, other: float) -> float:
        return Ratio.of(other, self) if isinstance(other, int) else float(other) / float(int(self))

    # ---- what needs the number itself: the range keeps only the sizes where it is that of the example

    def known(self) -> int:
        """The number, which is that of all sizes that are left afterwards."""
        return int(self.range.decide(self.values))

    def __and__(self, other: int) -> int:
        values = other.values if isinstance(other, Size) else np.int64(other)
        return self.range.of(self.values & values, f"{_inner(self, _ATOM)} & {_inner(other, _ATOM)}", _BITS)

    def __or__(self, other: int) -> int:
        return self.known() | exactly(other)

    def __xor__(self, other: int) -> int:
        return self.known() ^ exactly(other)

    def __lshift__(self, other: int) -> int:
        return self * (1 << exactly(other))

    def __rshift__(self, other: int) -> int:
        return self // (1 << exactly(other))

    def __rlshift__(self, other: int) -> int:
        return other << self.known()

    def __pow__(self, other: int, modulo: int | None = None) -> int:  # type: ignore[override]
        return int(pow(self.known(), other, modulo))

    def bit_length(self) -> int:
        """As of an int."""
        return int(self.range.decide(np.asarray([int(v).bit_length() for v in self.values])))

    # ---- decisions

    def _decide(self, other: float, work: SizeOperator) -> bool:
        if isinstance(other, float) and not isinstance(other, int):
            return bool(work(np.asarray(int.__int__(self)), np.asarray(other)))  # a price: one may choose freely
        if not isinstance(other, int):
            return NotImplemented
        values = other.values if isinstance(other, Size) else np.int64(other)
        return bool(self.range.decide(np.asarray(work(self.values, values))))

    def __eq__(self, other: int) -> bool:  # type: ignore[override]
        if self is other:
            return True
        if isinstance(other, Size) and other.range is not self.range:
            return False
        return self._decide(other, operator.eq)

    def __ne__(self, other: int) -> bool:  # type: ignore[override]
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    def __lt__(self, other: float) -> bool:
        return self._decide(other, operator.lt)

    def __le__(self, other: float) -> bool:
        return self._decide(other, operator.le)

    def __gt__(self, other: float) -> bool:
        return self._decide(other, operator.gt)

    def __ge__(self, other: float) -> bool:
        return self._decide(other, operator.ge)

    def __bool__(self) -> bool:
        return bool(self.range.decide(self.values != 0))

    def __hash__(self) -> int:
        """Not that of its int: what is kept of plain numbers is none of its."""
        if self._key is None:
            self._key = hash((id(self.range), self.values.tobytes()))
        return self._key

    def __reduce__(self) -> NoReturn:
        raise TypeError("a size of a range is not saved")


class Ratio(float):
    """A quotient of sizes. As a price it is the example's; rounded up or down it is a size again."""

    parts: tuple[int, int]

    @classmethod
    def of(cls, left: int, right: int) -> Self:
        ratio = cls(int.__int__(left) / int.__int__(right))
        ratio.parts = left, right
        return ratio

    def __ceil__(self) -> int:
        return -(-self.parts[0] // self.parts[1])

    def __floor__(self) -> int:
        return self.parts[0] // self.parts[1]


def _inner(number: int, rank: int) -> str:
    if isinstance(number, Size):
        return number.text if number.rank >= rank else f"({number.text})"
    return str(number) if number >= 0 else f"({number})"


def _divided(left: int, right: int) -> int:
    """left // right, where one is a size. C++ truncates, so that a negative left side is written otherwise."""
    owner = left if isinstance(left, Size) else right
    assert isinstance(owner, Size)
    if not right > 0:
        raise ZeroDivisionError("a size divides by what is not positive")
    values = [n.values if isinstance(n, Size) else np.int64(n) for n in (left, right)]
    result = np.asarray(values[0] // np.maximum(values[1], 1), np.int64)  # sizes that are left out may give 0
    if left < 0:
        up = f"{_inner(-left + right - 1, _PRODUCT)} / {_inner(right, _ATOM)}"
        number = owner.range.of(result, f"-({up})", _SUM)
        if isinstance(number, Size):
            number.negated = up
        return number
    return owner.range.of(result, f"{_inner(left, _PRODUCT)} / {_inner(right, _ATOM)}", _PRODUCT)


def exactly(number: int) -> int:
    """A plain number: itself, or what a size is at the example, which leaves no size with another value."""
    return number.known() if isinstance(number, Size) else number


def most(number: int) -> int:
    """The greatest value over all sizes of the range: for limits that hold for every smaller one."""
    return int(number.values.max()) if isinstance(number, Size) else number


def always_same(one: int, other: int) -> bool:
    """Whether two numbers are equal at all sizes that are left. Unlike `==` it leaves no size out: for what only does
    without a test where it may."""
    sized = one if isinstance(one, Size) else other
    if not isinstance(sized, Size):
        return one == other
    values = [n.values[sized.range.live] if isinstance(n, Size) else np.int64(n) for n in (one, other)]
    return bool((values[0] == values[1]).all())


def gcd(*numbers: int) -> int:
    """As `math.gcd`. What is left are sizes with the same."""
    sized = next((n for n in numbers if isinstance(n, Size)), None)
    if sized is None:
        return math.gcd(*numbers)
    values = [n.values if isinstance(n, Size) else np.int64(n) for n in numbers]
    return int(sized.range.decide(np.gcd.reduce(np.broadcast_arrays(*values))))


def unsigned(number: int) -> str:
    """A number as an unsigned one in C++."""
    return f"(unsigned int){number}" if isinstance(number, Size) else f"{number}u"


def unsigned_long(number: int) -> str:
    """A number as an unsigned one of 64 bits in C++."""
    return f"(unsigned long long){number}" if isinstance(number, Size) else f"{number}ull"


def at_size(number: int, size: int) -> int:
    """The value at a size of the range."""
    if not isinstance(number, Size):
        return number
    return int(number.values[int(np.searchsorted(number.range.all, size))])


def shape_at(shape: Shape, size: int) -> Shape:
    """A shape at a size of the range of its dimensions."""
    if shape.elements is not None:
        return Shape.tuple_of(*(shape_at(element, size) for element in shape.elements))
    return replace(shape, dimensions=tuple(at_size(d, size) for d in shape.dimensions))


def size_in(shape: Shape) -> int:
    """The size of the range that a shape's dimensions follow; 0 where they are plain."""
    sized = (d for leaf in shape.leaves() for d in leaf.dimensions if isinstance(d, Size))
    return next((d.range.size() for d in sized), 0)
