"""The emitter of column reductions.

A block takes neighbouring columns. `lanes` threads read neighbouring columns of one row, so reads are coalesced; `ways`
threads share a column and take its rows `way, way + ways, ...`. They combine their results in shared memory, halving
the number of threads at each step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.folds import Fold, Write, open_folds, places_at, writes_of
from hlo_opt.codegen.indices import block_of, named, only_first, thread_of
from hlo_opt.codegen.parts import last_only, leave, meeting, part_at, reset
from hlo_opt.codegen.registers import Keeper, keeper
from hlo_opt.codegen.scalars import register_type
from hlo_opt.codegen.statements import THREAD
from hlo_opt.codegen.tree import Barrier, Leave
from hlo_opt.codegen.vectors import Targets
from hlo_opt.ir import Instruction
from hlo_opt.ir.index_map import Condition, Expression, Variable, add, constant, divide, modulo, multiply, variables_of
from hlo_opt.ops.code import NOTHING, Code, FirstRound, Name, both, cell, code, of
from hlo_opt.ops.reduction.beside import folds_beside
from hlo_opt.plans.column_reduction import Columns
from hlo_opt.plans.columns import MOST_THREADS
from hlo_opt.plans.folding import Space, operand_index, root_index
from hlo_opt.plans.plan import Plan, Segment
from hlo_opt.plans.walks import AHEAD


@dataclass(frozen=True)
class _Place:
    """A thread's position: in the block, lane and way, its columns, and the condition that it has columns of its own.

    Where several blocks share columns: the tile of columns, and the block's part of the rows.
    """

    segment: Segment[Columns]
    space: Space
    thread: Expression
    lane: Expression
    way: Expression
    kept: tuple[Expression, ...]
    live: Code
    tile: Expression
    part: Variable | None

    @property
    def reduces(self) -> list[Instruction]:
        return [reduce for level in self.segment.part.levels for reduce in level]

    @property
    def lanes(self) -> int:
        return self.segment.part.tile.lanes

    @property
    def ways(self) -> int:
        return self.segment.part.tile.ways

    @property
    def tiles(self) -> int:
        return self.segment.blocks // self.segment.part.parts


def emit(builder: Builder, plan: Plan, segment: Segment[Columns], first_block: int, targets: Targets) -> None:
    """One pass over the columns per level of reduces, and a last pass for outputs of the full shape that need the
    results."""
    place = _place(builder, plan, segment, first_block)
    writes = writes_of(plan, segment, place.space.kept, targets, segment.roots)
    last = max([len(segment.part.levels), *(w.level + 1 for w in writes if w.per_position)])

    def fold_and_store(to: Builder, keeping: Keeper) -> None:
        for level in range(last):
            reduces = segment.part.levels[level] if level < len(segment.part.levels) else ()
            columns = [open_folds(to, reduces, segment.part.together) for _ in place.kept]
            stores = [w for w in writes if w.per_position and w.level == level]
            if reduces or stores:
                _pass(to, place, level, columns, stores, keeping)
            if reduces:
                _close(to, place, columns, to_all=level + 1 < last)

    slots, steady = -(-place.space.reduced // place.ways), set[str]().union(*map(variables_of, place.kept))
    times = last if segment.part.keeps else 1
    # a block of that many threads leaves 64 registers, of which addresses and elements on their way need half
    keeping = keeper(
        builder, slots, times, sorted(steady), fold_and_store, tight=place.lanes * place.ways == MOST_THREADS
    )
    fold_and_store(builder, keeping)
    singles = [w for w in writes if not w.per_position]
    if singles:
        with builder.branch(both(_is_first(place), place.live)):
            for kept in place.kept:
                for write in singles:
                    write.emit(builder, root_index(place.space, place.reduces, write.root, kept, None))


def _is_first(place: _Place) -> Code:
    """The condition that a thread is the first of those that divide the rows of its columns; empty where one thread has
    all rows."""
    return code("{} == 0", place.way) if isinstance(place.way, Variable) else NOTHING


def _place(builder: Builder, plan: Plan, segment: Segment[Columns], first_block: int) -> _Place:
    _, _, minor = segment.part.sizes
    lanes, ways, vector = segment.part.tile.lanes, segment.part.tile.ways, segment.vector
    only_first(builder, lanes * ways, plan.launch.block)
    thread = thread_of(lanes * ways)
    way = builder.declare_index("way", divide(thread, lanes)) if ways > 1 else constant(0)
    lane = builder.declare_index("lane", modulo(thread, lanes)) if lanes > 1 else constant(0)
    tiles = -(-(minor // vector) // lanes)
    own_block, part = block_of(first_block, segment.blocks), None
    tile: Expression = constant(0)
    if segment.part.parts > 1:
        part = builder.declare("part", modulo(own_block, segment.part.parts))
        own_block = divide(own_block, segment.part.parts)
    if segment.blocks > segment.part.parts:
        tile = builder.declare("tile", own_block)
    start, live = add(multiply(modulo(tile, tiles), lanes), lane), NOTHING
    most = minor // vector - 1
    if start.high > most:
        own = builder.declare("own_columns", start)
    if start.high > most and ways == segment.part.parts == 1 and tiles == segment.blocks:  # nobody waits for them
        beyond = Condition(own, most + 1, start.high)
        builder.add(Leave(Code(code("{} >= {}", own, most + 1).pieces, says=(beyond,))))
        start = Variable(0, most, own.name)
    elif start.high > most:  # surplus threads repeat the last columns, so that all reach the barriers
        live = code("{} <= {}", own, most)
        start = builder.clamped("columns", live, own, most)
    major_part = multiply(named(builder, divide(tile, tiles)), minor)
    first = add(major_part, multiply(start, vector))
    kept = tuple(add(first, constant(number)) for number in range(vector))
    return _Place(segment, segment.part.space, thread, lane, way, kept, live, tile, part)


def _pass(
    builder: Builder,
    place: _Place,
    level: int,
    columns: Sequence[Sequence[Fold]],
    stores: Sequence[Write],
    keeping: Keeper,
) -> None:
    columns_of, size, stride = place.segment.part, place.space.reduced, place.ways
    if columns_of.in_runs:
        size //= columns_of.parts
    else:
        stride *= columns_of.parts
    step = Variable(0, size - 1, builder.names.fresh("step"))
    kind = "int" if size + stride <= 2**31 - 1 else "long long"
    start: Expression = place.way
    reduced = _row_of(place, size, step)
    if place.part is not None and not columns_of.in_runs:
        start = builder.declare("start", add(multiply(place.part, place.ways), place.way))
    for kept, folds in zip(place.kept, columns, strict=True):
        elements = [(o, operand_index(fold.reduce, kept, reduced)) for fold in folds for o in fold.operands]
        for needed, at in folds_beside(elements, {step.name}):
            builder.value(needed, at)
    if not stores and _are_together(columns):
        _pass_together(builder, place, columns, start, size, stride)
        return
    unrolled = columns_of.ahead if columns_of.ahead > AHEAD and not keeping.keeps else 0
    counter = builder.numbered("k") if keeping.keeps or unrolled else None
    with builder.walk(kind, step, start, size, stride, counter, unrolled=unrolled):
        slot = of(counter) if counter else NOTHING
        keeping.begin(builder, level, step, slot)
        values = []  # read all before folding the first, so that loads can be combined
        for kept, folds in zip(place.kept, columns, strict=True):
            for fold in folds:
                at = operand_index(fold.reduce, kept, reduced)
                values.append((fold, [builder.value(o, at) for o in fold.operands], places_at(fold, at, reduced)))
        for fold, read, numbers in values:
            fold.take(builder, read, Code((FirstRound(Name(step.name), stride, counter),)), numbers)
        for kept in place.kept:
            for write in stores:
                index = root_index(place.space, place.reduces, write.root, kept, reduced)
                with builder.branch(place.live):
                    write.emit(builder, index)
        keeping.end(builder, level, step, slot)


def _are_together(columns: Sequence[Sequence[Fold]]) -> bool:
    """Whether a thread folds several rows at once: a fold takes less time so, and the others start with their init
    value."""
    folds = [fold for column in columns for fold in column]
    return any(fold.steps for fold in folds) and all(fold.starts_with_init for fold in folds)


def _row_of(place: _Place, size: int, step: Expression) -> Expression:
    """The row of a step, of `size` of the block."""
    in_runs = place.part is not None and place.segment.part.in_runs
    return add(multiply(place.part, size), step) if place.part is not None and in_runs else step


def _pass_together(
    builder: Builder, place: _Place, columns: Sequence[Sequence[Fold]], start: Expression, size: int, stride: int
) -> None:
    """A pass over several rows of a thread at a time: it reads all, then folds all. Behind the last row the last one is
    read again, and does not count."""
    count = place.segment.part.together
    across, is_whole = count * stride, size % (count * stride) == 0
    kind = "int" if size + across <= 2**31 - 1 else "long long"
    first = Variable(0, size - 1, builder.names.fresh("first_step"))
    test, on = code("{} < {}", first, size), code("{} += {}", first, across)
    gathering = [fold for column in columns for fold in column if fold.steps]
    with builder.loop_while(kind, Name(first.name), builder.text(start), test, on):
        arrays = {
            id(f): builder.array(register_type(f.types[0]), builder.numbered("together"), count) for f in gathering
        }
        builder.advise("unroll")
        with builder.loop(count) as number:
            step, live = builder.declare("own_step", add(first, multiply(number, stride))), NOTHING
            if not is_whole:
                live = code("{} < {}", step, size)
                step = builder.clamped("step", live, step, size - 1)
            reduced = _row_of(place, size, step)
            for kept, folds in zip(place.kept, columns, strict=True):
                for fold in folds:
                    at = operand_index(fold.reduce, kept, reduced)
                    values = [builder.value(o, at) for o in fold.operands]
                    if fold.steps is None:
                        with builder.branch(live):
                            fold.take(builder, values, False)
                        continue
                    if live:
                        none = builder.value(fold.reduce.operands[len(fold.types)], ())
                        values[0] = code("{} ? {} : {}", live, values[0], none)
                    builder.assign(cell(arrays[id(fold)], builder.text(number)), values[0])
        for fold in gathering:
            fold.take_together(builder, arrays[id(fold)], count)


def _close(builder: Builder, place: _Place, columns: Sequence[Sequence[Fold]], *, to_all: bool) -> None:
    """Combine the threads' results; then the first thread of each column has them, or all of its threads (`to_all`)."""
    folds = [fold for column in columns for fold in column]
    tables = _tables(builder, place, folds) if place.ways > 1 else []
    if tables:
        _tree(builder, place, folds, tables, place.ways)
    if place.part is not None:
        columns = _met(builder, place, place.part, columns, tables)
    elif tables and to_all:
        builder.add(Barrier())
    of_fold = iter(tables)
    for kept, column in zip(place.kept, columns, strict=True):
        for fold in column:
            shared = [cell(name, place.lane) for name in next(of_fold)] if tables else []
            fold.finish(builder, shared if to_all and tables else fold.accumulators, kept)


def _tables(builder: Builder, place: _Place, folds: Sequence[Fold]) -> list[list[Name]]:
    """Declare shared memory for the results of a column's threads, per accumulator of each fold."""
    tables = []
    for fold in folds:
        tables.append([builder.numbered("partial") for _ in fold.types])
        for element_type, name in zip(fold.types, tables[-1], strict=True):
            builder.array(register_type(element_type), name, place.ways * place.lanes, shared=True)
    return tables


def _tree(builder: Builder, place: _Place, folds: Sequence[Fold], tables: Sequence[Sequence[Name]], count: int) -> None:
    """Combine the results of the first `count` threads of each column in its first thread."""

    def show(fold: Fold, names: Sequence[Name]) -> None:
        for table, name in zip(names, fold.accumulators, strict=True):
            builder.assign(cell(table, of(THREAD)), name)

    for fold, names in zip(folds, tables, strict=True):
        show(fold, names)
    distance = builder.fresh("distance")
    first = 1 << ((count - 1).bit_length() - 1)
    with builder.loop_while("int", distance, code(str(first)), code("{} > 0", distance), code("{} /= 2", distance)):
        builder.add(Barrier())
        near = code("{} < {}", place.way, distance)
        inside = code("{} + {} < {}", place.way, distance, count) if count & (count - 1) else NOTHING
        with builder.branch(both(near, inside)):
            for fold, names in zip(folds, tables, strict=True):
                builder.name_after(fold.reduce)
                others = [
                    builder.bind_exact(t, cell(table, code("{} + {} * {}", THREAD, distance, place.lanes)))
                    for t, table in zip(fold.types, names, strict=True)
                ]
                fold.combine(builder, others)
                show(fold, names)


def _met(
    builder: Builder,
    place: _Place,
    part: Variable,
    columns: Sequence[Sequence[Fold]],
    tables: Sequence[Sequence[Name]],
) -> list[list[Fold]]:
    """Combine the parts of the columns in the last block to arrive: folds whose results the first thread of each column
    has."""
    segment, parts, vector = place.segment, place.segment.part.parts, place.segment.vector
    meet = meeting(builder, columns[0], place.tiles, place.tiles * place.lanes * vector, parts)
    # in the table, the lanes of a tile are neighbours, so that a warp's accesses are contiguous
    group, width = builder.text(place.tile), place.tiles * place.lanes
    lane = add(multiply(place.tile, place.lanes), place.lane)

    def places(number: Variable) -> list[Code]:
        row = add(multiply(number, vector * width), lane)
        return [builder.text(add(row, constant(k * width))) for k in range(vector)]

    with builder.branch(_is_first(place)):
        leave(builder, meet, columns, places(part))
    last_only(builder, meet, group)
    reset(builder, meet, group)
    totals = [open_folds(builder, [fold.reduce for fold in column]) for column in columns]
    number = Variable(0, parts - 1, builder.names.numbered("k"))
    is_even = parts % place.ways == 0 and parts > place.ways  # the loads of all rounds are then on their way at once
    counter = builder.numbered("round") if is_even else None
    with builder.walk("int", number, place.way, parts, place.ways, counter):
        for where, column_folds in zip(places(number), totals, strict=True):
            for fold, names in zip(column_folds, meet.tables, strict=True):
                builder.name_after(fold.reduce)
                values = [
                    builder.bind_exact(t, part_at(t, name, where)) for t, name in zip(fold.types, names, strict=True)
                ]
                fold.take(builder, values, Code((FirstRound(Name(number.name), place.ways, counter),)))
    count = min(parts, segment.part.tile.ways)
    if count > 1:
        _tree(builder, place, [fold for column_folds in totals for fold in column_folds], tables, count)
    return totals
