"""A module as the linear program that backends walk: its lowering, who owns which memory, and how much a run holds."""

from hlo_opt.runtime.schedule.lowering import EmittedKernels, Schedule, build_schedule, constant_array

__all__ = ["EmittedKernels", "Schedule", "build_schedule", "constant_array"]
