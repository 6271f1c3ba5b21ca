"""The ways of a module (branches, comparisons, clamps, ...), and draws of inputs that together take as many as
possible."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hlo_opt.diag import EvaluationError
from hlo_opt.evaluate.devices import device_inputs, evaluate_devices
from hlo_opt.evaluate.inputs import PLAIN, Style, input_shapes
from hlo_opt.evaluate.interpreter import EndlessError, evaluate
from hlo_opt.evaluate.nans import ValueEvent
from hlo_opt.evaluate.wanted import DEEPEST, first_leaf, known_bounds, leaves
from hlo_opt.ir import Computation, Instruction, Module
from hlo_opt.ir.values import Array
from hlo_opt.ops import find
from hlo_opt.ops.collective.module_devices import check_devices
from hlo_opt.ops.sets import APPLIED, looped, tuple_elements, tuple_index
from hlo_opt.ops.ways import ENDS, QUIET, RUNS, SPECIAL, WRAPS, Ways
from hlo_opt.ops.wishes import Bounds, is_special


@dataclass(frozen=True)
class Way:
    """One way that an instruction can go. `words` completes a sentence that begins with its name: `is never true`."""

    instruction: Instruction
    words: str

    def place(self) -> str:
        """The instruction's name, with its line in the text where that is known."""
        module = None if self.instruction.parent is None else self.instruction.parent.module
        span = None if module is None else module.span(self.instruction)
        return self.instruction.name if span is None else f"{self.instruction.name} (line {span.line})"

    def __str__(self) -> str:
        return f"{self.place()} {self.words}"


def ways_of(module: Module) -> dict[Instruction, set[str]]:
    """The possible ways of all instructions that depend on the inputs, without those that value bounds exclude."""
    bounds = known_bounds(module)
    drawn = _drawn(module)
    by_instruction = {}
    for instruction in drawn:
        kind = _ways_at(instruction)
        if kind is None or instruction not in bounds:
            continue
        deciding = instruction.operands[slice(*kind.deciding(instruction))]
        if any(o in drawn for o in deciding):
            ways = set(kind.ways(instruction, [bounds.get(o, _OPEN) for o in instruction.operands]))
            if ways:
                by_instruction[instruction] = ways
    return by_instruction


def _drawn(module: Module) -> dict[Instruction, None]:
    """The instructions whose value depends on the entry's parameters."""
    taint = _Taint()
    taint.visit(module.entry, [frozenset(range(leaves(p))) for p in module.entry.parameters])
    return taint.drawn


ArrayNumbers = frozenset[int]
"""Arrays of a value, by their numbers in its flattened tuple."""


class _Taint:
    """Tracks which arrays depend on inputs, through calls and loops."""

    def __init__(self) -> None:
        self.drawn: dict[Instruction, None] = {}
        self._known: dict[tuple[Computation, tuple[ArrayNumbers, ...]], ArrayNumbers] = {}

    def visit(self, computation: Computation, arguments: Sequence[ArrayNumbers], depth: int = 0) -> ArrayNumbers:
        """The dependent arrays of the root, given those of the parameters."""
        key = (computation, tuple(arguments))
        if key in self._known:
            return self._known[key]
        dependent: dict[Instruction, ArrayNumbers] = {}
        for instruction in computation.instructions:
            number = instruction.parameter_number
            if number is None:
                own = self._made(instruction, [dependent[o] for o in instruction.operands], depth)
            else:
                own = arguments[number] if number < len(arguments) else frozenset()
            dependent[instruction] = own
            if own:
                self.drawn[instruction] = None
        self._known[key] = dependent[computation.root]
        return dependent[computation.root]

    def _made(self, instruction: Instruction, operands: Sequence[ArrayNumbers], depth: int) -> ArrayNumbers:
        everything = frozenset(range(leaves(instruction)))
        if not any(operands):
            return frozenset()
        if tuple_elements(instruction) is not None:
            starts = itertools.accumulate((leaves(o) for o in instruction.operands), initial=0)
            return frozenset(start + place for start, own in zip(starts, operands, strict=False) for place in own)
        if tuple_index(instruction) is not None:
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

    def _loop(self, loop: Instruction, state: ArrayNumbers, everything: ArrayNumbers, depth: int) -> ArrayNumbers:
        condition, body = loop.called_by("condition"), loop.called_by("body")
        while True:
            if self.visit(condition, [state], depth + 1):
                state = everything
            next_state = state | self.visit(body, [state], depth + 1)
            if next_state == state:
                return state
            state = next_state


class TooMuchError(Exception):
    """A run exceeds its budget of work."""


class WayWatcher:
    """A watcher that records the ways a run takes. `work` estimates its cost in elements; beyond `limit` it raises
    TooMuchError."""

    def __init__(self, missing: Mapping[Instruction, set[str]], limit: float | None = None) -> None:
        self.limit = math.inf if limit is None else limit
        self.missing = {instruction: set(ways) for instruction, ways in missing.items() if ways}
        self.bodies = {i.called_by("body").root: i for i in self.missing if looped(i) is not None}
        self.gone: set[tuple[Instruction, str]] = set()
        self.work = 0

    def __call__(self, event: ValueEvent) -> None:
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
"""The overhead of one instruction, in elements."""
_OPEN: Bounds = (-math.inf, math.inf)


def _ways_at(instruction: Instruction) -> Ways | None:
    spec = find(instruction.opcode)
    if is_special(instruction):
        return ENDS
    return None if spec is None or spec.ways is None else spec.ways.resolve()


MOST_DRAWS = 8
"""The most draws that are chosen; one to three are usual."""
MOST_TRIED = 12
"""The most draws that are tried, for a cheap module."""
WORK = 100_000_000
"""The budget of all tried draws, counted as in `WayWatcher`. A module with one draw beyond it gets two tries."""
CHOSEN_WORK = 30_000_000
"""The budget of the chosen draws. One draw is always chosen."""
LARGEST = 1 << 30
"""Bytes of inputs above which only one draw is made."""
VAIN = 5
"""The search stops after this many draws in a row that reach nothing new."""

Gone = frozenset[tuple[Instruction, str]]


@dataclass(frozen=True, eq=False)
class Draw:
    """One set of inputs.

    inputs   per device, one array per array of the entry's parameters
    outputs  per device, the interpreter's results for them, tuples flattened in order
    style    how they were drawn, if at random
    """

    inputs: list[list[Array]]
    outputs: list[list[Array]]
    style: Style = PLAIN


@dataclass(frozen=True, eq=False)
class Reached:
    """The draws that a check should use (first the plain one), and the ways that none takes. `tried` counts all draws
    made."""

    draws: tuple[Draw, ...]
    unreached: tuple[Way, ...]
    tried: int


def styles() -> Iterator[Style]:
    """The styles of successive draws: plain; quiet, so that constants matter; whole, which ties; loud; sparse, which
    ties computed values; then mixed; last integers that wrap around."""
    yield PLAIN
    yield Style(1, loudness=1e-3, axis=-1, beyond=0.125)
    yield Style(2, whole=True, beyond=0.125, axis=-1)
    yield Style(3, loudness=30.0, beyond=0.5)
    yield Style(4, sparse=True, beyond=0.125)
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
    yield Style(MOST_TRIED, wide=True)


def _may_take(style: Style, way: str) -> bool:
    return style.wide if way == WRAPS else style.special > 0 or way not in SPECIAL


def reaching_inputs(module: Module, seed: int = 0, *, most: int = MOST_DRAWS, max_steps: int | None = None) -> Reached:
    """Draw inputs until selects, comparisons, branches, clamps, indices and loops have taken every way, or draws take
    no new ones.

    Then choose at most `most` draws that together take every way that any draw took. Determined by the seed. An
    expensive module is evaluated at most twice. Raises EvaluationError as `module_inputs` and `evaluate` do, and
    EndlessError where for no draw all loops end within `max_steps` iterations; an error of a later draw ends the
    search.
    """
    ways = ways_of(module)
    tried: list[_Tried] = []
    missing = {(instruction, way) for instruction, own in ways.items() for way in own}
    limit, vain = None, 0
    endless: EndlessError | None = None
    if sum(shape.byte_size for shape in input_shapes(module)) > LARGEST:
        most = 1
    for style in styles():
        is_vain = vain >= VAIN and not style.wide
        if not tried and is_vain:
            break
        if tried and (most < 2 or is_vain or not any(_may_take(style, way) for _, way in missing)):
            continue
        if len(tried) > 1 and sum(t.work for t in tried) + tried[0].work > WORK:
            break
        try:
            attempt = _try(module, seed, style, WayWatcher(ways, limit), max_steps)
        except EndlessError as error:
            endless, attempt = endless or error, None
            max_steps = min(max_steps or FEWER_STEPS, FEWER_STEPS)
        if attempt is None:
            vain += 1
            continue
        limit = limit or max(SLACK * attempt.work, LEAST_LIMIT)
        vain = vain + 1 if missing.isdisjoint(attempt.gone) else 0
        missing -= attempt.gone
        tried.append(attempt)
    if endless is not None and not tried:
        endless.hint = "none of the drawn inputs ends it; give some that do with --inputs (in Python inputs)"
        raise endless
    return _chosen(tried, {(i, way): None for i, own in ways.items() for way in sorted(own)}, most)


def other_draws(module: Module, seed: int, draws: Sequence[Draw], max_steps: int | None = None) -> Iterator[Draw]:
    """Draws in styles that none of `draws` has, those with infinities and NaNs first; without those with mostly
    non-finite outputs."""
    for style in sorted(styles(), key=lambda s: -s.special):
        if all(draw.style != style for draw in draws) and style != PLAIN:
            attempt = _try(module, seed, style, WayWatcher({}), max_steps)
            if attempt is not None and attempt.finite >= POOR:
                yield attempt.draw


FEWER_STEPS = 10_000
"""Iterations that loops may take in a draw after one that did not end."""
SLACK = 1.5
"""The most work of a later draw, relative to the first: other inputs may make a loop run for ever."""
LEAST_LIMIT = 10_000_000


@dataclass(frozen=True, eq=False)
class _Tried:
    """A draw, the ways it took, its work, and the share of its outputs that are finite."""

    draw: Draw
    gone: Gone
    work: int
    finite: float


def _try(module: Module, seed: int, style: Style, seen: WayWatcher, max_steps: int | None = None) -> _Tried | None:
    """Make one draw. None where one other than the first fails, since it can be left out."""
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
    # a product exceeds its type by a large constant too; only numbers of the whole type have all its bits
    gone = frozenset(key for key in seen.gone if style.wide or key[1] != WRAPS)
    return _Tried(Draw(inputs, outputs, style), gone, seen.work, min(map(float, shares), default=1.0))


def _chosen(tried: list[_Tried], ways: dict[tuple[Instruction, str], None], most: int) -> Reached:
    """A small set of draws that together take all ways that any draw takes: greedy, at most `most`.

    Starts with the first draw, or with the one of the most finite outputs where the first has hardly any.
    """
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
    unreached = tuple(Way(*key) for key in ways if key not in gone and key[1] not in QUIET)
    return Reached(tuple(t.draw for t in chosen), unreached, len(tried))


POOR = 0.5
"""The share of finite numbers below which an output says little about a draw."""
