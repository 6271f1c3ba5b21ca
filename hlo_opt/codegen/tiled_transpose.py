"""The emitter of tiled-transpose plans: fill tiles in the order of the operand, wait, write them in the order of the
result."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.indices import only_first, thread_of, tile_of
from hlo_opt.codegen.scalars import loaded, memory_type, stored
from hlo_opt.codegen.tree import Barrier
from hlo_opt.codegen.vectors import Targets, fills_bytes
from hlo_opt.ir import Instruction
from hlo_opt.ir.index_map import Condition, Expression, Variable, add, constant, divide, modulo, multiply
from hlo_opt.ops.code import Code, Name, both, call, cell, code, of
from hlo_opt.ops.movement.memory import physical_index
from hlo_opt.plans.plan import Plan, Segment
from hlo_opt.plans.tiled_transpose import BLOCK, Tiles, TransposeFrame, index_in, source_of, written_after

STRIP, SHORT = 8, 4
"""The most tiles side by side in a strip, and how many times that where the result's rows are no more tiles long than
that: blocks then return to pages soon in wide strips, too, which read longer rows (0231 of bf16 on an H200)."""


def emit(builder: Builder, plan: Plan, segment: Segment[Tiles], first_block: int, targets: Targets) -> None:
    """A block moves one tile of each transpose."""
    frame = segment.part.frame
    only_first(builder, BLOCK, plan.launch.block)
    corner = _corner(builder, first_block, segment.blocks, frame)
    line = builder.declare("line", divide(thread_of(BLOCK), frame.lanes))
    lane = builder.declare("lane", modulo(thread_of(BLOCK), frame.lanes))
    tables: dict[Instruction, Name] = {}
    cells = frame.side * (frame.side + 1) * frame.width
    for transpose in segment.part.tiled:
        kind = memory_type(transpose.shape.type)
        tables[transpose] = builder.array(kind, builder.numbered("tile"), cells, shared=True)
    after = written_after(plan.region, segment.part)

    def fill(places: Sequence[Sequence[Expression]], cells: Sequence[Code]) -> None:
        assignments = []
        for at, of_cell in zip(places, cells, strict=True):
            place = frame.operand_place(at)
            for transpose, table in tables.items():
                source = source_of(transpose)
                value = builder.value(source, physical_index(source.shape, place))
                assignments.append((cell(table, of_cell), stored(transpose.shape.type, value)))
        for target, value in assignments:
            builder.assign(target, value)
        _write(
            [n for n in segment.roots if n not in after],
            [frame.operand_place(at) for at in places],
            places[0][frame.near],
        )

    def drain(places: Sequence[Sequence[Expression]], cells: Sequence[Code]) -> None:
        for at, of_cell in zip(places, cells, strict=True):
            for transpose, table in tables.items():
                builder.name_after(transpose)
                name = builder.bind_exact(transpose.shape.type, loaded(transpose.shape.type, cell(table, of_cell)))
                builder.provide(transpose, None, index_in(frame, transpose, at), name)
        _write(
            [n for n in segment.roots if n in after], [frame.result_place(at) for at in places], places[0][frame.far]
        )

    def _write(numbers: Sequence[int], places: Sequence[Expression], first: Expression) -> None:
        """Write outputs at neighbouring places; `first` is the coordinate of the first along their dimension."""
        for number in numbers:
            root, (pointer, shape) = plan.region.roots[number], targets[number][0]
            indices = [physical_index(shape, place) for place in places]
            values = [
                builder.element(root, 0, index) if root.shape.is_tuple else builder.value(root, index)
                for index in indices
            ]
            if frame.vector == 1:
                builder.store(pointer, shape, indices[0], values[0])
                continue
            if isinstance(first, Variable) and fills_bytes(builder, shape, indices[0], first, frame.vector):
                bits = builder.array(memory_type(shape.type), builder.numbered("bits"), frame.vector)
                for k, value in enumerate(values):
                    builder.assign(cell(bits, k), stored(shape.type, value))
                builder.do(call(f"hlo_fill<{shape.type.bits}>", pointer, builder.address(shape, indices[0]), bits))
                continue
            kind = memory_type(shape.type)  # compute all before the first write, so that the writes can be joined
            computed_values = [of(builder.let(kind, "made", stored(shape.type, value))) for value in values]
            for name, index in zip(computed_values, indices, strict=True):
                builder.put(pointer, shape, index, name)

    side, vector = frame.side, frame.vector
    for along, work in ((frame.near, fill), (frame.far, drain)):
        across = frame.far if along == frame.near else frame.near
        if work is drain:
            builder.add(Barrier())
        builder.advise("unroll")
        with builder.loop(side * side * frame.width // (BLOCK * vector)) as step:
            row = add(multiply(step, BLOCK // frame.lanes), line)
            column: Expression = multiply(lane, vector)
            kept: Expression = constant(0)
            if frame.width > 1:
                element = add(multiply(row, frame.lanes), lane)
                row = divide(element, frame.lanes * frame.width)
                column = divide(modulo(element, frame.lanes * frame.width), frame.width)
                kept = modulo(element, frame.width)
            inside = {along: column, across: row}
            at, conditions = _position(builder, frame, corner, inside, kept, along)
            near, far = inside[frame.near], inside[frame.far]
            here = add(multiply(far, (side + 1) * frame.width), add(multiply(near, frame.width), kept))
            apart = 1 if along == frame.near else side + 1  # distance of a thread's elements, in cells
            with builder.branch(Code(both(*conditions).pieces, says=tuple(s for c in conditions for s in c.says))):
                places = [
                    [add(e, constant(k)) if d == along and k else e for d, e in enumerate(at)] for k in range(vector)
                ]
                work(places, [builder.text(add(here, constant(k * apart))) for k in range(vector)])


def _corner(builder: Builder, first_block: int, blocks: int, frame: TransposeFrame) -> list[Expression]:
    """The tile that a block moves, along each dimension.

    Blocks follow strips a few tiles wide: their writes then touch few pages of memory, and return to each soon.
    """
    tiles = frame.tiles
    most = STRIP * (SHORT if tiles[frame.far] <= SHORT else 1)
    wide = max(d for d in range(1, most + 1) if tiles[frame.near] % d == 0)
    others = [size for d, size in enumerate(tiles) if d != frame.near]
    strip, *corner, inside = tile_of(builder, first_block, blocks, [tiles[frame.near] // wide, *others, wide])
    corner.insert(frame.near, add(multiply(strip, wide), inside))
    return corner


def _position(
    builder: Builder,
    frame: TransposeFrame,
    corner: Sequence[Expression],
    inside: dict[int, Expression],
    kept: Expression,
    along: int,
) -> tuple[list[Expression], list[Code]]:
    """The index of a thread's first element in the tile, and the conditions that it lies inside the operand."""
    at: list[Expression] = []
    conditions: list[Code] = []
    for d, size in enumerate(frame.sizes):
        if d not in inside:
            at.append(kept if frame.width > 1 and d == len(frame.sizes) - 1 else corner[d])
            continue
        here = builder.declare_index("at", add(multiply(corner[d], frame.side), inside[d]))
        if size % frame.side and isinstance(here, Variable):
            inside_size = Condition(here, 0, size - 1)
            conditions.append(Code(code("{} < {}", here, size).pieces, says=(inside_size,)))
            here = Variable(0, size - (frame.vector if d == along else 1), here.name)
        at.append(here)
    return at, conditions
