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

SHARE = 0.5
"""Of L2, what the state and the cells may take: the rest is for what the rounds read besides."""


def match(region: Region, target: DeviceTarget) -> InGrid | None:
    """The region as a loop that blocks share, one for each multiprocessor of the target at the most, so that all run at
    the same time; or None."""
    return _shared(phase_search.of_region(region), target)


def fits(module: Module, loop: Instruction, target: DeviceTarget) -> bool:
    """Whether blocks could share a loop of a module, all that its rounds change being read afterwards."""
    return _shared(phase_search.of_loop(module, loop), target) is not None


def _shared(search: Search | None, target: DeviceTarget) -> InGrid | None:
    cut = None if search is None else phase_search.cut(search)
    if cut is None or len({v.made for v in cut.state}) < len(cut.state):
        return None
    found = InGrid.of(cut)
    most = target.core_count * BLOCK
    phases = tuple(tuple(cell.with_team(most, BLOCK) for cell in phase) for phase in cut.phases)
    threads = max(cell.value.shape.element_count * cell.team.ways for phase in phases for cell in phase)
    found = replace(found, phases=phases, blocks=min(target.core_count, -(-threads // BLOCK)))
    size = sum(shape.element_count * shape.type.bytes for shape in found.scratch)
    return found if size <= SHARE * target.l2_cache_size and found.shared_bytes(BLOCK) <= SHARED_BYTES else None
