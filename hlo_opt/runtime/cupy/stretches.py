"""Stretches of kernels as CUDA graphs: one launch instead of many, wherever a stretch finds the memory that it had before.

A stretch is launched kernel by kernel the first time that it meets some addresses, is captured the second time, and from then on its graph is launched while the addresses
are the same: those of what it reads, of what it makes for others, and of the block for the rest. CuPy's pool gives equal requests equal memory, so a program that runs again
mostly finds the same. XLA:GPU does the same with its command buffers, which it captures after a first run and updates where an address has changed
(xla/backends/gpu/runtime/command_buffer_thunk.cc). Library calls are never captured: they may allocate and wait.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hlo_opt.diag import BackendError
from hlo_opt.runtime.cupy.capture import Capturer, Graph
from hlo_opt.runtime.schedule.stretch import Stretch

MOST_KNOWN = 8
"""Sets of addresses that are remembered of a stretch."""
MOST_CAPTURES = 24
"""How often a stretch is captured. Where addresses change on and on, capturing costs more than it saves."""

_Key = tuple[int, ...]


@dataclass
class StretchGraphs:
    """The graphs of a stretch, by the addresses that it met (None: met once), and how often it was captured."""

    capturer: Capturer
    stretch: Stretch
    graphs: dict[_Key, Graph | None] = field(default_factory=dict)
    captures: int = 0

    def run(self, memory: list[Any]) -> bool:
        """Start all launches. `memory` has what the stretch takes, constants included, and gets what others read of it. False where it was refused, or there is no memory for the
        whole stretch at once: nothing has been started then."""
        capturer, stretch, shapes = self.capturer, self.stretch, self.stretch.routine.shapes
        if stretch in capturer.refused:
            return False
        device = capturer.device
        try:
            block = device.block(stretch.bytes) if stretch.bytes else None
            own = {b: device.allocate(shapes[b]) for b in stretch.kept}
        except BackendError as error:
            capturer.refused[stretch] = error.message
            return False
        for b, made in own.items():
            memory[b] = made
        key = tuple(address(m) for m in (block, *(memory[b] for b in (*stretch.taken, *stretch.kept))))
        was_met = key in self.graphs
        graph, launches = self.graphs.pop(key, None), []
        if graph is None:
            launches = stretch.bound(device, memory, block)
            if was_met and self.captures < MOST_CAPTURES:
                self.captures += 1
                graph = capturer.capture(launches, stretch)
        self.graphs[key] = graph  # the one used last comes last
        if len(self.graphs) > MOST_KNOWN:
            del self.graphs[next(iter(self.graphs))]
        capturer.start(graph, launches)
        for b in stretch.seen:
            memory[b] = stretch.found(device, memory, b)
        return True


def address(memory: Any) -> int:
    """Where a buffer lies; 0 for a token."""
    return 0 if memory is None else int(memory.data.ptr)
