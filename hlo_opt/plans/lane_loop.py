"""The plan of a `while` whose lanes do not need each other: a thread goes through all rounds of a lane and keeps the lane's state in registers.

The lanes are some dimensions that all large values have which the loop hands on from round to round. A value of a round may read of these only what is its own lane's; arrays that
the loop leaves as they are it may read anywhere. What a round writes into an array of results (`dynamic-update-slice`) goes to memory at once. Index maps say what is read:
an operation without one couples lanes, whatever it does. XLA:GPU runs every loop as a thunk that launches the kernels of its body round after round (xla/backends/gpu/runtime/while_thunk.cc).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from hlo_opt.analysis.graph.loops import derived_trip_count
from hlo_opt.ir import Computation, Instruction, Shape, edit
from hlo_opt.ir.index_map import Expression, constant, delinearize, modulo, variable
from hlo_opt.ops.lowering import Index
from hlo_opt.ops.sets import SIGNS, held, looped, read_window, taken_element, written_window
from hlo_opt.ops.spec import find
from hlo_opt.plans.element_reads import Element, ends_needed
from hlo_opt.plans.instructions import NOTHING, Work, of_value
from hlo_opt.plans.loop import BLOCK
from hlo_opt.plans.plan import Launch, Region, Segment
from hlo_opt.plans.walks import ROUND, THREAD, Walk

MOST_HELD = 64
"""Elements of a lane's state: each is a register."""
MOST_SAME = 16
"""Elements of a value that every thread has for itself."""
MOST_DIMENSIONS = 4
"""Of lanes."""
MOST_VALUES = 4_000
"""Values that a round computes for a lane: the code has a statement for each."""
LANE, STEP = "lane", "step"
"""Variables: the number of a lane, and of a round."""


@dataclass(frozen=True)
class Value:
    """What the loop hands on from round to round in registers.

    number  in the loop's tuple
    given   what it is before the first round: a value of the region
    taken   what stands for it in a round
    made    what it is after the round
    lanes   the dimensions that lanes lie along; none: it is the same for all lanes
    counts  (first value, step) of a counter in a loop whose rounds are numbered
    """

    number: int
    given: Instruction
    taken: Instruction
    made: Instruction
    lanes: tuple[int, ...]
    counts: tuple[int, int] | None = None

    def places(self, lane: Index) -> list[Index]:
        """The elements that a lane has of it."""
        return places_of(self.taken.shape, self.lanes, lane)


@dataclass(frozen=True)
class Results:
    """An array into which each round writes, and which no round reads.

    number  in the loop's tuple
    update  the operation of a round that writes
    lanes   the dimensions that lanes lie along
    before  what the array is before the first round, where threads have to write that first
    """

    number: int
    update: Instruction
    lanes: tuple[int, ...]
    before: Instruction | None

    @property
    def window(self) -> Shape:
        """What a round writes."""
        return self.update.operands[1].shape

    @property
    def is_apart(self) -> bool:
        """Whether each lane writes what no other lane does: along the lanes the window is as wide as the array."""
        return all(self.window.dimensions[d] == self.update.shape.dimensions[d] for d in self.lanes)

    def places(self, lane: Index) -> list[Index]:
        """The elements of the window that a lane has."""
        return places_of(self.window, self.lanes, lane)

    @property
    def share(self) -> int:
        """How many elements of the array are a lane's."""
        return self.update.shape.element_count // math.prod(self.update.shape.dimensions[d] for d in self.lanes)

    def place(self, number: Expression, lane: Index) -> Index:
        """One of these."""
        shape = self.update.shape
        rest = [d for d in reversed(shape.minor_to_major) if d not in self.lanes]
        at = dict(zip(rest, delinearize(number, [shape.dimensions[d] for d in rest]), strict=True))
        at.update(zip(self.lanes, lane, strict=True))
        return tuple(at[d] for d in range(shape.rank))


def places_of(shape: Shape, lanes: Sequence[int], lane: Index) -> list[Index]:
    """The elements of an array that belong to a lane, some of its dimensions being the lanes'."""
    rest = [range(1 if d in lanes else size) for d, size in enumerate(shape.dimensions)]
    place = dict(zip(lanes, lane, strict=False))
    return [tuple(place.get(d, constant(n)) for d, n in enumerate(at)) for at in itertools.product(*rest)]


@dataclass(frozen=True)
class Lanes:
    """A loop by lanes.

    roots      positions of outputs, all of them the loop's
    numbers    of each root, which element of the loop's tuple it is
    dimensions sizes of the lanes' dimensions
    order      these dimensions from the one with the largest stride to that with the least
    round      what a round computes, with `taken` in the place of what is handed on
    test       whether there is another round
    trips      how many there are, where that is known and not 0
    work       of a lane in a round
    serial     instructions of a round that wait for each other
    aliases    (output, parameter): arrays of which the rounds may leave something as it was
    """

    kind: ClassVar[str] = "lane-loop"
    hero: Instruction
    roots: tuple[int, ...]
    numbers: tuple[int, ...]
    dimensions: tuple[int, ...]
    order: tuple[int, ...]
    values: tuple[Value, ...]
    results: tuple[Results, ...]
    round: Computation
    test: Instruction
    trips: int | None
    work: Work
    serial: int
    aliases: tuple[tuple[int, int], ...]

    @property
    def lanes(self) -> int:
        """How many there are."""
        return math.prod(self.dimensions)

    @property
    def block(self) -> int:
        """Threads per block."""
        return max(1, min(BLOCK, self.lanes))

    def segment(self, block: int) -> Segment[Lanes]:
        """The segment, alone in its launch."""
        return Segment(self, -(-self.lanes // block), aliases=self.aliases, own=tuple(n for n, _ in self.aliases))

    def shared_bytes(self, block: int) -> int:
        """None."""
        return 0

    def lane_at(self, position: Expression) -> Index:
        """The lane with a number, neighbours in memory being neighbours."""
        parts = delinearize(position, [self.dimensions[d] for d in self.order])
        at = dict(zip(self.order, parts, strict=True))
        return tuple(at[d] for d in range(len(self.order)))


def match(region: Region) -> Lanes | None:
    """The region as a loop by lanes, or None."""
    loops = [i for i in region.computation.instructions if looped(i) is not None]
    if len(loops) != 1:
        return None
    numbers = [taken_element(root) if loops[0] in root.operands else None for root in region.roots]
    if None in numbers or len(set(numbers)) != len(numbers):
        return None
    opened = _opened(loops[0])
    found = None if opened is None else _ByLanes(region, opened, [n for n in numbers if n is not None])
    return None if found is None else found.plan()


@dataclass(frozen=True)
class _Opened:
    """A loop with its round as one computation.

    given    what is handed on, before the first round
    taken    what stands for it in a round; what the loop leaves as it is stands for itself
    made     what it is after the round
    origins  of what a round computes, the operations of the module
    """

    loop: Instruction
    round: Computation
    given: list[Instruction]
    taken: dict[int, Instruction]
    made: dict[int, Instruction]
    test: Instruction
    origins: dict[Instruction, Instruction]


def _opened(loop: Instruction) -> _Opened | None:
    """A loop over a tuple of arrays whose rounds call nothing; None for any other."""
    body, condition = loop.called_by("body"), loop.called_by("condition")
    given, results = held(loop.operands[0]), held(body.root)
    if given is None or results is None or not all(shape.is_array for shape in loop.shape.elements or ()):
        return None
    made = Computation("round")
    copies: dict[Instruction, Instruction] = {}
    taken: dict[int, Instruction] = {}
    for number, (start, end) in enumerate(zip(given, results, strict=True)):
        if not (taken_element(end) == number and end.operands[0] is body.parameters[0]):
            taken[number] = edit.create_parameter(made, f"x{number}", start.shape, number)
    for computation in (body, condition):
        state = computation.parameters[0]
        for i in computation.instructions:
            element = taken_element(i)
            if element is not None and i.operands[0] is state:
                copies[i] = taken.get(element, given[element])
            elif i is not state and not (i is computation.root and computation is body):
                if any(o not in copies for o in i.operands) or not _has_text(i):
                    return None
                copies[i] = edit.clone_into(made, i, [copies[o] for o in i.operands])
    if any(r not in copies for r in results) or condition.root not in copies:
        return None
    after = {n: copies[results[n]] for n in taken}
    origins = {new: old for old, new in copies.items() if new.parent is made}
    return _Opened(loop, made, given, taken, after, copies[condition.root], origins)


def _has_text(i: Instruction) -> bool:
    """Whether kernels have a text for an operation by itself."""
    if i.literal is not None or taken_element(i) is not None or held(i) is not None:
        return True
    spec = find(i.opcode)
    return spec is not None and spec.cuda is not None and not spec.is_planned and looped(i) is None


@dataclass
class _ByLanes:
    """The search for the lanes of a loop. `numbers` are the elements of its tuple that are written."""

    region: Region
    opened: _Opened
    numbers: list[int]

    def plan(self) -> Lanes | None:
        """The most lanes that do not need each other; None where there are none."""
        opened = self.opened
        if any(n not in opened.taken for n in self.numbers):
            return None
        written = {n: made for n, made in opened.made.items() if self._is_written_only(n)}
        aliases = self._aliases(written)
        held_on = [n for n in opened.taken if n not in written]
        same = self._same_for_all(set(held_on))
        state = {n: opened.taken[n].shape for n in held_on if n not in same}
        windows = {n: update.operands[1].shape for n, update in written.items()}
        for dimensions in _candidates([*state.values()] or [*windows.values()]):
            where = {n: _along(shape, dimensions) for n, shape in (*state.items(), *windows.items())}
            lanes = {n: found for n, found in where.items() if found is not None}
            if len(lanes) == len(where):
                found = self._by(dimensions, {**dict.fromkeys(same, ()), **lanes}, written, aliases)
                if found is not None:
                    return found
        return None

    def _by(
        self,
        dimensions: tuple[int, ...],
        lanes: dict[int, tuple[int, ...]],
        written: dict[int, Instruction],
        aliases: tuple[tuple[int, int], ...],
    ) -> Lanes | None:
        """The plan with these lanes, if they do not need each other."""
        opened = self.opened
        trips = derived_trip_count(opened.loop) or None
        values = tuple(
            Value(n, opened.given[n], taken, opened.made[n], lanes[n], None if trips is None else self._counts(n))
            for n, taken in opened.taken.items()
            if n not in written
        )
        results = tuple(
            Results(n, update, lanes[n], self._before(n, update, aliases))
            for n, update in written.items()
            if n in self.numbers
        )
        first = next((n for n in lanes if lanes[n]), None)
        if not all(r.is_apart for r in results):
            return None
        order: tuple[int, ...] = ()
        if first is not None:
            shape = written[first].operands[1].shape if first in written else opened.taken[first].shape
            order = tuple(lanes[first].index(d) for d in reversed(shape.minor_to_major) if d in lanes[first])
        found = Lanes(
            hero=opened.loop,
            roots=tuple(range(len(self.numbers))),
            numbers=tuple(self.numbers),
            dimensions=dimensions,
            order=order,
            values=values,
            results=results,
            round=opened.round,
            test=opened.test,
            trips=trips,
            work=NOTHING,
            serial=0,
            aliases=aliases,
        )
        computed = _computed(found)
        if computed is None:
            return None
        costs = {i: of_value(old) for i, old in opened.origins.items()}
        work = sum((costs[i] for i, _ in computed), NOTHING)
        return replace(found, work=work, serial=_longest(opened, costs))

    def _is_written_only(self, number: int) -> bool:
        """Whether a round does nothing with an array but write a window of it."""
        made, taken = self.opened.made[number], self.opened.taken[number]
        if written_window(made) is None or made.operands.count(taken) != 1 or made.operands[0] is not taken:
            return False
        if any(o.shape.rank for o in made.operands[2:]):
            return False
        readers = [i for i in self.opened.round.instructions if taken in i.operands or made in i.operands]
        return readers == [made] and [*self.opened.made.values()].count(made) == 1

    def _same_for_all(self, numbers: set[int]) -> set[int]:
        """What is small and is computed from nothing but what is the same for all lanes: counters, keys of random numbers."""
        taken, made = self.opened.taken, self.opened.made
        needed = {n: _needed(made[n], self.opened.round) for n in numbers}
        found = {n for n in numbers if taken[n].shape.element_count <= MOST_SAME}
        while True:
            wide = {i for n, i in taken.items() if n not in found}
            lost = {n for n in found if not wide.isdisjoint(needed[n])}
            if not lost:
                return found
            found -= lost

    def _aliases(self, written: dict[int, Instruction]) -> tuple[tuple[int, int], ...]:
        """(output, parameter) for arrays that are written in the memory in which they were given: of which the rounds may leave something as it was, and which nothing else reads."""
        found = []
        given, parameters = self.opened.given, self.region.parameters
        for number, update in written.items():
            buffer = given[number]
            is_own = buffer in parameters and len(buffer.users) == 1 and given.count(buffer) == 1
            if number in self.numbers and is_own and not self._is_whole(update):
                found.append((self.numbers.index(number), parameters.index(buffer)))
        return tuple(found)

    def _before(self, number: int, update: Instruction, aliases: tuple[tuple[int, int], ...]) -> Instruction | None:
        """See `Results.before`."""
        is_there = self.numbers.index(number) in dict(aliases) or self._is_whole(update)
        return None if is_there else self.opened.given[number]

    def _is_whole(self, update: Instruction) -> bool:
        """Whether the rounds write all of an array together: all of it each, or each the next row."""
        opened, shape, window = self.opened, update.shape, update.operands[1].shape
        trips = derived_trip_count(opened.loop) or 0
        differ = [d for d in range(shape.rank) if shape.dimensions[d] != window.dimensions[d]]
        if len(differ) != 1:
            return not differ and trips > 0
        if window.dimensions[differ[0]] != 1 or trips < shape.dimensions[differ[0]]:
            return False
        start = update.operands[2 + differ[0]]
        return any(taken is start and self._counts(n) == (0, 1) for n, taken in opened.taken.items())

    def _counts(self, number: int) -> tuple[int, int] | None:
        """The first value and the step of what each round adds the same number to; None for any other value."""
        taken, made = self.opened.taken[number], self.opened.made[number]
        first = _integer(self.opened.given[number])
        if first is None or SIGNS.get(made.opcode) != 1 or made.operands.count(taken) != 1:
            return None
        (other,) = (o for o in made.operands if o is not taken)
        step = _integer(other)
        return None if step is None else (first, step)


def _integer(value: Instruction) -> int | None:
    """The value of a scalar integer constant."""
    literal, shape = value.literal, value.shape
    if literal is None or literal.is_elided or not shape.is_array or shape.rank or not shape.type.is_integer:
        return None
    return int(literal.value)  # type: ignore[arg-type]  # a scalar


def _needed(root: Instruction, inside: Computation) -> set[Instruction]:
    """What a value of a computation is computed from there, itself among it."""
    found, stack = {root}, [root]
    while stack:
        for operand in stack.pop().operands:
            if operand not in found and operand.parent is inside:
                found.add(operand)
                stack.append(operand)
    return found


def _candidates(shapes: Sequence[Shape]) -> list[tuple[int, ...]]:
    """Which dimensions may be the lanes': those of the smallest value, or some of these, the most lanes first."""
    smallest = min(shapes, key=lambda s: s.rank, default=None)
    if smallest is None:
        return [()]  # numbers alone
    if smallest.rank > MOST_DIMENSIONS:
        return []
    sizes = smallest.dimensions
    kept = (c for n in range(1, len(sizes) + 1) for c in itertools.combinations(range(len(sizes)), n))
    found = {tuple(sizes[d] for d in dimensions) for dimensions in kept}
    return sorted(found, key=lambda s: (-math.prod(s), s))


def _along(shape: Shape, dimensions: Sequence[int]) -> tuple[int, ...] | None:
    """Where an array has the lanes' dimensions, one after another; None where it has not, or has too much for each lane."""
    found: list[int] = []
    for d, size in enumerate(shape.dimensions):
        if len(found) < len(dimensions) and size == dimensions[len(found)]:
            found.append(d)
    lanes = math.prod(dimensions)
    return tuple(found) if len(found) == len(dimensions) and shape.element_count <= MOST_HELD * lanes else None


def _computed(loop: Lanes) -> set[Element] | None:
    """What a round computes for a lane, if all of it is computed from what the lane has itself, and is not more than a kernel should hold; else None."""
    lane = loop.lane_at(variable(LANE, loop.lanes))
    places = [(v, index) for v in loop.values for index in v.places(lane)]
    if sum(v.counts is None for v, _ in places) > MOST_HELD:
        return None
    own = {(v.taken, index) for v, index in places}
    alike = {v.taken for v in loop.values if not v.lanes}
    inside = set(loop.round.instructions)
    starts: list[Element] = [(v.made, index) for v, index in places if v.lanes]
    starts += [(r.update.operands[1], index) for r in loop.results for index in r.places(lane)]
    # what is the same for all lanes is computed from nothing else
    shared: list[Element] = [(v.made, index) for v, index in places if not v.lanes]
    shared += [(o, ()) for r in loop.results for o in r.update.operands[2:]]
    shared.append((loop.test, ()))
    seen: set[Element] = set()

    def is_end(instruction: Instruction, index: Index) -> bool:
        if instruction.parameter_number is None:
            seen.add((instruction, index))
        return instruction.parameter_number is not None

    for end in ends_needed(starts, inside, is_end):
        if end is None or end not in own:
            return None
    for end in ends_needed(shared, inside, is_end):
        if end is None or end not in own or end[0] not in alike:
            return None
    return seen if len(seen) <= MOST_VALUES else None


def _longest(opened: _Opened, costs: dict[Instruction, Work]) -> int:
    """Instructions of a round that wait for each other."""
    found: dict[Instruction, float] = {}
    for i in opened.round.instructions:
        before = max((found.get(o, 0.0) for o in i.operands), default=0.0)
        found[i] = before + costs.get(i, NOTHING).slots
    return math.ceil(max((found.get(i, 0.0) for i in opened.made.values()), default=0.0))


def inside(part: Lanes) -> Sequence[Instruction]:
    """What a round computes, and what stands for what it is given."""
    return list(part.round.instructions)


def walks(region: Region, segment: Segment[Lanes], launch: Launch) -> list[Walk]:
    """What threads read of their state and write of it at the end; the rounds."""
    part, threads = segment.part, segment.part.lanes
    lane, trips = part.lane_at(variable(LANE, threads)), part.trips or 1
    places = [(v, index) for v in part.values for index in v.places(lane)]
    outside = Walk(
        threads,
        [(v.given, index) for v, index in places],
        [(v.taken.shape, index) for v, index in places if v.lanes and v.number in part.numbers],
        places={LANE: variable(THREAD, threads)},
    )
    firsts = [
        Walk(
            threads,
            [(r.before, at)],
            [(r.before.shape, at)],
            places={LANE: variable(THREAD, threads), STEP: variable(ROUND, r.share)},
            rounds=r.share,
        )
        for r in part.results
        if r.before is not None
        for at in [r.place(variable(STEP, r.share), lane)]
    ]
    step = variable(STEP, trips)
    read = [(i, window) for i in part.round.instructions if (window := read_window(i)) is not None]
    rounds = Walk(
        threads,
        [(window, index) for i, window in read for index in _places_read(i, part, lane, step)],
        [(r.update.shape, _moving(r.update.shape, r.window, at, step)) for r in part.results for at in r.places(lane)],
        places={LANE: variable(THREAD, threads), STEP: variable(ROUND, trips)},
        rounds=trips,
        body=part.work,
        steps=part.serial,
    )
    return [outside, *firsts, rounds]


def _places_read(slice_: Instruction, part: Lanes, lane: Index, step: Expression) -> list[Index]:
    """Where a lane reads of a window in a round, which is taken to move on by one place with each round."""
    whole, window = slice_.operands[0].shape, slice_.shape
    lanes = _along(window, part.dimensions)
    return [_moving(whole, window, at, step) for at in places_of(window, lanes or (), lane)[:MOST_HELD]]


def _moving(whole: Shape, window: Shape, at: Index, step: Expression) -> Index:
    """The place in an array of an element of a window that moves along it."""
    return tuple(
        e if size == part else modulo(step, size)
        for e, size, part in zip(at, whole.dimensions, window.dimensions, strict=True)
    )
