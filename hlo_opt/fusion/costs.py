"""What an edge between kernels costs as it is, and what it would if both were one kernel and nothing else changed: the
promise that forcing the edge keeps."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hlo_opt.diag import Reason
from hlo_opt.fusion.decision import CostEstimate
from hlo_opt.fusion.prices import Prices
from hlo_opt.fusion.state import FusionState
from hlo_opt.ir import Instruction
from hlo_opt.ops.sets import is_free
from hlo_opt.plans.price import Price, one_after_another

CostOrReason = CostEstimate | Reason
"""Or why there can be no such kernel."""


def cost_of(unfused: Sequence[Price], fused: Sequence[Price | Reason], *, kept: bool = False) -> CostOrReason:
    """The cost of kernels that are launched one after another, as they are (`unfused`) and as they would be
    (`fused`)."""
    before, after = one_after_another(unfused), []
    for price in fused:
        if isinstance(price, Reason):
            return price
        after.append(price)
    now = one_after_another(after)
    return CostEstimate(before.us, now.us, before.bytes, now.bytes, kept)


def joined_cost(
    state: FusionState, producer: Instruction, consumer: Instruction, *, written: bool, copies: bool
) -> CostOrReason:
    """The cost of fusing a producer into a consumer that reads it. Where others read the producer, the kernel writes
    it, too (`written`), or it stays a kernel besides (`copies`)."""
    key = (state.structure_of_both(producer, consumer), written, copies)
    costs = state.known.costs
    if key not in costs:
        prices = state.prices
        alone = prices.of(producer)
        fused = prices.with_producer(producer, consumer) if written else prices.joined(producer, consumer)
        cost = cost_of((alone, prices.of(consumer)), [*[alone] * copies, fused], kept=copies)
        if isinstance(cost, Reason):  # it names instructions
            return cost
        costs[key] = cost
    return costs[key]


def beside_cost(state: FusionState, first: Instruction, second: Instruction) -> CostOrReason:
    """The cost of joining two kernels that do not depend on each other."""
    return cost_of((state.prices.of(first), state.prices.of(second)), [state.prices.beside(first, second)])


def member_cost(state: FusionState, producer: Instruction, consumer: Instruction) -> CostEstimate | None:
    """The cost of an edge inside a kernel, as if both ends were launched; None where one of them would not be."""
    if producer.shape.is_tuple or is_free(producer.opcode):
        return None
    prices = state.prices
    cost = cost_of((prices.of(producer), prices.of(consumer)), [prices.joined(producer, consumer)])
    return None if isinstance(cost, Reason) else cost


def kept_us(prices: Prices, producer: Instruction, users: Sequence[Instruction]) -> float:
    """Microseconds of a producer's users where the first takes it in and writes its result for the others
    (`multi-output-fusion`): then nothing is computed twice. Infinity where no kernel does that, or one user is all, or
    the producer takes so little that computing it again may save a launch."""
    first, *others = users
    if not others or prices.of(producer).is_small:
        return math.inf
    kept = prices.with_producer(producer, first)
    return math.inf if isinstance(kept, Reason) else kept.us + sum([prices.of(user).us for user in others])
