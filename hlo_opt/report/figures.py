"""The figures of a module, for programs: `hlo_opt.stats(module)`."""

from __future__ import annotations

from hlo_opt.analysis.graph.loops import NO_TRIP_COUNTS, TripCounts, check_trip_counts
from hlo_opt.analysis.targets import DEFAULT_TARGET, DeviceTarget
from hlo_opt.analysis.targets import target as find_target
from hlo_opt.ir import Module
from hlo_opt.report import summary
from hlo_opt.report.summary import Stats
from hlo_opt.text import parse, verify


def stats(
    module: Module | str, *, target: str | DeviceTarget = DEFAULT_TARGET, trip_counts: TripCounts = NO_TRIP_COUNTS
) -> Stats:
    """Kernels, launches, bytes and estimated microseconds of a module or a text, without fusing it: `.summary.kernels`,
    `.launches`, `.bytes`, `.est_us`.

    `trip_counts` are iterations of loops by name, where the text does not say. Raises UsageError for an unknown target
    or loop; ParseError and VerifyError for a text.
    """
    device = find_target(target) if isinstance(target, str) else target
    if isinstance(module, str):
        module = parse(module)
        verify(module)
    check_trip_counts(module, trip_counts)
    return summary.stats(module, device, trip_counts)
