"""Straight stretches of kernels as CUDA graphs: one launch instead of many, wherever a stretch finds the memory that it had before.

A stretch is launched kernel by kernel the first time that it meets some addresses, is captured the second time, and from then on its graph is launched while the addresses
are the same: those of what it reads, of what it makes for others, and of the block for the rest. CuPy's pool gives equal requests equal memory, so a program that runs again
mostly finds the same. XLA:GPU does the same with its command buffers, which it captures after a first run and updates where an address has changed
(xla/backends/gpu/runtime/command_buffer_thunk.cc). Library calls are never captured: they may allocate and wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hlo_opt.diag import BackendError
from hlo_opt.runtime.cupy_capture import CannotCaptureError, Capturer, Graph, launch_one
from hlo_opt.runtime.schedule import Schedule
from hlo_opt.runtime.steps import Routine
from hlo_opt.runtime.straight import Launch, StraightLine, straight_lines

LEAST_LAUNCHES = 5
"""Kernels from which on a stretch is captured, as XLA's `xla_gpu_graph_min_graph_size`."""
MOST_LAUNCHES = 512
"""Kernels of one graph; longer stretches become several."""
MOST_BYTES = 1 << 26
"""A stretch allocates all that it makes before it starts; one that needs more than this runs step by step. Its kernels are long enough for launches not to matter."""
MOST_KNOWN = 8
"""Sets of addresses that are remembered of a stretch."""
MOST_CAPTURES = 24
"""How often a stretch is captured. Where addresses change on and on, capturing costs more than it saves."""

_Key = tuple[int, ...]


@dataclass
class _Known:
    """What is known of a stretch: graphs by addresses (None: met once), and how often it was captured."""

    graphs: dict[_Key, Graph | None] = field(default_factory=dict)
    captures: int = 0


@dataclass
class StretchGraphs:
    """The stretches of a schedule on a device.

    replayed  launches of the run under way that graphs made
    refused   why a stretch was not captured; it runs step by step from then on
    """

    capturer: Capturer
    schedule: Schedule
    replayed: int = 0
    refused: dict[StraightLine, str] = field(default_factory=dict)
    _lines: dict[Routine, dict[int, StraightLine]] = field(default_factory=dict)
    _known: dict[StraightLine, _Known] = field(default_factory=dict)

    def begin(self) -> None:
        """A run starts."""
        self.replayed = 0

    @property
    def captured(self) -> int:
        """How many stretches have a graph."""
        return sum(any(known.graphs.values()) for known in self._known.values())

    @property
    def streams(self) -> int:
        """The most streams that a graph uses."""
        return max((g.streams for known in self._known.values() for g in known.graphs.values() if g), default=0)

    @property
    def most_held(self) -> int:
        """The most bytes that a stretch allocates before it starts."""
        lines = (line for routine in self.schedule.routines.values() for line in self._of(routine).values())
        return max((line.held for line in lines), default=0)

    def _of(self, routine: Routine) -> dict[int, StraightLine]:
        found = self._lines.get(routine)
        if found is None:
            lines = straight_lines(routine, LEAST_LAUNCHES, MOST_LAUNCHES)
            found = {line.first: line for line in lines if line.held <= MOST_BYTES}
            self._lines[routine] = found
        return found

    def line_at(self, routine: Routine, position: int) -> StraightLine | None:
        """The stretch that starts at a step."""
        line = self._of(routine).get(position)
        return None if line is None or line in self.refused else line

    def run(self, line: StraightLine, memory: list[Any]) -> bool:
        """Start all launches of a stretch. `memory` has what it takes, constants included, and gets what others read of it. False where there is no memory for the whole
        stretch at once: nothing has been started then."""
        device, shapes = self.capturer.device, line.routine.shapes
        try:
            block = device.block(line.bytes) if line.bytes else None
            own = {b: device.allocate(shapes[b]) for b in line.kept}
        except BackendError as error:
            self.refused[line] = error.message
            return False
        for b, made in own.items():
            memory[b] = made
        key = _addresses([block, *(memory[b] for b in (*line.taken, *line.kept))])
        known = self._known.setdefault(line, _Known())
        was_met = key in known.graphs
        graph = known.graphs.pop(key, None)
        if graph is None:
            launches = line.bound(device, memory, block)
            graph = self._captured(line, known, launches) if was_met else None
        known.graphs[key] = graph  # the one used last comes last
        if len(known.graphs) > MOST_KNOWN:
            del known.graphs[next(iter(known.graphs))]
        if graph is None:
            for launch in launches:
                launch_one(device, launch)
        else:
            device.replay(graph.graph)
            self.replayed += graph.launches
        for b in line.seen:
            memory[b] = line.found(device, memory, b)
        return True

    def _captured(self, line: StraightLine, known: _Known, launches: Sequence[Launch]) -> Graph | None:
        if known.captures >= MOST_CAPTURES:
            return None
        known.captures += 1
        try:
            return self.capturer.capture(launches)
        except CannotCaptureError as error:
            self.refused[line] = str(error)
            return None


def _addresses(buffers: Sequence[Any]) -> _Key:
    return tuple(0 if m is None else int(m.data.ptr) for m in buffers)
