"""What an edge between kernels costs as it is, and what it would if both were one kernel and nothing else changed: the
promise that forcing the edge keeps."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_opt.diag import Reason
from hlo_opt.fusion.decision import CostEstimate
from hlo_opt.fusion.state import FusionState
from hlo_opt.ir import Instruction
from hlo_opt.ops.sets import is_free
from hlo_opt.plans.price import Price, one_after_another

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
    state: FusionState, producer: Instruction, consumer: Instruction, *, written: bool, copies: bool
) -> Cost:
    """Of a consumer that takes in the producer that it reads, and writes it, too (`written`), or leaves it a kernel
    besides (`copies`) where others read it."""
    key = (state.structure_of_both(producer, consumer), written, copies)
    costs = state.known.costs
    if key not in costs:
        prices = state.prices
        alone = prices.of(producer)
        fused = prices.kept(producer, consumer) if written else prices.joined(producer, consumer)
        found = cost_of((alone, prices.of(consumer)), [*[alone] * copies, fused], kept=copies)
        if isinstance(found, Reason):  # it names instructions
            return found
        costs[key] = found
    return costs[key]


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
