"""Two kernels that were left apart as one, with nothing else changed: whether they can be, what that costs, and doing
it. The price of a refused edge, and `--force`, are this."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from hlo_opt.diag import Reason
from hlo_opt.fusion.costs import CostOrReason, beside_cost, cost_of, joined_cost
from hlo_opt.fusion.decision import CostEstimate
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.legality import (
    Check,
    Edge,
    boundary,
    control_dependencies,
    ordered_otherwise,
    side_effects,
    size_budget,
)
from hlo_opt.fusion.order import order_of
from hlo_opt.fusion.outline import HANDS_ON, tidy, unite
from hlo_opt.fusion.prices import ReadPaths
from hlo_opt.fusion.products import is_beside_product
from hlo_opt.ir import Instruction
from hlo_opt.ops.sets import tuple_index
from hlo_opt.plans.sketch import Sketch


@dataclass(frozen=True)
class Union:
    """Two kernels of a computation as one.

    ways     how the consumer reads the producer; none where it does not
    written  the producer, or elements of it, that others read, and the kernel writes
    copies   the producer stays a kernel for the others, and is computed again
    """

    producer: Instruction
    consumer: Instruction
    ways: ReadPaths
    written: tuple[Instruction, ...]
    copies: bool
    cost: CostEstimate


_PLACE_CHECKS: tuple[Check, ...] = (side_effects, control_dependencies, boundary, size_budget)


def impossible(edge: Edge) -> Reason | None:
    """Why no kernel can hold both ends, by what either is."""
    for check in _PLACE_CHECKS:
        reason = check(edge)
        if reason is not None:
            return reason
    if is_beside_product(edge):  # what a library runs a kernel of ours may hold with its neighbour
        return edge.state.lowering(edge.producer) or edge.state.lowering(edge.consumer)
    prices = edge.state.prices
    return prices.refusal(edge.producer) or prices.refusal(edge.consumer)


def union_of(
    engine: Engine,
    producer: Instruction,
    consumer: Instruction,
    *,
    may_copy: bool = True,
    loses: Callable[[Sketch], bool] | None = None,
) -> Union | Reason:
    """The cheapest way to join a producer and a consumer that reads it, directly or through elements of a tuple and
    bitcasts; without `may_copy` none that leaves the producer for others, and none of which `loses` says, before its
    price is known, that it takes longer than both. Or the reason why there is none."""
    forms = _forms(engine, producer, consumer)
    if isinstance(forms, Reason):
        return forms
    unions: list[Union] = []
    edge = engine.edge(producer, consumer)
    refusal = Reason.of("FUS131", producer=edge.producer_name, consumer=edge.consumer_name)
    for ways, written, copies in forms:
        if copies and not may_copy:
            continue
        sketch = None if loses is None else _sketch(engine, producer, consumer, ways, written)
        if loses is not None and isinstance(sketch, Sketch) and loses(sketch):
            continue
        cost = _cost(engine, producer, consumer, ways, written, copies=copies)
        if isinstance(cost, Reason):
            refusal = cost
        else:
            unions.append(Union(producer, consumer, ways, written, copies, cost))
    return min(unions, key=lambda u: u.cost.us_fused) if unions else refusal


def likeness_of(engine: Engine, producer: Instruction, consumer: Instruction) -> Hashable:
    """The same for pairs of kernels that one plan and one price are for; None where no kernel can hold both."""
    ways = _ways(engine, producer, consumer)
    if isinstance(ways, Reason):
        return None
    return engine.state.structure_through(producer, consumer, ways, read_by_others(producer, consumer, ways))


def no_union_of(engine: Engine, producer: Instruction, consumer: Instruction) -> Reason | None:
    """The reason that `union_of` gives, or None; without a price."""
    forms = _forms(engine, producer, consumer)
    if isinstance(forms, Reason):
        return forms
    refusal = None
    for ways, written, _ in forms:
        sketch = _sketch(engine, producer, consumer, ways, written)
        if not isinstance(sketch, Reason):
            return None
        refusal = sketch
    return refusal


def _forms(
    engine: Engine, producer: Instruction, consumer: Instruction
) -> list[tuple[ReadPaths, tuple[Instruction, ...], bool]] | Reason:
    """How one kernel may be both, as far as that can be told without a plan: fields `ways`, `written` and `copies` of a
    `Union`. Or the reason why none may."""
    ways = _ways(engine, producer, consumer)
    if isinstance(ways, Reason):
        return ways
    written = tuple(read_by_others(producer, consumer, ways))
    may_keep = not written or not _depends_otherwise(engine, producer, consumer, ways)
    forms: list[tuple[ReadPaths, tuple[Instruction, ...], bool]] = []
    if may_keep:
        forms.append((ways, written, False))
    if written:
        forms.append((ways, (), True))
    return forms


def _ways(engine: Engine, producer: Instruction, consumer: Instruction) -> ReadPaths | Reason:
    """As `ways_between`, or the reason why no kernel may be both."""
    edge = engine.edge(producer, consumer)
    reason = impossible(edge)
    if reason is not None:
        return reason
    ways = ways_between(producer, consumer)
    if not ways:
        return Reason.of("FUS113", producer=edge.producer_name, consumer=edge.consumer_name)
    return ordered_otherwise(engine.state, itertools.chain.from_iterable(ways.values())) or ways


def _is_direct(producer: Instruction, ways: ReadPaths) -> bool:
    """Whether a consumer reads a producer of one result directly, as most do: the structures of both are then all that
    counts."""
    return not any(ways.values()) and not producer.shape.is_tuple


def _sketch(
    engine: Engine, producer: Instruction, consumer: Instruction, ways: ReadPaths, written: Sequence[Instruction]
) -> Sketch | Reason:
    """What one kernel of both would be."""
    prices = engine.state.prices
    if not _is_direct(producer, ways):
        return prices.sketch_through(producer, consumer, ways, written)
    return prices.sketch_with_producer(producer, consumer) if written else prices.sketch_joined(producer, consumer)


def _cost(
    engine: Engine,
    producer: Instruction,
    consumer: Instruction,
    ways: ReadPaths,
    written: Sequence[Instruction],
    *,
    copies: bool,
) -> CostOrReason:
    state = engine.state
    if _is_direct(producer, ways):
        return joined_cost(state, producer, consumer, written=bool(written), copies=copies)
    fused = state.prices.through(producer, consumer, ways, written)
    alone = state.prices.of(producer)
    return cost_of((alone, state.prices.of(consumer)), [*[alone] * copies, fused], kept=copies)


def union_beside(engine: Engine, first: Instruction, second: Instruction) -> Union | Reason:
    """The way to join two instructions that do not read each other. Or the reason why there is none."""
    reason = _reason_against(engine, first, second)
    if reason is not None:
        return reason
    cost = beside_cost(engine.state, first, second)
    return cost if isinstance(cost, Reason) else Union(second, first, {}, (second,), False, cost)


def no_union_beside(engine: Engine, first: Instruction, second: Instruction) -> Reason | None:
    """The reason that `union_beside` gives, or None; without a price."""
    sketch = _reason_against(engine, first, second) or engine.state.prices.sketch_beside(first, second)
    return sketch if isinstance(sketch, Reason) else None


def _reason_against(engine: Engine, first: Instruction, second: Instruction) -> Reason | None:
    """Why two that do not read each other can be no one kernel, as far as that can be told without a plan."""
    edge = engine.edge(first, second)
    reason = impossible(edge)
    if reason is not None:
        return reason
    order = order_of(engine, first.computation)
    if order.connected(first, second):
        needed, user = (first, second) if order.place(first) < order.place(second) else (second, first)
        return Reason.of(
            "FUS132", needed=engine.edge(needed, user).producer_name, user=engine.edge(needed, user).consumer_name
        )
    return None


def join(engine: Engine, union: Union) -> Instruction | Reason:
    """Make one fusion of both. Returns it, or why it has no plan after all; then the module must not be used any more.
    The engine knows nothing of the order of the computation afterwards; `Engine.drop_orphans` when all are made."""
    producer, consumer = union.producer, union.consumer
    for kernel in (producer, consumer):
        engine.context.fused_by.setdefault(engine.edge(producer, kernel).consumer_name, engine.rule)
    computation = consumer.computation
    computation.index_users()
    fusion, emptied = unite(producer, consumer, union.ways, union.written, engine.origins, copies=union.copies)
    engine.orphans += emptied
    for kernel in (producer, consumer):
        engine.state.forget(kernel)
    engine.state.forget_readers(fusion)
    kind = engine.state.kind_of(fusion, with_folds=True)
    if isinstance(kind, Reason):
        return kind
    tidy(computation, {fusion: kind}, engine.state)
    return fusion


def ways_between(producer: Instruction, consumer: Instruction) -> dict[Instruction, list[Instruction]] | None:
    """The ways on which a consumer reads a producer; None where one is more than an element of a tuple and bitcasts of
    it."""
    ways: dict[Instruction, list[Instruction]] = {}
    for operand in dict.fromkeys(consumer.operands):
        value, way = operand, list[Instruction]()
        while value is not producer and value.operands and value.opcode in HANDS_ON:
            way.insert(0, value)
            value = value.operands[0]
        if value is producer:
            elements = [n for n, step in enumerate(way) if tuple_index(step) is not None]
            bitcasts = sum(step.opcode == "bitcast" for step in way)
            if bitcasts + len(elements) < len(way) or elements != ([0] if producer.shape.is_tuple else []):
                return None
            ways[operand] = way
    return ways


def read_by_others(producer: Instruction, consumer: Instruction, ways: ReadPaths) -> list[Instruction]:
    """The elements of a producer that anything but the consumer reads; itself, where that is all of it."""
    steps = {step for way in ways.values() for step in way}
    inside = steps | {consumer}
    if not producer.shape.is_tuple:
        return [producer] if any(_has_others(i, inside) for i in (producer, *steps)) else []
    if producer.is_root or any(tuple_index(user) is None for user in producer.users):
        return [producer]
    values: dict[int | None, Instruction] = {}
    for user in producer.users:
        handed = [step for way in ways.values() if way[0] is user for step in way]
        if user not in steps or any(_has_others(step, inside) for step in handed):
            values.setdefault(tuple_index(user), user)
    return list(values.values())


def _has_others(value: Instruction, inside: set[Instruction]) -> bool:
    return value.is_root or any(user not in inside for user in value.users)


def _depends_otherwise(engine: Engine, producer: Instruction, consumer: Instruction, ways: ReadPaths) -> bool:
    """Whether the consumer needs something else that needs the producer."""
    others = [o for o in consumer.operands if o not in ways]
    return order_of(engine, producer.computation).reaches_any(producer, others)
