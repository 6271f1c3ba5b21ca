"""The phases of a `while` whose threads run all rounds together, with the carried values in memory that all of them
reach: the common base of block loops and grid loops.

A round is cut into phases. In each phase, threads divide the elements of some values, the *cells*, among them, write
them to memory, and wait for each other. A value is a cell if it reads many elements for one (a fold, a product), or if
its elements would be computed more than once. All other values are computed where they are read. XLA:GPU runs every
loop as a thunk that launches the kernels of its body for each iteration (xla/backends/gpu/runtime/while_thunk.cc).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

from hlo_opt.ir import Computation, IndexMap, Instruction, Shape
from hlo_opt.ir.index_map import Expression, add, constant, delinearize, dimensions, divide, modulo, multiply, variable
from hlo_opt.ops.lowering import Index
from hlo_opt.ops.reduction.reducers import running_type
from hlo_opt.ops.sets import combines_updates, shares_terms
from hlo_opt.ops.spec import find
from hlo_opt.plans.columns import WARP
from hlo_opt.plans.element_reads import ends_needed
from hlo_opt.plans.instructions import Work
from hlo_opt.plans.lane_loop import CarriedValue, Results
from hlo_opt.plans.row_reduction import may_be_reordered
from hlo_opt.plans.scatter import ScatterForm

MOST_PIECES = 4
"""Limit of the loops into which the terms of a product are cut."""
FEWEST_TERMS = 4
"""The least number of terms per thread where several threads fold an element."""
LANES = 8
"""The least number of lanes that fold an element together, where it has `FEWEST_TERMS` for each."""
TERMS_AHEAD = 8
"""The factor by which a loop over terms is unrolled: the loads of these terms are in flight together."""
SECTOR = 32
"""Bytes of a memory transaction."""


@dataclass(frozen=True)
class Team:
    """Threads that fold an element together.

    ways   the number of threads of the team: a power of two
    apart  the number of interleaved teams, and the distance of a team's threads: neighbouring threads then have
           neighbouring elements
    """

    ways: int = 1
    apart: int = 1

    @property
    def size(self) -> int:
        """The number of threads of all interleaved teams."""
        return self.ways * self.apart

    @property
    def meets(self) -> bool:
        """Whether warps combine their results in shared memory."""
        return self.size > WARP

    @property
    def lanes(self) -> int:
        """The team's threads in one warp."""
        return min(self.ways, WARP // self.apart)

    @property
    def shuffles(self) -> int:
        """The shuffles that combine the results of these threads."""
        return self.lanes.bit_length() - 1

    def places(self, block: int) -> int:
        """The number of partial results of a block in shared memory."""
        return block // WARP * self.apart if self.meets else 0

    def element(self, thread: Expression) -> Expression:
        """The number of the element that a thread folds."""
        return add(multiply(divide(thread, self.size), self.apart), modulo(thread, self.apart))

    def way(self, thread: Expression) -> Expression:
        """A thread's number in its team."""
        return divide(modulo(thread, self.size), self.apart)


ALONE = Team()


@dataclass(frozen=True)
class StoredValue:
    """A value of a round that is stored in memory.

    value   its instruction
    stands  the round's parameter that its readers use instead
    work    the work of an element
    serial  instructions on the longest path to an element
    terms   elements of an operand that are folded to one
    team    the threads that fold an element
    passes  whether nobody but the thread that has just computed an element reads it: it then has no memory
    alone   whether the first thread makes all updates of a scatter, which is quickest for a processor's lanes
    """

    value: Instruction
    stands: Instruction
    work: Work
    serial: int
    terms: int
    team: Team = ALONE
    passes: bool = False
    alone: bool = False

    @property
    def scatters(self) -> bool:
        """Whether threads make updates at places that indices name: of what another cell, which only this one reads,
        has put into the same memory."""
        return combines_updates(self.value)

    @property
    def in_order(self) -> bool:
        """Whether one thread makes all updates of a scatter, as the order of threads would show otherwise."""
        return self.alone or ScatterForm(self.value).in_order

    @property
    def part_bytes(self) -> int:
        """Bytes of a partial result."""
        return max(4, running_type(self.value.shape.type).bytes)

    @property
    def is_product(self) -> bool:
        """Whether it is a sum of products."""
        return self.terms > 1 and not list(self.value.called())

    def terms_read(self, index: Index, term: Expression) -> Iterator[tuple[int, Index]]:
        """(operand number, index) of each element that a term reads, for the element at `index`. Consecutive terms are
        neighbours in memory where possible. Of a `select-and-scatter`, whose source has fewer terms than its operand,
        a term reads the element that comes round."""
        reads = _reads(self.value)
        widest = _order(self.value) if reads else []
        for number, read in reads:
            order = widest if len(read.symbols) == len(widest) else range(len(read.symbols))
            sizes = [read.symbols[d] for d in order]
            digits = dict(zip(order, delinearize(modulo(term, math.prod(sizes)), sizes), strict=True))
            yield number, read.apply(index, [digits[d] for d in range(len(sizes))])

    @property
    def pieces(self) -> list[tuple[int, int]]:
        """The terms of a product in pieces, each as (first, count). Within a piece, the conditions of the factors (as
        on the operand of a concatenate) do not change."""
        term, ends = variable("term", self.terms), {0, self.terms}
        for number, read in _reads(self.value) if not list(self.value.called()) else ():
            factor = self.value.operands[number]
            spec = find(factor.opcode)
            place = read.apply(dimensions(self.value.shape.dimensions), [term] * len(read.symbols))
            for k in range(len(factor.operands)) if len(read.symbols) == 1 and spec is not None else ():
                below = spec.index(factor, k) if spec is not None and spec.index is not None else None
                for condition in () if below is None or below.symbols else below.conditions_at(place):
                    ends |= {condition.low, condition.high + 1} if condition.expression == term else set()
        cuts = sorted(end for end in ends if 0 <= end <= self.terms)
        pieces = [(first, last - first) for first, last in itertools.pairwise(cuts)]
        return pieces if len(pieces) <= MOST_PIECES else [(0, self.terms)]

    def with_team(self, threads: int, block: int, *, in_lanes: bool = False) -> StoredValue:
        """The cell with a team for each element, if there are enough threads. A team is in one block. `in_lanes`: the
        threads are lanes of a processor's vectors, which hold neighbouring elements; only where the terms of an element
        are neighbours in all operands do they fold it together."""
        size = self.value.shape.element_count
        if self.scatters:
            return replace(self, alone=in_lanes)
        most = min(threads // max(1, size), self.terms // FEWEST_TERMS, block)
        if in_lanes and self.terms >= FEWEST_TERMS * LANES:
            most = max(most, LANES)  # one after another, teams are as quick as threads, and a vector reads a row
        if most < 2 or not shares_terms(self.value) or self.value.shape.type.is_complex:
            return self
        if list(self.value.called()) and not may_be_reordered(self.value):
            return self
        ways, apart = 1 << most.bit_length() - 1, 1
        _, strides = _strides(self.value)
        if in_lanes and size > 1 and any(min(_strides_of(self.value, n, read)) != 1 for n, read in _reads(self.value)):
            return self
        if min(strides) != 1 and size > 1:  # a sector has operands of several elements
            apart = min(
                WARP // 2, SECTOR // max(1, self.value.operands[0].shape.type.bytes), 1 << size.bit_length() - 1
            )
            ways = min(ways, block // apart)
            apart = max(apart, min(WARP // ways, 1 << size.bit_length() - 1))
        return replace(self, team=Team(ways, apart))


@dataclass(frozen=True)
class Phases:
    """A loop by phases.

    roots    positions of outputs, all of them results of the loop
    numbers  for each root, its position in the loop's tuple
    values   the carried values; `result` is the parameter of a cell
    results  arrays that each round writes a window of, and that no round reads
    phases   the cells of a round by phase: a cell reads only cells of earlier phases
    round    a round as a computation
    read     the loop's operands that rounds read and do not change
    kept     those among them that take long to compute: cells that are written once, before the first round
    trips    the number of rounds, if it is known
    rounds   the number of rounds for the price
    test     the parameter of the cell that holds the condition for another round; None if the number is known
    aliases  (output, parameter): arrays of which the rounds may leave elements unchanged
    origins  the operation of the module for each instruction of the round
    in_lanes whether the threads are lanes of a processor's vectors
    updates  windows that are written into carried values at the end of a round, one after another: all that is read for
             them is in cells, or does not change in the round
    """

    hero: Instruction
    roots: tuple[int, ...]
    numbers: tuple[int, ...]
    values: tuple[CarriedValue, ...]
    results: tuple[Results, ...]
    phases: tuple[tuple[StoredValue, ...], ...]
    round: Computation
    read: tuple[Instruction, ...]
    kept: tuple[StoredValue, ...]
    trips: int | None
    rounds: int
    test: Instruction | None
    aliases: tuple[tuple[int, int], ...]
    origins: Mapping[Instruction, Instruction]
    in_lanes: bool = False
    updates: tuple[Results, ...] = ()

    @classmethod
    def of(cls, cut: Phases) -> Self:
        """These phases as an object of a kind."""
        return cls(**{f.name: getattr(cut, f.name) for f in fields(Phases)})

    @property
    def state(self) -> list[CarriedValue]:
        """The carried values in memory: all but counters."""
        return [v for v in self.values if v.counts is None]

    @property
    def copied(self) -> list[CarriedValue]:
        """The carried values in memory that a round replaces as a whole."""
        updated = {update.number for update in self.updates}
        return [v for v in self.state if v.number not in updated]

    @property
    def read_late(self) -> set[Instruction | None]:
        """The parameters for cells, and for the state, that are read after the phases of a round."""
        ends = {self.test, *(v.result for v in self.copied)}
        return ends.union(*map(self.read_by, (*self.results, *self.updates)))

    @property
    def cells(self) -> list[StoredValue]:
        """All cells of a round."""
        return [cell for phase in self.phases for cell in phase]

    @property
    def stored(self) -> list[StoredValue]:
        """The cells of a round that have memory."""
        return [cell for cell in self.cells if not cell.passes]

    def beside(self, phase: Sequence[StoredValue]) -> list[list[StoredValue]]:
        """The cells of a phase that threads compute together: those without teams that lie in memory in the same way.
        A processor's caches are near, and few arrays at a time are quicker."""
        groups: dict[object, list[StoredValue]] = {}
        for cell in phase:
            shape = cell.value.shape
            is_alone = self.in_lanes or cell.team.ways > 1 or cell.scatters
            groups.setdefault(cell if is_alone else (shape.dimensions, shape.minor_to_major), []).append(cell)
        return list(groups.values())

    def joined(self) -> Self:
        """The same with fewer phases: a cell that reads another only where a thread has just computed its element needs
        no phase of its own."""
        if self.in_lanes:
            return self
        known: dict[Instruction, StoredValue] = {}
        number: dict[Instruction, int] = {}
        phases: list[list[StoredValue]] = []
        for cell in self.cells:
            read = [known[i] for i in below(cell.value, self.round) if i in known]
            first = max([number[r.stands] + (not _is_own(cell, r, self.round)) for r in read], default=0)
            known[cell.stands], number[cell.stands] = cell, first
            phases += [[] for _ in range(first + 1 - len(phases))]
            phases[first].append(cell)
        return replace(self, phases=tuple(map(tuple, phases)))._without_passing()

    def _without_passing(self) -> Self:
        """The same without memory for cells that only those computed together with them read."""
        groups = {cell.stands: group for phase in self.phases for group in self.beside(phase) for cell in group}
        lasting = self.read_late
        readers: dict[Instruction, list[StoredValue]] = {}
        for cell in self.cells:
            for read in below(cell.value, self.round):
                readers.setdefault(read, []).append(cell)
        passing = {
            cell
            for cell in self.cells
            if cell.stands not in lasting and (own := readers.get(cell.stands))
            if all(reader in groups[cell.stands] for reader in own)
        }
        phases = [tuple(replace(cell, passes=cell in passing) for cell in phase) for phase in self.phases]
        return replace(self, phases=tuple(phases))

    def read_by(self, result: Results) -> set[Instruction]:
        """The parameters for cells and for the state that a result depends on."""
        values = {i for o in result.update.operands[1:] for i in [o, *below(o, self.round)]}
        return values & {*(cell.stands for cell in self.cells), *(v.parameter for v in self.state)}

    @property
    def lasting(self) -> bool:
        """Whether results depend on the state, which must then stay until all threads have read it."""
        return any(v.parameter in self.read_by(result) for result in self.results for v in self.state)


def place_in(shape: Shape, position: Expression) -> Index:
    """The index of the element at a linear position in memory."""
    order = [*reversed(shape.minor_to_major)]
    at = dict(zip(order, delinearize(position, [shape.dimensions[d] for d in order]), strict=True))
    return tuple(at[d] for d in range(shape.rank))


def inside(part: Phases) -> Sequence[Instruction]:
    """The instructions of a round, parameters included."""
    return list(part.round.instructions)


def below(value: Instruction, inside: Computation) -> list[Instruction]:
    """The instructions of a round that a cell depends on, up to other cells and carried values; the cell is the
    first."""
    values, stack = {value: None}, [value] if value.parameter_number is None else []
    while stack:
        for operand in stack.pop().operands:
            if operand.parent is inside and operand not in values:
                values[operand] = None
                if operand.parameter_number is None:
                    stack.append(operand)
    return list(values)


def _is_own(cell: StoredValue, other: StoredValue, round_: Computation) -> bool:
    """Whether threads that each have an element of both read of the other cell the element at the same place alone."""
    here, there = cell.value.shape, other.value.shape
    lies_alike = (here.dimensions, here.minor_to_major) == (there.dimensions, there.minor_to_major)
    if not lies_alike or cell.team.ways > 1 or other.team.ways > 1 or cell.scatters or other.scatters:
        return False
    index = place_in(here, variable("place", here.element_count))
    over = set(below(cell.value, round_))
    ends = ends_needed([(cell.value, index)], over, lambda value, _: value is other.stands)
    return all(end == (other.stands, index) for end in ends)


def _reads(value: Instruction) -> list[tuple[int, IndexMap]]:
    """The folded operands of an instruction: their numbers and index maps."""
    spec = find(value.opcode)
    maps = [
        (n, None if spec is None or spec.index is None else spec.index(value, n)) for n in range(len(value.operands))
    ]
    return [(n, read) for n, read in maps if read is not None and read.symbols]


def _strides(value: Instruction) -> tuple[Instruction, list[int]]:
    """The largest operand of a fold, and its stride in memory along each folded dimension."""
    number, read = max(_reads(value), key=lambda pair: value.operands[pair[0]].shape.element_count)
    return value.operands[number], _strides_of(value, number, read)


def _strides_of(value: Instruction, number: int, read: IndexMap) -> list[int]:
    """The strides of a folded operand along each folded dimension."""
    operand, origin = value.operands[number], [constant(0)] * value.shape.rank
    steps = [[int(d == other) for other in range(len(read.symbols))] for d in range(-1, len(read.symbols))]
    first, *places = [_place(operand.shape, read.apply(origin, [constant(n) for n in step])) for step in steps]
    return [there - first for there in places]


def _place(shape: Shape, index: Index) -> int:
    """The linear position of the element at a constant index."""
    return sum(e.low * stride for e, stride in zip(index, shape.strides, strict=True))


def _order(value: Instruction) -> list[int]:
    """The folded dimensions by falling stride."""
    _, strides = _strides(value)
    return sorted(range(len(strides)), key=lambda d: -strides[d])
