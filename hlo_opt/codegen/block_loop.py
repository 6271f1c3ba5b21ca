"""The emitter of loops in one block: the phases of each iteration in order, with state and cells in shared memory."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.indices import thread_of
from hlo_opt.codegen.phases import Crew, count, meeting_places
from hlo_opt.codegen.scalars import memory_type
from hlo_opt.codegen.tree import Barrier, Break
from hlo_opt.codegen.vectors import Targets
from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir.index_map import Expression
from hlo_opt.ops.code import Name, negated
from hlo_opt.plans.block_loop import InBlock, largest
from hlo_opt.plans.phases import StoredValue
from hlo_opt.plans.plan import Plan, Segment


def emit(builder: Builder, plan: Plan, segment: Segment[InBlock], first_block: int, targets: Targets) -> None:
    """Emit the only block of the launch."""
    part, block = segment.part, plan.launch.block
    crew = Crew(block, thread_of(block), thread_of(block), block)
    pointers = {number: targets[root][0][0] for number, root in zip(part.numbers, part.roots, strict=True)}
    for value in part.state:
        _shared(builder, value.parameter.shape, "state", [value.parameter])
    for array in part.arrays:
        _shared(builder, largest(array), "cell", [computed.stands for computed in array])
    places = meeting_places(builder, part, block)
    for value in part.state:
        crew.each(builder, value.parameter.shape, builder.pointer(value.parameter), value.initial)
    for computed in part.kept:
        crew.each(builder, computed.value.shape, builder.pointer(computed.stands), computed.value)
    for result in part.results:
        if result.before is not None:
            crew.each(builder, result.update.shape, pointers[result.number], result.before)
    builder.add(Barrier())
    with builder.for_ever() if part.trips is None else builder.loop(part.trips) as round_:
        _round(builder, part, crew, places, pointers, round_)
    crew.finish(builder, part, pointers)


def _shared(builder: Builder, shape: Shape, stem: str, stands: Sequence[Instruction]) -> None:
    """Declare a shared array for the elements of `stands`, and read them there."""
    kind = memory_type(shape.type)
    name = builder.array(kind, builder.numbered(stem), shape.element_count, shared=True, alignment=16)
    for value in stands:
        builder.point(value, name)


def _round(
    builder: Builder,
    part: InBlock,
    crew: Crew,
    places: dict[StoredValue, Name],
    pointers: dict[int, Name],
    round_: Expression | None,
) -> None:
    for phase in part.phases:
        crew.phase(builder, part, phase, places, lambda: count(builder, part, round_))
        builder.add(Barrier())
    if part.test is not None:
        builder.add(Break(negated(builder.stored_element(builder.pointer(part.test), part.test.shape, ()))))
    for result in part.results:
        crew.write(builder, part, result, pointers[result.number], round_)
    if part.lasting:
        builder.add(Barrier())
    state, before = {value.number: builder.pointer(value.parameter) for value in part.state}, None
    for update in part.updates:
        if update.number == before:  # the windows may have elements in common
            builder.add(Barrier())
        crew.write(builder, part, update, state[update.number], round_)
        before = update.number
    for value in part.copied:
        crew.each(builder, value.parameter.shape, builder.pointer(value.parameter), value.result)
    builder.add(Barrier())
