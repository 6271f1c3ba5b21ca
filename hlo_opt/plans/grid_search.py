"""The search for the phases of a loop that all blocks of a launch share."""

from __future__ import annotations

from dataclasses import replace

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import Instruction, Module
from hlo_opt.plans import phase_search
from hlo_opt.plans.columns import SHARED_BYTES
from hlo_opt.plans.grid_loop import BLOCK, InGrid
from hlo_opt.plans.lane_search import Search
from hlo_opt.plans.plan import Region

SHORT = 64
"""The least number of terms that a team folds where meetings are saved: the loads of fewer take less time than one."""
REPEATED = 1000.0
"""The most instructions that an element computes again where meetings are saved: they take less time than one."""
SHARE = 0.5
"""The share of L2 that the state and the cells may occupy: the rest is for other reads of the rounds."""


def match(region: Region, target: DeviceTarget) -> InGrid | None:
    """The region as a loop that all blocks share; None if it is not one. There is at most one block for each
    multiprocessor of the target, so that all are resident."""
    return _shared(phase_search.of_region(region), target)


def with_fewer_meetings(region: Region, target: DeviceTarget, usual: InGrid | None = None) -> InGrid | None:
    """What `match` finds (`usual`) with fewer phases, where there can be fewer: threads fold short sums alone, and
    compute small values again instead of waiting until another thread has computed them."""
    usual = match(region, target) if usual is None else usual
    if usual is None or len(usual.phases) < 2:
        return None
    part = _shared(phase_search.of_region(region), target, shortest=SHORT, repeated=REPEATED)
    return part if part is not None and len(part.phases) < len(usual.phases) else None


def fits(module: Module, loop: Instruction, target: DeviceTarget) -> bool:
    """Whether blocks could share a loop of a module, if all values that its rounds change are read afterwards."""
    return _shared(phase_search.of_loop(module, loop), target) is not None


def _shared(search: Search | None, target: DeviceTarget, shortest: int = 0, repeated: float = 0.0) -> InGrid | None:
    """`shortest`: the least number of terms that a team folds; `repeated`: see `phase_search.cut`."""
    cut = None if search is None else phase_search.cut(search, repeated=repeated)
    if cut is None or len({v.result for v in cut.state}) < len(cut.state):
        return None
    most = target.core_count * BLOCK
    phases = tuple(
        tuple(cell.with_team(most, BLOCK) if cell.terms >= shortest else cell for cell in phase) for phase in cut.phases
    )
    part = InGrid.of(replace(cut, phases=phases, in_lanes=target.in_lanes)).joined()
    threads = max(cell.value.shape.element_count * cell.team.ways for phase in phases for cell in phase)
    part = replace(part, blocks=min(target.core_count, -(-threads // BLOCK)))
    size = sum(shape.element_count * shape.type.bytes for shape in part.scratch)
    return part if size <= SHARE * target.l2_cache_size and part.shared_bytes(BLOCK) <= SHARED_BYTES else None
