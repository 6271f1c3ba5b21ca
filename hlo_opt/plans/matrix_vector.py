"""The matrix-vector plan: for products of few rows, as in decoding, threads share the sum of each element and add up
their partial sums in shared memory.

The large operand is read once, with neighbouring threads at neighbouring addresses: a warp reads along the contracted
elements of a column if these are contiguous, else across columns. The order of sums is not that of `lower_dot`. XLA:GPU
uses its row and column reductions for such products (xla/service/gpu/transforms/gemv_rewriter.cc).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from hlo_opt.ir.index_map import add, constant, delinearize, divide, modulo, multiply, variable
from hlo_opt.ops.contraction.table import sum_type
from hlo_opt.plans.columns import WARP
from hlo_opt.plans.instructions import Work
from hlo_opt.plans.plan import Launch, Region, Segment
from hlo_opt.plans.products import BLOCK, OfProduct, Space, ends, parameters_read
from hlo_opt.plans.walks import ITEM, ROUND, THREAD, Walk

MOST_ROWS = 8
"""Rows of a product; with more, tiles are quicker."""
SHORTEST = 64
"""The least number of contracted elements for several threads."""
_LONG = 1024  # contracted elements that are worth a block of their own


@dataclass(frozen=True)
class Strips(OfProduct):
    """A product of few rows, whose sums several threads share.

    along    whether a warp reads along contracted elements; else across columns
    vector   neighbouring contracted elements of a thread
    """

    kind: ClassVar[str] = "matrix-vector"
    along: bool
    vector: int = 1

    @property
    def ways(self) -> int:
        """Threads that share the sums of a column."""
        return WARP if self.along else BLOCK // WARP

    @property
    def columns(self) -> int:
        """Columns of a block."""
        return BLOCK // self.ways

    @property
    def cells(self) -> int:
        """Partial sums of a block in shared memory. Those of an element are adjacent, with one element of padding
        against bank conflicts."""
        return self.columns * self.space.sizes[1] * (self.ways + 1)

    @property
    def blocks(self) -> tuple[int, int]:
        """Blocks along batches and columns."""
        batch, _, columns, _ = self.space.sizes
        return batch, -(-columns // self.columns)

    def segment(self, block: int) -> Segment[Strips]:
        """The segment; the launch has no other."""
        return Segment(self, math.prod(self.blocks), self.vector, rereads=True)

    def shared_bytes(self, block: int) -> int:
        """Bytes of the partial sums."""
        return self.cells * sum_type(self.space.hero.shape.type).bytes


def match(region: Region, space: Space) -> Strips | None:
    """The part for a product of few rows and long sums, or None."""
    _, rows, columns, depth = space.sizes
    if columns < rows:
        space = Space(space.hero, not space.turned)
        rows, columns = columns, rows
    if rows > MOST_ROWS or depth < SHORTEST:
        return None
    strips = Strips(space, tuple(range(len(region.roots))), space.goes_along(1))
    if columns < strips.columns and depth < _LONG:
        return None
    return replace(strips, vector=_vector(strips)) if strips.along else strips


def _vector(strips: Strips) -> int:
    """Contracted elements that a thread reads together: as many as 16 bytes hold, or fewer if these do not divide the
    sum or leave threads without any."""
    operand = strips.space.hero.operands[strips.space.operand_of(1)]
    depth = strips.space.sizes[3]
    read = parameters_read(operand, (constant(0),) * operand.shape.rank)
    bits = min((p.shape.type.bits for p, _ in read if p.shape.element_count > 1), default=128)
    vector = max(1, 128 // max(16, bits))
    while vector > 1 and (depth % vector or vector * strips.ways > depth):
        vector //= 2
    return vector


def walks(region: Region, segment: Segment[Strips], launch: Launch) -> list[Walk]:
    """The walk over the contracted elements of a column, for all rows at once, and the one that writes the outputs."""
    part, space = segment.part, segment.part.space
    batch, rows, columns, depth = space.sizes
    threads = segment.blocks * BLOCK
    thread = variable(THREAD, threads)
    number, strip = delinearize(divide(thread, BLOCK), part.blocks)
    inside = modulo(thread, BLOCK)
    way, own = (modulo(inside, part.ways), divide(inside, part.ways))
    if not part.along:
        way, own = divide(inside, part.columns), modulo(inside, part.columns)
    rounds = -(-depth // (part.ways * part.vector))
    step = add(multiply(variable(ROUND, rounds), part.ways), way)
    places = {
        "batch": number,
        "column": add(multiply(strip, part.columns), own),
        "along": add(multiply(step, part.vector), variable(ITEM, part.vector)),
    }
    at, k, column = variable("batch", batch), variable("along", depth), variable("column", columns)
    free = [(0, constant(row)) for row in range(rows)] + [(1, column)]
    wanted = [(space.hero.operands[space.operand_of(s)], space.operand_index(s, at, f, k)) for s, f in free]
    shuffles = 2 * rows * (part.ways.bit_length() - 1)
    sums = Walk(
        threads,
        wanted,
        places=places,
        items=part.vector,
        rounds=rounds,
        body=Work(1) * rows,
        barriers=1,
        shuffles=shuffles,
    )
    elements = batch * rows * columns
    place = delinearize(variable("place", elements), (batch, rows, columns))
    return [
        sums,
        ends(region, space, space.index(*place), Walk(elements, (), places={"place": variable(THREAD, elements)})),
    ]
