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
from hlo_opt.codegen.scalars import register_type
from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir.index_map import Expression, Variable, add, constant, divide, modulo, multiply
from hlo_opt.plans.folding import Space, operand_index, root_index
from hlo_opt.plans.plan import Plan, Segment


@dataclass(frozen=True)
class _Place:
    """Where a thread stands: its lane and way (`way` is empty where a column has one thread), its columns, and the condition that these are its own."""

    segment: Segment
    space: Space
    lane: str
    way: str
    kept: tuple[Expression, ...]
    live: str

    @property
    def reduces(self) -> list[Instruction]:
        return [reduce for level in self.segment.levels for reduce in level]

    @property
    def lanes(self) -> int:
        return self.segment.rows_per_block

    @property
    def ways(self) -> int:
        return self.segment.threads_per_row


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
    if segment.blocks > 1:
        block = Variable(0, segment.blocks - 1, builder.names.fresh("tile"))
        builder.line(f"const int {block.name} = blockIdx.x{f' - {first_block}' if first_block else ''};")
    start, live = add(multiply(modulo(block, tiles), lanes), across), ""
    most = minor // vector - 1
    if start.high > most:  # threads without columns of their own repeat the last ones, so that all meet at barriers
        own = builder.declare_index("own_columns", start)
        assert isinstance(own, Variable)
        name = own.name
        live = f"{name} <= {most}"
        clamped = Variable(0, most, builder.names.fresh("columns"))
        builder.line(f"const int {clamped.name} = {live} ? {name} : {most};")
        start = clamped
    major_part = multiply(named(builder, divide(block, tiles)), minor)
    first = add(major_part, multiply(start, vector))
    kept = tuple(add(first, constant(number)) for number in range(vector))
    return _Place(segment, Space(major * minor, reduced, minor), lane, way, kept, live)


def _pass(builder: Builder, place: _Place, columns: Sequence[Sequence[Fold]], stores: Sequence[Write]) -> None:
    size = place.space.reduced
    reduced = Variable(0, size - 1, builder.names.fresh("step"))
    kind = "int" if size + place.ways <= 2**31 - 1 else "long long"
    name = reduced.name
    with builder.block(f"for ({kind} {name} = {place.way or 0}; {name} < {size}; {name} += {place.ways})"):
        values = []  # all are read before the first is folded, so that neighbours are read together
        for kept, folds in zip(place.kept, columns, strict=True):
            for fold in folds:
                at = operand_index(fold.reduce, kept, reduced)
                values.append((fold, [builder.value(o, at) for o in fold.operands]))
        for fold, read in values:
            fold.take(builder, read, f"{name} < {place.ways}")
        for kept in place.kept:
            for write in stores:
                index = root_index(place.space, place.reduces, write.root, kept, reduced)
                with builder.branch(place.live) if place.live else nullcontext():
                    write.emit(builder, index)


def _close(builder: Builder, place: _Place, columns: Sequence[Sequence[Fold]], *, to_all: bool) -> None:
    """Bring the threads' results together. The first thread of a column then knows them, or all of its threads."""
    tables: dict[str, str] = {}
    folds = [fold for column in columns for fold in column]
    if place.ways > 1:
        for fold in folds:
            for element_type, name in zip(fold.types, fold.accumulators, strict=True):
                tables[name] = builder.names.numbered("partial")
                builder.line(f"__shared__ {register_type(element_type)} {tables[name]}[{place.ways * place.lanes}];")
                builder.assign(f"{tables[name]}[threadIdx.x]", name)
        distance = builder.names.fresh("distance")
        with builder.block(f"for (int {distance} = {place.ways // 2}; {distance} > 0; {distance} /= 2)"):
            builder.line("__syncthreads();")
            with builder.branch(f"{place.way} < {distance}"):
                for fold in folds:
                    builder.name_after(fold.reduce)
                    others = [
                        builder.bind_exact(t, f"{tables[name]}[threadIdx.x + {distance} * {place.lanes}]")
                        for t, name in zip(fold.types, fold.accumulators, strict=True)
                    ]
                    fold.combine(builder, others)
                    for name in fold.accumulators:
                        builder.assign(f"{tables[name]}[threadIdx.x]", name)
        if to_all:
            builder.line("__syncthreads();")
    for kept, column in zip(place.kept, columns, strict=True):
        for fold in column:
            results = [f"{tables[n]}[{place.lane}]" if to_all and tables else n for n in fold.accumulators]
            fold.finish(builder, results, kept)
