"""The emitter of row-reduction plans.

Each thread folds the columns `lane, lane + threads, ...` of its row, a warp folds its threads' results by shuffles, and where a row has several warps they
meet in shared memory. Short rows share a warp: a thread then folds neighbouring columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.folds import Fold, Write, open_folds, writes_of
from hlo_opt.codegen.scalars import register_type, shuffled
from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir.index_map import Expression, Variable, add, constant, multiply
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
    live = ""
    if rows > 1:
        row = Variable(0, rows - 1, builder.names.fresh("row"))
        kind = "int" if rows + per_block <= 2**31 - 1 else "long long"
        text = f"(blockIdx.x - {first_block})" if first_block else "blockIdx.x"
        if per_block > 1:
            text = f"{text} * {per_block} + threadIdx.x / {threads}"
        if rows % per_block:  # threads without a row of their own repeat the last one, so that all meet at barriers
            live = builder.names.fresh("own_row")
            builder.line(f"const {kind} {live} = {text};")
            text = f"{live} < {rows} ? {live} : {rows - 1}"
            live = f"{live} < {rows}"
        builder.line(f"const {kind} {row.name} = {text};")
    space = Space(*segment.space)
    writes = writes_of(plan, segment, space.kept, targets)
    for level in range(len(segment.levels) + 1):
        folds = open_folds(builder, segment.levels[level]) if level < len(segment.levels) else []
        stores = [w for w in writes if w.per_position and w.level == level]
        if folds or stores:
            _pass(builder, segment, folds, stores, lane, row, live)
        for fold in folds:
            _close(builder, segment, fold, lane, row)
    condition = " && ".join(text for text in (f"{lane} == 0", live) if text)
    singles = [w for w in writes if not w.per_position]
    if singles:
        with builder.branch(condition):
            for write in singles:
                write.emit(builder, root_index(space, _reduces(segment), write.root, row, None))


def _reduces(segment: Segment) -> Iterable[Instruction]:
    return (reduce for level in segment.levels for reduce in level)


def _pass(
    builder: Builder,
    segment: Segment,
    folds: Sequence[Fold],
    stores: Sequence[Write],
    lane: str,
    row: Expression,
    live: str,
) -> None:
    columns, threads = segment.space[1], segment.threads_per_row
    if threads < WARP:
        with builder.block(""):  # one step takes the whole row
            first = multiply(Variable(0, threads - 1, lane), segment.vector)
            for number in range(segment.vector):
                _fold_column(builder, folds, row, add(first, constant(number)), "", first=number == 0)
            for number in range(segment.vector):
                _store_column(builder, segment, stores, row, add(first, constant(number)), live)
        return
    column = Variable(0, columns - 1, builder.names.fresh("column"))
    kind = "int" if columns + threads <= 2**31 - 1 else "long long"
    name = column.name
    with builder.block(f"for ({kind} {name} = {lane}; {name} < {columns}; {name} += {threads})"):
        _fold_column(builder, folds, row, column, f"{name} < {threads}")
        _store_column(builder, segment, stores, row, column, live)


def _fold_column(
    builder: Builder, folds: Sequence[Fold], row: Expression, column: Expression, is_first: str, first: bool = False
) -> None:
    """Take one column into the accumulators. `is_first` is the condition that it is the thread's first one; every thread has one."""
    for fold in folds:
        at = operand_index(fold.reduce, row, column)
        fold.take(builder, [builder.value(o, at) for o in fold.operands], first or is_first)


def _store_column(
    builder: Builder, segment: Segment, stores: Sequence[Write], row: Expression, column: Expression, live: str
) -> None:
    for write in stores:
        index = root_index(Space(*segment.space), _reduces(segment), write.root, row, column)
        with builder.branch(live) if live else nullcontext():
            write.emit(builder, index)


def _close(builder: Builder, segment: Segment, fold: Fold, lane: str, row: Expression) -> None:
    """Bring the threads' results together; every thread of the row then knows the row's."""
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
    leader = "0" if warps else f"threadIdx.x % {WARP} - {lane}"
    results = [shuffled(kind, "__shfl_sync", name, leader) for kind, name in zip(kinds, fold.accumulators, strict=True)]
    fold.finish(builder, results, row)


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
