"""Kernels by the groups of outputs that share no work: each group is planned and priced once, and a kernel of one group
more is not planned again as a whole."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_opt.analysis.graph.cluster import Cluster
from hlo_opt.analysis.graph.structure import Members
from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.fusion.decision import ByStructure
from hlo_opt.ir import Instruction, Module
from hlo_opt.ops.sets import fused
from hlo_opt.plans.groups import Placed, clusters_of_groups, group_of, sketch_of_groups
from hlo_opt.plans.sketch import Sketch

Grouped = tuple[Placed, ...] | None
"""The groups of a kernel, in the order of their first outputs; None where it is planned as a whole only."""


class Grouping:
    """The groups of the kernels of a module."""

    def __init__(self, module: Module, target: DeviceTarget, known: ByStructure, members: Members) -> None:
        self._module = module
        self._target = target
        self._known = known
        self._members = members

    def of_cluster(self, cluster: Cluster, operands: Sequence[Instruction], digest: bytes | None = None) -> Grouped:
        """The groups of a cluster whose kernel has these operands. `digest` is that of the whole, where it is known:
        most clusters are one group."""
        parts = clusters_of_groups(cluster)
        if parts is None:
            return None
        places: dict[Instruction, int] = {}
        for place, operand in enumerate(operands):
            places.setdefault(operand, place)
        placed: list[Placed] = []
        groups = self._known.groups
        for part in parts:
            key = digest if digest is not None and len(parts) == 1 else self._members.of_cluster(part)
            if key not in groups:
                groups[key] = group_of(self._module, part, self._target)
            group = groups[key]
            if group is None:
                return None
            placed.append(Placed(group, tuple([places[i] for i in part.inputs])))
        return tuple(placed)

    def beside(
        self, one: Sequence[Instruction], other: Sequence[Instruction], groups: tuple[Grouped, Grouped]
    ) -> Grouped:
        """The groups of two kernels with these operands as one kernel. Its operands are those of the first, then those
        that only the second reads. None where groups of both share work."""
        above, below = groups
        if above is None or below is None or _shares(_dear(above, one), _dear(below, other)):
            return None
        places = {operand: place for place, operand in reversed(list(enumerate(operands_beside(one, other))))}
        moved = tuple([Placed(p.group, tuple([places[other[n]] for n in p.operands])) for p in below])
        return (*above, *moved)

    def sketch_of(self, cluster: Cluster, digest: bytes) -> Sketch | None:
        """The sketch of a cluster of this digest as one kernel; None where only a plan of the whole can tell. A single
        operation is planned as it is launched: with a parameter for each operand, even if several are the same
        value."""
        if cluster.size == 1:
            return None
        operands = list(cluster.inputs)
        return self.sketch(self.of_cluster(cluster, operands, digest), operands)

    def sketch(self, groups: Grouped, operands: Sequence[Instruction]) -> Sketch | None:
        """The sketch of a kernel with these groups; None where only a plan of the whole can tell."""
        return None if groups is None else sketch_of_groups(groups, operands, self._target)


def operands_beside(one: Sequence[Instruction], other: Sequence[Instruction]) -> list[Instruction]:
    """The operands of a kernel that computes what two do."""
    given = set(one)
    return [*one, *dict.fromkeys([o for o in other if o not in given])]


def kernel_operands(kernel: Instruction) -> Sequence[Instruction]:
    """The operands of a kernel; those of a plain operation as those of a fusion of it alone: each value once."""
    return list(dict.fromkeys(kernel.operands)) if fused(kernel) is None else kernel.operands


def repeats(operands: Sequence[Instruction]) -> tuple[int, ...]:
    """For each operand the place of the first that is the same value."""
    first: dict[Instruction, int] = {}
    return tuple([first.setdefault(operand, place) for place, operand in enumerate(operands)])


def _dear(groups: Sequence[Placed], operands: Sequence[Instruction]) -> set[Instruction]:
    """The operands that two groups have no common threads for at the cost of one element."""
    read = {operands[n] for placed in groups for n in placed.operands}
    return {o for o in read if not o.shape.is_array or o.shape.element_count != 1}


def _shares(one: set[Instruction], other: set[Instruction]) -> bool:
    return not one.isdisjoint(other)
