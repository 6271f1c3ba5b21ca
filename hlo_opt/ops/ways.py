"""The `ways` faces: the ways that an operation can take (operand of a select, branch, index in range, ...).

Additions have ways too: if a term never changes the sum, a fault in it is not noticed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hlo_opt.ir import ElementType, Instruction
from hlo_opt.ir.values import Array
from hlo_opt.ops.wishes import Bounds

MATTERS = 2.0**-8
"""A term matters if it is at least this share of the other one in some element; for narrow floats a quarter."""


class EvaluationView(Protocol):
    """One evaluation of an instruction."""

    @property
    def instruction(self) -> Instruction: ...

    @property
    def operands(self) -> Sequence[Any]: ...

    @property
    def value(self) -> Any: ...


@dataclass(frozen=True)
class Ways:
    """The ways of one operation.

    ways      (instruction, bounds of its operands) -> its possible ways
    gone      (event, missing ways) -> those that an evaluation took
    deciding  the range of the operands that determine the way: first number, and end
    """

    ways: Callable[[Instruction, Sequence[Bounds]], Iterable[str]]
    gone: Callable[[EvaluationView, set[str]], Iterable[str]]
    deciding: Callable[[Instruction], tuple[int, int | None]] = lambda instruction: (0, None)


def _first(instruction: Instruction) -> tuple[int, int | None]:
    return 0, 1


def _open(where: Mapping[str, Callable[[Instruction, Sequence[Bounds]], bool]]) -> Callable[..., Iterator[str]]:
    """The ways that bounds leave possible, each with its predicate."""
    return lambda i, bounds: (way for way, is_open in where.items() if is_open(i, bounds))


def _seen(where: Mapping[str, Callable[[EvaluationView], bool]]) -> Callable[[EvaluationView, set[str]], Iterator[str]]:
    """The missing ways that an evaluation took, by their predicates."""
    return lambda event, missing: (way for way, went in where.items() if way in missing and went(event))


TRUE, FALSE, TIE = "is never true", "is never false", "never compares equal values"
FIRST, SECOND = "never takes its first choice", "never takes its second choice"
BELOW, INSIDE, ABOVE = "never cuts off below", "never lets a value through", "never cuts off above"
IN, OUT = "has no index in range", "has no index out of range"
UNDER, OVER = "has no index below 0", "has no index beyond its branches"
RUNS = "never runs an iteration"
INFINITE, NAN = "never meets an infinity", "never meets NaN"
SPECIAL = frozenset({INFINITE, NAN})
"""Ways that need infinities or NaN, which ordinary inputs do not contain."""
TERMS = ("has a first term that never matters", "has a second term that never matters")
WRAPS = "never exceeds its type"
"""Of integers: a way that needs numbers as large as the type has, or as the type that all operands are widened from: a
kernel that adds them before it widens them is right for less."""
BEFORE, BEYOND = "has no index before its range", "has no index beyond its range"
NEGATIVE = "never has a negative base"
QUIET = frozenset({WRAPS, BEFORE, BEYOND, NEGATIVE})
"""Ways that wishes may exclude (an index that is counted from the end, one of which only one end is cut off, a base
that has a logarithm), so that nobody is told that they were not taken."""
FITS, TOO_FAR = "always shifts all bits out", "never shifts all bits out"
ZERO, OTHER = "is never zero", "is always zero"


def _any(value: Any) -> bool:
    return bool(np.any(value))


def _is_truth(i: Instruction, bounds: Sequence[Bounds]) -> bool:
    return i.shape.is_array and i.shape.type.kind == "pred"


_VALUE = {TRUE: lambda event: _any(event.value), FALSE: lambda event: not np.all(event.value)}
TRUTH = Ways(_open({TRUE: _is_truth, FALSE: _is_truth}), _seen(_VALUE))


def _compare_ways(i: Instruction, bounds: Sequence[Bounds]) -> Iterator[str]:
    (a, b), (c, d) = bounds
    direction = i.word("direction")
    if a == b and c == d:
        return
    apart = b < c or d < a
    less, equal, greater = a < d, not apart, b > c
    can = {
        "LT": (less, greater or equal),
        "LE": (less or equal, greater),
        "GT": (greater, less or equal),
        "GE": (greater or equal, less),
        "EQ": (equal, True),
        "NE": (True, equal),
    }
    true, false = can.get(direction, (True, True))
    if i.operands[0] is i.operands[1]:
        true, false, equal = direction == "NE", direction == "EQ", False
    yield from (way for way, is_open in ((TRUE, true), (FALSE, false), (TIE, equal)) if is_open)


COMPARE = Ways(_compare_ways, _seen({**_VALUE, TIE: lambda event: _any(event.operands[0] == event.operands[1])}))
SELECT = Ways(
    _open({FIRST: lambda i, bounds: bounds[0][1] > 0, SECOND: lambda i, bounds: bounds[0][0] < 1}),
    _seen({FIRST: lambda event: _any(event.operands[0]), SECOND: lambda event: not np.all(event.operands[0])}),
    _first,
)


def _extreme_ways(i: Instruction, bounds: Sequence[Bounds]) -> Iterator[str]:
    (a, b), (c, d) = bounds
    if i.shape.type.is_complex or i.operands[0] is i.operands[1]:
        return
    greater, less = b > c, a < d
    first, second = (greater, less) if i.opcode == "maximum" else (less, greater)
    yield from (way for way, is_open in ((FIRST, first), (SECOND, second)) if is_open)


def _exceeds(event: EvaluationView, first: int) -> bool:
    """Whether an operand is selected somewhere: the larger by a maximum, the smaller by a minimum."""
    chosen, other = event.operands[first], event.operands[1 - first]
    return _any(chosen > other if event.instruction.opcode == "maximum" else chosen < other)


EXTREME = Ways(
    _extreme_ways, _seen({FIRST: lambda event: _exceeds(event, 0), SECOND: lambda event: _exceeds(event, 1)})
)


def _passes(event: EvaluationView) -> bool:
    low, value, high = event.operands
    return _any((value > low) & (value < high))


_CUT = {
    BELOW: lambda event: _any(event.operands[1] < event.operands[0]),
    ABOVE: lambda event: _any(event.operands[1] > event.operands[2]),
    INSIDE: _passes,
}


def _clamp_ways(i: Instruction, bounds: Sequence[Bounds]) -> Iterator[str]:
    low, value, high = bounds
    yield from (
        way for way, is_open in ((INSIDE, True), (BELOW, value[0] < low[1]), (ABOVE, value[1] > high[0])) if is_open
    )


CLAMP = Ways(_clamp_ways, _seen(_CUT))


def _branch_ways(i: Instruction, bounds: Sequence[Bounds]) -> Iterator[str]:
    count = sum(1 for _ in i.called())
    yield from (f"never takes branch {number}" for number in range(count))
    if i.operands[0].shape.type.is_integer and count > 1:
        low, high = bounds[0]
        yield from (way for way, is_open in ((UNDER, low < 0), (OVER, high >= count)) if is_open)


def _branch(event: EvaluationView, missing: set[str]) -> Iterator[str]:
    index = int(event.operands[0])
    branches = sum(1 for _ in event.instruction.called())
    if event.instruction.operands[0].shape.type.kind == "pred":
        index = 1 - index
    elif not 0 <= index < branches:
        yield UNDER if index < 0 else OVER
        index = branches - 1
    yield f"never takes branch {index}"


CONDITIONAL = Ways(_branch_ways, _branch, _first)
WHILE = Ways(lambda i, bounds: (RUNS,), lambda event, missing: ())  # iterations are seen in the body


def _term_ways(i: Instruction, bounds: Sequence[Bounds]) -> Iterator[str]:
    if i.shape.type.is_integer:
        yield from _wrap_ways(i, bounds)
    if not i.shape.type.is_float or i.operands[0] is i.operands[1]:
        return
    yield from (way for way, (low, high) in zip(TERMS, bounds, strict=True) if not low == high == 0)


def _matters(event: EvaluationView, number: int) -> bool:
    term, other = np.abs(event.operands[number]), np.abs(event.operands[1 - number])
    share = 0.25 if event.instruction.shape.type.is_narrow_float else MATTERS
    return _any((term >= other * term.dtype.type(share)) & (term > 0))


_IN_NUMBERS: Mapping[str, Callable[..., Any]] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "convert": np.asarray, "abs": np.abs,
    "negate": np.negative,
}  # fmt: skip


def _wrap_ways(i: Instruction, bounds: Sequence[Bounds]) -> Iterator[str]:
    """Whether numbers between the bounds of integer operands give one that the type does not have. A float that an
    integer becomes has it, but the number may need each bit of its own type."""
    is_number = i.shape.type.is_integer or (i.opcode == "convert" and i.shape.type.is_float)
    are_integers = is_number and all(o.shape.type.is_integer for o in i.operands)
    if are_integers and not all(math.isinf(end) for own in bounds for end in own):
        ends = np.meshgrid(*[np.array(own, np.float64) for own in bounds])
        if _exceeds_type(i, ends):
            yield WRAPS


def _exceeds_type(i: Instruction, operands: Sequence[Any]) -> bool:
    if i.shape.type.is_integer:
        low, high = (float(end) for end in _type_before(i).limits)
    else:
        high = 2.0 ** (i.operands[0].shape.type.bits - 1) - 1
        low = -high
    with np.errstate(all="ignore"):
        exact = _IN_NUMBERS[i.opcode](*[np.asarray(o).astype(np.float64) for o in operands])
    return _any((exact < low) | (exact > high))


def _type_before(i: Instruction) -> ElementType:
    """The integers that all operands are widened from; those of the result where they are not."""
    before = {o.operands[0].shape.type if o.opcode == "convert" else o.shape.type for o in i.operands}
    is_narrower = len(before) == 1 and all(t.is_integer and t.bits < i.shape.type.bits for t in before)
    return before.pop() if is_narrower else i.shape.type


_WRAPPED = {WRAPS: lambda event: _exceeds_type(event.instruction, event.operands)}
WRAPPING = Ways(_wrap_ways, _seen(_WRAPPED))
ADDITION = Ways(
    _term_ways,
    _seen(
        {TERMS[0]: lambda event: _matters(event, 0), TERMS[1]: lambda event: _matters(event, 1), **_WRAPPED},
    ),
)


def _has_sign(i: Instruction, bounds: Sequence[Bounds]) -> bool:
    """Whether a power may be that of a negative number; a constant exponent decides whether there is one."""
    (low, _), (least, most) = bounds
    return i.shape.type.is_float and low < 0 and least < most


POWER = Ways(
    _open({NEGATIVE: _has_sign}),
    _seen({NEGATIVE: lambda event: _any((event.operands[0] < 0) & (event.value == event.value))}),
)


def _leaves_zero(i: Instruction, bounds: Sequence[Bounds]) -> bool:
    low, high = bounds[0]
    return low < 1 < high or low < -1 < high


ROUNDING = Ways(
    _open({ZERO: lambda i, bounds: bounds[0][0] < 0.5 and bounds[0][1] > -0.5, OTHER: _leaves_zero}),
    _seen({OTHER: lambda event: _any(event.value), ZERO: lambda event: not np.all(event.value)}),
)


def _index_ways(i: Instruction, bounds: Sequence[Bounds]) -> Iterator[str]:
    first, rooms = _rooms(i)
    known = bounds[first : first + len(rooms)] if len(rooms) == len(i.operands) - first else bounds[first : first + 1]
    yield IN
    ends = (
        (BEFORE, any(low < 0 for low, _ in known)),
        (BEYOND, any(high > max(rooms, default=0) for _, high in known)),
    )
    out = [way for way, is_open in ends if is_open and rooms]
    yield from [OUT, *out] if out else []


def _rooms(i: Instruction) -> tuple[int, list[int]]:
    """The number of the first index operand, and the largest index in range per component."""
    source = i.operands[0].shape.dimensions
    if i.opcode == "dynamic-slice":
        return 1, [d - s for d, s in zip(source, i.ints("dynamic_slice_sizes"), strict=False)]
    if i.opcode == "dynamic-update-slice":
        return 2, [d - s for d, s in zip(source, i.operands[1].shape.dimensions, strict=False)]
    spec = i.ints("start_index_map") or i.ints("scatter_dims_to_operand_dims")
    sizes = i.ints("slice_sizes")
    first = 1 if i.opcode == "gather" else len(i.operands) // 2
    return first, [source[d] - (sizes[d] if d < len(sizes) else 1) for d in spec if d < len(source)]


def _index_operands(instruction: Instruction) -> tuple[int, int | None]:
    first = _rooms(instruction)[0]
    return first, None if instruction.opcode.startswith("dynamic") else first + 1


def _index(event: EvaluationView, missing: set[str]) -> Iterator[str]:
    first, rooms = _rooms(event.instruction)
    if event.instruction.opcode in ("gather", "scatter"):
        indices = np.asarray(event.operands[first])
        axis = event.instruction.value("index_vector_dim", indices.ndim)
        if isinstance(axis, int) and axis < indices.ndim and indices.shape[axis] == len(rooms):
            parts = [np.take(indices, n, axis=axis) for n in range(len(rooms))]
        else:
            parts = [indices]
    else:
        starts = event.operands[first:]
        vector = np.asarray(starts[0]).reshape(-1) if starts else ()
        parts = list(starts) if len(starts) == len(rooms) else list(vector)
    for part, room in zip(parts, rooms, strict=False):
        before, beyond = part < 0, part > room
        if not np.all(before | beyond):
            yield IN
        if _any(before):
            yield from (OUT, BEFORE)
        if _any(beyond):
            yield from (OUT, BEYOND)


INDICES = Ways(_index_ways, _index, _index_operands)


def _fits(event: EvaluationView) -> Array:
    amount = event.operands[1]
    return (amount >= 0) & (amount < event.instruction.shape.type.bits)


def _shift_ways(i: Instruction, bounds: Sequence[Bounds]) -> Iterator[str]:
    (low, high), bits = bounds[1], i.shape.type.bits
    yield from (
        way for way, is_open in ((FITS, high >= 0 and low < bits), (TOO_FAR, low < 0 or high >= bits)) if is_open
    )


_SHIFTED = {FITS: lambda event: _any(_fits(event)), TOO_FAR: lambda event: not np.all(_fits(event))}
SHIFT = Ways(_shift_ways, _seen(_SHIFTED), lambda instruction: (1, 2))


def _special_ways(i: Instruction, bounds: Sequence[Bounds]) -> Iterator[str]:
    if not any(low == -math.inf or high == math.inf for low, high in bounds):
        return
    with np.errstate(all="ignore"):
        both = np.array([math.inf, math.nan]).astype(i.operands[0].shape.type.dtype)  # some 8-bit types have neither
    if np.isinf(both[0]):
        yield INFINITE
    if np.isnan(both[1]):
        yield NAN


_MET = {
    INFINITE: lambda event: any(_any(np.isinf(o)) for o in event.operands),
    NAN: lambda event: any(_any(np.isnan(o)) for o in event.operands),
}
ENDS = Ways(_special_ways, _seen(_MET))
"""Ways of an operation with special cases for infinities and NaN."""
