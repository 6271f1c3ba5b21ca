"""The plan of a `while` that all blocks of a launch run together (see `hlo_opt.plans.phases`): state and cells are in
memory that L2 holds, and after each phase all blocks wait for each other. The launch is cooperative.

Carried values alternate between two arrays: each of two consecutive rounds reads what the other writes, so that nothing
is copied. They are copied only if the number of rounds is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from hlo_opt.analysis.memory.forms import round_up
from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir.index_map import Expression, add, divide, modulo, multiply, variable
from hlo_opt.ops.lowering import Index
from hlo_opt.plans.instructions import of_fold
from hlo_opt.plans.lane_loop import Results
from hlo_opt.plans.phases import TERMS_AHEAD, Phases, StoredValue, place_in
from hlo_opt.plans.plan import Launch, Region, Segment
from hlo_opt.plans.walks import ROUND, THREAD, Walk

BLOCK = 256
"""Threads per block. One block per multiprocessor keeps L2 busy, and fewer blocks meet sooner."""


@dataclass(frozen=True)
class InGrid(Phases):
    """A loop that all blocks of a launch share; `blocks` is their number."""

    kind: ClassVar[str] = "grid-loop"
    blocks: int = 1

    @property
    def block(self) -> int:
        return BLOCK

    @property
    def threads(self) -> int:
        """Threads of all blocks."""
        return self.blocks * BLOCK

    @property
    def scratch(self) -> tuple[Shape, ...]:
        """The state and the cells."""
        return (*(v.parameter.shape for v in self.state), *(cell.value.shape for cell in (*self.kept, *self.stored)))

    @property
    def near(self) -> frozenset[Instruction]:
        """The round's parameters for the state and the cells."""
        return frozenset({*(v.parameter for v in self.state), *(cell.stands for cell in (*self.kept, *self.cells))})

    @property
    def counters(self) -> frozenset[Instruction]:
        """The round's parameters for counters, which threads compute from the number of the round."""
        return frozenset(v.parameter for v in self.values if v.counts is not None)

    def segment(self, block: int) -> Segment[InGrid]:
        """All blocks, alone in their launch."""
        own = tuple(n for n, _ in self.aliases)
        return Segment(
            self, self.blocks, aliases=self.aliases, own=own, scratch=self.scratch, resident=1, together=True
        )

    def shared_bytes(self, block: int) -> int:
        """Bytes of the partial sums that the warps of a block combine: one per value and warp."""
        return sum(cell.team.places(block) * cell.part_bytes for cell in self.cells)

    def written_in(self, result: Results) -> int:
        """The number of the first phase at which all inputs of a result are ready; the number of phases if they are
        ready only after the last."""
        read, first = self.read_by(result), 0
        for number, phase in enumerate(self.phases):
            if any(cell.stands in read for cell in phase):
                first = number + 1
        return first

    @property
    def waits(self) -> bool:
        """Whether all threads must have written a round's results before the next round may start, because its first
        phase overwrites inputs of some."""
        ends = {v.result for v in self.state}
        first = {cell.stands for cell in self.phases[0]}
        overwritten = (first - ends) | {v.parameter for v in self.state if v.result in first}
        late = [r for r in self.results if self.written_in(r) == len(self.phases)]
        return any(not overwritten.isdisjoint(self.read_by(r)) for r in late)


def walks(region: Region, segment: Segment[InGrid], launch: Launch) -> list[Walk]:
    """The walks over the initial and the final state, over the cells of each phase, with a meeting of all blocks, and
    over the results of a round."""
    part, threads, trips = segment.part, segment.part.threads, segment.part.rounds
    near, walks = part.near, []
    for value in part.state:
        shape, is_result = value.parameter.shape, value.number in part.numbers
        walks.append(_start(shape, value.initial, threads, is_result=is_result, is_shared=True))
    for cell in part.kept:
        walks.append(_start(cell.value.shape, cell.value, threads, is_result=False, is_shared=True))
    walks[0] = _meeting(walks[0], 1)
    for result in part.results:
        if result.before is not None:
            walks.append(_start(result.update.shape, result.before, threads, is_result=True, is_shared=False))
    for phase in part.phases:
        of_phase = [walk for cells in part.beside(phase) for walk in _of_cells(part, cells)]
        walks += [_meeting(of_phase[0], 1), *of_phase[1:]]
    for number, result in enumerate(part.results):
        shape = result.window
        at, places = _shared_out(shape, threads)
        writing = Walk(
            min(threads, shape.element_count),
            [(result.update.operands[1], at)],
            [(shape, at)],
            places=places,
            rounds=_rounds(shape, threads),
            times=trips,
            near=near,
            known=part.counters,
            origins=part.origins,
        )
        walks.append(_meeting(writing, int(not number and (part.waits if part.trips else part.lasting))))
    for number, value in enumerate(part.state) if part.trips is None else ():
        shape = value.parameter.shape
        walks.append(_meeting(_each_element(part, [value.result], shape), int(not number)))
    return walks


def _each_element(part: InGrid, values: Sequence[Instruction], shape: Shape) -> Walk:
    """The walk in which each thread computes elements of values and writes them for other threads."""
    at, places = _shared_out(shape, part.threads)
    return Walk(
        min(part.threads, shape.element_count),
        [(value, at) for value in values],
        places=places,
        rounds=_rounds(shape, part.threads),
        times=part.rounds,
        near=part.near,
        known=part.counters,
        origins=part.origins,
        published=[(value.shape, at) for value in values],
    )


def _of_cells(part: InGrid, cells: Sequence[StoredValue]) -> Iterator[Walk]:
    """The walks for cells. Teams of several threads have one over the terms before the one over the elements."""
    cell = cells[0]
    shape, team, threads, trips, near = cell.value.shape, cell.team, part.threads, part.rounds, part.near
    whole = _each_element(part, [each.value for each in cells], shape)
    passing = {each.value for each in cells if each.passes}
    published = [(written, at) for (value, at), (written, _) in zip(whole.wanted, whole.published, strict=True)
                 if value not in passing]  # fmt: skip
    whole = replace(whole, known=whole.known | {each.stands for each in cells}, published=published)
    if team.ways == 1:
        yield whole
        return
    size, at_a_time = shape.element_count, threads // team.ways
    rounds, steps = -(-size // at_a_time), -(-cell.terms // team.ways)
    own, step = variable(THREAD, threads), variable(ROUND, rounds * steps)
    place = add(multiply(divide(step, steps), at_a_time), team.element(own))
    term = add(multiply(modulo(step, steps), team.ways), team.way(own))
    element, along = variable("element", size), variable("along", cell.terms)
    index = place_in(shape, element)
    wanted = [(cell.value.operands[n], read) for n, read in cell.terms_read(index, along)]
    body = of_fold(part.origins.get(cell.value, cell.value))
    yield Walk(
        min(threads, round_up(size, team.apart) * team.ways),
        wanted,
        places={"element": modulo(place, size), "along": modulo(term, cell.terms)},
        rounds=rounds * steps,
        body=body,
        steps=math.ceil(body.slots),
        shuffles=rounds * team.shuffles,
        barriers=2 * rounds * team.meets,
        shared=2.0 * team.meets / steps,
        ahead=TERMS_AHEAD,
        registers=1,
        times=trips,
        near=near,
        known=part.counters,
        origins=part.origins,
    )
    yield replace(whole, wanted=(), rounds=rounds, times=trips)


def _start(shape: Shape, value: Instruction, threads: int, *, is_result: bool, is_shared: bool) -> Walk:
    """The walk of all threads over an array of that shape, which holds a value from before the first round."""
    at, places = _shared_out(shape, threads)
    return Walk(
        min(threads, shape.element_count),
        [(value, at)],
        [(shape, at)] if is_result else [],
        places=places,
        rounds=_rounds(shape, threads),
        published=[(shape, at)] if is_shared else [],
    )


def _shared_out(shape: Shape, threads: int) -> tuple[Index, Mapping[str, Expression]]:
    """The index of a thread's element of an array in terms of `place`, and the expression of that."""
    size = shape.element_count
    place, rounds = variable("place", size), _rounds(shape, threads)
    own = add(multiply(variable(ROUND, rounds), threads), variable(THREAD, min(threads, size)))
    return place_in(shape, place), {"place": own if size % threads == 0 or size < threads else modulo(own, size)}


def _rounds(shape: Shape, threads: int) -> int:
    return -(-shape.element_count // threads)


def _meeting(walk: Walk, times: int) -> Walk:
    """A walk after which all blocks wait for each other."""
    return replace(walk, meetings=times)
