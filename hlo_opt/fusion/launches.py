"""How our kernels are launched, for the prices of those that are not made yet: read from their plans (`Sketch`), each structure planned once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hlo_opt.analysis.graph.cluster import merge_clusters, side_by_side
from hlo_opt.analysis.memory.forms import LaunchDimensions
from hlo_opt.analysis.xla.performance import LaunchForm, Priced
from hlo_opt.diag import Reason
from hlo_opt.ir import Instruction
from hlo_opt.ops import find
from hlo_opt.plans import Launch
from hlo_opt.plans.sketch import Sketch, loop_launch

if TYPE_CHECKING:
    from hlo_opt.fusion.state import FusionState


class Launches:
    """The launches of our kernels (`Launcher`)."""

    def __init__(self, plans: FusionState) -> None:
        """`plans` plans kernels and knows which differ in names only."""
        self._plans = plans

    def form(self, parts: Sequence[Priced], *, keep: bool = False, beside: bool = False) -> LaunchForm | None:
        """Of one part, of a producer in its consumer (`keep`: which writes both), or of two that stand beside each other. None where a library computes a part, or no kernel can."""
        if any(_is_call(part.instruction) for part in parts):
            return None
        if not (keep or beside):
            launch = self._loop(parts)
            if launch is not None:
                return _form(launch)
        found = self._sketch(parts, keep, beside)
        if isinstance(found, Reason):
            return None
        return _form(found.launch, found.in_order or not any(part.moves for part in parts))

    def _loop(self, parts: Sequence[Priced]) -> Launch | None:
        last = parts[-1].cluster
        if len(last.roots) > 1:
            return None
        above = [part.instruction for part in parts[:-1]]
        inputs = dict.fromkeys(i for part in parts for i in part.cluster.inputs if i not in above)
        opcodes = frozenset().union(*(part.cluster.opcodes for part in parts))
        return loop_launch(opcodes, last.roots[0].shape, [i.shape for i in inputs], self._plans.target)

    def _sketch(self, parts: Sequence[Priced], keep: bool, beside: bool) -> Sketch | Reason:
        plans = self._plans
        if len(parts) == 1:
            (part,) = parts
            return plans.sketch(plans.structure(part.instruction), lambda: part.cluster)
        first, second = parts
        one, other = first.instruction, second.instruction
        if beside:
            return plans.sketch(plans.structure_beside(one, other), lambda: side_by_side(first.cluster, second.cluster))
        number = plans.structure_kept(one, other) if keep else plans.structure_of_both(one, other)
        return plans.sketch(number, lambda: merge_clusters(first.cluster, second.cluster, one, keep_producer=keep))


def _is_call(instruction: Instruction) -> bool:
    """Whether a library computes an instruction, or nothing of ours."""
    spec = find(instruction.opcode)
    return spec is None or (spec.is_library and not spec.own_kernel)


def _form(launch: Launch, in_order: bool = True) -> LaunchForm:
    return LaunchForm(LaunchDimensions(launch.grid, launch.block), in_order, launch.shared_bytes)
