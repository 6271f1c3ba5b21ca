"""The ways that a run can go at one operation: which operand a select takes, which branch runs, whether an index is in range. The `ways` faces of the table.

An addition has ways too: each term must matter somewhere, or a mistake in it cannot be seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hlo_opt.ir import Instruction
from hlo_opt.ops.wishes import Bounds

MATTERS = 2.0**-8
"""A term matters that is at least this share of the other one, in some element; of narrow floats a quarter."""


class Event(Protocol):
    """One evaluation of an instruction."""

    @property
    def instruction(self) -> Instruction: ...

    @property
    def operands(self) -> Sequence[Any]: ...

    @property
    def value(self) -> Any: ...


def _all_operands(instruction: Instruction) -> tuple[int, int | None]:
    return 0, None


def _first_operand(instruction: Instruction) -> tuple[int, int | None]:
    return 0, 1


def _index_operands(instruction: Instruction) -> tuple[int, int | None]:
    first = _rooms(instruction)[0]
    return first, None if instruction.opcode.startswith("dynamic") else first + 1


@dataclass(frozen=True)
class Ways:
    """How one operation can go.

    ways      of an instruction, with the bounds of its operands
    gone      which of the missing ones an evaluation went
    deciding  which operands decide on the way: the first, and the end
    """

    ways: Callable[[Instruction, Sequence[Bounds]], Iterator[str]]
    gone: Callable[[Event, set[str]], Iterator[str]]
    deciding: Callable[[Instruction], tuple[int, int | None]] = _all_operands


TRUE, FALSE, TIE = "is never true", "is never false", "never compares equal values"
FIRST, SECOND = "never takes its first choice", "never takes its second choice"
BELOW, INSIDE, ABOVE = "never cuts off below", "never lets a value through", "never cuts off above"
IN, OUT = "has no index in range", "has no index out of range"
RUNS = "never runs a round"
INFINITE, NAN = "never meets an infinity", "never meets NaN"
SPECIAL = frozenset({INFINITE, NAN})
"""The ways that only infinite numbers and NaN go, which ordinary inputs have none of."""
TERMS = ("has a first term that never matters", "has a second term that never matters")
FITS, TOO_FAR = "always shifts all bits out", "never shifts all bits out"
ZERO, OTHER = "is never zero", "is always zero"


def _any(value: Any) -> bool:
    return bool(np.any(value))


def _truth_ways(i: Instruction, bounds: Sequence[Bounds]) -> Iterator[str]:
    if i.shape.is_array and i.shape.type.kind == "pred":
        yield from (TRUE, FALSE)


def _compare_ways(i: Instruction, bounds: Sequence[Bounds]) -> Iterator[str]:
    (a, b), (c, d) = bounds
    direction = i.word("direction")
    if a == b and c == d:
        return
    apart = b < c or d < a
    less, equal, greater = a < d, not apart, b > c
    true = {"LT": less, "LE": less or equal, "GT": greater, "GE": greater or equal, "EQ": equal, "NE": True}.get(
        direction, True
    )
    false = {"LT": greater or equal, "LE": greater, "GT": less or equal, "GE": less, "EQ": True, "NE": equal}.get(
        direction, True
    )
    if i.operands[0] is i.operands[1]:
        true, false, equal = direction == "NE", direction == "EQ", False
    yield from (way for way, can in ((TRUE, true), (FALSE, false), (TIE, equal)) if can)


def _truth(event: Event, missing: set[str]) -> Iterator[str]:
    if TRUE in missing and _any(event.value):
        yield TRUE
    if FALSE in missing and not np.all(event.value):
        yield FALSE


def _compare(event: Event, missing: set[str]) -> Iterator[str]:
    yield from _truth(event, missing)
    if TIE in missing and _any(event.operands[0] == event.operands[1]):
        yield TIE


def _select(event: Event, missing: set[str]) -> Iterator[str]:
    if FIRST in missing and _any(event.operands[0]):
        yield FIRST
    if SECOND in missing and not np.all(event.operands[0]):
        yield SECOND


def _select_ways(i: Instruction, bounds: Sequence[Bounds]) -> Iterator[str]:
    low, high = bounds[0]
    if high > 0:
        yield FIRST
    if low < 1:
        yield SECOND


def _extreme_ways(i: Instruction, bounds: Sequence[Bounds]) -> Iterator[str]:
    (a, b), (c, d) = bounds
    if i.shape.type.is_complex or i.operands[0] is i.operands[1]:
        return
    greater, less = b > c, a < d
    first, second = (greater, less) if i.opcode == "maximum" else (less, greater)
    if first:
        yield FIRST
    if second:
        yield SECOND


def _extreme(event: Event, missing: set[str]) -> Iterator[str]:
    a, b = event.operands
    if event.instruction.opcode == "minimum":
        a, b = b, a
    if FIRST in missing and _any(a > b):
        yield FIRST
    if SECOND in missing and _any(a < b):
        yield SECOND


def _clamp_ways(i: Instruction, bounds: Sequence[Bounds]) -> Iterator[str]:
    low, value, high = bounds
    yield INSIDE
    if value[0] < low[1]:
        yield BELOW
    if value[1] > high[0]:
        yield ABOVE


def _clamp(event: Event, missing: set[str]) -> Iterator[str]:
    low, value, high = event.operands
    if BELOW in missing and _any(value < low):
        yield BELOW
    if ABOVE in missing and _any(value > high):
        yield ABOVE
    if INSIDE in missing and _any((value > low) & (value < high)):
        yield INSIDE


def _branch_ways(i: Instruction, bounds: Sequence[Bounds]) -> Iterator[str]:
    yield from (f"never takes branch {number}" for number, _ in enumerate(i.called()))


def _branch(event: Event, missing: set[str]) -> Iterator[str]:
    index = event.operands[0]
    branches = sum(1 for _ in event.instruction.called())
    if event.instruction.operands[0].shape.type.kind == "pred":
        number = 0 if index else 1
    else:
        number = int(index) if 0 <= int(index) < branches else branches - 1
    yield f"never takes branch {number}"


def _while_ways(i: Instruction, bounds: Sequence[Bounds]) -> Iterator[str]:
    yield RUNS


def _while(event: Event, missing: set[str]) -> Iterator[str]:
    yield from ()  # that a round ran is seen in the body


def _term_ways(i: Instruction, bounds: Sequence[Bounds]) -> Iterator[str]:
    if not i.shape.type.is_float or i.operands[0] is i.operands[1]:
        return
    yield from (way for way, (low, high) in zip(TERMS, bounds, strict=True) if not low == high == 0)


def _terms(event: Event, missing: set[str]) -> Iterator[str]:
    a, b = (np.abs(o) for o in event.operands)
    share = 0.25 if event.instruction.shape.type.is_narrow_float else MATTERS
    if TERMS[0] in missing and _any((a >= b * a.dtype.type(share)) & (a > 0)):
        yield TERMS[0]
    if TERMS[1] in missing and _any((b >= a * a.dtype.type(share)) & (b > 0)):
        yield TERMS[1]


def _rounding_ways(i: Instruction, bounds: Sequence[Bounds]) -> Iterator[str]:
    low, high = bounds[0]
    if low < 0.5 and high > -0.5:
        yield ZERO
    if low < 1 < high or low < -1 < high:
        yield OTHER


def _rounding(event: Event, missing: set[str]) -> Iterator[str]:
    if OTHER in missing and _any(event.value):
        yield OTHER
    if ZERO in missing and not np.all(event.value):
        yield ZERO


def _index_ways(i: Instruction, bounds: Sequence[Bounds]) -> Iterator[str]:
    first, rooms = _rooms(i)
    known = bounds[first : first + len(rooms)] if len(rooms) == len(i.operands) - first else bounds[first : first + 1]
    yield IN
    if any(low < 0 or high > max(rooms, default=0) for low, high in known) and rooms:
        yield OUT


def _rooms(i: Instruction) -> tuple[int, list[int]]:
    """The operand where the indices begin, and the largest index in range of each component."""
    source = i.operands[0].shape.dimensions
    if i.opcode == "dynamic-slice":
        return 1, [d - s for d, s in zip(source, i.ints("dynamic_slice_sizes"), strict=False)]
    if i.opcode == "dynamic-update-slice":
        return 2, [d - s for d, s in zip(source, i.operands[1].shape.dimensions, strict=False)]
    spec = i.ints("start_index_map") or i.ints("scatter_dims_to_operand_dims")
    sizes = i.ints("slice_sizes")
    first = 1 if i.opcode == "gather" else len(i.operands) // 2
    return first, [source[d] - (sizes[d] if d < len(sizes) else 1) for d in spec if d < len(source)]


def _index(event: Event, missing: set[str]) -> Iterator[str]:
    first, rooms = _rooms(event.instruction)
    if event.instruction.opcode in ("gather", "scatter"):
        indices = np.asarray(event.operands[first])
        axis = event.instruction.value("index_vector_dim", indices.ndim)
        if isinstance(axis, int) and axis < indices.ndim and indices.shape[axis] == len(rooms):
            parts = [np.take(indices, n, axis=axis) for n in range(len(rooms))]
        else:
            parts = [indices]
    else:
        given = event.operands[first:]
        parts = list(given) if len(given) == len(rooms) else list(np.asarray(given[0]).reshape(-1)) if given else []
    for part, room in zip(parts, rooms, strict=False):
        inside = (part >= 0) & (part <= room)
        if _any(inside):
            yield IN
        if not np.all(inside):
            yield OUT


def _second_operand(instruction: Instruction) -> tuple[int, int | None]:
    return 1, 2


def _shift_ways(i: Instruction, bounds: Sequence[Bounds]) -> Iterator[str]:
    low, high = bounds[1]
    bits = i.shape.type.bits
    if high >= 0 and low < bits:
        yield FITS
    if low < 0 or high >= bits:
        yield TOO_FAR


def _shift(event: Event, missing: set[str]) -> Iterator[str]:
    amount = event.operands[1]
    fits = (amount >= 0) & (amount < event.instruction.shape.type.bits)
    if FITS in missing and _any(fits):
        yield FITS
    if TOO_FAR in missing and not np.all(fits):
        yield TOO_FAR


def _special_ways(i: Instruction, bounds: Sequence[Bounds]) -> Iterator[str]:
    if not any(low == -math.inf or high == math.inf for low, high in bounds):
        return
    with np.errstate(all="ignore"):
        both = np.array([math.inf, math.nan]).astype(
            i.operands[0].shape.type.dtype
        )  # some types of 8 bits have neither
    if np.isinf(both[0]):
        yield INFINITE
    if np.isnan(both[1]):
        yield NAN


def _special(event: Event, missing: set[str]) -> Iterator[str]:
    for operand in event.operands:
        if INFINITE in missing and _any(np.isinf(operand)):
            yield INFINITE
        if NAN in missing and _any(np.isnan(operand)):
            yield NAN


ENDS = Ways(_special_ways, _special)
"""Of an operation that treats infinite numbers and NaN in its own way."""
TRUTH = Ways(_truth_ways, _truth)
EXTREME = Ways(_extreme_ways, _extreme)
ADDITION = Ways(_term_ways, _terms)
SHIFT = Ways(_shift_ways, _shift, _second_operand)
ROUNDING = Ways(_rounding_ways, _rounding)
INDICES = Ways(_index_ways, _index, _index_operands)
CLAMP = Ways(_clamp_ways, _clamp)
COMPARE = Ways(_compare_ways, _compare)
CONDITIONAL = Ways(_branch_ways, _branch, _first_operand)
SELECT = Ways(_select_ways, _select, _first_operand)
WHILE = Ways(_while_ways, _while)
