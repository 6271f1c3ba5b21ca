"""The ways that a run can go: which operand a select takes, which branch runs, whether an index is in range; and which of them a run went."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hlo_opt.evaluate.wanted import DEEPEST, first_leaf, known_bounds, leaves
from hlo_opt.evaluate.watch import Event
from hlo_opt.ir import Computation, Instruction, Module
from hlo_opt.ops import find
from hlo_opt.ops.sets import APPLIED, held, looped, taken_element
from hlo_opt.ops.ways import ENDS, RUNS, Ways
from hlo_opt.ops.wishes import Bounds, is_special


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
        kind = _ways_at(instruction)
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
        if held(instruction) is not None:
            starts = itertools.accumulate((leaves(o) for o in instruction.operands), initial=0)
            return frozenset(start + place for start, own in zip(starts, operands, strict=False) for place in own)
        if taken_element(instruction) is not None:
            start = first_leaf(instruction)
            return frozenset(place - start for place in operands[0] if 0 <= place - start < len(everything))
        if depth > DEEPEST:
            return everything
        if instruction.opcode in APPLIED or instruction.opcode == "map":
            return self.visit(next(instruction.called()), operands, depth + 1)
        if looped(instruction) is not None:
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
        self.bodies = {i.called_by("body").root: i for i in self.missing if looped(i) is not None}
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
        for way in _ways_at(event.instruction).gone(event, missing):  # type: ignore[union-attr]
            if way in missing:
                missing.discard(way)
                self.gone.add((event.instruction, way))


_EVENT = 4000
"""What an instruction costs that does next to nothing, in elements."""
_OPEN: Bounds = (-math.inf, math.inf)


def _ways_at(instruction: Instruction) -> Ways | None:
    spec = find(instruction.opcode)
    if is_special(instruction):
        return ENDS
    return None if spec is None or spec.ways is None else spec.ways.resolve()
