"""The search for the phases of a loop that one block can own."""

from __future__ import annotations

from dataclasses import replace

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.ir import Instruction, Module
from hlo_opt.plans import phase_search
from hlo_opt.plans.block_loop import BLOCK, InBlock
from hlo_opt.plans.columns import SHARED_BYTES
from hlo_opt.plans.lane_search import Search
from hlo_opt.plans.plan import Region

LARGEST = 1 << 14
"""Limit of elements of a carried value, and of a cell."""
MOST_WORK = 1 << 17
"""Limit of elements that the threads of the block compute in a round."""

FEW_PAIRS = 1 << 11
"""The same limit as `phase_search.MOST_PAIRS` for a processor, which makes one update after another in a nanosecond."""
LONGEST = 32
"""Limit of dependent instructions that are computed again for another cell: the barrier after a cell takes as long."""


def match(region: Region, target: DeviceTarget) -> InBlock | None:
    """The region as a loop in one block, or None."""
    pulls = FEW_PAIRS if target.in_lanes else phase_search.MOST_PAIRS
    return _owned(phase_search.of_region(region, pulls, scatters=True), in_lanes=target.in_lanes)


def fits(module: Module, loop: Instruction) -> bool:
    """Whether one block could own a loop of a module."""
    return _owned(phase_search.of_loop(module, loop, scatters=True)) is not None


def _owned(search: Search | None, *, in_lanes: bool = False) -> InBlock | None:
    cut = None if search is None else phase_search.cut(search, LONGEST, largest=LARGEST, in_place=True)
    if cut is None:
        return None
    phases = tuple(tuple(cell.with_team(BLOCK, BLOCK, in_lanes=in_lanes) for cell in phase) for phase in cut.phases)
    part = InBlock.of(replace(cut, phases=phases, in_lanes=in_lanes)).joined()
    work = sum(cell.value.shape.element_count * cell.terms for cell in part.cells)
    if part.shared_bytes(part.block) > SHARED_BYTES:
        part = part.in_turns()
    return part if part.shared_bytes(part.block) <= SHARED_BYTES and work <= MOST_WORK else None
