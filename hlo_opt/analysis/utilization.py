"""How often a kernel evaluates each of its members and reads each of its inputs, and how large its code becomes.

Source: xla/service/gpu/model/gpu_hlo_cost_analysis.cc (FusionCalculateUtilizations).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from hlo_opt.analysis.accesses import Accesses, accesses, byte_size
from hlo_opt.analysis.cluster import Cluster, Node
from hlo_opt.analysis.facts import is_elementwise
from hlo_opt.analysis.reductions import fast_form
from hlo_opt.ir import Instruction

IMMEDIATE_ELEMENTS = 8
"""Constants of at most so many elements are part of the code and cost no read."""


@dataclass
class Usage:
    """Of a whole cluster. `utilization` is by node: 1.0 means that the full value is used once. `code_size` counts emitted operations."""

    flops: float = 0.0
    code_size: int = 0
    written: float = 0.0
    constant_bytes: float = 0.0
    utilization: dict[Node, float] = field(default_factory=dict)
    emitted: dict[Node, int] = field(default_factory=dict)
    use_roots: dict[Node, dict[Node, None]] = field(default_factory=dict)
    root_utilization: dict[Node, float] = field(default_factory=dict)

    def read_of(self, cluster: Cluster, operand: Instruction) -> float:
        """Bytes read of an operand; 0 for what is no input."""
        node = cluster.inputs.get(operand)
        return 0.0 if node is None else byte_size(operand.shape) * self.utilization.get(node, 0.0)

    def common_elementwise(self, left: Node, right: Node) -> float:
        """The share of the uses of `left` that go elementwise to where `right` is used too (CommonElementwiseUtilization)."""
        others = self.use_roots.get(right, {})
        return sum(self.root_utilization[r] for r in self.use_roots.get(left, {}) if r in others)


def usage_of(
    cluster: Cluster,
    capability: int,
    *,
    row_local: bool = False,
    known: dict[Instruction, Use] | None = None,
) -> Usage:
    """Walk from the roots up; elementwise nodes hand on what they are used for, others start a new use of their operands.

    With `row_local`, the result of a fast row reduction is computed once however often it is used, as our row-reduction kernels do; XLA's model
    computes it again for each use. `known` remembers the accesses of instructions between calls.
    """
    known = {} if known is None else known
    usage = Usage()
    use_roots, utilizations = usage.use_roots, usage.root_utilization = {}, dict.fromkeys(cluster.nodes, 0.0)
    emitted_roots: dict[Node, int] = {}
    own_sets: set[Node] = set()
    """Nodes whose entry in `use_roots` is theirs alone; others share one with a user, until they need more."""
    for root in cluster.roots:
        utilizations[root] = 1.0
        emitted_roots[root] = 1
        use_roots[root] = {root: None}
        own_sets.add(root)
    sums: dict[int, tuple[float, int]] = {}
    code_size, flops = 0, 0.0
    for node in reversed(cluster.nodes):
        roots = use_roots.setdefault(node, {})
        known_sum = sums.get(id(roots))
        if known_sum is None:
            known_sum = sum([utilizations[r] for r in roots]), sum([emitted_roots[r] for r in roots])
            sums[id(roots)] = known_sum
        share, emitted = known_sum
        if node.is_input:
            usage.utilization[node] = share
            usage.emitted[node] = emitted
            code_size += emitted
            continue
        instruction = node.instruction
        own = known.get(instruction)
        if own is None:
            own = known[instruction] = use_of(instruction, capability)
        if row_local and own.is_row_reduction:
            share, emitted = min(share, 1.0), min(emitted, 1)
        usage.utilization[node] = share
        usage.emitted[node] = emitted
        code_size += emitted
        flops += share * own.accesses.flops
        if own.constant_bytes:
            usage.constant_bytes += share * own.constant_bytes
        for number, operand in enumerate(node.operands):
            there = use_roots.get(operand)
            if own.passes_on:
                if there is None:
                    use_roots[operand] = roots
                elif there is not roots:
                    if operand not in own_sets:
                        own_sets.add(operand)
                        there = use_roots[operand] = dict(there)
                    there.update(roots)
                continue
            if there is None:
                use_roots[operand] = {operand: None}
                own_sets.add(operand)
            elif operand not in there:
                if operand not in own_sets:
                    own_sets.add(operand)
                    there = use_roots[operand] = dict(there)
                there[operand] = None
            elements = operand.shape.element_count
            part = share * own.accesses.utilization[number]
            utilizations[operand] += math.ceil(part * elements) / elements if elements else 0.0
            emitted_roots[operand] = emitted_roots.get(operand, 0) + emitted
    usage.code_size, usage.flops = code_size, flops
    usage.written = sum(_written(root, capability) for root in cluster.roots)
    return usage


@dataclass(frozen=True, slots=True)
class Use:
    """What the walk needs to know of an instruction, wherever it stands. One that `passes_on` reads its operands where it is read itself."""

    accesses: Accesses
    passes_on: bool
    is_row_reduction: bool
    constant_bytes: int


def use_of(instruction: Instruction, capability: int) -> Use:
    opcode = instruction.opcode
    form = fast_form(instruction) if opcode == "reduce" else None
    is_large = opcode == "constant" and instruction.shape.element_count > IMMEDIATE_ELEMENTS
    return Use(
        accesses(instruction, capability),
        is_elementwise(instruction) or opcode in ("tuple", "get-tuple-element"),
        form is not None and form.is_row,
        byte_size(instruction.shape) if is_large else 0,
    )


def _written(root: Node, capability: int) -> float:
    """Bytes that a root writes: a dynamic-update-slice in place writes its update only."""
    if not root.is_input and root.opcode in ("dynamic-update-slice", "scatter"):
        return accesses(root.instruction, capability).written
    return float(byte_size(root.shape))
