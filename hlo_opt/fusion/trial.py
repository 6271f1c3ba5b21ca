"""What a fusion would become, without making it: the plan of the merged region."""

from __future__ import annotations

from hlo_opt.analysis.graph.cluster import Cluster, Node
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.diag import Reason
from hlo_opt.ir import Called, Computation, Instruction, Module, Shape, edit
from hlo_opt.plans import Plan, plan, region_of


def as_fusion(cluster: Cluster) -> Instruction:
    """A fusion instruction over a computation that holds the cluster; neither is part of a module."""
    body = Computation("candidate")
    made: dict[Node, Instruction] = {}
    for number, node in enumerate(cluster.inputs.values()):
        made[node] = edit.append(body, Instruction(f"param_{number}", "parameter", node.shape, parameter_number=number))
    for node in cluster.nodes:
        if node.is_input:
            continue
        old = node.instruction
        made[node] = edit.append(
            body,
            Instruction(
                old.name,
                old.opcode,
                old.shape,
                [made[o] for o in node.operands],
                old.attributes,
                literal=old.literal,
                offset=old.offset,
                end=old.end,
            ),
        )
    roots = [made[r] for r in cluster.roots]
    root = roots[0]
    if len(roots) > 1:
        root = edit.append(body, Instruction("roots", "tuple", Shape.tuple_of(*(r.shape for r in roots)), roots))
    edit.set_root(body, root)
    return Instruction("candidate", "fusion", root.shape, list(cluster.inputs), {"calls": Called(body)})


def trial_plan(module: Module, cluster: Cluster, target: DeviceTarget) -> Plan | Reason:
    """The plan that a cluster would have as one kernel, or the reason why there is none. Its members have a lowering, each by itself."""
    fusion = as_fusion(cluster)
    region = region_of(module, fusion)
    is_itself = region.computation is fusion.called_by(
        "calls"
    )  # else operations were expanded, and what they became must be looked at
    return plan(region, target, lowered=is_itself)
