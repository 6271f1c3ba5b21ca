"""The emitter of column-reduction plans.

A block takes some neighbouring columns; `lanes` threads side by side read them, so that neighbouring threads read neighbouring elements, and `ways` threads below each other
take the elements `way, way + ways, ...` of the same columns. These meet in shared memory: half of them take over what the other half has, until one is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from hlo_opt.codegen.builder import Builder, named
from hlo_opt.codegen.folds import Fold, Write, open_folds, writes_of
from hlo_opt.codegen.index_text import index_type, integer_text
from hlo_opt.codegen.parts import last_only, leave, meeting, part_at, reset
from hlo_opt.codegen.scalars import register_type
from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir.index_map import Expression, Variable, add, constant, divide, modulo, multiply
from hlo_opt.plans.folding import Space, operand_index, root_index
from hlo_opt.plans.plan import Plan, Segment


@dataclass(frozen=True)
class _Place:
    """Where a thread stands: its lane and way (`way` is empty where a column has one thread), its columns, and the condition that these are its own. Where blocks share columns:
    which ones (`tile`), and the block's part of them."""

    segment: Segment
    space: Space
    lane: str
    way: str
    kept: tuple[Expression, ...]
    live: str
    tile: Expression
    across: Expression
    part: str

    @property
    def reduces(self) -> list[Instruction]:
        return [reduce for level in self.segment.levels for reduce in level]

    @property
    def lanes(self) -> int:
        return self.segment.rows_per_block

    @property
    def ways(self) -> int:
        return self.segment.threads_per_row

    @property
    def tiles(self) -> int:
        return self.segment.blocks // self.segment.parts


def emit(
    builder: Builder, plan: Plan, segment: Segment, first_block: int, targets: Sequence[Sequence[tuple[str, Shape]]]
) -> None:
    """One pass over the columns per level of reduces, and a last one when outputs of the whole space need the results."""
    place = _place(builder, plan, segment, first_block)
    writes = writes_of(plan, segment, place.space.kept, targets)
    last = max([len(segment.levels), *(w.level + 1 for w in writes if w.per_position)])
    for level in range(last):
        reduces = segment.levels[level] if level < len(segment.levels) else ()
        columns = [open_folds(builder, reduces) for _ in place.kept]
        stores = [w for w in writes if w.per_position and w.level == level]
        if reduces or stores:
            _pass(builder, place, columns, stores)
        if reduces:
            _close(builder, place, columns, to_all=level + 1 < last)
    singles = [w for w in writes if not w.per_position]
    condition = " && ".join(text for text in (f"{place.way} == 0" if place.way else "", place.live) if text)
    if singles:
        with builder.branch(condition) if condition else nullcontext():
            for kept in place.kept:
                for write in singles:
                    write.emit(builder, root_index(place.space, place.reduces, write.root, kept, None))


def _place(builder: Builder, plan: Plan, segment: Segment, first_block: int) -> _Place:
    major, reduced, minor = segment.space
    lanes, ways, vector = segment.rows_per_block, segment.threads_per_row, segment.vector
    if (
        lanes * ways < plan.launch.block
    ):  # threads that another segment needs; barriers do not wait for what has returned
        builder.line(f"if (threadIdx.x >= {lanes * ways}) return;")
    way, lane = "", "0"
    if ways > 1:
        way = builder.names.fresh("way")
        builder.line(f"const int {way} = threadIdx.x / {lanes};")
    across: Expression = constant(0)
    if lanes > 1:
        across = Variable(0, lanes - 1, builder.names.fresh("lane"))
        lane = across.name
        builder.line(f"const int {lane} = threadIdx.x{f' % {lanes}' if ways > 1 else ''};")
    tiles = -(-(minor // vector) // lanes)
    block: Expression = constant(0)
    parts, own_block, part = segment.parts, f"blockIdx.x{f' - {first_block}' if first_block else ''}", ""
    if parts > 1:
        part = builder.names.fresh("part")
        own_block = f"({own_block})" if first_block else own_block
        builder.line(f"const int {part} = {own_block}{f' % {parts}' if segment.blocks > parts else ''};")
        own_block = f"{own_block} / {parts}"
    if segment.blocks > parts:
        block = Variable(0, segment.blocks // parts - 1, builder.names.fresh("tile"))
        builder.line(f"const int {block.name} = {own_block};")
    start, live = add(multiply(modulo(block, tiles), lanes), across), ""
    most = minor // vector - 1
    if start.high > most:  # threads without columns of their own repeat the last ones, so that all meet at barriers
        own = builder.declare_index("own_columns", start)
        assert isinstance(own, Variable)
        name = own.name
        live = f"{name} <= {most}"
        clamped = Variable(0, most, builder.names.fresh("columns"))
        builder.line(f"const {index_type(clamped)} {clamped.name} = {live} ? {name} : {integer_text(most)};")
        start = clamped
    major_part = multiply(named(builder, divide(block, tiles)), minor)
    first = add(major_part, multiply(start, vector))
    kept = tuple(add(first, constant(number)) for number in range(vector))
    return _Place(segment, Space(major * minor, reduced, minor), lane, way, kept, live, block, across, part)


def _pass(builder: Builder, place: _Place, columns: Sequence[Sequence[Fold]], stores: Sequence[Write]) -> None:
    size, stride = place.space.reduced, place.ways * place.segment.parts
    reduced = Variable(0, size - 1, builder.names.fresh("step"))
    kind = "int" if size + stride <= 2**31 - 1 else "long long"
    name, start = reduced.name, place.way or "0"
    if place.part:
        start = builder.names.fresh("start")
        builder.line(f"const int {start} = {place.part} * {place.ways}{f' + {place.way}' if place.way else ''};")
    with builder.block(f"for ({kind} {name} = {start}; {name} < {size}; {name} += {stride})"):
        values = []  # all are read before the first is folded, so that neighbours are read together
        for kept, folds in zip(place.kept, columns, strict=True):
            for fold in folds:
                at = operand_index(fold.reduce, kept, reduced)
                values.append((fold, [builder.value(o, at) for o in fold.operands]))
        for fold, read in values:
            fold.take(builder, read, f"{name} < {stride}")
        for kept in place.kept:
            for write in stores:
                index = root_index(place.space, place.reduces, write.root, kept, reduced)
                with builder.branch(place.live) if place.live else nullcontext():
                    write.emit(builder, index)


def _close(builder: Builder, place: _Place, columns: Sequence[Sequence[Fold]], *, to_all: bool) -> None:
    """Bring the threads' results together. The first thread of a column then knows them, or all of its threads."""
    folds = [fold for column in columns for fold in column]
    tables = _tables(builder, place, folds) if place.ways > 1 else []
    if tables:
        _tree(builder, place, folds, tables, place.ways)
    if place.part:
        columns = _met(builder, place, columns, tables)
    elif tables and to_all:
        builder.line("__syncthreads();")
    of_fold = iter(tables)
    for kept, column in zip(place.kept, columns, strict=True):
        for fold in column:
            shared = [f"{name}[{place.lane}]" for name in next(of_fold)] if tables else []
            fold.finish(builder, shared if to_all and tables else fold.accumulators, kept)


def _tables(builder: Builder, place: _Place, folds: Sequence[Fold]) -> list[list[str]]:
    """Shared memory in which the threads of a column meet, for each accumulator of each fold."""
    found = []
    for fold in folds:
        found.append([builder.names.numbered("partial") for _ in fold.types])
        for element_type, name in zip(fold.types, found[-1], strict=True):
            builder.line(f"__shared__ {register_type(element_type)} {name}[{place.ways * place.lanes}];")
    return found


def _tree(builder: Builder, place: _Place, folds: Sequence[Fold], tables: Sequence[Sequence[str]], count: int) -> None:
    """Bring the results of the first `count` threads of each column together in its first thread."""

    def show(fold: Fold, names: Sequence[str]) -> None:
        for table, name in zip(names, fold.accumulators, strict=True):
            builder.assign(f"{table}[threadIdx.x]", name)

    for fold, names in zip(folds, tables, strict=True):
        show(fold, names)
    distance = builder.names.fresh("distance")
    first = 1 << ((count - 1).bit_length() - 1)
    with builder.block(f"for (int {distance} = {first}; {distance} > 0; {distance} /= 2)"):
        builder.line("__syncthreads();")
        more = f" && {place.way} + {distance} < {count}" if count & (count - 1) else ""
        with builder.branch(f"{place.way} < {distance}{more}"):
            for fold, names in zip(folds, tables, strict=True):
                builder.name_after(fold.reduce)
                others = [
                    builder.bind_exact(t, f"{table}[threadIdx.x + {distance} * {place.lanes}]")
                    for t, table in zip(fold.types, names, strict=True)
                ]
                fold.combine(builder, others)
                show(fold, names)


def _met(
    builder: Builder, place: _Place, columns: Sequence[Sequence[Fold]], tables: Sequence[Sequence[str]]
) -> list[list[Fold]]:
    """Bring the parts of the block's columns together, in the block that is last: folds whose results the first thread of each column has."""
    segment, parts, vector = place.segment, place.segment.parts, place.segment.vector
    meet = meeting(builder, columns[0], place.tiles, place.tiles * place.lanes * vector, parts)
    group, lane = builder.text(place.tile), add(multiply(place.tile, place.lanes), place.across)
    firsts = [multiply(add(multiply(lane, vector), constant(number)), parts) for number in range(vector)]

    def at(first: Expression, name: str) -> str:
        return builder.text(add(first, Variable(0, parts - 1, name)))

    with builder.branch(f"{place.way} == 0") if place.way else nullcontext():
        leave(builder, meet, columns, [at(first, place.part) for first in firsts])
    last_only(builder, meet, group)
    reset(builder, meet, group)
    found = [open_folds(builder, [fold.reduce for fold in column]) for column in columns]
    number = builder.names.numbered("k")
    with builder.block(f"for (int {number} = {place.way or 0}; {number} < {parts}; {number} += {place.ways})"):
        for first, column_folds in zip(firsts, found, strict=True):
            for fold, names in zip(column_folds, meet.tables, strict=True):
                where = at(first, number)
                builder.name_after(fold.reduce)
                values = [
                    builder.bind_exact(t, part_at(t, name, where)) for t, name in zip(fold.types, names, strict=True)
                ]
                fold.take(builder, values, f"{number} < {place.ways}")
    count = min(parts, segment.threads_per_row)
    if count > 1:
        _tree(builder, place, [fold for column_folds in found for fold in column_folds], tables, count)
    return found
