"""What the two ends of an edge cost apart and as one kernel."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from hlo_opt.analysis.graph.signature import edge_signature, signature
from hlo_opt.analysis.xla.cost import estimate_fusion
from hlo_opt.analysis.xla.performance import Priced, joint_estimate
from hlo_opt.fusion.decision import CostEstimate
from hlo_opt.fusion.engine import Engine
from hlo_opt.fusion.legality import Edge
from hlo_opt.fusion.state import FusionState
from hlo_opt.ir import Instruction
from hlo_opt.ops.sets import is_free

HANDS_ON = frozenset({"bitcast", "get-tuple-element", "opt-barrier", "add-dependency"})
"""Opcodes that hand their first operand's value on, or an element of it, without a kernel."""


class MemberCosts:
    """Costs of edges inside fusions. Edges whose instructions have the same signatures cost the same."""

    def __init__(self, state: FusionState) -> None:
        self._state = state
        self._signatures: dict[Instruction, Hashable] = {}
        self._costs: dict[Hashable, CostEstimate | None] = {}

    def of(self, producer: Instruction, consumer: Instruction) -> CostEstimate | None:
        key = edge_signature(producer, consumer, self._signature(producer), self._signature(consumer))
        if key not in self._costs:
            self._costs[key] = _cost(self._state.priced(producer), self._state.priced(consumer))
        return self._costs[key]

    def beside(self, first: Instruction, second: Instruction) -> CostEstimate:
        """Of two that do not read each other."""
        common = tuple(second.operands.index(o) if o in second.operands else -1 for o in first.operands)
        key = (common, self._signature(first), self._signature(second))
        if key not in self._costs:
            self._costs[key] = joint_cost(self._state.priced(first), self._state.priced(second))
        found = self._costs[key]
        assert found is not None
        return found

    def _signature(self, instruction: Instruction) -> Hashable:
        found = self._signatures.get(instruction)
        if found is None:
            found = self._signatures[instruction] = signature(instruction)
        return found


def edge_cost(edge: Edge, through: Edge, engine: Engine) -> CostEstimate | None:
    if through.producer is not edge.producer or edge.producer.shape.is_tuple:
        return _element_cost(edge, engine)
    state = engine.state
    key = (state.structure_of_both(edge.producer, edge.consumer), edge.duplicates)
    costs = state.known.costs
    if key not in costs:
        costs[key] = _cost_of(state.priced(edge.producer), state.priced(edge.consumer), kept=edge.duplicates)
    return costs[key]


def _cost_of(producer: Priced, consumer: Priced, *, kept: bool) -> CostEstimate | None:
    """With `kept`, others read the producer, too."""
    found = _cost(producer, consumer)
    if found is None or not kept:
        return found
    alone = producer.estimate
    return CostEstimate(
        found.us_unfused,
        found.us_fused + producer.target.kernel_launch_us + alone.us,
        found.bytes_unfused,
        found.bytes_fused + alone.bytes,
        kept=True,
    )


def _element_cost(edge: Edge, engine: Engine) -> CostEstimate:
    """Of an edge through elements of a tuple, or bitcasts: as one kernel that keeps what others read."""
    handed, unwritten = [], 0
    for operand in dict.fromkeys(edge.consumer.operands):
        value, shared = operand, operand.is_root or len(operand.users) > 1
        while value is not edge.producer and value.operands and value.opcode in HANDS_ON:
            value = value.operands[0]
            shared |= value.shape.is_array and len(value.users) > 1
        if value is edge.producer:
            handed.append(operand)
            unwritten += 0 if shared else operand.shape.byte_size
    above, below = (engine.state.priced(i) for i in (edge.producer, edge.consumer))
    return joint_cost(above, below, handed, unwritten)


def joint_cost(first: Priced, second: Priced, handed: Sequence[Instruction] = (), unwritten: int = 0) -> CostEstimate:
    """Two kernels apart, and as one that writes what both wrote (`joint_estimate`)."""
    launch = first.target.kernel_launch_us
    joint = joint_estimate(first, second, handed, unwritten)
    return CostEstimate(
        2 * launch + first.estimate.us + second.estimate.us,
        launch + joint.us,
        first.estimate.bytes + second.estimate.bytes,
        joint.bytes,
    )


def _cost(producer: Priced, consumer: Priced) -> CostEstimate | None:
    if producer.instruction.shape.is_tuple or is_free(producer.instruction.opcode):
        return None
    us_unfused, us_fused, bytes_unfused, bytes_fused = estimate_fusion(producer, [consumer])
    return CostEstimate(us_unfused, us_fused, bytes_unfused, bytes_fused)
