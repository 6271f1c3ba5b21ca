"""What would lower the peak: fusing what is stored between two kernels, another order, inputs given away. Each is
tried: the peak is that of the module so changed. Only what XLA would do and kernels of ours do not, an elementwise
result in the memory of an operand, is told from lifetimes alone."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.ir import Computation, Instruction, Module, Shape, edit
from hlo_opt.passes import ExplainReport
from hlo_opt.passes.forcing import join_edge
from hlo_opt.passes.run import collector_paused
from hlo_opt.report.donating import donation_of
from hlo_opt.report.memory.timeline import Moment, moment_of
from hlo_opt.report.sentences import sentence
from hlo_opt.runtime.schedule import EmittedKernels, build_schedule
from hlo_opt.runtime.schedule.lifetimes import buffer_bytes
from hlo_opt.text.aliases import aliased_leaves, give_away

LEAST_SAVED = 1e-3
"""The share of the peak that a way must save to be told."""

MOST_EDGES = 6
"""Edges that are joined to see what that does to the peak."""

MOST_DONATIONS = 6
"""Inputs that are given away one by one to see what that does to the peak."""

MOST_ORDERED = 4_000
"""The most instructions of an entry for which another order is searched: the search takes time quadratic in their
number at worst."""


@dataclass(frozen=True)
class Advice:
    """One way to a lower peak, and how many bytes it lowers it by.

    kind     `fusion`, `order` or `donation`
    what     what to do, in words
    why      why it is not so now; empty where nothing says it
    """

    kind: str
    what: str
    saves: int
    why: str = ""


def advice(report: ExplainReport, now: Moment, emitted: EmittedKernels | None = None) -> list[Advice]:
    """What lowers the peak of the fused module by a share worth telling, the most first. `emitted` are kernels of the
    run's modules that are known (`build_schedule`)."""
    ways = [*_by_fusion(report, now, emitted), *_by_order(report, now, emitted), *_by_donation(report, now, emitted)]
    worth = [way for way in ways if way.saves >= LEAST_SAVED * now.bytes]
    return sorted(worth, key=lambda a: (-a.saves, a.kind, a.what))


def _by_fusion(report: ExplainReport, now: Moment, emitted: EmittedKernels | None) -> Iterator[Advice]:
    """Join kernels that store a temporary for each other, one edge at a time."""
    module, context = report.outcome.module, report.outcome.context
    stored = {h.maker.name: h.bytes for h in now.holders if h.kind == "temporaries"}
    edges: dict[tuple[str, str], FusionDecision] = {}
    for decision in sorted(report.refused, key=lambda d: -stored.get(d.producer_kernel, 0)):
        if decision.producer_kernel in stored and decision.relation == "operand" and len(edges) < MOST_EDGES:
            edges.setdefault((decision.producer_kernel, decision.consumer_kernel), decision)
    for decision in edges.values():
        with collector_paused():
            joined = edit.clone_module(module)
            if decision.unpriced is not None or join_edge(joined, context, decision) is None:
                continue
            saved = now.bytes - moment_of(build_schedule(joined, report.outcome.target, emitted)).bytes
        if saved > 0:
            yield Advice("fusion", f"--force {decision.producer}:{decision.consumer}", saved, sentence(decision))


def _by_order(report: ExplainReport, now: Moment, emitted: EmittedKernels | None) -> Iterator[Advice]:
    """Run what frees most first."""
    module, target = report.outcome.module, report.outcome.target
    if len(module.entry.instructions) > MOST_ORDERED:
        return
    ordered = edit.clone_module(module)
    edit.arrange(ordered.entry, least_first(ordered.entry))
    saved = now.bytes - moment_of(build_schedule(ordered, target, emitted)).bytes
    if saved > 0:
        yield Advice("order", "run kernels in another order: first what frees more than it makes", saved)


def least_first(computation: Computation) -> list[Instruction]:
    """The instructions, operands first, so that each time that is next which lowers memory most, or raises it least;
    equals as they were."""
    sizes = {i: i.shape.byte_size if not i.shape.is_tuple else 0 for i in computation.instructions}
    waits = {i: len({*i.operands, *i.control_predecessors}) for i in computation.instructions}
    left = {i: len(i.users) for i in computation.instructions}
    after: dict[Instruction, list[Instruction]] = {i: list(dict.fromkeys(i.users)) for i in computation.instructions}
    for instruction in computation.instructions:
        for needed in instruction.control_predecessors:
            if instruction not in after[needed]:
                after[needed].append(instruction)
    ready = {i: n for n, i in enumerate(computation.instructions) if not waits[i]}
    places = {i: n for n, i in enumerate(computation.instructions)}
    order: list[Instruction] = []

    def grows(instruction: Instruction) -> int:
        freed = sum(sizes[o] for o in dict.fromkeys(instruction.operands) if left[o] == 1)
        return sizes[instruction] - freed

    while ready:
        best = min(ready, key=lambda i: (grows(i), places[i]))
        del ready[best]
        order.append(best)
        for operand in dict.fromkeys(best.operands):
            left[operand] -= 1
        for user in after[best]:
            waits[user] -= 1
            if not waits[user]:
                ready[user] = places[user]
    return order


def _by_donation(report: ExplainReport, now: Moment, emitted: EmittedKernels | None) -> Iterator[Advice]:
    """Give away each input that is as large as a result which no input is given for: the largest alone, and all of them
    together. An input whose result is not alive at the peak cannot lower it alone."""
    module, target = report.outcome.module, report.outcome.target
    gifts = _gifts(module)
    stored = {h.bytes for h in now.holders if h.kind in ("results", "temporaries")}
    alone = [gift for gift in gifts if buffer_bytes(gift.shape) in stored]
    for gift in sorted(alone, key=lambda g: -buffer_bytes(g.shape))[:MOST_DONATIONS]:
        saved = now.bytes - _peak_if_donated(module, target, [gift], emitted)
        if saved > 0:
            what = f"{donation_of([gift.parameter])}: `{gift.parameter.name}`, for result {gift.result}"
            yield Advice("donation", what, saved)
    if len(gifts) > 1:
        saved = now.bytes - _peak_if_donated(module, target, gifts, emitted)
        if saved > 0:
            every = f"each of these {len(gifts)} inputs for a result of its shape"
            yield Advice("donation", f"{donation_of([g.parameter for g in gifts])}: {every}", saved)


@dataclass(frozen=True)
class _Gift:
    """An input that may be given away, by the number of the array among all of the parameters, and the result, by its
    number, whose memory it could be."""

    parameter: Instruction
    leaf: int
    result: int
    shape: Shape


def _gifts(module: Module) -> list[_Gift]:
    """The inputs that are not given away, each with the first result of its shape that is free."""
    donated = aliased_leaves(module)
    inputs = [(p, leaf) for p in module.entry.parameters for leaf in p.shape.leaves()]
    free: dict[Shape, deque[int]] = defaultdict(deque)
    for result, shape in enumerate(module.entry.root.shape.leaves()):
        if result not in donated.values():
            free[shape].append(result)
    return [
        _Gift(parameter, number, free[shape].popleft(), shape)
        for number, (parameter, shape) in enumerate(inputs)
        if number not in donated and free[shape]
    ]


def _peak_if_donated(
    module: Module, target: DeviceTarget, gifts: Sequence[_Gift], emitted: EmittedKernels | None
) -> int:
    """The peak where the memory of inputs may be that of results."""
    copy = edit.clone_module(module)
    give_away(copy, ((gift.leaf, gift.result) for gift in gifts))
    return moment_of(build_schedule(copy, target, emitted)).bytes
