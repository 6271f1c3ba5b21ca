"""The values that instructions have while a program runs: arrays, arrays with sizes of their own, arrays with what other backends may have in their place, and tuples of these.

A value that every correct backend computes bit for bit the same stays what it is in the interpreter, an array or a tuple. Any other array is a `Spread`:
its rows are the reference's value, the least and the greatest value that another backend may have, and `LANES` moved values, each of which is what one
imagined backend has. An element whose bounds are equal is certain; one with an infinite bound beside a finite value is set aside: it may be anything, NaN too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from hlo_opt.ir import Instruction
from hlo_opt.ir.values import Array


@dataclass(frozen=True, slots=True, eq=False)
class Dynamic:
    """`padded` is the array at its bound; `sizes` are the run-time sizes as they were given, which nobody promises to lie between 0 and the bound."""

    padded: Array
    sizes: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes in use, within the bound."""
        return tuple(max(0, min(size, bound)) for size, bound in zip(self.sizes, self.padded.shape, strict=True))

    @property
    def used(self) -> Array:
        """The elements in use."""
        return self.padded[tuple(map(slice, self.shape))]

    def buffer(self) -> Array:
        """An array of the bound: the elements in use come first in row-major order, zeros follow.

        XLA:CPU returns such a buffer (SliceToDynamic), where it leaves what follows as it is in memory.
        """
        if self.shape == self.padded.shape:
            return self.padded
        made = np.zeros(self.padded.size, self.padded.dtype)
        used = self.used
        made[: used.size] = used.reshape(-1)
        return made.reshape(self.padded.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.buffer(), dtype=dtype)


LANES = 4
"""How many imagined backends run beside the reference."""

VALUE, LOW, HIGH = 0, 1, 2
MOVED = 3
ROWS = MOVED + LANES
SWAPPED = [VALUE, HIGH, LOW, *range(MOVED, ROWS)]


@dataclass(slots=True, eq=False)
class Spread:
    """`rows` has the reference's value, both bounds and the moved values.

    depth  operations since the bounds were last held against the moved values
    sizes  the sizes in use where the array has dynamic dimensions, else None
    loss   where digits were lost on the way to it: see `Loss`
    """

    rows: Array
    depth: int = 0
    sizes: tuple[int, ...] | None = None
    loss: Loss | None = None

    def row(self, number: int) -> Value:
        found = self.rows[number]
        return found if self.sizes is None else Dynamic(found, self.sizes)


@dataclass(frozen=True, slots=True)
class Loss:
    """The operation after which a value's relative width was `gain` times that of what it was computed from, the largest gain on the way."""

    instruction: Instruction
    gain: float


Value: TypeAlias = "Array | Dynamic | Spread | tuple[Value, ...]"
"""What an instruction gives. A token is an empty tuple."""


def parts(value: Value) -> tuple[Value, ...]:
    """The elements of a tuple. Raises TypeError for any other value."""
    if not isinstance(value, tuple):
        raise TypeError(f"{type(value).__name__} is no tuple")
    return value


def whole(value: Value) -> Dynamic:
    """An array as one of dynamic dimensions, all of it in use where it has none."""
    array = value if isinstance(value, Dynamic) else np.asarray(value)
    return array if isinstance(array, Dynamic) else Dynamic(array, array.shape)


def packed(instruction: Instruction, results: Sequence[Value]) -> Value:
    """What an instruction gives: its one result, or a tuple of them where its shape is one."""
    return tuple(results) if instruction.shape.is_tuple else results[0]
