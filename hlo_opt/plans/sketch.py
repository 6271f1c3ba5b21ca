"""Summaries of plans for kernels that do not exist yet, for rules and explanations. A sketch comes from a plan, never
from rules of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

from hlo_opt.analysis.graph.cluster import Cluster, Node
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.diag import Reason
from hlo_opt.ir import Called, Computation, Instruction, Module, Shape, edit
from hlo_opt.plans.choose import plan, planning_of
from hlo_opt.plans.kinds import kind_of
from hlo_opt.plans.plan import Launch, Plan
from hlo_opt.plans.price import Price, price
from hlo_opt.plans.region import region_of


@dataclass(frozen=True)
class Summary:
    """What a sketch says of a plan.

    kind            the kinds of its segments, joined
    row_reductions  the number of reductions whose results the threads of a block share
    launch          blocks, threads and shared memory
    one_walk        whether the plan is one segment whose threads walk the same elements several times, and keep them
                    near
    segments        the number of segments
    pricing         computes the price of the launch
    """

    kind: str
    row_reductions: int
    launch: Launch
    one_walk: bool = False
    segments: int = 1
    pricing: Callable[[], Price] | None = field(default=None, repr=False, compare=False)


class Sketch:
    """The summary of a plan, which is made when more is asked than whether there is one: rules often ask no more. Its
    price is computed when it is first asked for; then what it takes is released."""

    def __init__(self, summarize: Callable[[], Summary]) -> None:
        self._summarize: Callable[[], Summary] | None = summarize

    @classmethod
    def known(cls, summary: Summary) -> Sketch:
        """A sketch with a summary that there is already."""
        return cls(lambda: summary)

    @cached_property
    def summary(self) -> Summary:
        assert self._summarize is not None
        summary, self._summarize = self._summarize(), None
        return summary

    @property
    def kind(self) -> str:
        return self.summary.kind

    @property
    def row_reductions(self) -> int:
        return self.summary.row_reductions

    @property
    def launch(self) -> Launch:
        return self.summary.launch

    @property
    def one_walk(self) -> bool:
        return self.summary.one_walk

    @property
    def segments(self) -> int:
        return self.summary.segments

    @cached_property
    def price(self) -> Price:
        """The price of the launch."""
        pricing = self.summary.pricing
        assert pricing is not None, "a sketch without a plan has no price"
        self.summary = replace(self.summary, pricing=None)
        return pricing()


def sketch_of(module: Module, cluster: Cluster, target: DeviceTarget) -> Sketch | Reason:
    """The sketch of a cluster as one kernel, or the reason why there is none. Each member must have a lowering."""
    alone = _alone(cluster)
    if alone is not None:
        result = plan(region_of(module, alone), target)
        return result if isinstance(result, Reason) else Sketch.known(_summary(result, target))
    fusion = as_fusion(cluster)
    region = region_of(module, fusion)
    # where operations were expanded, their expansions must be checked
    planning = planning_of(region, target, lowered=region.computation is fusion.called_by("calls"))
    return planning if isinstance(planning, Reason) else Sketch(lambda: _summary(planning(), target))


def _summary(plan: Plan, target: DeviceTarget) -> Summary:
    """The summary of a plan whose region does not change before its price is asked for."""
    kinds = [kind_of(segment.part) for segment in plan.segments]
    one_walk = len(kinds) == 1 and kinds[0].rereads_near
    launch, name, rows = plan.launch, plan.kind, plan.row_reductions
    return Summary(name, rows, launch, one_walk, len(kinds), lambda: price(plan, target))


def _alone(cluster: Cluster) -> Instruction | None:
    """The instruction of a cluster that has only one; else None."""
    root = cluster.roots[0]
    is_alone = cluster.size == 1 and not root.is_input and all(o in cluster.inputs for o in root.instruction.operands)
    return root.instruction if is_alone else None


def as_fusion(cluster: Cluster) -> Instruction:
    """A fusion instruction over a computation that holds the cluster; neither is part of a module."""
    body = Computation("candidate")
    copies: dict[Node, Instruction] = {}
    for number, node in enumerate(cluster.inputs.values()):
        copies[node] = edit.append(
            body, Instruction(f"param_{number}", "parameter", node.shape, parameter_number=number)
        )
    for node in cluster.nodes:
        if node.is_input:
            continue
        old = node.instruction
        copies[node] = edit.append(
            body,
            Instruction(
                old.name,
                old.opcode,
                old.shape,
                [copies[o] for o in node.operands],
                old.attributes,
                literal=old.literal,
                offset=old.offset,
                end=old.end,
            ),
        )
    roots = [copies[r] for r in cluster.roots]
    root = roots[0]
    if len(roots) > 1:
        root = edit.append(body, Instruction("roots", "tuple", Shape.tuple_of(*(r.shape for r in roots)), roots))
    edit.set_root(body, root)
    return candidate_of(body, list(cluster.inputs))


def candidate_of(body: Computation, operands: list[Instruction]) -> Instruction:
    """A fusion that is not part of a module."""
    return Instruction("candidate", "fusion", body.root.shape, operands, {"calls": Called(body)})
