"""Edges that a run left, joined after all, in the finished module and with nothing else decided again: those that the
user forces, and the dearest, to say what they are worth."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from hlo_opt.diag import ProofError, Reason
from hlo_opt.fusion.context import Memory, PassContext
from hlo_opt.fusion.costs import Cost, cost_of
from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.joining import Union, join, union_beside, union_of
from hlo_opt.ir import Instruction, Module, edit

RULE = "force"
"""What decisions say fused an edge that the user forced."""


def chosen(decisions: Iterable[FusionDecision], edge: tuple[str, str]) -> FusionDecision | None:
    """The refused edge that two names mean, those of instructions or of kernels: of several one between kernels of
    these names, one within a computation, and one in which the consumer reads the producer, first."""
    found = [
        d for d in decisions if not d.fused and (_is(d, *edge) or (d.relation == "sibling" and _is(d, *edge[::-1])))
    ]

    def rank(d: FusionDecision) -> tuple[bool, bool, bool, bool]:
        are_kernels = {d.producer_kernel, d.consumer_kernel} == set(edge)
        return not are_kernels, d.relation == "across", d.relation == "sibling", not _is(d, *edge)

    return min(found, key=rank, default=None)


def told_apart(decisions: Iterable[FusionDecision]) -> list[FusionDecision]:
    """The same, where `force` of each means it: it joins its two kernels, no others that have parts of these names."""
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
    meant = alike[0] if len(alike) == 1 else chosen(alike, (decision.producer, decision.consumer))
    assert meant is not None
    return {meant.producer_kernel, meant.consumer_kernel} != {decision.producer_kernel, decision.consumer_kernel}


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
    """Join both ends of a refused edge, in place. Returns their kernel; None, and nothing has changed, where there can
    be none. Raises ProofError where the kernel has no plan after all."""
    engine = Engine(module, context, RULE)
    union = _union(engine, decision)
    if isinstance(union, Reason):
        return None
    made = join(engine, union)
    if isinstance(made, Reason):
        raise ProofError(f"{decision.producer} and {decision.consumer} were planned as one kernel, but {made.message}")
    edit.sort_computations(module)
    return made


def price_by_joining(module: Module, context: PassContext, decisions: Sequence[FusionDecision]) -> None:
    """Join the ends of each edge in a copy of the module, and set what the edge costs to what that gives. Edges without
    common kernels share a copy."""
    left = list(decisions)
    while left:
        copy = edit.clone_module(module)
        trial = PassContext(context.options, memory=Memory(context.memory.known))
        touched: set[tuple[str, str]] = set()
        later: list[FusionDecision] = []
        for place, decision in enumerate(left):
            ends = {(decision.computation, k) for k in (decision.producer_kernel, decision.consumer_kernel)}
            engine = Engine(copy, trial, RULE)
            union = None if touched & ends else _union(engine, decision)
            if isinstance(union, Union):
                touched |= ends
                decision.pricing.found = _joined(engine, union)
                if decision.unpriced is not None:  # the copy is spoilt
                    later += left[place + 1 :]
                    break
            elif touched:  # others in this copy are in the way
                later.append(decision)
        left = later


def _joined(engine: Engine, union: Union) -> Cost:
    """What joining costs, as the kernel is then."""
    before = [engine.state.prices.of(kernel) for kernel in (union.producer, union.consumer)]
    made = join(engine, union)
    if isinstance(made, Reason):
        return made
    after = Engine(engine.module, engine.context).state.prices.of(made)
    return cost_of(before, [*before[:1] * union.copies, after], kept=union.copies)
