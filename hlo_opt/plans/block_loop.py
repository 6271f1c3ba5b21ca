"""The plan of a `while` in one block: its threads run all rounds together, with the state in shared memory (see
`hlo_opt.plans.phases`)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from hlo_opt.analysis.memory.forms import round_up
from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir.index_map import add, divide, modulo, multiply, variable
from hlo_opt.plans.columns import WARP
from hlo_opt.plans.instructions import of_body, of_value
from hlo_opt.plans.phases import TERMS_AHEAD, Phases, StoredValue, below, place_in
from hlo_opt.plans.plan import Launch, Region, Segment
from hlo_opt.plans.scatter import ScatterForm, Update, places_of_starts
from hlo_opt.plans.walks import AHEAD, ROUND, THREAD, Walk

BLOCK = 512
"""Limit of threads of the block."""
CHANGE = 12
"""Dependent instructions for an update: its place is compared with the size, the element read, combined, written."""
NEAR = 80 * 1024
"""Bytes of operands that L1 keeps from round to round: it has 128 KB on a V100, and more since, less the shared memory
of the block."""


@dataclass(frozen=True)
class InBlock(Phases):
    """A loop in one block. `turns`: the cells of each array in shared memory, which are there one after another;
    without any, each cell has its own."""

    kind: ClassVar[str] = "block-loop"
    turns: tuple[tuple[StoredValue, ...], ...] = ()

    @property
    def arrays(self) -> list[tuple[StoredValue, ...]]:
        """The cells of each array in shared memory."""
        if self.turns:
            return list(self.turns)
        changed = {cell.value.operands[0]: cell for cell in self.stored if cell.scatters}
        cells = [cell for cell in (*self.kept, *self.stored) if not cell.scatters]
        return [(cell, changed[cell.stands]) if cell.stands in changed else (cell,) for cell in cells]

    def in_turns(self) -> InBlock:
        """The loop with cells in the arrays of those that no later phase of the round reads."""
        last: dict[Instruction, int] = {}
        for number, phase in enumerate(self.phases):
            for cell in phase:
                last.update(dict.fromkeys(below(cell.value, self.round), number))
        lasting = self.read_late
        arrays = [[cell] for cell in self.kept]
        free: list[list[StoredValue]] = []
        for number, phase in enumerate(self.phases):
            free = [
                a
                for a in arrays[len(self.kept) :]
                if a[-1].stands not in lasting and last.get(a[-1].stands, number) < number
            ]
            for cell in (c for c in phase if not c.passes):
                array = next((a for a in free if a[0].value.shape.type == cell.value.shape.type), None)
                if cell.scatters:
                    next(a for a in arrays if a[-1].stands is cell.value.operands[0]).append(cell)
                elif array is None:
                    arrays.append([cell])
                else:
                    free.remove(array)
                    array.append(cell)
        return replace(self, turns=tuple(map(tuple, arrays)))

    @property
    def block(self) -> int:
        """Threads: one for each element of the largest cell, or for each thread of its teams, up to the limit; whole
        teams."""
        most = max([1, *(cell.value.shape.element_count * cell.team.ways for cell in self.cells)])
        return min(BLOCK, round_up(most, max([WARP, *(cell.team.size for cell in self.cells)])))

    def segment(self, block: int) -> Segment[InBlock]:
        """One block, alone in its launch."""
        meets = any(cell.scatters and not cell.in_order for cell in self.cells)
        return Segment(self, 1, aliases=self.aliases, own=tuple(n for n, _ in self.aliases), meets=meets)

    @property
    def held(self) -> frozenset[Instruction]:
        """The round's parameters for what is in shared memory, and for counters."""
        return frozenset({*(v.parameter for v in self.values), *(cell.stands for cell in (*self.kept, *self.cells))})

    def shared_bytes(self, block: int) -> int:
        """Bytes of the state, the cells, and the partial results of teams."""
        kept = [v.parameter.shape for v in self.state]
        kept += [largest(array) for array in self.arrays]
        parts = sum(cell.team.places(block) * cell.part_bytes for cell in self.cells)
        return parts + sum(round_up(shape.element_count * shape.type.bytes, 16) for shape in kept)


def largest(array: Sequence[StoredValue]) -> Shape:
    """The shape of the largest of the cells that are in an array."""
    return max((cell.value.shape for cell in array), key=lambda shape: shape.element_count)


def walks(region: Region, segment: Segment[InBlock], launch: Launch) -> list[Walk]:
    """The walks over the initial and the final state, over the operands that rounds read, over the cells of each phase,
    with a barrier, and over the results."""
    part, block = segment.part, launch.block
    walks = [_over(v.parameter.shape, block, [v.initial], v.number in part.numbers) for v in part.state]
    walks += [_over(r.update.shape, block, [r.before], True) for r in part.results if r.before is not None]
    walks += [_over(cell.value.shape, block, [cell.value], False) for cell in part.kept]
    near = sum(i.shape.element_count * i.shape.type.bytes for i in part.read) <= NEAR
    walks += [_over(i.shape, block, [i], False, 1 if near else part.rounds) for i in part.read]
    for phase in part.phases:
        walks += [_of_cell(part, cell, block, near=near, barriers=not number) for number, cell in enumerate(phase)]
    walks += _copies(part, block)
    for number, result in enumerate(part.results):
        size = result.window.element_count
        step = variable("step", part.rounds)
        place = place_in(result.window, modulo(variable(THREAD, block), size))
        at = tuple(
            e if whole == window else modulo(add(e, step), whole)
            for e, whole, window in zip(place, result.update.shape.dimensions, result.window.dimensions, strict=True)
        )
        rounds = part.rounds * -(-size // block)
        walks.append(
            Walk(
                min(block, size),
                (),
                [(result.update.shape, at)],
                places={"step": modulo(variable(ROUND, rounds), part.rounds)},
                rounds=rounds,
                barriers=part.rounds * (part.lasting and not number),
                hops=part.rounds,
                registers=1,
            )
        )
    return walks


def _of_cell(part: InBlock, cell: StoredValue, block: int, *, near: bool, barriers: bool) -> Walk:
    """The walk over the elements of a cell, and over the terms of each where operands of the loop are among them.

    near      whether L1 keeps these
    barriers  whether it includes the phase's barrier
    """
    if cell.scatters:
        return _of_updates(part, cell, block, near=near, barriers=barriers)
    shape, team = cell.value.shape, cell.team
    size, at_a_time = shape.element_count, block // team.ways
    elements, terms = -(-size // at_a_time), -(-cell.terms // team.ways)
    element, along = variable("element", size), variable("along", cell.terms)
    read = [(cell.value.operands[n], at) for n, at in cell.terms_read(place_in(shape, element), along)]
    wanted = [(value, at) for value, at in read if _is_read(part, value)] if cell.terms > 1 else []
    steps = terms if wanted else 1
    own, step = variable(THREAD, block), variable(ROUND, elements * steps)
    place = add(multiply(divide(step, steps), at_a_time), team.element(own))
    term = add(multiply(modulo(step, steps), team.ways), team.way(own))
    alone = -(-elements // AHEAD) if team.ways == 1 else elements  # a thread's other elements are under way with these
    return Walk(
        min(block, round_up(size, team.apart) * team.ways),
        wanted,
        places={"element": modulo(place, size), "along": modulo(term, cell.terms)},
        rounds=elements * steps,
        body=cell.work * (1 / (team.ways * steps)),
        steps=-(-cell.serial * alone // (team.ways * elements * steps)),
        ahead=TERMS_AHEAD if wanted else AHEAD,
        barriers=barriers + 2 * elements * team.meets,
        shuffles=elements * team.shuffles,
        shared=(1.0 + (2.0 - len(wanted)) * terms) / steps,
        hops=barriers + elements * team.meets,
        registers=1,
        times=part.rounds,
        near=frozenset(part.read) if near else frozenset(),
        known=part.held,
        origins=part.origins,
    )


def _of_updates(part: InBlock, cell: StoredValue, block: int, *, near: bool, barriers: bool) -> Walk:
    """The walk over the updates of a scatter."""
    form = ScatterForm(cell.value)
    updates = cell.value.operands[2].shape
    size = updates.element_count
    threads = 1 if cell.in_order else min(block, max(1, math.prod(form.space)))
    rounds, place = max(1, -(-size // threads)), variable("place", size)
    own = add(multiply(variable(ROUND, rounds), threads), variable(THREAD, threads))
    at = place_in(updates, place)
    batch = tuple(e for d, e in enumerate(at) if d not in form.dimensions.offset_dims)
    wanted = [(cell.value.operands[1], window) for window in places_of_starts(form, batch)]
    is_swap = form.updates[0] is Update.SWAP
    return Walk(
        threads,
        [*wanted, (cell.value.operands[2], at)],
        places={"place": own if rounds * threads == size else modulo(own, size)},
        rounds=rounds,
        body=of_body(form.combiner),
        steps=CHANGE * (2 if is_swap and not cell.in_order else 1),
        barriers=barriers,
        shared=2.0,
        hops=barriers,
        registers=1,
        times=part.rounds,
        near=frozenset(part.read) if near else frozenset(),
        known=part.held,
        origins=part.origins,
    )


def _is_read(part: InBlock, value: Instruction) -> bool:
    """Whether a folded value is an operand of the loop, or elements of one, and nothing is computed for it."""
    inside = below(value, part.round) if value.parent is part.round else []
    reads = {value, *(o for i in inside for o in i.operands)}
    return not reads.isdisjoint(part.read) and not any(of_value(i).slots for i in inside)


def _copies(part: InBlock, block: int) -> Iterator[Walk]:
    """The walks that copy the new state over the old one, or what is new of it."""
    shapes = [*(update.window for update in part.updates), *(value.parameter.shape for value in part.copied)]
    for number, shape in enumerate(shapes):
        size = shape.element_count
        yield Walk(
            min(block, size),
            (),
            rounds=-(-size // block),
            barriers=int(not number),
            hops=int(not number),
            shared=2.0,
            registers=1,
            times=part.rounds,
        )


def _over(shape: Shape, block: int, read: Sequence[Instruction], is_written: bool, times: int = 1) -> Walk:
    """The walk over all elements of an array, `times` times."""
    size = shape.element_count
    rounds = -(-size // block)
    place = variable("place", size)
    at = place_in(shape, place)
    own = add(multiply(modulo(variable(ROUND, rounds * times), rounds), block), variable(THREAD, min(block, size)))
    return Walk(
        min(block, size),
        [(i, at) for i in read if i.shape == shape],
        [(shape, at)] if is_written else (),
        places={"place": own if size % block == 0 or size < block else modulo(own, size)},
        registers=1,
        rounds=rounds * times,
    )
