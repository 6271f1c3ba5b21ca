"""The emitter of sliding windows: fill a stretch of lines, fold its runs, write the results.

Elements outside a line are the reducer's identity. The init value is combined once, where a thread begins with what
all windows of a run share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.folds import Fold, Write
from hlo_opt.codegen.indices import block_of, only_first, thread_of
from hlo_opt.codegen.scalars import literal, loaded, memory_type, register_type, stored
from hlo_opt.codegen.tree import Barrier
from hlo_opt.codegen.vectors import Targets, store_all
from hlo_opt.ir import Instruction
from hlo_opt.ir.index_map import Expression, Variable, add, constant, delinearize, multiply
from hlo_opt.ops.code import Code, Name, both, cell, code
from hlo_opt.ops.reduction.reducers import own_identity, running_types
from hlo_opt.plans.plan import Plan, Segment
from hlo_opt.plans.sliding_window import BLOCK, Slide, Sliding, WindowRuns, slide_of


def emit(builder: Builder, plan: Plan, segment: Segment[Sliding], first_block: int, targets: Targets) -> None:
    """Emit the phases, with a barrier between two."""
    stretch = segment.part.stretch
    only_first(builder, BLOCK, plan.launch.block)
    block = builder.declare("block", block_of(first_block, segment.blocks))
    corner = [builder.declare_index("tile", digit) for digit in delinearize(block, stretch.blocks)]
    folding = [_Folding.of(builder, stretch, fold) for fold in segment.part.windows]
    for each in folding:
        each.fill(builder, corner)
    builder.add(Barrier())
    if any(each.runs is not None for each in folding):
        for each in folding:
            each.fold_whole_runs(builder)
        builder.add(Barrier())
    for each in folding:
        each.fold_windows(builder)
    builder.add(Barrier())
    writes = [Write(plan.region.roots[n], tuple(targets[n]), True, 0) for n in segment.roots]
    with _cells(builder, stretch, corner, stretch.span, 0, stretch.lines.length) as place, builder.branch(place.inside):
        for each in folding:
            each.provide(builder, place)
        for write in writes:
            store_all(builder, write.stores(builder, stretch.lines.index_of(write.root, place.line, place.along)))


_Cell = Callable[[int, int, Expression], Expression]


@dataclass(frozen=True)
class _Place:
    """A cell of a stretch: its number, its line and its place along it, and the condition that both exist. Line and
    place are in range where it holds."""

    cell: Variable
    line: Expression
    along: Expression
    inside: Code


@contextmanager
def _cells(
    builder: Builder, stretch: WindowRuns, corner: Sequence[Expression], size: int, first: int, length: int
) -> Iterator[_Place]:
    """A loop of a block over cells: `size` of each line, the first of the first block at `first` of lines of this
    length."""
    lines = stretch.lines
    total = stretch.count * size
    at = Variable(0, total - 1, builder.names.fresh("cell"))
    with builder.walk("int", at, thread_of(BLOCK), total, BLOCK):
        major, step, beside = delinearize(at, (stretch.majors, size, stretch.across))
        conditions: list[Code] = []

        def within(stem: str, expression: Expression, end: int) -> Expression:
            number = builder.declare_index(stem, expression)
            if not isinstance(number, Variable) or (number.low >= 0 and number.high < end):
                return number
            conditions.extend([code("{} >= 0", number)] * (number.low < 0))
            conditions.extend([code("{} < {}", number, end)] * (number.high >= end))
            return Variable(max(0, number.low), min(number.high, end - 1), number.name)

        of_set = within("set", add(multiply(corner[0], stretch.majors), major), lines.count // lines.minor)
        own = within("beside", add(multiply(corner[2], stretch.across), beside), lines.minor)
        along = within("along", add(add(multiply(corner[1], stretch.span), step), constant(first)), length)
        yield _Place(at, add(multiply(of_set, lines.minor), own), along, both(*conditions))


@dataclass(frozen=True)
class _Folding:
    """A window with its tables in shared memory: elements, results, and folds of whole runs, if there are any."""

    stretch: WindowRuns
    slide: Slide
    fold: Fold
    init: Code
    nothing: Code
    elements: Name
    results: Name
    runs: Name | None

    @classmethod
    def of(cls, builder: Builder, stretch: WindowRuns, window: Instruction) -> _Folding:
        """Declare the tables."""
        (wide,) = running_types(window)
        operand, init = window.operands
        slide = slide_of(window)

        def table(stem: str, kind: str, size: int) -> Name:
            return builder.array(kind, builder.numbered(stem), stretch.count * size, shared=True)

        elements = table("elements", memory_type(operand.shape.type), stretch.reach(slide))
        results = table("results", register_type(wide), stretch.span)
        whole = stretch.whole_runs(slide)
        runs = table("runs", register_type(wide), whole) if whole else None
        nothing = literal(wide, own_identity(window))
        fold = Fold(window, (wide,), (), True)
        return cls(stretch, slide, fold, builder.value(init, ()), nothing, elements, results, runs)

    def fill(self, builder: Builder, corner: Sequence[Expression]) -> None:
        """Keep the elements of the block's lines, and the identity where there are none."""
        operand, slide = self.fold.operands[0], self.slide
        reach = self.stretch.reach(slide)
        with _cells(builder, self.stretch, corner, reach, -slide.low, slide.length) as place:
            at = cell(self.elements, place.cell)
            with builder.branch(place.inside):
                value = builder.value(operand, self.stretch.lines.index(place.line, place.along))
                builder.assign(at, stored(operand.shape.type, value))
            if place.inside:
                with builder.otherwise():
                    builder.assign(at, stored(operand.shape.type, self.nothing))

    def fold_whole_runs(self, builder: Builder) -> None:
        """Fold the elements of each run by themselves."""
        if self.runs is None:
            return
        count = self.stretch.whole_runs(self.slide)
        with self._each(builder, count) as place:
            total = self._start(builder, self.nothing)
            self._take_all(builder, total, place, 0, self.stretch.run)
            builder.assign(cell(self.runs, builder.text(place(count, 1, constant(0)))), total)

    def fold_windows(self, builder: Builder) -> None:
        """Fold the windows of each run: what all of them share, then back to their starts, then on to their ends."""
        stretch, run, size = self.stretch, self.stretch.run, self.slide.size

        with self._each(builder, stretch.groups) as place:

            def result(number: Expression) -> Code:
                return cell(self.results, builder.text(place(stretch.span, run, number)))

            total = self._start(builder, self.init)
            if self.runs is None:
                self._take_all(builder, total, place, run - 1, size)
            else:
                self._take_all(builder, total, place, run - 1, run)
                whole = stretch.per_window(self.slide)
                with builder.loop(whole - 1) as number:
                    at = builder.text(place(stretch.whole_runs(self.slide), 1, add(number, constant(1))))
                    self._combine(builder, total, total, cell(self.runs, at))
                self._take_all(builder, total, place, whole * run, size)
            builder.assign(result(constant(run - 1)), total)
            with builder.loop(run - 1) as number:
                back = add(constant(run - 2), multiply(number, -1))
                self._combine(builder, total, self._element(builder, place, back), total)
                builder.assign(result(back), total)
            ends = self._start(builder, self.nothing)
            with builder.loop(run - 1) as number:
                self._take(builder, ends, place, add(number, constant(size)))
                own = result(add(number, constant(1)))
                self._combine(builder, own, own, ends)

    @contextmanager
    def _each(self, builder: Builder, count: int) -> Iterator[_Cell]:
        """A loop of a block over `count` numbers of each line: a function for cells of tables with `size` elements of a
        line, of which each number has `run`: that of one of them."""
        stretch = self.stretch
        total = count * stretch.count
        item = Variable(0, total - 1, builder.names.fresh("item"))
        with builder.walk("int", item, thread_of(BLOCK), total, BLOCK):
            major, group, beside = (
                builder.declare_index("digit", d) for d in delinearize(item, (stretch.majors, count, stretch.across))
            )

            def place(size: int, run: int, number: Expression) -> Expression:
                along = add(add(multiply(major, size), multiply(group, run)), number)
                return add(multiply(along, stretch.across), beside)

            yield place

    def _start(self, builder: Builder, value: Code) -> Code:
        builder.name_after(self.fold.reduce)
        return builder.variable(self.fold.types[0], value)

    def _element(self, builder: Builder, place: _Cell, number: Expression) -> Code:
        kind = self.fold.operands[0].shape.type
        at = builder.text(place(self.stretch.reach(self.slide), self.stretch.run, number))
        return builder.bind_exact(kind, loaded(kind, cell(self.elements, at)))

    def _take(self, builder: Builder, total: Code, place: _Cell, number: Expression) -> None:
        """Fold an element in behind."""
        self._combine(builder, total, total, self._element(builder, place, number))

    def _take_all(self, builder: Builder, total: Code, place: _Cell, first: int, end: int) -> None:
        """Fold in the elements from `first` up to, but not including, `end`."""
        if first < end:
            with builder.loop(end - first) as number:
                self._take(builder, total, place, add(number, constant(first)))

    def _combine(self, builder: Builder, target: Code, earlier: Code, later: Code) -> None:
        (combined,) = self.fold.combined(builder, [earlier], [later])
        builder.assign(target, combined)

    def provide(self, builder: Builder, place: _Place) -> None:
        """Provide a result."""
        window = self.fold.reduce
        builder.name_after(window)
        value = builder.bind(window.shape.type, cell(self.results, place.cell))
        builder.provide(window, None, self.stretch.lines.index(place.line, place.along), value)
