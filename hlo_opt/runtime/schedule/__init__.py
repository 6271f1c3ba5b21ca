"""A module as the linear program that backends walk: its lowering, whose memory is whose, and what a run will hold."""

from hlo_opt.runtime.schedule.lowering import Schedule, build_schedule, told_array

__all__ = ["Schedule", "build_schedule", "told_array"]
