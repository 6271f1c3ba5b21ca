"""The phases of a `while` whose threads go through all rounds together: what kinds have in common that keep the state
where all these threads reach it.

A round is cut into phases. In each, threads share out the elements of some values among them, which they leave in
memory, and then wait for each other. Values are cut off where many elements are read for one (a fold, a product) and
where an element would be computed more than once; everything else is computed where it is read. XLA:GPU runs every loop
as a thunk that launches the kernels of its body round after round (xla/backends/gpu/runtime/while_thunk.cc).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

from hlo_opt.ir import Computation, IndexMap, Instruction, Shape
from hlo_opt.ir.index_map import Expression, add, constant, delinearize, dimensions, divide, modulo, multiply, variable
from hlo_opt.ops.lowering import Index
from hlo_opt.ops.reduction.reducers import running_type
from hlo_opt.ops.sets import shares_terms
from hlo_opt.ops.spec import find
from hlo_opt.plans.columns import WARP
from hlo_opt.plans.instructions import Work
from hlo_opt.plans.lane_loop import Results, Value
from hlo_opt.plans.row_reduction import may_be_reordered

MOST_PIECES = 4
"""Into which the terms of a product are cut: each is a loop of its own."""
FEWEST_TERMS = 4
"""That each of several threads folds of an element."""
TERMS_AHEAD = 8
"""The factor by which a loop over terms is unrolled: the loads of these terms are in flight together."""
SECTOR = 32
"""Bytes that caches hand over together."""


@dataclass(frozen=True)
class Team:
    """Threads that fold an element together.

    ways   how many they are: a power of two
    apart  elements between two of them, each with a team of its own: neighbours of a warp then read neighbours in
           memory
    """

    ways: int = 1
    apart: int = 1

    @property
    def size(self) -> int:
        """Threads that are next to each other and have the same elements."""
        return self.ways * self.apart

    @property
    def meets(self) -> bool:
        """Whether warps bring their parts together in shared memory."""
        return self.size > WARP

    @property
    def lanes(self) -> int:
        """Those of them in a warp."""
        return min(self.ways, WARP // self.apart)

    @property
    def shuffles(self) -> int:
        """Steps in which these bring their parts together."""
        return self.lanes.bit_length() - 1

    def places(self, block: int) -> int:
        """Parts in shared memory."""
        return block // WARP * self.apart if self.meets else 0

    def element(self, thread: Expression) -> Expression:
        """Which element a thread has."""
        return add(multiply(divide(thread, self.size), self.apart), modulo(thread, self.apart))

    def way(self, thread: Expression) -> Expression:
        """Its number in the team."""
        return divide(modulo(thread, self.size), self.apart)


ALONE = Team()


@dataclass(frozen=True)
class Cell:
    """A value of a round that lies in memory.

    value   what computes it
    stands  the parameter of the round that stands for it where it is read
    work    of an element
    serial  instructions of an element that wait for each other
    terms   elements of an operand that are folded to one
    team    the threads that fold an element
    """

    value: Instruction
    stands: Instruction
    work: Work
    serial: int
    terms: int
    team: Team = ALONE

    @property
    def part_bytes(self) -> int:
        """Bytes of what a thread has folded."""
        return max(4, running_type(self.value.shape.type).bytes)

    @property
    def is_product(self) -> bool:
        """Whether it is a sum of products."""
        return self.terms > 1 and not list(self.value.called())

    def terms_read(self, index: Index, term: Expression) -> Iterator[tuple[int, Index]]:
        """Where operands are read for a term of the element at an index, by the operands' numbers. Terms that follow
        each other are neighbours in memory where that can be."""
        for number, read in _reads(self.value):
            sizes = [read.symbols[d] for d in _order(self.value)]
            digits = dict(zip(_order(self.value), delinearize(term, sizes), strict=True))
            yield number, read.apply(index, [digits[d] for d in range(len(sizes))])

    @property
    def pieces(self) -> list[tuple[int, int]]:
        """The terms of a product in pieces, the first of each and how many: what its factors ask of a term (is it in
        the first part of a concatenation?) is the same for all of a piece."""
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
        found = [(first, last - first) for first, last in itertools.pairwise(cuts)]
        return found if len(found) <= MOST_PIECES else [(0, self.terms)]

    def with_team(self, threads: int, block: int) -> Cell:
        """The cell with a team for each element, if there are enough threads and teams lie within blocks."""
        size = self.value.shape.element_count
        most = min(threads // max(1, size), self.terms // FEWEST_TERMS, block)
        is_ordered = bool(list(self.value.called())) and not may_be_reordered(self.value)
        if most < 2 or not shares_terms(self.value) or self.value.shape.type.is_complex or is_ordered:
            return self
        ways, apart = 1 << most.bit_length() - 1, 1
        _, strides = _strides(self.value)
        if min(strides) != 1 and size > 1:  # neighbours of a sector are those of several elements
            apart = min(
                WARP // 2, SECTOR // max(1, self.value.operands[0].shape.type.bytes), 1 << size.bit_length() - 1
            )
            ways = min(ways, block // apart)
            apart = max(apart, min(WARP // ways, 1 << size.bit_length() - 1))
        return replace(self, team=Team(ways, apart))


@dataclass(frozen=True)
class Phases:
    """A loop by phases.

    roots    positions of outputs, all of them the loop's
    numbers  of each root, which element of the loop's tuple it is
    values   what is handed on from round to round: `made` is a parameter that stands for a cell
    results  arrays into which each round writes, and which no round reads
    phases   the cells of a round: those of a phase read only cells of phases before
    round    what a round computes
    read     what the rounds read of the loop's operands, again in each
    trips    rounds, where they are counted
    rounds   rounds that the price expects
    test     what stands for the cell that says whether there is another round, where rounds are not counted: it is one
             of the phases' own
    aliases  (output, parameter): arrays of which the rounds may leave something as it was
    origins  of what a round computes, the operations of the module
    """

    hero: Instruction
    roots: tuple[int, ...]
    numbers: tuple[int, ...]
    values: tuple[Value, ...]
    results: tuple[Results, ...]
    phases: tuple[tuple[Cell, ...], ...]
    round: Computation
    read: tuple[Instruction, ...]
    trips: int | None
    rounds: int
    test: Instruction | None
    aliases: tuple[tuple[int, int], ...]
    origins: Mapping[Instruction, Instruction]

    @classmethod
    def of(cls, cut: Phases) -> Self:
        """These phases as those of a kind."""
        return cls(**{f.name: getattr(cut, f.name) for f in fields(Phases)})

    @property
    def state(self) -> list[Value]:
        """What is handed on in memory: all but counters."""
        return [v for v in self.values if v.counts is None]

    @property
    def cells(self) -> list[Cell]:
        """All cells of a round."""
        return [cell for phase in self.phases for cell in phase]

    def read_by(self, result: Results) -> set[Instruction]:
        """What stands for the cells, and for the state, that a result is computed from."""
        found = {i for o in result.update.operands[1:] for i in [o, *below(o, self.round)]}
        return found & {*(cell.stands for cell in self.cells), *(v.taken for v in self.state)}

    @property
    def lasting(self) -> bool:
        """Whether results are computed from the state, which has to stay until all threads have read it."""
        return any(v.taken in self.read_by(result) for result in self.results for v in self.state)


def place_in(shape: Shape, position: Expression) -> Index:
    """The index of an element by its number in memory."""
    order = [*reversed(shape.minor_to_major)]
    at = dict(zip(order, delinearize(position, [shape.dimensions[d] for d in order]), strict=True))
    return tuple(at[d] for d in range(shape.rank))


def inside(part: Phases) -> Sequence[Instruction]:
    """What a round computes, and what stands for what it is given."""
    return list(part.round.instructions)


def below(value: Instruction, inside: Computation) -> list[Instruction]:
    """What a cell is computed from, down to other cells and what is handed on."""
    found, stack = {value: None}, [value] if value.parameter_number is None else []
    while stack:
        for operand in stack.pop().operands:
            if operand.parent is inside and operand not in found:
                found[operand] = None
                if operand.parameter_number is None:
                    stack.append(operand)
    return list(found)


def _reads(value: Instruction) -> list[tuple[int, IndexMap]]:
    """How a fold reads the operands that it folds."""
    spec = find(value.opcode)
    found = [
        (n, None if spec is None or spec.index is None else spec.index(value, n)) for n in range(len(value.operands))
    ]
    return [(n, read) for n, read in found if read is not None and read.symbols]


def _strides(value: Instruction) -> tuple[Instruction, list[int]]:
    """The largest operand of a fold, and how far its terms lie from each other in memory along each dimension that is
    folded."""
    number, read = max(_reads(value), key=lambda found: value.operands[found[0]].shape.element_count)
    operand, origin = value.operands[number], [constant(0)] * value.shape.rank
    steps = [[int(d == other) for other in range(len(read.symbols))] for d in range(-1, len(read.symbols))]
    first, *found = [_place(operand.shape, read.apply(origin, [constant(n) for n in step])) for step in steps]
    return operand, [there - first for there in found]


def _place(shape: Shape, index: Index) -> int:
    """Where the element at a constant index lies."""
    return sum(e.low * stride for e, stride in zip(index, shape.strides, strict=True))


def _order(value: Instruction) -> list[int]:
    """The folded dimensions, that whose terms lie closest together last."""
    _, strides = _strides(value)
    return sorted(range(len(strides)), key=lambda d: -strides[d])
