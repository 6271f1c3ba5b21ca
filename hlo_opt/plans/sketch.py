"""How kernels that are not made yet would be launched, and what they would take: what rules and explanations ask. A
sketch comes from the plan, never from a rule of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from hlo_opt.analysis.graph.cluster import Cluster, Node
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.diag import Reason
from hlo_opt.ir import Called, Computation, Instruction, Module, Shape, edit
from hlo_opt.plans.choose import plan
from hlo_opt.plans.kinds import kind_of
from hlo_opt.plans.plan import Launch, Plan
from hlo_opt.plans.price import Price, price
from hlo_opt.plans.region import region_of


@dataclass(frozen=True)
class Sketch:
    """What is asked of the plan of a kernel.

    kind            the kinds of its segments, joined
    row_reductions  how many reductions the threads of a block share
    launch          blocks, threads and shared memory
    one_walk        its threads go over the same elements level by level, and near them what they read before
    """

    kind: str
    row_reductions: int
    launch: Launch
    one_walk: bool = False
    _planned: tuple[Plan, DeviceTarget] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, made: Plan, target: DeviceTarget) -> Sketch:
        """What is asked of a plan. Its region must stay as it is until the price is asked for."""
        kinds = [kind_of(segment.part) for segment in made.segments]
        one_walk = len(kinds) == 1 and kinds[0].rereads_near
        return cls(made.kind, made.row_reductions, made.launch, one_walk, (made, target))

    @cached_property
    def price(self) -> Price:
        """Of the launch; made when it is first asked for, and what it was made from is forgotten then."""
        assert self._planned is not None, "a sketch without a plan has no price"
        found = price(*self._planned)
        object.__setattr__(self, "_planned", None)
        return found


def sketch_of(module: Module, cluster: Cluster, target: DeviceTarget) -> Sketch | Reason:
    """Of a cluster as one kernel, or the reason why no kernel can have it. Its members have a lowering, each by
    itself."""
    alone = _alone(cluster)
    if alone is not None:
        made = plan(region_of(module, alone), target)
    else:
        fusion = as_fusion(cluster)
        region = region_of(module, fusion)
        # where operations were expanded, what they became has to be looked at
        made = plan(region, target, lowered=region.computation is fusion.called_by("calls"))
    return made if isinstance(made, Reason) else Sketch.of(made, target)


def _alone(cluster: Cluster) -> Instruction | None:
    """The one instruction of a kernel that is no fusion."""
    root = cluster.roots[0]
    is_alone = cluster.size == 1 and not root.is_input and all(o in cluster.inputs for o in root.instruction.operands)
    return root.instruction if is_alone else None


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
    return candidate_of(body, list(cluster.inputs))


def candidate_of(body: Computation, operands: list[Instruction]) -> Instruction:
    """A fusion that is not part of a module."""
    return Instruction("candidate", "fusion", body.root.shape, operands, {"calls": Called(body)})
