"""The plan of a `while` whose lanes do not need each other: a thread goes through all rounds of a lane and keeps the
lane's state in registers.

The lanes are some dimensions that all large values have which the loop hands on from round to round. A value of a round
may read of these only what is its own lane's; arrays that the loop leaves as they are it may read anywhere. What a
round writes into an array of results (`dynamic-update-slice`) goes to memory at once. Index maps say what is read: an
operation without one couples lanes, whatever it does. XLA:GPU runs every loop as a thunk that launches the kernels of
its body round after round (xla/backends/gpu/runtime/while_thunk.cc).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from hlo_opt.ir import Computation, Instruction, Shape
from hlo_opt.ir.index_map import Expression, constant, delinearize, modulo, variable
from hlo_opt.ops.lowering import Index
from hlo_opt.ops.sets import read_window
from hlo_opt.plans.instructions import Work
from hlo_opt.plans.loop import BLOCK
from hlo_opt.plans.plan import Launch, Region, Segment
from hlo_opt.plans.walks import ROUND, THREAD, Walk

MOST_HELD = 64
"""Elements of a lane's state: each is a register."""
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
    return list(_each_place(shape, lanes, lane))


def _each_place(shape: Shape, lanes: Sequence[int], lane: Index) -> Iterator[Index]:
    rest = [range(1 if d in lanes else size) for d, size in enumerate(shape.dimensions)]
    place = dict(zip(lanes, lane, strict=False))
    for at in itertools.product(*rest):
        yield tuple(place.get(d, constant(n)) for d, n in enumerate(at))


class ByLanes:
    """What parts share of which each thread has one lane. `dimensions` are the sizes of the lanes' dimensions."""

    dimensions: tuple[int, ...]

    @property
    def lanes(self) -> int:
        """How many there are, each a thread's."""
        return math.prod(self.dimensions)

    @property
    def block(self) -> int:
        """Threads per block when nothing else asks for more."""
        return max(1, min(BLOCK, self.lanes))

    def shared_bytes(self, block: int) -> int:
        """None."""
        return 0


@dataclass(frozen=True)
class Lanes(ByLanes):
    """A loop by lanes.

    roots      positions of outputs, all of them the loop's
    numbers    of each root, which element of the loop's tuple it is
    dimensions sizes of the lanes' dimensions
    order      these dimensions from the one with the largest stride to that with the least
    round      what a round computes, with `taken` in the place of what is handed on
    tests      what has to hold for another round, each with the dimensions that lanes lie along: with none, it is the
               same for all lanes; with some, a lane for which it does not hold ends
               by itself. Not asked where rounds are counted
    trips      how many there are, where that is known and not 0
    rounds     how many the price expects
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
    tests: tuple[tuple[Instruction, tuple[int, ...]], ...]
    trips: int | None
    rounds: int
    work: Work
    serial: int
    aliases: tuple[tuple[int, int], ...]

    def segment(self, block: int) -> Segment[Lanes]:
        """The segment, alone in its launch."""
        return Segment(self, -(-self.lanes // block), aliases=self.aliases, own=tuple(n for n, _ in self.aliases))

    def lane_at(self, position: Expression) -> Index:
        """The lane with a number, neighbours in memory being neighbours."""
        parts = delinearize(position, [self.dimensions[d] for d in self.order])
        at = dict(zip(self.order, parts, strict=True))
        return tuple(at[d] for d in range(len(self.order)))


def along(shape: Shape, dimensions: Sequence[int]) -> tuple[int, ...] | None:
    """Where an array has the lanes' dimensions, one after another; None where it has not, or has too much for each
    lane."""
    found: list[int] = []
    for d, size in enumerate(shape.dimensions):
        if len(found) < len(dimensions) and size == dimensions[len(found)]:
            found.append(d)
    lanes = math.prod(dimensions)
    return tuple(found) if len(found) == len(dimensions) and shape.element_count <= MOST_HELD * lanes else None


def inside(part: Lanes) -> Sequence[Instruction]:
    """What a round computes, and what stands for what it is given."""
    return list(part.round.instructions)


def walks(region: Region, segment: Segment[Lanes], launch: Launch) -> list[Walk]:
    """What threads read of their state and write of it at the end; the rounds."""
    part, threads = segment.part, segment.part.lanes
    lane, trips = part.lane_at(variable(LANE, threads)), part.rounds
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
    """Where a lane reads of a window in a round, which is taken to move on by one place with each round: some of the
    places, where a lane may read more than it holds."""
    whole, window = slice_.operands[0].shape, slice_.shape
    lanes = along(window, part.dimensions) or ()
    few = Shape(window.type, tuple(n if d in lanes else min(n, MOST_HELD) for d, n in enumerate(window.dimensions)))
    return [_moving(whole, window, at, step) for at in itertools.islice(_each_place(few, lanes, lane), MOST_HELD)]


def _moving(whole: Shape, window: Shape, at: Index, step: Expression) -> Index:
    """The place in an array of an element of a window that moves along it."""
    return tuple(
        e if size == part else modulo(step, size)
        for e, size, part in zip(at, whole.dimensions, window.dimensions, strict=True)
    )
