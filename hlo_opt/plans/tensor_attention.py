"""The tensor-attention plan: attention of many queries, on tensor cores.

A block has a tile of queries, a warp a few of its rows. Keys and values come to shared memory chunk by chunk; a warp
multiplies its queries with the keys, computes weights relative to the highest score of each row so far, writes them to
shared memory in the type of the values, and multiplies them with these. Scores never go to memory, and all that a row
needs is in registers of a few lanes. Source: T. Dao, "FlashAttention-2: Faster attention with better parallelism and
work partitioning", 2023; the pieces are those of `hlo_opt.plans.tensor_matmul`. Operands of f32 are rounded to TF32
where a library may do so, too (`hlo_opt.ops.calls.products.multiplies_tf32`). Chunks of which a mask leaves nothing are
left out, although a value that is infinite or no number makes HLO's result no number also where its weight is 0. With
`HLO_PRECISE` neither is done.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from hlo_opt.analysis.memory.forms import round_up
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir.element_type import F32, ElementType
from hlo_opt.ir.index_map import (
    Remainder,
    Variable,
    add,
    delinearize,
    divide,
    modulo,
    multiply,
    split_constant,
    variable,
)
from hlo_opt.ops.calls.products import multiplies_tf32
from hlo_opt.ops.lowering import Element
from hlo_opt.ops.masks import Mask, mask_of
from hlo_opt.ops.reduction.softmax import unshaped
from hlo_opt.plans.attention import (
    ALONG,
    BATCH,
    BLOCK,
    COLUMN,
    KEY,
    ROW,
    Scores,
    index_of,
    scores_of,
    values_at,
    vectors_of,
)
from hlo_opt.plans.columns import SHARED_BYTES, WARP
from hlo_opt.plans.instructions import Work
from hlo_opt.plans.plan import Launch, Region, Segment
from hlo_opt.plans.products import OfProduct, ends
from hlo_opt.plans.tensor_matmul import COLUMNS, OLDEST, PADDING, ROWS, STEP
from hlo_opt.plans.walks import ITEM, ROUND, THREAD, Walk

WARPS = BLOCK // WARP
HEIGHT = WARPS * ROWS
"""Queries of a block."""
LONGEST = 160
"""The most elements of a key, and of a value: registers hold the sums of a row."""
_CHUNKS = (64, 32, 16)
_CYCLES = 8  # of a piece's multiplication, for a warp
_REGISTERS, _FREE, _FILE = 64, 16, 65536
"""Registers of a thread besides those for sums; those of these that prices add to all kernels; and the registers of a
multiprocessor."""
_STEPS = {"bf16": STEP, "f16": STEP, "f32": STEP // 2}
"""By type, the contracted elements that one instruction multiplies."""
_ONE_WAVE = 256  # blocks that devices run at once, about
_LOWEST = -1e4
"""The most that a mask may leave of a score, so that its weight is 0 beside that of any score of more than half of
it."""
_WEIGHING = Work(14, 1)
"""The work of a weight: highest, difference, exponential, sum, rounding."""


@dataclass(frozen=True)
class TensorAttention(OfProduct):
    """Outputs that are computed of weighted sums of values.

    scores   what the weights are computed from
    chunk    keys that shared memory holds at a time
    vectors  neighbouring elements of a key, and of a value, that a thread reads together
    mask     the last key of a query of which anything is left, by its number among the rows, if a mask says so
    """

    kind: ClassVar[str] = "tensor-attention"
    scores: Scores = field(compare=False)
    chunk: int = 64
    vectors: tuple[int, int] = (1, 1)
    mask: Mask | None = field(default=None, compare=False)

    @property
    def first(self) -> Instruction:
        """The product of queries and keys."""
        return self.scores.product

    @property
    def block(self) -> int:
        """Threads per block."""
        return BLOCK

    @property
    def type(self) -> ElementType:
        """The element type of queries, keys, weights and values."""
        return self.hero.operands[0].shape.type

    @property
    def step(self) -> int:
        """Contracted elements that one instruction multiplies."""
        return _STEPS[self.type.name]

    @property
    def depth(self) -> int:
        """Elements of a line of queries or keys in shared memory: those beyond a key's are 0."""
        return round_up(self.scores.depth, self.step)

    @property
    def columns(self) -> int:
        """Columns of the pieces that a row's sums are; those beyond a value's are not used."""
        return round_up(self.space.sizes[2], COLUMNS)

    @property
    def rounds(self) -> int:
        """Chunks of keys."""
        return -(-self.space.sizes[3] // self.chunk)

    @property
    def tiles(self) -> tuple[int, int]:
        """Blocks along batches and rows."""
        batch, rows, _, _ = self.space.sizes
        return batch, -(-rows // HEIGHT)

    @property
    def average(self) -> float:
        """The part of the rounds of all blocks that they run. Where all of them run at once, the longest keep the
        device waiting, and half of what others save is lost."""
        if self.mask is None:
            return 1.0
        part = min(1.0, ((self.mask.last.high + 1) / 2 + HEIGHT) / self.space.sizes[3])
        return part if math.prod(self.tiles) > _ONE_WAVE else (1 + part) / 2

    @property
    def tables(self) -> tuple[Shape, Shape, Shape, Shape]:
        """The arrays in shared memory: queries, a chunk of keys, one of values, and weights; lines are padded."""
        sizes = ((HEIGHT, self.depth), (self.chunk, self.depth), (self.chunk, self.columns), (HEIGHT, self.chunk))
        near = 16 * PADDING // self.type.bits  # 16 bytes, but where an instruction reads along a column
        paddings = (near, near, PADDING, near)
        one, two, three, four = (
            Shape(self.type, (lines, length + padding))
            for (lines, length), padding in zip(sizes, paddings, strict=True)
        )
        return one, two, three, four

    @property
    def registers(self) -> int:
        """Registers of a thread, about."""
        return _REGISTERS + 4 * (self.chunk + self.columns) // COLUMNS

    def segment(self, block: int) -> Segment[TensorAttention]:
        """The segment; the launch has no other."""
        resident = max(1, _FILE // BLOCK // round_up(self.registers, 8))
        return Segment(self, math.prod(self.tiles), max(self.vectors), resident=resident, rereads=True)

    def shared_bytes(self, block: int) -> int:
        """Bytes of the arrays in shared memory, and of a flag."""
        return sum(table.byte_size for table in self.tables) + 4 * (self.mask is not None)


def match(region: Region, target: DeviceTarget) -> TensorAttention | None:
    """The part for a region that is attention of many queries as a whole, or None."""
    if target.in_lanes or target.compute_capability < OLDEST:
        return None
    found = scores_of(region)
    if found is None:
        return None
    space, scores = found
    _, rows, columns, keys = space.sizes
    products = (scores.product, space.hero)
    types = {o.shape.type for product in products for o in product.operands[:2]}
    if len(types) != 1 or not {t.name for t in types} <= _STEPS.keys() or not scores.shares_keys:
        return None
    if types == {F32} and not all(map(multiplies_tf32, products)):
        return None
    if rows < ROWS or keys < STEP or min(scores.depth, columns) < COLUMNS or max(scores.depth, columns) > LONGEST:
        return None
    vectors = vectors_of(space, scores)
    if min(vectors) < 2:
        return None
    for chunk in _CHUNKS:
        part = TensorAttention(space, tuple(range(len(region.roots))), scores, chunk, vectors, _mask(scores))
        if part.shared_bytes(BLOCK) <= SHARED_BYTES:
            return part
    return None


def _mask(scores: Scores) -> Mask | None:
    """The mask of the scores, if the last key of a query is known from that of the first query of a block: it grows
    with the number of the row, or a tile of rows begins again where that does."""
    x = scores.exponentials.x
    base = unshaped(x)
    at = index_of(x, scores.value, base, set())
    mask = None if at is None else mask_of(base, at, KEY)
    if mask is None or mask.other > _LOWEST:
        return None
    match split_constant(mask.last)[0]:
        case Variable(name=name) if name == ROW:
            return mask
        case Remainder(left=Variable(name=name), divisor=divisor) if name == ROW and divisor % HEIGHT == 0:
            return mask
    return None


def walks(region: Region, segment: Segment[TensorAttention], launch: Launch) -> list[Walk]:
    """The walks that fill the arrays in shared memory, multiply, weigh, and write the outputs."""
    part, space, scores = segment.part, segment.part.space, segment.part.scores
    batch, rows, columns, keys = space.sizes
    threads, chunk = segment.blocks * BLOCK, part.chunk
    rounds = max(1, math.ceil(part.rounds * part.average))
    thread = variable(THREAD, threads)
    number, tile = delinearize(divide(thread, BLOCK), part.tiles)
    inside = modulo(thread, BLOCK)
    lane, warp = modulo(inside, WARP), divide(inside, WARP)
    limits = {ROW: rows, KEY: keys}

    def filling(wanted: Element, lines: int, length: int, vector: int, rounds: int) -> Walk:
        """The walk that fills one of the arrays, once for each round."""
        each = -(-lines * length // (vector * BLOCK))
        turn = variable(ROUND, rounds * each)
        unit = add(multiply(modulo(turn, each), BLOCK), inside)
        line, near = divide(unit, length // vector), modulo(unit, length // vector)
        element = add(multiply(near, vector), variable(ITEM, vector))
        places = {
            BATCH: number,
            ROW: add(multiply(tile, HEIGHT), line),
            KEY: add(multiply(divide(turn, each), chunk), line),
            ALONG: element,
            COLUMN: element,
        }
        return Walk(
            threads,
            [wanted],
            places=places,
            items=vector,
            rounds=rounds * each,
            ahead=each,
            shared=1 / vector,
            limits=limits,
            barriers=rounds,
            registers=1,
        )

    depth = variable(ALONG, scores.depth)
    queries = scores.product.operands[1 - scores.keys], scores.operand(1 - scores.keys, depth)
    of_keys = scores.product.operands[scores.keys], scores.operand(scores.keys, depth)
    values = space.hero.operands[space.operand_of(1)], values_at(space)
    steps = chunk // COLUMNS * (part.depth // part.step) + part.columns // COLUMNS * (chunk // part.step)
    multiplying = Walk(threads, (), items=steps, rounds=rounds, body=Work(_CYCLES), shared=1.1, registers=1)
    item = variable(ITEM, chunk // COLUMNS * 4)
    row = add(multiply(warp, ROWS), add(multiply(modulo(divide(item, 2), 2), ROWS // 2), divide(lane, 4)))
    near = add(multiply(divide(item, 4), COLUMNS), add(multiply(modulo(lane, 4), 2), modulo(item, 2)))
    weighing = Walk(
        threads,
        [(scores.exponentials.x, scores.value)],
        places={
            BATCH: number,
            ROW: add(multiply(tile, HEIGHT), row),
            KEY: add(multiply(variable(ROUND, rounds), chunk), near),
        },
        items=chunk // COLUMNS * 4,
        rounds=rounds,
        known=frozenset({scores.product}),
        body=_WEIGHING + Work(part.columns / (2 * chunk)),
        shared=1,
        shuffles=4 * rounds,
        limits=limits,
        keeps=True,
        registers=part.registers - _FREE,
    )
    cells = part.columns // COLUMNS * 4
    item = variable(ITEM, cells)
    places = {
        "batch": number,
        "row": add(
            multiply(tile, HEIGHT),
            add(multiply(warp, ROWS), add(multiply(modulo(divide(item, 2), 2), ROWS // 2), divide(lane, 4))),
        ),
        "column": add(multiply(divide(item, 4), COLUMNS), add(multiply(modulo(lane, 4), 2), modulo(item, 2))),
    }
    here = space.index(variable("batch", batch), variable("row", rows), variable("column", columns))
    limits = {"row": rows, "column": columns}
    written = Walk(threads, (), places=places, items=cells, body=Work(8, 1), limits=limits, registers=1)
    return [
        filling(queries, HEIGHT, scores.depth, part.vectors[0], 1),
        filling(of_keys, chunk, scores.depth, part.vectors[0], rounds),
        filling(values, chunk, columns, part.vectors[1], rounds),
        multiplying,
        weighing,
        ends(region, space, here, written, scores.beside(variable("batch", batch), variable("row", rows))),
    ]
