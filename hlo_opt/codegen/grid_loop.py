"""The emitter of loops over the whole grid: the phases of each iteration in order, with state and cells in the launch's
memory.

Counted iterations come in pairs with double-buffered state: the first of a pair writes the second buffer of a state
value, the second reads it and writes the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.indices import block_of, thread_of
from hlo_opt.codegen.phases import Crew, count, meeting_places
from hlo_opt.codegen.tree import Break, GridBarrier, Kept
from hlo_opt.codegen.vectors import Targets
from hlo_opt.ir import Instruction
from hlo_opt.ir.index_map import Constant, Expression, add, constant, multiply
from hlo_opt.ops.code import NOTHING, Name, code, negated
from hlo_opt.plans.grid_loop import InGrid
from hlo_opt.plans.phases import StoredValue
from hlo_opt.plans.plan import Plan, Segment


def emit(builder: Builder, plan: Plan, segment: Segment[InGrid], first_block: int, targets: Targets) -> None:
    """Emit all blocks of the launch."""
    part, block = segment.part, plan.launch.block
    pointers = {number: targets[root][0][0] for number, root in zip(part.numbers, part.roots, strict=True)}
    arrived = builder.numbered("arrived")
    builder.tables.append(Kept("unsigned int", arrived, 1))
    place = add(multiply(block_of(first_block, part.blocks), block), thread_of(block))
    crew = Crew(part.threads, builder.declare("own", place), place, block, late=True)
    loop = _Loop(builder, part, crew, pointers, GridBarrier(arrived), *_memory(plan, part))
    loop.begin()
    loop.rounds()
    loop.crew.finish(builder, part, pointers)


def _memory(plan: Plan, part: InGrid) -> tuple[dict[Instruction, Name], dict[Instruction, Name]]:
    """The memory of the state in the first iteration, and of all cells: those written before it, and in it."""
    names = iter(map(Name, plan.scratch_names))
    state = {v.parameter: next(names) for v in part.state}
    return state, {computed.stands: next(names) for computed in (*part.kept, *part.stored)}


@dataclass(frozen=True)
class _Loop:
    """The loop: its threads, output pointers, grid barrier, and the memory of state and cells in the first
    iteration."""

    builder: Builder
    part: InGrid
    crew: Crew
    pointers: Mapping[int, Name]
    meeting: GridBarrier
    state: Mapping[Instruction, Name]
    cells: Mapping[Instruction, Name]

    def begin(self) -> None:
        """Write the initial state, and the initial contents of results."""
        for value in self.part.state:
            self.crew.each(self.builder, value.parameter.shape, self.state[value.parameter], value.initial)
        for computed in self.part.kept:
            name = self.cells[computed.stands]
            self.crew.each(self.builder, computed.value.shape, name, computed.value)
            self.builder.point(computed.stands, name)
        for result in self.part.results:
            if result.before is not None:
                self.crew.each(self.builder, result.update.shape, self.pointers[result.number], result.before)
        self.builder.add(self.meeting)

    def rounds(self) -> None:
        """Emit all iterations; then the state is where the last one left it."""
        trips, builder = self.part.trips, self.builder
        places = meeting_places(builder, self.part, self.crew.block)
        if trips is None:
            with builder.for_ever():
                self.uncounted(places)
            return
        with builder.loop(-(-trips // 2)) as pair:
            self.round(multiply(pair, 2), False, places)
            if trips > 1:
                second = add(multiply(pair, 2), constant(1))
                is_last = trips % 2 == 1 and not isinstance(pair, Constant)
                with builder.branch(code("{} < {}", pair, trips // 2) if is_last else NOTHING):
                    self.round(second, True, places)
        self.turn(trips % 2 == 1)

    def uncounted(self, places: Mapping[StoredValue, Name]) -> None:
        """An iteration of unknown trip count: only cells are written before the test, and the state is copied instead
        of double-buffered."""
        builder, part = self.builder, self.part
        self.turn(False)
        for phase in part.phases:
            self.crew.phase(builder, part, phase, places, lambda: None)
            builder.add(self.meeting)
        if part.test is not None:
            builder.add(Break(negated(builder.stored_element(builder.pointer(part.test), part.test.shape, ()))))
        for result in part.results:
            self.crew.write(builder, part, result, self.pointers[result.number], None)
        if part.lasting:
            builder.add(self.meeting)
        for value in part.state:
            self.crew.each(builder, value.parameter.shape, builder.pointer(value.parameter), value.result)
        builder.add(self.meeting)

    def turn(self, is_second: bool) -> None:
        """Read and write the state in the buffers of the first or second iteration of a pair."""
        for computed in self.part.stored:
            self.builder.point(computed.stands, self.cells[computed.stands])
        for value in self.part.state:
            here, there = self.state[value.parameter], self.cells[value.result]
            self.builder.point(value.parameter, there if is_second else here)
            self.builder.point(value.result, here if is_second else there)

    def round(self, number: Expression, is_second: bool, places: Mapping[StoredValue, Name]) -> None:
        """Emit one counted iteration."""
        builder, part = self.builder, self.part
        self.turn(is_second)
        for step, phase in enumerate(part.phases):
            self.crew.phase(builder, part, phase, places, lambda: count(builder, part, number))
            self.write(step, number)
            builder.add(self.meeting)
        self.write(len(part.phases), number)
        if part.waits:
            builder.add(self.meeting)

    def write(self, phase: int, number: Expression) -> None:
        """Write the results of a phase."""
        for result in self.part.results:
            if self.part.written_in(result) == phase:
                self.crew.write(self.builder, self.part, result, self.pointers[result.number], number)
