"""The emitter of loops in one block: the phases of a round one after another, with the state and the cells in shared memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.index_text import index_type
from hlo_opt.codegen.indices import thread_of
from hlo_opt.codegen.lane_loop import counted
from hlo_opt.codegen.scalars import memory_type
from hlo_opt.codegen.tree import Barrier, Break
from hlo_opt.codegen.vectors import Targets
from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir.index_map import Expression, Variable, add, constant
from hlo_opt.ops.code import Name, code
from hlo_opt.ops.indexing.table import clamped_starts
from hlo_opt.ops.lowering import Index
from hlo_opt.plans.block_loop import InBlock
from hlo_opt.plans.lane_loop import Results
from hlo_opt.plans.phases import place_in
from hlo_opt.plans.plan import Plan, Segment


def emit(builder: Builder, plan: Plan, segment: Segment[InBlock], first_block: int, targets: Targets) -> None:
    """One block, alone in its launch."""
    part, block = segment.part, plan.launch.block
    pointers = {number: targets[root][0][0] for number, root in zip(part.numbers, part.roots, strict=True)}
    for value in part.state:
        _shared(builder, value.taken, "state")
    for phase in part.phases:
        for cell in phase:
            _shared(builder, cell.stands, "cell")
    for value in part.state:
        _each(builder, block, value.taken.shape, builder.pointer(value.taken), value.given)
    for result in part.results:
        if result.before is not None:
            _each(builder, block, result.update.shape, pointers[result.number], result.before)
    builder.add(Barrier())
    with builder.for_ever() if part.trips is None else builder.loop(part.trips) as round_:
        _round(builder, part, block, pointers, round_)
    for value in part.state:
        if value.number in pointers:
            _each(builder, block, value.taken.shape, pointers[value.number], value.taken)
    for value in part.values:
        if value.counts is not None and value.number in pointers:
            with _element(builder, block, value.taken.shape) as index:
                builder.store(
                    pointers[value.number], value.taken.shape, index, counted(value, constant(part.trips or 0), builder)
                )


def _shared(builder: Builder, stands: Instruction, stem: str) -> None:
    """An array of the block, where what stands for it is read."""
    kind = stands.shape.type
    name = builder.array(memory_type(kind), builder.numbered(stem), stands.shape.element_count, shared=True, alignment=16)  # fmt: skip
    builder.point(stands, name)


def _round(builder: Builder, part: InBlock, block: int, pointers: dict[int, Name], round_: Expression | None) -> None:
    for phase in part.phases:
        for cell in phase:
            _each(
                builder,
                block,
                cell.stands.shape,
                builder.pointer(cell.stands),
                cell.value,
                lambda: _count(builder, part, round_),
            )
        builder.add(Barrier())
    if part.test is not None:
        builder.add(Break(code("!{}", builder.held(builder.pointer(part.test), part.test.shape, ()))))
    for result in part.results:
        _write(builder, part, block, result, pointers[result.number], round_)
    if part.lasting:
        builder.add(Barrier())
    for value in part.state:
        _each(builder, block, value.taken.shape, builder.pointer(value.taken), value.made)
    builder.add(Barrier())


def _count(builder: Builder, part: InBlock, round_: Expression | None) -> None:
    """The counters in a round."""
    for value in part.values:
        if value.counts is not None and round_ is not None:
            builder.name_after(value.taken)
            builder.provide(value.taken, None, (), counted(value, round_, builder))


def _write(
    builder: Builder, part: InBlock, block: int, result: Results, pointer: Name, round_: Expression | None
) -> None:
    """What a round writes of an array of results."""
    with _element(builder, block, result.window) as index:
        _count(builder, part, round_)
        start = clamped_starts(builder, result.update, 2, result.window.dimensions)
        there = tuple(add(s, e) for s, e in zip(start, index, strict=True))
        builder.store(pointer, result.update.shape, there, builder.value(result.update.operands[1], index))


def _each(
    builder: Builder,
    block: int,
    shape: Shape,
    pointer: Name,
    value: Instruction,
    before: Callable[[], None] | None = None,
) -> None:
    """Write all elements of an array of that shape, shared out among the threads. `before` provides what each needs."""
    with _element(builder, block, shape) as index:
        if before is not None:
            before()
        builder.store(pointer, shape, index, builder.value(value, index))


@contextmanager
def _element(builder: Builder, block: int, shape: Shape) -> Iterator[Index]:
    """A thread's elements of an array, one after another."""
    size = shape.element_count
    place = Variable(0, size - 1, builder.names.fresh("place"))
    with builder.walk(index_type(Variable(0, size + block, "")), place, thread_of(block), size, block):
        yield place_in(shape, place)
