"""The plan of a `while` with independent lanes: a thread runs all rounds of one lane, with the lane's state in
registers.

The lanes are dimensions that all large carried values share. A round may read only its own lane's elements of a carried
value, but any element of an array that the loop does not change. Windows that a round writes into an array
(`dynamic-update-slice`) go to memory at once, and later rounds may read parts of it there, each lane its own. Index
maps tell what is read: an operation without one couples lanes.
XLA:GPU runs every loop as a thunk that launches the kernels of its body for each iteration
(xla/backends/gpu/runtime/while_thunk.cc).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from hlo_opt.ir import Computation, Instruction, Shape
from hlo_opt.ir.index_map import Expression, add, constant, delinearize, modulo, multiply, variable
from hlo_opt.ir.size import most
from hlo_opt.ops.lowering import Element, Index
from hlo_opt.ops.sets import cut_out, looped, read_window
from hlo_opt.plans.element_reads import Read
from hlo_opt.plans.instructions import Work
from hlo_opt.plans.loop import BLOCK, Spread
from hlo_opt.plans.plan import Launch, Region, Segment
from hlo_opt.plans.walks import ROUND, THREAD, Own, Walk

MOST_HELD = 64
"""Limit of elements of a lane's state: each is a register."""
ROUNDS_AHEAD = 4
"""How many rounds before its own an element of a window is read (`Lanes.ahead`): a load from memory takes as long as
some four rounds."""
MOST_AHEAD = 8
"""Limit of elements that are read ahead: each takes `ROUNDS_AHEAD` registers."""
MOST_EARLY = 16
"""Limit of elements that are computed before the first round: each is a register."""
LONGEST_AHEAD = 200
"""Values that a round computes, at most, if anything is read ahead: the code of a round is there `ROUNDS_AHEAD` times,
and a long round waits little."""
APART = 61
"""The distance of elements that lanes read where data say, for the price."""
AGAIN, FAR = 30, 64
"""Dependent instructions that take as long as a load of what the same thread has written, and as one from L2. Two loops
that read what earlier rounds wrote wait for 90 and 160 cycles in a round on an H200: L1 has some of it."""
NEAR, NEAR_BYTES = 13, 80 * 1024
"""Dependent instructions that take as long as a load from L1 at an index that data say, with four for the index and the
address, and bytes that L1 keeps."""
LANE, STEP = "lane", "step"
"""Variables of index expressions: the number of a lane, and of a round."""


@dataclass(frozen=True)
class CarriedValue:
    """A carried value, which a thread keeps in registers from round to round.

    number     its position in the loop's tuple
    initial    its initial value, of the region
    parameter  the round's parameter for it
    result     its value after the round
    lanes      its dimensions that are lanes; without any, it is equal for all lanes
    counts     (first value, step) of a counter in a loop with a known number of rounds
    """

    number: int
    initial: Instruction
    parameter: Instruction
    result: Instruction
    lanes: tuple[int, ...]
    counts: tuple[int, int] | None = None

    def places(self, lane: Index) -> list[Index]:
        """The elements of one lane."""
        return places_of(self.parameter.shape, self.lanes, lane)


@dataclass(frozen=True)
class Results:
    """An array that each round writes a window of.

    number  its position in the loop's tuple
    update  the `dynamic-update-slice` of a round
    lanes   its dimensions that are lanes
    before  its initial value, if threads must write that before the first round
    is_read whether rounds read parts of it, each lane its own elements
    """

    number: int
    update: Instruction
    lanes: tuple[int, ...]
    before: Instruction | None
    is_read: bool = False

    @property
    def window(self) -> Shape:
        """The shape of what a round writes."""
        return self.update.operands[1].shape

    @property
    def is_apart(self) -> bool:
        """Whether no two lanes write the same element: along the lanes the window is as wide as the array."""
        return all(self.window.dimensions[d] == self.update.shape.dimensions[d] for d in self.lanes)

    def is_own(self, read: Instruction, index: Index, lane: Index) -> bool:
        """Whether an element of a part of the array is the lane's own: along the lanes it is as wide as the array."""
        sizes = zip(read.shape.dimensions, self.update.shape.dimensions, strict=True)
        whole = {d for d, (size, of) in enumerate(sizes) if size == of}
        return all(d in whole and index[d] == at for d, at in zip(self.lanes, lane, strict=True))

    def places(self, lane: Index) -> list[Index]:
        """The elements of the window that one lane writes."""
        return places_of(self.window, self.lanes, lane)

    @property
    def share(self) -> int:
        """The number of elements of the array that belong to one lane."""
        return self.update.shape.element_count // math.prod(self.update.shape.dimensions[d] for d in self.lanes)

    def place(self, number: Expression, lane: Index) -> Index:
        """The index of the element with a number below `share`."""
        shape = self.update.shape
        rest = [d for d in reversed(shape.minor_to_major) if d not in self.lanes]
        at = dict(zip(rest, delinearize(number, [shape.dimensions[d] for d in rest]), strict=True))
        at.update(zip(self.lanes, lane, strict=True))
        return tuple(at[d] for d in range(shape.rank))


def part_read(instruction: Instruction) -> Instruction | None:
    """The array of which a `slice` or `dynamic-slice` reads a part; None for other operations."""
    return instruction.operands[0] if cut_out(instruction) is not None else read_window(instruction)


def places_of(shape: Shape, lanes: Sequence[int], lane: Index) -> list[Index]:
    """The elements of an array that belong to a lane; `lanes` are the dimensions that the lanes lie along."""
    return list(_each_place(shape, lanes, lane))


def _each_place(shape: Shape, lanes: Sequence[int], lane: Index) -> Iterator[Index]:
    rest = [range(1 if d in lanes else size) for d, size in enumerate(shape.dimensions)]
    place = dict(zip(lanes, lane, strict=False))
    for at in itertools.product(*rest):
        yield tuple(place.get(d, constant(n)) for d, n in enumerate(at))


class ByLanes(Spread):
    """Base of the parts in which each thread has one lane. `dimensions` are the sizes of the lanes' dimensions."""

    dimensions: tuple[int, ...]

    @property
    def lanes(self) -> int:
        """The number of lanes, which is that of threads."""
        return math.prod(self.dimensions)

    @property
    def threads(self) -> int:
        return self.lanes


@dataclass(frozen=True)
class Lanes(ByLanes):
    """A loop by lanes.

    roots      positions of outputs, all of them results of the loop
    numbers    for each root, its position in the loop's tuple
    dimensions sizes of the lanes' dimensions
    order      these dimensions by falling stride
    round      a round as a computation; its parameters are those of the values
    tests      the predicates that must hold for another round, each with its dimensions that are lanes. Without any, it
               is equal for all lanes; with some, each lane ends by itself. Empty if the number of rounds is known
    trips      the number of rounds, if it is known and not 0
    rounds     the number of rounds for the price
    work       of one lane in one round
    serial     instructions on the longest path through a round
    aliases    (output, parameter): arrays of which the rounds may leave elements unchanged
    ahead      elements of windows of operands, at places that only the number of the round moves. They are read
               `ROUNDS_AHEAD` rounds before, so that a round does not wait for memory; `LANE` is the number of the lane
    outside    the elements that a round reads of arrays from outside the loop, other than windows; None for an index
               that data say
    early      the elements among them that take long to compute, and that a thread computes before the first round
    widest     threads per block, if there are so many lanes
    nests      the loops within a round, each of whose lanes are those of this loop. `hero` is the `while` of the round
               that holds the loop, and `initial` of their values, and what their rounds read, are values of that round
    near       for such a loop: the elements of values around it that its rounds read, and whether some value that is
               equal in all lanes depends on it, and the operation that changes the position along the lanes, if one
               does; None for an index that data say
    """

    kind: ClassVar[str] = "lane-loop"
    hero: Instruction
    roots: tuple[int, ...]
    numbers: tuple[int, ...]
    dimensions: tuple[int, ...]
    order: tuple[int, ...]
    values: tuple[CarriedValue, ...]
    results: tuple[Results, ...]
    round: Computation
    tests: tuple[tuple[Instruction, tuple[int, ...]], ...]
    trips: int | None
    rounds: int
    work: Work
    serial: int
    aliases: tuple[tuple[int, int], ...]
    ahead: tuple[Element, ...] = ()
    outside: tuple[Read, ...] = ()
    early: tuple[Element, ...] = ()
    widest: int = BLOCK
    nests: tuple[Lanes, ...] = ()
    near: tuple[tuple[Read, bool, Instruction | None], ...] = ()

    @property
    def held(self) -> int:
        """The number of elements of a lane's state, each a register."""
        lane = self.lane_at(variable(LANE, self.lanes))
        own = sum(len(v.places(lane)) for v in self.values if v.counts is None)
        return own + max((nest.held for nest in self.nests), default=0)

    @property
    def block(self) -> int:
        """Threads per block."""
        return max(1, min(self.widest, most(self.lanes)))

    def segment(self, block: int) -> Segment[Lanes]:
        """The segment, alone in its launch."""
        own = tuple(n for n, _ in self.aliases)
        return Segment(self, -(-self.lanes // block), aliases=self.aliases, own=own, in_rows=bool(self.ahead))

    def lane_at(self, position: Expression) -> Index:
        """The lane with a number; consecutive numbers are neighbours in memory."""
        parts = delinearize(position, [self.dimensions[d] for d in self.order])
        at = dict(zip(self.order, parts, strict=True))
        return tuple(at[d] for d in range(len(self.order)))


def along(shape: Shape, dimensions: Sequence[int], whole: Shape | None = None) -> tuple[int, ...] | None:
    """The dimensions of an array that are the lanes', in order; None if it lacks one, or has more than `MOST_HELD`
    elements per lane. `whole`: the array is a window of this one, and lanes lie where it is as wide."""
    positions: list[int] = []
    for d, size in enumerate(shape.dimensions):
        is_whole = whole is None or whole.dimensions[d] == size
        if is_whole and len(positions) < len(dimensions) and size == dimensions[len(positions)]:
            positions.append(d)
    lanes = math.prod(dimensions)
    return tuple(positions) if len(positions) == len(dimensions) and shape.element_count <= MOST_HELD * lanes else None


def inside(part: Lanes) -> Sequence[Instruction]:
    """The instructions of a round, parameters included, and of the loops in it."""
    return [i for i in part.round.instructions if looped(i) is None] + [i for n in part.nests for i in inside(n)]


def walks(region: Region, segment: Segment[Lanes], launch: Launch) -> list[Walk]:
    """The walks over the initial and the final state, and those of the rounds."""
    part, threads = segment.part, segment.part.lanes
    lane, trips = part.lane_at(variable(LANE, threads)), part.rounds
    places = [(v, index) for v in part.values for index in v.places(lane)]
    step = variable(STEP, trips)
    looked_up = [(value, _anywhere(value.shape, part.lanes, step)) for value, index in part.outside if index is None]
    computed = [(value, index) for value, index in looked_up if value.parameter_number is None]
    tables = [value for value, _ in looked_up if value.parameter_number is not None]
    once = [(value, index) for value, index in part.outside if index is not None]
    once += [(value, _anywhere(value.shape, part.lanes, constant(0))) for value in tables]
    outside = Walk(
        threads,
        [*((v.initial, index) for v, index in places), *once],
        [(v.parameter.shape, index) for v, index in places if v.lanes and v.number in part.numbers],
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
    written = {i for r in part.results for i in (r.update, r.update.operands[0])}
    windows = [(i, window) for i in part.round.instructions if (window := read_window(i)) is not None]
    read = [(i, window) for i, window in windows if window not in written]
    rounds = Walk(
        threads,
        [(window, index) for i, window in read for index in _places_read(i, part, lane, step)],
        [(r.update.shape, _moving(r.update.shape, r.window, at, step)) for r in part.results for at in r.places(lane)],
        places={LANE: variable(THREAD, threads), STEP: variable(ROUND, trips)},
        rounds=trips,
        body=part.work,
        steps=part.serial + max([AGAIN * any(r.is_read for r in part.results), *map(_wait, tables)]),
        ahead=1 if read and not part.ahead else ROUNDS_AHEAD,
        alone=True,
    )
    again = Walk(
        threads,
        computed,
        places={LANE: variable(THREAD, threads), STEP: variable(ROUND, trips)},
        rounds=trips,
        ahead=1,
    )
    nests = [_windows_of(nest, threads, trips * nest.rounds) for nest in part.nests]
    return [outside, *firsts, rounds, *([again] if computed else []), *itertools.chain.from_iterable(nests)]


def _windows_of(nest: Lanes, threads: int, rounds: int) -> list[Walk]:
    """The walks over the windows that the rounds of an inner loop read, of which there are so many in all."""
    lane, step = nest.lane_at(variable(LANE, threads)), variable(STEP, rounds)
    windows = [(i, whole) for i in nest.round.instructions if (whole := read_window(i)) is not None]
    read = [(whole, index) for i, whole in windows for index in _places_read(i, nest, lane, step)]
    places = {LANE: variable(THREAD, threads), STEP: variable(ROUND, rounds)}
    walk = Walk(threads, read, places=places, rounds=rounds, ahead=1)
    deeper = [_windows_of(inner, threads, rounds * inner.rounds) for inner in nest.nests]
    return [*([walk] if read else []), *itertools.chain.from_iterable(deeper)]


def own(region: Region, segment: Segment[Lanes], launch: Launch, walks: Sequence[Walk]) -> list[Own]:
    """The state of lanes: a lane reads what is its own of it before the first round, and writes it after the last."""
    part, lane = segment.part, segment.part.lane_at(variable(LANE, segment.part.lanes))
    roots = dict(zip(part.numbers, part.roots, strict=True))
    return [
        Own(roots[v.number], 0, frozenset(v.places(lane)))
        for v in part.values
        if v.lanes and v.counts is None and v.number in roots
    ]


def _places_read(slice_: Instruction, part: Lanes, lane: Index, step: Expression) -> list[Index]:
    """The elements of a `dynamic-slice` that a lane reads in a round, at most `MOST_HELD`. The window is assumed
    to move by one position per round."""
    whole, window = slice_.operands[0].shape, slice_.shape
    lanes = along(window, part.dimensions) or ()
    few = Shape(window.type, tuple(n if d in lanes else min(n, MOST_HELD) for d, n in enumerate(window.dimensions)))
    return [_moving(whole, window, at, step) for at in itertools.islice(_each_place(few, lanes, lane), MOST_HELD)]


def _wait(table: Instruction) -> int:
    """Dependent instructions that take as long as a load from a table that was read before."""
    return NEAR if table.shape.element_count * table.shape.type.bytes <= NEAR_BYTES else FAR


def _anywhere(whole: Shape, lanes: int, step: Expression) -> Index:
    """An index that is another one for each lane and round, in place of one that data say."""
    place = add(multiply(variable(LANE, lanes), APART), multiply(step, APART))
    return tuple(modulo(place, size) for size in whole.dimensions)


def _moving(whole: Shape, window: Shape, at: Index, step: Expression) -> Index:
    """The index in an array of a window's element, in round `step`."""
    return tuple(
        e if size == part else modulo(step, size)
        for e, size, part in zip(at, whole.dimensions, window.dimensions, strict=True)
    )
