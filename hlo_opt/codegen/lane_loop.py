"""The emitter of loops by lanes: a thread runs all iterations of a `while` for one lane, with its state in
variables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hlo_opt.codegen.builder import Builder
from hlo_opt.codegen.lane_reads import counted, in_rounds_ahead, of_lane, provide_counters
from hlo_opt.codegen.loop import elements_of_thread
from hlo_opt.codegen.tree import Break
from hlo_opt.codegen.vectors import Store, Targets
from hlo_opt.ir.index_map import Expression, add, constant
from hlo_opt.ops.code import Code, Name, code, negated
from hlo_opt.ops.indexing.table import clamped_starts
from hlo_opt.ops.lowering import Index
from hlo_opt.plans.lane_loop import CarriedValue, Lanes, Results, places_of
from hlo_opt.plans.plan import Plan, Segment


def emit(builder: Builder, plan: Plan, segment: Segment[Lanes], first_block: int, targets: Targets) -> None:
    """Emit one thread per lane."""
    part = segment.part
    pointers = {number: targets[root][0][0] for number, root in zip(part.numbers, part.roots, strict=True)}
    elements_of_thread(builder, plan, segment, first_block, part.lanes, lambda b, p: _lane(b, part, pointers, p))


@dataclass(frozen=True)
class _Slot:
    """An element of a lane's state, and its variable."""

    value: CarriedValue
    index: Index
    name: Code


def _lane(builder: Builder, part: Lanes, pointers: dict[int, Name], position: Expression) -> list[Store]:
    """Emit the iterations, which write their results; returns the stores of the final state."""
    lane = part.lane_at(position)
    state = _begun(builder, part, lane)
    for result in part.results:
        if result.is_read:
            builder.point(result.update.operands[0], pointers[result.number])
        if result.before is not None:
            with builder.loop(result.share) as number:
                at = result.place(number, lane)
                builder.store(pointers[result.number], result.update.shape, at, builder.value(result.before, at))

    for early, index in part.early:
        builder.value(early, of_lane(index, position))

    def run(round_: Expression | None) -> None:
        with builder.scope():
            _round(builder, part, state, pointers, position, round_)

    if part.ahead and part.trips is not None:
        in_rounds_ahead(builder, part, position, part.trips, run)
    else:
        _rounds(builder, part, run)
    stores = [
        Store(pointers[h.value.number], h.value.parameter.shape, h.index, h.name)
        for h in state
        if h.value.number in pointers
    ]
    for value in part.values:
        if value.counts is not None and value.number in pointers:
            stores.append(
                Store(
                    pointers[value.number],
                    value.parameter.shape,
                    (),
                    counted(value, constant(part.trips or 0), builder),
                )
            )
    alike = {pointers[v.number] for v in part.values if v.number in pointers and not v.lanes and part.lanes > 1}
    if any(store.pointer in alike for store in stores):
        with builder.branch(code("{} == 0", position)):
            for store in stores:
                if store.pointer in alike:
                    store.emit(builder)
    return [store for store in stores if store.pointer not in alike]


def _begun(builder: Builder, part: Lanes, lane: Index) -> list[_Slot]:
    """Emit the state before the first iteration."""
    state: list[_Slot] = []
    for value in part.values:
        for index in value.places(lane) if value.counts is None else ():
            start = builder.value(value.initial, index)
            builder.name_after(value.parameter)
            name = builder.variable(value.parameter.shape.type, start, alike=not value.lanes)
            state.append(_Slot(value, index, name))
    return state


def _rounds(builder: Builder, part: Lanes, run: Callable[[Expression | None], None]) -> None:
    """Emit the loop over iterations, each of which `run` emits."""
    with builder.for_ever(carries=True) if part.trips is None else builder.loop(part.trips, carries=True) as round_:
        run(round_)


def _nest(builder: Builder, part: Lanes, position: Expression) -> None:
    """Emit a loop in an iteration of another one, and provide its results. What its iterations read is computed before
    the first one."""
    for (value, there), *_ in part.near:
        if there is not None:
            builder.value(value, of_lane(there, position))
    state = _begun(builder, part, part.lane_at(position))

    def run(round_: Expression | None) -> None:
        with builder.scope():
            _round(builder, part, state, {}, position, round_)

    _rounds(builder, part, run)
    for slot in state:
        builder.provide(part.hero, slot.value.number, slot.index, slot.name)
    for counter in part.values:
        if counter.counts is not None:
            last = counted(counter, constant(part.trips or 0), builder)
            builder.provide(part.hero, counter.number, (), last)


def _round(
    builder: Builder,
    part: Lanes,
    state: list[_Slot],
    pointers: dict[int, Name],
    position: Expression,
    round_: Expression | None,
) -> None:
    lane = part.lane_at(position)
    for slot in state:
        builder.provide(slot.value.parameter, None, slot.index, slot.name)
    if round_ is not None:
        provide_counters(builder, part, round_)
    for test, lanes in part.tests:
        (index,) = places_of(test.shape, lanes, lane)
        builder.add(Break(negated(builder.value(test, index)), stays=bool(lanes)))
    for nest in part.nests:
        _nest(builder, nest, position)
    after = []
    for slot in state:
        following = builder.value(slot.value.result, slot.index)
        builder.name_after(slot.value.result)
        after.append(builder.bind_exact(slot.value.parameter.shape.type, following))
    elements: list[tuple[Results, Index, Code]] = []  # all before the first store: they may read what was there before
    for result in part.results:
        start = clamped_starts(builder, result.update, 2, result.window.dimensions)
        for index in result.places(lane):
            there = tuple(add(s, e) for s, e in zip(start, index, strict=True))
            elements.append((result, there, builder.value(result.update.operands[1], index)))
    for result, there, element in elements:
        builder.store(pointers[result.number], result.update.shape, there, element)
    pairs = zip(state, after, strict=True)
    # assignments that depend on the lane come first
    for slot, following in sorted(pairs, key=lambda pair: not pair[0].value.lanes):
        builder.assign(slot.name, following)
