"""The ways that a run can go, and inputs that reach them: several draws, until all that a run of the module can do has been done, as far as inputs can be found that do it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hlo_opt.diag import EvaluationError
from hlo_opt.evaluate.devices import device_inputs, evaluate_devices
from hlo_opt.evaluate.inputs import PLAIN, Style, input_shapes
from hlo_opt.evaluate.interpreter import evaluate
from hlo_opt.evaluate.nans import Event
from hlo_opt.evaluate.wanted import DEEPEST, first_leaf, known_bounds, leaves
from hlo_opt.ir import Computation, Instruction, Module
from hlo_opt.ir.values import Array
from hlo_opt.ops import find
from hlo_opt.ops.collective.module_devices import check_devices
from hlo_opt.ops.sets import APPLIED, held, looped, taken_element
from hlo_opt.ops.ways import ENDS, RUNS, SPECIAL, Ways
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


MOST_DRAWS = 8
"""Draws that are chosen at most; mostly it is one to three."""
MOST_TRIED = 12
"""Draws that are tried, of a module that takes next to no time."""
WORK = 100_000_000
"""How much all draws together may have to do, counted as in `Watch`; of a module where one draw has more to do, two are tried."""
CHOSEN_WORK = 30_000_000
"""How much the chosen draws may have to do together; one draw is always chosen."""
LARGEST = 1 << 30
"""Bytes of inputs, above which one draw is made only."""
VAIN = 5
"""Draws one after another that reach nothing new, after which no more are tried."""

Gone = frozenset[tuple[Instruction, str]]


@dataclass(frozen=True, eq=False)
class Draw:
    """One set of inputs.

    inputs   for each device, one array per array of the entry's parameters
    outputs  what the module makes of them on each device, tuples flattened in order: HLO's meaning, by the interpreter
    style    how they were drawn, if they were
    """

    inputs: list[list[Array]]
    outputs: list[list[Array]]
    style: Style = PLAIN


@dataclass(frozen=True, eq=False)
class Reached:
    """The draws that a check should use, the first of them that of the plain seed, and the ways that none of them went. `tried` counts the draws looked at."""

    draws: tuple[Draw, ...]
    unreached: tuple[Way, ...]
    tried: int


def styles() -> Iterator[Style]:
    """How one draw after the other is made: plain; quiet, such that constants matter; whole numbers, which tie; loud; sparse, which ties what is computed; then all mixed."""
    yield PLAIN
    yield Style(1, loudness=1e-3, axis=-1, beyond=0.125)
    yield Style(2, whole=True, beyond=0.125, axis=-1)
    yield Style(3, loudness=30.0, beyond=0.5)
    yield Style(4, sparse=True)
    yield Style(5, special=0.03, axis=-1)
    for number in range(6, MOST_TRIED):
        yield Style(
            number,
            loudness=10.0,
            mixed=True,
            axis=number % 3 - 1,
            whole=number % 3 == 0,
            sparse=number % 3 == 1,
            beyond=0.125 * (number % 2),
            special=0.01 * (number % 4 == 3),
        )


def reaching_inputs(module: Module, seed: int = 0, *, most: int = MOST_DRAWS) -> Reached:
    """Draw inputs from a seed until selects, comparisons, branches, clamps, indices and loops have gone every way, or nothing new is found; choose few draws that
    together went all that any went, `most` draws at most.

    The same seed gives the same draws. A module that takes long is evaluated twice at most. Raises EvaluationError as `module_inputs` and `evaluate` do; what
    only a later draw runs into ends the search.
    """
    ways = ways_of(module)
    tried: list[_Tried] = []
    missing = {(instruction, way) for instruction, own in ways.items() for way in own}
    limit, vain = None, 0
    if sum(shape.byte_size for shape in input_shapes(module)) > LARGEST:
        most = 1
    for style in styles():
        if tried and (not missing or vain >= VAIN or most < 2):
            break
        if tried and not style.special and all(way in SPECIAL for _, way in missing):
            continue
        if len(tried) > 1 and sum(t.work for t in tried) + tried[0].work > WORK:
            break
        found = _try(module, seed, style, Watch(ways, limit))
        if found is None:
            vain += 1
            continue
        limit = limit or max(SLACK * found.work, LEAST_LIMIT)
        vain = vain + 1 if missing.isdisjoint(found.gone) else 0
        missing -= found.gone
        tried.append(found)
    return _chosen(tried, {(i, way): None for i, own in ways.items() for way in sorted(own)}, most)


def other_draws(module: Module, seed: int, draws: Sequence[Draw], max_steps: int | None = None) -> Iterator[Draw]:
    """Draws in styles that none of the given ones has, those with infinities and NaN first; not those with hardly a number in their outputs."""
    for style in sorted(styles(), key=lambda s: -s.special):
        if all(draw.style != style for draw in draws) and style != PLAIN:
            found = _try(module, seed, style, Watch({}), max_steps)
            if found is not None and found.finite >= POOR:
                yield found.draw


SLACK = 1.5
"""How much more than the first draw a later one may do: with other inputs, a loop may run for ever."""
LEAST_LIMIT = 10_000_000


@dataclass(frozen=True, eq=False)
class _Tried:
    """A draw, the ways that it went, how much there was to do, and the share of its outputs that are numbers."""

    draw: Draw
    gone: Gone
    work: int
    finite: float


def _try(module: Module, seed: int, style: Style, seen: Watch, max_steps: int | None = None) -> _Tried | None:
    """None where a draw that is not the first one goes wrong: it can be left out."""
    inputs = device_inputs(module, seed, style=style)
    try:
        if check_devices(module) == 1:
            outputs = [evaluate(module, inputs[0], watch=seen, max_steps=max_steps)]
        else:
            outputs = evaluate_devices(module, inputs, watch=seen, max_steps=max_steps)
    except (TooMuchError, EvaluationError):
        if style is PLAIN:
            raise
        return None
    shares = [np.isfinite(o).mean() if o.dtype.kind in "fc" else 1.0 for own in outputs for o in own if o.size]
    return _Tried(Draw(inputs, outputs, style), frozenset(seen.gone), seen.work, min(map(float, shares), default=1.0))


def _chosen(tried: list[_Tried], ways: dict[tuple[Instruction, str], None], most: int) -> Reached:
    """The fewest draws that go all ways that any goes, as far as `most` can: the first (or one with numbers in its outputs, where that has hardly any), then
    always the one that adds most."""
    left = list(tried)
    first = left[0] if left[0].finite >= POOR else max(left, key=lambda t: t.finite)
    chosen = [first]
    left.remove(first)
    gone = set(first.gone)
    while left and len(chosen) < most:
        best = max(left, key=lambda t: len(t.gone - gone) * (0.2 + t.finite))
        if best.gone <= gone or sum(t.work for t in chosen) + best.work > CHOSEN_WORK:
            break
        chosen.append(best)
        gone |= best.gone
        left.remove(best)
    unreached = tuple(Way(*key) for key in ways if key not in gone)
    return Reached(tuple(t.draw for t in chosen), unreached, len(tried))


POOR = 0.5
"""Share of numbers in an output, below which a draw does not say much about it."""
