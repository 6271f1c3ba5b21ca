"""The plan of a `while` in one block: its threads run all rounds together, with the state in shared memory (see
`hlo_opt.plans.phases`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from hlo_opt.analysis.memory.forms import round_up
from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir.index_map import add, modulo, multiply, variable
from hlo_opt.plans.columns import WARP
from hlo_opt.plans.phases import Cell, Phases, place_in
from hlo_opt.plans.plan import Launch, Region, Segment
from hlo_opt.plans.walks import ROUND, THREAD, Walk

BLOCK = 512
"""Limit of threads of the block."""
NEAR = 80 * 1024
"""Bytes of operands that L1 keeps from round to round: it has 128 KB on a V100, and more since, less the shared memory
of the block."""


@dataclass(frozen=True)
class InBlock(Phases):
    """A loop in one block."""

    kind: ClassVar[str] = "block-loop"

    @property
    def block(self) -> int:
        """Threads: one for each element of the largest cell, or for each thread of its teams, up to the limit; whole
        teams."""
        most = max([1, *(cell.value.shape.element_count * cell.team.ways for cell in self.cells)])
        return min(BLOCK, round_up(most, max([WARP, *(cell.team.size for cell in self.cells)])))

    def segment(self, block: int) -> Segment[InBlock]:
        """One block, alone in its launch."""
        return Segment(self, 1, aliases=self.aliases, own=tuple(n for n, _ in self.aliases))

    def shared_bytes(self, block: int) -> int:
        """Bytes of the state, the cells, and the partial results of teams."""
        kept = [v.parameter.shape for v in self.state]
        kept += [cell.value.shape for cell in self.cells]
        parts = sum(cell.team.places(block) * cell.part_bytes for cell in self.cells)
        return parts + sum(round_up(shape.element_count * shape.type.bytes, 16) for shape in kept)


def walks(region: Region, segment: Segment[InBlock], launch: Launch) -> list[Walk]:
    """The walks over the initial and the final state, over the operands that rounds read, over the cells of each phase,
    with a barrier, and over the results."""
    part, block = segment.part, launch.block
    walks = [_over(v.parameter.shape, block, [v.initial], v.number in part.numbers) for v in part.state]
    walks += [_over(r.update.shape, block, [r.before], True) for r in part.results if r.before is not None]
    near = sum(i.shape.element_count * i.shape.type.bytes for i in part.read) <= NEAR
    walks += [_over(i.shape, block, [i], False, 1 if near else part.rounds) for i in part.read]
    for phase in part.phases:
        for number, cell in enumerate(phase):
            walks.append(_of_cell(cell, block, part.rounds, barriers=not number))
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
                registers=1,
            )
        )
    return walks


def _of_cell(cell: Cell, block: int, trips: int, *, barriers: bool) -> Walk:
    """The walk over the elements of a cell. `barriers` says whether it includes the phase's barrier."""
    size, team = cell.value.shape.element_count, cell.team
    rounds = -(-size // (block // team.ways))
    return Walk(
        min(block, size * team.ways),
        (),
        rounds=trips * rounds,
        body=cell.work * (1 / team.ways),
        steps=-(-cell.serial // team.ways),
        barriers=trips * (barriers + 2 * rounds * team.meets),
        shuffles=trips * rounds * team.shuffles,
        shared=1.0 + 2.0 * cell.terms / team.ways,
        registers=1,
    )


def _copies(part: InBlock, block: int) -> Iterator[Walk]:
    """The walks that copy the new state over the old one."""
    for number, value in enumerate(part.state):
        size = value.parameter.shape.element_count
        yield Walk(
            min(block, size),
            (),
            rounds=part.rounds * -(-size // block),
            barriers=part.rounds * (not number),
            shared=2.0,
            registers=1,
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
