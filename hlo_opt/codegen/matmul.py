"""The emitter of tiled matrix products: load a tile of each operand, synchronise, accumulate; then compute the epilogue
and write."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.indices import thread_of, tile_of
from hlo_opt.codegen.scalars import loaded, memory_type, register_type, stored, zero
from hlo_opt.codegen.tree import Barrier, Let
from hlo_opt.codegen.vectors import Store, Targets, each_element
from hlo_opt.ir import Shape
from hlo_opt.ir.index_map import Expression, Variable, add, constant, divide, modulo, multiply, variable
from hlo_opt.ir.walk import needed_by, needed_first
from hlo_opt.ops.code import NOTHING, Code, Name, both, cell, code, of
from hlo_opt.ops.contraction.table import sum_type, summed
from hlo_opt.ops.lowering import Index
from hlo_opt.plans.matmul import BlockTile, Products, Tile, cells_of, fetched, tiles_of, vector_of
from hlo_opt.plans.plan import Part, Plan, Segment
from hlo_opt.plans.products import BLOCK, ProductSpace, following

ALIGNMENT = 16
"""Bytes of the widest access to shared memory."""

ROUNDS_AHEAD = 4
"""Loads of a tile that a thread begins before it stores the first, half as many where an element comes from several
arrays: the sums leave no registers for more."""


@dataclass(frozen=True)
class SharedTile:
    """A tile in shared memory, with padding of `start` elements at the front.

    `across`: lines run along rows (or columns), otherwise along contracted elements.
    """

    name: Name
    shape: Shape
    across: bool
    start: int = 0

    def index(self, free: Expression, deep: Expression) -> tuple[Expression, Expression]:
        """The index of an element of a row or column."""
        line, inside = (deep, free) if self.across else (free, deep)
        return line, add(inside, constant(self.start))


@dataclass(frozen=True)
class _Frame:
    """Shared state of the emitter: the tile's batch, row and column numbers, and the thread's line and lane."""

    space: ProductSpace
    tile: Tile
    corner: Corner
    line: Expression
    lane: Expression

    @property
    def kind(self) -> str:
        """The C++ type of an accumulator."""
        return register_type(sum_type(self.space.hero.shape.type))


Corner = tuple[Expression, Expression, Expression]
"""The batch of a block's tile, and its numbers along rows and columns."""


def emit(builder: Builder, plan: Plan, segment: Segment[Products], first_block: int, targets: Targets) -> None:
    """Emit the only segment of the launch: `first_block` is 0."""
    space, tile = segment.part.space, segment.part.tile
    wide = sum_type(space.hero.shape.type)
    tables = [
        table_of(builder, stem, Shape(wide, (tile.depth, line)), across=True)
        for stem, line in zip(("rows", "columns"), tile.lines, strict=True)
    ]
    frame = _frame(builder, segment, space, tile)
    count = tile.rows * tile.columns
    sums = builder.array(frame.kind, builder.fresh("sums"), count)
    for number in range(count):
        builder.assign(cell(sums, number), zero(wide))
    rounds = -(-space.sizes[3] // tile.depth)
    builder.advise("unroll 1")  # loads hoisted from later iterations would exhaust the registers
    with builder.loop(rounds) as step:
        for side, table in enumerate(tables):
            fill(builder, space, tile, frame.corner, side, table, step)
        builder.add(Barrier())
        _add_up(builder, frame, [table.name for table in tables], sums)
        if rounds > 1:
            builder.add(Barrier())
    _write(builder, plan, segment, frame, sums, targets)


def _frame(builder: Builder, segment: Segment[Products], space: ProductSpace, tile: Tile) -> _Frame:
    batch, row, column = tile_of(builder, 0, segment.blocks, tiles_of(space, tile))
    line = builder.declare("line", divide(thread_of(BLOCK), tile.lanes))
    lane = builder.declare("lane", modulo(thread_of(BLOCK), tile.lanes))
    return _Frame(space, tile, (batch, row, column), line, lane)


def table_of(builder: Builder, stem: str, shape: Shape, *, across: bool) -> SharedTile:
    """Declare a tile."""
    kind, size = memory_type(shape.type), shape.element_count
    return SharedTile(builder.array(kind, builder.fresh(stem), size, shared=True, alignment=ALIGNMENT), shape, across)


def fill(
    builder: Builder,
    space: ProductSpace,
    tile: BlockTile,
    corner: Corner,
    side: int,
    table: SharedTile,
    step: Expression,
) -> None:
    """Load the tile of rows (side 0) or columns, coalesced; zeros beyond the operand."""
    operand = space.hero.operands[space.operand_of(side)]
    arrays = sum(
        i.parameter_number is not None and i.shape.element_count > 1 for i in needed_first([operand], needed_by)
    )
    builder.advise(f"unroll {ROUNDS_AHEAD if arrays <= 1 else ROUNDS_AHEAD // 2}")
    _load(builder, space, tile, corner, side, table, step, None)


def fetch(
    builder: Builder,
    space: ProductSpace,
    tile: BlockTile,
    corner: Corner,
    side: int,
    table: SharedTile,
    step: Expression,
    held: Name | None = None,
) -> Name:
    """Load a thread's elements of a tile as `fill` does, but into registers, which `keep` stores in the tile later:
    those of an earlier call, else new ones. Returns the name of their array."""
    if held is None:
        held = builder.array(memory_type(table.shape.type), builder.fresh("held"), fetched(space, tile, side))
    builder.advise("unroll")
    _load(builder, space, tile, corner, side, table, step, held)
    return held


def keep(builder: Builder, space: ProductSpace, tile: BlockTile, side: int, table: SharedTile, held: Name) -> None:
    """Store what `fetch` loaded in the tile."""
    vector = vector_of(space, tile, side)
    builder.advise("unroll")
    with _own_cells(builder, space, tile, side) as (number, place_of):
        inside = _places(space, tile, side, table, place_of)
        builder.advise("unroll")
        with builder.loop(vector) as element:
            own = cell(held, builder.text(add(multiply(number, vector), element)))
            builder.assign(cell(table.name, builder.address(table.shape, inside(element))), own)


@contextmanager
def _own_cells(
    builder: Builder, space: ProductSpace, tile: BlockTile, side: int
) -> Iterator[tuple[Expression, Variable]]:
    """The loop over a thread's vectors of a tile: its round, and the number of the vector in the tile."""
    cells = cells_of(space, tile, side)
    with builder.loop(-(-cells // BLOCK)) as number:
        place_of = builder.declare("cell", add(multiply(number, BLOCK), thread_of(BLOCK)))
        with builder.branch(code("{} < {}", place_of, cells) if cells % BLOCK else NOTHING):
            yield number, Variable(0, cells - 1, place_of.name)


def _places(
    space: ProductSpace, tile: BlockTile, side: int, table: SharedTile, place_of: Expression
) -> Callable[[Expression], tuple[Expression, Expression]]:
    """The indices, in the tile, of a thread's neighbouring elements."""
    vector, along = vector_of(space, tile, side), space.goes_along(side)
    across = (tile.depth if along else (tile.height, tile.width)[side]) // vector
    near, far = modulo(place_of, across), divide(place_of, across)

    def inside(element: Expression) -> tuple[Expression, Expression]:
        beside = add(multiply(near, vector), element)
        return table.index(far, beside) if along else table.index(beside, far)

    return inside


def _load(
    builder: Builder,
    space: ProductSpace,
    tile: BlockTile,
    corner: Corner,
    side: int,
    table: SharedTile,
    step: Expression,
    held: Name | None,
) -> None:
    """The loop over a thread's elements of a tile, which go to the tile, or to the registers `held`."""
    extent = (tile.height, tile.width)[side]
    size, depth = space.sizes[1 + side], space.sizes[3]
    vector, along = vector_of(space, tile, side), space.goes_along(side)
    element_type = table.shape.type
    cast = "" if element_type.is_narrow_float else f"({register_type(element_type)})"
    operand = space.hero.operands[space.operand_of(side)]
    registers = Shape(element_type, (fetched(space, tile, side),))
    with _own_cells(builder, space, tile, side) as (number, place_of):
        beyond = _places(space, tile, side, table, place_of)
        across = (tile.depth if along else extent) // vector  # threads along contiguous memory
        near, far = modulo(place_of, across), divide(place_of, across)
        corners = multiply(corner[1 + side], extent), multiply(step, tile.depth)
        starts = corners[::-1] if along else corners
        limits = (depth, size) if along else (size, depth)
        first = builder.declare_index("first", add(divide(starts[0], vector), near))
        other = builder.declare_index("other", add(starts[1], far))
        conditions: list[Code] = []
        if isinstance(first, Variable) and first.high * vector >= limits[0]:
            conditions.append(code("{} < {}", first, limits[0] // vector))
            first = Variable(0, limits[0] // vector - 1, first.name)
        if isinstance(other, Variable) and other.high >= limits[1]:
            conditions.append(code("{} < {}", other, limits[1]))
            other = Variable(0, limits[1] - 1, other.name)

        def own(element: Expression) -> tuple[Expression, ...]:
            return (add(multiply(number, vector), element),)

        def place(builder: Builder, element: Expression) -> Expression:
            return builder.declare_index("place", add(multiply(first, vector), element))

        def compute(builder: Builder, position: Expression, _: Expression) -> Sequence[Store]:
            free, deep = (other, position) if along else (position, other)
            value = builder.value(operand, space.operand_index(side, corner[0], free, deep))
            value = code(f"{cast}{{}}", value)
            if held is not None:
                element = add(position, multiply(first, -vector)) if vector > 1 else constant(0)
                return [Store(held, registers, own(element), value)]
            inside = table.index(add(free, multiply(corners[0], -1)), add(deep, multiply(corners[1], -1)))
            return [Store(table.name, table.shape, inside, value)]

        with builder.branch(both(*conditions)):
            if vector > 1:
                each_element(builder, vector, place, compute)
            else:
                for store in compute(builder, first, constant(0)):
                    store.emit(builder)
        if conditions:
            with builder.otherwise():
                if held is not None:
                    builder.advise("unroll")
                with builder.loop(vector) as element:
                    empty = cell(table.name, builder.address(table.shape, beyond(element)))
                    if held is not None:
                        empty = cell(held, builder.text(*own(element)))
                    builder.assign(empty, stored(element_type, zero(element_type)))


def _add_up(builder: Builder, frame: _Frame, tables: Sequence[Name], sums: Name) -> None:
    """Accumulate the products of a tile in the order of contracted elements, in variables local to this loop."""
    tile, element_type = frame.tile, frame.space.hero.shape.type
    wide, kind = sum_type(element_type), frame.kind
    totals = [of(builder.numbered("total")) for _ in range(tile.rows * tile.columns)]
    for number, total in enumerate(totals):
        assert total.name is not None
        builder.add(Let(kind, total.name, cell(sums, number), constant=False))
    starts = multiply(frame.line, tile.rows), frame.lane
    builder.advise("unroll")
    with builder.loop(tile.depth) as deep:
        own: list[list[Code]] = []
        for side, (table, length) in enumerate(zip(tables, (tile.rows, tile.columns), strict=True)):
            names = []
            for number in range(length):
                at = add(multiply(deep, tile.lines[side]), starts[side])
                at = add(at, constant(number * (tile.lanes if side else 1)))
                shape = Shape(wide, (tile.depth * tile.lines[side],))
                name = builder.numbered("ab"[side])
                builder.add(Let(kind, name, loaded(wide, cell(table, builder.address(shape, (at,))))))
                names.append(of(name))
            own.append(names)
        for number, total in enumerate(totals):
            builder.assign(
                total, summed(element_type, total, own[0][number // tile.columns], own[1][number % tile.columns])
            )
    for number, total in enumerate(totals):
        builder.assign(cell(sums, number), total)


def _write(
    builder: Builder,
    plan: Plan,
    segment: Segment[Products],
    frame: _Frame,
    sums: Name,
    targets: Targets,
) -> None:
    """Write the epilogue of each accumulator of a thread."""
    space, tile = frame.space, frame.tile
    batch, row_tile, column_tile = frame.corner
    _, rows, columns, _ = space.sizes
    row_start = add(multiply(row_tile, tile.height), multiply(frame.line, tile.rows))
    column_start = add(multiply(column_tile, tile.width), frame.lane)
    builder.advise("unroll")
    with builder.loop(tile.rows) as i:
        row, condition = inside(builder, "row", add(row_start, i), rows)
        with builder.branch(condition):
            builder.advise("unroll")
            with builder.loop(tile.columns) as j:
                column, condition = inside(builder, "column", add(column_start, multiply(j, tile.lanes)), columns)
                with builder.branch(condition):
                    number = builder.text(add(multiply(i, tile.columns), j))
                    write(builder, plan, segment, space.index(batch, row, column), cell(sums, number), targets)


def write(
    builder: Builder,
    plan: Plan,
    segment: Segment[Part],
    at: Index,
    total: Code,
    targets: Targets,
) -> None:
    """Compute the epilogue at an index, given the product there, and store it."""
    hero = segment.hero
    builder.name_after(hero)
    builder.provide(hero, None, at, builder.bind(hero.shape.type, total))
    places = following(plan.region, hero, at)
    for number in segment.roots:
        root, (pointer, shape) = plan.region.roots[number], targets[number][0]
        builder.store(pointer, shape, places[root], builder.value(root, places[root]))


def inside(builder: Builder, stem: str, position: Expression, size: int) -> tuple[Expression, Code]:
    """A row or column as a variable, and the condition that it is in bounds."""
    index = builder.declare_index(stem, position)
    if not isinstance(index, Variable) or index.high < size:
        return index, NOTHING
    return variable(index.name, size), code("{} < {}", index, size)
