"""The ways that a run can go: which operand a select takes, which branch runs, whether an index is in range; and which of them a run went.

An addition has ways too: each term must matter somewhere, or a mistake in it cannot be seen.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hlo_opt.evaluate.wanted import DEEPEST, first_leaf, known_bounds, leaves
from hlo_opt.evaluate.watch import Event
from hlo_opt.ir import Computation, Instruction, Module
from hlo_opt.ops.wishes import Bounds, is_special

MATTERS = 2.0**-8
"""A term matters that is at least this share of the other one, in some element; of narrow floats a quarter."""


@dataclass(frozen=True)
class Way:
    """One way that an instruction can go. `words` finish the sentence that begins with the instruction's name: `is never true`."""

    instruction: Instruction
    words: str

    def place(self) -> str:
        """The name of the instruction, with the line of the text where it stands, if that is known."""
        module = None if self.instruction.parent is None else self.instruction.parent.module
        span = None if module is None else module.span(self.instruction)
        return self.instruction.name if span is None else f"{self.instruction.name} (line {span.line})"

    def __str__(self) -> str:
        return f"{self.place()} {self.words}"


def ways_of(module: Module) -> dict[Instruction, set[str]]:
    """The ways of all instructions whose value depends on the inputs, but for those that bounds of values shut."""
    bounds = known_bounds(module)
    drawn = _drawn(module)
    found = {}
    for instruction in drawn:
        kind = _kind_of(instruction)
        if kind is None or instruction not in bounds:
            continue
        deciding = instruction.operands[slice(*kind.deciding(instruction))]
        if any(o in drawn for o in deciding):
            ways = set(kind.ways(instruction, [bounds.get(o, _OPEN) for o in instruction.operands]))
            if ways:
                found[instruction] = ways
    return found


def _drawn(module: Module) -> dict[Instruction, None]:
    """The instructions whose value depends on the entry's parameters."""
    taint = _Taint()
    taint.visit(module.entry, [frozenset(range(leaves(p))) for p in module.entry.parameters])
    return taint.drawn


Places = frozenset[int]
"""Arrays of a value, by their places in its flattened tuple."""


class _Taint:
    """Which arrays depend on inputs, followed through calls and loops."""

    def __init__(self) -> None:
        self.drawn: dict[Instruction, None] = {}
        self._known: dict[tuple[Computation, tuple[Places, ...]], Places] = {}

    def visit(self, computation: Computation, arguments: Sequence[Places], depth: int = 0) -> Places:
        """Those of the root, given those of the parameters."""
        key = (computation, tuple(arguments))
        if key in self._known:
            return self._known[key]
        found: dict[Instruction, Places] = {}
        for instruction in computation.instructions:
            number = instruction.parameter_number
            if number is None:
                made = self._made(instruction, [found[o] for o in instruction.operands], depth)
            else:
                made = arguments[number] if number < len(arguments) else frozenset()
            found[instruction] = made
            if made:
                self.drawn[instruction] = None
        self._known[key] = found[computation.root]
        return found[computation.root]

    def _made(self, instruction: Instruction, operands: Sequence[Places], depth: int) -> Places:
        everything = frozenset(range(leaves(instruction)))
        if not any(operands):
            return frozenset()
        if instruction.opcode == "tuple":
            starts = itertools.accumulate((leaves(o) for o in instruction.operands), initial=0)
            return frozenset(start + place for start, own in zip(starts, operands, strict=False) for place in own)
        if instruction.opcode == "get-tuple-element":
            start = first_leaf(instruction)
            return frozenset(place - start for place in operands[0] if 0 <= place - start < len(everything))
        if depth > DEEPEST:
            return everything
        if instruction.opcode in ("call", "fusion", "map"):
            return self.visit(next(instruction.called()), operands, depth + 1)
        if instruction.opcode == "while":
            return self._loop(instruction, operands[0], everything, depth)
        if instruction.opcode == "conditional":
            own = [self.visit(c, [a], depth + 1) for c, a in zip(instruction.called(), operands[1:], strict=False)]
            return everything if operands[0] else frozenset().union(*own)
        return everything

    def _loop(self, loop: Instruction, state: Places, everything: Places, depth: int) -> Places:
        condition, body = loop.called_by("condition"), loop.called_by("body")
        while True:
            if self.visit(condition, [state], depth + 1):
                state = everything
            made = state | self.visit(body, [state], depth + 1)
            if made == state:
                return state
            state = made


class TooMuchError(Exception):
    """A run goes on for longer than it is worth."""


class Watch:
    """Sees which ways a run goes. `work` is about how much the run has done, in elements; beyond `limit` it ends with `TooMuchError`."""

    def __init__(self, missing: Mapping[Instruction, set[str]], limit: float | None = None) -> None:
        self.limit = math.inf if limit is None else limit
        self.missing = {instruction: set(ways) for instruction, ways in missing.items() if ways}
        self.bodies = {i.called_by("body").root: i for i in self.missing if i.opcode == "while"}
        self.gone: set[tuple[Instruction, str]] = set()
        self.work = 0

    def __call__(self, event: Event) -> None:
        self.work += _EVENT + getattr(event.value, "size", 1)
        if self.work > self.limit:
            raise TooMuchError
        loop = self.bodies.get(event.instruction)
        if loop is not None and RUNS in self.missing[loop]:
            self.missing[loop].discard(RUNS)
            self.gone.add((loop, RUNS))
        missing = self.missing.get(event.instruction)
        if not missing:
            return
        for way in _kind_of(event.instruction).gone(event, missing):  # type: ignore[union-attr]
            if way in missing:
                missing.discard(way)
                self.gone.add((event.instruction, way))


_EVENT = 4000
"""What an instruction costs that does next to nothing, in elements."""
_OPEN: Bounds = (-math.inf, math.inf)


def _all_operands(instruction: Instruction) -> tuple[int, int | None]:
    return 0, None


def _first_operand(instruction: Instruction) -> tuple[int, int | None]:
    return 0, 1


def _index_operands(instruction: Instruction) -> tuple[int, int | None]:
    first = _rooms(instruction)[0]
    return first, None if instruction.opcode.startswith("dynamic") else first + 1


@dataclass(frozen=True)
class _Kind:
    """ways      of an instruction, with the bounds of its operands
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


def _kind_of(instruction: Instruction) -> _Kind | None:
    return _ENDS if is_special(instruction) else _KINDS.get(instruction.opcode)


_ENDS = _Kind(_special_ways, _special)
_KINDS: Mapping[str, _Kind] = {
    **dict.fromkeys(("is-finite", "and", "or"), _Kind(_truth_ways, _truth)),
    **dict.fromkeys(("maximum", "minimum"), _Kind(_extreme_ways, _extreme)),
    **dict.fromkeys(("add", "subtract"), _Kind(_term_ways, _terms)),
    **dict.fromkeys(
        ("shift-left", "shift-right-arithmetic", "shift-right-logical"), _Kind(_shift_ways, _shift, _second_operand)
    ),
    **dict.fromkeys(("floor", "ceil", "round-nearest-afz", "round-nearest-even"), _Kind(_rounding_ways, _rounding)),
    **dict.fromkeys(
        ("gather", "scatter", "dynamic-slice", "dynamic-update-slice"), _Kind(_index_ways, _index, _index_operands)
    ),
    "clamp": _Kind(_clamp_ways, _clamp),
    "compare": _Kind(_compare_ways, _compare),
    "conditional": _Kind(_branch_ways, _branch, _first_operand),
    "select": _Kind(_select_ways, _select, _first_operand),
    "while": _Kind(_while_ways, _while),
}
