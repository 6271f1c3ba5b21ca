"""The emitter of tensor-matmul plans.

Fill a tile of each operand, wait, and let each warp multiply its pieces. At the end each thread computes the
consumers of its elements and writes them. Where blocks share a tile of the product, the last one adds up their sums: a
thread has the same elements in all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.folds import Fold
from hlo_opt.codegen.indices import named, thread_of, tile_of
from hlo_opt.codegen.matmul import ALIGNMENT, Corner, SharedTile, fetch, fill, inside, keep, write
from hlo_opt.codegen.parts import last_only, leave, meeting, part_at, reset
from hlo_opt.codegen.scalars import loaded, memory_type, rounded, stored
from hlo_opt.codegen.tree import Barrier
from hlo_opt.codegen.vectors import Store, Targets, each_element
from hlo_opt.ir import Shape
from hlo_opt.ir.element_type import F32
from hlo_opt.ir.index_map import Expression, Variable, add, constant, divide, linearize, modulo, multiply
from hlo_opt.ops.code import NOTHING, Code, Name, both, call, cell, code
from hlo_opt.plans.columns import WARP
from hlo_opt.plans.matmul import tiles_of
from hlo_opt.plans.plan import Plan, Segment
from hlo_opt.plans.products import BLOCK, following
from hlo_opt.plans.tensor_matmul import COLUMNS, ROWS, STEP, TensorProducts

_WORDS = (4, 2)
"""Registers per lane for a fragment of 16 by 16, and of 16 by 8 elements."""


def emit(builder: Builder, plan: Plan, segment: Segment[TensorProducts], first_block: int, targets: Targets) -> None:
    """The only segment of its launch, so `first_block` is 0."""
    part, space, tile = segment.part, segment.part.space, segment.part.tile
    along = [space.goes_along(side) for side in (0, 1)]
    shapes = [Shape(part.type, tile.sizes(side, along[side])) for side in (0, 1)]
    shared = builder.fresh("tiles")
    builder.array(memory_type(part.type), shared, part.cells, shared=True, alignment=ALIGNMENT)
    starts = (0, shapes[0].element_count)
    tables = [SharedTile(shared, shape, not a, start) for shape, a, start in zip(shapes, along, starts, strict=True)]
    tiles = tiles_of(space, tile)
    batch, row_tile, column_tile, share = tile_of(builder, 0, segment.blocks, (*tiles, part.parts))
    corner = (batch, row_tile, column_tile)
    warp = builder.declare("warp", divide(thread_of(BLOCK), WARP))
    lane = builder.declare("lane", modulo(thread_of(BLOCK), WARP))
    sums = builder.array("hlo_piece", builder.fresh("sums"), tile.pieces)
    for number in range(tile.pieces):
        builder.assign(cell(sums, number), code("hlo_piece{{}}"))
    rounds = part.rounds
    start = multiply(share, rounds)
    if part.fetches_ahead:
        held = [fetch(builder, space, tile, corner, side, table, start) for side, table in enumerate(tables)]
        builder.advise("unroll 1")
        with builder.loop(rounds - 1) as own:
            for side, table in enumerate(tables):
                keep(builder, space, tile, side, table, held[side])
            builder.add(Barrier())
            for side, table in enumerate(tables):
                step = add(start, add(own, constant(1)))
                fetch(builder, space, tile, corner, side, table, step, held[side])
            _multiply(builder, part, tables, warp, lane, sums)
            builder.add(Barrier())
        for side, table in enumerate(tables):
            keep(builder, space, tile, side, table, held[side])
        builder.add(Barrier())
        _multiply(builder, part, tables, warp, lane, sums)
        if part.is_staged:
            builder.add(Barrier())
    else:
        builder.advise("unroll 1")  # hoisted loads of other iterations would fill the registers
        with builder.loop(rounds) as own:
            for side, table in enumerate(tables):
                fill(builder, space, tile, corner, side, table, add(start, own))
            builder.add(Barrier())
            _multiply(builder, part, tables, warp, lane, sums)
            if rounds > 1 or part.is_staged:
                builder.add(Barrier())
    if part.parts > 1:
        _add_parts(builder, part, named(builder, linearize(corner, tiles)), share, math.prod(tiles), sums)
    if part.is_staged:
        _stage(builder, part, SharedTile(shared, part.staged, False), warp, lane, sums)
        builder.add(Barrier())
        _write_staged(builder, plan, segment, corner, shared, targets)
    else:
        _write(builder, plan, segment, corner, warp, lane, sums, targets)


def _add_parts(
    builder: Builder, part: TensorProducts, tile: Expression, share: Expression, tiles: int, sums: Name
) -> None:
    """Add up the sums of all blocks of a tile, in their order, in the last block to arrive."""
    own = [code(f"{{}}.of[{n}]", cell(sums, piece)) for piece in range(part.tile.pieces) for n in range(4)]
    folds = [Fold(part.hero, (F32,), (total,), starts_with_init=True) for total in own]
    of_block = BLOCK * len(own)
    meet = meeting(builder, folds[:1], tiles, tiles * of_block, part.parts)

    def place(number: Expression, element: int) -> Code:
        first = multiply(add(multiply(tile, part.parts), number), of_block)
        return builder.text(add(add(first, constant(element * BLOCK)), thread_of(BLOCK)))

    leave(builder, meet, [[fold] for fold in folds], [place(share, k) for k in range(len(own))])
    last_only(builder, meet, builder.text(tile))
    reset(builder, meet, builder.text(tile))
    for piece in range(part.tile.pieces):
        builder.assign(cell(sums, piece), code("hlo_piece{{}}"))
    with builder.loop(part.parts) as number:
        for k, total in enumerate(own):
            builder.assign(total, code("{} + {}", total, part_at(F32, meet.tables[0][0], place(number, k))))


def _multiply(
    builder: Builder, part: TensorProducts, tables: Sequence[SharedTile], warp: Variable, lane: Variable, sums: Name
) -> None:
    """Multiply the tiles in shared memory: a warp reads its fragments of each side once for all pieces."""
    tile = part.tile
    across = BLOCK // WARP // tile.down
    starts = multiply(divide(warp, across), tile.rows * ROWS), multiply(modulo(warp, across), tile.columns * COLUMNS)
    lines = [f"{str(table.across).lower()}, {table.shape.dimensions[1]}" for table in tables]
    function = f"hlo_multiply<{str(part.type.name == 'bf16').lower()}, {', '.join(lines)}>"
    builder.advise("unroll")
    with builder.loop(tile.depth // STEP) as deep:
        fragments: list[list[tuple[Name, Code]]] = []
        for side, (table, count, size) in enumerate(
            zip(tables, (tile.rows, tile.columns), (ROWS, COLUMNS), strict=True)
        ):
            fragments.append([])
            for number in range(count):
                index = table.index(add(starts[side], constant(number * size)), multiply(deep, STEP))
                at = code("{} + {}", table.name, builder.address(table.shape, index))
                fragment = call(f"hlo_fragment<{_WORDS[side]}, {lines[side]}>", at, lane)
                fragments[side].append((builder.let(f"hlo_fragment_of<{_WORDS[side]}>", "ab"[side], fragment), at))
        for number in range(tile.pieces):
            (a, row), (b, column) = fragments[0][number // tile.columns], fragments[1][number % tile.columns]
            builder.assign(cell(sums, number), call(function, cell(sums, number), a, b, row, column, lane))


def _write(
    builder: Builder,
    plan: Plan,
    segment: Segment[TensorProducts],
    corner: Corner,
    warp: Variable,
    lane: Variable,
    sums: Name,
    targets: Targets,
) -> None:
    """Emit the consumers of the product, for each sum of a thread."""
    space, tile = segment.part.space, segment.part.tile
    starts = multiply(corner[1], tile.height), multiply(corner[2], tile.width)
    builder.advise("unroll")
    with builder.loop(tile.pieces) as piece:
        builder.advise("unroll")
        with builder.loop(2) as high:
            row, column = tile.element(warp, lane, piece, high, constant(0))
            row, condition = inside(builder, "row", add(starts[0], row), space.sizes[1])
            with builder.branch(condition):
                builder.advise("unroll")
                with builder.loop(2) as low:
                    there, condition = inside(builder, "column", add(starts[1], add(column, low)), space.sizes[2])
                    with builder.branch(condition):
                        number = builder.text(add(multiply(high, 2), low))
                        total = code("{}.of[{}]", cell(sums, builder.text(piece)), number)
                        write(builder, plan, segment, space.index(corner[0], row, there), total, targets)


def _stage(
    builder: Builder, part: TensorProducts, table: SharedTile, warp: Variable, lane: Variable, sums: Name
) -> None:
    """Store the sums in shared memory, as elements of the product, so that neighbours are written together."""
    builder.advise("unroll")
    with builder.loop(part.tile.pieces) as piece:
        builder.advise("unroll")
        with builder.loop(2) as high:
            row, column = part.tile.element(warp, lane, piece, high, constant(0))
            builder.advise("unroll")
            with builder.loop(2) as low:
                total = code("{}.of[{}]", cell(sums, builder.text(piece)), builder.text(add(multiply(high, 2), low)))
                element_type = table.shape.type
                at = builder.address(table.shape, (row, add(column, low)))
                builder.assign(cell(table.name, at), stored(element_type, rounded(element_type, total)))


def _write_staged(
    builder: Builder,
    plan: Plan,
    segment: Segment[TensorProducts],
    corner: Corner,
    shared: Name,
    targets: Targets,
) -> None:
    """Emit the consumers of the product, for neighbouring columns of a row at a time."""
    part, space, tile = segment.part, segment.part.space, segment.part.tile
    hero, vector = part.hero, part.vector
    across = tile.width // vector
    cells = tile.height * across
    builder.advise("unroll")
    with builder.loop(-(-cells // BLOCK)) as number:
        unit = builder.declare("cell", add(multiply(number, BLOCK), thread_of(BLOCK)))
        with builder.branch(code("{} < {}", unit, cells) if cells % BLOCK else NOTHING):
            unit = Variable(0, cells - 1, unit.name)
            line, near = divide(unit, across), modulo(unit, across)
            row, row_fits = inside(builder, "row", add(multiply(corner[1], tile.height), line), space.sizes[1])
            start = multiply(corner[2], across)
            first, first_fits = inside(builder, "first", add(start, near), space.sizes[2] // vector)

            def place(builder: Builder, element: Expression) -> Expression:
                return builder.declare_index("column", add(multiply(first, vector), element))

            def compute(builder: Builder, column: Expression, element: Expression) -> list[Store]:
                at = space.index(corner[0], row, column)
                inner = (line, add(multiply(near, vector), element))
                product = loaded(hero.shape.type, cell(shared, builder.address(part.staged, inner)))
                builder.name_after(hero)
                builder.provide(hero, None, at, builder.bind_exact(hero.shape.type, product))
                places = following(plan.region, hero, at)
                stores = []
                for n in segment.roots:
                    root, (pointer, shape) = plan.region.roots[n], targets[n][0]
                    stores.append(Store(pointer, shape, places[root], builder.value(root, places[root])))
                return stores

            with builder.branch(both(row_fits, first_fits)):
                if vector > 1:
                    each_element(builder, vector, place, compute)
                else:
                    for store in compute(builder, first, constant(0)):
                        store.emit(builder)
