"""Decisions: every edge between kernels, fused or left, with all reasons, both costs and both source lines. Edges
across loops, branches and calls, which no pass can fuse, are included."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Hashable, Iterable, Iterator
from functools import partial

from hlo_opt.analysis.graph.crossings import Crossing, Crossings
from hlo_opt.analysis.graph.loops import trip_count
from hlo_opt.analysis.graph.structure import edge_signature, signature
from hlo_opt.analysis.properties import inside
from hlo_opt.diag import Reason
from hlo_opt.fusion.choices import library_call
from hlo_opt.fusion.costs import beside_cost, member_cost
from hlo_opt.fusion.decision import CostEstimate, FusionDecision, Pricing
from hlo_opt.fusion.engine import Engine, reader_names
from hlo_opt.fusion.joining import Union, no_union_beside, no_union_of, union_beside, union_of, ways_between
from hlo_opt.fusion.legality import PLACE_CHECKS, Edge, illegal
from hlo_opt.fusion.outline import Origins, original_name
from hlo_opt.fusion.state import FusionState
from hlo_opt.ir import Computation, Instruction, Module
from hlo_opt.ir.walk import executed_computations
from hlo_opt.ops.sets import launches, looped, results_of, tuple_elements
from hlo_opt.passes.base import FusionPass, PassContext
from hlo_opt.passes.edges_left import BeforeJoining, EdgeLeft, edges_into, kernels_by_output
from hlo_opt.passes.pipeline import Pipeline
from hlo_opt.plans import block_search, grid_search
from hlo_opt.plans.lane_obstacle import Obstacle, obstacle
from hlo_opt.text.frames import source_location


class MemberCosts:
    """Costs of edges inside fusions. Edges whose instructions have equal signatures cost the same."""

    def __init__(self, state: FusionState) -> None:
        self._state = state
        self._signatures: dict[Instruction, Hashable] = {}
        self._costs: dict[Hashable, CostEstimate | None] = {}

    def of(self, producer: Instruction, consumer: Instruction) -> CostEstimate | None:
        key = edge_signature(producer, consumer, self._signature(producer), self._signature(consumer))
        if key not in self._costs:
            self._costs[key] = member_cost(self._state, producer, consumer)
        return self._costs[key]

    def beside(self, first: Instruction, second: Instruction) -> CostEstimate | None:
        """The cost of two instructions that do not read each other."""
        common = tuple(second.operands.index(o) if o in second.operands else -1 for o in first.operands)
        key = (common, self._signature(first), self._signature(second))
        if key not in self._costs:
            cost = beside_cost(self._state, first, second)
            self._costs[key] = None if isinstance(cost, Reason) else cost
        return self._costs[key]

    def _signature(self, instruction: Instruction) -> Hashable:
        known = self._signatures.get(instruction)
        if known is None:
            known = self._signatures[instruction] = signature(instruction)
        return known


def _cost(
    union: Callable[[Engine, Instruction, Instruction], Union | Reason],
    engine: Engine,
    one: Instruction,
    other: Instruction,
) -> CostEstimate | Reason:
    joint = union(engine, one, other)
    return joint if isinstance(joint, Reason) else joint.cost


def _pricing_of(engine: Engine, producer: Instruction, consumer: Instruction) -> Pricing:
    return Pricing(
        partial(_cost, union_of, engine, producer, consumer), partial(no_union_of, engine, producer, consumer)
    )


def _pricing_beside(engine: Engine, first: Instruction, second: Instruction) -> Pricing:
    return Pricing(partial(_cost, union_beside, engine, first, second), partial(no_union_beside, engine, first, second))


def decisive(reasons: list[Reason], pricing: Pricing, engine: Engine) -> list[Reason]:
    """The reasons, the decisive one first. If no kernel can hold both ends, the reason for that decides: then it does
    not matter whether one kernel would pay (FUS4xx), or was tried (FUS504)."""
    refusal = pricing.refusal
    if refusal is None:
        return reasons
    (first,) = engine.legal([refusal])
    first_reasons = [r for r in reasons if r.code == first.code] or [first]  # by the pass, with its own names
    return [
        *first_reasons,
        *(r for r in reasons if r.code not in (first.code, "FUS504") and not r.code.startswith("FUS4")),
    ]


def edges_across(consumer: Instruction, crossings: Crossings, engine: Engine) -> Iterator[FusionDecision]:
    """The decisions on the edges into a kernel whose producer is on another side of control flow."""
    module = engine.module
    seen: set[tuple[Instruction, Instruction, str, str]] = set()
    for operand in dict.fromkeys(consumer.operands):
        crossed = crossings.of(operand)
        if not crossed:
            continue
        through = engine.edge(operand, consumer)
        reader = next(iter(reader_names(through)), through.consumer_name)
        member = member_named(consumer, reader, engine.origins)
        for crossing in crossed:
            key = (crossing.producer, crossing.control, crossing.way, reader)
            if key in seen:
                continue
            seen.add(key)
            written = _crossed(crossing)
            name = original_name(written, engine.origins)
            refused = list(engine.legal([_reason(crossing, name, reader, engine)]))
            yield FusionDecision(
                producer=name,
                consumer=reader,
                computation=consumer.computation.name,
                producer_opcode=written.opcode,
                consumer_opcode=member.opcode,
                rule="legality",
                reasons=tuple(refused),
                pricing=Pricing(refused.pop),
                producer_source=source_location(module, written) or source_location(module, crossing.producer),
                consumer_source=source_location(module, member) or source_location(module, consumer),
                producer_kernel=crossing.producer.name,
                consumer_kernel=consumer.name,
                relation="across",
            )


def _reason(crossing: Crossing, producer: str, consumer: str, engine: Engine) -> Reason:
    control, size = crossing.control, crossing.shape.byte_size
    ends = {"producer": producer, "consumer": consumer}
    if looped(control) is None:
        return Reason.of("FUS112", **ends, control=control.name, opcode=control.opcode, bytes=size)
    count = trip_count(control, engine.context.options.trip_counts)
    rounds = "a number of iterations known at run time only" if count is None else f"{count} iterations"
    key = ("what keeps its iterations from being one kernel", control)
    if key not in engine.notes:
        module, target = engine.module, engine.context.options.target
        fits = block_search.fits(module, control) or grid_search.fits(module, control, target)
        engine.notes[key] = _obstacle_phrase(Obstacle(has_plan=True) if fits else obstacle(module, control))
    kept_by: str = engine.notes[key]
    return Reason.of("FUS111", **ends, loop=control.name, way=crossing.way, rounds=rounds, bytes=size, kept_by=kept_by)


def _obstacle_phrase(obstacle: Obstacle) -> str:
    """The obstacle that keeps the iterations of a loop from being one kernel, as part of a sentence."""
    if obstacle.instruction is not None:
        return (
            f"`{obstacle.instruction.name}` ({obstacle.instruction.opcode}) keeps its iterations from being one kernel"
        )
    return "`while-fusion` makes one kernel of all iterations, where that pays"


def _crossed(crossing: Crossing) -> Instruction:
    """The instruction whose value crosses control flow: of a kernel with several outputs, the member behind one of
    them."""
    value, path = crossing.producer, crossing.path
    while (body := inside(value)) is not None:
        value = body.root
        while elements := tuple_elements(value):
            index, path = (path[0], path[1:]) if path else (0, ())
            value = elements[index]
    return value


def member_named(consumer: Instruction, reader: str, origins: Origins) -> Instruction:
    """The instruction with a name inside the consumer; the consumer itself when none has it."""
    body = inside(consumer)
    members = () if body is None else body.instructions
    return next((m for m in members if origins.get(m, m.name) == reader), consumer)


def decisions(
    module: Module,
    pipeline: Pipeline,
    context: PassContext,
    kernels: Container[str] | None = None,
    *,
    siblings: bool = True,
) -> list[FusionDecision]:
    """All edges, in the order of the computations: edges inside fusions as fused, edges between launches with the
    reasons that keep them. With `kernels` only the edges into and inside of these (by the names of the instructions
    that launch them); without `siblings` no edges between kernels that do not read each other."""
    fusers = list(dict.fromkeys(p for p in pipeline.passes() if isinstance(p, FusionPass)))
    joiners = [
        f for n, f in enumerate(fusers) if not any(g.takes_any_form and g.kind == f.kind for g in fusers[n + 1 :])
    ]
    all_decisions: list[FusionDecision] = []
    engine = Engine(module, context)
    seen: set[tuple[str, str]] = set()
    costs = MemberCosts(engine.state)
    crossings = Crossings(module)
    before = BeforeJoining.of(context)
    for computation in executed_computations(module):
        for instruction in computation.instructions:
            if kernels is not None and instruction.name not in kernels:
                continue
            if inside(instruction) is not None:
                all_decisions.extend(_inside(instruction, computation, context, seen, costs))
            if launches(instruction):
                all_decisions.extend(_left(instruction, engine, fusers, context, before))
                all_decisions.extend(edges_across(instruction, crossings, engine))
        for fuser in joiners if siblings else ():
            all_decisions.extend(_apart(computation, engine, fuser, before))
    return all_decisions


def _inside(
    fusion: Instruction, computation: Computation, context: PassContext, seen: set[tuple[str, str]], costs: MemberCosts
) -> Iterator[FusionDecision]:
    """The edges of the input that are inside a fusion now, and its siblings: outputs that do not read each other. An
    instruction that was copied into several fusions is reported once."""
    module = computation.module
    assert module is not None
    body = fusion.called_by("calls")
    members = [m for held_in in _computations_in(body) for m in held_in.instructions if launches(m)]
    pairs = [(o, m, False) for m in members for o in m.operands if launches(o)]
    outputs = [o for o in tuple_elements(body.root) or () if launches(o)]
    for first, second in itertools.pairwise(outputs):
        if first not in second.operands and second not in first.operands:
            pairs.append((first, second, True))
    for first, second, is_sibling in pairs:
        names = (original_name(first, context.origins), original_name(second, context.origins))
        if names in seen or (is_sibling and names[0] == names[1]):
            continue
        seen.add(names)
        yield FusionDecision(
            producer=names[0],
            consumer=names[1],
            computation=computation.name,
            producer_opcode=first.opcode,
            consumer_opcode=second.opcode,
            rule=context.fused_by.get(names[1] if is_sibling else names[0], "input"),
            pricing=Pricing(partial(costs.beside if is_sibling else costs.of, first, second)),
            producer_source=source_location(module, first),
            consumer_source=source_location(module, second),
            producer_kernel=fusion.name,
            consumer_kernel=fusion.name,
            relation="sibling" if is_sibling else "operand",
        )


def _computations_in(body: Computation) -> Iterator[Computation]:
    """The computation of a fusion, and those that loops in it run."""
    yield body
    for instruction in body.instructions:
        if looped(instruction) is not None:
            for called in instruction.called():
                yield from _computations_in(called)


def _left(
    consumer: Instruction,
    engine: Engine,
    fusers: list[FusionPass],
    context: PassContext,
    before: BeforeJoining | None,
) -> Iterator[FusionDecision]:
    module, computation = engine.module, consumer.computation
    then = None if before is None else before.computation(computation)
    for left in edges_into(consumer, engine):
        producer, written = left.edge.producer, left.written
        member = member_named(consumer, left.reader, engine.origins)
        earlier = None if before is None or then is None else before.edge(then, left)
        verdict = (
            None if earlier is None or before is None else _reasons_and_pricing(earlier, before.engine, fusers, context)
        )
        if verdict is None or all(r.code in NOT_REFUSED for r in _all_of(verdict[0])):
            by_pass, rule, pricing = _reasons_and_pricing(left, engine, fusers, context)
            reasons = decisive(_all_of(by_pass), pricing, engine)
        else:
            assert before is not None
            by_pass, rule, pricing_then = verdict
            now = _pricing_of(engine, producer, consumer)
            reasons, pricing = _of_both(by_pass, pricing_then, now, before.engine)
        yield FusionDecision(
            producer=left.names[0],
            consumer=left.names[1],
            computation=computation.name,
            producer_opcode=_root(written).opcode,
            consumer_opcode=member.opcode,
            rule=rule,
            reasons=tuple(reasons),
            pricing=pricing,
            producer_source=source_location(module, written) or source_location(module, producer),
            consumer_source=source_location(module, member) or source_location(module, consumer),
            producer_kernel=producer.name,
            consumer_kernel=consumer.name,
            by_pass=tuple(map(tuple, by_pass)),
        )


NOT_REFUSED = frozenset({"FUS503", "FUS504"})
"""The reasons of an edge that no pass refuses: what its kernels became later refuses it."""


def _reasons_and_pricing(
    left: EdgeLeft, engine: Engine, fusers: list[FusionPass], context: PassContext
) -> tuple[list[list[Reason]], str, Pricing]:
    """The reasons of each pass against an edge, the names of those passes, and the cost of the edge."""
    by_pass, rule = _reasons(left.edge, left.through, engine, fusers, context)
    return by_pass, rule, _pricing_of(engine, left.edge.producer, left.edge.consumer)


def _all_of(by_pass: Iterable[Iterable[Reason]]) -> list[Reason]:
    return _unique(itertools.chain.from_iterable(by_pass))


def _of_both(by_pass: list[list[Reason]], then: Pricing, now: Pricing, engine: Engine) -> tuple[list[Reason], Pricing]:
    """The reasons against an edge whose ends were joined with other kernels later, and its cost now. The reason that
    kept the ends apart comes first: that the joint kernels cannot be one is only its consequence."""
    refusal = now.refusal
    if refusal is None:
        return _all_of(by_pass), now
    if then.refusal is not None:
        return decisive(_all_of(by_pass), then, engine), then
    first = min(by_pass, key=len)
    return _unique([*first, *itertools.chain.from_iterable(by_pass), *engine.legal([refusal])]), now


def _apart(
    computation: Computation, engine: Engine, fuser: FusionPass, before: BeforeJoining | None
) -> Iterator[FusionDecision]:
    """Neighbours that do not read each other, with the reasons of a pass against joining them. If the pass ran before
    kernels were joined horizontally, its reasons are about the kernels as they were then."""
    module = engine.module
    then = None if before is None or fuser.kind == "horizontal" else before.computation(computation)
    kernels = None if then is None else kernels_by_output(computation, engine.origins)
    judge = engine if before is None or then is None else before.engine
    for refusal in fuser.sibling_refusals(judge, computation if then is None else then):
        reasons = _unique(refusal.reasons)
        first, second = refusal.first, refusal.second
        if not reasons:  # they could be one: the pass stopped before it came to them
            continue
        names = original_name(first, judge.origins), original_name(second, judge.origins)
        one, other = (first, second) if kernels is None else (kernels.get(name) for name in names)
        if one is None or other is None or one is other:  # joined since
            continue
        if ways_between(first, second) or ways_between(second, first):  # no siblings: the edge is reported
            continue
        pricing = _pricing_beside(engine, one, other)
        if judge is engine:
            reasons = decisive(reasons, pricing, engine)
        else:
            pricing_then = _pricing_beside(judge, first, second)
            reasons, pricing = _of_both([reasons], pricing_then, pricing, judge)
        yield FusionDecision(
            producer=names[0],
            consumer=names[1],
            computation=computation.name,
            producer_opcode=_root(first).opcode,
            consumer_opcode=_root(second).opcode,
            rule=fuser.name,
            reasons=tuple(reasons),
            pricing=pricing,
            producer_source=source_location(module, first) or source_location(module, _root(first)),
            consumer_source=source_location(module, second) or source_location(module, _root(second)),
            producer_kernel=one.name,
            consumer_kernel=other.name,
            relation="sibling",
        )


def _reasons(
    edge: Edge, through: Edge, engine: Engine, fusers: list[FusionPass], context: PassContext
) -> tuple[list[list[Reason]], str]:
    """The reasons of each pass against an edge, and the names of those passes."""
    if through.producer is not edge.producer:
        place_reasons = _unique(illegal(edge, engine.disabled, PLACE_CHECKS))
        library = library_call(edge)
        if library is not None and library.code not in engine.disabled:
            place_reasons.append(library)
        if place_reasons:
            return [_unique(place_reasons)], "legality"
    responsible = [f for f in fusers if f.looks_at(through)]
    # Of each kind of pass the last that takes edges like this one has the last word; those before it would have fused
    # on its terms.
    by_pass, rules, willing = [], [], []
    for kind in dict.fromkeys(f.kind for f in responsible):
        for fuser in reversed([f for f in responsible if f.kind == kind]):
            reasons = _unique(fuser.refusals(engine, through))
            if reasons:
                by_pass.append(reasons)
                rules.append(fuser.name)
                break
        else:
            willing += [f.name for f in responsible if f.kind == kind]
    ends = {"producer": edge.producer_name, "consumer": edge.consumer_name}
    if willing:
        by_pass.append([_was_done(willing, ends, context)])
        rules.append("stop-after-step" if context.exhausted else "pipeline")
    if by_pass:
        return by_pass, ", ".join(rules)
    return [[Reason.of("FUS503", **ends)]], "pipeline"


def _was_done(passes: list[str], ends: dict[str, str], context: PassContext) -> Reason:
    """Why passes left an edge that they have no reason against."""
    if context.exhausted:
        return Reason.of("FUS502", limit=context.options.stop_after_step or 0)
    return Reason.of("FUS504", passes=", ".join(dict.fromkeys(passes)), **ends)


def _unique(reasons: Iterable[Reason]) -> list[Reason]:
    distinct: list[Reason] = []
    for reason in reasons:
        if not reason.is_among(distinct):
            distinct.append(reason)
    return distinct


def _root(instruction: Instruction) -> Instruction:
    """The last instruction of a kernel; of a kernel with several outputs, the first output."""
    while (body := inside(instruction)) is not None:
        instruction = next(iter(results_of(body)), body.root)
    return instruction
