"""The matmul plan: a block computes a tile of a product from tiles of both operands in shared memory; each thread sums
some elements in registers.

An operand's producers are computed once per element of a tile, while the tile is filled along the dimension that is
contiguous in memory. The product's users are computed when a sum is complete. Sums have the order of the contracted
dimensions, as in the loop of `lower_dot`, so that both give the same result. The form is that of V. Volkov and
J. Demmel, "Benchmarking GPUs to tune dense linear algebra", 2008; `score` selects the tile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir.index_map import add, constant, delinearize, divide, modulo, multiply, variable
from hlo_opt.ops.contraction.table import sum_type
from hlo_opt.plans.columns import SHARED_BYTES, WARP
from hlo_opt.plans.instructions import Work
from hlo_opt.plans.loop import WIDEST_ACCESS
from hlo_opt.plans.plan import Launch, Region, Segment
from hlo_opt.plans.products import BLOCK, OfProduct, ProductSpace, ends, parameters_read
from hlo_opt.plans.walks import ITEM, ROUND, THREAD, Walk

SHORTEST = 8
"""The least of each of the three sizes: a tile of less is mostly empty."""
PADDING = (4, 4)
"""Padding of the lines of the tiles of rows and of columns, in elements: it avoids bank conflicts where threads fill a
column, and lines stay aligned to 16 bytes."""
_DEPTHS = (16, 32, 24, 20, 12, 28, 8, 30, 14, 18, 22, 10, 15, 13, 11, 9)
_SHAPES = ((8, 4), (8, 2), (4, 2), (4, 1), (2, 1), (1, 1))
_WIDE_SUMS = 16  # elements of a thread whose sums take two registers each


@dataclass(frozen=True)
class Tile:
    """The tile of a block.

    lanes    threads along columns; the others are along rows
    rows     adjacent rows of a thread
    columns  columns of a thread, `lanes` apart, so that neighbouring threads have neighbouring columns
    depth    contracted elements that shared memory holds at a time
    """

    lanes: int
    rows: int
    columns: int
    depth: int

    @property
    def height(self) -> int:
        """Rows of a block."""
        return BLOCK // self.lanes * self.rows

    @property
    def width(self) -> int:
        """Columns of a block."""
        return self.lanes * self.columns

    @property
    def lines(self) -> tuple[int, int]:
        """Elements of a line of the tile of rows and of that of columns, padding included."""
        return self.height + PADDING[0], self.width + PADDING[1]


@dataclass(frozen=True)
class Products(OfProduct):
    """A product whose elements threads sum in registers."""

    kind: ClassVar[str] = "matmul"
    tile: Tile
    vector: int

    def segment(self, block: int) -> Segment[Products]:
        """The segment, alone in its launch."""
        return Segment(self, math.prod(tiles_of(self.space, self.tile)), self.vector, rereads=True, resident=2)

    def shared_bytes(self, block: int) -> int:
        """Bytes of both tiles."""
        return sum(self.tile.lines) * self.tile.depth * sum_type(self.space.hero.shape.type).bytes


def tiles_of(space: ProductSpace, tile: BlockTile) -> tuple[int, int, int]:
    """Tiles along batches, rows and columns."""
    batch, rows, columns, _ = space.sizes
    return batch, -(-rows // tile.height), -(-columns // tile.width)


def match(region: Region, space: ProductSpace, target: DeviceTarget) -> Products | None:
    """The part for a product that is large enough for tiles, or None."""
    if min(space.sizes[1:]) < SHORTEST:
        return None
    _, rows, columns, _ = space.sizes
    if (rows < WARP) != (columns < WARP):  # what fills a warp is columns
        space = ProductSpace(space.hero, space.turned != (columns < rows))
    tile = tile_of(space, target.core_count)
    return Products(space, tuple(range(len(region.roots))), tile, widest(space, tile))


def tile_of(space: ProductSpace, cores: int) -> Tile:
    """The tile with the least work for a device with `cores` multiprocessors; accesses to shared memory count as
    work."""
    _, _, columns, depth = space.sizes
    wide = sum_type(space.hero.shape.type).bytes > 4
    lanes = WARP if columns > WARP // 2 else WARP // 2 if columns > WARP // 4 else WARP // 4
    tiles = [Tile(lanes, *shape, depth_of(depth)) for shape in _SHAPES if not wide or math.prod(shape) <= _WIDE_SUMS]
    fitting = [t for t in tiles if sum(t.lines) * t.depth * (8 if wide else 4) <= SHARED_BYTES]

    def score(tile: Tile) -> float:
        rounds = -(-math.prod(tiles_of(space, tile)) // cores)
        return rounds * (tile.rows * tile.columns / 2 + tile.rows / 4 + tile.columns)

    return min(fitting, key=score)


def depth_of(depth: int) -> int:
    """Contracted elements of a tile: a divisor of `depth` near 16, if there is one."""
    if depth <= _DEPTHS[0]:
        return depth
    return next((d for d in _DEPTHS if depth % d == 0), _DEPTHS[0])


def vector_of(space: ProductSpace, tile: BlockTile, side: int) -> int:
    """Neighbouring elements of an operand that a thread reads together: 16 bytes, or fewer if they do not divide the
    tile and the operand."""
    _, rows, columns, depth = space.sizes
    along = space.goes_along(side)
    own = tile.depth if along else (tile.height, tile.width)[side]
    whole = depth if along else (rows, columns)[side]
    bits = element_bits(space, side)
    items = tile.depth * (tile.height, tile.width)[side] // BLOCK
    vector = max(1, 128 // max(16, bits))
    while vector > 1 and (own % vector or whole % vector or vector > max(1, items)):
        vector //= 2
    return vector


def element_bits(space: ProductSpace, side: int) -> int:
    """Bits of the narrowest array that the operand of rows (side 0) or columns is computed from; 128 if there is
    none."""
    operand = space.hero.operands[space.operand_of(side)]
    start = parameters_read(operand, (constant(0),) * operand.shape.rank)
    return min((p.shape.type.bits for p, _ in start if p.shape.element_count > 1), default=128)


def cells_of(space: ProductSpace, tile: BlockTile, side: int) -> int:
    """Vectors of the tile of rows (side 0) or columns."""
    return (tile.height, tile.width)[side] * tile.depth // vector_of(space, tile, side)


def fetched(space: ProductSpace, tile: BlockTile, side: int) -> int:
    """Elements of such a tile that a thread loads."""
    return -(-cells_of(space, tile, side) // BLOCK) * vector_of(space, tile, side)


def widest(space: ProductSpace, tile: BlockTile) -> int:
    """The larger vector of both operands."""
    return max(vector_of(space, tile, side) for side in (0, 1))


class BlockTile(Protocol):
    """The sizes of a block's tiles."""

    @property
    def height(self) -> int:
        """Rows of a block."""
        ...

    @property
    def width(self) -> int:
        """Columns of a block."""
        ...

    @property
    def depth(self) -> int:
        """Contracted elements that shared memory holds at a time."""
        ...


def fills(space: ProductSpace, tile: BlockTile, blocks: int, element_bytes: int, parts: int = 1) -> list[Walk]:
    """The walks in which `blocks` blocks fill the tiles of both operands; `element_bytes` is the size of an element of
    a tile, and `parts` the blocks that share a tile of the product."""
    batch, rows, columns, depth = space.sizes
    threads = blocks * BLOCK
    thread = variable(THREAD, threads)
    corner = delinearize(divide(thread, BLOCK), (*tiles_of(space, tile), parts))
    rounds = -(-depth // tile.depth) // parts
    step = add(multiply(corner[3], rounds), variable(ROUND, rounds))
    number, k = variable("batch", batch), variable("along", depth)
    walks = []
    for side, (free, own) in enumerate(((rows, tile.height), (columns, tile.width))):
        vector = vector_of(space, tile, side)
        items, shared = max(1, own * tile.depth // BLOCK), 1 / min(vector, WIDEST_ACCESS // element_bytes)
        item = variable(ITEM, items)
        first = add(multiply(divide(item, vector), BLOCK), modulo(thread, BLOCK))
        cell = add(multiply(first, vector), modulo(item, vector))
        near = tile.depth if space.goes_along(side) else own
        inner, outer = modulo(cell, near), divide(cell, near)
        at, across = (inner, outer) if space.goes_along(side) else (outer, inner)
        places = {
            "batch": corner[0],
            "free": add(multiply(corner[1 + side], own), across),
            "along": add(multiply(step, tile.depth), at),
        }
        wanted = [
            (space.hero.operands[space.operand_of(side)], space.operand_index(side, number, variable("free", free), k))
        ]
        walks.append(
            Walk(threads, wanted, places=places, items=items, rounds=rounds, ahead=1, barriers=rounds, shared=shared)
        )
    return walks


def walks(region: Region, segment: Segment[Products], launch: Launch) -> list[Walk]:
    """The walks that fill both tiles, multiply them for all contracted elements, and write the tile of the product."""
    tile, space = segment.part.tile, segment.part.space
    batch, rows, columns, depth = space.sizes
    threads = segment.blocks * BLOCK
    thread = variable(THREAD, threads)
    corner = delinearize(divide(thread, BLOCK), tiles_of(space, tile))
    number, rounds = variable("batch", batch), -(-depth // tile.depth)
    walks = fills(space, tile, segment.blocks, sum_type(space.hero.shape.type).bytes)
    cells = tile.rows * tile.columns
    shared = (tile.rows / 4 + tile.columns) / cells  # one access loads four of a thread's adjacent rows
    walks.append(Walk(threads, (), items=cells * tile.depth, rounds=rounds, body=Work(1), shared=shared))
    item = variable(ITEM, cells)
    lane, line = modulo(modulo(thread, BLOCK), tile.lanes), divide(modulo(thread, BLOCK), tile.lanes)
    row = add(multiply(line, tile.rows), modulo(item, tile.rows))
    column = add(multiply(divide(item, tile.rows), tile.lanes), lane)
    places = {
        "batch": corner[0],
        "row": add(multiply(corner[1], tile.height), row),
        "column": add(multiply(corner[2], tile.width), column),
    }
    here = space.index(number, variable("row", rows), variable("column", columns))
    return [*walks, ends(region, space, here, Walk(threads, (), places=places, items=cells))]
