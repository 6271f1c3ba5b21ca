"""Run-time values of instructions: arrays, dynamic arrays, arrays with bounds on what other backends may compute, and
tuples.

In the analysis of rounding errors, a value that every correct backend computes bit for bit alike stays a plain array.
Any other is a `Spread` of rows: the reference's value, the least and the greatest value of any backend, and `LANES`
moved values, one per simulated backend. An element with equal bounds is certain. One with an infinite bound next to a
finite value is unbounded: it may be anything, also NaN.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from hlo_opt.ir import Instruction
from hlo_opt.ir.values import Array


@dataclass(frozen=True, slots=True, eq=False)
class Dynamic:
    """An array with run-time sizes: `padded` is the array at its bound, `sizes` as they were set, not clamped to the
    bound."""

    padded: Array
    sizes: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes in use, clamped to the bound."""
        return tuple(max(0, min(size, bound)) for size, bound in zip(self.sizes, self.padded.shape, strict=True))

    @property
    def used(self) -> Array:
        """The elements in use."""
        return self.padded[tuple(map(slice, self.shape))]

    def buffer(self) -> Array:
        """An array of the bound's size: the elements in use in row-major order, then zeros.

        XLA:CPU returns such a buffer (SliceToDynamic), but leaves the rest uninitialised.
        """
        if self.shape == self.padded.shape:
            return self.padded
        flat = np.zeros(self.padded.size, self.padded.dtype)
        used = self.used
        flat[: used.size] = used.reshape(-1)
        return flat.reshape(self.padded.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.buffer(), dtype=dtype)


LANES = 4
"""The number of simulated backends besides the reference."""

VALUE, LOW, HIGH = 0, 1, 2
MOVED = 3
ROWS = MOVED + LANES
SWAPPED = [VALUE, HIGH, LOW, *range(MOVED, ROWS)]


@dataclass(slots=True, eq=False)
class Spread:
    """An array with bounds: `rows` has the reference's value, both bounds and the moved values.

    depth  operations since the bounds were last compared with the moved values
    sizes  the sizes in use of an array with dynamic dimensions, else None
    loss   where digits were lost on the way to it: see `Loss`
    """

    rows: Array
    depth: int = 0
    sizes: tuple[int, ...] | None = None
    loss: Loss | None = None

    def row(self, number: int) -> Value:
        array = self.rows[number]
        return array if self.sizes is None else Dynamic(array, self.sizes)


@dataclass(frozen=True, slots=True)
class Loss:
    """The instruction whose result's relative width is `gain` times that of its operands, the largest gain on the
    way."""

    instruction: Instruction
    gain: float


Value: TypeAlias = "Array | Dynamic | Spread | tuple[Value, ...]"
"""The value of an instruction. A token is ()."""


def leaves_of(value: Value) -> Iterator[Value]:
    """The parts of a value that are no tuples, depth first."""
    todo = [value]
    while todo:
        top = todo.pop()
        if isinstance(top, tuple):
            todo.extend(reversed(top))
        else:
            yield top


def parts(value: Value) -> tuple[Value, ...]:
    """The elements of a tuple. Raises TypeError for another value."""
    if not isinstance(value, tuple):
        raise TypeError(f"{type(value).__name__} is not a tuple")
    return value


def whole(value: Value) -> Dynamic:
    """An array as a dynamic one, wholly in use if it was static."""
    array = value if isinstance(value, Dynamic) else np.asarray(value)
    return array if isinstance(array, Dynamic) else Dynamic(array, array.shape)


def packed(instruction: Instruction, results: Sequence[Value]) -> Value:
    """An instruction's value from its results: the only one, or a tuple where its shape is a tuple."""
    return tuple(results) if instruction.shape.is_tuple else results[0]
