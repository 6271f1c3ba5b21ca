"""The emitter of attention plans: a group of lanes weighs the values of its keys, then groups bring their sums
together. Where blocks share the keys of a row, the last of them adds up their sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.folds import Fold
from hlo_opt.codegen.indices import named, thread_of, tile_of
from hlo_opt.codegen.matmul import inside, write
from hlo_opt.codegen.parts import Meeting, last_only, leave, meeting, part_at, reset
from hlo_opt.codegen.scalars import literal, register_type, shuffled, zero
from hlo_opt.codegen.tree import Barrier
from hlo_opt.codegen.vectors import Store, Targets, each_element
from hlo_opt.ir import Instruction
from hlo_opt.ir.element_type import F32
from hlo_opt.ir.index_map import Expression, Variable, add, constant, delinearize, divide, modulo, multiply
from hlo_opt.ops.code import NOTHING, Code, Name, call, cell, code
from hlo_opt.ops.contraction.table import summed
from hlo_opt.ops.lowering import Index
from hlo_opt.plans.attention import BATCH, BLOCK, KEY, ROW, TOGETHER, Attention, Scores, pinned
from hlo_opt.plans.plan import Plan, Segment

LOWEST = literal(F32, np.float32(-np.inf))
"""The highest score of no keys."""


@dataclass(frozen=True)
class _Frame:
    """What a thread computes: its batch, rows, group and lane, and its registers.

    corner   the batch, the tile of rows, and the share of the keys
    queries  elements of its rows' queries
    sums     weighted sums of elements of values, for each row
    tops     the highest score of each row
    totals   the sum of exponentials of each row
    """

    part: Attention
    corner: tuple[Expression, Expression, Expression]
    rows: Sequence[Expression]
    group: Expression
    lane: Expression
    queries: Name
    sums: Name
    tops: Sequence[Code]
    totals: Sequence[Code]

    def at(self, index: Index, row: Expression, key: Expression) -> Index:
        """An index of the scores for a row and a key."""
        return pinned(index, {BATCH: self.corner[0], ROW: row, KEY: key})


def emit(builder: Builder, plan: Plan, segment: Segment[Attention], first_block: int, targets: Targets) -> None:
    """Emit the only segment of the launch: `first_block` is 0."""
    part = segment.part
    frame = _frame(builder, segment)
    _load_queries(builder, frame)
    with builder.loop(part.rounds, carries=True) as step:
        chunk = add(multiply(frame.corner[2], part.rounds), step)
        start = builder.declare_index("key", multiply(add(multiply(chunk, part.groups), frame.group), TOGETHER))
        keys, conditions = _keys(builder, part, start)
        ahead = _read_values(builder, frame, keys) if part.reads_ahead else None
        weights = _weigh(builder, frame, keys, conditions)
        _sum(builder, frame, keys, conditions, weights, ahead)
    shared = _merge_groups(builder, frame)
    _finish(builder, plan, segment, frame, shared, targets)


def _frame(builder: Builder, segment: Segment[Attention]) -> _Frame:
    part = segment.part
    batch, tile, share = tile_of(builder, 0, segment.blocks, part.tiles)
    group = builder.declare_index("group", divide(thread_of(BLOCK), part.lanes))
    lane = builder.declare_index("lane", modulo(thread_of(BLOCK), part.lanes))
    last = part.space.sizes[1] - 1
    rows = [at_most(builder, "row", add(multiply(tile, part.height), constant(r)), last) for r in range(part.height)]
    kind = register_type(F32)
    arrays = []
    for stem, held in zip(("query", "sums"), part.held, strict=True):
        arrays.append(builder.array(kind, builder.fresh(stem), part.height * held))
        for number in range(part.height * held):
            builder.assign(cell(arrays[-1], number), zero(F32))
    builder.name_after(part.scores.exponentials.highest)
    tops = [builder.variable(F32, LOWEST) for _ in rows]
    builder.name_after(part.scores.exponentials.total)
    totals = [builder.variable(F32, zero(F32)) for _ in rows]
    queries, sums = arrays
    return _Frame(part, (batch, tile, share), rows, group, lane, queries, sums, tops, totals)


def at_most(builder: Builder, stem: str, place: Expression, most: int) -> Expression:
    """The place, or the last one where it is beyond the end: what is computed there is not used."""
    declared = builder.declare_index(stem, place)
    if declared.high <= most:
        return declared
    assert isinstance(declared, Variable)
    return builder.clamped(stem, code("{} <= {}", declared, most), declared, most)


def _keys(builder: Builder, part: Attention, start: Expression) -> tuple[list[Expression], list[Code]]:
    """The keys of a group in a round, and the conditions that they exist."""
    last = part.space.sizes[3] - 1
    keys, conditions = [], []
    for number in range(TOGETHER):
        key = add(start, constant(number))
        is_last = key.high > last
        conditions.append(code("{} <= {}", builder.text(key), last) if is_last else NOTHING)
        keys.append(at_most(builder, "key", key, last) if is_last else key)
    return keys, conditions


def _pieces(
    builder: Builder, frame: _Frame, side: int, take: Callable[[Builder, Expression, Expression], None]
) -> None:
    """Take the elements of a key (side 0) or of a value that a thread has: each with its position, and its number among
    them."""
    part = frame.part
    vector, whole = part.vectors[side], part.lengths[side] // part.vectors[side]
    for piece in range(part.pieces[side]):
        unit, condition = inside(builder, "piece", add(frame.lane, constant(piece * part.lanes)), whole)

        def place(builder: Builder, number: Expression, unit: Expression = unit) -> Expression:
            return builder.declare_index("element", add(multiply(unit, vector), number))

        def compute(builder: Builder, at: Expression, number: Expression, first: int = piece * vector) -> list[Store]:
            take(builder, at, add(constant(first), number))
            return []

        with builder.branch(condition):
            each_element(builder, vector, place, compute)


def _load_queries(builder: Builder, frame: _Frame) -> None:
    scores = frame.part.scores
    number = 1 - scores.keys
    for r, row in enumerate(frame.rows):

        def take(builder: Builder, at: Expression, own: Expression, r: int = r, row: Expression = row) -> None:
            index = frame.at(scores.operand(number, at), row, constant(0))
            value = builder.value(scores.product.operands[number], index)
            builder.assign(_own(builder, frame, 0, r, own), value)

        _pieces(builder, frame, 0, take)


def _own(builder: Builder, frame: _Frame, side: int, row: int, number: Expression) -> Code:
    """A thread's element of a query (side 0), or of a result."""
    array = (frame.queries, frame.sums)[side]
    return cell(array, builder.text(add(constant(row * frame.part.held[side]), number)))


def _weigh(builder: Builder, frame: _Frame, keys: Sequence[Expression], conditions: Sequence[Code]) -> list[list[Code]]:
    """The weights of keys, for each row, relative to the highest score so far; results are scaled by how much this has
    grown. A row has had no score but -inf while its highest is that, and no key of it any weight."""
    part, scores = frame.part, frame.part.scores
    product, exponentials = scores.product, scores.exponentials
    builder.name_after(product)
    dots = [[builder.variable(F32, zero(F32)) for _ in keys] for _ in frame.rows]
    for number, key in enumerate(keys):

        def take(
            builder: Builder, at: Expression, own: Expression, number: int = number, key: Expression = key
        ) -> None:
            index = frame.at(scores.operand(scores.keys, at), frame.rows[0], key)
            value = builder.value(product.operands[scores.keys], index)
            for r, of_row in enumerate(dots):
                query = _own(builder, frame, 0, r, own)
                builder.assign(of_row[number], summed(F32, of_row[number], query, value))

        _pieces(builder, frame, 0, take)
    distance = part.lanes // 2
    while distance:
        others = []
        builder.name_after(product)
        for total in (total for of_row in dots for total in of_row):
            others.append((total, builder.bind_exact(F32, shuffled(F32, "bits", total, code(str(distance))))))
        for total, other in others:
            builder.assign(total, code("{} + {}", total, other))
        distance //= 2
    weights = []
    for r, row in enumerate(frame.rows):
        values = []
        for key, condition, total in zip(keys, conditions, dots[r], strict=True):
            builder.name_after(product)
            index = frame.at(scores.at, row, key)
            builder.provide(product, None, index, builder.bind(product.shape.type, total))
            value = builder.value(exponentials.x, frame.at(scores.value, row, key))
            builder.name_after(exponentials.x)
            values.append(
                builder.bind_exact(F32, code("{} ? {} : {}", condition, value, LOWEST)) if condition else value
            )
        weights.append(_relative(builder, frame, r, values))
    return weights


def _relative(builder: Builder, frame: _Frame, row: int, values: Sequence[Code]) -> list[Code]:
    """The exponentials of the scores of a row less the highest."""
    exponentials = frame.part.scores.exponentials
    highest, total = frame.tops[row], frame.totals[row]
    builder.name_after(exponentials.highest)
    top = _highest(builder, highest, values)
    base = builder.bind_exact(F32, finite(top))
    scale = builder.bind_exact(F32, call("expf", code("{} - {}", highest, base)))
    builder.assign(highest, top)
    builder.name_after(exponentials.powers)
    powers = [builder.bind_exact(F32, call("expf", code("{} - {}", value, base))) for value in values]
    rest = code("{} * {}", total, scale)
    for power in powers:
        rest = code("{} + {}", rest, power)
    builder.assign(total, rest)
    held = frame.part.held[1]
    for number in range(held):
        own = cell(frame.sums, row * held + number)
        builder.assign(own, code("{} * {}", own, scale))
    return powers


def _highest(builder: Builder, start: Code, values: Sequence[Code]) -> Code:
    """The highest of some scores; one that is no number has no say, as it makes the weights none anyway."""
    top = start
    for value in values:
        top = builder.bind_exact(F32, call("fmaxf", top, value))
    return top


def finite(top: Code) -> Code:
    """What is subtracted from scores: exp(-inf - 0) is 0, where -inf less itself would be no number."""
    return code("{0} == {1} ? 0.0f : {0}", top, LOWEST)


def _read_values(builder: Builder, frame: _Frame, keys: Sequence[Expression]) -> Name:
    """An array of a thread's elements of the values of keys, so that they are on their way before weights are known.
    Where a key does not exist these are the last one's, which nothing uses: under a condition, each narrow element
    would take a register."""
    held = frame.part.held[1]
    ahead = builder.array(register_type(F32), builder.fresh("values"), TOGETHER * held)

    def keep(builder: Builder, number: int, own: Expression, value: Code) -> None:
        builder.assign(cell(ahead, builder.text(add(constant(number * held), own))), value)

    _take_values(builder, frame, keys, [NOTHING] * len(keys), keep)
    return ahead


def _take_values(
    builder: Builder,
    frame: _Frame,
    keys: Sequence[Expression],
    conditions: Sequence[Code],
    use: Callable[[Builder, int, Expression, Code], None],
) -> None:
    """Read a thread's elements of the values of keys that exist, each with the number of its key and its own."""
    space = frame.part.space
    values = space.hero.operands[space.operand_of(1)]
    for number, (key, condition) in enumerate(zip(keys, conditions, strict=True)):

        def take(
            builder: Builder, at: Expression, own: Expression, number: int = number, key: Expression = key
        ) -> None:
            use(builder, number, own, builder.value(values, space.operand_index(1, frame.corner[0], at, key)))

        with builder.branch(condition):
            _pieces(builder, frame, 1, take)


def _sum(
    builder: Builder,
    frame: _Frame,
    keys: Sequence[Expression],
    conditions: Sequence[Code],
    weights: Sequence[Sequence[Code]],
    ahead: Name | None,
) -> None:
    """Add the values of keys to the sums, by their weights. A key that does not exist has none, as 0 times infinity is
    no number."""
    held = frame.part.held[1]

    def add_up(builder: Builder, number: int, own: Expression, value: Code) -> None:
        for r, of_row in enumerate(weights):
            total = _own(builder, frame, 1, r, own)
            builder.assign(total, summed(F32, total, of_row[number], value))

    if ahead is None:
        _take_values(builder, frame, keys, conditions, add_up)
        return
    for number, condition in enumerate(conditions):
        with builder.branch(condition):
            builder.advise("unroll")
            with builder.loop(held) as own:
                add_up(builder, number, own, cell(ahead, builder.text(add(constant(number * held), own))))


@dataclass(frozen=True)
class _Shared:
    """Arrays in shared memory: for each group its sums, row by row; for each row and group the highest score, and the
    sum of exponentials."""

    sums: Name
    tops: Name
    totals: Name


def _merge_groups(builder: Builder, frame: _Frame) -> _Shared:
    """Leave the sums of each group in shared memory, relative to the highest score of all groups of the block, which
    then stands in `tops` too."""
    part = frame.part
    kind, columns = register_type(F32), part.lengths[1]
    sizes = (
        ("sums", part.groups * part.cells),
        ("tops", part.groups * part.height),
        ("totals", part.groups * part.height),
    )
    shared = _Shared(*(builder.array(kind, builder.fresh(stem), size, shared=True) for stem, size in sizes))
    first = NOTHING if part.lanes == 1 else code("{} == 0", frame.lane)
    with builder.branch(first):
        for r, top in enumerate(frame.tops):
            builder.assign(cell(shared.tops, builder.text(_of_group(part, r, frame.group))), top)
    builder.add(Barrier())
    for r, (top, total) in enumerate(zip(frame.tops, frame.totals, strict=True)):
        builder.name_after(part.scores.exponentials.highest)
        highest = builder.variable(F32, top)
        with builder.loop(part.groups) as group:
            builder.assign(highest, call("fmaxf", highest, cell(shared.tops, builder.text(_of_group(part, r, group)))))
        scale = builder.bind_exact(F32, call("expf", code("{} - ({})", top, finite(highest))))
        with builder.branch(first):
            builder.assign(
                cell(shared.totals, builder.text(_of_group(part, r, frame.group))), code("{} * {}", total, scale)
            )
        builder.assign(top, highest)

        def take(builder: Builder, at: Expression, own: Expression, r: int = r, scale: Code = scale) -> None:
            place = add(multiply(add(multiply(frame.group, part.height), constant(r)), columns), at)
            builder.assign(
                cell(shared.sums, builder.text(place)), code("{} * {}", _own(builder, frame, 1, r, own), scale)
            )

        _pieces(builder, frame, 1, take)
    builder.add(Barrier())
    return shared


def _of_group(part: Attention, row: int, group: Expression) -> Expression:
    return add(constant(row * part.groups), group)


@contextmanager
def _elements(
    builder: Builder, frame: _Frame, number: Expression
) -> Iterator[tuple[Expression, Expression, Expression]]:
    """A thread's element of the block's results, the `number`-th: its number, its row in the tile and its column."""
    part = frame.part
    element = builder.declare_index("element", add(multiply(number, BLOCK), thread_of(BLOCK)))
    with builder.branch(code("{} < {}", element, part.cells) if part.cells % BLOCK else NOTHING):
        if isinstance(element, Variable):
            element = Variable(0, min(element.high, part.cells - 1), element.name)
        row, column = (named(builder, e) for e in delinearize(element, (part.height, part.lengths[1])))
        yield element, row, column


def _finish(
    builder: Builder,
    plan: Plan,
    segment: Segment[Attention],
    frame: _Frame,
    shared: _Shared,
    targets: Targets,
) -> None:
    """Add up the sums of all groups, and of all blocks of a row, and write what is computed of them."""
    part = frame.part
    rounds = -(-part.cells // BLOCK)

    def of_block(element: Expression) -> Code:
        return _total(
            builder, part.groups, lambda g: cell(shared.sums, builder.text(add(multiply(g, part.cells), element)))
        )

    def of_row(row: Expression) -> Code:
        first = multiply(row, part.groups)
        return _total(builder, part.groups, lambda g: cell(shared.totals, builder.text(add(first, g))))

    def put(row: Expression, column: Expression, total: Code, weight: Code) -> None:
        space = part.space
        there, condition = inside(builder, "row", add(multiply(frame.corner[1], part.height), row), space.sizes[1])
        with builder.branch(condition):
            result = result_of(builder, part.scores, frame.corner[0], there, total, weight)
            write(builder, plan, segment, space.index(frame.corner[0], there, column), result, targets)

    if part.parts == 1:
        with builder.loop(rounds) as number, _elements(builder, frame, number) as (element, row, column):
            put(row, column, of_block(element), of_row(row))
        return
    tiles = segment.blocks // part.parts
    size = part.cells + 2 * part.height
    tile = named(builder, add(multiply(frame.corner[0], part.tiles[1]), frame.corner[1]))
    meet = meeting(builder, [_fold(part.hero, NOTHING)], tiles, tiles * size, part.parts)

    def left(number: Expression, element: Expression) -> Expression:
        return add(multiply(add(multiply(tile, part.parts), number), size), element)

    def leave_one(element: Expression, value: Code) -> None:
        leave(builder, meet, [[_fold(part.hero, value)]], [builder.text(left(frame.corner[2], element))])

    with builder.loop(rounds) as number, _elements(builder, frame, number) as (element, _, _):
        leave_one(element, of_block(element))
    for r, top in enumerate(frame.tops):
        with builder.branch(code("{} == 0", thread_of(BLOCK))):
            leave_one(constant(part.cells + 2 * r), top)
            leave_one(constant(part.cells + 2 * r + 1), of_row(constant(r)))
    group = builder.text(tile)
    last_only(builder, meet, group)
    reset(builder, meet, group)
    _add_parts(builder, frame, meet, left, put)


def _add_parts(
    builder: Builder,
    frame: _Frame,
    meet: Meeting,
    left: Callable[[Expression, Expression], Expression],
    put: Callable[[Expression, Expression, Code, Code], None],
) -> None:
    """Add up the sums that blocks have left, relative to the highest score of all, and write the results. `left` is
    where an element of a block's is, and `put` writes a result."""
    part, kind, table = frame.part, register_type(F32), meet.tables[0][0]
    factors = builder.array(kind, builder.fresh("factors"), part.parts * part.height, shared=True)
    weights = builder.array(kind, builder.fresh("weights"), part.height, shared=True)

    def at(number: Expression, element: Expression) -> Code:
        return part_at(F32, table, builder.text(left(number, element)))

    row = builder.declare_index("row", thread_of(BLOCK))
    with builder.branch(code("{} < {}", row, part.height)):
        row = named(builder, row) if not isinstance(row, Variable) else Variable(0, part.height - 1, row.name)
        first = add(constant(part.cells), multiply(row, 2))
        builder.name_after(part.scores.exponentials.highest)
        highest = builder.variable(F32, LOWEST)
        with builder.loop(part.parts) as number:
            builder.assign(highest, call("fmaxf", highest, at(number, first)))
        base = builder.bind_exact(F32, finite(highest))
        builder.name_after(part.scores.exponentials.total)
        weight = builder.variable(F32, zero(F32))
        with builder.loop(part.parts) as number:
            factor = builder.bind_exact(F32, call("expf", code("{} - {}", at(number, first), base)))
            builder.assign(cell(factors, builder.text(add(multiply(number, part.height), row))), factor)
            builder.assign(weight, summed(F32, weight, factor, at(number, add(first, constant(1)))))
        builder.assign(cell(weights, builder.text(row)), weight)
    builder.add(Barrier())
    rounds = -(-part.cells // BLOCK)
    totals = builder.array(kind, builder.fresh("results"), rounds)
    for element_number in range(rounds):
        builder.assign(cell(totals, element_number), zero(F32))
    with builder.loop(part.parts) as number:
        builder.advise("unroll")
        with builder.loop(rounds) as k, _elements(builder, frame, k) as (element, row, _):
            own = cell(totals, builder.text(k))
            factor = cell(factors, builder.text(add(multiply(number, part.height), row)))
            builder.assign(own, summed(F32, own, factor, at(number, element)))
    builder.advise("unroll")
    with builder.loop(rounds) as k, _elements(builder, frame, k) as (_, row, column):
        put(row, column, cell(totals, builder.text(k)), cell(weights, builder.text(row)))


def result_of(
    builder: Builder, scores: Scores, batch: Expression, row: Expression, weighted: Code, total: Code
) -> Code:
    """The product's element of a sum of weighted values, and of the sum of the weights, which is known of the row then,
    if anything but the product reads it."""
    beside = scores.beside(batch, row)
    for reduce, index in beside:
        builder.name_after(reduce)
        builder.provide(reduce, None, index, builder.bind(reduce.shape.type, total))
    return weighted if beside else code("{} / {}", weighted, total)


def _fold(hero: Instruction, value: Code) -> Fold:
    return Fold(hero, (F32,), (value,), starts_with_init=True)


def _total(builder: Builder, count: int, part: Callable[[Expression], Code]) -> Code:
    """The sum of parts."""
    total = builder.variable(F32, zero(F32))
    with builder.loop(count) as number:
        builder.assign(total, code("{} + {}", total, part(number)))
    return total
