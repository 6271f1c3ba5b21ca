"""Can this edge be fused and stay right? Structure, side effects, lowering, resources; each check gives a Reason or
None.

Whether fusing is worth it is decided in `choices`; nothing there can make a program wrong.
Sources: xla/service/instruction_fusion.cc, xla/service/gpu/gpu_fusible.cc.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from hlo_opt.analysis.graph.cluster import Cluster, merge_clusters
from hlo_opt.analysis.properties import has_side_effect, is_boundary_fusion
from hlo_opt.diag import Reason
from hlo_opt.fusion.outline import Origins, original_name
from hlo_opt.fusion.state import FusionState
from hlo_opt.fusion.traits import Traits
from hlo_opt.ir import Instruction
from hlo_opt.ops.sets import fused
from hlo_opt.plans.code_size import surely_within_limits
from hlo_opt.plans.limits import DEEPEST, LARGEST, computes_at_once
from hlo_opt.plans.sketch import Sketch

MAX_OPERANDS_AND_OUTPUTS = 96
MAX_REDUCTIONS = 8
MAX_CODE_SIZE = 10_000
"""Operations that a merged kernel may emit (kMaxIRSize in xla/service/gpu/model/gpu_hlo_cost_analysis.h)."""

NEVER_SWITCHED_OFF = frozenset({"FUS102", "FUS103", "FUS104", "FUS105", "FUS611"})
"""Rules without which the outlined program could be wrong: switching one off gives another refusal."""


@dataclass(eq=False)
class Edge:
    """A producer and a consumer that reads it, with what the checks share."""

    producer: Instruction
    consumer: Instruction
    state: FusionState
    origins: Origins = field(default_factory=dict)
    _merged: Sketch | Reason | None = None
    _above: Traits | None = None
    _below: Traits | None = None

    @property
    def producer_name(self) -> str:
        return original_name(self.producer, self.origins)

    @property
    def consumer_name(self) -> str:
        return original_name(self.consumer, self.origins)

    @property
    def above(self) -> Traits:
        """What the producer's members add up to."""
        if self._above is None:
            self._above = self.state.traits(self.producer)
        return self._above

    @property
    def below(self) -> Traits:
        """What the consumer's members add up to."""
        if self._below is None:
            self._below = self.state.traits(self.consumer)
        return self._below

    @property
    def duplicates(self) -> bool:
        """Whether the producer stays, because others use it or it is the computation's result."""
        return len(self.producer.users) > 1 or self.producer.is_root

    @property
    def merged(self) -> Sketch | Reason:
        """What the plan of both as one kernel would be."""
        if self._merged is None:
            structure = self.state.structure_of_both(self.producer, self.consumer)
            self._merged = self.state.sketch(structure, self._cluster)
        return self._merged

    @property
    def is_surely_planned(self) -> bool:
        """Whether both as one kernel have a plan, as far as that is seen without it. Kernels can compute both. Plans
        of few members take little time, and most are made sooner or later."""
        if self.above.members + self.below.members <= DEEPEST:
            return False
        state = self.state
        return surely_within_limits(state.cluster(self.producer), state.cluster(self.consumer), self.producer)

    def _cluster(self) -> Cluster:
        state = self.state
        return merge_clusters(state.cluster(self.producer), state.cluster(self.consumer), self.producer)


Check = Callable[[Edge], Reason | None]


def is_result(edge: Edge) -> Reason | None:
    if not edge.producer.is_root:
        return None
    return Reason.of("FUS101", producer=edge.producer_name, computation=edge.producer.computation.name)


def side_effects(edge: Edge) -> Reason | None:
    for instruction in (edge.producer, edge.consumer):
        if has_side_effect(instruction):
            return Reason.of("FUS102", instruction=instruction.name, opcode=instruction.opcode)
    return None


def control_dependencies(edge: Edge) -> Reason | None:
    return ordered_otherwise(edge.state, (edge.producer, edge.consumer))


def ordered_otherwise(state: FusionState, instructions: Iterable[Instruction]) -> Reason | None:
    """Why instructions of one computation may not become a part of a kernel: one waits for what it does not read, or
    is waited for."""
    if not state.waiting:
        return None
    for instruction in instructions:
        waited_for = state.waited_for(instruction.computation)
        body = fused(instruction)
        inside = None if body is None else state.waiting.get(body)
        for waiting in (instruction, inside):
            if waiting is not None and waiting.control_predecessors:
                order = f"starts only after `{waiting.control_predecessors[0].name}`"
                return Reason.of("FUS103", instruction=waiting.name, order=order)
        if instruction in waited_for:
            order = f"must end before `{waited_for[instruction].name}` starts"
            return Reason.of("FUS103", instruction=instruction.name, order=order)
    return None


def boundary(edge: Edge) -> Reason | None:
    for instruction in (edge.producer, edge.consumer):
        if is_boundary_fusion(instruction):
            return Reason.of("FUS104", instruction=instruction.name)
        if instruction.opcode == "fusion" and "output_to_operand_aliasing" in instruction.attributes:
            return Reason.of("FUS611", instruction=instruction.name)
    return None


def several_outputs(edge: Edge) -> Reason | None:
    if not edge.producer.shape.is_tuple:
        return None
    name = edge.producer.name if edge.producer.opcode == "fusion" else edge.producer_name
    return Reason.of("FUS105", producer=name, outputs=len(edge.producer.shape.elements or ()))


def lowering_of_producer(edge: Edge) -> Reason | None:
    return None if is_boundary_fusion(edge.producer) else edge.state.lowering(edge.producer)


def lowering_of_consumer(edge: Edge) -> Reason | None:
    return None if is_boundary_fusion(edge.consumer) else edge.state.lowering(edge.consumer)


def operand_budget(edge: Edge) -> Reason | None:
    """xla/service/gpu/gpu_fusible.cc, FusionFitsInBudget: kernel arguments. A fusion that needs no more than its
    consumer did always fits."""
    consumer, producer = edge.consumer, edge.producer
    outputs = sum(1 for _ in consumer.shape.leaves())
    if len(consumer.operands) + len(producer.operands) - 1 + outputs <= MAX_OPERANDS_AND_OUTPUTS:
        return None
    needed = set(consumer.operands) | set(producer.operands)
    needed.discard(producer)
    count = sum(o.opcode != "constant" for o in needed)
    if count <= len(set(consumer.operands)) or count + outputs <= MAX_OPERANDS_AND_OUTPUTS:
        return None
    return Reason.of("FUS201", count=count + outputs, operands=count, outputs=outputs, limit=MAX_OPERANDS_AND_OUTPUTS)


def shared_memory_budget(edge: Edge) -> Reason | None:
    limit = edge.state.target.shared_memory_per_block
    above, below = edge.above.shared_memory, edge.below.shared_memory
    if above + below <= limit or not (above and below):
        return None
    return Reason.of("FUS202", bytes=above + below, limit=limit)


def reduction_budget(edge: Edge) -> Reason | None:
    count = edge.above.reductions + edge.below.reductions
    if count <= MAX_REDUCTIONS or not edge.above.reductions:
        return None
    return Reason.of("FUS203", count=count, limit=MAX_REDUCTIONS)


def size_budget(edge: Edge) -> Reason | None:
    """The values that a kernel computes are at least its members and what it reads; a kernel that outgrew the limit
    would be taken apart as a whole."""
    reads = len(edge.consumer.operands) + len(edge.producer.operands) - 1
    values = edge.above.members + edge.below.members + reads
    return Reason.of("FUS306", values=values, limit=LARGEST) if values > LARGEST else None


def has_plan(edge: Edge) -> Reason | None:
    """Whether kernels can compute both as one. Looked at only where the answer can be no, and last, for it is the
    dearest check."""
    if not needs_plan(edge) or edge.is_surely_planned:
        return None
    merged = edge.merged
    return merged if isinstance(merged, Reason) else None


def can_be_planned(edge: Edge) -> bool:
    """Whether it makes sense to ask for the plan of both together."""
    return not (lowering_of_producer(edge) or lowering_of_consumer(edge) or boundary(edge) or several_outputs(edge))


def needs_plan(edge: Edge) -> bool:
    """Whether merging may change the kind of kernel or nest too deep; without reductions a loop takes everything up to
    a depth."""
    if not can_be_planned(edge):
        return False
    folds = edge.above.reduces or edge.below.reduces
    return bool(folds and not computes_at_once(edge.producer)) or nests_deep(edge)


def nests_deep(edge: Edge) -> bool:
    """Whether both together may nest deeper than a kernel's code can."""
    return edge.above.depth + edge.below.depth > DEEPEST


PLACE_CHECKS: tuple[Check, ...] = (
    is_result,
    side_effects,
    control_dependencies,
    boundary,
    several_outputs,
    lowering_of_producer,
    lowering_of_consumer,
)
"""Those that ask nothing about how the consumer reads the producer; they also judge edges through a tuple or a
bitcast."""

CHECKS: tuple[Check, ...] = (*PLACE_CHECKS, operand_budget, shared_memory_budget, reduction_budget, size_budget)


def illegal(edge: Edge, disabled: frozenset[str], checks: tuple[Check, ...] = CHECKS) -> Iterator[Reason]:
    """Every reason against the edge but for its plan (`has_plan`), in the order of the checks. A rule that keeps the
    program right refuses under FUS110 when it is switched off."""
    seen: list[Reason] = []
    for check in checks:
        reason = check(edge)
        if reason is None or reason.is_among(seen):
            continue
        seen.append(reason)
        if reason.code not in disabled:
            yield reason
        elif reason.code in NEVER_SWITCHED_OFF or reason.code.startswith("FUS3"):
            yield Reason.of("FUS110", rule=reason.code)
