"""The emitter of cumulative windows whose tiles blocks take in turns, in one launch that reads each element once.

A block takes the next tile, folds it, and shows the result to the other blocks; whoever has the last tile of a group
shows that of the group. What lies before a tile are the groups before its own, and the tiles before it in its group,
which are folded in the same order in every launch. Nobody waits for long, since no result depends on what lies before
it; and as turns are in order, a block waits only for blocks that run, however few there is room for. The elements of
the next tile are read while the block waits. A CPU walks the lines one after another (see `Chain`).
Source of the idea: D. Merrill, M. Garland, Single-pass Parallel Prefix Scan with Decoupled Look-back, NVR-2016-002.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.folds import Fold, Write
from hlo_opt.codegen.indices import only_first, thread_of
from hlo_opt.codegen.row_reduction import fold_lanes
from hlo_opt.codegen.scalars import literal, register_type, shuffled
from hlo_opt.codegen.statements import BLOCK, THREAD
from hlo_opt.codegen.tree import Barrier, Chain, Kept, Let
from hlo_opt.codegen.vectors import Compute, Store, each_element, store_all
from hlo_opt.ir import Instruction
from hlo_opt.ir.index_map import Expression, Variable, add, constant, divide, modulo, multiply
from hlo_opt.ops.code import NOTHING, Code, Name, address, call, cell, code, of
from hlo_opt.ops.lowering import Index
from hlo_opt.ops.reduction.reducers import own_identity, running_types
from hlo_opt.plans.columns import WARP
from hlo_opt.plans.cumulative import Prefixes
from hlo_opt.plans.plan import Segment


def emit_in_turns(
    builder: Builder, segment: Segment[Prefixes], block: int, first_block: int, writes: Sequence[Write]
) -> None:
    """Emit the tiles of all lines; `block` is the number of threads of a block."""
    chain = Chain()
    builder.add(chain)
    with builder.inside(chain.steps):
        _Turns(builder, segment, block, writes).emit()
    with builder.inside(chain.walking):
        _walk_lines(builder, segment.part, first_block, writes)


@dataclass(frozen=True)
class _Window:
    """A window in progress.

    fold     its accumulator starts with the init value
    nothing  the identity of the reducer
    """

    fold: Fold
    nothing: Code

    @classmethod
    def of(cls, builder: Builder, window: Instruction) -> _Window:
        """Declare the accumulator."""
        (kind,) = running_types(window)
        init = builder.value(window.operands[1], ())
        builder.name_after(window)
        fold = Fold(window, (kind,), (builder.variable(kind, init),), starts_with_init=True)
        return cls(fold, literal(kind, kind.dtype.type(own_identity(window))))

    @property
    def kind(self) -> str:
        """The type of a register."""
        return register_type(*self.fold.types)

    @property
    def front(self) -> Code:
        """The accumulator: the value before the first element, on a GPU; on a CPU that before a tile."""
        return self.fold.accumulators[0]

    def variable(self, builder: Builder) -> Code:
        """A new variable that holds the fold of nothing."""
        builder.name_after(self.fold.reduce)
        return builder.variable(self.fold.types[0], self.nothing)

    def element(self, builder: Builder, index: Index) -> Code:
        """The element at an index."""
        return builder.value(self.fold.reduce.operands[0], index)

    def joined(self, builder: Builder, left: Code, right: Code) -> Code:
        """Both folds together."""
        builder.name_after(self.fold.reduce)
        return self.fold.combined(builder, [left], [right])[0]

    def join(self, builder: Builder, to: Code, more: Code) -> None:
        """Add a fold to a variable."""
        builder.assign(to, self.joined(builder, to, more))

    def provide(self, builder: Builder, index: Index, value: Code) -> None:
        """Provide the window's result at an index."""
        leaf = next(self.fold.reduce.shape.leaves())
        builder.provide(self.fold.reduce, None, index, builder.bind(leaf.type, value))


def _stores(
    builder: Builder, part: Prefixes, writes: Sequence[Write], line: Expression, step: Expression
) -> list[Store]:
    return [s for w in writes for s in w.stores(builder, part.lines.index_of(w.root, line, step))]


def _walk_lines(builder: Builder, part: Prefixes, first_block: int, writes: Sequence[Write]) -> None:
    """The work of all blocks, by the first thread: tile after tile, so that sums are rounded as on a GPU."""
    size, length = part.vector * part.threads, part.lines.length
    first = code("{} == {} && {} == 0", BLOCK, first_block, THREAD)
    with builder.branch(first), builder.loop(part.lines.count) as line:
        windows = [_Window.of(builder, window) for window in part.windows]
        with builder.loop(part.tiles, carries=True) as tile:
            totals = [window.variable(builder) for window in windows]
            with builder.loop(size, carries=True) as number:
                step = builder.declare("step", add(multiply(tile, size), number))
                with builder.branch(code("{} < {}", step, length) if step.high >= length else NOTHING):
                    index = part.lines.index(line, Variable(0, length - 1, step.name))
                    for window, total in zip(windows, totals, strict=True):
                        window.join(builder, total, window.element(builder, index))
                        window.provide(builder, index, window.joined(builder, window.front, total))
                    store_all(builder, _stores(builder, part, writes, line, Variable(0, length - 1, step.name)))
            for window, total in zip(windows, totals, strict=True):
                window.join(builder, window.front, total)


@dataclass(frozen=True)
class _Tables:
    """A window's memory.

    ahead      a thread's elements of the next tile
    of_warp    in shared memory: the results of the warps of a tile
    of_tiles   and of warps for the tiles before it in its group
    of_groups  and for the groups before
    tiles      the results that blocks show, by tile
    groups     and by group
    """

    ahead: Name
    of_warp: Name
    of_tiles: Name
    of_groups: Name
    tiles: Name
    groups: Name


class _Turns:
    """The steps of a block's threads together."""

    def __init__(self, builder: Builder, segment: Segment[Prefixes], block: int, writes: Sequence[Write]) -> None:
        self.builder, self.part, self.writes = builder, segment.part, writes
        self.tiles = self.part.tiles * self.part.lines.count
        self.count = self.tiles + 2 * segment.blocks  # each block ends with two turns too many
        self.warps = self.part.threads // WARP
        only_first(builder, self.part.threads, block)
        self.thread = thread_of(self.part.threads)
        self.lane = builder.declare("lane", modulo(self.thread, WARP))
        self.warp = builder.declare("warp", divide(self.thread, WARP))
        self.turns, self.turn = builder.numbered("turns"), builder.numbered("turn")
        builder.tables.append(Kept("unsigned long long", self.turns, 1))
        builder.array("unsigned int", self.turn, 2, shared=True)
        self.windows = [_Window.of(builder, window) for window in self.part.windows]
        self.tables = [self._tables(window.kind) for window in self.windows]

    def _tables(self, kind: str) -> _Tables:
        builder, part = self.builder, self.part
        stems = ("ahead", "of_warp", "of_tiles", "of_groups", "tiles", "groups")
        tables = _Tables(*(builder.numbered(stem) for stem in stems))
        builder.array(kind, tables.ahead, part.vector)
        for name in (tables.of_warp, tables.of_tiles, tables.of_groups):
            builder.array(kind, name, self.warps, shared=True, alignment=16)
        for name, count in ((tables.tiles, self.tiles), (tables.groups, part.groups * part.lines.count)):
            builder.tables.append(Kept("unsigned long long", name, count, volatile=True))
        return tables

    def emit(self) -> None:
        """Emit tile after tile, as long as there are some."""
        builder, wide = self.builder, "unsigned long long"
        self.start = self._variable(wide, "start", code("0"))
        with self._first_thread():
            begin = call("hlo_first_turn", address(self.turns, 0), f"{self.count}u", self.turn)
            builder.assign(of(self.start), begin)
        builder.add(Barrier())
        tile = self._variable("int", "tile", code("(int){}", cell(self.turn, 0)))
        launch = builder.let("unsigned int", "launch", cell(self.turn, 1))
        self._read(tile)
        builder.add(Barrier())  # all have read the turn
        self._take_turn(self._drawn())
        builder.add(Barrier())
        following = self._variable("int", "next", code("(int){}", cell(self.turn, 0)))
        with builder.loop_while("", None, NOTHING, code("{} < {}", tile, self.tiles), NOTHING):
            self._tile(tile, following, launch)

    def _variable(self, kind: str, stem: str, value: Code) -> Name:
        name = self.builder.fresh(stem)
        self.builder.add(Let(kind, name, value, constant=False))
        return name

    def _first_thread(self) -> AbstractContextManager[None]:
        return self.builder.branch(code("{} == 0", THREAD))

    def _drawn(self) -> Name:
        """The first thread draws a turn, and need not wait for it yet."""
        drawn = self._variable("unsigned long long", "drawn", code("0"))
        with self._first_thread():
            self.builder.assign(of(drawn), call("atomicAdd", address(self.turns, 0), "1ull"))
        return drawn

    def _take_turn(self, drawn: Name) -> None:
        with self._first_thread():
            self.builder.assign(cell(self.turn, 0), code("(unsigned int)({} - {})", drawn, self.start))

    def _at(self, tile: Name) -> tuple[Expression, Variable, Code]:
        """The line of a tile, the number of the thread's vector in it, and the condition that there is one."""
        builder, part = self.builder, self.part
        number = Variable(0, self.tiles - 1, tile.text)
        line = builder.declare_index("line", divide(number, part.tiles))
        step = builder.declare("step", add(multiply(modulo(number, part.tiles), part.threads), self.thread))
        steps = part.lines.length // part.vector
        inside = code("{} < {}", step, steps) if part.threads * part.tiles > steps else NOTHING
        return line, Variable(0, steps - 1, step.name), inside

    def _each(self, step: Variable, compute: Compute) -> None:
        each_element(
            self.builder,
            self.part.vector,
            lambda to, number: to.declare_index("along", add(multiply(step, self.part.vector), number)),
            compute,
        )

    def _read(self, tile: Name) -> None:
        """Read the thread's elements of a tile, if there is one."""
        builder, lines = self.builder, self.part.lines

        with builder.branch(code("{} < {}", tile, self.tiles)):
            line, step, inside = self._at(tile)

            def read(to: Builder, along: Expression, number: Expression) -> list[Store]:
                for window, tables in zip(self.windows, self.tables, strict=True):
                    value = window.element(to, lines.index(line, along))
                    to.assign(cell(tables.ahead, to.text(number)), value)
                return []

            with builder.branch(inside):
                self._each(step, read)

    def _tile(self, tile: Name, following: Name, launch: Name) -> None:
        builder, part = self.builder, self.part
        line, step, inside = self._at(tile)
        drawn = self._drawn()
        kept, totals = [], []
        for window in self.windows:
            kept.append(builder.array(window.kind, builder.numbered("kept"), part.vector))
            totals.append(window.variable(builder))
        with builder.branch(inside):
            builder.advise("unroll")
            with builder.loop(part.vector) as number:
                at = builder.text(number)
                for window, tables, own, total in zip(self.windows, self.tables, kept, totals, strict=True):
                    window.join(builder, total, cell(tables.ahead, at))
                    builder.assign(cell(own, at), total)
        self._read(following)
        for_threads = [self._in_warp(*of) for of in zip(self.windows, self.tables, totals, strict=True)]
        builder.add(Barrier())
        owns = [self._in_block(*of, tile, launch) for of in zip(self.windows, self.tables, for_threads, strict=True)]
        place = modulo(Variable(0, self.tiles - 1, tile.text), part.tiles)
        group = builder.declare("group", add(multiply(line, part.groups), divide(place, part.group)))
        first = builder.declare(
            "first", add(multiply(line, part.tiles), multiply(divide(place, part.group), part.group))
        )
        for window, tables in zip(self.windows, self.tables, strict=True):
            backwards = add(
                multiply(self.thread, -1), constant(part.threads - 1)
            )  # so that other warps wait for groups
            begin = add(multiply(line, part.groups), backwards)
            self._before(window, tables.groups, tables.of_groups, begin, of(group), launch)
            self._before(window, tables.tiles, tables.of_tiles, add(first, self.thread), of(tile), launch)
        self._take_turn(drawn)
        builder.add(Barrier())
        fronts = []
        for window, tables, (own, whole) in zip(self.windows, self.tables, owns, strict=True):
            groups, tiles = window.variable(builder), window.variable(builder)
            with self._warps() as k:
                window.join(builder, groups, cell(tables.of_groups, k))
                window.join(builder, tiles, cell(tables.of_tiles, k))
            ends = code("{} == 0 && {} == {}", THREAD, builder.text(modulo(place, part.group)), part.group - 1)
            with builder.branch(ends):
                shown = window.joined(builder, tiles, whole)
                builder.do(call("hlo_show", address(tables.groups, group), launch, shown))
            before = window.joined(builder, window.front, window.joined(builder, groups, tiles))
            fronts.append(window.variable(builder))
            builder.assign(fronts[-1], window.joined(builder, before, own))

        def write(to: Builder, along: Expression, number: Expression) -> list[Store]:
            for window, own, front in zip(self.windows, kept, fronts, strict=True):
                value = window.joined(to, front, cell(own, to.text(number)))
                window.provide(to, part.lines.index(line, along), value)
            return _stores(to, part, self.writes, line, along)

        with builder.branch(inside):
            self._each(step, write)
        builder.assign(of(tile), of(following))
        builder.assign(of(following), code("(int){}", cell(self.turn, 0)))

    def _in_warp(self, window: _Window, tables: _Tables, total: Code) -> Code:
        """Fold a warp's results along its lanes, and let its last lane leave the whole. The fold before the thread."""
        builder, kind = self.builder, window.fold.types[0]
        distance = builder.fresh("distance")
        test, further = code("{} < {}", distance, WARP), code("{} *= 2", distance)
        builder.advise("unroll")
        with builder.loop_while("int", distance, code("1"), test, further):
            other = builder.bind_exact(kind, shuffled(kind, "up", total, of(distance)))
            with builder.branch(code("{} >= {}", self.lane, distance)):
                builder.assign(total, window.joined(builder, other, total))
        before = builder.bind_exact(kind, shuffled(kind, "up", total, code("1")))
        with builder.branch(code(f"{{}} == {WARP - 1}", self.lane)):
            builder.assign(cell(tables.of_warp, self.warp), total)
        return before

    @contextmanager
    def _warps(self) -> Iterator[Name]:
        """A loop over the block's warps."""
        builder = self.builder
        number = builder.numbered("k")
        builder.advise("unroll")
        with builder.loop_while("int", number, code("0"), code("{} < {}", number, self.warps), code("++{}", number)):
            yield number

    def _in_block(self, window: _Window, tables: _Tables, before: Code, tile: Name, launch: Name) -> tuple[Code, Code]:
        """Show the fold of the tile. The fold of its elements before the thread's, with `before` of the warp, and that
        of all."""
        builder = self.builder
        front, whole = window.variable(builder), window.variable(builder)
        with self._warps() as k:
            builder.name_after(window.fold.reduce)
            value = builder.bind_exact(window.fold.types[0], cell(tables.of_warp, k))
            with builder.branch(code("{} < {}", k, self.warp)):
                window.join(builder, front, value)
            window.join(builder, whole, value)
        with builder.branch(code("{} > 0", self.lane)):
            window.join(builder, front, before)
        with self._first_thread():
            builder.do(call("hlo_show", address(tables.tiles, tile), launch, whole))
        return front, whole

    def _before(self, window: _Window, shown: Name, to: Name, start: Expression, end: Code, launch: Name) -> None:
        """Fold what blocks show up to `end`, each thread from `start` on; each warp leaves its part in `to`."""
        builder = self.builder
        total, number = window.variable(builder), builder.numbered("k")
        test, further = code("{} < {}", number, end), code("{} += {}", number, self.part.threads)
        with builder.loop_while("int", number, builder.text(start), test, further):
            value = call(f"hlo_shown<{window.kind}>", address(shown, number), launch)
            builder.name_after(window.fold.reduce)
            window.join(builder, total, builder.bind_exact(window.fold.types[0], value))
        fold_lanes(builder, [replace(window.fold, accumulators=(total,))], WARP, None)
        with builder.branch(code("{} == 0", self.lane)):
            builder.assign(cell(to, self.warp), total)
