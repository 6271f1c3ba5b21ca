"""The CUDA graphs of a module on a GPU: those of its loops, and those of its stretches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hlo_opt.diag import BackendError
from hlo_opt.ir.values import Array
from hlo_opt.runtime.cupy.capture import Capturer, streams_wished
from hlo_opt.runtime.cupy.device import CupyDevice
from hlo_opt.runtime.cupy.loops import LEAST, CannotCaptureError, Constants, LoopGraph, whole
from hlo_opt.runtime.cupy.stretches import StretchGraphs
from hlo_opt.runtime.schedule import Schedule
from hlo_opt.runtime.schedule.footprint import peak_of
from hlo_opt.runtime.schedule.ops import Loop, Routine
from hlo_opt.runtime.schedule.stretch import Stretch, stretches

LEAST_LAUNCHES = 5
"""Kernels from which on a stretch is captured, as XLA's `xla_gpu_graph_min_graph_size`."""
MOST_LAUNCHES = 512
"""Kernels of one graph; longer stretches become several."""
MOST_BYTES = 1 << 26
"""A stretch allocates all that it makes before it starts; one that needs more than this runs kernel by kernel. Its kernels are long enough for launches not to matter."""
MOST_LOOPS = 2
"""Sets of graphs that are kept of a loop, by where that lies which its body leaves alone."""


@dataclass
class RunGraphs:
    """The graphs of a schedule. `has_stretches` is False where those of stretches would hold more memory than is allowed."""

    capturer: Capturer
    schedule: Schedule
    has_stretches: bool = True
    _found: dict[Routine, dict[int, Stretch]] = field(default_factory=dict)
    _stretches: dict[Stretch, StretchGraphs] = field(default_factory=dict)
    _loops: dict[Loop, list[LoopGraph]] = field(default_factory=dict)

    def begin(self) -> None:
        """A run starts."""
        self.capturer.replayed = 0

    def stretches_of(self, routine: Routine) -> Mapping[int, Stretch]:
        """The stretches of a routine that are short enough, by the position at which they start."""
        found = self._found.get(routine)
        if found is None:
            parts = stretches(routine, LEAST_LAUNCHES, MOST_LAUNCHES) if self.has_stretches else ()
            found = self._found[routine] = {stretch.first: stretch for stretch in parts if stretch.held <= MOST_BYTES}
        return found

    def run_stretch(self, stretch: Stretch, memory: list[Array]) -> bool:
        """Start its launches, on the buffers of a routine that runs, constants included; False where they must run one by one."""
        return self._stretches.setdefault(stretch, StretchGraphs(self.capturer, stretch)).run(memory)

    def run_loop(
        self,
        op: Loop,
        state: Sequence[Array],
        trips: int | None,
        constants: Constants,
        count: Callable[[int], None],
    ) -> tuple[list[Array], int] | None:
        """The final state and how many kernels were launched; None where the loop must run kernel by kernel. `trips` is the number of iterations where it is known; `count` is called before
        each one with the number of those that are done, and may raise."""
        if op in self.capturer.refused or (trips is not None and trips < LEAST):
            return None
        loops = self._loops.setdefault(op, [])
        loop = next((known for known in loops if known.fits(state)), None)
        if loop is None:
            try:
                body, condition = (whole(self.schedule.routines[key]) for key in (op.body, op.condition))
                loop = LoopGraph(self.capturer, op, (body, condition), state, constants)
            except (CannotCaptureError, BackendError) as error:
                self.capturer.refused[op] = str(error)
                return None
            loops.append(loop)
            del loops[:-MOST_LOOPS]
        return loop.run(state, trips, count)

    @property
    def most_held(self) -> int:
        """The most bytes that a stretch allocates before it starts."""
        parts = (
            stretch for routine in self.schedule.routines.values() for stretch in self.stretches_of(routine).values()
        )
        return max((stretch.held for stretch in parts), default=0)

    def report(self) -> dict[str, Any]:
        """loops, stretches   how many have a graph
        replayed           launches of the last call that graphs made
        streams            the most streams that a graph spreads its launches over
        refused            why one has none, without repetition
        """
        of_loops = [[half.graph for loop in loops for half in loop.halves] for loops in self._loops.values()]
        of_stretches = [list(known.graphs.values()) for known in self._stretches.values()]
        graphs = [graph for graphs in (*of_loops, *of_stretches) for graph in graphs if graph]
        return {
            "loops": sum(map(any, of_loops)),
            "stretches": sum(map(any, of_stretches)),
            "replayed": self.capturer.replayed,
            "streams": max((graph.streams for graph in graphs), default=0),
            "refused": sorted(set(self.capturer.refused.values())),
        }


def graphs_of(schedule: Schedule, device: CupyDevice, memory_limit: int | None) -> RunGraphs | None:
    """The graphs of a schedule, none of which is captured yet; None where `$HLO_OPT_STREAMS` is 0. A stretch allocates all that it makes before it starts, and none is
    captured where this could exceed the limit of bytes."""
    streams = streams_wished()
    if not streams:
        return None
    made = RunGraphs(Capturer(device.cupy, device, streams), schedule)
    held = 0 if memory_limit is None else made.most_held
    if memory_limit is not None and held and peak_of(schedule).bytes + held > memory_limit:
        return RunGraphs(made.capturer, schedule, has_stretches=False)
    return made
