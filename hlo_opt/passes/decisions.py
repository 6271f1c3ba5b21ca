"""Every edge between kernels, fused or left, with all reasons, both costs and both source lines."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterator

from hlo_opt.analysis.graph.crossings import Crossings
from hlo_opt.analysis.properties import is_boundary_fusion
from hlo_opt.diag import Reason
from hlo_opt.fusion.choices import library_call
from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.fusion.engine import Engine, reader_names
from hlo_opt.fusion.legality import PLACE_CHECKS, Edge, illegal
from hlo_opt.fusion.outline import original_name
from hlo_opt.ir import Computation, Instruction, Module
from hlo_opt.ir.walk import executed_computations
from hlo_opt.ops.sets import launches
from hlo_opt.passes.base import PassContext
from hlo_opt.passes.boundaries import edges_across, member_named
from hlo_opt.passes.costs import HANDS_ON, MemberCosts, edge_cost, joint_cost
from hlo_opt.passes.fusion_pass import FusionPass
from hlo_opt.passes.pipeline import Pipeline
from hlo_opt.text.frames import source_location


def decisions(
    module: Module,
    pipeline: Pipeline,
    context: PassContext,
    kernels: Container[str] | None = None,
    *,
    siblings: bool = True,
) -> list[FusionDecision]:
    """All edges, in the order of the computations: those inside fusions as fused, those between launches with the reasons that keep them. With `kernels`
    only the edges into and inside of these (by the names of the instructions that launch them); without `siblings` none between kernels that do not read each other.
    """
    fusers = list(dict.fromkeys(p for p in pipeline.passes() if isinstance(p, FusionPass)))
    found: list[FusionDecision] = []
    engine = Engine(module, context)
    seen: set[tuple[str, str]] = set()
    costs = MemberCosts(engine.state)
    crossings = Crossings(module)
    for computation in executed_computations(module):
        for instruction in computation.instructions:
            if kernels is not None and instruction.name not in kernels:
                continue
            if instruction.opcode == "fusion" and not is_boundary_fusion(instruction):
                found.extend(_fused(instruction, computation, context, seen, costs))
                found.extend(_joined(instruction, computation, context, seen, costs))
            if launches(instruction):
                found.extend(_left(instruction, computation, engine, fusers, context))
                found.extend(edges_across(instruction, crossings, engine))
        for fuser in fusers if siblings else ():
            found.extend(_apart(computation, engine, fuser))
    return found


def _fused(
    fusion: Instruction,
    computation: Computation,
    context: PassContext,
    seen: set[tuple[str, str]],
    costs: MemberCosts,
) -> Iterator[FusionDecision]:
    """The edges of the input that ended inside a fusion; one that was copied into several fusions is told once."""
    module = computation.module
    assert module is not None
    for member in fusion.called_by("calls").instructions:
        if not launches(member):
            continue
        for operand in member.operands:
            if not launches(operand):
                continue
            names = (original_name(operand, context.origins), original_name(member, context.origins))
            if names in seen:
                continue
            seen.add(names)
            yield FusionDecision(
                producer=names[0],
                consumer=names[1],
                computation=computation.name,
                producer_opcode=operand.opcode,
                consumer_opcode=member.opcode,
                rule=context.fused_by.get(names[0], "input"),
                cost=costs.of(operand, member),
                producer_source=source_location(module, operand),
                consumer_source=source_location(module, member),
                producer_kernel=fusion.name,
                consumer_kernel=fusion.name,
            )


def _joined(
    fusion: Instruction,
    computation: Computation,
    context: PassContext,
    seen: set[tuple[str, str]],
    costs: MemberCosts,
) -> Iterator[FusionDecision]:
    """Neighbours among the outputs of a kernel that do not read each other: siblings that became one."""
    module = computation.module
    assert module is not None
    root = fusion.called_by("calls").root
    if root.opcode != "tuple":
        return
    outputs = [o for o in root.operands if launches(o)]
    for first, second in itertools.pairwise(outputs):
        names = (original_name(first, context.origins), original_name(second, context.origins))
        if first in second.operands or second in first.operands or names in seen or names[0] == names[1]:
            continue
        seen.add(names)
        yield FusionDecision(
            producer=names[0],
            consumer=names[1],
            computation=computation.name,
            producer_opcode=first.opcode,
            consumer_opcode=second.opcode,
            rule=context.fused_by.get(names[1], "input"),
            cost=costs.beside(first, second),
            producer_source=source_location(module, first),
            consumer_source=source_location(module, second),
            producer_kernel=fusion.name,
            consumer_kernel=fusion.name,
            relation="sibling",
        )


def _left(
    consumer: Instruction,
    computation: Computation,
    engine: Engine,
    fusers: list[FusionPass],
    context: PassContext,
) -> Iterator[FusionDecision]:
    module = engine.module
    seen: set[tuple[str, str]] = set()
    for operand in dict.fromkeys(consumer.operands):
        producer = operand
        while producer.opcode in HANDS_ON and producer.operands:
            producer = producer.operands[0]
        if not launches(producer):
            continue
        edge = engine.edge(producer, consumer)
        through = engine.edge(operand, consumer)
        reader = _reader(through)
        member = member_named(consumer, reader, engine.origins)
        written = _written(producer, operand)
        names = (original_name(written, engine.origins), reader or edge.consumer_name)
        if names in seen:  # two elements of one operation's result
            continue
        seen.add(names)
        reasons, rule = _reasons(edge, through, engine, fusers, context)
        yield FusionDecision(
            producer=names[0],
            consumer=names[1],
            computation=computation.name,
            producer_opcode=_root(written).opcode,
            consumer_opcode=member.opcode,
            rule=rule,
            reasons=tuple(reasons),
            cost=edge_cost(edge, through, engine),
            producer_source=source_location(module, written) or source_location(module, producer),
            consumer_source=source_location(module, member) or source_location(module, consumer),
            producer_kernel=producer.name,
            consumer_kernel=consumer.name,
        )


def _apart(computation: Computation, engine: Engine, fuser: FusionPass) -> Iterator[FusionDecision]:
    """Neighbours that do not read each other, and could be one kernel but for what a pass has against it."""
    for refusal in fuser.sibling_refusals(engine, computation):
        reasons = _unique(refusal.reasons)
        first, second = refusal.first, refusal.second
        if not reasons:  # they could be one: the pass stopped before it came to them
            continue
        yield FusionDecision(
            producer=original_name(first, engine.origins),
            consumer=original_name(second, engine.origins),
            computation=computation.name,
            producer_opcode=_root(first).opcode,
            consumer_opcode=_root(second).opcode,
            rule=fuser.name,
            reasons=tuple(reasons),
            cost=joint_cost(engine.state.priced(first), engine.state.priced(second)),
            producer_source=source_location(engine.module, first) or source_location(engine.module, _root(first)),
            consumer_source=source_location(engine.module, second) or source_location(engine.module, _root(second)),
            producer_kernel=first.name,
            consumer_kernel=second.name,
            relation="sibling",
        )


def _reasons(
    edge: Edge, through: Edge, engine: Engine, fusers: list[FusionPass], context: PassContext
) -> tuple[list[Reason], str]:
    if through.producer is not edge.producer:
        found = _unique(illegal(edge, engine.disabled, PLACE_CHECKS))
        library = library_call(edge)
        if library is not None and library.code not in engine.disabled:
            found.append(library)
        if found:
            return found, "legality"
    responsible = [f for f in fusers if f.looks_at(through)]
    # Of each kind of pass the last that takes edges like this one has the last word; those before it would have fused on its terms.
    found, rules = [], []
    for kind in dict.fromkeys(f.kind for f in responsible):
        for fuser in reversed([f for f in responsible if f.kind == kind]):
            reasons = _unique(fuser.refusals(engine, through))
            if reasons:
                found += reasons
                rules.append(fuser.name)
                break
    if found:
        return _unique(found), ", ".join(rules)
    if context.exhausted and responsible:
        return [Reason.of("FUS502", limit=context.options.stop_after_step or 0)], "stop-after-step"
    if responsible:
        names = ", ".join(dict.fromkeys(f.name for f in responsible))
        ends = {"producer": edge.producer_name, "consumer": edge.consumer_name}
        return [Reason.of("FUS504", passes=names, **ends)], "pipeline"
    return [Reason.of("FUS503", producer=edge.producer_name, consumer=edge.consumer_name)], "pipeline"


def _unique(reasons: Iterator[Reason] | list[Reason]) -> list[Reason]:
    found: dict[str, Reason] = {}
    for reason in reasons:
        found.setdefault(str(reason), reason)
    return list(found.values())


def _root(instruction: Instruction) -> Instruction:
    """What a kernel computes last; of a kernel with several outputs, the first of them."""
    while instruction.opcode == "fusion" and not is_boundary_fusion(instruction):
        instruction = instruction.called_by("calls").root
        if instruction.opcode == "tuple" and instruction.operands:
            instruction = instruction.operands[0]
    return instruction


def _written(producer: Instruction, operand: Instruction) -> Instruction:
    """What computes the value that an operand is: of a kernel with several outputs, the member behind the element that the operand takes."""
    if producer.opcode != "fusion" or is_boundary_fusion(producer):
        return producer
    root = producer.called_by("calls").root
    while operand.opcode != "get-tuple-element" and operand is not producer and operand.operands:
        operand = operand.operands[0]
    if root.opcode != "tuple" or operand.opcode != "get-tuple-element" or operand.operands[0] is not producer:
        return producer
    return root.operands[operand.attribute("index", int)]


def _reader(edge: Edge) -> str:
    """The first member of the consumer that reads the producer; empty when none does."""
    return next(iter(reader_names(edge)), "")
