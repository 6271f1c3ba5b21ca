"""Kernels of several groups of outputs that share no work, planned and priced group by group: a group is planned once,
however many kernels it is in, and a kernel that takes one more group is not planned again as a whole.

A launch that holds the groups takes their segments, each planned as in `hlo_opt.plans.choose`; only the shared memory
that is left, the size of blocks and the choice between arrangements depend on what is in it besides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

from hlo_opt.analysis.graph.cluster import Cluster, Node
from hlo_opt.analysis.targets import DeviceTarget, InLanes
from hlo_opt.ir import Instruction, Module
from hlo_opt.ir.walk import operands_first
from hlo_opt.plans import scatter
from hlo_opt.plans.choose import arranged_group, beside, block_of, launch_of, lowering_reason
from hlo_opt.plans.columns import SHARED_BYTES
from hlo_opt.plans.disjoint import disjoint_outputs, grouped
from hlo_opt.plans.kinds import KINDS, Kind, kind_of, kinds_for
from hlo_opt.plans.limits import DEEPEST, LARGEST, is_small, nesting, values_computed
from hlo_opt.plans.plan import Part, Region, Segment, above
from hlo_opt.plans.price import Measure, Price, measure, price_of_segments
from hlo_opt.plans.region import region_of
from hlo_opt.plans.sketch import Sketch, Summary, as_fusion

_WHOLE = frozenset().union(*[k.heroes for k in KINDS if (k.whole or k.product) and k.heroes is not None])
"""Opcodes of kinds that are a kernel by themselves: a region that holds one is planned as a whole."""


@cache
def _always_asked(kind: Kind) -> Kind:
    """The kind, asked whatever it would pay: that is found out once for a kernel (`Group.rivals`)."""
    return replace(kind, may_pay=None)


@dataclass(eq=False)
class Group:
    """Outputs that share work, as a region by themselves: what is found of it holds in every kernel that has it."""

    region: Region
    target: DeviceTarget
    _parts: dict[tuple[int, frozenset[str]], tuple[Part, ...]] = field(default_factory=dict)
    _beside: dict[int, tuple[Part, Part]] = field(default_factory=dict)
    """By the identity of the part: it stays as long as it is in here. The same holds for what follows."""
    _segments: dict[tuple[int, int], tuple[Part, Segment[Part]]] = field(default_factory=dict)
    """By the identity of the part and threads of a block."""
    _measures: dict[tuple[int, int], Measure] = field(default_factory=dict)

    @cached_property
    def is_small(self) -> bool:
        """Whether it is far from both limits of a kernel's code."""
        return is_small(self.region)

    @cached_property
    def depth(self) -> int:
        """How deep its code nests."""
        return nesting(self.region.computation)

    @cached_property
    def values(self) -> int:
        """Values that are computed per element."""
        return values_computed(self.region)

    @cached_property
    def rivals(self) -> frozenset[str]:
        """The kinds that have rivals with which a kernel that holds the group is worth arranging, too."""
        rivals = [k for k in self._kinds if k.has_rivals]
        return frozenset(kind.name for kind in rivals if kind.may_pay is None or kind.may_pay(self.region))

    @cached_property
    def _kinds(self) -> list[Kind]:
        return kinds_for(self.region)

    def parts(self, room: int, rivals: frozenset[str]) -> tuple[Part, ...]:
        """The parts that compute the outputs, in a launch with `room` bytes of shared memory left. Kinds of which
        another may be quicker (`has_rivals`) take part only if they are among `rivals`."""
        whole = self._parts_in(SHARED_BYTES, rivals)
        goes_by_room = any(kind_of(part).takes_room and part.shared_bytes(part.block) for part in whole)
        return self._parts_in(room, rivals) if goes_by_room else whole

    def _parts_in(self, room: int, rivals: frozenset[str]) -> tuple[Part, ...]:
        known = self._parts.get((room, rivals))
        if known is None:
            kinds = [_always_asked(k) for k in self._kinds if k.name in rivals or not k.has_rivals]
            roots = range(len(self.region.roots))
            known = self._parts[room, rivals] = tuple(arranged_group(self.region, roots, self.target, kinds, room))
        return known

    def beside(self, part: Part) -> Part:
        """The part in a launch that holds others too."""
        return self._beside.setdefault(id(part), (part, beside(part)))[1]

    def segment(self, part: Part, block: int) -> Segment[Part]:
        """The segment of a part in a launch with blocks of that size."""
        known = self._segments.get((id(part), block))
        if known is None:
            known = self._segments[id(part), block] = part, part.segment(block)
        return known[1]

    def measure(self, part: Part, block: int) -> Measure:
        """The quantities of a part that the price of such a launch depends on."""
        known = self._measures.get((id(part), block))
        if known is None:
            segment = self.segment(part, block)
            known = self._measures[id(part), block] = measure(self.region, segment, block, self.target)
        return known

    def row_reductions(self, parts: Sequence[Part], block: int) -> int:
        """As those of a plan of several groups: a reduction that several of the segments compute does not count."""
        folded = {reduce for part in parts for reduce in self.segment(part, block).folded}
        if len(parts) > 1 and folded:
            needed = [above([self.region.roots[n] for n in part.roots]) for part in parts]
            folded = {reduce for reduce in folded if sum(reduce in values for values in needed) == 1}
        return len(folded)


def group_of(module: Module, cluster: Cluster, target: DeviceTarget) -> Group | None:
    """What a cluster, one of `clusters_of_groups`, computes as a group; None where it is planned as a whole only, or
    has no plan, or its expansions are more than one group."""
    if not _WHOLE.isdisjoint(cluster.opcodes):
        return None
    fusion = as_fusion(cluster)
    region = region_of(module, fusion)
    members = region.computation.instructions
    is_given = region.computation is fusion.called_by("calls")  # else its expansions must be checked
    if not is_given and any(i.opcode in _WHOLE or lowering_reason(i) is not None for i in members):
        return None
    if not all(leaf.is_array for root in region.roots for leaf in root.shape.leaves()):
        return None
    if not all(i.shape.is_array for i in members if i.parameter_number is not None):
        return None
    if scatter.refusal(region) is not None or (not is_given and len(disjoint_outputs(region)) > 1):
        return None
    return Group(region, target)


@dataclass(frozen=True, slots=True)
class Placed:
    """A group in a kernel: the values that its parameters stand for, each by its place among the kernel's operands."""

    group: Group
    operands: tuple[int, ...]


Parts = list[tuple[Placed, Part]]
"""A way to compute groups in one launch: the parts in order, each with its group."""


def sketch_of_groups(groups: Sequence[Placed], operands: Sequence[Instruction], target: DeviceTarget) -> Sketch | None:
    """The sketch of a kernel of groups, in the order of their first outputs; None where only its plan says
    whether it is within the limits of code."""
    is_sure = len(groups) == 1 and groups[0].group.is_small
    if not is_sure and (max(p.group.depth for p in groups) > DEEPEST or sum(p.group.values for p in groups) > LARGEST):
        return None
    return Sketch(lambda: _summary(groups, operands, target))


def _summary(groups: Sequence[Placed], operands: Sequence[Instruction], target: DeviceTarget) -> Summary:
    parts = _arranged(groups, frozenset().union(*(p.group.rivals for p in groups)))
    known: Price | None = None
    if not isinstance(target, InLanes) and any(kind_of(part).has_rivals for _, part in parts):
        ways = [parts, _arranged(groups, frozenset())]
        prices = [_price(way, operands, target) for way in ways]
        best = 0 if prices[0].us <= prices[1].us else 1
        parts, known = ways[best], prices[best]
    block = block_of(part for _, part in parts)
    kinds = [kind_of(part) for _, part in parts]
    segments = [placed.group.segment(part, block) for placed, part in parts]
    of_each: dict[int, list[Part]] = {}
    for placed, part in parts:
        of_each.setdefault(id(placed), []).append(part)
    row_reductions = sum(placed.group.row_reductions(of_each[id(placed)], block) for placed in groups)
    return Summary(
        "+".join(dict.fromkeys(kind.name for kind in kinds)),
        row_reductions,
        launch_of(segments, block),
        len(kinds) == 1 and kinds[0].rereads_near,
        len(kinds),
        lambda: _price(parts, operands, target) if known is None else known,
    )


def _arranged(groups: Sequence[Placed], rivals: frozenset[str]) -> Parts:
    parts: Parts = []
    room = SHARED_BYTES
    for placed in groups:
        of_group = placed.group.parts(room, rivals)
        room -= sum(part.shared_bytes(part.block) for part in of_group)
        parts += [(placed, part) for part in of_group]
    parts.sort(key=lambda way: kind_of(way[1]).order)
    return [(placed, placed.group.beside(part)) for placed, part in parts] if len(parts) > 1 else parts


def _price(parts: Parts, operands: Sequence[Instruction], target: DeviceTarget) -> Price:
    block = block_of(part for _, part in parts)
    given = {id(placed): [operands[n] for n in placed.operands] for placed, _ in parts}
    measures = [(placed.group.measure(part, block), given[id(placed)]) for placed, part in parts]
    launch = launch_of([measured.segment for measured, _ in measures], block)
    return price_of_segments(launch, measures, target)


def clusters_of_groups(cluster: Cluster) -> list[Cluster] | None:
    """The groups of outputs that share no work, in the order of their first outputs, each with its nodes in an order
    that equal groups have in common. None where the cluster is planned as a whole only."""
    if not _WHOLE.isdisjoint(cluster.opcodes):
        return None
    if any(root.is_input for root in cluster.roots) or len(set(cluster.roots)) < len(cluster.roots):
        return None
    nodes = operands_first(cluster.roots)
    if len(cluster.roots) == 1:
        return [Cluster(nodes, cluster.roots)]
    groups = grouped(nodes, cluster.roots, _is_input)
    if len(groups) == 1:
        return [Cluster(nodes, cluster.roots)]
    of_groups = [[cluster.roots[n] for n in positions] for positions in groups]
    return [Cluster(operands_first(roots), roots) for roots in of_groups]


def _is_input(node: Node) -> bool:
    return node.is_input
