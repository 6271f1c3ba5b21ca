"""The emitter of sorts in global memory: number the places of a line, order them step by step, write every operand in that order."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.scalars import loaded
from hlo_opt.codegen.sort import is_before
from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir.index_map import Variable, add, delinearize, multiply
from hlo_opt.ops.lowering import Index
from hlo_opt.plans.long_sort import LongLines
from hlo_opt.plans.plan import Plan, Segment
from hlo_opt.plans.sort import operands_of


def emit(
    builder: Builder, plan: Plan, segment: Segment, first_block: int, targets: Sequence[Sequence[tuple[str, Shape]]]
) -> None:
    """The only segment of its launch: `first_block` is 0, and a block's number is that of its line."""
    count, length = segment.space
    lines = LongLines(segment.hero, segment.roots, count, length, segment.rows_per_block)
    (places,) = plan.scratch_names
    if lines.lines > 1:
        builder.line("const int line = blockIdx.x;")
    with builder.block(f"for (int place = threadIdx.x; place < {length}; place += {lines.block})"):
        builder.assign(f"{places}[{_cell(builder, lines, 'cell', 'place')}]", "place")
    builder.line("__syncthreads();")
    with (
        builder.block(f"for (int size = 2; size <= {2 * lines.pairs}; size *= 2)"),
        builder.block("for (int step = size / 2; step > 0; step /= 2)"),
    ):
        builder.line("const int mask = step == size / 2 ? size - 1 : step;  // mirrored, then step apart")
        with builder.block(f"for (int pair = threadIdx.x; pair < {lines.pairs}; pair += {lines.block})"):
            builder.line("const int first = 2 * pair - (pair & (step - 1));")
            builder.line("const int second = first ^ mask;")
            with builder.branch(f"second < {length}"):
                _exchange(builder, lines, places)
        builder.line("__syncthreads();")
    with builder.block(f"for (int rank = threadIdx.x; rank < {lines.kept}; rank += {lines.block})"):
        builder.line(f"const int source = {places}[{_cell(builder, lines, 'cell', 'rank')}];")
        hero = lines.hero
        for k, pointer, shape in operands_of(hero, targets[0]):
            taken = "source"
            if k < len(hero.operands):
                taken = builder.where(
                    hero.operands[k], _index(lines, hero.operands[k].shape, Variable(0, length - 1, "source"))
                )
            at = _index(lines, shape, Variable(0, lines.kept - 1, "rank"))
            builder.put(pointer, shape, at, taken)


def _cell(builder: Builder, lines: LongLines, name: str, place: str) -> str:
    """The cell of a place in the memory of all lines' places."""
    if lines.lines == 1:
        return place
    line = Variable(0, lines.lines - 1, "line")
    made = builder.declare_index(name, add(multiply(line, lines.length), Variable(0, lines.length - 1, place)))
    assert isinstance(made, Variable)
    return made.name


def _index(lines: LongLines, shape: Shape, along: Variable) -> Index:
    """The index of an element of the block's line. Lines are counted in the order of the first operand's memory."""
    rest = [d for d in lines.hero.operands[0].shape.minor_to_major[::-1] if d != lines.along]
    line = Variable(0, lines.lines - 1, "line")
    parts = dict(zip(rest, delinearize(line, [shape.dimensions[d] for d in rest]), strict=True))
    return tuple(along if d == lines.along else parts[d] for d in range(shape.rank))


def _exchange(builder: Builder, lines: LongLines, places: str) -> None:
    """Bring the elements at two places of a line into order."""
    cells = [_cell(builder, lines, name, place) for name, place in (("low", "first"), ("high", "second"))]
    sides: tuple[dict[int, str], dict[int, str]] = ({}, {})
    for cell, of in zip(cells, ("low", "high"), strict=True):
        builder.line(f"const int place_{of} = {places}[{cell}];")
    for number in lines.compared:
        operand = lines.hero.operands[number]
        for side, of in zip(sides, ("low", "high"), strict=True):
            along = Variable(0, lines.length - 1, f"place_{of}")
            side[number] = _element(builder, operand, _index(lines, operand.shape, along), of)
    condition = is_before(builder, lines, sides[1], sides[0])
    if not lines.breaks_ties:
        condition += f" || (!{is_before(builder, lines, *sides)} && place_high < place_low)"
    with builder.branch(condition):
        builder.assign(f"{places}[{cells[0]}]", "place_high")
        builder.assign(f"{places}[{cells[1]}]", "place_low")


def _element(builder: Builder, operand: Instruction, index: Index, of: str) -> str:
    builder.name_after(operand)
    return builder.bind_exact(operand.shape.type, loaded(operand.shape.type, builder.where(operand, index)))
