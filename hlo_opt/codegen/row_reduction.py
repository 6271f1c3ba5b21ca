"""The emitter of row-reduction plans.

Each thread folds steps `lane, lane + threads, ...` of its row, a step being as many neighbouring columns as one access moves; a warp folds its threads' results by
shuffles, and where a row has several warps they meet in shared memory. Short rows share a warp, and a thread takes one step. What a pass over the row computes and
a later one needs stays in registers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.folds import Fold, Write, open_folds, writes_of
from hlo_opt.codegen.kept import Keeper, keeper
from hlo_opt.codegen.parts import last_only, leave, meeting, part_at, reset
from hlo_opt.codegen.scalars import register_type, shuffled
from hlo_opt.codegen.vectors import Store, each_element, store_all
from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir.index_map import Expression, Variable, add, constant, multiply, variables_of
from hlo_opt.plans.folding import Space, operand_index, root_index
from hlo_opt.plans.plan import Plan, Segment
from hlo_opt.plans.row_reduction import WARP


def emit(
    builder: Builder, plan: Plan, segment: Segment, first_block: int, targets: Sequence[Sequence[tuple[str, Shape]]]
) -> None:
    """One pass over the row per level of reduces, and a last one when outputs of the whole space need the results."""
    rows = segment.space[0]
    threads, per_block = segment.threads_per_row, segment.rows_per_block
    if (
        threads * per_block < plan.launch.block
    ):  # whole warps that another segment needs; barriers do not wait for what has returned
        builder.line(f"if (threadIdx.x >= {threads * per_block}) return;")
    lane = builder.names.fresh("lane")
    builder.line(f"const int {lane} = threadIdx.x{f' % {threads}' if per_block > 1 else ''};")
    row: Expression = constant(0)
    live, start, part = "", lane, ""
    if segment.parts > 1:
        row, start, part = _part(builder, segment, lane, first_block)
    elif rows > 1:
        row = Variable(0, rows - 1, builder.names.fresh("row"))
        kind = "int" if rows + per_block <= 2**31 - 1 else "long long"
        block = "blockIdx.x" if kind == "int" else "(long long)blockIdx.x"
        text = f"({block} - {first_block})" if first_block else block
        if per_block > 1:
            text = f"{text} * {per_block} + threadIdx.x / {threads}"
        if rows % per_block:  # threads without a row of their own repeat the last one, so that all meet at barriers
            live = builder.names.fresh("own_row")
            builder.line(f"const {kind} {live} = {text};")
            text = f"{live} < {rows} ? {live} : {rows - 1}"
            live = f"{live} < {rows}"
        builder.line(f"const {kind} {row.name} = {text};")
    elif per_block > 1:  # all threads of the warp fold the only row, and the first ones write
        live = f"threadIdx.x < {threads}"
    writes = writes_of(plan, segment, rows, targets)
    passes = len(segment.levels) + any(w.per_position and w.level for w in writes)
    steady = [lane, start, *variables_of(row)]

    def fold_and_store(to: Builder, keeping: Keeper) -> None:
        _passes(to, segment, writes, lane, (start, part), row, live, keeping)

    fold_and_store(builder, keeper(builder, _rounds(segment) * segment.vector, passes, steady, fold_and_store))
    condition = " && ".join(text for text in (f"{lane} == 0", live) if text)
    singles = [w for w in writes if not w.per_position]
    if singles:
        with builder.branch(condition):
            for write in singles:
                write.emit(builder, root_index(Space(*segment.space), _reduces(segment), write.root, row, None))


def _part(builder: Builder, segment: Segment, lane: str, first_block: int) -> tuple[Expression, str, str]:
    """The row of a block that shares it with others, the first step of each of its threads (those of all parts walk the row side by side), and the part's number."""
    rows, parts, threads = segment.space[0], segment.parts, segment.threads_per_row
    block = f"(blockIdx.x - {first_block})" if first_block else "blockIdx.x"
    part, start = builder.names.fresh("part"), builder.names.fresh("start")
    row: Expression = constant(0)
    if rows > 1:
        row = Variable(0, rows - 1, builder.names.fresh("row"))
        builder.line(f"const int {row.name} = {block} / {parts};")
    builder.line(f"const int {part} = {block}{f' % {parts}' if rows > 1 else ''};")
    builder.line(f"const int {start} = {part} * {threads} + {lane};")
    return row, start, part


def _passes(
    builder: Builder,
    segment: Segment,
    writes: Sequence[Write],
    lane: str,
    of_part: tuple[str, str],
    row: Expression,
    live: str,
    keeping: Keeper,
) -> None:
    start, part = of_part
    for level in range(len(segment.levels) + 1):
        folds = open_folds(builder, segment.levels[level]) if level < len(segment.levels) else []
        stores = [w for w in writes if w.per_position and w.level == level]
        if folds or stores:
            _pass(builder, segment, level, folds, stores, start, row, live, keeping)
        if segment.parts > 1 and folds:
            folds = _met(builder, segment, folds, lane, part, row)
        for fold in folds:
            _close(builder, segment, fold, lane, row)


def _rounds(segment: Segment) -> int:
    """Steps of the thread that has most."""
    return math.ceil(segment.space[1] / (segment.vector * _across(segment)))


def _across(segment: Segment) -> int:
    """Threads that fold a row, in all blocks that have parts of it."""
    return segment.threads_per_row * segment.parts


def _reduces(segment: Segment) -> Iterable[Instruction]:
    return (reduce for level in segment.levels for reduce in level)


def _pass(
    builder: Builder,
    segment: Segment,
    level: int,
    folds: Sequence[Fold],
    stores: Sequence[Write],
    lane: str,
    row: Expression,
    live: str,
    keeping: Keeper,
) -> None:
    threads, vector = segment.threads_per_row, segment.vector
    if threads < WARP:
        with builder.block(""):  # one step takes the whole row
            first = multiply(Variable(0, threads - 1, lane), vector)
            for number in range(vector):
                _fold_column(builder, folds, row, add(first, constant(number)), "", first=number == 0)
            found = [_stores(builder, segment, stores, row, add(first, constant(n))) for n in range(vector)]
            store_all(builder, [store for of_column in found for store in of_column], live)
        return
    with _steps(builder, segment, lane, keeping.keeps) as (step, place):

        def visit(to: Builder, column: Expression, part: Expression) -> list[Store]:
            assert isinstance(column, Variable)
            several = isinstance(part, Variable)
            slot = place if not several else f"{place} * {vector} + {to.text(part)}"
            keeping.begin(to, level, column, slot)
            is_first = f"{step.name} < {_across(segment)}" + (f" && {to.text(part)} == 0" if several else "")
            _fold_column(to, folds, row, column, is_first)
            found = _stores(to, segment, stores, row, column)
            keeping.end(to, level, column, slot)
            return found

        if vector == 1:
            store_all(builder, visit(builder, step, constant(0)), live)
        else:
            each_element(
                builder,
                vector,
                lambda to, part: to.declare_index("column", add(multiply(step, vector), part)),
                visit,
                live,
            )


@contextmanager
def _steps(builder: Builder, segment: Segment, lane: str, numbered: bool) -> Iterator[tuple[Variable, str]]:
    """A loop over the steps of a thread: the variable of a step's place in the row, and where `numbered` that of its number among the thread's, for the
    compiler to unroll."""
    threads, vector = _across(segment), segment.vector
    steps = segment.space[1] // vector
    rounds = _rounds(segment)
    step = Variable(0, steps - 1, builder.names.fresh("step" if vector > 1 else "column"))
    kind = "int" if segment.space[1] + threads * vector <= 2**31 - 1 else "long long"
    if not numbered:
        with builder.block(f"for ({kind} {step.name} = {lane}; {step.name} < {steps}; {step.name} += {threads})"):
            yield step, ""
        return
    number = builder.names.numbered("k")
    builder.pragma("unroll")
    with builder.block(f"for (int {number} = 0; {number} < {rounds}; ++{number})"):
        builder.line(f"const {kind} {step.name} = {lane} + {number} * {threads};")
        with builder.branch(f"{step.name} < {steps}") if steps % threads else nullcontext():
            yield step, number


def _fold_column(
    builder: Builder, folds: Sequence[Fold], row: Expression, column: Expression, is_first: str, first: bool = False
) -> None:
    """Take one column into the accumulators. `is_first` is the condition that it is the thread's first one; every thread has one."""
    for fold in folds:
        at = operand_index(fold.reduce, row, column)
        fold.take(builder, [builder.value(o, at) for o in fold.operands], first or is_first)


def _stores(
    builder: Builder, segment: Segment, writes: Sequence[Write], row: Expression, column: Expression
) -> list[Store]:
    space = Space(*segment.space)
    return [
        store
        for write in writes
        for store in write.stores(builder, root_index(space, _reduces(segment), write.root, row, column))
    ]


def _met(
    builder: Builder, segment: Segment, folds: Sequence[Fold], lane: str, part: str, row: Expression
) -> list[Fold]:
    """Bring the parts of a row together in the first warp of the block that is last: folds of one part per thread or some, to be closed as if the row had no others."""
    parts = segment.parts
    for fold in folds:
        _fold_block(builder, segment, fold, lane)
    rows = segment.space[0]
    meet = meeting(builder, folds, rows, rows, parts)
    first, group = builder.text(multiply(row, parts)), builder.text(row)
    with builder.branch(f"{lane} == 0"):
        leave(builder, meet, [folds], [f"{first} + {part}" if rows > 1 else part])
    last_only(builder, meet, group)
    reset(builder, meet, group)
    builder.line(f"if (threadIdx.x >= {WARP}) return;")
    found = open_folds(builder, [fold.reduce for fold in folds])
    number = builder.names.numbered("k")
    with builder.block(f"for (int {number} = {lane}; {number} < {parts}; {number} += {WARP})"):
        for fold, names in zip(found, meet.tables, strict=True):
            builder.name_after(fold.reduce)
            at = f"{first} + {number}" if rows > 1 else number
            values = [builder.bind_exact(t, part_at(t, name, at)) for t, name in zip(fold.types, names, strict=True)]
            fold.take(builder, values, f"{number} < {WARP}")
    return found


def _close(builder: Builder, segment: Segment, fold: Fold, lane: str, row: Expression) -> None:
    """Bring the threads' results together; every thread of the row then knows the row's."""
    kinds = [register_type(t) for t in fold.types]
    if segment.parts > 1:
        builder.name_after(fold.reduce)
        lanes = min(WARP, segment.parts)
        _fold_lanes(builder, fold, lanes, lane if lanes < WARP else "")
    else:
        _fold_block(builder, segment, fold, lane)
    warps = segment.threads_per_row // WARP
    leader = "0" if warps else f"threadIdx.x % {WARP} - {lane}"
    results = [shuffled(kind, "__shfl_sync", name, leader) for kind, name in zip(kinds, fold.accumulators, strict=True)]
    fold.finish(builder, results, row)


def _fold_block(builder: Builder, segment: Segment, fold: Fold, lane: str) -> None:
    """Bring the results of a block's threads together; the first lane of each warp then knows the row's."""
    kinds = [register_type(t) for t in fold.types]
    builder.name_after(fold.reduce)
    _fold_lanes(builder, fold, min(WARP, segment.threads_per_row), "")
    warps = segment.threads_per_row // WARP
    if warps > 1:
        tables = []
        for kind, name in zip(kinds, fold.accumulators, strict=True):
            tables.append(builder.names.numbered("partial"))
            builder.line(f"__shared__ {kind} {tables[-1]}[{warps * segment.rows_per_block}];")
            with builder.branch(f"{lane} % {WARP} == 0"):
                builder.assign(f"{tables[-1]}[threadIdx.x / {WARP}]", name)
        builder.line("__syncthreads();")
        within = builder.names.fresh("warp_lane")
        builder.line(f"const int {within} = {lane} % {WARP};")
        first = f"threadIdx.x / {segment.threads_per_row} * {warps} + " if segment.rows_per_block > 1 else ""
        for name, table in zip(fold.accumulators, tables, strict=True):
            position = within if warps == WARP else f"({within} < {warps} ? {within} : 0)"
            builder.assign(name, f"{table}[{first}{position}]")
        _fold_lanes(builder, fold, warps, within)


def _fold_lanes(builder: Builder, fold: Fold, lanes: int, within: str) -> None:
    """Fold the first `lanes` lanes into lane 0. `within` names a thread's lane; where it does not, the lanes after these are other rows', or none: what the last lanes of a row
    take from them reaches no first lane."""
    if lanes < 2:
        return
    distance = builder.names.fresh("distance")
    start = 1 << ((lanes - 1).bit_length() - 1)
    builder.pragma("unroll")
    with builder.block(f"for (int {distance} = {start}; {distance} > 0; {distance} /= 2)"):
        others = [
            builder.bind_exact(t, shuffled(register_type(t), "__shfl_down_sync", name, distance))
            for t, name in zip(fold.types, fold.accumulators, strict=True)
        ]
        if not within:
            fold.combine(builder, others)
        else:
            with builder.branch(f"{within} + {distance} < {lanes}"):
                fold.combine(builder, others)
