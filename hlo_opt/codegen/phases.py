"""Shared by the emitters of loops by phases: threads that divide the elements of arrays among them, alone or in
teams."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.folds import Fold, open_folds
from hlo_opt.codegen.index_text import index_type
from hlo_opt.codegen.indices import thread_of
from hlo_opt.codegen.lane_reads import counted
from hlo_opt.codegen.scalars import register_type, shuffled, zero
from hlo_opt.codegen.scatter import update_one
from hlo_opt.codegen.tree import Barrier
from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir.element_type import ElementType
from hlo_opt.ir.index_map import Condition, Constant, Expression, Variable, add, constant, divide, modulo, multiply
from hlo_opt.ops.code import NOTHING, Code, Name, both, cell, code, of
from hlo_opt.ops.contraction.table import sum_type, summed
from hlo_opt.ops.indexing.table import clamped_starts
from hlo_opt.ops.lowering import Index
from hlo_opt.ops.reduction.reducers import running_types
from hlo_opt.plans.columns import WARP
from hlo_opt.plans.lane_loop import Results
from hlo_opt.plans.phases import TERMS_AHEAD, Phases, StoredValue, place_in
from hlo_opt.plans.scatter import ScatterForm
from hlo_opt.plans.walks import AHEAD

Before = Callable[[], None]
"""Provides values that an element needs."""


@dataclass(frozen=True)
class Crew:
    """Threads that divide elements among them: their number, the thread's number, the same as an expression, and the
    threads per block. `late`: what they go over is in memory that a compiler cannot tell apart from what they write."""

    threads: int
    own: Variable
    place: Expression
    block: int
    late: bool = False

    @contextmanager
    def element(self, builder: Builder, shape: Shape) -> Iterator[Index]:
        """Iterates over a thread's elements of an array."""
        size = shape.element_count
        place = Variable(0, size - 1, builder.names.fresh("place"))
        kind = index_type(Variable(0, size + self.threads, ""))
        # counted, so that a compiler knows how many rounds there are
        counter = Name(builder.names.fresh("turn")) if size > self.threads else None
        with builder.walk(kind, place, self.own, size, self.threads, counter, AHEAD, self.late):
            # the place of the only element is a constant in what reads it, too
            yield place_in(shape, place if size > 1 else constant(0))

    def each(
        self, builder: Builder, shape: Shape, pointer: Name, value: Instruction, before: Before | None = None
    ) -> None:
        """Write all elements of an array of this shape."""
        self.all(builder, shape, [(pointer, value, value)], before)

    def all(
        self,
        builder: Builder,
        shape: Shape,
        written: Sequence[tuple[Name | None, Instruction, Instruction]],
        before: Before | None = None,
    ) -> None:
        """Write all elements of arrays that lie as one of this shape does: what several of them need is loaded once.
        For each its pointer, if it has memory, its value, and what stands for that in those after it."""
        with self.element(builder, shape) as index:
            if before is not None:
                before()
            elements = []
            for _, value, stands in written:
                elements.append(builder.value(value, index))
                builder.provide(stands, None, index, elements[-1])
            for (pointer, value, _), element in zip(written, elements, strict=True):
                if pointer is not None:
                    builder.store(pointer, value.shape, index, element)

    def phase(
        self,
        builder: Builder,
        part: Phases,
        phase: Sequence[StoredValue],
        places: Mapping[StoredValue, Name],
        before: Before,
    ) -> None:
        """Write the cells of a phase. `places` are where the warps of teams meet."""
        for cells in part.beside(phase):
            first = cells[0]
            if len(cells) == 1:
                self.compute(builder, first, builder.pointer(first.stands), places.get(first), before)
            else:
                written = [
                    (None if cell.passes else builder.pointer(cell.stands), cell.value, cell.stands) for cell in cells
                ]
                self.all(builder, first.value.shape, written, before)

    def compute(
        self, builder: Builder, computed: StoredValue, pointer: Name, parts: Name | None, before: Before
    ) -> None:
        """Write all elements of a cell, or change those that a scatter names. `parts` is where the warps of a team
        meet."""
        if computed.scatters:
            self.update(builder, computed, pointer, before)
            return
        if computed.team.ways == 1:
            self.each(builder, computed.stands.shape, pointer, computed.value, before)
            return
        size, team = computed.value.shape.element_count, computed.team
        at_a_time = self.threads // team.ways
        way = builder.declare("way", team.way(self.place))
        with builder.loop(-(-size // at_a_time)) as number:
            place = builder.declare("element", add(multiply(number, at_a_time), team.element(self.place)))
            inside = NOTHING
            if place.high >= size:
                inside = Code(code("{} < {}", place, size).pieces, says=(Condition(place, 0, size - 1),))
            index = place_in(computed.value.shape, Variable(0, size - 1, place.name))
            sums = _sums(builder, computed.value)
            with builder.branch(inside):
                before()
                _fold(builder, computed, index, way, sums)
            _among_lanes(builder, computed, sums)
            if parts is not None:
                _leave(builder, self, computed, sums, parts)
            first = Condition(way, 0, 0)
            with builder.branch(Code(both(code("{} == 0", way), inside).pieces, says=(first, *inside.says))):
                before()
                if parts is not None:
                    _among_warps(builder, self, computed, sums, parts)
                builder.store(pointer, computed.value.shape, index, sums.result(builder))
            if parts is not None and not isinstance(number, Constant):
                builder.add(Barrier())  # the parts of the next elements use the same memory

    def update(self, builder: Builder, computed: StoredValue, pointer: Name, before: Before) -> None:
        """Make the updates of a scatter: each thread some of them, or the first thread all of them in their order."""
        form, shape = ScatterForm(computed.value), computed.value.shape
        if form.is_empty:
            return
        size = math.prod(form.space)
        place = Variable(0, size - 1, builder.names.fresh("place"))
        kind = index_type(Variable(0, size + self.threads, ""))
        with ExitStack() as stack:
            if computed.in_order:
                is_first = Code(code("{} == 0", self.place).pieces, says=(Condition(self.place, 0, 0),))
                stack.enter_context(builder.branch(is_first))
            first, apart = (constant(0), 1) if computed.in_order else (self.own, self.threads)
            stack.enter_context(builder.walk(kind, place, first, size, apart))
            before()
            update_one(builder, form, [(0, pointer, shape)], place if size > 1 else constant(0))

    def write(self, builder: Builder, part: Phases, result: Results, pointer: Name, round_: Expression | None) -> None:
        """Write an iteration's results to an array."""
        with self.element(builder, result.window) as index:
            count(builder, part, round_)
            start = clamped_starts(builder, result.update, 2, result.window.dimensions)
            there = tuple(add(s, e) for s, e in zip(start, index, strict=True))
            builder.store(pointer, result.update.shape, there, builder.value(result.update.operands[1], index))

    def finish(self, builder: Builder, part: Phases, pointers: Mapping[int, Name]) -> None:
        """Write the final state and counters."""
        for value in part.state:
            if value.number in pointers:
                self.each(builder, value.parameter.shape, pointers[value.number], value.parameter)
        for value in part.values:
            if value.counts is not None and value.number in pointers:
                with self.element(builder, value.parameter.shape) as index:
                    last = counted(value, constant(part.trips or 0), builder)
                    builder.store(pointers[value.number], value.parameter.shape, index, last)


def count(builder: Builder, part: Phases, round_: Expression | None) -> None:
    """Provide the counters of an iteration."""
    for value in part.values:
        if value.counts is not None and round_ is not None:
            builder.name_after(value.parameter)
            builder.provide(value.parameter, None, (), counted(value, round_, builder))


def meeting_places(builder: Builder, part: Phases, block: int) -> dict[StoredValue, Name]:
    """Declare shared memory where the warps of teams combine their parts."""
    parts = {}
    for computed in part.cells:
        if computed.team.meets:
            kind = register_type(_sum_type(computed.value))
            parts[computed] = builder.array(kind, builder.numbered("parts"), computed.team.places(block), shared=True)
    return parts


# ---- an element folded by several threads


@dataclass(frozen=True)
class _Sums:
    """A thread's partial fold of an element: the sum of a product, or the accumulator of a reducer."""

    value: Instruction
    type: ElementType
    total: Code
    fold: Fold | None

    def take(self, builder: Builder, values: Sequence[Code], is_first: bool | Code) -> None:
        """Fold in one term: the two factors of a product, or a value for the reducer."""
        if self.fold is not None:
            self.fold.take(builder, values, is_first)
        else:
            builder.assign(self.total, summed(self.value.shape.type, self.total, *values))

    def combine(self, builder: Builder, other: Code) -> None:
        """Fold in another thread's partial result."""
        if self.fold is not None:
            self.fold.combine(builder, [other])
        else:
            builder.assign(self.total, summed(self.value.shape.type, self.total, other, code("1")))

    def result(self, builder: Builder) -> Code:
        """The element, once everything is folded."""
        total = self.total
        if self.fold is not None and not self.fold.starts_with_init:
            init = builder.value(self.value.operands[1], ())
            (total,) = self.fold.combined(builder, [init], [total])
        builder.name_after(self.value)
        return builder.bind(self.value.shape.type, total)


def _sum_type(value: Instruction) -> ElementType:
    return running_types(value)[0] if list(value.called()) else sum_type(value.shape.type)


def _sums(builder: Builder, value: Instruction) -> _Sums:
    kind = _sum_type(value)
    builder.name_after(value)
    if list(value.called()):
        (fold,) = open_folds(builder, [value])
        return _Sums(value, kind, fold.accumulators[0], fold)
    return _Sums(value, kind, builder.variable(kind, zero(kind)), None)


def _fold(builder: Builder, computed: StoredValue, index: Index, way: Variable, sums: _Sums) -> None:
    """Fold a thread's terms of an element: every `ways`-th of each piece, and its remainder if the thread has one."""
    ways = computed.team.ways

    def take(number: Expression, first: int, last: int, is_first: bool | Code) -> None:
        term = builder.declare("term", add(add(multiply(number, ways), way), constant(first)))
        with builder.branch(code("{} < {}", term, last) if term.high >= last else NOTHING):
            at = computed.terms_read(index, Variable(first, min(term.high, last - 1), term.name))
            values = [builder.value(computed.value.operands[n], place) for n, place in at]
            builder.name_after(computed.value)
            sums.take(builder, values, is_first)

    for first, size in computed.pieces:
        whole = size // ways
        if whole:
            builder.advise(f"unroll {TERMS_AHEAD}")
            with builder.loop(whole) as step:
                take(step, first, first + size, True if isinstance(step, Constant) else code("{} == 0", step))
        if size % ways:
            with builder.block():
                take(constant(whole), first, first + size, not whole)


def _among_lanes(builder: Builder, computed: StoredValue, sums: _Sums) -> None:
    """Combine the lanes of a warp; the first lane of each element gets the result."""
    team = computed.team
    if team.lanes < 2:
        return
    distance = builder.fresh("distance")
    first, last = code(str(team.lanes // 2 * team.apart)), code(f"{{}} >= {team.apart}", distance)
    builder.advise("unroll")
    tree = team.lanes * team.apart, team.lanes // 2 * team.apart, team.apart
    with builder.loop_while("int", distance, first, last, code("{} /= 2", distance), tree=tree):
        builder.name_after(computed.value)
        other = builder.bind_exact(sums.type, shuffled(sums.type, "down", sums.total, of(distance)))
        sums.combine(builder, other)


def _leave(builder: Builder, crew: Crew, computed: StoredValue, sums: _Sums, parts: Name) -> None:
    """Store a warp's partial result for the other warps of its team."""
    thread, apart = thread_of(crew.block), computed.team.apart
    lane = builder.declare("warp_lane", modulo(thread, WARP))
    with builder.branch(code("{} < {}", lane, apart)):
        place = add(multiply(divide(thread, WARP), apart), modulo(thread, apart))
        builder.assign(cell(parts, builder.text(place)), sums.total)
    builder.add(Barrier())


def _among_warps(builder: Builder, crew: Crew, computed: StoredValue, sums: _Sums, parts: Name) -> None:
    """Combine the warps of a team in its first warp."""
    thread, apart = thread_of(crew.block), computed.team.apart
    with builder.loop(computed.team.size // WARP - 1) as number:
        warp = add(divide(thread, WARP), add(number, constant(1)))
        place = add(multiply(warp, apart), modulo(thread, apart))
        builder.name_after(computed.value)
        other = builder.bind_exact(sums.type, cell(parts, builder.text(place)))
        sums.combine(builder, other)
