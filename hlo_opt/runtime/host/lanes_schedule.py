"""A module's schedule for vector units and a few processors, where some kinds of kernels are planned differently from a
GPU's."""

from __future__ import annotations

from hlo_opt.analysis.targets import DeviceTarget, InLanes, target_of
from hlo_opt.ir import Module
from hlo_opt.passes.for_kernels import IN_LANES, expanded
from hlo_opt.passes.loops_apart import apart
from hlo_opt.runtime.schedule import Schedule, build_schedule


def lanes_schedule(module: Module, target: str | DeviceTarget | None = None) -> Schedule:
    """The schedule of a module, fused or not, whose kernels have the form `lanes`. Raises what `build_schedule`
    raises."""
    device = target_of(module, target)
    return build_schedule(expanded(apart(module, device), device, IN_LANES), InLanes.of(device))
