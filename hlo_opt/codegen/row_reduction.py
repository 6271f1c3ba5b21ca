"""The emitter of row-reduction plans.

Each thread folds steps `lane, lane + threads, ...` of its row. A step is the neighbouring columns that one access
moves. A warp folds its threads' results by shuffles; several warps of a row meet in shared memory. Short rows share
a warp, and each of their threads takes one step. Rows that are not aligned are peeled: single elements before the
first aligned place and after the last. Values that several passes over a row need stay in registers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.folds import Fold, Write, open_folds, places_at, writes_of
from hlo_opt.codegen.index_text import index_type
from hlo_opt.codegen.indices import block_of, only_first, thread_of
from hlo_opt.codegen.loop import own_thread
from hlo_opt.codegen.parts import last_only, leave, meeting, part_at, reset
from hlo_opt.codegen.registers import Keeper, keeper
from hlo_opt.codegen.scalars import loaded, memory_type, register_type, shuffled, widened_type
from hlo_opt.codegen.tree import Barrier, ClusterBarrier, Let, Peeled
from hlo_opt.codegen.vectors import Store, Targets, each_element, store_all
from hlo_opt.ir import Instruction
from hlo_opt.ir.index_map import Expression, Variable, add, constant, divide, modulo, multiply, variables_of
from hlo_opt.ops.code import NOTHING, Code, FirstRound, Name, address, both, call, cell, code, of
from hlo_opt.plans.columns import WARP
from hlo_opt.plans.folding import operand_index, root_index
from hlo_opt.plans.plan import Plan, Segment
from hlo_opt.plans.row_reduction import Rows
from hlo_opt.plans.walks import AHEAD


def emit(builder: Builder, plan: Plan, segment: Segment[Rows], first_block: int, targets: Targets) -> None:
    """One pass over the row per level of reduces, plus a last pass when outputs of the whole space need the results."""
    rows, threads = segment.part.rows, segment.part.threads
    per_block = segment.part.rows_per_block(plan.launch.block)
    thread, live = thread_of(plan.launch.block), NOTHING
    if threads * per_block < plan.launch.block:
        only_first(builder, threads * per_block, plan.launch.block)
        thread = thread_of(threads * per_block)
    lane = builder.declare("lane", modulo(thread, threads))
    row: Expression = constant(0)
    start, part, arrived = lane, None, None
    if segment.part.parts > 1:
        row, start, part = _part(builder, segment, lane, first_block)
        if segment.part.in_cluster:
            arrived = _expect(builder, segment.part)
            builder.add(ClusterBarrier("show"))  # before others write to this block, they know that it is there
    elif threads == 1:  # which meet nowhere, so that those without a row leave
        row = own_thread(builder, "row", plan, segment, first_block, rows)
    elif rows > 1:
        place = add(multiply(block_of(first_block, segment.blocks), per_block), divide(thread, threads))
        if rows % per_block:  # surplus threads repeat the last row, because every thread must reach the barriers
            own = builder.declare("own_row", place)
            live = code("{} < {}", own, rows)
            row = builder.clamped("row", live, own, rows - 1)
        else:
            row = builder.declare("row", place)
    elif per_block > 1:  # a single row: all threads of the warp fold it, and the first ones write
        live = code("{} < {}", thread, threads)
    writes = writes_of(plan, segment, rows, targets, segment.roots)
    steady = [lane.name, start.name, *variables_of(row)]
    fold_rows(builder, RowFrame(segment, lane, start, part, row, live, per_block, arrived=arrived), writes, steady)


class FoldsBeside(Protocol):
    """Folds across rows (column reductions) that read the same elements as the row's own folds."""

    @property
    def levels(self) -> Iterable[int]:
        """The passes over a row in which this folds anything, or provides what registers hold."""
        ...

    @property
    def held(self) -> Iterable[Instruction]:
        """The parameters of which registers hold the thread's columns of the row."""
        ...

    def begin(self, builder: Builder, row: Expression, column: Expression, slot: Code) -> None:
        """Provide what registers hold of element number `slot` of the thread."""
        ...

    def take(self, builder: Builder, level: int, row: Expression, column: Expression, slot: Code) -> None:
        """Fold element number `slot` of the thread."""
        ...


@dataclass(frozen=True)
class RowFrame:
    """Where a thread stands.

    `lane` is the thread's number in its row and `start` its first step. `part` is the block's part of the row, where
    blocks share rows. `live` is the condition that the row is the thread's own, `per_block` the rows of a block.
    `arrived` counts the bytes of each level that the blocks of a cluster have written.
    """

    segment: Segment[Rows]
    lane: Variable
    start: Variable
    part: Variable | None
    row: Expression
    live: Code
    per_block: int
    beside: FoldsBeside | None = None
    arrived: Name | None = None


def fold_rows(builder: Builder, frame: RowFrame, writes: Sequence[Write], steady: Sequence[str]) -> None:
    """Emit all passes over a thread's row, and the writes of its results."""
    segment, lane = frame.segment, frame.lane
    last = [w.level for w in writes if w.per_position] + list(frame.beside.levels if frame.beside else ())
    passes = max([len(segment.part.levels), *(level + 1 for level in last)])

    def fold_and_store(to: Builder, keeping: Keeper) -> None:
        _passes(to, frame, writes, keeping)

    held = frozenset(frame.beside.held if frame.beside else ())
    fold_and_store(
        builder, keeper(builder, segment.part.slots, passes, steady, fold_and_store, held, segment.part.paired)
    )
    singles = [w for w in writes if not w.per_position]
    if singles:
        leads = code("{} == 0", frame.start if segment.part.in_cluster else lane)
        with builder.branch(both(leads if segment.part.threads > 1 else NOTHING, frame.live)):
            for write in singles:
                write.emit(builder, root_index(segment.part.space, _reduces(segment), write.root, frame.row, None))


def _part(
    builder: Builder, segment: Segment[Rows], lane: Variable, first_block: int
) -> tuple[Expression, Variable, Variable]:
    """`(row, start, part)` of a block that shares its row with others. Threads of all parts walk the row side by
    side."""
    rows, parts, threads = segment.part.rows, segment.part.parts, segment.part.threads
    block = block_of(first_block, segment.blocks)
    row: Expression = constant(0)
    if rows > 1:
        row = builder.declare("row", divide(block, parts))
    part = builder.declare("part", modulo(block, parts))
    start = builder.declare("start", add(multiply(part, threads), lane))
    return row, start, part


def _passes(builder: Builder, frame: RowFrame, writes: Sequence[Write], keeping: Keeper) -> None:
    segment, has_met = frame.segment, False
    for level in range(len(segment.part.levels) + 1):
        of_level = segment.part.levels[level] if level < len(segment.part.levels) else ()
        folds = open_folds(builder, of_level, segment.part.together)
        stores = [w for w in writes if w.per_position and w.level == level]
        if folds or stores or (frame.beside is not None and level in frame.beside.levels):
            _pass(builder, frame, level, folds, stores, keeping)
        if frame.part is not None and folds and not segment.part.in_cluster:
            folds = _met(builder, frame, frame.part, folds)
        if folds:
            if segment.part.in_cluster and not has_met:
                builder.add(ClusterBarrier("wait"))
                has_met = True
            _close(builder, frame, level, folds)


def _across(segment: Segment[Rows]) -> int:
    """Threads that fold a row, over all blocks that share it."""
    return segment.part.threads * segment.part.parts


def _reduces(segment: Segment[Rows]) -> Iterable[Instruction]:
    return (reduce for level in segment.part.levels for reduce in level)


def _pass(
    builder: Builder,
    frame: RowFrame,
    level: int,
    folds: Sequence[Fold],
    stores: Sequence[Write],
    keeping: Keeper,
) -> None:
    segment, row, beside = frame.segment, frame.row, frame.beside
    is_numbered = keeping.keeps or (beside is not None and level in beside.levels)
    zero = NOTHING
    if keeping.unpacks(level) and segment.part.threads >= WARP and not segment.part.target.in_lanes:
        zero = of(builder.let("unsigned int", "zero", call("hlo_unseen_zero")))
        if not segment.part.is_peeled:  # whose bounds need the register that another start would take
            start = builder.bounded("start", code("{} | {}", frame.start, zero), frame.start.low, frame.start.high)
            frame = replace(frame, start=start)

    def take(
        to: Builder, column: Expression, slot: Code, is_first: bool | Code, gathered: Sequence[Code] = ()
    ) -> list[Store]:
        assert isinstance(column, Variable)
        if beside is not None:
            beside.begin(to, row, column, slot)
        keeping.begin(to, level, column, slot, zero)
        _fold_column(to, folds, row, column, is_first, gathered)
        row_stores = _stores(to, segment, stores, row, column)
        if beside is not None:
            beside.take(to, level, row, column, slot)
        keeping.end(to, level, column, slot)
        return row_stores

    if not segment.part.is_peeled:
        with steps_of(builder, segment, frame.start, is_numbered) as (step, place):
            joints = segment.part.joints[level] if segment.part.joints else ()
            _take_step(builder, frame, RowStep(step, place, segment.vector, folds), take, joints)
        return
    peeled = Peeled()
    builder.add(peeled)
    with builder.inside(peeled.steps):
        _peel(builder, frame, is_numbered, folds, take)
    with (
        builder.inside(peeled.walking),
        steps_of(builder, segment, frame.start, is_numbered, in_vectors=False) as (step, place),
    ):
        _take_step(builder, frame, RowStep(step, place, 1), take)


class Take(Protocol):
    """Emits everything for one element of a row, given its column, its number among the thread's elements, and whether
    it is the thread's first. `gathered` are the places for the elements that a step folds together, for each fold that
    does so."""

    def __call__(
        self, to: Builder, column: Expression, slot: Code, is_first: bool | Code, gathered: Sequence[Code] = ()
    ) -> Sequence[Store]: ...


@dataclass(frozen=True)
class RowStep:
    """A step of a thread in its row.

    `number` is its number in the row, `place` its number among the thread's steps, `size` its elements, `folds` those
    of the pass. In a peeled row, `first` is the number of the row's first vector in memory.
    """

    number: Variable
    place: Code
    size: int
    folds: Sequence[Fold] = ()
    first: Expression | None = None


def _take_step(builder: Builder, frame: RowFrame, step: RowStep, take: Take, joints: Sequence[int] = ()) -> None:
    """Emit the elements that a thread computes in one step along its row: one, or a vector of neighbours. For each,
    `take` gets the column, the slot of the element in the thread's registers, and the condition that it is the thread's
    first; what it returns is stored. Each piece of a row, between `joints`, has its own code."""
    edges = [0, *(joint // step.size for joint in joints), step.number.high + 1]
    for begin, end in itertools.pairwise(edges):
        low = code("{} >= {}", step.number, begin) if begin else NOTHING
        high = code("{} < {}", step.number, end) if end <= step.number.high else NOTHING
        with builder.branch(both(low, high)):
            number = Variable(begin, end - 1, step.number.name)
            _take_alike(builder, frame, replace(step, number=number) if joints else step, take)


def _take_alike(builder: Builder, frame: RowFrame, step: RowStep, take: Take) -> None:
    """Emit the elements of a step, all of which are computed in the same way."""
    size, columns = step.size, frame.segment.part.columns
    counter = next(step.place.names(), None)
    begins = Code((FirstRound(Name(step.number.name), _across(frame.segment), counter),))
    if size == 1:
        store_all(builder, take(builder, step.number, step.place, begins), frame.live)
        return

    def column(to: Builder, item: Expression) -> Expression:
        if step.first is None:
            return to.declare_index("column", add(multiply(step.number, size), item))
        place = to.declare_index("place", add(multiply(add(step.first, step.number), size), item))
        return to.column_at(place, frame.row, columns)

    gathering = [fold for fold in step.folds if fold.steps is not None]
    arrays = [builder.array(register_type(f.types[0]), builder.numbered("together"), size) for f in gathering]

    def visit(to: Builder, at: Expression, item: Expression) -> Sequence[Store]:
        number = to.text(item)
        slot = code("{} * {} + {}", step.place, size, number)
        return take(to, at, slot, both(begins, code("{} == 0", item)), [cell(name, number) for name in arrays])

    each_element(builder, size, column, visit, frame.live)
    for fold, name in zip(gathering, arrays, strict=True):
        fold.take_together(builder, name, size)


def _peel(builder: Builder, frame: RowFrame, is_numbered: bool, folds: Sequence[Fold], take: Take) -> None:
    """Emit the vectors of a peeled row, and its ends, which the threads with fewer vectors take.

    Loads of the ends are issued before the vectors.
    """
    part, size, across = frame.segment.part, frame.segment.vector, _across(frame.segment)
    least, most = part.vectors
    begin = builder.declare_index("begin", multiply(frame.row, part.columns))
    first = builder.declare_index("first_vector", divide(add(begin, constant(size - 1)), size))
    behind = builder.text(divide(add(begin, constant(part.columns)), size))
    vectors = builder.bounded("vectors", code("{} - {}", behind, builder.text(first)), least, most)
    shortest, longest = part.columns - most * size, part.columns - least * size
    ends = builder.bounded("ends", code("{} - {} * {}", part.columns, vectors, size), shortest, longest)
    number = builder.declare("end", add(constant(across - 1), multiply(frame.start, -1)))
    head = builder.text(add(multiply(first, size), multiply(begin, -1)))
    place = code("{0} < {1} ? {0} : {0} + {2} * {3}", number, head, vectors, size)
    column, is_end = builder.bounded("column", place, 0, part.columns - 1), code("{} < {}", number, ends)
    slot = code("{}", -(-most // across) * size)
    read = _read_ahead(builder, is_end, column, lambda to: take(to, column, slot, False))
    kind = index_type(Variable(0, most + across, vectors.name))
    step = Variable(0, most - 1, builder.names.fresh("step"))
    if is_numbered:
        counter = builder.numbered("k")
        builder.advise("unroll")
        rounds, test = -(-most // across), code("{} < {} || {} < {}", counter, least // across, step, vectors)
        with builder.loop_while("int", counter, code("0"), code("{} < {}", counter, rounds), code("++{}", counter)):
            value = code("{} + {} * {}", frame.start, counter, across)
            builder.add(Let(kind, Name(step.name), value, is_index=True))
            with builder.branch(test):
                _take_step(builder, frame, RowStep(step, of(counter), size, folds, first), take)
    else:
        test, on = code("{} < {}", step, vectors), code("{} += {}", step, across)
        with builder.loop_while(kind, Name(step.name), of(frame.start), test, on):
            _take_step(builder, frame, RowStep(step, NOTHING, size, folds, first), take)
    with builder.branch(is_end):
        for parameter, index, name in read:
            builder.name_after(parameter)
            end_value = builder.bind_exact(parameter.shape.type, loaded(parameter.shape.type, of(name)))
            builder.provide(parameter, None, index, end_value)
        store_all(builder, take(builder, column, slot, False), frame.live)


def _read_ahead(
    builder: Builder, condition: Code, column: Variable, take: Callable[[Builder], object]
) -> list[tuple[Instruction, tuple[Expression, ...], Name]]:
    """Emit the loads that `take` needs at a column, under a condition: (parameter, index, variable with the raw
    bits)."""
    trial = builder.trial()
    with trial.branch(condition):
        take(trial)
        loads = [
            (parameter, index)
            for parameter, index in dict.fromkeys(trial.loads())
            if any(column.name in variables_of(e) for e in index)
            and all(name == column.name or builder.names.is_taken(name) for e in index for name in variables_of(e))
        ]
    read = []
    for parameter, index in loads:
        name = builder.numbered("end_read")
        builder.add(Let(memory_type(parameter.shape.type), name, code("0"), constant=False))
        read.append((parameter, index, name))
    if read:
        with builder.branch(condition):
            for parameter, index, name in read:
                builder.assign(of(name), builder.where(parameter, index))
    return read


@contextmanager
def steps_of(
    builder: Builder, segment: Segment[Rows], start: Variable, numbered: bool, *, in_vectors: bool = True
) -> Iterator[tuple[Variable, Code]]:
    """A loop over the steps of a thread; a step is a vector, or one element unless `in_vectors`.

    Yields the variable of a step's number in the row, and where `numbered` its number among the thread's steps, which
    lets the compiler unroll the loop. Where all threads have the same number of steps, it can load ahead for several.
    """
    threads, vector = _across(segment), segment.vector if in_vectors else 1
    steps = segment.part.columns // vector
    if threads == 1 and vector == 1:  # all of the row
        column = Variable(0, steps - 1, builder.names.fresh("column"))
        test, on = code("{} < {}", column, steps), code("++{}", column)
        with builder.loop_while("int", Name(column.name), code("0"), test, on):
            yield column, of(Name(column.name))
        return
    step = Variable(0, steps - 1, builder.names.fresh("step" if vector > 1 else "column"))
    kind = "int" if segment.part.columns + threads * vector <= 2**31 - 1 else "long long"
    is_even = steps % threads == 0 and steps > threads
    is_short = threads < WARP and steps > threads  # few steps, of which the last may be none
    counter = builder.numbered("k") if numbered or is_even or is_short else None
    unrolled = 0 if numbered or steps <= 2 * AHEAD * threads else AHEAD
    with builder.walk(kind, step, start, steps, threads, counter, unrolled):
        yield step, of(counter) if counter else NOTHING


def _fold_column(
    builder: Builder,
    folds: Sequence[Fold],
    row: Expression,
    column: Expression,
    is_first: bool | Code,
    gathered: Sequence[Code],
) -> None:
    """Fold one column into the accumulators, or leave its element in the place where its step folds all together.
    `is_first`: whether this is the thread's first column, or the condition for it; every thread has one."""
    places = iter(gathered)
    for fold in folds:
        at = operand_index(fold.reduce, row, column)
        if gathered and fold.steps is not None:
            builder.assign(next(places), builder.value(fold.operands[0], at))
            continue
        read = [builder.value(o, at) for o in fold.operands]
        fold.take(builder, read, is_first, places_at(fold, at, column))  # steps go from left to right


def _stores(
    builder: Builder, segment: Segment[Rows], writes: Sequence[Write], row: Expression, column: Expression
) -> list[Store]:
    space = segment.part.space
    return [
        store
        for write in writes
        for store in write.stores(builder, root_index(space, _reduces(segment), write.root, row, column))
    ]


def _met(builder: Builder, frame: RowFrame, part: Variable, folds: Sequence[Fold]) -> list[Fold]:
    """Combine the parts of a row in the first warp of the block that finishes last.

    Returns folds with one or more parts per thread, to be closed as those of an unshared row.
    """
    segment, row, lane = frame.segment, frame.row, frame.lane
    parts, rows = segment.part.parts, segment.part.rows
    _fold_block(builder, frame, folds)
    meet = meeting(builder, folds, rows, rows, parts)
    first, group = multiply(row, parts), builder.text(row)
    with builder.branch(code("{} == 0", lane)):
        leave(builder, meet, [folds], [builder.text(add(first, part))])
    last_only(builder, meet, group)
    reset(builder, meet, group)
    only_first(builder, WARP, segment.part.threads)
    row_folds = open_folds(builder, [fold.reduce for fold in folds])
    number = Variable(0, parts - 1, builder.names.numbered("k"))
    with builder.walk("int", number, lane, parts, WARP):
        for fold, names in zip(row_folds, meet.tables, strict=True):
            builder.name_after(fold.reduce)
            at = builder.text(add(first, number))
            values = [builder.bind_exact(t, part_at(t, name, at)) for t, name in zip(fold.types, names, strict=True)]
            fold.take(builder, values, Code((FirstRound(Name(number.name), WARP),)))
    return row_folds


def _close(builder: Builder, frame: RowFrame, level: int, folds: Sequence[Fold]) -> None:
    """Combine the threads' results and hand the row's result to every thread of the row."""
    segment, lane = frame.segment, frame.lane
    if segment.part.in_cluster:
        _fold_cluster(builder, frame, level, folds)
    elif segment.part.parts > 1:
        lanes = min(WARP, segment.part.parts)
        _fold_lanes(builder, folds, lanes, lane if lanes < WARP else None)
    else:
        _fold_block(builder, frame, folds)
    leader = code("0")
    if 1 < segment.part.threads < WARP:
        within = modulo(thread_of(segment.part.threads * frame.per_block), WARP)
        leader = builder.text(add(within, multiply(lane, -1)))
    for fold in folds:
        builder.name_after(fold.reduce)
        named = list(zip(fold.types, fold.accumulators, strict=True))
        is_shared = segment.part.threads > 1
        results = [shuffled(t, "sync", name, leader) if is_shared else of(name) for t, name in named]
        fold.finish(builder, results, frame.row)


def _expect(builder: Builder, part: Rows) -> Name:
    """Declare what counts the bytes that the blocks of a cluster write to each other, for each level."""
    arrived = builder.array("unsigned long long", builder.numbered("arrived"), len(part.levels), shared=True)
    for level in range(len(part.levels)):
        size = part.level_bytes(level, part.threads // WARP)
        builder.do(call("hlo_cluster_expect", address(arrived, code(str(level))), code("{}u", size)))
    return arrived


def _fold_cluster(builder: Builder, frame: RowFrame, level: int, folds: Sequence[Fold]) -> None:
    """Combine the results of a cluster's threads in the first lane of each warp. Each warp leaves its results in the
    shared memory of all blocks."""
    assert frame.part is not None and frame.arrived is not None
    blocks, warps = frame.segment.part.parts, frame.segment.part.threads // WARP
    arrived = address(frame.arrived, code(str(level)))
    _fold_lanes(builder, folds, WARP, None)
    parts = [(t, name, fold) for fold in folds for t, name in zip(fold.types, fold.accumulators, strict=True)]
    tables, shown = [], []
    for element_type, name, fold in parts:
        kind = widened_type(element_type)
        tables.append(builder.array(kind, builder.numbered("partial"), warps * blocks, shared=True))
        builder.name_after(fold.reduce)
        value = builder.bind_exact(element_type, shuffled(element_type, "sync", name, code("0")))
        shown.append(value if kind == register_type(element_type) else code("({}){}", kind, value))
    within = builder.declare("warp_lane", modulo(frame.lane, WARP))
    with builder.branch(code("{} < {}", within, blocks)):
        place = builder.text(add(multiply(frame.part, warps), divide(frame.lane, WARP)))
        for table, value in zip(tables, shown, strict=True):
            builder.do(call("hlo_cluster_put", address(table, place), of(within), value, arrived))
    builder.add(ClusterBarrier("take", arrived))
    for table, (_, name, _) in zip(tables, parts, strict=True):
        builder.assign(name, cell(table, of(within)))
    for first in range(WARP, warps * blocks, WARP):
        place, left = code("{} + {}", within, first), iter(tables)
        for fold in folds:
            builder.name_after(fold.reduce)
            fold.combine(builder, [builder.bind_exact(t, cell(next(left), place)) for t in fold.types])
    _fold_lanes(builder, folds, WARP, None)


def _fold_block(builder: Builder, frame: RowFrame, folds: Sequence[Fold]) -> None:
    """Combine the results of a block's threads in the first lane of each warp. All folds share one barrier."""
    segment, lane = frame.segment, frame.lane
    warps, threads = segment.part.threads // WARP, segment.part.threads * frame.per_block
    _fold_lanes(builder, folds, min(WARP, segment.part.threads), None, segment.part.threads if warps > 1 else 0)
    if warps < 2:
        return
    parts = [(t, name) for fold in folds for t, name in zip(fold.types, fold.accumulators, strict=True)]
    tables = []
    for element_type, _ in parts:
        kind = register_type(element_type)
        tables.append(builder.array(kind, builder.numbered("partial"), warps * frame.per_block, shared=True))
    within = builder.declare("warp_lane", modulo(Variable(0, segment.part.threads - 1, lane.name), WARP))
    with builder.branch(code("{} == 0", within)):
        warp = builder.text(divide(thread_of(threads), WARP))
        for table, (_, name) in zip(tables, parts, strict=True):
            builder.assign(cell(table, warp), name)
    builder.add(Barrier())
    place = of(within)
    if frame.per_block > 1:
        first = multiply(divide(thread_of(threads), segment.part.threads), warps)
        place = code("{} + {}", builder.text(first), place)
    with builder.branch(code("{} < {}", within, warps) if warps < WARP else NOTHING):
        for table, (_, name) in zip(tables, parts, strict=True):
            builder.assign(name, cell(table, place))
    _fold_lanes(builder, folds, warps, within)


def _fold_lanes(builder: Builder, folds: Sequence[Fold], lanes: int, within: Variable | None, team: int = 0) -> None:
    """Fold the first `lanes` lanes into lane 0; `team` threads where what follows combines their warps.

    `within` is a thread's lane. Without it, the lanes behind belong to other rows or to none; what the last lanes of a
    row take from them never reaches lane 0.
    """
    if lanes < 2:
        return
    distance = builder.fresh("distance")
    start = 1 << ((lanes - 1).bit_length() - 1)
    builder.advise("unroll")
    test, step = code("{} > 0", distance), code("{} /= 2", distance)
    tree = lanes if within is None else WARP, start, 1
    with builder.loop_while("int", distance, code(str(start)), test, step, tree=tree, team=team):
        others = []
        for fold in folds:
            builder.name_after(fold.reduce)
            moved = zip(fold.types, fold.accumulators, strict=True)
            others.append([builder.bind_exact(t, shuffled(t, "down", name, of(distance))) for t, name in moved])
        inside = NOTHING if within is None else code("{} + {} < {}", within, distance, lanes)
        with builder.branch(inside):
            for fold, values in zip(folds, others, strict=True):
                builder.name_after(fold.reduce)
                fold.combine(builder, values)
