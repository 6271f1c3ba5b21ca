"""Which CUDA graphs a module on a GPU uses: those of its loops, and those of its stretches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hlo_opt.runtime.cupy.capture import Capturer, streams_wished
from hlo_opt.runtime.cupy.device import CupyDevice
from hlo_opt.runtime.cupy.loops import LoopGraphs
from hlo_opt.runtime.cupy.stretches import StretchGraphs
from hlo_opt.runtime.schedule import Schedule
from hlo_opt.runtime.schedule.footprint import peak_of


@dataclass(frozen=True)
class RunGraphs:
    """`stretches` is None where they would hold more memory than is allowed."""

    loops: LoopGraphs
    stretches: StretchGraphs | None

    def report(self) -> dict[str, Any]:
        """loops, stretches   how many have a graph
        replayed           launches of the last call that graphs made
        streams            the most streams that a graph spreads its launches over
        refused            why one has none, without repetition
        """
        parts = [p for p in (self.loops, self.stretches) if p is not None]
        refused = {why for p in parts for why in p.refused.values()}
        return {
            "loops": self.loops.captured,
            "stretches": 0 if self.stretches is None else self.stretches.captured,
            "replayed": sum(p.replayed for p in parts),
            "streams": max(p.streams for p in parts),
            "refused": sorted(refused),
        }


def graphs_of(schedule: Schedule, device: CupyDevice, memory_limit: int | None) -> RunGraphs | None:
    """The graphs of a schedule, none of which is captured yet; None where `$HLO_OPT_STREAMS` is 0. A stretch allocates all that it makes before it starts, and none is
    captured where this could exceed the limit of bytes."""
    streams = streams_wished()
    if not streams:
        return None
    capturer = Capturer(device.cupy, device, streams)
    stretches: StretchGraphs | None = StretchGraphs(capturer, schedule)
    if memory_limit is not None and stretches is not None:
        held = stretches.most_held
        if held and peak_of(schedule).bytes + held > memory_limit:
            stretches = None
    return RunGraphs(LoopGraphs(capturer, schedule), stretches)
