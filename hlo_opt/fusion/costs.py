"""What an edge between kernels costs as it is, and what it would if both were one kernel and nothing else changed: the promise that forcing the edge keeps."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_opt.diag import Reason
from hlo_opt.fusion.decision import CostEstimate
from hlo_opt.fusion.prices import Prices
from hlo_opt.fusion.state import FusionState
from hlo_opt.ir import Instruction
from hlo_opt.ops.sets import is_free, taken_element
from hlo_opt.plans.price import Price, one_after_another

HANDS_ON = frozenset({"bitcast", "get-tuple-element", "opt-barrier", "add-dependency"})
"""Opcodes that hand their first operand's value on, or an element of it, without a kernel."""

Cost = CostEstimate | Reason
"""Or why there can be no such kernel."""


def cost_of(unfused: Sequence[Price], fused: Sequence[Price | Reason], *, kept: bool = False) -> Cost:
    """Of kernels that are launched one after another, as they are and as they would be."""
    before, after = one_after_another(unfused), []
    for found in fused:
        if isinstance(found, Reason):
            return found
        after.append(found)
    now = one_after_another(after)
    return CostEstimate(before.us, now.us, before.bytes, now.bytes, kept)


def joined_cost(
    state: FusionState, producer: Instruction, consumer: Instruction, *, shared: bool, may_keep: bool
) -> Cost:
    """Of a consumer that takes in the producer that it reads. Where others read that, too (`shared`), the kernel writes it (`may_keep`: no way leads from the producer to the consumer
    but the edge), or it stays a kernel besides: whichever costs less."""
    key = (state.structure_of_both(producer, consumer), shared, may_keep)
    costs = state.known.costs
    if key not in costs:
        found = _joined_cost(state.prices, producer, consumer, shared=shared, may_keep=may_keep)
        if isinstance(found, Reason):  # it names instructions
            return found
        costs[key] = found
    return costs[key]


def _joined_cost(prices: Prices, producer: Instruction, consumer: Instruction, *, shared: bool, may_keep: bool) -> Cost:
    alone = prices.of(producer)
    unfused, joined = (alone, prices.of(consumer)), prices.joined(producer, consumer)
    if not shared:
        return cost_of(unfused, [joined])
    copied = cost_of(unfused, [alone, joined], kept=True)
    if not may_keep:
        return copied
    writes_both = cost_of(unfused, [prices.kept(producer, consumer)])
    found = [c for c in (writes_both, copied) if not isinstance(c, Reason)]
    return min(found, key=lambda c: c.us_fused, default=copied)


def beside_cost(state: FusionState, first: Instruction, second: Instruction) -> Cost:
    """Of two kernels of which neither needs the other."""
    return cost_of((state.prices.of(first), state.prices.of(second)), [state.prices.beside(first, second)])


def member_cost(state: FusionState, producer: Instruction, consumer: Instruction) -> CostEstimate | None:
    """Of two members of a kernel, as if they were launched; None where one would not be."""
    if producer.shape.is_tuple or is_free(producer.opcode):
        return None
    prices = state.prices
    found = cost_of((prices.of(producer), prices.of(consumer)), [prices.joined(producer, consumer)])
    return None if isinstance(found, Reason) else found


def element_cost(state: FusionState, producer: Instruction, consumer: Instruction) -> Cost | None:
    """Of an edge through elements of a tuple, or bitcasts: as one kernel that writes what others read. None where something between both is more than a name."""
    ways = ways_between(producer, consumer)
    if ways is None:
        return None
    fused = state.prices.through(producer, consumer, ways, read_by_others(producer, consumer, ways))
    return cost_of((state.prices.of(producer), state.prices.of(consumer)), [fused])


Ways = dict[Instruction, list[Instruction]]
"""Of operands that are a producer's value, or an element of it: what hands it on, from the producer down to the operand."""


def ways_between(producer: Instruction, consumer: Instruction) -> Ways | None:
    """The ways on which a consumer reads a producer; None where one is more than an element of a tuple and bitcasts of it."""
    found: Ways = {}
    for operand in dict.fromkeys(consumer.operands):
        value, way = operand, list[Instruction]()
        while value is not producer and value.operands and value.opcode in HANDS_ON:
            way.insert(0, value)
            value = value.operands[0]
        if value is producer:
            elements = [n for n, step in enumerate(way) if taken_element(step) is not None]
            bitcasts = sum(step.opcode == "bitcast" for step in way)
            if bitcasts + len(elements) < len(way) or elements != ([0] if producer.shape.is_tuple else []):
                return None
            found[operand] = way
    return found


def read_by_others(producer: Instruction, consumer: Instruction, ways: Ways) -> list[Instruction]:
    """The elements of a producer that anything but the consumer reads; itself, where that is all of it."""
    steps = {step for way in ways.values() for step in way}
    inside = steps | {consumer}
    if not producer.shape.is_tuple:
        return [producer] if any(_has_others(i, inside) for i in (producer, *steps)) else []
    if producer.is_root or any(taken_element(user) is None for user in producer.users):
        return [producer]
    found: dict[int | None, Instruction] = {}
    for user in producer.users:
        handed = [step for way in ways.values() if way[0] is user for step in way]
        if user not in steps or any(_has_others(step, inside) for step in handed):
            found.setdefault(taken_element(user), user)
    return list(found.values())


def _has_others(value: Instruction, inside: set[Instruction]) -> bool:
    return value.is_root or any(user not in inside for user in value.users)
