"""The search for the lanes of a loop, and for the operation that prevents them.

A round is one computation (`opened_loop`). Its index maps tell whether lanes are independent (`lane_traces`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from hlo_opt.analysis.graph.loops import derived_trip_count, known_trip_count
from hlo_opt.analysis.memory.forms import round_up
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import Computation, Instruction, Shape
from hlo_opt.ir.index_map import variable, variables_of
from hlo_opt.ir.walk import needed_first
from hlo_opt.ops.lowering import Element
from hlo_opt.ops.sets import SIGNS, looped, read_window, tuple_elements, tuple_index, written_window
from hlo_opt.plans.element_reads import is_at_hand
from hlo_opt.plans.instructions import NOTHING, Work, of_value, takes_long
from hlo_opt.plans.lane_loop import (
    LANE,
    LONGEST_AHEAD,
    MOST_AHEAD,
    MOST_EARLY,
    MOST_HELD,
    ROUNDS_AHEAD,
    CarriedValue,
    Lanes,
    Results,
    along,
    part_read,
    places_of,
)
from hlo_opt.plans.lane_traces import RoundTrace, end_by_themselves, narrowing, traced
from hlo_opt.plans.loop import BLOCK
from hlo_opt.plans.opened_loop import Opened, opened_with
from hlo_opt.plans.plan import Region

MOST_SAME = 16
"""Limit of elements of a value that every thread has a copy of."""
MOST_EVEN = 512
"""Limit of the threads of a block that is alone on its multiprocessor."""
MOST_DIMENSIONS = 4
"""Limit of the rank of the values whose dimensions may be lanes."""
LARGEST = 1 << 62
"""Counters below this bound are computed from the number of the round."""


def match(region: Region, target: DeviceTarget) -> Lanes | None:
    """The region as a loop by lanes, or None. For a processor, whose vectors are the lanes and whose memory is near,
    nothing is read before its round, and what lanes have written is read rather than chosen among registers."""
    loops = [i for i in region.computation.instructions if looped(i) is not None]
    if len(loops) != 1:
        return None
    numbers = [tuple_index(root) if loops[0] in root.operands else None for root in region.roots]
    if None in numbers or len(set(numbers)) != len(numbers) or not may_have_lanes(loops[0]):
        return None
    in_lanes = target.in_lanes
    opened = partial(opened_with, loops[0])
    searches = searches_of(opened, [n for n in numbers if n is not None], region.parameters)
    plan = found_by(searches, in_lanes=in_lanes)
    if plan is None:
        return None
    return replace(plan, ahead=()) if in_lanes else replace(plan, widest=even_block(plan.lanes, target))


def may_have_lanes(loop: Instruction) -> bool:
    """Whether there are dimensions that all large values have which rounds carry, or the windows that they write: seen
    by shapes alone, before the loop is opened, which takes long where a round is a layer of a network."""
    body = loop.called_by("body")
    results, state = tuple_elements(body.root), body.parameters[0]
    if results is None or not all(result.shape.is_array for result in results):
        return True
    large: list[list[tuple[Shape, Shape | None]]] = []  # the forms of each
    for number, result in enumerate(results):
        is_kept = tuple_index(result) == number and result.operands[0] is state
        if not is_kept and result.shape.element_count > MOST_SAME:
            update = written_window(result)
            large.append([(result.shape, None)] + ([] if update is None else [(update.shape, result.shape)]))
    if not large:
        return True
    first, *others = sorted(large, key=len)
    for dimensions in {dims for shape, _ in first for dims in _some_of(shape.dimensions)}:
        have = (any(along(form, dimensions, whole) is not None for form, whole in forms) for forms in (first, *others))
        if all(have):
            return True
    return False


def _some_of(sizes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Some or all of the sizes, in order."""
    for count in range(1, len(sizes) + 1):
        yield from itertools.combinations(sizes, count)


def even_block(lanes: int, target: DeviceTarget) -> int:
    """Threads per block such that each multiprocessor has one block, where that takes more threads than usual. A GPU
    spreads smaller blocks unevenly, and a loop takes as long as the multiprocessor with the most."""
    even = round_up(-(-lanes // target.core_count), target.threads_per_warp)
    return even if BLOCK < even <= MOST_EVEN else BLOCK


def searches_of(
    ways: Callable[..., Opened | None], numbers: list[int], parameters: Sequence[Instruction] = ()
) -> Iterator[Search]:
    """The searches for the plan of a loop that writes the elements `numbers` of its tuple. `ways` opens the loop with
    choices or without (`chooses`)."""
    for chooses in (False, True):
        opened = ways(chooses=chooses)
        if opened is not None and (opened.has_choices or not chooses):
            yield Search(opened, numbers, parameters)


def found_by(searches: Iterable[Search], *, in_lanes: bool = False) -> Lanes | None:
    """The plan that searches find."""
    found = None
    for search in searches:
        found = search.plan() or found
        if found is not None and (in_lanes or not any(r.is_read for r in found.results)):
            break  # else a choice among registers is quicker than memory
    return found


@dataclass
class Search:
    """The search for the lanes of a loop.

    numbers     the elements of the loop's tuple that the kernel writes
    parameters  those of the region
    obstacle    after `plan`, the operation at which lanes meet, for the largest number of lanes tried
    narrowed    results without lanes of dimensions that others have, each time with the dimensions
    refused     an operation whose result has a form that lanes do not have: too many dimensions, or too many elements
                for the registers of a lane, or a window that lanes share
    """

    opened: Opened
    numbers: list[int]
    parameters: Sequence[Instruction] = ()
    obstacle: Instruction | None = None
    narrowed: list[tuple[list[Instruction], tuple[int, ...]]] = field(default_factory=list)
    refused: Instruction | None = None

    @cached_property
    def trips(self) -> int | None:
        """The number of rounds, if it can be derived and is not 0. A `known_trip_count` in the text is not trusted."""
        return derived_trip_count(self.opened.loop) or None

    @property
    def rounds(self) -> int:
        """The number of rounds for the price."""
        return self.trips or known_trip_count(self.opened.loop) or 1

    def plan(self) -> Lanes | None:
        """The plan with the most independent lanes; None where there are none."""
        if any(n not in self.opened.parameters for n in self.numbers):
            return None
        written = {n: update for n, update in self.opened.results.items() if self.is_written_only(n)}
        read = {n: self.opened.results[n] for n in self.read_in_windows}
        return self._with(written) or (self._with({**written, **read}) if read else None)

    @property
    def blamed(self) -> Instruction | None:
        """After a `plan` that found none, the obstacle, or else what makes a value without lanes from one with them,
        which is looked for only where someone asks, or else what was refused."""
        narrow = (self.opened.origin_of(narrowing(v, self.opened.round, at)) for v, at in self.narrowed)
        return self.obstacle or next(filter(None, narrow), None) or self.refused

    def _with(self, written: dict[int, Instruction], around: Lanes | None = None) -> Lanes | None:
        """The plan with these arrays in memory, by number, and all other values in registers. `around`: the loop is in
        the rounds of this one, and has its lanes."""
        opened, aliases = self.opened, self.aliases_of(written)
        carried = [n for n in opened.parameters if n not in written]
        windows = {n: update.operands[1].shape for n, update in written.items()}
        for most in (1, MOST_SAME):  # a small array may be lanes, or a copy in every lane
            same = self._same_for_all(set(carried), most)
            state = {n: opened.parameters[n].shape for n in carried if n not in same}
            found = _candidates([*state.values()] or [*windows.values()]) if around is None else [around.dimensions]
            for dimensions in found:
                where = {n: along(shape, dimensions) for n, shape in state.items()}
                where |= {n: along(shape, dimensions, written[n].shape) for n, shape in windows.items()}
                lanes = {n: dims for n, dims in where.items() if dims is not None}
                if len(lanes) == len(where):
                    plan = self._by(dimensions, {**dict.fromkeys(same, ()), **lanes}, written, aliases, around)
                    if plan is not None:
                        return plan
                else:
                    self.narrowed.append(([opened.results[n] for n in where if n not in lanes], dimensions))
                    self._refuse(where.keys() - lanes.keys())
            if not found:
                largest = max(state.values(), key=lambda s: s.element_count).dimensions
                numbers = [opened.results[n] for n, shape in state.items() if not shape.rank]
                self.narrowed += [(numbers, largest)] if numbers else []  # made from an array, whatever lanes it has
                self._refuse(state)
        return None

    def _refuse(self, numbers: Iterable[int]) -> None:
        """Keeps the operation that makes the largest of these carried values, if it is the first to be refused."""
        results = [self.opened.results[n] for n in sorted(numbers)]
        largest = max(results, key=lambda result: result.shape.element_count, default=None)
        self.refused = self.refused or self.opened.origin_of(largest)

    def _by(
        self,
        dimensions: tuple[int, ...],
        lanes: dict[int, tuple[int, ...]],
        written: dict[int, Instruction],
        aliases: tuple[tuple[int, int], ...],
        around: Lanes | None = None,
    ) -> Lanes | None:
        """The plan with these lanes, if they are independent."""
        opened = self.opened
        trips = self.trips
        values = tuple(
            CarriedValue(
                n, opened.initial[n], parameter, opened.results[n], lanes[n], None if trips is None else self.counts(n)
            )
            for n, parameter in opened.parameters.items()
            if n not in written
        )
        results = tuple(
            Results(n, update, lanes[n], self.before(n, update, aliases), n in self.read_in_windows)
            for n, update in written.items()
            if n in self.numbers
        )
        first = next((n for n in lanes if lanes[n]), None)
        tests = self._tests(dimensions) if trips is None else ()
        if not all(r.is_apart for r in results) or tests is None:
            self._refuse(r.number for r in results if not r.is_apart)
            return None
        order: tuple[int, ...] = () if around is None else around.order
        if first is not None and around is None:
            shape = written[first].operands[1].shape if first in written else opened.parameters[first].shape
            order = tuple(lanes[first].index(d) for d in reversed(shape.minor_to_major) if d in lanes[first])
        plan = Lanes(
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
        nests = [self._nested(nest, plan) for nest in opened.nests]
        if None in nests:
            return None
        plan = replace(plan, nests=tuple(nest for nest in nests if nest is not None))
        if plan.held > MOST_HELD:
            self._refuse(n for n in lanes if lanes[n])
            return None
        trace = traced(plan)
        if trace.obstacle is not None:
            self.obstacle = self.obstacle or opened.origin_of(trace.obstacle)
            return None
        if any(dims for _, dims in tests) and not end_by_themselves(plan):
            self.obstacle = self.obstacle or opened.any[0][1]
            return None
        single = {i: old for i, old in opened.origins.items() if looped(i) is None}
        costs = {i: of_value(old if old.opcode == i.opcode else i) for i, old in single.items()}
        costs.update(dict.fromkeys(_known(trace.computed), NOTHING))
        work = sum((costs.get(i, NOTHING) for i, _ in trace.computed), NOTHING)
        work = sum((nest.work * nest.rounds for nest in plan.nests), work)
        ahead, serial = self._ahead(plan, trace), _longest(opened, costs)
        serial += sum(nest.serial * nest.rounds for nest in plan.nests)
        early = tuple(itertools.islice((e for e in trace.always if takes_long(e[0])), MOST_EARLY))
        plan = replace(
            plan,
            work=work,
            serial=serial,
            outside=tuple(trace.outside),
            near=tuple((*read, turned) for read, turned in trace.near.items()),
        )
        return plan if around is not None else replace(plan, ahead=ahead, early=early, near=())

    def _nested(self, opened: Opened, around: Lanes) -> Lanes | None:
        """The plan of a loop in the rounds of one with these lanes."""
        read = {tuple_index(user) for user in opened.loop.users}
        search = Search(opened, [n for n in opened.parameters if n in read])
        plan = search._with({}, around)
        if plan is None:
            self.obstacle = self.obstacle or search.obstacle or self.opened.origins.get(opened.loop)
        return plan

    def _ahead(self, plan: Lanes, trace: RoundTrace) -> tuple[Element, ...]:
        """See `Lanes.ahead`."""
        counters = frozenset(v.parameter for v in plan.values if v.counts is not None)
        if (plan.trips or 0) <= ROUNDS_AHEAD or plan.nests or len(trace.computed) > LONGEST_AHEAD:
            return ()
        lane, elements = plan.lane_at(variable(LANE, plan.lanes)), list[Element]()
        for i in plan.round.instructions:
            moves = [start for start in i.operands[1:] if start.literal is None]
            if read_window(i) in self.parameters and moves and all(is_at_hand(start, counters) for start in moves):
                lanes = along(i.shape, plan.dimensions, i.operands[0].shape)
                if lanes is None and i.shape.element_count > MOST_AHEAD:
                    return ()
                elements += [(i, index) for index in places_of(i.shape, lanes or (), lane)]
        read = tuple(element for element in elements if element in trace.computed)
        return read if len(read) <= MOST_AHEAD else ()

    def _tests(self, dimensions: tuple[int, ...]) -> tuple[tuple[Instruction, tuple[int, ...]], ...] | None:
        """See `Lanes.tests`. None where a predicate that is reduced over all lanes does not have one element per
        lane."""
        asked = [(test, along(test.shape, dimensions)) for test, _ in self.opened.any]
        laid_out = [
            (test, lanes) for test, lanes in asked if lanes and test.shape.element_count == math.prod(dimensions)
        ]
        if len(laid_out) < len(asked):
            self.obstacle = self.obstacle or self.opened.any[0][1]
            return None
        return (*((test, ()) for test in self.opened.same), *laid_out)

    def is_written_only(self, number: int) -> bool:
        """Whether a round only writes a window of an array, and does not read it."""
        return self._readers(number) == []

    @cached_property
    def read_in_windows(self) -> frozenset[int]:
        """The arrays that the kernel writes of which a round writes a window, and of which it reads parts alone, before
        or after that."""
        found = set[int]()
        for number in self.numbers:
            readers, values = self._readers(number), (self.opened.parameters[number], self.opened.results[number])
            if readers and all(part_read(i) in values for i in readers):
                found.add(number)
        return frozenset(found)

    def _readers(self, number: int) -> list[Instruction] | None:
        """The operations of a round that read an array of which the round writes one window, besides the one that
        writes; None for any other carried value."""
        update, parameter = self.opened.results[number], self.opened.parameters[number]
        reads = update.operands.count(parameter)
        if written_window(update) is None or reads != 1 or update.operands[0] is not parameter:
            return None
        carried = [*self.opened.results.values(), self.opened.test]
        if any(o.shape.rank for o in update.operands[2:]) or carried.count(update) != 1 or parameter in carried:
            return None
        readers = [i for i in self.opened.round.instructions if parameter in i.operands or update in i.operands]
        return [i for i in readers if i is not update]

    def _same_for_all(self, numbers: set[int], most: int) -> set[int]:
        """The values with at most `most` elements that depend only on each other, so that they are equal in all lanes:
        counters, keys of random numbers."""
        parameters, results = self.opened.parameters, self.opened.results
        needed = {n: _needed(results[n], self.opened.round) for n in numbers}
        same = {n for n in numbers if parameters[n].shape.element_count <= most}
        while True:
            wide = {i for n, i in parameters.items() if n not in same}
            lost = {n for n in same if not wide.isdisjoint(needed[n])}
            if not lost:
                return same
            same -= lost

    def aliases_of(self, written: dict[int, Instruction]) -> tuple[tuple[int, int], ...]:
        """(output, parameter) for each array that is written in its input's memory: the rounds may leave elements of
        it unchanged, and nothing else reads the input."""
        aliases = []
        initial, parameters = self.opened.initial, self.parameters
        for number, update in written.items():
            buffer = initial[number]
            is_own = buffer in parameters and len(buffer.users) == 1 and initial.count(buffer) == 1
            if number in self.numbers and is_own and not self._is_written_first(number, update):
                aliases.append((self.numbers.index(number), parameters.index(buffer)))
        return tuple(aliases)

    def before(self, number: int, update: Instruction, aliases: tuple[tuple[int, int], ...]) -> Instruction | None:
        """See `Results.before`."""
        is_there = self.numbers.index(number) in dict(aliases) or self._is_written_first(number, update)
        return None if is_there else self.opened.initial[number]

    def _is_written_first(self, number: int, update: Instruction) -> bool:
        """Whether rounds write all of an array, and read nothing of it, so that its initial value does not matter."""
        return self.is_written_only(number) and self._is_whole(update)

    def _is_whole(self, update: Instruction) -> bool:
        """Whether all rounds together write the whole array: each round all of it, or each round the next row, from the
        first one on or from the last one back."""
        shape, window, trips = update.shape, update.operands[1].shape, self.trips or 0
        differ = [d for d in range(shape.rank) if shape.dimensions[d] != window.dimensions[d]]
        if len(differ) != 1:
            return not differ and trips > 0
        if window.dimensions[differ[0]] != 1 or trips < shape.dimensions[differ[0]]:
            return False
        first, step = self._line_of(update.operands[2 + differ[0]]) or (0, 0)
        last = first + step * (trips - 1)
        return abs(step) == 1 and min(first, last) <= 0 and max(first, last) >= shape.dimensions[differ[0]] - 1

    def _line_of(self, value: Instruction) -> tuple[int, int] | None:
        """(first value, step) of an integer to which each round adds the same number: a counter, a constant, a sum or a
        difference of two such that does not wrap; None for any other value."""
        constant = _integer(value)
        if constant is not None:
            return constant, 0
        number = value.parameter_number
        if number is not None:
            return self.counts(number) if self.opened.parameters.get(number) is value else None
        sign = SIGNS.get(value.opcode)
        if sign is None or not value.shape.type.is_integer:
            return None
        lines = [self._line_of(operand) for operand in value.operands]
        if lines[0] is None or lines[1] is None:
            return None
        first, step = (one + sign * other for one, other in zip(*lines, strict=True))
        ends, (low, high) = (first, first + step * (self.trips or 0)), value.shape.type.limits
        return (first, step) if low <= min(ends) and max(ends) <= high else None

    def counts(self, number: int) -> tuple[int, int] | None:
        """(first value, step) of a value to which each round adds the same number; None for any other value."""
        parameter, result = self.opened.parameters[number], self.opened.results[number]
        first = _integer(self.opened.initial[number])
        if first is None or SIGNS.get(result.opcode) != 1 or result.operands.count(parameter) != 1:
            return None
        (other,) = (o for o in result.operands if o is not parameter)
        step = _integer(other)
        trips = self.trips or 0
        if step is None or abs(first) + abs(step) * trips >= LARGEST:
            return None
        low, high = parameter.shape.type.limits
        return (first, step) if low <= first + step * trips <= high else None  # one that wraps is state


def _integer(value: Instruction) -> int | None:
    """The value of a scalar integer constant."""
    literal, shape = value.literal, value.shape
    if literal is None or literal.is_elided or not shape.is_array or shape.rank or not shape.type.is_integer:
        return None
    return int(literal.value)  # type: ignore[arg-type]  # a scalar


def _needed(root: Instruction, inside: Computation) -> set[Instruction]:
    """The instructions of a computation that a value depends on, and itself."""
    needed, stack = {root}, [root]
    while stack:
        for operand in stack.pop().operands:
            if operand not in needed and operand.parent is inside:
                needed.add(operand)
                stack.append(operand)
    return needed


def _candidates(shapes: Sequence[Shape]) -> list[tuple[int, ...]]:
    """The sizes of the dimensions that lanes may have: all or some of those of the smallest value, the most lanes
    first."""
    smallest = min(shapes, key=lambda s: s.rank, default=None)
    if smallest is None:
        return [()]  # there are only scalars
    if smallest.rank > MOST_DIMENSIONS:
        return []
    return sorted(set(_some_of(smallest.dimensions)), key=lambda s: (-math.prod(s), s))


def _known(computed: Collection[Element]) -> set[Instruction]:
    """The operations whose elements a compiler knows: they depend on literals alone, as an identity matrix does, and
    their places are known."""
    moving = {i for i, index in computed if any(map(variables_of, index))}
    known: dict[Instruction, bool] = {}
    for i in needed_first(list({i: None for i, _ in computed}), lambda i: i.operands):
        known[i] = i.parameter_number is None and i not in moving and all(known[o] for o in i.operands)
    return {i for i, _ in computed if known[i]}


def _longest(opened: Opened, costs: dict[Instruction, Work]) -> int:
    """The instructions on the longest path through a round."""
    lengths: dict[Instruction, float] = {}
    for i in opened.round.instructions:
        before = max((lengths.get(o, 0.0) for o in i.operands), default=0.0)
        lengths[i] = before + costs.get(i, NOTHING).chain
    return math.ceil(max((lengths.get(i, 0.0) for i in opened.results.values()), default=0.0))
