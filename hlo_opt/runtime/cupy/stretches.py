"""Stretches of kernels as CUDA graphs: one launch instead of many, wherever a stretch finds the memory that it had before.

A stretch is launched kernel by kernel the first time that it meets some addresses, is captured the second time, and from then on its graph is launched while the addresses
are the same: those of what it reads, of what it makes for others, and of the block for the rest. CuPy's pool gives equal requests equal memory, so a program that runs again
mostly finds the same. XLA:GPU does the same with its command buffers, which it captures after a first run and updates where an address has changed
(xla/backends/gpu/runtime/command_buffer_thunk.cc). Library calls are never captured: they may allocate and wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hlo_opt.diag import BackendError
from hlo_opt.runtime.cupy.capture import CannotCaptureError, Capturer, Graph, launch_one
from hlo_opt.runtime.schedule import Schedule
from hlo_opt.runtime.schedule.ops import Routine
from hlo_opt.runtime.schedule.stretch import BoundLaunch, Stretch, stretches

LEAST_LAUNCHES = 5
"""Kernels from which on a stretch is captured, as XLA's `xla_gpu_graph_min_graph_size`."""
MOST_LAUNCHES = 512
"""Kernels of one graph; longer stretches become several."""
MOST_BYTES = 1 << 26
"""A stretch allocates all that it makes before it starts; one that needs more than this runs kernel by kernel. Its kernels are long enough for launches not to matter."""
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
    refused   why a stretch was not captured; it runs kernel by kernel from then on
    """

    capturer: Capturer
    schedule: Schedule
    replayed: int = 0
    refused: dict[Stretch, str] = field(default_factory=dict)
    _found: dict[Routine, dict[int, Stretch]] = field(default_factory=dict)
    _known: dict[Stretch, _Known] = field(default_factory=dict)

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
        parts = (stretch for routine in self.schedule.routines.values() for stretch in self.of(routine).values())
        return max((stretch.held for stretch in parts), default=0)

    def of(self, routine: Routine) -> Mapping[int, Stretch]:
        """The stretches of a routine that are short enough, by the position at which they start."""
        found = self._found.get(routine)
        if found is None:
            parts = stretches(routine, LEAST_LAUNCHES, MOST_LAUNCHES)
            found = {stretch.first: stretch for stretch in parts if stretch.held <= MOST_BYTES}
            self._found[routine] = found
        return found

    def run(self, stretch: Stretch, memory: list[Any]) -> bool:
        """Start all launches of a stretch. `memory` has what it takes, constants included, and gets what others read of it. False where it was refused, or there is no memory for the
        whole stretch at once: nothing has been started then."""
        if stretch in self.refused:
            return False
        device, shapes = self.capturer.device, stretch.routine.shapes
        try:
            block = device.block(stretch.bytes) if stretch.bytes else None
            own = {b: device.allocate(shapes[b]) for b in stretch.kept}
        except BackendError as error:
            self.refused[stretch] = error.message
            return False
        for b, made in own.items():
            memory[b] = made
        key = _addresses([block, *(memory[b] for b in (*stretch.taken, *stretch.kept))])
        known = self._known.setdefault(stretch, _Known())
        was_met = key in known.graphs
        graph = known.graphs.pop(key, None)
        if graph is None:
            launches = stretch.bound(device, memory, block)
            graph = self._captured(stretch, known, launches) if was_met else None
        known.graphs[key] = graph  # the one used last comes last
        if len(known.graphs) > MOST_KNOWN:
            del known.graphs[next(iter(known.graphs))]
        if graph is None:
            for launch in launches:
                launch_one(device, launch)
        else:
            device.replay(graph.graph)
            self.replayed += graph.launches
        for b in stretch.seen:
            memory[b] = stretch.found(device, memory, b)
        return True

    def _captured(self, stretch: Stretch, known: _Known, launches: Sequence[BoundLaunch]) -> Graph | None:
        if known.captures >= MOST_CAPTURES:
            return None
        known.captures += 1
        try:
            return self.capturer.capture(launches)
        except CannotCaptureError as error:
            self.refused[stretch] = str(error)
            return None


def _addresses(buffers: Sequence[Any]) -> _Key:
    return tuple(0 if m is None else int(m.data.ptr) for m in buffers)
