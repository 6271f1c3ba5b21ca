"""The emitter of matrix-vector products: each thread sums a part of some columns, then some threads combine the parts
and write the epilogue. Where blocks share columns, the last of them combines their sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.folds import Fold
from hlo_opt.codegen.indices import named, thread_of, tile_of
from hlo_opt.codegen.matmul import inside, write
from hlo_opt.codegen.parts import last_only, leave, meeting, part_at, reset
from hlo_opt.codegen.scalars import loaded, memory_type, register_type, stored, zero
from hlo_opt.codegen.tree import Barrier
from hlo_opt.codegen.vectors import Store, Targets, each_element
from hlo_opt.ir import Shape
from hlo_opt.ir.index_map import Expression, Variable, add, constant, delinearize, divide, modulo, multiply
from hlo_opt.ops.code import NOTHING, Code, Name, cell, code
from hlo_opt.ops.contraction.table import sum_type, summed
from hlo_opt.plans.matrix_vector import Strips
from hlo_opt.plans.plan import Plan, Segment
from hlo_opt.plans.products import BLOCK


def emit(builder: Builder, plan: Plan, segment: Segment[Strips], first_block: int, targets: Targets) -> None:
    """Emit the only segment of the launch: `first_block` is 0."""
    strips = segment.part
    space, along, width = strips.space, strips.along, strips.width
    hero, wide = space.hero, sum_type(space.hero.shape.type)
    _, rows, columns, _ = space.sizes
    parts = builder.array(memory_type(wide), builder.fresh("parts"), strips.cells, shared=True)
    batch, corner, share = tile_of(builder, 0, segment.blocks, strips.tiles)
    start = multiply(corner, strips.columns)
    near = strips.ways if along else strips.lanes
    far_number: Expression = builder.declare_index("line", divide(thread_of(BLOCK), near))
    near_number: Expression = builder.declare_index("lane", modulo(thread_of(BLOCK), near))
    own, way = (far_number, near_number) if along else (near_number, far_number)
    sums = builder.array(register_type(wide), builder.fresh("sums"), rows * width)
    for number in range(rows * width):
        builder.assign(cell(sums, number), zero(wide))
    if along:
        first, condition = inside(builder, "column", add(start, own), columns)
    else:
        first, condition = inside(builder, "strip", add(multiply(corner, strips.lanes), own), columns // width)
    with builder.branch(condition):
        _add_up(builder, strips, (batch, first), add(multiply(share, strips.ways), way), sums)
    shape, cells = Shape(wide, (strips.cells,)), strips.columns * rows
    lane_stride = strips.ways + 1
    for number in range(rows * width):
        at = add(multiply(add(own, constant(number * strips.lanes)), lane_stride), way)
        builder.assign(cell(parts, builder.address(shape, (at,))), stored(wide, cell(sums, number)))
    builder.add(Barrier())

    def of_block(element: Expression) -> Callable[[Expression], Code]:
        first = multiply(element, lane_stride)
        return lambda way: loaded(wide, cell(parts, builder.address(shape, (add(first, way),))))

    def total_of(count: int, part: Callable[[Expression], Code]) -> Code:
        builder.name_after(hero)
        total = builder.variable(wide, zero(wide))
        with builder.loop(count) as number:
            builder.assign(total, summed(hero.shape.type, total, builder.bind_exact(wide, part(number)), code("1")))
        return total  # each part times 1

    @contextmanager
    def elements() -> Iterator[tuple[Expression, Expression, Expression]]:
        """Each element of the block's columns, with its row and column. Elements that threads sum in the same register
        have neighbouring numbers."""
        with builder.loop(-(-cells // BLOCK)) as number:
            element = builder.declare_index("element", add(multiply(number, BLOCK), thread_of(BLOCK)))
            with builder.branch(code("{} < {}", element, cells) if cells % BLOCK else NOTHING):
                if isinstance(element, Variable):
                    element = Variable(0, cells - 1, element.name)
                register, own = (named(builder, e) for e in delinearize(element, (rows * width, strips.lanes)))
                row, beside = delinearize(register, (rows, width))
                at = (beside, strips.lanes, own) if along else (own, width, beside)
                column, condition = inside(builder, "place", add(start, add(multiply(at[0], at[1]), at[2])), columns)
                with builder.branch(condition):
                    yield element, row, column

    if strips.parts == 1:
        with elements() as (element, row, column):
            total = total_of(strips.ways, of_block(element))
            write(builder, plan, segment, space.index(batch, row, column), total, targets)
        return
    tiles = segment.blocks // strips.parts
    tile = named(builder, add(multiply(batch, strips.tiles[1]), corner))
    fold = Fold(hero, (wide,), (NOTHING,), starts_with_init=True)
    meet = meeting(builder, [fold], tiles, tiles * cells, strips.parts)

    def left(element: Expression, number: Expression) -> Code:
        return builder.text(add(multiply(add(multiply(tile, strips.parts), number), cells), element))

    with elements() as (element, _, _):
        total = total_of(strips.ways, of_block(element))
        leave(builder, meet, [[Fold(hero, (wide,), (total,), starts_with_init=True)]], [left(element, share)])
    group = builder.text(tile)
    last_only(builder, meet, group)
    reset(builder, meet, group)
    with elements() as (element, row, column):
        total = total_of(strips.parts, lambda number: part_at(wide, meet.tables[0][0], left(element, number)))
        write(builder, plan, segment, space.index(batch, row, column), total, targets)


def _add_up(builder: Builder, strips: Strips, at: tuple[Expression, Expression], way: Expression, sums: Name) -> None:
    """Accumulate the products of a thread's columns: every `stride`-th vector of contracted elements, from `way` on.

    at    (batch, first): `first` is the thread's first column; where its columns are neighbours, the number of the
          group of `width` columns
    sums  the array of sums: `width` for each row
    """
    batch, first = at
    space, vector, width = strips.space, strips.vector, strips.width
    rows, vectors = space.sizes[1], space.sizes[3] // vector
    sides = [space.hero.operands[space.operand_of(side)] for side in (0, 1)]

    def add_products(builder: Builder, number: Expression, column: Expression, deep: Expression) -> None:
        large = builder.value(sides[1], space.operand_index(1, batch, column, deep))
        for row in range(rows):
            small = builder.value(sides[0], space.operand_index(0, batch, constant(row), deep))
            total = cell(sums, builder.text(add(constant(row * width), number)))
            builder.assign(total, summed(space.hero.shape.type, total, small, large))

    def along(builder: Builder, deep: Expression, _: Expression) -> Sequence[Store]:
        for number in range(width):
            add_products(builder, constant(number), add(first, constant(number * strips.lanes)), deep)
        return []

    start = builder.declare_index("way", way)
    step = Variable(0, vectors - 1, builder.numbered("k").text)
    is_even = vectors % strips.stride == 0 and vectors > strips.stride
    counter = builder.numbered("k") if is_even else None
    with builder.walk("int", step, start, vectors, strips.stride, counter, strips.together) as part:
        if strips.along:

            def deep(builder: Builder, number: Expression) -> Expression:
                return builder.declare_index("deep", add(multiply(part, vector), number))

            if vector > 1:
                each_element(builder, vector, deep, along)
            else:
                along(builder, part, constant(0))
            return

        def beside(builder: Builder, number: Expression) -> Expression:
            return builder.declare_index("beside", add(multiply(first, width), number))

        def across(builder: Builder, column: Expression, number: Expression) -> Sequence[Store]:
            add_products(builder, number, column, part)
            return []

        for row in range(rows):
            builder.value(sides[0], space.operand_index(0, batch, constant(row), part))
        if width > 1:
            each_element(builder, width, beside, across)
        else:
            across(builder, first, constant(0))
