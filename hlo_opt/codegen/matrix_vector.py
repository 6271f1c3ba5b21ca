"""The emitter of matrix-vector products: each thread sums a part of a column, then some threads combine the parts and
write the epilogue."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.indices import named, thread_of, tile_of
from hlo_opt.codegen.matmul import inside, write
from hlo_opt.codegen.scalars import loaded, memory_type, stored, zero
from hlo_opt.codegen.statements import THREAD
from hlo_opt.codegen.tree import Barrier
from hlo_opt.codegen.vectors import Store, Targets, each_element
from hlo_opt.ir import Shape
from hlo_opt.ir.index_map import Expression, add, constant, divide, modulo, multiply
from hlo_opt.ops.code import NOTHING, Code, cell, code
from hlo_opt.ops.contraction.table import sum_type, summed
from hlo_opt.plans.columns import WARP
from hlo_opt.plans.matrix_vector import Strips
from hlo_opt.plans.plan import Plan, Segment
from hlo_opt.plans.products import BLOCK


def emit(builder: Builder, plan: Plan, segment: Segment[Strips], first_block: int, targets: Targets) -> None:
    """Emit the only segment of the launch: `first_block` is 0."""
    strips = segment.part
    space, along = strips.space, strips.along
    hero, wide = space.hero, sum_type(space.hero.shape.type)
    _, rows, columns, _ = space.sizes
    parts = builder.array(memory_type(wide), builder.fresh("parts"), strips.cells, shared=True)
    batch, corner = tile_of(builder, 0, segment.blocks, strips.blocks)
    start = multiply(corner, strips.columns)
    own: Expression = builder.declare("line", divide(thread_of(BLOCK), WARP))
    way: Expression = builder.declare("lane", modulo(thread_of(BLOCK), WARP))
    own, way = (own, way) if along else (way, own)
    sums = []
    for _ in range(rows):
        builder.name_after(hero)
        sums.append(builder.variable(wide, zero(wide)))
    column, condition = inside(builder, "column", add(start, own), columns)
    with builder.branch(condition):
        _add_up(builder, strips, (batch, column, way), sums)
    first_cell = add(multiply(own, rows * (strips.ways + 1)), way)
    shape = Shape(wide, (strips.cells,))
    for row, total in enumerate(sums):
        at = builder.address(shape, (add(first_cell, constant(row * (strips.ways + 1))),))
        builder.assign(cell(parts, at), stored(wide, total))
    builder.add(Barrier())
    cells = strips.columns * rows
    with builder.branch(code("{} < {}", THREAD, cells) if cells < BLOCK else NOTHING):
        element = builder.declare_index("element", thread_of(cells))
        row_number = named(builder, divide(element, strips.columns))
        own = named(builder, modulo(element, strips.columns))
        column, condition = inside(builder, "place", add(start, own), columns)
        with builder.branch(condition):
            builder.name_after(hero)
            total = builder.variable(wide, zero(wide))
            first = multiply(add(multiply(own, rows), row_number), strips.ways + 1)
            with builder.loop(strips.ways) as way:
                at = builder.address(shape, (add(first, way),))
                part = builder.bind_exact(wide, loaded(wide, cell(parts, at)))
                builder.assign(total, summed(hero.shape.type, total, part, code("1")))  # each part times 1
            write(builder, plan, segment, space.index(batch, row_number, column), total, targets)


def _add_up(
    builder: Builder, strips: Strips, at: tuple[Expression, Expression, Expression], sums: Sequence[Code]
) -> None:
    """Accumulate every `ways`-th vector of contracted elements of a column. `at` is (batch, column, number of the
    thread in it)."""
    batch, column, way = at
    space, vector = strips.space, strips.vector
    vectors = space.sizes[3] // vector
    sides = [space.hero.operands[space.operand_of(side)] for side in (0, 1)]
    with builder.loop(-(-vectors // strips.ways)) as step:
        part, condition = inside(builder, "part", add(multiply(step, strips.ways), way), vectors)

        def place(builder: Builder, number: Expression) -> Expression:
            return builder.declare_index("deep", add(multiply(part, vector), number))

        def compute(builder: Builder, deep: Expression, _: Expression) -> Sequence[Store]:
            large = builder.value(sides[1], space.operand_index(1, batch, column, deep))
            for row, total in enumerate(sums):
                small = builder.value(sides[0], space.operand_index(0, batch, constant(row), deep))
                builder.assign(total, summed(space.hero.shape.type, total, small, large))
            return []

        with builder.branch(condition):
            if vector > 1:
                each_element(builder, vector, place, compute)
            else:
                compute(builder, part, constant(0))
