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
    known: dict[Instruction, Accesses] | None = None,
) -> Usage:
    """Walk from the roots up; elementwise nodes hand on what they are used for, others start a new use of their operands.

    With `row_local`, the result of a fast row reduction is computed once however often it is used, as our row-reduction kernels do; XLA's model
    computes it again for each use. `known` remembers the accesses of instructions between calls.
    """
    known = {} if known is None else known
    usage = Usage()
    emitted_roots: dict[Node, int] = {}
    usage.use_roots = {node: {} for node in cluster.nodes}
    usage.root_utilization = dict.fromkeys(cluster.nodes, 0.0)
    for root in cluster.roots:
        usage.root_utilization[root] = 1.0
        emitted_roots[root] = 1
        usage.use_roots[root][root] = None
    for node in reversed(cluster.nodes):
        roots = usage.use_roots[node]
        share = sum(usage.root_utilization[r] for r in roots)
        emitted = sum(emitted_roots[r] for r in roots)
        if row_local and not node.is_input and _is_row_reduction(node):
            share, emitted = min(share, 1.0), min(emitted, 1)
        usage.utilization[node] = share
        usage.emitted[node] = emitted
        usage.code_size += emitted
        if node.is_input:
            continue
        own = known.get(node.instruction)
        if own is None:
            own = known[node.instruction] = accesses(node.instruction, capability)
        usage.flops += share * own.flops
        if node.opcode == "constant" and node.shape.element_count > IMMEDIATE_ELEMENTS:
            usage.constant_bytes += share * byte_size(node.shape)
        passes_on = is_elementwise(node.instruction) or node.opcode in ("tuple", "get-tuple-element")
        for number, operand in enumerate(node.operands):
            if passes_on:
                usage.use_roots[operand].update(roots)
                continue
            usage.use_roots[operand][operand] = None
            elements = operand.shape.element_count
            part = share * own.utilization[number]
            usage.root_utilization[operand] += math.ceil(part * elements) / elements if elements else 0.0
            emitted_roots[operand] = emitted_roots.get(operand, 0) + emitted
    usage.written = sum(_written(root, capability) for root in cluster.roots)
    return usage


def _is_row_reduction(node: Node) -> bool:
    form = fast_form(node.instruction)
    return form is not None and form.is_row


def _written(root: Node, capability: int) -> float:
    """Bytes that a root writes: a dynamic-update-slice in place writes its update only."""
    if not root.is_input and root.opcode in ("dynamic-update-slice", "scatter"):
        return accesses(root.instruction, capability).written
    return float(byte_size(root.shape))
