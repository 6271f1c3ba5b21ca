"""The emitter of cumulative windows (scans).

Each thread folds a few consecutive elements of a line and keeps the partial results. Then the results of earlier
threads, and of earlier tiles, are combined in front. Threads of a row exchange results by shuffles, its warps through
shared memory; where lines are strided in memory, a warp has one thread of each line, and all exchange through shared
memory. A CPU only passes on the last thread's result (see `ThreadChain`). The init value is combined at the start of a
line. Elements are folded in order, so a reducer must be associative, but not commutative. A window that reads another
is folded after all threads of a line know what the other is before their elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.folds import Fold, Write
from hlo_opt.codegen.indices import block_of, only_first, thread_of
from hlo_opt.codegen.scalars import register_type, shuffled
from hlo_opt.codegen.tree import Barrier, DeclaredArray, ThreadChain
from hlo_opt.codegen.vectors import Compute, Store, Targets, each_element, store_all
from hlo_opt.ir import Instruction
from hlo_opt.ir.index_map import Condition, Constant, Expression, Variable, add, constant, divide, modulo, multiply
from hlo_opt.ops.code import NOTHING, Code, Name, cell, code, of
from hlo_opt.ops.reduction.reducers import running_types
from hlo_opt.plans.columns import WARP
from hlo_opt.plans.cumulative import Prefixes
from hlo_opt.plans.plan import Plan, Segment


def emit(builder: Builder, plan: Plan, segment: Segment[Prefixes], first_block: int, targets: Targets) -> None:
    """Emit the tiles of the block's lines."""
    writes = [Write(plan.region.roots[n], tuple(targets[n]), True, 0) for n in segment.roots]
    part, block = segment.part, plan.launch.block
    at = _Place.of(builder, part, block, block_of(first_block, segment.blocks), segment.blocks)
    folding = [[_Folding.of(builder, part, block, window) for window in stage] for stage in part.stages]
    if part.tiles == 1:
        _tile(builder, part, at, at.lane, folding, writes)
        return
    tile = builder.fresh("tile")
    with builder.loop_while("int", tile, code("0"), code("{} < {}", tile, part.tiles), code("++{}", tile)):
        number = Variable(0, part.tiles - 1, tile.text)
        step = builder.declare("step", add(multiply(number, part.threads), at.lane))
        _tile(builder, part, at, step, folding, writes)


@dataclass(frozen=True)
class _Place:
    """A thread's position: in the block, in its line, its line in the block and in the array, and whether the line is
    its own."""

    thread: Variable
    lane: Variable
    own: Expression
    line: Expression
    live: Code

    @classmethod
    def of(cls, builder: Builder, part: Prefixes, block: int, number: Expression, blocks: int) -> _Place:
        """The position of a thread in block `number` of `blocks`."""
        count, per_block = part.lines.count, part.lines_per_block(block)
        threads = part.threads * per_block
        only_first(builder, threads, block)
        thread = thread_of(threads)
        digits = divide(thread, part.threads), modulo(thread, part.threads)
        own, among = digits if part.in_rows else (modulo(thread, part.abreast), divide(thread, part.abreast))
        lane = builder.declare("lane", among)
        place = add(multiply(number, per_block), own)
        line, live = place, NOTHING
        if blocks * per_block > count:  # surplus threads repeat the last line, so that all reach the barriers
            all_lines = builder.declare("own_line", place)
            live = code("{} < {}", all_lines, count)
            line = builder.clamped("line", live, all_lines, count - 1)
        elif count > 1:
            line = builder.declare("line", place)
        return cls(thread, lane, own, line, live)


@dataclass(frozen=True)
class _Folding:
    """A window in progress: its init values, the fold of earlier tiles, and shared memory for the threads."""

    window: Instruction
    inits: tuple[Code, ...]
    carries: tuple[Code, ...]
    tables: tuple[Name, ...]

    @classmethod
    def of(cls, builder: Builder, part: Prefixes, block: int, window: Instruction) -> _Folding:
        """Declare the variables."""
        inits = tuple(builder.value(init, ()) for init in window.operands[len(window.operands) // 2 :])
        carries = variables(builder, window, inits)
        size = part.meeting_places(block)
        kinds = [register_type(t) for t in running_types(window)] if size else []
        tables = [builder.array(kind, builder.numbered("partial"), size, shared=True) for kind in kinds]
        return cls(window, inits, carries, tuple(tables))


@dataclass(frozen=True)
class Folded:
    """A window whose results are known: what a thread kept of each of its elements from number `first` on, and the fold
    of all before them."""

    fold: Fold
    kept: Sequence[Name]
    front: Sequence[Code]
    first: Expression

    def provide(
        self, builder: Builder, part: Prefixes, line: Expression, along: Expression, number: Expression
    ) -> None:
        """Provide the results at element `number` of the thread."""
        window, index = self.fold.reduce, part.lines.index(line, along)
        builder.name_after(window)
        values = [cell(array, builder.text(add(self.first, number))) for array in self.kept]
        results = folded(builder, part, self.fold, self.front, values)
        builder.name_after(window)
        for n, (leaf, value) in enumerate(zip(window.shape.leaves(), results, strict=True)):
            builder.provide(window, n if window.shape.is_tuple else None, index, builder.bind(leaf.type, value))


@dataclass(frozen=True)
class Elements:
    """A thread's neighbours in a line. `inside`: the condition that there are any."""

    part: Prefixes
    line: Expression
    inside: Code
    step: Variable | _Vector

    @classmethod
    def of(cls, builder: Builder, part: Prefixes, line: Expression, place: Variable) -> Elements:
        """Those of vector number `place` of the line."""
        steps, inside = part.steps, NOTHING
        if place.high >= steps and not part.is_peeled:
            inside = Code(code("{} < {}", place, steps).pieces, says=(Condition(place, 0, steps - 1),))
        step = Variable(0, steps - 1, place.name)
        return cls(part, line, inside, _Vector.of(builder, part, line, step) if part.is_peeled else step)

    def each(self, builder: Builder, computes: tuple[Compute, Compute], guard: Code = NOTHING) -> None:
        """Emit them, with the second of `computes` where an end of the row is among them."""
        with builder.branch(self.inside):
            _each(builder, self.part, self.step, computes, guard)

    def fold(
        self,
        builder: Builder,
        folds: Sequence[Fold],
        kept: Sequence[Sequence[Name]],
        earlier: Sequence[Folded],
        first: Expression,
    ) -> None:
        """Fold them in order, and keep what is found at each, from number `first` on. `earlier` windows are known."""
        part, line = self.part, self.line

        def fold_in(to: Builder, along: Expression, number: Expression, *, at_end: bool = False) -> list[Store]:
            for window in earlier:
                window.provide(to, part, line, along, number)
            for fold, arrays in zip(folds, kept, strict=True):
                values = [to.value(o, part.lines.index(line, along)) for o in fold.operands]
                to.name_after(fold.reduce)
                is_first = isinstance(number, Constant)
                begins = code("{} == 0", number)
                if at_end:
                    begins = code("{} || {} == 0", begins, to.text(along))
                with to.branch(NOTHING if is_first else begins):
                    assign(to, fold.accumulators, values)
                if not is_first:
                    with to.otherwise():
                        assign(to, fold.accumulators, folded(to, part, fold, fold.accumulators, values))
                for array, value in zip(arrays, fold.accumulators, strict=True):
                    to.assign(cell(array, to.text(add(first, number))), value)
            return []

        self.each(builder, (fold_in, partial(fold_in, at_end=True)))

    def write(self, builder: Builder, done: Sequence[Folded], writes: Sequence[Write], guard: Code = NOTHING) -> None:
        """Write the outputs at them, where `guard` holds."""
        part, line = self.part, self.line

        def write(to: Builder, along: Expression, number: Expression) -> list[Store]:
            for window in done:
                window.provide(to, part, line, along, number)
            return [s for w in writes for s in w.stores(to, part.lines.index_of(w.root, line, along))]

        self.each(builder, (write, write), guard)


def _tile(
    builder: Builder,
    part: Prefixes,
    at: _Place,
    place: Variable,
    folding: Sequence[Sequence[_Folding]],
    writes: Sequence[Write],
) -> None:
    """Emit one tile of a line; `place` is the number of the thread's vector in its line."""
    elements = Elements.of(builder, part, at.line, place)
    step = Variable(0, part.steps - 1, place.name)
    done: list[Folded] = []
    for stage in folding:
        folds = [open_fold(builder, f.window) for f in stage]
        kept = [[array_of(builder, register_type(t), part.vector) for t in fold.types] for fold in folds]
        elements.fold(builder, folds, kept, list(done), constant(0))
        for fold, arrays, f in zip(folds, kept, stage, strict=True):
            front = variables(builder, f.window, None)
            _hand_on(builder, part, at, fold, f, step, front)
            done.append(Folded(fold, arrays, front, constant(0)))
    elements.write(builder, done, writes, at.live)


@dataclass(frozen=True)
class _Vector:
    """Neighbours that begin at a multiple of their number: the place in memory of the first, and those of the row's
    first element and of what follows its last."""

    first: Expression
    begin: Code
    end: Code
    line: Expression

    @classmethod
    def of(cls, builder: Builder, part: Prefixes, line: Expression, step: Variable) -> _Vector:
        """A step of a row that is not aligned."""
        begin = builder.declare_index("begin", multiply(line, part.lines.length))
        first = multiply(add(divide(begin, part.vector), step), part.vector)
        end = builder.text(add(begin, constant(part.lines.length)))
        return cls(builder.declare_index("first", first), builder.text(begin), end, line)


def _each(
    builder: Builder, part: Prefixes, step: Variable | _Vector, computes: tuple[Compute, Compute], guard: Code
) -> None:
    """Emit the elements of a thread's vector, with the second of `computes` where an end of the row is in it."""
    vector, compute = part.vector, computes[0]
    if isinstance(step, _Vector):
        _each_inside(builder, part, step, computes, guard)
        return
    if vector == 1:
        store_all(builder, compute(builder, step, constant(0)), guard)
        return
    each_element(
        builder,
        vector,
        lambda to, number: to.declare_index("along", add(multiply(step, vector), number)),
        compute,
        guard,
    )


def _each_inside(
    builder: Builder, part: Prefixes, step: _Vector, computes: tuple[Compute, Compute], guard: Code
) -> None:
    """Emit the elements of a vector that are in the row: all of them together, or one by one."""
    vector, first = part.vector, builder.text(step.first)

    def place(to: Builder, number: Expression) -> Expression:
        return to.declare_index("place", add(step.first, number))

    def along(to: Builder, number: Expression) -> Variable:
        return to.column_at(place(to, number), step.line, part.lines.length)

    with builder.branch(code("{0} >= {1} && {0} + {2} <= {3}", first, step.begin, vector, step.end)):
        each_element(builder, vector, along, computes[0], guard)
    with builder.otherwise():
        builder.advise("unroll")
        with builder.loop(vector) as number:
            at = place(builder, number)
            with builder.branch(code("{0} >= {1} && {0} < {2}", builder.text(at), step.begin, step.end)):
                column = builder.column_at(at, step.line, part.lines.length)
                store_all(builder, computes[1](builder, column, number), guard)


def _hand_on(
    builder: Builder,
    part: Prefixes,
    at: _Place,
    fold: Fold,
    folding: _Folding,
    step: Variable,
    front: Sequence[Code],
) -> None:
    """Set `front` to the fold of everything before a thread's elements, given its own fold of them."""
    builder.name_after(fold.reduce)
    if part.threads == 1:
        assign(builder, front, folding.carries)
        return
    chain = ThreadChain(abreast=part.abreast)
    builder.add(chain)
    with builder.inside(chain.steps):
        if part.in_rows:
            _among_row(builder, part, at, fold, folding, front)
        else:
            assign(builder, [cell(table, builder.text(at.thread)) for table in folding.tables], fold.accumulators)
            own, count = at.lane, part.threads
            _after_others(
                builder, part, fold, folding, front, own, lambda k: add(multiply(k, part.abreast), at.own), count
            )
    with builder.inside(chain.walking):
        handed = [DeclaredArray(register_type(t), builder.numbered("handed"), part.abreast) for t in fold.types]
        chain.handed += handed
        lane = constant(0) if part.in_rows else at.own
        last = [cell(array.name, builder.text(lane)) for array in handed]
        with builder.branch(code("{} == 0", step)):
            assign(builder, last, folding.inits)
        assign(builder, front, last)
        assign(builder, last, folded(builder, part, fold, front, fold.accumulators))


def _among_row(
    builder: Builder, part: Prefixes, at: _Place, fold: Fold, folding: _Folding, front: Sequence[Code]
) -> None:
    """Combine within a row: by shuffles in a warp, through shared memory across warps."""
    threads = part.threads
    lane = at.lane
    if threads > WARP:
        lane = builder.declare("warp_lane", modulo(Variable(0, threads - 1, at.lane.name), WARP))
    fold_warp(builder, part, fold, lane, min(threads, WARP))
    others = of_lanes(builder, fold, "up", code("1"))
    if threads > WARP:
        with builder.branch(code(f"{{}} == {WARP - 1}", lane)):
            warp = builder.text(divide(at.thread, WARP))
            assign(builder, [cell(table, warp) for table in folding.tables], fold.accumulators)
        of_row = builder.declare("warp", divide(Variable(0, threads - 1, at.lane.name), WARP))
        first = multiply(at.own, threads // WARP)
        _after_others(builder, part, fold, folding, front, of_row, lambda k: add(first, k), threads // WARP)
    else:
        assign(builder, front, folding.carries)
    with builder.branch(code("{} > 0", lane)):
        assign(builder, front, folded(builder, part, fold, front, others))


def fold_warp(builder: Builder, part: Prefixes, fold: Fold, lane: Variable, lanes: int) -> None:
    """Fold the accumulators of each of the first `lanes` lanes of a warp with those of the lanes before it."""
    distance = builder.fresh("distance")
    builder.advise("unroll")
    with builder.loop_while("int", distance, code("1"), code("{} < {}", distance, lanes), code("{} *= 2", distance)):
        others = of_lanes(builder, fold, "up", of(distance))
        with builder.branch(code("{} >= {}", lane, distance)):
            assign(builder, fold.accumulators, folded(builder, part, fold, others, fold.accumulators))


def of_lanes(builder: Builder, fold: Fold, kind: str, lane: Code) -> list[Code]:
    """The accumulators of another lane of the warp (see `Shuffle`)."""
    return [
        builder.bind_exact(t, shuffled(t, kind, name, lane))
        for t, name in zip(fold.types, fold.accumulators, strict=True)
    ]


def _after_others(
    builder: Builder,
    part: Prefixes,
    fold: Fold,
    folding: _Folding,
    front: Sequence[Code],
    own: Variable,
    place: Callable[[Expression], Expression],
    count: int,
) -> None:
    """Set `front` to the carry folded with the shared results before `own` (of `count`), and the carry to the fold of
    all."""
    builder.add(Barrier())
    number = Variable(0, count - 1, builder.names.numbered("k"))
    name = Name(number.name)
    with builder.loop_while("int", name, code("0"), code("{} < {}", name, count), code("++{}", name)):
        with builder.branch(code("{} == {}", name, own)):
            assign(builder, front, folding.carries)
        at = builder.text(place(number))
        values = [builder.bind_exact(t, cell(table, at)) for t, table in zip(fold.types, folding.tables, strict=True)]
        assign(builder, folding.carries, folded(builder, part, fold, folding.carries, values))
    if part.tiles > 1:
        builder.add(Barrier())


def variables(builder: Builder, window: Instruction, values: Sequence[Code] | None) -> tuple[Code, ...]:
    """Variables of a window's accumulator types, initialised with these values or zeros."""
    builder.name_after(window)
    types = running_types(window)
    starts = [code(f"({register_type(t)})0") for t in types] if values is None else values
    return tuple(builder.variable(t, start) for t, start in zip(types, starts, strict=True))


def open_fold(builder: Builder, window: Instruction, values: Sequence[Code] | None = None) -> Fold:
    """A fold with variables of its own, which hold these values, or nothing yet."""
    return Fold(window, running_types(window), variables(builder, window, values), starts_with_init=False)


def array_of(builder: Builder, kind: str, size: int) -> Name:
    """An array of a thread for what it keeps."""
    return builder.array(kind, builder.numbered("kept"), size)


def folded(builder: Builder, part: Prefixes, fold: Fold, earlier: Sequence[Code], later: Sequence[Code]) -> list[Code]:
    """Fold earlier and later parts (along the walk) in array order."""
    return fold.combined(builder, later, earlier) if part.lines.is_reversed else fold.combined(builder, earlier, later)


def assign(builder: Builder, names: Sequence[Code], values: Sequence[Code]) -> None:
    """Assign to each variable the value at the same position."""
    for name, value in zip(names, values, strict=True):
        builder.assign(name, value)
