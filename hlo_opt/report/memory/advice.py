"""What would lower the peak: fusing what is stored between two kernels, another order, inputs given away. Each is
tried: the peak is that of the module so changed. Only what XLA would do and kernels of ours do not, an elementwise
result in the memory of an operand, is told from lifetimes alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.ir import Attribute, Computation, Instruction, Module, edit
from hlo_opt.passes import ExplainReport
from hlo_opt.passes.forcing import join_edge
from hlo_opt.passes.run import collector_paused
from hlo_opt.report.memory.timeline import Moment, moment_of
from hlo_opt.report.sentences import sentence
from hlo_opt.runtime.schedule import build_schedule
from hlo_opt.text.aliases import aliased_leaves

MOST_EDGES = 6
"""Edges that are joined to see what that does to the peak."""

MOST_ORDERED = 4_000
"""Instructions of an entry that another order is looked for of: the search takes the square of their number at the
worst."""


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


def advice(report: ExplainReport, now: Moment) -> list[Advice]:
    """What lowers the peak of the fused module, the most first."""
    ways = [*_by_fusion(report, now), *_by_order(report, now), *_by_donation(report, now)]
    return sorted(ways, key=lambda a: (-a.saves, a.kind, a.what))


def _by_fusion(report: ExplainReport, now: Moment) -> Iterator[Advice]:
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
            saved = now.bytes - moment_of(build_schedule(joined, report.outcome.target)).bytes
        if saved > 0:
            yield Advice("fusion", f"--force {decision.producer}:{decision.consumer}", saved, sentence(decision))


def _by_order(report: ExplainReport, now: Moment) -> Iterator[Advice]:
    """Run what frees most first."""
    module, target = report.outcome.module, report.outcome.target
    if len(module.entry.instructions) > MOST_ORDERED:
        return
    ordered = edit.clone_module(module)
    edit.arrange(ordered.entry, least_first(ordered.entry))
    saved = now.bytes - moment_of(build_schedule(ordered, target)).bytes
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


def _by_donation(report: ExplainReport, now: Moment) -> Iterator[Advice]:
    """Give away each input that is as large as a result which no input is given for."""
    module, target = report.outcome.module, report.outcome.target
    donated = aliased_leaves(module)
    inputs = [(p, n, leaf) for p in module.entry.parameters for n, leaf in enumerate(p.shape.leaves())]
    results = list(module.entry.root.shape.leaves())
    free = [r for r in range(len(results)) if r not in donated.values()]
    for leaf, (parameter, place, shape) in enumerate(inputs):
        result = next((r for r in free if results[r] == shape), None)
        if leaf in donated or result is None:
            continue
        saved = now.bytes - _peak_if_donated(module, target, parameter, place, result)
        if saved > 0:
            free.remove(result)
            yield Advice("donation", _donating(parameter, result), saved)


def _donating(parameter: Instruction, result: int) -> str:
    return f"jax.jit(..., donate_argnums=({parameter.parameter_number},)): `{parameter.name}`, for result {result}"


def _peak_if_donated(module: Module, target: DeviceTarget, parameter: Instruction, place: int, result: int) -> int:
    """The peak where an input's memory may be that of a result."""
    copy = edit.clone_module(module)
    name = "input_output_alias"
    old = copy.attributes[name].text.strip()[1:-1].strip() if name in copy.attributes else ""
    index = "" if parameter.shape.is_array else place
    output = result if copy.entry.root.shape.is_tuple else ""
    entry = f"{{{output}}}: ({parameter.parameter_number}, {{{index}}}, may-alias)"
    edit.set_header(copy, name, Attribute(f"{{ {old + ', ' if old else ''}{entry} }}"))
    return moment_of(build_schedule(copy, target)).bytes
