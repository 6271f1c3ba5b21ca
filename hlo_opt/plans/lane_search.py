"""The search for the lanes of a loop, and what keeps other loops from having any.

A round is looked at as one computation, in which a parameter stands for each value that is handed on. From what a round
hands on, index maps lead down to these: where all ways end at the lane's own elements, lanes do not need each other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from hlo_opt.analysis.graph.loops import derived_trip_count, known_trip_count
from hlo_opt.ir import Called, Computation, Instruction, Module, Shape, edit
from hlo_opt.ir.index_map import Constant, Expression, variable, variables_of
from hlo_opt.ops.logic import asked_of_all, conjuncts
from hlo_opt.ops.lowering import Index
from hlo_opt.ops.sets import SIGNS, held, looped, taken_element, written_window
from hlo_opt.plans.element_reads import Element, is_elsewhere, is_under_condition, read_at
from hlo_opt.plans.instructions import NOTHING, Work, of_value
from hlo_opt.plans.lane_exits import Quiet
from hlo_opt.plans.lane_loop import LANE, MOST_HELD, Lanes, Results, Value, along, places_of
from hlo_opt.plans.lane_rounds import Round, has_text
from hlo_opt.plans.plan import Region
from hlo_opt.plans.region import inlined

MOST_SAME = 16
"""Elements of a value that every thread has for itself."""
MOST_DIMENSIONS = 4
"""Of lanes."""
MOST_VALUES = 4_000
"""Values that a round computes for a lane: the code has a statement for each."""
LARGEST = 1 << 62
"""Below it, counters are computed from the number of the round."""


def match(region: Region) -> Lanes | None:
    """The region as a loop by lanes, or None."""
    loops = [i for i in region.computation.instructions if looped(i) is not None]
    if len(loops) != 1:
        return None
    numbers = [taken_element(root) if loops[0] in root.operands else None for root in region.roots]
    if None in numbers or len(set(numbers)) != len(numbers):
        return None
    opened = opened_of(loops[0])
    found = None if opened is None else Search(opened, [n for n in numbers if n is not None], region.parameters)
    return None if found is None else found.plan()


@dataclass(frozen=True)
class Obstacle:
    """What keeps a loop from being one kernel. `instruction` is the operation of its rounds at which lanes meet, or for
    which kernels have no text; without one nothing does (`has_plan`), or the way in which the loop is written."""

    instruction: Instruction | None = None
    has_plan: bool = False


def obstacle(module: Module, loop: Instruction) -> Obstacle:
    """Of a loop of a module."""
    alone = by_itself(module, loop)
    opened = opened_of(alone)
    if opened is None:
        members = [i for c in alone.called() for i in c.instructions]
        return Obstacle(next((i for i in members if i.parameter_number is None and not has_text(i)), None))
    search = Search(opened, opened.read_of(loop))
    return Obstacle(has_plan=True) if search.plan() is not None else Obstacle(search.obstacle)


def by_itself(module: Module, loop: Instruction) -> Instruction:
    """A loop whose computations hold what the fusions in them do."""
    called = {name: Called(inlined(module, loop.called_by(name))) for name in ("body", "condition")}
    return Instruction(loop.name, loop.opcode, loop.shape, list(loop.operands), {**loop.attributes, **called})


@dataclass(frozen=True)
class Opened:
    """A loop with its round as one computation.

    given    what is handed on, before the first round
    taken    what stands for it in a round; what the loop leaves as it is stands for itself
    made     what it is after the round
    origins  of what a round computes, the operations of the module
    same     the predicates that have to hold for another round, but for those
    any      of which one lane's has to: each with what asks all lanes, an operation of the module
    """

    loop: Instruction
    round: Computation
    given: list[Instruction]
    taken: dict[int, Instruction]
    made: dict[int, Instruction]
    test: Instruction
    origins: dict[Instruction, Instruction]
    same: list[Instruction]
    any: list[tuple[Instruction, Instruction]]

    def read_of(self, loop: Instruction) -> list[int]:
        """What somebody reads of the loop in its module, among what its rounds change."""
        read = {taken_element(user) for user in loop.users}
        return [n for n in self.taken if n in read or None in read or loop.is_root]


def opened_of(loop: Instruction, *, written_out: bool = True) -> Opened | None:
    """A loop over a tuple of arrays whose rounds call nothing; None for any other. Small products and folds are
    `written_out`, or left as they are."""
    body, condition = loop.called_by("body"), loop.called_by("condition")
    given, results = held(loop.operands[0]), held(body.root)
    if given is None or results is None or not all(shape.is_array for shape in loop.shape.elements or ()):
        return None
    writer = Round(written_out=written_out)
    made = writer.computation
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
            elif element is not None and (parts := held(i.operands[0])) is not None:
                copies[i] = copies[parts[element]]
            elif element is not None and (parts := held(copies.get(i.operands[0], i))) is not None:
                copies[i] = parts[element]  # of several arrays that were folded at once
            elif i is not state and not (i is computation.root and computation is body):
                copy = (
                    None
                    if any(o not in copies for o in i.operands)
                    else writer.copy(i, [copies[o] for o in i.operands])
                )
                if copy is None:
                    return None
                copies[i] = copy
    if any(r not in copies for r in results) or condition.root not in copies:
        return None
    after = {n: copies[results[n]] for n in taken}
    found = Opened(loop, made, given, taken, after, copies[condition.root], writer.origins, [], [])
    for part in conjuncts(condition.root):
        asked = asked_of_all(part)
        if asked is None:
            found.same.append(copies[part])
        else:
            array, wanted = asked
            test = copies[array]
            if not wanted:
                test = writer.unary(part.opcode, test)
                writer.origins[test] = part
            found.any.append((test, part))
    return found


@dataclass
class Search:
    """The search for the lanes of a loop. `numbers` are the elements of its tuple that are written; `obstacle` is the
    operation at which the most lanes that were tried meet."""

    opened: Opened
    numbers: list[int]
    parameters: Sequence[Instruction] = ()
    obstacle: Instruction | None = None

    @cached_property
    def trips(self) -> int | None:
        """How many rounds there are, where that is known and not 0. What the text states is not enough."""
        return derived_trip_count(self.opened.loop) or None

    @property
    def rounds(self) -> int:
        """The rounds that a price expects."""
        return self.trips or known_trip_count(self.opened.loop) or 1

    def plan(self) -> Lanes | None:
        """The most lanes that do not need each other; None where there are none."""
        opened = self.opened
        if any(n not in opened.taken for n in self.numbers):
            return None
        written = {n: made for n, made in opened.made.items() if self.is_written_only(n)}
        aliases = self.aliases_of(written)
        held_on = [n for n in opened.taken if n not in written]
        windows = {n: update.operands[1].shape for n, update in written.items()}
        for most in (1, MOST_SAME):  # a small array may be lanes, or the same for all of others
            same = self._same_for_all(set(held_on), most)
            state = {n: opened.taken[n].shape for n in held_on if n not in same}
            for dimensions in _candidates([*state.values()] or [*windows.values()]):
                where = {n: along(shape, dimensions) for n, shape in (*state.items(), *windows.items())}
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
        trips = self.trips
        values = tuple(
            Value(n, opened.given[n], taken, opened.made[n], lanes[n], None if trips is None else self.counts(n))
            for n, taken in opened.taken.items()
            if n not in written
        )
        results = tuple(
            Results(n, update, lanes[n], self.before(n, update, aliases))
            for n, update in written.items()
            if n in self.numbers
        )
        first = next((n for n in lanes if lanes[n]), None)
        tests = self._tests(dimensions) if trips is None else ()
        if not all(r.is_apart for r in results) or tests is None:
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
            tests=tests,
            trips=trips,
            rounds=self.rounds,
            work=NOTHING,
            serial=0,
            aliases=aliases,
        )
        if (
            sum(len(v.places(found.lane_at(variable(LANE, found.lanes)))) for v in values if v.counts is None)
            > MOST_HELD
        ):
            return None
        trace = _traced(found)
        if trace.obstacle is not None:
            self.obstacle = self.obstacle or opened.origins.get(trace.obstacle)
            return None
        if any(dims for _, dims in tests) and not _end_by_themselves(found):
            self.obstacle = self.obstacle or opened.any[0][1]
            return None
        costs = {i: of_value(old if old.opcode == i.opcode else i) for i, old in opened.origins.items()}
        work = sum((costs[i] for i, _ in trace.computed), NOTHING)
        return replace(found, work=work, serial=_longest(opened, costs))

    def _tests(self, dimensions: tuple[int, ...]) -> tuple[tuple[Instruction, tuple[int, ...]], ...] | None:
        """See `Lanes.tests`. None where what is asked of all lanes does not lie along them, one element for each."""
        asked = [(test, along(test.shape, dimensions)) for test, _ in self.opened.any]
        found = [(test, lanes) for test, lanes in asked if lanes and test.shape.element_count == math.prod(dimensions)]
        if len(found) < len(asked):
            self.obstacle = self.obstacle or self.opened.any[0][1]
            return None
        return (*((test, ()) for test in self.opened.same), *found)

    def is_written_only(self, number: int) -> bool:
        """Whether a round does nothing with an array but write a window of it."""
        made, taken = self.opened.made[number], self.opened.taken[number]
        if written_window(made) is None or made.operands.count(taken) != 1 or made.operands[0] is not taken:
            return False
        if any(o.shape.rank for o in made.operands[2:]):
            return False
        readers = [i for i in self.opened.round.instructions if taken in i.operands or made in i.operands]
        handed_on = [*self.opened.made.values(), self.opened.test]
        return readers == [made] and handed_on.count(made) == 1 and taken not in handed_on

    def _same_for_all(self, numbers: set[int], most: int) -> set[int]:
        """What has few elements and is computed from nothing but what is the same for all lanes: counters, keys of
        random numbers."""
        taken, made = self.opened.taken, self.opened.made
        needed = {n: _needed(made[n], self.opened.round) for n in numbers}
        found = {n for n in numbers if taken[n].shape.element_count <= most}
        while True:
            wide = {i for n, i in taken.items() if n not in found}
            lost = {n for n in found if not wide.isdisjoint(needed[n])}
            if not lost:
                return found
            found -= lost

    def aliases_of(self, written: dict[int, Instruction]) -> tuple[tuple[int, int], ...]:
        """(output, parameter) for arrays that are written in the memory in which they were given: of which the rounds
        may leave something as it was, and which nothing else reads."""
        found = []
        given, parameters = self.opened.given, self.parameters
        for number, update in written.items():
            buffer = given[number]
            is_own = buffer in parameters and len(buffer.users) == 1 and given.count(buffer) == 1
            if number in self.numbers and is_own and not self._is_whole(update):
                found.append((self.numbers.index(number), parameters.index(buffer)))
        return tuple(found)

    def before(self, number: int, update: Instruction, aliases: tuple[tuple[int, int], ...]) -> Instruction | None:
        """See `Results.before`."""
        is_there = self.numbers.index(number) in dict(aliases) or self._is_whole(update)
        return None if is_there else self.opened.given[number]

    def _is_whole(self, update: Instruction) -> bool:
        """Whether the rounds write all of an array together: all of it each, or each the next row."""
        opened, shape, window = self.opened, update.shape, update.operands[1].shape
        trips = self.trips or 0
        differ = [d for d in range(shape.rank) if shape.dimensions[d] != window.dimensions[d]]
        if len(differ) != 1:
            return not differ and trips > 0
        if window.dimensions[differ[0]] != 1 or trips < shape.dimensions[differ[0]]:
            return False
        start = update.operands[2 + differ[0]]
        return any(taken is start and self.counts(n) == (0, 1) for n, taken in opened.taken.items())

    def counts(self, number: int) -> tuple[int, int] | None:
        """The first value and the step of what each round adds the same number to; None for any other value."""
        taken, made = self.opened.taken[number], self.opened.made[number]
        first = _integer(self.opened.given[number])
        if first is None or SIGNS.get(made.opcode) != 1 or made.operands.count(taken) != 1:
            return None
        (other,) = (o for o in made.operands if o is not taken)
        step = _integer(other)
        trips = self.trips or 0
        if step is None or abs(first) + abs(step) * trips >= LARGEST:
            return None
        low, high = taken.shape.type.limits
        return (first, step) if low <= first + step * trips <= high else None  # one that wraps is state


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


@dataclass
class _Trace:
    """What a round computes for a lane; and the operation at which lanes meet, or at which the way to what it reads is
    lost, if there is one."""

    computed: set[Element]
    obstacle: Instruction | None = None


def _traced(loop: Lanes) -> _Trace:
    """All that a round computes has to come from what the lane has itself, and what is the same for all lanes from
    nothing else."""
    lane = loop.lane_at(variable(LANE, loop.lanes))
    places = [(v, index) for v in loop.values for index in v.places(lane)]
    own = {(v.taken, index) for v, index in places}
    alike = {(v.taken, index) for v, index in places if not v.lanes}
    apart: list[Element] = [(v.made, index) for v, index in places if v.lanes]
    apart += [(r.update.operands[1], index) for r in loop.results for index in r.places(lane)]
    shared: list[Element] = [(v.made, index) for v, index in places if not v.lanes]
    shared += [(o, ()) for r in loop.results for o in r.update.operands[2:]]
    shared += [(test, ()) for test, lanes in loop.tests if not lanes]
    own_tests: list[Element] = [
        (t, index) for t, dims in loop.tests if dims for index in places_of(t.shape, dims, lane)
    ]
    found = _Trace(set())
    for starts, allowed in ((apart, own), (shared, alike), (own_tests, own - alike)):
        seen: set[Element] = set()
        for end, blamed in _ends(starts, loop.round, seen):
            if end not in allowed:
                found.obstacle = blamed
                return found
        found.computed |= seen
    return found


def _end_by_themselves(loop: Lanes) -> bool:
    """Whether a round leaves a lane as it is for which one of its own tests does not hold. What is the same for all
    lanes goes on: nobody may read it, nor what rounds write."""
    lane = loop.lane_at(variable(LANE, loop.lanes))
    if loop.results or any(v.number in loop.numbers and not v.lanes for v in loop.values):
        return False
    for test, lanes in loop.tests:
        if lanes:
            (index,) = places_of(test.shape, lanes, lane)
            quiet = Quiet((test, index))
            places = ((v, index) for v in loop.values if v.lanes for index in v.places(lane))
            if not all(quiet.keeps((v.made, index), (v.taken, index)) for v, index in places):
                return False
    return True


def _ends(
    starts: Sequence[Element], inside: Computation, computed: set[Element]
) -> Iterator[tuple[Element | None, Instruction]]:
    """What is read of what is handed on, or None where the way there is lost, each with the operation to blame: the
    last at which the place along the lanes became another one, else the one that reads. What is read under a condition
    is computed there, once more under each."""
    stack: list[tuple[Instruction, Index, int, Instruction, Instruction | None]] = [
        (i, index, 0, i, None) for i, index in starts
    ]
    conditions: dict[tuple[Instruction, int, Index, int], int] = {}
    seen: set[tuple[Instruction, Index, int]] = set()
    while stack:
        instruction, index, under, reader, turned = stack.pop()
        if instruction.parent is not inside or (instruction, index, under) in seen:
            continue
        if instruction.parameter_number is not None:
            yield (instruction, index), turned or reader
            continue
        seen.add((instruction, index, under))
        computed.add((instruction, index))
        if len(seen) > MOST_VALUES:
            yield None, instruction
            return
        for number, operand in enumerate(instruction.operands):
            if operand.parent is not inside or is_elsewhere(instruction, number, index):
                continue
            there = read_at(instruction, number, index)
            if there is None:
                yield None, instruction
                continue
            below = under
            if is_under_condition(instruction, number, index):
                below = conditions.setdefault((instruction, number, index, under), len(conditions) + 1)
            blamed = instruction if _turns(index, there, operand.shape) else turned
            stack.append((operand, there, below, instruction, blamed))


def _turns(index: Index, there: Index, shape: Shape) -> bool:
    """Whether an operation that needs an element of an operand for one of its own goes to another place along the
    lanes, or to one and the same for all lanes."""
    if there == index:
        return False
    lanes = _lanes_of(there)
    if lanes:
        return lanes != _lanes_of(index)
    return any(isinstance(e, Constant) and size > 1 for e, size in zip(there, shape.dimensions, strict=True))


def _lanes_of(index: Index) -> list[Expression]:
    return [e for e in index if LANE in variables_of(e)]


def _longest(opened: Opened, costs: dict[Instruction, Work]) -> int:
    """Instructions of a round that wait for each other."""
    found: dict[Instruction, float] = {}
    for i in opened.round.instructions:
        before = max((found.get(o, 0.0) for o in i.operands), default=0.0)
        found[i] = before + costs.get(i, NOTHING).slots
    return math.ceil(max((found.get(i, 0.0) for i in opened.made.values()), default=0.0))
