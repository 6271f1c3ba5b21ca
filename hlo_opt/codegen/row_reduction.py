"""The emitter of row-reduction plans.

Each thread folds the columns `lane, lane + threads, ...` of its row, a warp folds its threads' results by shuffles, and where a row has several warps they
meet in shared memory. The order differs from HLO's row-major fold, as on every GPU: a reducer must be associative and commutative.
The init value enters once per row: it seeds the threads only where it is the reducer's identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.scalars import register_type, shuffled
from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir.element_type import ElementType
from hlo_opt.ir.index_map import Expression, Variable, constant
from hlo_opt.ops.reducers import monoid
from hlo_opt.plans.plan import Plan, Segment
from hlo_opt.plans.row_reduction import WARP, operand_index, result_index, root_index


@dataclass(frozen=True)
class _Fold:
    """One reduce while it is being folded: the accumulators' types and names."""

    reduce: Instruction
    types: tuple[ElementType, ...]
    accumulators: tuple[str, ...]
    starts_with_init: bool

    def combine(self, builder: Builder, values: Sequence[str]) -> None:
        """accumulators = reducer(accumulators, values)"""
        for name, text in zip(self.accumulators, self.combined(builder, self.accumulators, values), strict=True):
            builder.assign(name, text)

    def combined(self, builder: Builder, left: Sequence[str], right: Sequence[str]) -> list[str]:
        reducer = self.reduce.called_by("to_apply")
        made = builder.apply(reducer, [*left, *right])
        if len(made) > 1:  # all are computed before the first accumulator changes
            made = [builder.bind_exact(t, text) for t, text in zip(self.types, made, strict=True)]
        return made


def emit(
    builder: Builder, plan: Plan, segment: Segment, first_block: int, targets: Sequence[Sequence[tuple[str, Shape]]]
) -> None:
    """One pass over the row per level of reduces, and a last one when outputs of the whole space need the results."""
    rows = segment.space[0]
    threads, per_block = segment.threads_per_row, segment.rows_per_block
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
    writes = _writes(plan, segment, targets)
    for level in range(len(segment.levels) + 1):
        folds = _open(builder, segment.levels[level]) if level < len(segment.levels) else []
        stores = [w for w in writes if w.per_column and w.level == level]
        if folds or stores:
            _pass(builder, segment, folds, stores, lane, row, live)
        for fold in folds:
            _close(builder, segment, fold, lane, row)
    condition = " && ".join(text for text in (f"{lane} == 0", live) if text)
    singles = [w for w in writes if not w.per_column]
    if singles:
        with builder.branch(condition):
            for write in singles:
                write.emit(builder, root_index(segment.levels, write.root, row, None))


@dataclass(frozen=True)
class _Write:
    """An output: where it goes, what it is, and after how many levels it can be computed."""

    root: Instruction
    targets: tuple[tuple[str, Shape], ...]
    per_column: bool
    level: int

    def emit(self, builder: Builder, index: tuple[Expression, ...]) -> None:
        tuple_shaped = self.root.shape.is_tuple
        values = [
            builder.element(self.root, number, index) if tuple_shaped else builder.value(self.root, index)
            for number in range(len(self.targets))
        ]
        for (pointer, shape), value in zip(self.targets, values, strict=True):
            builder.store(pointer, shape, index, value)


def _writes(plan: Plan, segment: Segment, targets: Sequence[Sequence[tuple[str, Shape]]]) -> list[_Write]:
    level_of: dict[Instruction, int] = {}  # passes over the row before the value is known
    for instruction in plan.region.computation.instructions:
        level_of[instruction] = max((level_of[o] for o in instruction.operands), default=0)
        for level, reduces in enumerate(segment.levels):
            if instruction in reduces:
                level_of[instruction] = level + 1
    made = []
    for number in segment.roots:
        root = plan.region.roots[number]
        per_column = targets[number][0][1].element_count != segment.space[0]
        made.append(_Write(root, tuple(targets[number]), per_column, level_of[root]))
    return made


def _open(builder: Builder, reduces: Sequence[Instruction]) -> list[_Fold]:
    folds = []
    for reduce in reduces:
        types = tuple(leaf.type for leaf in reduce.shape.leaves())
        neutral = _init_is_identity(reduce)
        stem = builder.stem_of(reduce)
        names = []
        for number, element_type in enumerate(types):
            init = reduce.operands[len(types) + number]
            name = builder.names.fresh(stem)
            text = builder.value(init, ()) if neutral else f"({register_type(element_type)})0"
            builder.line(f"{register_type(element_type)} {name} = {text};")
            names.append(name)
        folds.append(_Fold(reduce, types, tuple(names), neutral))
    return folds


def _pass(
    builder: Builder,
    segment: Segment,
    folds: Sequence[_Fold],
    stores: Sequence[_Write],
    lane: str,
    row: Expression,
    live: str,
) -> None:
    columns, threads = segment.space[1], segment.threads_per_row
    column = Variable(0, columns - 1, builder.names.fresh("column"))
    kind = "int" if columns + threads <= 2**31 - 1 else "long long"
    name = column.name
    with builder.block(f"for ({kind} {name} = {lane}; {name} < {columns}; {name} += {threads})"):
        for fold in folds:
            at = operand_index(fold.reduce, row, column)
            values = [builder.value(o, at) for o in fold.reduce.operands[: len(fold.types)]]
            if fold.starts_with_init:
                fold.combine(builder, values)
                continue
            with builder.branch(f"{name} < {threads}"):  # the thread's first element; every thread has one
                for accumulator, value in zip(fold.accumulators, values, strict=True):
                    builder.assign(accumulator, value)
            with builder.otherwise():
                fold.combine(builder, values)
        for write in stores:
            index = root_index(segment.levels, write.root, row, column)
            if live:
                with builder.branch(live):
                    write.emit(builder, index)
            else:
                write.emit(builder, index)


def _close(builder: Builder, segment: Segment, fold: _Fold, lane: str, row: Expression) -> None:
    """Bring the threads' results together; every thread of the row then knows the row's."""
    kinds = [register_type(t) for t in fold.types]
    builder.name_after(fold.reduce)
    _fold_lanes(builder, fold, WARP, "")
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
    results = [shuffled(kind, "__shfl_sync", name, "0") for kind, name in zip(kinds, fold.accumulators, strict=True)]
    if not fold.starts_with_init:
        inits = [builder.value(o, ()) for o in fold.reduce.operands[len(fold.types) :]]
        builder.name_after(fold.reduce)
        results = [builder.bind_exact(t, text) for t, text in zip(fold.types, results, strict=True)]
        results = fold.combined(builder, inits, results)
    index = result_index(fold.reduce, row)
    for number, (leaf, text) in enumerate(zip(fold.reduce.shape.leaves(), results, strict=True)):
        name = builder.bind(leaf.type, text)
        builder.provide(fold.reduce, number if fold.reduce.shape.is_tuple else None, index, name)


def _fold_lanes(builder: Builder, fold: _Fold, lanes: int, within: str) -> None:
    """Fold the first `lanes` lanes of a warp into lane 0. `within` names a thread's lane; it is only looked at when a warp is not full."""
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
        if lanes == WARP:
            fold.combine(builder, others)
        else:
            with builder.branch(f"{within} + {distance} < {lanes}"):
                fold.combine(builder, others)


def _init_is_identity(reduce: Instruction) -> bool:
    """Whether combining the init value once more changes nothing: a constant 0 for add, 1 for multiply, the least value for maximum, ..."""
    if reduce.shape.is_tuple:
        return False
    init, opcode = reduce.operands[1], monoid(reduce.called_by("to_apply"))
    if opcode is None or init.literal is None:
        return False
    return _is_identity(opcode, init.shape.type, init.literal.value)


def _is_identity(opcode: str, element_type: ElementType, value: object) -> bool:
    import numpy as np

    number = np.asarray(value).reshape(-1)[0]
    if element_type.kind == "pred":
        return bool(number) == (opcode in ("and", "multiply", "minimum"))
    if opcode == "add":
        return bool(number == 0)
    if opcode == "multiply":
        return bool(number == 1)
    if element_type.is_float:
        return opcode in ("maximum", "minimum") and float(number) == float("-inf" if opcode == "maximum" else "inf")
    if opcode in ("or", "xor"):
        return int(number) == 0
    signed = element_type.kind == "signed"
    low = -(2 ** (element_type.bits - 1)) if signed else 0
    high = 2 ** (element_type.bits - signed) - 1
    ones = -1 if signed else high
    expected = {"maximum": low, "minimum": high, "and": ones}[opcode]
    return bool(int(number) == expected)
