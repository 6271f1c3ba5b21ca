"""The emitter of row reductions with column sums beside them.

A team of threads processes the rows of its stretch in order, as `hlo_opt.codegen.row_reduction` does. A thread has the
same columns in every row and accumulates their sums in registers, written at the end. Where two teams share a stretch,
they exchange sums through shared memory, and the first team writes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.folds import Fold, levels_of, writes_of
from hlo_opt.codegen.indices import block_of, only_first, thread_of
from hlo_opt.codegen.registers import PAIR, pair_of
from hlo_opt.codegen.row_reduction import RowFrame, fold_rows, steps_of
from hlo_opt.codegen.scalars import loaded, memory_type, register_type
from hlo_opt.codegen.tree import Barrier
from hlo_opt.codegen.vectors import OutputTarget, Store, Targets, each_element, store_all
from hlo_opt.ir import Instruction
from hlo_opt.ir.index_map import Expression, Variable, add, constant, divide, modulo, multiply, substitute
from hlo_opt.ops.code import NOTHING, Code, Name, both, call, cell, code
from hlo_opt.ops.lowering import Index
from hlo_opt.ops.movement.memory import physical_index
from hlo_opt.ops.reduction.reducers import running_types
from hlo_opt.plans.columns import WARP
from hlo_opt.plans.folding import REDUCED, Space, across_index, operand_index
from hlo_opt.plans.plan import Plan, Segment
from hlo_opt.plans.row_and_column_reduction import RowsAndColumns
from hlo_opt.plans.row_reduction import along_rows
from hlo_opt.plans.samples import LINE


@dataclass(frozen=True)
class _Sum:
    """A column reduce: the array of a thread's accumulators, the number of passes before its operand is known, and its
    output."""

    fold: Fold
    array: Name
    level: int
    target: OutputTarget

    def at(self, slot: Code) -> Fold:
        """The fold of one of the thread's columns."""
        return Fold(self.fold.reduce, self.fold.types, (cell(self.array, slot),), True)


@dataclass(frozen=True)
class _Beside:
    """The column sums beside the rows of a space, and what registers hold of a row: arrays with the thread's columns of
    parameters."""

    part: RowsAndColumns
    sums: Sequence[_Sum]
    held: Mapping[Instruction, Name]

    @property
    def space(self) -> Space:
        return self.part.space

    @property
    def levels(self) -> frozenset[int]:
        return frozenset(range(len(self.part.levels) + 1)) if self.held else frozenset(s.level for s in self.sums)

    def begin(self, builder: Builder, row: Expression, column: Expression, slot: Code) -> None:
        """Provide what registers hold of column number `slot` of the thread."""
        for parameter, array in self.held.items():
            kind = parameter.shape.type
            builder.name_after(parameter)
            half = call("hlo_half_bf16", pair_of(array, slot), slot)
            value = builder.bind_exact(
                kind, half if _in_pairs(self.part, parameter) else loaded(kind, cell(array, slot))
            )
            builder.provide(parameter, None, _index_of(self.part, parameter, row, column), value)

    def take(self, builder: Builder, level: int, row: Expression, column: Expression, slot: Code) -> None:
        """Fold in an element of column number `slot` of the thread."""
        for total in self.sums:
            if total.level == level:
                reduce = total.fold.reduce
                value = builder.value(reduce.operands[0], across_index(self.space, reduce, row, column))
                total.at(slot).take(builder, [value], False)


def emit(builder: Builder, plan: Plan, segment: Segment[RowsAndColumns], first_block: int, targets: Targets) -> None:
    """Emit a loop over the rows of a stretch, and the writes after it."""
    part, threads = segment.part, segment.part.threads
    per_block = part.rows_per_block(plan.launch.block)
    thread, live = thread_of(plan.launch.block), NOTHING
    if threads * per_block < plan.launch.block:
        only_first(builder, threads * per_block, plan.launch.block)
        thread = thread_of(threads * per_block)
    lane = builder.declare("lane", modulo(thread, threads))
    place = add(multiply(block_of(first_block, segment.blocks), per_block), divide(thread, threads))
    team = builder.declare("team", place)
    if part.teams % per_block:  # surplus threads repeat the last rows, so that all reach the barriers
        live = code("{} < {}", team, part.teams)
        team = builder.clamped("stretch", live, team, part.teams - 1)
    sums = _sums(builder, plan, segment, targets)
    rest = [n for n in segment.roots if plan.region.roots[n] not in part.sums]
    writes = writes_of(plan, segment, part.rows, targets, rest)
    own = part.stretch // part.abreast
    early = along_rows(plan.region, part)
    shared = _arrays(builder, [p for p, _ in part.shared], part, "all")
    _load(builder, segment, shared, lane, constant(0))
    following = _arrays(builder, early, part, "next") if part.ahead else {}
    _load(builder, segment, following, lane, multiply(team, own))
    builder.advise("unroll 1")
    with builder.loop(own) as number:
        row = builder.declare("row", add(multiply(team, own), number))
        held = _arrays(builder, following, part, "held")
        _move(builder, part, following, held)
        if isinstance(number, Variable):
            if following:  # behind the last row, that row again
                after = code("{0} + ({1} < {2} ? 1 : 0)", row, number, own - 1)
                _load(builder, segment, following, lane, builder.bounded("row_after", after, 0, part.rows - 1))
            distance = 1 + part.ahead
            if own > distance:
                with builder.branch(code("{} < {}", number, own - distance)):
                    _ask_for(builder, segment, early, lane, add(row, constant(distance)))
        frame = RowFrame(segment, lane, lane, None, row, live, per_block, _Beside(part, sums, {**shared, **held}))
        fold_rows(builder, frame, writes, [lane.name, row.name])
        if threads > WARP and len(part.levels) == 1:  # the next row reuses the shared memory of this one
            builder.add(Barrier())
    stretch = team
    if part.in_halves:
        _join(builder, segment, lane, divide(thread, threads), per_block, sums)
        stretch = builder.declare("stretch", divide(team, 2))
        live = both(live, code("{} == 0", builder.text(modulo(divide(thread, threads), 2))))
    _write(builder, segment, lane, stretch, live, sums)


def _index_of(part: RowsAndColumns, parameter: Instruction, row: Expression, column: Expression) -> Index:
    """The index of a parameter that lies as rows do, or of one that all rows share."""
    index = dict(part.shared).get(parameter)
    if index is None:
        return operand_index(part.hero, row, column)
    return tuple(substitute(e, {REDUCED: column}) for e in index)


def _arrays(
    builder: Builder, parameters: Iterable[Instruction], part: RowsAndColumns, stem: str
) -> dict[Instruction, Name]:
    """Declare registers for a thread's columns of a row of each parameter."""
    names = {p: builder.fresh(f"{stem}_{builder.stem_of(p)}") for p in parameters}
    for parameter, name in names.items():
        halves = _in_pairs(part, parameter)
        kind = PAIR if halves else memory_type(parameter.shape.type)
        builder.array(kind, name, part.columns_per_thread // (1 + halves))
    return names


def _in_pairs(part: RowsAndColumns, parameter: Instruction) -> bool:
    """Whether a register holds two elements of a parameter, as memory does: from a register for each, they would be
    moved to their place in an f32 again in each pass."""
    return parameter.shape.type.name == "bf16" and part.vector % 2 == 0


def _load(
    builder: Builder,
    segment: Segment[RowsAndColumns],
    arrays: Mapping[Instruction, Name],
    lane: Variable,
    row: Expression,
) -> None:
    """Load the thread's columns of a row into registers."""
    if arrays:
        vector = segment.vector

        def visit(to: Builder, column: Expression, item: Expression) -> list[Store]:
            for parameter, name in arrays.items():
                slot, bits = (
                    code("{} * {} + {}", place, vector, to.text(item)) if vector > 1 else place,
                    to.where(parameter, _index_of(segment.part, parameter, row, column)),
                )
                if _in_pairs(segment.part, parameter):
                    to.assign(pair_of(name, slot), call("hlo_join_bf16", pair_of(name, slot), slot, bits))
                else:
                    to.assign(cell(name, slot), bits)
            return []

        with steps_of(builder, segment, lane, True) as (step, place):
            if vector == 1:
                visit(builder, step, constant(0))
            else:  # as the passes do, which all have to share columns among threads in the same way
                each_element(builder, vector, lambda to, item: _column(to, step, vector, item), visit)


def _column(builder: Builder, step: Variable, vector: int, item: Expression) -> Expression:
    """Declare the column of an element of a step."""
    return builder.declare_index("column", add(multiply(step, vector), item))


def _move(
    builder: Builder, part: RowsAndColumns, sources: Mapping[Instruction, Name], targets: Mapping[Instruction, Name]
) -> None:
    """Copy arrays of registers."""
    for halves in (False, True):
        names = [(name, targets[p]) for p, name in sources.items() if _in_pairs(part, p) == halves]
        if names:
            builder.advise("unroll")
            with builder.loop(part.columns_per_thread // (1 + halves)) as slot:
                for name, target in names:
                    builder.assign(cell(target, builder.text(slot)), cell(name, builder.text(slot)))


def _ask_for(
    builder: Builder,
    segment: Segment[RowsAndColumns],
    parameters: Sequence[Instruction],
    lane: Variable,
    row: Expression,
) -> None:
    """Prefetch a row into L2, so that memory is busy while a row before it is computed.

    A thread asks for a line: it has registers for its columns, so that a row has no more lines than threads.
    """
    columns = segment.part.columns
    for size, alike in itertools.groupby(sorted(parameters, key=_bytes), key=_bytes):
        line = LINE // size
        with builder.branch(code("{} < {}", lane, -(-columns // line))):
            place = builder.declare("ahead", add(multiply(row, columns), multiply(lane, line)))
            for parameter in alike:
                builder.do(call("hlo_prefetch", builder.pointer(parameter), place))


def _bytes(parameter: Instruction) -> int:
    """Bytes of an element."""
    return parameter.shape.type.bytes


def _join(
    builder: Builder,
    segment: Segment[RowsAndColumns],
    lane: Variable,
    own: Expression,
    per_block: int,
    sums: Sequence[_Sum],
) -> None:
    """Add the sums of the other team of a stretch. `own` is the team's number in its block."""
    vector, columns = segment.vector, segment.part.columns
    other = add(own, add(multiply(modulo(own, 2), -2), constant(1)))
    tables: dict[str, Name] = {}

    def each_column(team: Expression, visit: Callable[[Code, Code], None]) -> None:
        with steps_of(builder, segment, lane, True) as (step, place):
            builder.advise("unroll")
            with builder.loop(vector) as item:
                slot = code("{} * {} + {}", place, vector, builder.text(item))
                visit(slot, builder.text(add(multiply(team, columns), add(multiply(step, vector), item))))

    for total in sums:
        kind = register_type(total.fold.types[0])
        if kind in tables:
            builder.add(Barrier())
        else:
            tables[kind] = builder.array(kind, builder.numbered("halves"), columns * per_block, shared=True)
        table = tables[kind]
        each_column(own, partial(_show, builder, table, total))
        builder.add(Barrier())
        each_column(other, partial(_take, builder, table, total))


def _show(builder: Builder, table: Name, total: _Sum, slot: Code, place: Code) -> None:
    """Publish a sum in shared memory."""
    builder.assign(cell(table, place), cell(total.array, slot))


def _take(builder: Builder, table: Name, total: _Sum, slot: Code, place: Code) -> None:
    """Fold in another thread's sum."""
    total.at(slot).take(builder, [cell(table, place)], False)


def _sums(builder: Builder, plan: Plan, segment: Segment[RowsAndColumns], targets: Targets) -> list[_Sum]:
    """Declare the accumulators."""
    levels, sums, count = levels_of(plan, segment), [], segment.part.slots
    for number in segment.roots:
        reduce = plan.region.roots[number]
        if reduce not in segment.part.sums:
            continue
        types = running_types(reduce)
        name = builder.fresh(f"{builder.stem_of(reduce)}_sums")
        builder.array(register_type(types[0]), name, count)
        start = builder.value(reduce.operands[1], ())
        builder.advise("unroll")
        with builder.loop(count) as slot:
            builder.assign(cell(name, builder.text(slot)), start)
        sums.append(_Sum(Fold(reduce, types, (), True), name, levels[reduce.operands[0]], targets[number][0]))
    return sums


def _write(
    builder: Builder,
    segment: Segment[RowsAndColumns],
    lane: Variable,
    team: Expression,
    live: Code,
    sums: Sequence[_Sum],
) -> None:
    """Write the sums of a stretch."""
    vector, columns = segment.vector, segment.part.columns

    def visit(to: Builder, column: Expression, place: Code, item: Expression) -> list[Store]:
        slot = code("{} * {} + {}", place, vector, to.text(item)) if isinstance(item, Variable) else place
        stores = []
        for each in sums:
            pointer, shape = each.target
            to.name_after(each.fold.reduce)
            value = to.bind(shape.type, cell(each.array, slot))
            stores.append(Store(pointer, shape, physical_index(shape, add(multiply(team, columns), column)), value))
        return stores

    with steps_of(builder, segment, lane, True) as (step, place):
        if vector == 1:
            store_all(builder, visit(builder, step, place, constant(0)), live)
        else:
            each_element(
                builder,
                vector,
                lambda to, item: _column(to, step, vector, item),
                lambda to, column, item: visit(to, column, place, item),
                live,
            )
