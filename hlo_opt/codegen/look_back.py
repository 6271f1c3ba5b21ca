"""The emitter of cumulative windows along few long lines: a block for each tile of a line (see `plans/look_back.py`).

A thread reads a few vectors, and keeps the partial results of each in registers. Warps fold what their threads found,
and leave it in shared memory; the first warp folds that, publishes the tile's result, looks back, and puts there what
is before each warp. Elements are folded in order, so a reducer must be associative, but not commutative.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.cumulative import (
    Elements,
    Folded,
    array_of,
    assign,
    fold_warp,
    folded,
    of_lanes,
    open_fold,
    variables,
)
from hlo_opt.codegen.folds import Fold, Write
from hlo_opt.codegen.indices import named, only_first, thread_of
from hlo_opt.codegen.parts import Meeting, leave, meeting, part_at
from hlo_opt.codegen.scalars import register_type
from hlo_opt.codegen.statements import THREAD
from hlo_opt.codegen.tree import Barrier, Fence, Kept, Let
from hlo_opt.codegen.vectors import Targets
from hlo_opt.ir import Instruction
from hlo_opt.ir.index_map import Expression, Variable, add, constant, divide, modulo, multiply
from hlo_opt.ir.size import unsigned
from hlo_opt.ops.code import NOTHING, Code, Name, Shuffle, address, call, cell, code, of
from hlo_opt.ops.reduction.reducers import running_types
from hlo_opt.plans.columns import WARP
from hlo_opt.plans.look_back import LookBack
from hlo_opt.plans.plan import Plan, Segment


def emit(builder: Builder, plan: Plan, segment: Segment[LookBack], first_block: int, targets: Targets) -> None:
    """Emit the tile of the block."""
    writes = [Write(plan.region.roots[n], tuple(targets[n]), True, 0) for n in segment.roots]
    part = segment.part
    only_first(builder, part.threads, plan.launch.block)
    at = _Place.of(builder, part, segment.blocks)
    stages = [_Stage.of(builder, part, windows) for windows in part.stages]
    for turn, stage in enumerate(stages):
        _fold(builder, part, at, stage, stages[:turn])
        builder.add(Barrier())
        with builder.branch(code("{} < {}", THREAD, WARP)):
            _look_back(builder, part, at, stage)
        builder.add(Barrier())
    seen = builder.fresh("seen")
    builder.add(Let("unsigned int", seen, code("0u"), constant=False))
    with builder.branch(code("{} == 0", THREAD)):  # the block reads nothing that others publish after this
        builder.add(Fence())
        builder.assign(of(seen), call("atomicAdd", address(at.ended, 0), "1u"))
    with _rounds(builder, part, at) as (elements, number):
        done = [window for stage in stages for window in stage.before(builder, part, at, number)]
        elements.write(builder, done, writes)
    _reset(builder, segment, at, stages, seen)


@dataclass(frozen=True)
class _Place:
    """A thread's position: in the block, in its warp, its line, and the tile of the line. `started` and `ended` count
    blocks."""

    thread: Variable
    warp: Expression
    lane: Variable
    line: Expression
    tile: Variable
    started: Name
    ended: Name

    @classmethod
    def of(cls, builder: Builder, part: LookBack, blocks: int) -> _Place:
        """The position of a thread in the next of all tiles: those before it are of blocks that run already."""
        started, ended = builder.numbered("started"), builder.numbered("ended")
        builder.tables += [Kept("unsigned int", started, 1), Kept("unsigned int", ended, 1)]
        turn = builder.array("unsigned int", builder.numbered("turn"), 1, shared=True)
        with builder.branch(code("{} == 0", THREAD)):
            builder.assign(cell(turn, 0), call("hlo_take_turn", address(started, 0)))
        builder.add(Barrier())
        own = builder.bounded("turn", code("(int){}", cell(turn, 0)), 0, blocks - 1)
        line = named(builder, divide(own, part.tiles))
        tile = builder.declare("tile", modulo(own, part.tiles))
        thread = thread_of(part.threads)
        lane = builder.declare("lane", modulo(thread, WARP))
        return cls(thread, divide(thread, WARP), lane, line, tile, started, ended)


@contextmanager
def _rounds(builder: Builder, part: LookBack, at: _Place) -> Iterator[tuple[Elements, Expression]]:
    """A loop over the vectors of a thread: the elements of each, and its number."""
    builder.advise("unroll")
    with builder.loop(part.rounds) as number:
        of_tile = add(multiply(at.tile, part.rounds), number)
        step = builder.declare("step", add(multiply(of_tile, part.threads), at.thread))
        yield Elements.of(builder, part, at.line, step), number


@dataclass(frozen=True)
class _Stage:
    """Windows in progress, and for each of their values: an array of what a thread kept, one of what is before its
    vectors in their warps, and shared memory for what is before the warps. Blocks meet in `published`, whose counters
    are flags here: of the tiles of a line, then of its groups."""

    windows: tuple[Instruction, ...]
    kept: list[list[Name]]
    found: list[list[Name]]
    tables: list[list[Name]]
    published: Meeting

    @classmethod
    def of(cls, builder: Builder, part: LookBack, windows: Sequence[Instruction]) -> _Stage:
        """Declare the arrays."""
        types = [running_types(window) for window in windows]
        places = part.lines.count * (part.tiles + part.groups)
        folds = [Fold(window, t, (), starts_with_init=False) for window, t in zip(windows, types, strict=True)]
        size = part.meeting_places(part.threads)
        return cls(
            tuple(windows),
            [[array_of(builder, register_type(t), part.vector * part.rounds) for t in of] for of in types],
            [[array_of(builder, register_type(t), part.rounds) for t in of] for of in types],
            [
                [builder.array(register_type(t), builder.numbered("partial"), size, shared=True) for t in of]
                for of in types
            ],
            meeting(builder, folds, places, places, 1),
        )

    def folds(self, builder: Builder, tables: Sequence[Sequence[Name]], place: Expression | None = None) -> list[Fold]:
        """Folds with variables that hold what is at a place of tables, or nothing yet."""
        return [
            open_fold(builder, window, None if place is None else [cell(n, builder.text(place)) for n in names])
            for window, names in zip(self.windows, tables, strict=True)
        ]

    def before(self, builder: Builder, part: LookBack, at: _Place, number: Expression) -> list[Folded]:
        """The windows, with what is before vector `number` of a thread."""
        done = []
        fronts = self.folds(builder, self.tables, _of_warp(part, at, number))
        for fold, kept, found in zip(fronts, self.kept, self.found, strict=True):
            with builder.branch(code("{} > 0", at.lane)):
                others = [cell(name, builder.text(number)) for name in found]
                assign(builder, fold.accumulators, folded(builder, part, fold, fold.accumulators, others))
            done.append(Folded(fold, kept, fold.accumulators, multiply(number, part.vector)))
        return done


def _of_warp(part: LookBack, at: _Place, number: Expression) -> Expression:
    """The place in shared memory for vector `number` of a warp's threads."""
    return add(multiply(number, part.threads // WARP), at.warp)


def _fold(builder: Builder, part: LookBack, at: _Place, stage: _Stage, earlier: Sequence[_Stage]) -> None:
    """Fold the elements of each vector, and those of each warp."""
    with _rounds(builder, part, at) as (elements, number):
        done = [window for before in earlier for window in before.before(builder, part, at, number)]
        folds = stage.folds(builder, stage.found)
        elements.fold(builder, folds, stage.kept, done, multiply(number, part.vector))
        for fold, names in zip(folds, stage.found, strict=True):
            assign(builder, [cell(name, builder.text(number)) for name in names], fold.accumulators)
    builder.advise("unroll")
    with builder.loop(part.rounds) as number:
        for fold, names, tables in zip(
            stage.folds(builder, stage.found, number), stage.found, stage.tables, strict=True
        ):
            fold_warp(builder, part, fold, at.lane, WARP)
            others = of_lanes(builder, fold, "up", code("1"))
            with builder.branch(code("{} == {}", at.lane, WARP - 1)):
                place = builder.text(_of_warp(part, at, number))
                assign(builder, [cell(table, place) for table in tables], fold.accumulators)
            assign(builder, [cell(name, builder.text(number)) for name in names], others)


def _look_back(builder: Builder, part: LookBack, at: _Place, stage: _Stage) -> None:
    """The first warp publishes the result of the tile, and replaces those of the block's warps by what is before."""
    each, lanes = divmod(part.meeting_places(part.threads), WARP)
    each, lanes = (each, WARP) if each else (1, lanes)
    places = [add(multiply(at.lane, each), constant(k)) for k in range(each)]
    has_some = code("{} < {}", at.lane, lanes) if lanes < WARP else NOTHING
    folds = stage.folds(builder, stage.tables)
    with builder.branch(has_some):
        for place in places:
            for fold, tables in zip(folds, stage.tables, strict=True):
                values = [cell(table, builder.text(place)) for table in tables]
                if place is not places[0]:
                    values = folded(builder, part, fold, fold.accumulators, values)
                assign(builder, fold.accumulators, values)
    for fold in folds:
        fold_warp(builder, part, fold, at.lane, lanes)
    others = [of_lanes(builder, fold, "up", code("1")) for fold in folds]
    first = multiply(at.line, part.tiles + part.groups)
    _publish(builder, stage, folds, code("{} == {}", at.lane, lanes - 1), add(first, at.tile))
    before = _before_tile(builder, part, at, stage, folds, code("{} == {}", at.lane, lanes - 1), first)
    with builder.branch(has_some):
        for fold, front, warps, tables in zip(folds, before, others, stage.tables, strict=True):
            with builder.branch(code("{} > 0", at.lane)):
                assign(builder, front, folded(builder, part, fold, front, warps))
            for place in places:
                cells = [cell(table, builder.text(place)) for table in tables]
                values = [builder.bind_exact(t, value) for t, value in zip(fold.types, cells, strict=True)]
                assign(builder, cells, front)
                if place is not places[-1]:
                    assign(builder, front, folded(builder, part, fold, front, values))


def _before_tile(
    builder: Builder,
    part: LookBack,
    at: _Place,
    stage: _Stage,
    own: Sequence[Fold],
    is_last_lane: Code,
    first: Expression,
) -> list[tuple[Code, ...]]:
    """The fold of everything before the tile, with the init values in front. The last tile of a group publishes the
    group's fold; `own` is that of the tile, in the lane where `is_last_lane` holds. What is published of the line
    begins at `first`."""
    fronts = [
        variables(builder, w, [builder.value(init, ()) for init in w.operands[len(w.operands) // 2 :]])
        for w in stage.windows
    ]
    if part.tiles == 1:
        return fronts
    group = builder.declare_index("group", divide(at.tile, part.group))
    of_group = builder.declare("of_group", modulo(at.tile, part.group))
    place = add(first, multiply(group, part.group))
    tiles = _published(builder, part, at, stage, place, of_group, min(part.group, part.tiles) - 1)
    if part.groups > 1:
        with builder.branch(code("{} == {}", of_group, part.group - 1)):
            whole = [
                replace(fold, accumulators=variables(builder, fold.reduce, values))
                for fold, before in zip(own, tiles, strict=True)
                for values in [folded(builder, part, fold, before, fold.accumulators)]
            ]
            _publish(builder, stage, whole, is_last_lane, add(add(first, constant(part.tiles)), group))
        groups = _published(builder, part, at, stage, add(first, constant(part.tiles)), group, part.groups - 1)
        _put_behind(builder, part, own, fronts, groups, group)
    _put_behind(builder, part, own, fronts, tiles, of_group)
    return fronts


def _put_behind(
    builder: Builder,
    part: LookBack,
    folds: Sequence[Fold],
    fronts: Sequence[Sequence[Code]],
    others: Sequence[Sequence[Code]],
    count: Expression,
) -> None:
    """Fold what others have published behind what is in front of it, if there are any."""
    with builder.branch(code("{} > 0", builder.text(count))):
        for fold, front, values in zip(folds, fronts, others, strict=True):
            assign(builder, front, folded(builder, part, fold, front, values))


def _publish(builder: Builder, stage: _Stage, folds: Sequence[Fold], which: Code, place: Expression) -> None:
    """Let other blocks have what the folds of the lane hold for which the condition `which` holds."""
    with builder.branch(which):
        at = builder.text(place)
        leave(builder, stage.published, [folds], [at])
        builder.do(call("hlo_publish", address(stage.published.arrived, at)))


def _published(
    builder: Builder,
    part: LookBack,
    at: _Place,
    stage: _Stage,
    first: Expression,
    count: Expression,
    most: int,
) -> list[tuple[Code, ...]]:
    """The fold of `count` results that other blocks publish, from place `first` on, in all lanes of the warp; nothing
    where there are none. A lane folds some neighbours of the `most` that there can be."""
    each = -(-most // WARP)
    results = [variables(builder, window, None) for window in stage.windows]
    with builder.branch(code("{} > 0", builder.text(count))):
        with builder.loop(each) as number:
            own = builder.declare("own", add(multiply(at.lane, each), number))
            with builder.branch(code("{} < {}", own, builder.text(count))):
                place = builder.text(add(first, own))
                builder.do(call("hlo_wait_for", address(stage.published.arrived, place)))
        builder.add(Fence())
        folds = stage.folds(builder, stage.found)
        with builder.loop(each) as number:
            own = builder.declare("own", add(multiply(at.lane, each), number))
            with builder.branch(code("{} < {}", own, builder.text(count))):
                place = builder.text(add(first, own))
                for fold, names in zip(folds, stage.published.tables, strict=True):
                    builder.name_after(fold.reduce)
                    values: Sequence[Code] = [
                        builder.bind_exact(t, part_at(t, name, place))
                        for t, name in zip(fold.types, names, strict=True)
                    ]
                    if each > 1:
                        with builder.branch(code("{} == 0", builder.text(number))):
                            assign(builder, fold.accumulators, values)
                        with builder.otherwise():
                            assign(builder, fold.accumulators, folded(builder, part, fold, fold.accumulators, values))
                    else:
                        assign(builder, fold.accumulators, values)
        last = builder.text(divide(add(count, constant(-1)), each)) if each > 1 else code("{} - 1", builder.text(count))
        for fold, result in zip(folds, results, strict=True):
            fold_warp(builder, part, fold, at.lane, WARP)
            assign(builder, result, of_lanes(builder, fold, "sync", last))
    return results


def _reset(builder: Builder, segment: Segment[LookBack], at: _Place, stages: Sequence[_Stage], seen: Name) -> None:
    """The last block that ends leaves all counters and flags as the next launch needs them."""
    flags = segment.part.lines.count * (segment.part.tiles + segment.part.groups)
    with builder.branch(code("{} < {}", THREAD, WARP)):
        ended = builder.let("unsigned int", "all", Code((Shuffle("sync", seen, of(0), ""),)))
        with builder.branch(code(f"{{}} == {unsigned(segment.blocks - 1)}", ended)):
            with builder.branch(code("{} == 0", at.lane)):
                builder.assign(cell(at.started, 0), code("0u"))
                builder.assign(cell(at.ended, 0), code("0u"))
            flag = Variable(0, flags - 1, builder.names.fresh("flag"))
            with builder.walk("int", flag, at.lane, flags, WARP):
                for stage in stages:
                    builder.assign(cell(stage.published.arrived, builder.text(flag)), code("0u"))
