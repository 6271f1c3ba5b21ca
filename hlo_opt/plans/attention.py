"""The attention plan: a product with keys, its softmax, and the product of that with values, as one kernel.

A group of lanes has keys of its own: they multiply a key's elements with those of some queries, add up, and keep for
each query the highest score so far, the sum of exponentials below it, and the sums of values weighted by these, all of
which are scaled whenever the highest grows. Neither scores nor weights go to memory, and keys and values are read once
for all rows of a block, 16 bytes at a time. The groups of a block, and then its blocks where these share the keys of a
row, bring their sums together. Rounding differs from that of HLO in two ways: sums have another order, and weights are
not rounded to the type of the values. Sources: M. Milakov and N. Gimelshein, "Online normalizer calculation for
softmax", 2018; T. Dao et al., "Flash-Decoding for long-context inference", 2023.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from hlo_opt.analysis.graph.equal import Equal
from hlo_opt.analysis.memory.forms import round_up
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir.element_type import F32
from hlo_opt.ir.index_map import (
    Constant,
    Expression,
    add,
    constant,
    delinearize,
    divide,
    modulo,
    multiply,
    substitute,
    variable,
    variables_of,
)
from hlo_opt.ops.contraction.table import index_dot
from hlo_opt.ops.lowering import Element, Index
from hlo_opt.ops.reduction.softmax import (
    Exponentials,
    divided,
    of_powers,
    sums_of,
    unmoved,
    unshaped,
    weighs,
)
from hlo_opt.ops.sets import multiplies_matrices
from hlo_opt.plans.columns import SHARED_BYTES, WARP, WIDEST_BITS
from hlo_opt.plans.element_reads import depending_below, ends_needed, heroes_read
from hlo_opt.plans.instructions import Work
from hlo_opt.plans.plan import Launch, Region, Segment
from hlo_opt.plans.products import OfProduct, ProductSpace, ends, parameters_read, root_indices
from hlo_opt.plans.walks import ITEM, ROUND, THREAD, Walk

BLOCK = 128
"""Threads per block."""
MOST_ROWS = 8
"""Queries of a block: a thread has registers for its elements of each, and of each one's result."""
MOST_HELD = 128
"""Elements of queries and of results in registers of a thread."""
TOGETHER = 4
"""Keys of a group whose scores are computed before the highest is adjusted."""
BATCH, ROW, KEY, COLUMN, ALONG = "batch", "row", "key", "column", "along"
"""Variables of indices: of a batch, a query, a key, an element of a value, and an element of a key."""
_TYPES = frozenset({"f32", "bf16", "f16"})
_MOST_AT_LEAST = 8  # parts that are tried also where blocks without parts fill the device, so that waves are even
_ENDING, _MEETING, _LEFT = 1, 1, 1 / 8
"""Rounds that take as long as the end of a block, as meeting others, and as adding up what one of these has left."""
_REGISTERS, _FREE, _FILE = 64, 16, 65536
"""Registers of a thread besides those for queries and results; those of these that prices add to all kernels; and the
registers of a multiprocessor."""
_RESCALING = Work(12, 1)
"""The work of a new highest score: exponential, comparison, choice."""
_EXPONENTIAL = Work(9, 1)
"""The work of a weight: difference, exponential, sum."""


@dataclass(frozen=True)
class Scores:
    """The elements that a weight is computed from, as indices over `BATCH`, `ROW` and `KEY`.

    product       the product of queries and keys
    exponentials  the softmax
    keys          the number of the operand that holds keys
    at            the index of the product's element
    value         the index of the score, which is the product's element after what is computed of it
    total         the index of the sum of exponentials, where what is computed of the results reads it; None where the
                  weights are divided by it
    totals        that sum, and others that equal it
    """

    product: Instruction
    exponentials: Exponentials
    keys: int
    at: Index
    value: Index
    total: Index | None = None
    totals: tuple[Instruction, ...] = ()

    def beside(self, batch: Expression, row: Expression) -> list[Element]:
        """What is known of a row besides its results: the sum, where weights are not divided by it."""
        if self.total is None:
            return []
        index = pinned(self.total, {BATCH: batch, ROW: row})
        return [(total, index) for total in self.totals]

    def operand(self, number: int, along: Expression) -> Index:
        """The index at which an operand of the product is read, for an element `along` a key."""
        read = index_dot(self.product, number)
        assert read is not None
        return read.apply(self.at, delinearize(along, read.symbols))

    @property
    def shares_keys(self) -> bool:
        """Whether the queries of a batch have the same keys."""
        return ROW not in _names(self.operand(self.keys, variable(ALONG, self.depth)))

    @property
    def depth(self) -> int:
        """Elements of a key."""
        read = index_dot(self.product, 0)
        assert read is not None
        return math.prod(read.symbols)


@dataclass(frozen=True)
class Attention(OfProduct):
    """Outputs that are computed of weighted sums of values.

    scores   what the weights are computed from
    height   queries of a block
    lanes    threads of a group, which share a key
    vectors  neighbouring elements of a key, and of a value, that a thread reads together
    parts    blocks that share the keys of a row
    """

    kind: ClassVar[str] = "attention"
    scores: Scores = field(compare=False)
    height: int = 1
    lanes: int = WARP
    vectors: tuple[int, int] = (1, 1)
    parts: int = 1

    @property
    def first(self) -> Instruction:
        """The product of queries and keys."""
        return self.scores.product

    @property
    def block(self) -> int:
        """Threads per block."""
        return BLOCK

    @property
    def groups(self) -> int:
        """Groups of a block."""
        return BLOCK // self.lanes

    @property
    def lengths(self) -> tuple[int, int]:
        """Elements of a key, and of a value."""
        return self.scores.depth, self.space.sizes[2]

    @property
    def pieces(self) -> tuple[int, int]:
        """Vectors of a key, and of a value, for each thread of a group; the last may be beyond the end."""
        return _both(-(-n // (v * self.lanes)) for n, v in zip(self.lengths, self.vectors, strict=True))

    @property
    def held(self) -> tuple[int, int]:
        """Elements of a query, and of a result, that a thread has."""
        return _both(p * v for p, v in zip(self.pieces, self.vectors, strict=True))

    @property
    def stretch(self) -> int:
        """Keys of a block in a round."""
        return self.groups * TOGETHER

    @property
    def resident(self) -> int:
        """Resident blocks of a multiprocessor, as far as registers go."""
        return max(1, _FILE // BLOCK // round_up(self.registers, 8))

    @property
    def registers(self) -> int:
        """Registers of a thread, about."""
        return _REGISTERS + self.height * sum(self.held)

    @property
    def reads_ahead(self) -> bool:
        """Whether the values of a round are on their way while weights are computed: if registers are left for them."""
        return self.height * sum(self.held) + TOGETHER * self.held[1] <= MOST_HELD

    @property
    def rounds(self) -> int:
        """Rounds of a block."""
        return -(-self.space.sizes[3] // (self.stretch * self.parts))

    @property
    def tiles(self) -> tuple[int, int, int]:
        """Blocks along batches, rows and keys."""
        batch, rows, _, _ = self.space.sizes
        return batch, -(-rows // self.height), self.parts

    @property
    def cells(self) -> int:
        """Weighted sums of a block."""
        return self.height * self.lengths[1]

    @property
    def ends_evenly(self) -> bool:
        """Whether all rounds have all their keys."""
        return self.rounds * self.stretch * self.parts == self.space.sizes[3]

    def segment(self, block: int) -> Segment[Attention]:
        """The segment; the launch has no other."""
        return Segment(self, math.prod(self.tiles), max(self.vectors), resident=self.resident, rereads=True)

    def shared_bytes(self, block: int) -> int:
        """Bytes of the sums, highest scores and weights of all groups, of factors of the blocks that share rows, and of
        the number of those that have left their sums."""
        own = self.groups * (self.cells + 2 * self.height)
        return 4 * (own + (self.parts * self.height + self.height + 1) * (self.parts > 1))


def _both(numbers: Iterable[int]) -> tuple[int, int]:
    """The number of keys or queries, and that of values or results."""
    first, second = numbers
    return first, second


def match(region: Region, target: DeviceTarget) -> Attention | None:
    """The part for a region that is attention as a whole, or None."""
    found = scores_of(region)
    return None if found is None else _tiled(*found, tuple(range(len(region.roots))), target)


def scores_of(region: Region) -> tuple[ProductSpace, Scores] | None:
    """The product of weights and values, with queries as rows, and what the weights are computed from, if all outputs
    of a region are computed of it; else None."""
    products = [i for i in region.computation.instructions if multiplies_matrices(i)]
    if len(products) != 2:
        return None
    softmaxes = sums_of(region.computation.instructions, any_shape=True)
    equal = Equal()
    if not softmaxes or not all(equal(softmaxes[0].total, other.total) for other in softmaxes[1:]):
        return None
    first, second = products
    weights = [(n, of) for n, o in enumerate(second.operands[:2]) if (of := _of_weights(o, softmaxes, equal))]
    if len(weights) != 1 or not _has_types(first, second, weights[0][1]):
        return None
    space = ProductSpace(second, weights[0][0] == 1)
    batch, rows, columns, _ = space.sizes
    totals = tuple(softmax.total for softmax in softmaxes)
    scores = _scores(space, first, weights[0][1], totals) if math.prod(space.sizes) else None
    if scores is None:
        return None
    at = (variable(BATCH, batch), variable(ROW, rows), variable(COLUMN, columns))
    is_computed = root_indices(region, second, space.index(*at), scores.beside(*at[:2])) is not None
    return (space, scores) if is_computed else None


def _of_weights(weights: Instruction, softmaxes: Sequence[Exponentials], equal: Equal) -> Exponentials | None:
    """The softmax that weights are of; their exponentials may be computed again, as kernels beside each other do."""
    for softmax in softmaxes:
        if weighs(weights, softmax):
            return softmax
    powers, softmax = unmoved(weights), softmaxes[0]
    return of_powers(softmax.total, powers, any_shape=True) if equal(powers, softmax.powers) else None


def _has_types(first: Instruction, second: Instruction, exponentials: Exponentials) -> bool:
    values = (first, *first.operands[:2], second, *second.operands[:2], exponentials.x, exponentials.total)
    return all(value.shape.type.name in _TYPES for value in values)


def _scores(
    space: ProductSpace, product: Instruction, exponentials: Exponentials, totals: tuple[Instruction, ...]
) -> Scores | None:
    """What the weights of a product are computed from: exponentials of scores of the same row, divided by their sum
    over all keys, or not yet. None where they are computed of anything else."""
    batch, rows, _, keys = space.sizes
    weights = space.hero.operands[space.operand_of(0)]
    at = space.operand_index(0, variable(BATCH, batch), variable(ROW, rows), variable(KEY, keys))
    powers, total, highest = exponentials.powers, exponentials.total, exponentials.highest
    is_divided = divided(weights, exponentials) is not None
    value = index_of(weights, at, powers, {total})
    if value is None:
        return None
    row = index_of(weights, at, total, {powers}) if is_divided else _row(total, value)
    if row is None or value != _folded(total, row, keys):
        return None
    if heroes_read([(weights, at)], depending_below(weights, {powers, total}), {powers: value, total: row}) is None:
        return None
    sum_at = None if is_divided else row
    # the highest score of a row is that of the same keys
    row = index_of(exponentials.moved, value, highest, set())
    of_highest = None if row is None else _folded(highest, row, keys)
    x, base = exponentials.x, unshaped(exponentials.x)
    if of_highest is None:
        return None
    read = index_of(x, value, base, set())
    if read is None or read != index_of(highest.operands[0], of_highest, base, set()):
        return None
    there = index_of(x, value, product, set())
    if there is None:
        return None
    return _with_keys(Scores(product, exponentials, 0, there, value, sum_at, totals))


def _row(reduce: Instruction, index: Index) -> Index:
    """The index of the element of a reduce that an element of its operand is folded into."""
    gone = reduce.ints("dimensions")
    return tuple(e for d, e in enumerate(index) if d not in gone)


def _folded(reduce: Instruction, row: Index, keys: int) -> Index | None:
    """The index of the element of a row's keys that a reduce folds; None where it folds anything else."""
    sizes, gone = reduce.operands[0].shape.dimensions, reduce.ints("dimensions")
    if KEY in _names(row) or [sizes[d] for d in gone if sizes[d] > 1] != [keys]:
        return None
    rest, zero = iter(row), constant(0)
    return tuple(
        (variable(KEY, keys) if size > 1 else zero) if d in gone else next(rest) for d, size in enumerate(sizes)
    )


def index_of(start: Instruction, at: Index, hero: Instruction, others: set[Instruction]) -> Index | None:
    """The only index at which a start needs a hero, and not by way of the others; None where there are several or
    none."""
    over, found = depending_below(start, {hero}), set[Index]()
    for end in ends_needed([(start, at)], over - others, lambda i, _: i is hero):
        if end is None:
            return None
        found.add(end[1])
    return found.pop() if len(found) == 1 else None


def _with_keys(scores: Scores) -> Scores | None:
    """With the operand that holds keys: the only one that differs from key to key."""
    depth = variable(ALONG, scores.depth)
    names = [_names(scores.operand(number, depth)) for number in (0, 1)]
    keys = [number for number in (0, 1) if KEY in names[number]]
    if len(keys) != 1:
        return None
    return replace(scores, keys=keys[0])


def _names(index: Index) -> set[str]:
    return set[str]().union(*map(variables_of, index))


def _tiled(space: ProductSpace, scores: Scores, roots: tuple[int, ...], target: DeviceTarget) -> Attention | None:
    """The part with its tiles, or None where registers or shared memory do not hold what is needed."""
    _, rows, columns, keys = space.sizes
    depth, vectors = scores.depth, vectors_of(space, scores)
    if min(vectors) < 2:
        return None
    longest = max(-(-depth // vectors[0]), -(-columns // vectors[1]))
    lanes = min(WARP, 1 << (longest - 1).bit_length())
    height = min(rows, MOST_ROWS) if scores.shares_keys else 1
    height = -(-rows // -(-rows // height))
    while True:
        part = Attention(space, roots, scores, height, lanes, vectors)
        if height * sum(part.held) <= MOST_HELD:
            parts = _parts(math.prod(part.tiles), -(-keys // part.stretch), target.core_count * part.resident)
            part = replace(part, parts=parts)
            if part.shared_bytes(BLOCK) <= SHARED_BYTES:
                return part
        if height == 1:
            return None
        height = -(-height // 2)


def _parts(tiles: int, rounds: int, slots: int) -> int:
    """The number of blocks that share the rounds of a tile: that with the shortest time, in rounds, where as many
    blocks as there are slots run at a time. Blocks that share nothing have no others to wait for."""
    most = max(1, min(rounds, max(_MOST_AT_LEAST, slots // tiles)))

    def score(parts: int) -> float:
        if parts == 1:
            return -(-tiles // slots) * (rounds + _ENDING)
        return -(-tiles * parts // slots) * (-(-rounds // parts) + _ENDING + _MEETING) + parts * _LEFT

    parts = min(range(1, most + 1), key=score)
    return -(-rounds // -(-rounds // parts))


def vectors_of(space: ProductSpace, scores: Scores) -> tuple[int, int]:
    """Neighbouring elements of a key, and of a value, that a thread reads together."""
    depth, columns = scores.depth, space.sizes[2]
    keys = scores.product.operands[scores.keys], scores.operand(scores.keys, variable(ALONG, depth))
    values = space.hero.operands[space.operand_of(1)], values_at(space)
    return _vector(*keys, ALONG, depth), _vector(*values, COLUMN, columns)


def values_at(space: ProductSpace) -> Index:
    """The index of an element of a value."""
    batch, _, columns, keys = space.sizes
    return space.operand_index(1, variable(BATCH, batch), variable(COLUMN, columns), variable(KEY, keys))


def _vector(operand: Instruction, index: Index, name: str, size: int) -> int:
    """Neighbouring elements that a thread reads together: 16 bytes of the narrowest array that an operand is computed
    from, or fewer if they do not divide the size; 1 where neighbours are not adjacent in memory."""
    start, beside = (parameters_read(operand, _settled(index, {name: constant(n)})) for n in (0, 1))
    if size < 2 or len(start) != len(beside) or not start:
        return 1
    most = max(range(len(start)), key=lambda n: start[n][0].shape.element_count)
    if beside[most][1] - start[most][1] != 1:
        return 1
    bits = min((p.shape.type.bits for p, _ in start if p.shape.element_count > 1), default=WIDEST_BITS)
    return math.gcd(size, WIDEST_BITS // max(16, bits))


def _settled(index: Index, values: Mapping[str, Expression]) -> Index:
    """The index with other variables at 0."""
    every = {name: constant(0) for name in _names(index)} | dict(values)
    settled = tuple(substitute(e, every) for e in index)
    assert all(isinstance(e, Constant) for e in settled)
    return settled


def walks(region: Region, segment: Segment[Attention], launch: Launch) -> list[Walk]:
    """The walks over queries, keys, scores and values, and those that bring sums together and write the outputs."""
    part, space, scores = segment.part, segment.part.space, segment.part.scores
    batch, rows, columns, keys = space.sizes
    threads = segment.blocks * BLOCK
    thread = variable(THREAD, threads)
    number, tile, share = delinearize(divide(thread, BLOCK), part.tiles)
    inside = modulo(thread, BLOCK)
    group, lane = divide(inside, part.lanes), modulo(inside, part.lanes)
    steps = part.rounds * TOGETHER

    def along(side: int, turn: Expression) -> Expression:
        """The position of an item in a query, or in a value."""
        vector = part.vectors[side]
        return add(multiply(add(multiply(turn, part.lanes), lane), vector), variable(ITEM, vector))

    def walk(
        side: int, wanted: Sequence[tuple[Instruction, Index]], rounds: int, body: Work, shuffles: int = 0
    ) -> Walk:
        """The walk over keys, or values; a thread takes the pieces of one after another."""
        pieces = part.pieces[side]
        turn = variable(ROUND, rounds * pieces)
        step = divide(turn, pieces)
        chunk = add(multiply(share, part.rounds), divide(step, TOGETHER))
        key = add(multiply(add(multiply(chunk, part.groups), group), TOGETHER), modulo(step, TOGETHER))
        at = along(side, modulo(turn, pieces))
        places = {BATCH: number, KEY: key, ALONG: at, COLUMN: at}
        limits = {KEY: keys, ALONG: part.lengths[0], COLUMN: columns}
        return Walk(
            threads,
            wanted,
            places=places,
            items=part.vectors[side],
            rounds=rounds * pieces,
            ahead=TOGETHER * pieces,
            body=body,
            shuffles=shuffles,
            limits=limits,
            registers=1,
            filled=keys / (part.rounds * part.stretch * part.parts),
        )

    depth = variable(ALONG, scores.depth)
    stages = part.lanes.bit_length() - 1
    first = multiply(tile, part.height)
    turn = variable(ROUND, part.height * part.pieces[0])
    asked = scores.operand(1 - scores.keys, depth)
    queries = Walk(
        threads,
        [(scores.product.operands[1 - scores.keys], asked)],
        places={
            BATCH: number,
            ROW: add(first, divide(turn, part.pieces[0])),
            KEY: constant(0),
            ALONG: along(0, modulo(turn, part.pieces[0])),
        },
        items=part.vectors[0],
        rounds=part.height * part.pieces[0],
        registers=1,
        limits={ROW: rows, ALONG: scores.depth},
    )
    keys_of = scores.product.operands[scores.keys], scores.operand(scores.keys, depth)
    values_of = space.hero.operands[space.operand_of(1)], values_at(space)
    multiplying = Work(part.height * (1 + 2 * stages / part.held[0]))
    if part.reads_ahead and part.vectors[0] == part.vectors[1] and part.pieces[0] == part.pieces[1]:
        both = multiplying + Work(part.height)
        reading = [walk(0, [keys_of, values_of], steps, both, stages * part.rounds)]
    else:
        reading = [
            walk(0, [keys_of], steps, multiplying, stages * part.rounds),
            walk(1, [values_of], steps, Work(part.height)),
        ]
    step = variable(ROUND, steps)
    chunk = add(multiply(share, part.rounds), divide(step, TOGETHER))
    weighing = Walk(
        threads,
        [(scores.exponentials.x, scores.value)],
        places={
            BATCH: number,
            ROW: add(first, variable(ITEM, part.height)),
            KEY: add(multiply(add(multiply(chunk, part.groups), group), TOGETHER), modulo(step, TOGETHER)),
        },
        items=part.height,
        rounds=steps,
        ahead=TOGETHER,
        body=_EXPONENTIAL + (_RESCALING + Work(part.held[1])) * (1 / TOGETHER),
        known=frozenset({scores.product}),
        limits={ROW: rows, KEY: keys},
        keeps=True,
        registers=part.registers - _FREE,
        steps=8,
    )
    merging = Walk(
        threads,
        (),
        items=part.height * part.held[1],
        body=Work(2 + 2 * part.groups / part.lanes),
        shared=1 + part.groups / part.lanes,
        barriers=2,
        registers=1,
    )
    elements = batch * rows * columns
    place = delinearize(variable("place", elements), (batch, rows, columns))
    written = Walk(elements, (), places={"place": variable(THREAD, elements)}, body=Work(8, 1), registers=1)
    shared = _meeting(part, segment.blocks) if part.parts > 1 else []
    beside = scores.beside(*place[:2])
    return [queries, *reading, weighing, merging, *shared, ends(region, space, space.index(*place), written, beside)]


def _meeting(part: Attention, blocks: int) -> list[Walk]:
    """The walks in which blocks leave their sums for the last of those that share rows, and in which it reads them."""
    cells = part.cells + 2 * part.height
    left = Shape(F32, (blocks * cells,))
    walks = []
    for threads, rounds in ((blocks * BLOCK, 1), (blocks // part.parts * BLOCK, part.parts)):
        thread, items = variable(THREAD, threads), -(-cells // BLOCK)
        block = add(multiply(divide(thread, BLOCK), rounds), variable(ROUND, rounds))
        inside = add(multiply(variable(ITEM, items), BLOCK), modulo(thread, BLOCK))
        place = add(multiply(block, cells), inside)
        walks.append(
            Walk(
                threads,
                (),
                items=items,
                rounds=rounds,
                published=[(left, (place,))],
                registers=1,
                trips=int(rounds == 1),
                barriers=2,
                body=Work(1),
            )
        )
    return walks


def pinned(index: Index, values: Mapping[str, Expression]) -> Index:
    """An index of `Scores` with its variables replaced."""
    return tuple(substitute(e, values) for e in index)
