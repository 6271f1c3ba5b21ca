"""Edges that a run left are joined in the finished module, and nothing else is decided again: edges that the user
forces, and the dearest, to compute what they would save."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from hlo_opt.diag import ProofError, Reason
from hlo_opt.fusion.context import PassContext, PassMemory
from hlo_opt.fusion.costs import CostOrReason, cost_of
from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.joining import Union, join, union_beside, union_of
from hlo_opt.ir import Instruction, Module, edit

RULE = "force"
"""The rule of a decision for an edge that the user forced."""


def chosen(decisions: Iterable[FusionDecision], edge: tuple[str, str]) -> FusionDecision | None:
    """The refused edge that two names mean, of instructions or of kernels. Of several, an edge between kernels of these
    names comes first, then one within a computation, then one in which the consumer reads the producer."""
    matches = [
        d for d in decisions if not d.fused and (_is(d, *edge) or (d.relation == "sibling" and _is(d, *edge[::-1])))
    ]

    def rank(d: FusionDecision) -> tuple[bool, bool, bool, bool]:
        are_kernels = {d.producer_kernel, d.consumer_kernel} == set(edge)
        return not are_kernels, d.relation == "across", d.relation == "sibling", not _is(d, *edge)

    return min(matches, key=rank, default=None)


def with_distinct_edges(decisions: Iterable[FusionDecision]) -> list[FusionDecision]:
    """The decisions with a `force` that means each alone: it joins its two kernels, not others that have parts of these
    names."""
    every = list(decisions)
    named: dict[tuple[str, str], list[FusionDecision]] = defaultdict(list)
    for d in every:
        if not d.fused:
            ends = set(itertools.product((d.producer, d.producer_kernel), (d.consumer, d.consumer_kernel)))
            if d.relation == "sibling":
                ends |= {(second, first) for first, second in ends}
            for edge in ends:
                named[edge].append(d)
    return [d if d.fused else replace(d, by_kernels=_means_others(d, named[d.producer, d.consumer])) for d in every]


def _means_others(decision: FusionDecision, alike: list[FusionDecision]) -> bool:
    edge = alike[0] if len(alike) == 1 else chosen(alike, (decision.producer, decision.consumer))
    assert edge is not None
    return {edge.producer_kernel, edge.consumer_kernel} != {decision.producer_kernel, decision.consumer_kernel}


def _is(decision: FusionDecision, producer: str, consumer: str) -> bool:
    return producer in (decision.producer, decision.producer_kernel) and consumer in (
        decision.consumer,
        decision.consumer_kernel,
    )


def _union(engine: Engine, decision: FusionDecision) -> Union | Reason:
    if decision.unpriced is not None:
        return decision.unpriced
    kernels = {i.name: i for c in engine.module.computations if c.name == decision.computation for i in c.instructions}
    union = union_beside if decision.relation == "sibling" else union_of
    return union(engine, kernels[decision.producer_kernel], kernels[decision.consumer_kernel])


def join_edge(module: Module, context: PassContext, decision: FusionDecision) -> Instruction | None:
    """Join both ends of a refused edge in place. Returns their kernel; None, with nothing changed, where no kernel can
    hold both. Raises ProofError where the joint kernel has no plan after all."""
    engine = Engine(module, context, RULE)
    union = _union(engine, decision)
    if isinstance(union, Reason):
        return None
    kernel = join(engine, union)
    if isinstance(kernel, Reason):
        raise ProofError(
            f"{decision.producer} and {decision.consumer} were planned as one kernel, but {kernel.message}"
        )
    engine.drop_orphans()
    edit.sort_computations(module)
    return kernel


def price_by_joining(module: Module, context: PassContext, decisions: Sequence[FusionDecision]) -> None:
    """Set the cost of each edge to the cost of joining its ends, which is done in a copy of the module. Edges without
    common kernels share a copy."""
    left = list(decisions)
    while left:
        copy = edit.clone_module(module)
        trial = PassContext(context.options, memory=PassMemory(context.memory.known))
        touched: set[tuple[str, str]] = set()
        later: list[FusionDecision] = []
        for place, decision in enumerate(left):
            ends = {(decision.computation, k) for k in (decision.producer_kernel, decision.consumer_kernel)}
            engine = Engine(copy, trial, RULE)
            union = None if touched & ends else _union(engine, decision)
            if isinstance(union, Union):
                touched |= ends
                decision.pricing.result = _joined(engine, union)
                if decision.unpriced is not None:  # the copy is spoilt
                    later += left[place + 1 :]
                    break
            elif touched:  # others in this copy are in the way
                later.append(decision)
        left = later


def _joined(engine: Engine, union: Union) -> CostOrReason:
    """The cost of joining, from the price of the joint kernel."""
    before = [engine.state.prices.of(kernel) for kernel in (union.producer, union.consumer)]
    fused_kernel = join(engine, union)
    if isinstance(fused_kernel, Reason):
        return fused_kernel
    after = Engine(engine.module, engine.context).state.prices.of(fused_kernel)
    return cost_of(before, [*before[:1] * union.copies, after], kept=union.copies)
