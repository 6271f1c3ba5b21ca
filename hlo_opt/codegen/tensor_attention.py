"""The emitter of tensor-attention plans: fill chunks of keys and values, multiply, weigh, multiply again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hlo_opt.codegen.attention import LOWEST, at_most, finite, result_of
from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.indices import thread_of, tile_of
from hlo_opt.codegen.matmul import ALIGNMENT, inside, write
from hlo_opt.codegen.scalars import literal, memory_type, rounded, shuffled, stored, zero
from hlo_opt.codegen.tree import Barrier, Break
from hlo_opt.codegen.vectors import Store, Targets, each_element
from hlo_opt.ir import Shape
from hlo_opt.ir.element_type import F32
from hlo_opt.ir.index_map import Expression, Variable, add, constant, divide, modulo, multiply, substitute
from hlo_opt.ops.code import NOTHING, Code, Name, call, cell, code
from hlo_opt.ops.lowering import Index
from hlo_opt.plans.attention import BATCH, BLOCK, KEY, ROW, pinned
from hlo_opt.plans.columns import WARP
from hlo_opt.plans.plan import Plan, Segment
from hlo_opt.plans.tensor_attention import HEIGHT, TensorAttention
from hlo_opt.plans.tensor_matmul import COLUMNS, ROWS

HALVES = 2
"""Rows of a piece of which a lane has elements."""


@dataclass(frozen=True)
class _Frame:
    """What a thread computes: its batch, rows, warp and lane, the arrays in shared memory (queries, keys, values,
    weights, and whether a row has no high score), and its registers."""

    part: TensorAttention
    batch: Expression
    first: Expression
    rows: Sequence[Expression]
    warp: Variable
    lane: Variable
    tables: Sequence[Name]
    products: Name
    sums: Name
    tops: Sequence[Code]
    totals: Sequence[Code]
    low: Name

    def at(self, index: Index, row: Expression, key: Expression) -> Index:
        """An index of the scores for a row and a key."""
        return pinned(index, {BATCH: self.batch, ROW: row, KEY: key})

    def near(self, piece: Expression, low: int) -> Expression:
        """The column of one of a lane's two elements of a row of a piece."""
        return add(multiply(piece, COLUMNS), add(multiply(modulo(self.lane, 4), 2), constant(low)))

    def line(self, half: int) -> Expression:
        """A lane's row of the block's tile."""
        return add(multiply(self.warp, ROWS), add(constant(half * (ROWS // HALVES)), divide(self.lane, 4)))


def emit(builder: Builder, plan: Plan, segment: Segment[TensorAttention], first_block: int, targets: Targets) -> None:
    """Emit the only segment of the launch: `first_block` is 0."""
    part = segment.part
    frame = _frame(builder, segment)
    scores, space, keys = part.scores, part.space, part.space.sizes[3]
    asked = 1 - scores.keys

    def query(builder: Builder, line: Expression, element: Expression) -> Code:
        row = at_most(builder, "row", add(frame.first, line), space.sizes[1] - 1)
        return builder.value(scores.product.operands[asked], frame.at(scores.operand(asked, element), row, constant(0)))

    _fill(builder, frame, 0, part.vectors[0], query)
    for number in (0, 1):
        _fill_up(builder, frame, number)
    builder.advise("unroll 1")
    with builder.loop(part.rounds, carries=True) as step:
        start = builder.declare_index("start", multiply(step, part.chunk))
        _end_early(builder, frame, start)

        def existing(builder: Builder, key: Expression, value: Callable[[Expression], Code]) -> Code:
            """The value of a key, 0 for one that does not exist."""
            if key.high < keys:
                return value(key)
            read = value(at_most(builder, "key", key, keys - 1))
            return code("{} < {} ? {} : {}", builder.text(key), keys, read, zero(F32))

        def key_value(builder: Builder, line: Expression, element: Expression) -> Code:
            operand = scores.product.operands[scores.keys]
            index = scores.operand(scores.keys, element)
            return existing(
                builder, add(start, line), lambda key: builder.value(operand, frame.at(index, frame.rows[0], key))
            )

        def value(builder: Builder, line: Expression, element: Expression) -> Code:
            operand = space.hero.operands[space.operand_of(1)]
            return existing(
                builder,
                add(start, line),
                lambda key: builder.value(operand, space.operand_index(1, frame.batch, element, key)),
            )

        builder.add(Barrier())
        _fill(builder, frame, 1, part.vectors[0], key_value)
        _fill(builder, frame, 2, part.vectors[1], value)
        builder.add(Barrier())
        _clear(builder, frame.products, part.chunk // COLUMNS)
        _multiply(builder, frame, (0, 1), part.depth, part.chunk, frame.products, across=False)
        _weigh(builder, frame, start)
        builder.add(Barrier(warp=True))
        _multiply(builder, frame, (3, 2), part.chunk, part.columns, frame.sums, across=True)
    _finish(builder, plan, segment, frame, targets)


def _end_early(builder: Builder, frame: _Frame, start: Expression) -> None:
    """Leave the loop over keys where a mask leaves nothing of this chunk and all after it, and each row has a score
    beside which the weights of what it puts there are 0."""
    part = frame.part
    if part.mask is None:
        return
    last = builder.declare_index("last", add(substitute(part.mask.last, {ROW: frame.first}), constant(HEIGHT - 1)))
    if last.low >= part.space.sizes[3] - 1:
        return
    least = literal(F32, np.float32(part.mask.other / 2))
    with builder.branch(code("{} > {}", builder.text(start), builder.text(last))):
        builder.add(Barrier())
        with builder.branch(code("{} == 0", thread_of(BLOCK))):
            builder.assign(cell(frame.low, 0), code("0"))
        builder.add(Barrier())
        with builder.branch(code("{} <= {} || {} <= {}", frame.tops[0], least, frame.tops[1], least)):
            builder.assign(cell(frame.low, 0), code("1"))
        builder.add(Barrier())
        builder.add(Break(code("hlo_leaves_out() && {} == 0", cell(frame.low, 0))))


def _frame(builder: Builder, segment: Segment[TensorAttention]) -> _Frame:
    part = segment.part
    tables = [
        builder.array(
            memory_type(part.type), builder.fresh(stem), shape.element_count, shared=True, alignment=ALIGNMENT
        )
        for stem, shape in zip(("queries", "keys", "values", "weights"), part.tables, strict=True)
    ]
    batch, tile = tile_of(builder, 0, segment.blocks, part.tiles)
    warp = builder.declare("warp", divide(thread_of(BLOCK), WARP))
    lane = builder.declare("lane", modulo(thread_of(BLOCK), WARP))
    first = multiply(tile, HEIGHT)
    columns = part.columns // COLUMNS
    products = builder.array("hlo_piece", builder.fresh("products"), part.chunk // COLUMNS)
    sums = builder.array("hlo_piece", builder.fresh("sums"), columns)
    _clear(builder, sums, columns)
    builder.name_after(part.scores.exponentials.highest)
    tops = [builder.variable(F32, LOWEST) for _ in range(HALVES)]
    builder.name_after(part.scores.exponentials.total)
    totals = [builder.variable(F32, zero(F32)) for _ in range(HALVES)]
    low = builder.fresh("low")
    if part.mask is not None:
        builder.array("int", low, 1, shared=True)
    frame = _Frame(part, batch, first, (), warp, lane, tables, products, sums, tops, totals, low)
    last = part.space.sizes[1] - 1
    rows = [at_most(builder, "row", add(first, frame.line(half)), last) for half in range(HALVES)]
    return replace(frame, rows=rows)


def _clear(builder: Builder, pieces: Name, count: int) -> None:
    builder.advise("unroll")
    with builder.loop(count) as number:
        builder.assign(cell(pieces, builder.text(number)), code("hlo_piece{{}}"))


def _fill(
    builder: Builder,
    frame: _Frame,
    number: int,
    vector: int,
    value: Callable[[Builder, Expression, Expression], Code],
) -> None:
    """Fill an array in shared memory with the values of its lines and elements."""
    part = frame.part
    shape, table = part.tables[number], frame.tables[number]
    lines, across = shape.dimensions[0], _lengths(part)[number] // vector
    cells = lines * across
    with builder.loop(-(-cells // BLOCK)) as turn:
        unit = builder.declare("unit", add(multiply(turn, BLOCK), thread_of(BLOCK)))
        with builder.branch(code("{} < {}", unit, cells) if cells % BLOCK else NOTHING):
            unit = Variable(0, cells - 1, unit.name)
            line = builder.declare_index("line", divide(unit, across))
            near = builder.declare_index("near", modulo(unit, across))

            def place(builder: Builder, element: Expression, near: Expression = near) -> Expression:
                return builder.declare_index("element", add(multiply(near, vector), element))

            def compute(builder: Builder, at: Expression, _: Expression, line: Expression = line) -> Sequence[Store]:
                return [Store(table, shape, (line, at), _kept(part, value(builder, line, at)))]

            each_element(builder, vector, place, compute)


def _fill_up(builder: Builder, frame: _Frame, number: int) -> None:
    """Fill what is beyond the queries or keys with zeros, which what is multiplied with them may not be."""
    part = frame.part
    shape, table = part.tables[number], frame.tables[number]
    lines, length = shape.dimensions[0], _lengths(part)[number]
    beyond = part.depth - length
    if not beyond:
        return
    with builder.loop(-(-lines * beyond // BLOCK)) as turn:
        unit = builder.declare("unit", add(multiply(turn, BLOCK), thread_of(BLOCK)))
        cells = lines * beyond
        with builder.branch(code("{} < {}", unit, cells) if cells % BLOCK else NOTHING):
            unit = Variable(0, cells - 1, unit.name)
            at = builder.address(shape, (divide(unit, beyond), add(constant(length), modulo(unit, beyond))))
            builder.assign(cell(table, at), stored(part.type, zero(F32)))


def _kept(part: TensorAttention, value: Code) -> Code:
    """A value as tensor cores take it."""
    return call("hlo_tf32", value) if part.type is F32 else value


def _lengths(part: TensorAttention) -> tuple[int, int, int]:
    depth = part.scores.depth
    return depth, depth, part.space.sizes[2]


def _multiply(
    builder: Builder, frame: _Frame, numbers: tuple[int, int], deep: int, columns: int, pieces: Name, *, across: bool
) -> None:
    """Multiply a warp's rows of one array in shared memory with another array, of which lines are columns, or
    contracted elements if `across`."""
    part = frame.part
    shapes = [part.tables[n] for n in numbers]
    rows, others = (frame.tables[n] for n in numbers)
    lines = [shape.dimensions[1] for shape in shapes]
    is_across, of = str(across).lower(), "_tf32" if part.type is F32 else ""
    function = f"hlo_multiply<{str(part.type.name == 'bf16').lower()}, false, {lines[0]}, {is_across}, {lines[1]}>"
    if of:
        function = f"hlo_multiply_tf32<{lines[0]}, {is_across}, {lines[1]}>"

    def place(table: Name, shape: Shape, index: Index) -> Code:
        return code("{} + {}", table, builder.address(shape, index))

    builder.advise("unroll")
    with builder.loop(deep // part.step) as step:
        along = multiply(step, part.step)
        row = place(rows, shapes[0], (multiply(frame.warp, ROWS), along))
        a = builder.let("hlo_fragment_of<4>", "a", call(f"hlo_fragment{of}<4, false, {lines[0]}>", row, frame.lane))
        builder.advise("unroll")
        with builder.loop(columns // COLUMNS) as number:
            free = multiply(number, COLUMNS)
            column = place(others, shapes[1], (along, free) if across else (free, along))
            fragment = call(f"hlo_fragment{of}<2, {is_across}, {lines[1]}>", column, frame.lane)
            b = builder.let("hlo_fragment_of<2>", "b", fragment)
            own = cell(pieces, builder.text(number))
            builder.assign(own, call(function, own, a, b, row, column, frame.lane))


def _weigh(builder: Builder, frame: _Frame, start: Expression) -> None:
    """Turn the products of a warp into weights relative to the highest score of each row so far, in shared memory, and
    scale what has been summed by how much the highest has grown."""
    part, scores = frame.part, frame.part.scores
    product, exponentials = scores.product, scores.exponentials
    keys, count = part.space.sizes[3], part.chunk // COLUMNS
    for half, row in enumerate(frame.rows):
        builder.name_after(exponentials.highest)
        top = builder.variable(F32, frame.tops[half])
        builder.advise("unroll")
        with builder.loop(count) as piece:
            for low in range(2):
                own = code(f"{{}}.of[{2 * half + low}]", cell(frame.products, builder.text(piece)))
                place = add(start, frame.near(piece, low))
                key = at_most(builder, "key", place, keys - 1)
                builder.name_after(product)
                builder.provide(product, None, frame.at(scores.at, row, key), builder.bind(product.shape.type, own))
                value = builder.value(exponentials.x, frame.at(scores.value, row, key))
                if place.high >= keys:
                    value = code("{} < {} ? {} : {}", builder.text(place), keys, value, LOWEST)
                builder.name_after(exponentials.x)
                score = builder.bind_exact(F32, value)
                builder.assign(own, score)
                builder.assign(top, call("fmaxf", top, score))
        for distance in (1, 2):
            builder.name_after(exponentials.highest)
            other = builder.bind_exact(F32, shuffled(F32, "bits", top, code(str(distance))))
            builder.assign(top, call("fmaxf", top, other))
        base = builder.bind_exact(F32, finite(top))
        scale = builder.bind_exact(F32, call("expf", code("{} - {}", frame.tops[half], base)))
        builder.assign(frame.tops[half], top)
        builder.assign(frame.totals[half], code("{} * {}", frame.totals[half], scale))
        builder.advise("unroll")
        with builder.loop(count) as piece:
            for low in range(2):
                own = code(f"{{}}.of[{2 * half + low}]", cell(frame.products, builder.text(piece)))
                builder.name_after(exponentials.powers)
                power = builder.bind_exact(F32, call("expf", code("{} - {}", own, base)))
                builder.assign(frame.totals[half], code("{} + {}", frame.totals[half], power))
                at = builder.address(part.tables[3], (frame.line(half), frame.near(piece, low)))
                kept = _kept(part, stored(part.type, rounded(part.type, power)))
                builder.assign(cell(frame.tables[3], at), kept)
        builder.advise("unroll")
        with builder.loop(part.columns // COLUMNS) as piece:
            for low in range(2):
                own = code(f"{{}}.of[{2 * half + low}]", cell(frame.sums, builder.text(piece)))
                builder.assign(own, code("{} * {}", own, scale))


def _finish(builder: Builder, plan: Plan, segment: Segment[TensorAttention], frame: _Frame, targets: Targets) -> None:
    """Divide the sums of each row by its sum of exponentials, and emit what is computed of the results."""
    space = frame.part.space
    for half, total in enumerate(frame.totals):
        for distance in (1, 2):
            builder.name_after(frame.part.scores.exponentials.total)
            other = builder.bind_exact(F32, shuffled(F32, "bits", total, code(str(distance))))
            builder.assign(total, code("{} + {}", total, other))
        row, condition = inside(builder, "row", add(frame.first, frame.line(half)), space.sizes[1])
        with builder.branch(condition):
            builder.advise("unroll")
            with builder.loop(frame.part.columns // COLUMNS) as piece:
                for low in range(2):
                    own = code(f"{{}}.of[{2 * half + low}]", cell(frame.sums, builder.text(piece)))
                    column, exists = inside(builder, "column", frame.near(piece, low), space.sizes[2])
                    with builder.branch(exists):
                        at = space.index(frame.batch, row, column)
                        result = result_of(builder, frame.part.scores, frame.batch, row, own, total)
                        write(builder, plan, segment, at, result, targets)
