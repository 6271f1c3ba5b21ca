"""The tensor-matmul plan: as matmul, with tiles in the operands' own narrow type, and tensor cores: each warp sums
pieces of 16 rows by 8 columns.

Tiles have the layout of their operand, so that threads fill them in vectors; a warp transposes them, where needed,
while it reads them (`ldmatrix`). Sums are f32. Where the product has too few tiles to fill the device, as for a few
rows in decoding, blocks share the contracted elements of a tile. Source of the pieces: PTX ISA, "Matrix Fragments for
mma.m16n8k16 with floating point type", which needs compute capability 8.0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from hlo_opt.analysis.memory.forms import round_up
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import Shape
from hlo_opt.ir.element_type import F32, ElementType
from hlo_opt.ir.index_map import Expression, add, delinearize, divide, modulo, multiply, variable
from hlo_opt.ir.size import gcd
from hlo_opt.ops.contraction.table import sum_type
from hlo_opt.ops.lowering import Index
from hlo_opt.plans.columns import MOST_RESIDENT, SHARED_BYTES, WARP, WORD
from hlo_opt.plans.instructions import Work
from hlo_opt.plans.loop import WIDEST_ACCESS
from hlo_opt.plans.matmul import element_bits, fetched, fills, tiles_of, vector_of, widest
from hlo_opt.plans.plan import Launch, Region, Segment
from hlo_opt.plans.products import BLOCK, OfProduct, ProductSpace, ends
from hlo_opt.plans.walks import ITEM, ROUND, THREAD, Walk

ROWS, COLUMNS, STEP = 16, 8, 16
"""Rows and columns of a piece, and the contracted elements that one instruction multiplies."""
PADDING = 8
"""Padding of the lines of a tile, in elements: 16 bytes, so that eight adjacent lines are in different banks."""
OLDEST = 80
"""The least compute capability with an instruction for such pieces."""
_WARPS = BLOCK // WARP
_DEEPEST = 64
_FEWEST_ROUNDS = 4  # of a block that shares its tile with others
_SHAPES = ((2, 4, 4), (2, 2, 4), (4, 2, 4), (2, 2, 2), (4, 2, 2), (1, 2, 2), (1, 1, 2), (2, 1, 1), (8, 1, 1))
_HELD = 80
"""Registers of a thread for sums and for elements of the next tiles, of 128 where two blocks share a multiprocessor."""
_WIDE = 64
"""As `_HELD`, in words, with which two such blocks have enough registers: 32 elements of f32 beside 16 of bf16 and 32
sums spill, and so do 32 of f16 that are loaded one by one."""
_RESIDENT, _WAITING = 2, 1200
"""Blocks of a multiprocessor at a time, and cycles in which one waits for its next tiles."""
_MEETING = 3000
"""Cycles in which the last block of a tile waits for the sums of the others."""
_MULTIPLIED = 1024
"""Multiply-adds of the tensor cores of a multiprocessor in a cycle (NVIDIA A100 Tensor Core GPU Architecture, table 1;
`mma` on newer devices is not slower)."""


@dataclass(frozen=True)
class WarpTile:
    """The tile of a block.

    down     warps along rows; the others are along columns
    rows     pieces of a warp along rows
    columns  pieces of a warp along columns
    depth    contracted elements that shared memory holds at a time
    """

    down: int
    rows: int
    columns: int
    depth: int

    @property
    def height(self) -> int:
        """Rows of a block."""
        return self.down * self.rows * ROWS

    @property
    def width(self) -> int:
        """Columns of a block."""
        return _WARPS // self.down * self.columns * COLUMNS

    @property
    def pieces(self) -> int:
        """Pieces of a warp; each thread sums four elements of each."""
        return self.rows * self.columns

    def sizes(self, side: int, along: bool) -> tuple[int, int]:
        """The number of lines of the tile of rows (side 0) or columns (side 1), and their stride. `along` says whether
        a line is along contracted elements."""
        extent = (self.height, self.width)[side]
        return (extent, self.depth + PADDING) if along else (self.depth, extent + PADDING)

    def element(
        self, warp: Expression, lane: Expression, piece: Expression, high: Expression, low: Expression
    ) -> Index:
        """The row and column, in the block's tile, of one of the four elements of a piece that a lane sums."""
        across = _WARPS // self.down
        row = add(multiply(divide(warp, across), self.rows), divide(piece, self.columns))
        column = add(multiply(modulo(warp, across), self.columns), modulo(piece, self.columns))
        row = add(multiply(row, ROWS), add(multiply(high, ROWS // 2), divide(lane, 4)))
        return row, add(multiply(column, COLUMNS), add(multiply(modulo(lane, 4), 2), low))


@dataclass(frozen=True)
class TensorProducts(OfProduct):
    """A product that warps multiply in pieces."""

    kind: ClassVar[str] = "tensor-matmul"
    tile: WarpTile
    parts: int = 1
    """Blocks that share a tile of the product; each has as many contracted elements."""

    @property
    def type(self) -> ElementType:
        """The element type of the operands and of the tiles."""
        return self.hero.operands[0].shape.type

    @property
    def rounds(self) -> int:
        """Tiles of each operand that a block fills, one after another."""
        return -(-self.space.sizes[3] // self.tile.depth) // self.parts

    @property
    def fetches_ahead(self) -> bool:
        """Whether the next tiles are on their way to registers while warps multiply: if there are some, and registers
        are left for them."""
        held = sum(fetched(self.space, self.tile, side) for side in (0, 1))
        return self.rounds > 1 and 4 * self.tile.pieces + held <= _HELD

    def _words(self, side: int) -> float:
        """Registers of a thread for elements of the next tile of rows (side 0) or columns: one for each that is loaded
        by itself."""
        bits = element_bits(self.space, side)
        alone = vector_of(self.space, self.tile, side) * bits < WORD
        return fetched(self.space, self.tile, side) * (1 if alone else bits / WORD)

    @property
    def is_staged(self) -> bool:
        """Whether sums are written through shared memory, in vectors: if they are as narrow as the operands."""
        return self.hero.shape.type.bytes == self.type.bytes

    @property
    def staged(self) -> Shape:
        """The tile of the product in shared memory."""
        return Shape(self.hero.shape.type, (self.tile.height, self.tile.width + PADDING))

    @property
    def cells(self) -> int:
        """Elements of the array in shared memory that holds both tiles, and then the sums."""
        tiles = sum(math.prod(self.tile.sizes(side, self.space.goes_along(side))) for side in (0, 1))
        return max(tiles, self.staged.element_count if self.is_staged else 0)

    @property
    def vector(self) -> int:
        """Neighbouring columns that a thread writes together: 16 bytes, or fewer if they do not divide the product or
        leave threads without any."""
        return gcd(self.space.sizes[2], WIDEST_ACCESS // self.type.bytes, 4 * self.tile.pieces)

    def segment(self, block: int) -> Segment[TensorProducts]:
        """The segment, alone in its launch."""
        vector = max(widest(self.space, self.tile), self.vector if self.is_staged else 1)
        blocks = math.prod(tiles_of(self.space, self.tile)) * self.parts
        words = sum(self._words(side) for side in (0, 1))
        is_wide = self.fetches_ahead and 4 * self.tile.pieces + words > _WIDE
        return Segment(self, blocks, vector, rereads=True, resident=1 if is_wide else _RESIDENT)

    def shared_bytes(self, block: int) -> int:
        """Bytes of both tiles, or of the sums, and of the number of blocks that have left theirs."""
        return self.cells * self.type.bytes + 4 * (self.parts > 1)


def match(region: Region, space: ProductSpace, target: DeviceTarget) -> TensorProducts | None:
    """The part for a product that tensor cores can compute: both operands bf16 or both f16, summed in f32. None for
    others."""
    types = {operand.shape.type.name for operand in space.hero.operands[:2]}
    if types not in ({"bf16"}, {"f16"}) or sum_type(space.hero.shape.type).name != "f32":
        return None
    if target.compute_capability < OLDEST or min(space.sizes[1:3]) < COLUMNS or space.sizes[3] < STEP:
        return None
    if space.sizes[1] < ROWS <= space.sizes[2]:
        space = ProductSpace(space.hero, not space.turned)
    tile = tile_of(space, target)
    return TensorProducts(space, tuple(range(len(region.roots))), tile, _parts(space, tile, target.core_count))


def _parts(space: ProductSpace, tile: WarpTile, cores: int) -> int:
    """The number of blocks that share a tile of the product: as many as fill the device, if each has enough rounds,
    and all as many."""
    rounds = -(-space.sizes[3] // tile.depth)
    most = min(cores * MOST_RESIDENT // math.prod(tiles_of(space, tile)), rounds // _FEWEST_ROUNDS)
    return max((n for n in range(1, most + 1) if rounds % n == 0), default=1)


def tile_of(space: ProductSpace, target: DeviceTarget) -> WarpTile:
    """The tile with the least time, in cycles of a multiprocessor: the products of its blocks and their reads from L2,
    the reads from memory, or the rounds in which a block waits for its tiles; and, where blocks share a tile, the
    reading of their sums by the last one."""
    cores, depth = target.core_count, min(_DEEPEST, round_up(space.sizes[3], STEP))
    tiles = [WarpTile(*shape, depth) for shape in _SHAPES]
    along = [space.goes_along(side) for side in (0, 1)]
    bytes_of = [2 * sum(math.prod(t.sizes(side, along[side])) for side in (0, 1)) for t in tiles]
    widths = [element_bits(space, side) / 8 for side in (0, 1)]
    sizes = [math.prod(space.sizes) / space.sizes[2 - side] * widths[side] for side in (0, 1)]
    from_memory = target.copied_per_second / (target.clock_rate_ghz * 1e9)

    def score(tile: WarpTile) -> float:
        _, down, across = tiles_of(space, tile)
        parts = _parts(space, tile, cores)
        rounds = -(-math.prod(tiles_of(space, tile)) * parts // cores)
        steps = -(-space.sizes[3] // depth) / parts * depth / STEP
        read = (tile.height * widths[0] + tile.width * widths[1]) * STEP / (2 * target.bytes_per_core_and_clock)
        times = [count if size > target.l2_cache_size else 1 for count, size in zip((across, down), sizes, strict=True)]
        memory = sum(size * count for size, count in zip(sizes, times, strict=True)) / from_memory
        computing = rounds * steps * (tile.height * tile.width * STEP / _MULTIPLIED + read)
        shared = tile.height * tile.width * 4 * parts / target.bytes_per_core_and_clock + _MEETING
        waiting = -(-math.prod(tiles_of(space, tile)) * parts // (_RESIDENT * cores)) * steps * STEP / depth * _WAITING
        return math.hypot(computing, memory, waiting) + (shared if parts > 1 else 0)

    return min((t for t, size in zip(tiles, bytes_of, strict=True) if size <= SHARED_BYTES), key=score)


def walks(region: Region, segment: Segment[TensorProducts], launch: Launch) -> list[Walk]:
    """The walks that fill both tiles, multiply them for all contracted elements, and write the tile of the product."""
    part, tile, space = segment.part, segment.part.tile, segment.part.space
    batch, rows, columns, _ = space.sizes
    threads, rounds = segment.blocks * BLOCK, part.rounds
    thread = variable(THREAD, threads // part.parts)  # of the blocks that write
    corner = delinearize(divide(thread, BLOCK), tiles_of(space, tile))
    own = modulo(thread, BLOCK)
    walks = fills(space, tile, segment.blocks, part.type.bytes, part.parts)
    cycles = ROWS * COLUMNS * STEP / (_MULTIPLIED / 4)
    shared = (tile.rows + tile.columns) / tile.pieces
    walks.append(
        Walk(
            threads,
            (),
            items=tile.pieces * tile.depth // STEP,
            rounds=rounds,
            body=Work(cycles),
            shared=shared,
        )
    )
    if part.parts > 1:
        walks += [_meeting(part, threads, 1), _meeting(part, threads // part.parts, part.parts)]
    item, vector = variable(ITEM, 4 * tile.pieces), part.vector
    row, column = tile.element(
        divide(own, WARP), modulo(own, WARP), divide(item, 4), modulo(divide(item, 2), 2), modulo(item, 2)
    )
    if part.is_staged:
        unit = add(multiply(divide(item, vector), BLOCK), own)
        row = divide(unit, tile.width // vector)
        column = add(multiply(modulo(unit, tile.width // vector), vector), modulo(item, vector))
    places = {
        "batch": corner[0],
        "row": add(multiply(corner[1], tile.height), row),
        "column": add(multiply(corner[2], tile.width), column),
    }
    here = space.index(variable("batch", batch), variable("row", rows), variable("column", columns))
    return [*walks, ends(region, space, here, Walk(threads // part.parts, (), places=places, items=4 * tile.pieces))]


def _meeting(part: TensorProducts, threads: int, rounds: int) -> Walk:
    """The walk in which threads write their sums for another block, or one block reads those of each."""
    sums = 4 * part.tile.pieces
    thread, item = variable(THREAD, threads), variable(ITEM, sums)
    block = add(multiply(divide(thread, BLOCK), rounds), variable(ROUND, rounds))
    place = add(multiply(add(multiply(block, sums), item), BLOCK), modulo(thread, BLOCK))
    left = Shape(F32, (threads * rounds * sums,))
    return Walk(threads, (), items=sums, rounds=rounds, published=[(left, (place,))], trips=int(rounds == 1))
