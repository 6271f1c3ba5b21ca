"""What a round of a loop by lanes reads: paths by index maps from its results down to carried values. Lanes are
independent if every path ends at elements of the same lane."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hlo_opt.diag.time_limit import check_time
from hlo_opt.ir import Computation, Instruction, Shape
from hlo_opt.ir.index_map import Constant, Expression, variable, variables_of
from hlo_opt.ir.walk import operands_first
from hlo_opt.ops.lowering import Element, Index
from hlo_opt.ops.sets import tuple_index
from hlo_opt.plans.element_reads import Read, is_elsewhere, is_under_condition, read_at
from hlo_opt.plans.lane_exits import Quiet
from hlo_opt.plans.lane_loop import LANE, Lanes, along, part_read, places_of

SOME_VALUES = 1000
"""The values after which it looks at the clock."""

MOST_VALUES = 4_000
"""Limit of values that a round computes for a lane: the code has a statement for each."""


@dataclass
class RoundTrace:
    """The elements that a round computes for a lane, and those that it reads of arrays from outside the loop, other
    than windows; None for an index that data say. `always` are those among the latter that are read whatever data say,
    in any round. `near`: all elements of values that are not of the round, and whether values that are equal in all
    lanes depend on them, with what changes the position along the lanes (see `Lanes.near`). `obstacle` is the operation
    at which lanes meet, or whose reads are unknown, if there is one."""

    computed: set[Element]
    outside: dict[Read, None]
    always: dict[Element, None]
    near: dict[tuple[Read, bool], Instruction | None] = field(default_factory=dict)
    obstacle: Instruction | None = None


def traced(loop: Lanes) -> RoundTrace:
    """Checks that a lane's values depend only on the lane's own elements and on values that are equal in all lanes, and
    the latter only on each other."""
    lane = loop.lane_at(variable(LANE, loop.lanes))
    places = [(v, index) for v in loop.values for index in v.places(lane)]
    own = {(v.parameter, index) for v, index in places}
    alike = {(v.parameter, index) for v, index in places if not v.lanes}
    apart: list[Element] = [(v.result, index) for v, index in places if v.lanes]
    apart += [(r.update.operands[1], index) for r in loop.results for index in r.places(lane)]
    shared: list[Element] = [(v.result, index) for v, index in places if not v.lanes]
    shared += [(o, ()) for r in loop.results for o in r.update.operands[2:]]
    shared += [(test, ()) for test, lanes in loop.tests if not lanes]
    own_tests: list[Element] = [
        (t, index) for t, dims in loop.tests if dims for index in places_of(t.shape, dims, lane)
    ]
    trace = RoundTrace(set(), {}, {})
    turns: dict[Element, Instruction] = {}
    for nest in loop.nests:
        ends = [
            (user, v, index)
            for v in nest.values
            for user in nest.hero.users
            if tuple_index(user) == v.number
            for index in v.places(lane)
        ]
        own |= {(user, index) for user, _, index in ends}
        alike |= {(user, index) for user, v, index in ends if not v.lanes}
        needed: list[tuple[Read, bool, Instruction | None]] = [
            ((v.initial, index), not v.lanes, None) for v in nest.values for index in v.places(lane)
        ]
        for (value, there), is_alike, turned in [*needed, *nest.near]:
            if value.parent is not loop.round:
                if value.literal is None:
                    trace.near[(value, there), is_alike] = turned
            elif there is None:
                trace.obstacle = turned or value
                return trace
            else:
                (shared if is_alike else apart).append((value, there))
                if turned is not None:
                    turns[value, there] = turned
        trace.outside |= {read: None for read in nest.outside if read[0].parent is not loop.round}
    for starts, allowed, is_alike in ((apart, own, False), (shared, alike, True), (own_tests, own - alike, False)):
        seen: set[Element] = set()
        for end, blamed in _ends(starts, loop, seen, trace, turns, is_alike=is_alike):
            if end not in allowed:
                trace.obstacle = blamed
                return trace
        trace.computed |= seen
    return trace


def end_by_themselves(loop: Lanes) -> bool:
    """Whether a round leaves a lane unchanged once one of the lane's own tests fails. Values that are equal in all
    lanes still change: neither they nor the arrays that rounds write may be outputs."""
    lane = loop.lane_at(variable(LANE, loop.lanes))
    if loop.results or any(v.number in loop.numbers and not v.lanes for v in loop.values):
        return False
    for test, lanes in loop.tests:
        if lanes:
            (index,) = places_of(test.shape, lanes, lane)
            quiet = Quiet((test, index))
            places = ((v, index) for v in loop.values if v.lanes for index in v.places(lane))
            if not all(quiet.keeps((v.result, index), (v.parameter, index)) for v, index in places):
                return False
    return True


def _ends(
    starts: Sequence[Element],
    loop: Lanes,
    computed: set[Element],
    trace: RoundTrace,
    turns: Mapping[Element, Instruction],
    *,
    is_alike: bool,
) -> Iterator[tuple[Element | None, Instruction]]:
    """The elements of the carried values that `starts` depend on, each with an operation to blame: the last one that
    changes the position along the lanes, else the reader. None instead of an element whose index is unknown.

    A value that is read under a condition is computed there, once per condition. `computed` is filled, and `outside`,
    `always` and `near` of `trace` (see `RoundTrace`). The results of loops in the round are ends, too. `turns`: the
    operation to blame for some of `starts`. `is_alike`: `starts` are equal in all lanes.
    """
    inside, lane = loop.round, loop.lane_at(variable(LANE, loop.lanes))
    memory = {i: r for r in loop.results if r.is_read for i in (r.update, r.update.operands[0])}
    stack: list[tuple[Instruction, Index, int, Instruction, Instruction | None]] = [
        (i, index, 0, i, turns.get((i, index))) for i, index in starts
    ]
    conditions: dict[tuple[Instruction, int, Index, int], int] = {}
    seen: set[tuple[Instruction, Index, int]] = set()
    nests = [[nest.hero] for nest in loop.nests]
    for start, index in starts:
        if start.parent is not inside and start.literal is None:
            trace.near[(start, index), is_alike] = None
    while stack:
        instruction, index, under, reader, turned = stack.pop()
        if instruction.parent is not inside or (instruction, index, under) in seen:
            continue
        if instruction.parameter_number is not None or instruction.operands[:1] in nests:
            yield (instruction, index), turned or reader
            continue
        if not len(seen) % SOME_VALUES:
            check_time()
        seen.add((instruction, index, under))
        computed.add((instruction, index))
        if len(seen) > MOST_VALUES:
            yield None, instruction
            return
        whole = part_read(instruction)
        result = None if whole is None else memory.get(whole)
        if result is not None:
            if not result.is_own(instruction, index, lane):
                yield None, instruction
                continue
            needed: list[Element] = [(start, ()) for start in instruction.operands[1:]]
            if instruction.operands[0] is result.update:  # what this round writes
                needed += [(result.update.operands[1], place) for place in result.places(lane)]
                needed += [(start, ()) for start in result.update.operands[2:]]
            stack += [(value, place, under, instruction, turned) for value, place in needed]
            continue
        for number, operand in enumerate(instruction.operands):
            if is_elsewhere(instruction, number, index):
                continue
            there = read_at(instruction, number, index)
            if operand.parent is not inside:
                if operand.literal is None:
                    is_turned = there is None or _turns(index, there, operand.shape)
                    trace.near[(operand, there), is_alike] = instruction if is_turned else turned
                if operand.shape.is_array and operand.literal is None and operand is not whole:
                    if operand.shape.rank:
                        trace.outside[operand, there] = None
                    if there is not None and not under and not is_under_condition(instruction, number, index):
                        trace.always[operand, there] = None
                continue
            if there is None:
                if operand.literal is None:  # a constant is a table, and nobody's
                    yield None, instruction
                continue
            below = under
            if is_under_condition(instruction, number, index):
                below = conditions.setdefault((instruction, number, index, under), len(conditions) + 1)
            blamed = instruction if _turns(index, there, operand.shape) else turned
            stack.append((operand, there, below, instruction, blamed))


def narrowing(ends: Sequence[Instruction], inside: Computation, dimensions: Sequence[int]) -> Instruction | None:
    """An operation above a round's results that has no lanes of these dimensions, and reads something that has."""
    for i in operands_first(ends)[::-1]:
        if i.parent is not inside or not i.shape.is_array or along(i.shape, dimensions) is not None:
            continue
        if any(o.shape.is_array and along(o.shape, dimensions) is not None for o in i.operands):
            return i
    return None


def _turns(index: Index, there: Index, shape: Shape) -> bool:
    """Whether reading an operand at index `there`, for a result's element at `index`, changes the position along the
    lanes, or reads one position for all lanes."""
    if there == index:
        return False
    lanes = _lanes_of(there)
    if lanes:
        return lanes != _lanes_of(index)
    return any(isinstance(e, Constant) and size > 1 for e, size in zip(there, shape.dimensions, strict=True))


def _lanes_of(index: Index) -> list[Expression]:
    return [e for e in index if LANE in variables_of(e)]
