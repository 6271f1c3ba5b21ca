"""The matrix-vector plan: for products of few rows, as in decoding, threads share the sum of each element and add up
their partial sums in shared memory.

The large operand is read once, with neighbouring threads at neighbouring addresses: a warp reads along the contracted
elements of some columns if these are contiguous, else across columns. A thread sums several columns, so that it loads
the small operand, and the code around it, once for all of them. Where columns are too few to fill the device, blocks
share their sums. The order of sums is not that of `lower_dot`. XLA:GPU uses its row and column reductions for such
products (xla/service/gpu/transforms/gemv_rewriter.cc).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir.index_map import add, constant, delinearize, divide, modulo, multiply, variable
from hlo_opt.ops.contraction.table import sum_type
from hlo_opt.plans.columns import MOST_RESIDENT, SHARED_BYTES, WARP, WIDEST_BITS
from hlo_opt.plans.instructions import Work
from hlo_opt.plans.plan import Launch, Region, Segment
from hlo_opt.plans.products import BLOCK, OfProduct, ProductSpace, ends, parameters_read
from hlo_opt.plans.walks import ITEM, ROUND, THREAD, Walk

MOST_ROWS = 16
"""Rows of a product; with more, tiles are quicker. Prices decide about fewer."""
SHORTEST = 64
"""The least number of contracted elements for several threads."""
_LONG = 1024  # contracted elements that are worth a block of their own
_SUMS = 32  # of a thread, which registers hold
_BESIDE = 2  # columns of a thread of a warp that reads along them: each is a load of 16 bytes
_ROUNDS = 4  # of a block that shares its columns with others, at the least
_ENOUGH = 16  # with fewer a block is alone; it keeps as many where all multiprocessors have one
_IN_FLIGHT = 128  # bytes that a thread loads before it adds the first products, of at most `_ROUNDS` rounds
_HELD = 160  # bytes of sums and of what is in flight, which a quarter of a multiprocessor's registers holds
_NARROWEST = 4  # bits of an element
_AHEAD = 256  # bytes that a thread loads together: see hlo_opt/codegen/vectors.py


@dataclass(frozen=True)
class Strips(OfProduct):
    """A product of few rows, whose sums several threads share.

    along    whether a warp reads along contracted elements; else across columns
    vector   neighbouring contracted elements of a thread
    width    columns of a thread: neighbours, or, if a warp reads along them, a warp's and those of others between
    lanes    threads with different columns
    parts    blocks that share the sums of columns
    """

    kind: ClassVar[str] = "matrix-vector"
    along: bool
    vector: int = 1
    width: int = 1
    lanes: int = BLOCK // WARP
    parts: int = 1

    @property
    def ways(self) -> int:
        """Threads of a block that share the sums of a column."""
        return BLOCK // self.lanes

    @property
    def columns(self) -> int:
        """Columns of a block."""
        return self.lanes * self.width

    @property
    def cells(self) -> int:
        """Partial sums of a block in shared memory. Those of an element are adjacent, with one element of padding
        against bank conflicts."""
        return self.columns * self.space.sizes[1] * (self.ways + 1)

    @property
    def tiles(self) -> tuple[int, int, int]:
        """Blocks along batches, columns and contracted elements."""
        batch, _, columns, _ = self.space.sizes
        return batch, -(-columns // self.columns), self.parts

    @property
    def stride(self) -> int:
        """Vectors of contracted elements from one of a thread to its next."""
        return self.ways * self.parts

    @property
    def loaded(self) -> int:
        """Bytes that a thread loads in a round."""
        large, small = (_bits(self.space, side) for side in (1, 0))
        return -(-self.vector * (large * self.width + small * self.space.sizes[1]) // 8)

    @property
    def together(self) -> int:
        """Rounds whose loads a thread has in flight together."""
        return max(1, min(_ROUNDS, _IN_FLIGHT // self.loaded))

    def segment(self, block: int) -> Segment[Strips]:
        """The segment; the launch has no other."""
        vector = self.vector if self.along else self.width
        sums = self.space.sizes[1] * self.width * sum_type(self.space.hero.shape.type).bytes
        resident = MOST_RESIDENT if sums + self.together * self.loaded <= _HELD else MOST_RESIDENT // 2
        return Segment(self, math.prod(self.tiles), vector, resident=resident, rereads=True)

    def shared_bytes(self, block: int) -> int:
        """Bytes of the partial sums, and of the number of blocks that have left theirs."""
        return self.cells * sum_type(self.space.hero.shape.type).bytes + 4 * (self.parts > 1)


def match(region: Region, space: ProductSpace, target: DeviceTarget) -> Strips | None:
    """The part for a product of few rows and long sums, or None."""
    _, rows, columns, depth = space.sizes
    if columns < rows:
        space = ProductSpace(space.hero, not space.turned)
        rows, columns = columns, rows
    if rows > MOST_ROWS or depth < SHORTEST:
        return None
    along = space.goes_along(1)
    strips = Strips(space, tuple(range(len(region.roots))), along, lanes=BLOCK // WARP if along else WARP)
    if columns < strips.columns and depth < _LONG:
        return None
    cores = target.core_count
    strips = _along(strips) if along else _across(strips)
    while strips.width > 1 and (not _fits(strips) or math.prod(strips.tiles) * _parts(strips, cores, _ENOUGH) < cores):
        strips = replace(strips, width=strips.width // 2)
    if not _fits(strips):
        return None
    return replace(strips, parts=_parts(strips, cores, _ROUNDS if math.prod(strips.tiles) < cores else _ENOUGH))


def _along(strips: Strips) -> Strips:
    """With as many contracted elements for a thread as 16 bytes hold, or fewer if these do not divide the sum, leave
    threads without any, or are more than a thread loads together."""
    _, rows, columns, depth = strips.space.sizes
    large, small = (_bits(strips.space, side) for side in (1, 0))
    width = _BESIDE if columns % (_BESIDE * strips.lanes) == 0 and _BESIDE * rows <= _SUMS else 1
    vector = max(1, WIDEST_BITS // max(_NARROWEST, large))
    while vector > 1 and (
        depth % vector
        or vector * strips.ways > depth
        or vector * (max(_NARROWEST, large) * width + max(_NARROWEST, small) * rows) > 8 * _AHEAD
    ):
        vector //= 2
    return replace(strips, vector=vector, width=width)


def _across(strips: Strips) -> Strips:
    """With as many columns for a thread as 16 bytes hold, or fewer if these do not divide the columns or leave threads
    without any, or if registers do not hold their sums."""
    _, rows, columns, _ = strips.space.sizes
    width = max(1, WIDEST_BITS // max(8, _bits(strips.space, 1)))
    while width > 1 and (columns % width or columns < width * strips.lanes or width * rows > _SUMS):
        width //= 2
    return replace(strips, width=width)


def _bits(space: ProductSpace, side: int) -> int:
    """Bits of an element of the narrowest array that an operand is computed from."""
    operand = space.hero.operands[space.operand_of(side)]
    read = parameters_read(operand, (constant(0),) * operand.shape.rank)
    return min((p.shape.type.bits for p, _ in read if p.shape.element_count > 1), default=WIDEST_BITS)


def _fits(strips: Strips) -> bool:
    """Whether the sums of a block fit into shared memory, however many blocks share them."""
    return replace(strips, parts=2).shared_bytes(BLOCK) <= SHARED_BYTES


def _parts(strips: Strips, cores: int, least: int) -> int:
    """The number of blocks that share columns: as many as fill the device, if each has `least` rounds. Up to half of
    them are left out if all threads then have the same number of rounds."""
    rounds, rest = divmod(strips.space.sizes[3], strips.ways * strips.vector)
    if rounds < _ENOUGH:
        return 1
    most = max(1, min(cores * MOST_RESIDENT // math.prod(strips.tiles), rounds // least))
    return most if rest else next((parts for parts in range(most, most // 2, -1) if rounds % parts == 0), most)


def walks(region: Region, segment: Segment[Strips], launch: Launch) -> list[Walk]:
    """The walk over the contracted elements of a thread's columns, for all rows at once, and the one that writes the
    outputs."""
    part, space = segment.part, segment.part.space
    batch, rows, columns, depth = space.sizes
    threads = segment.blocks * BLOCK
    thread = variable(THREAD, threads)
    number, strip, share = delinearize(divide(thread, BLOCK), part.tiles)
    inside = modulo(thread, BLOCK)
    way, own = (modulo(inside, part.ways), divide(inside, part.ways))
    if not part.along:
        way, own = divide(inside, part.lanes), modulo(inside, part.lanes)
    rounds = -(-depth // (part.stride * part.vector))
    step = add(add(multiply(variable(ROUND, rounds), part.stride), multiply(share, part.ways)), way)
    first, near = multiply(strip, part.columns), 1
    if part.along:
        items, near = part.vector, part.width
        column = add(first, own)
        along = add(multiply(step, part.vector), variable(ITEM, part.vector))
    else:
        items, along = part.width, step
        column = add(add(first, multiply(own, part.width)), variable(ITEM, part.width))
    places = {"batch": number, "column": column, "along": along}
    at, k = variable("batch", batch), variable("along", depth)
    beside = [add(variable("column", columns), constant(n * part.lanes)) for n in range(near)]
    free = [(0, constant(row)) for row in range(rows)] + [(1, column) for column in beside]
    wanted = [(space.hero.operands[space.operand_of(s)], space.operand_index(s, at, f, k)) for s, f in free]
    sums = rows * part.width
    walk = Walk(
        threads,
        wanted,
        places=places,
        items=items,
        rounds=rounds,
        body=Work(1) * (rows * near),
        barriers=1 + 2 * (part.parts > 1),
        shuffles=2 * sums * (part.ways.bit_length() - 1),
        trips=part.parts > 1,
    )
    elements = batch * rows * columns
    place = delinearize(variable("place", elements), (batch, rows, columns))
    return [
        walk,
        ends(region, space, space.index(*place), Walk(elements, (), places={"place": variable(THREAD, elements)})),
    ]
