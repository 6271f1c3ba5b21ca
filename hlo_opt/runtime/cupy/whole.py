"""A whole run bound to memory: inputs that stay where they are, and memory of its own for all else. What is timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hlo_opt.ir.values import Array
from hlo_opt.runtime.cupy.capture import CapturedGraph, Capturer
from hlo_opt.runtime.schedule.stretch import NOTHING, BoundLaunch, Start, Stretch


@dataclass
class WholeRun:
    """The launches of a routine that is one stretch, with all their arguments. The first run starts them one by one;
    the second one captures them, and from then on a run is one graph, if graphs are wished.

    It starts on the stream that is current then, and its memory serves one run at a time.
    """

    capturer: Capturer
    stretch: Stretch
    launches: Sequence[BoundLaunch]
    graph: CapturedGraph | None = None
    _runs: int = 0
    _starts: list[Start] = field(default_factory=list)

    def __call__(self) -> int:
        """Start it; returns how many kernels it launches."""
        capturer, device = self.capturer, self.capturer.device
        if self.graph is None and self._runs == 1 and capturer.most_streams:
            self.graph = capturer.capture(self.launches, self.stretch)
        self._runs += 1
        if self.graph is not None:
            capturer.start(self.graph, ())
            return self.stretch.launches
        if not self._starts:
            self._starts = [device.start_of(launch) for launch in self.launches]
        device.start_all(self._starts, self.launches)
        return self.stretch.launches


def whole_run(
    capturer: Capturer, stretch: Stretch, inputs: Sequence[Array], constants: Callable[[Stretch], dict[int, Array]]
) -> WholeRun:
    """A run of a routine, which is the stretch, on these inputs. `constants` are the buffers of its constants. Raises
    BackendError where there is no memory for all at once."""
    device, shapes = capturer.device, stretch.routine.shapes
    memory: list[Array] = [NOTHING] * len(shapes)
    own = {b: device.allocate(shapes[b]) for b in stretch.kept}
    for b, array in (*zip(stretch.routine.inputs, inputs, strict=True), *constants(stretch).items(), *own.items()):
        memory[b] = array
    block = device.block(stretch.bytes) if stretch.bytes else None
    return WholeRun(capturer, stretch, stretch.bound(device, memory, block))
