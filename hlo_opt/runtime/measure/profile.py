"""Where the time of a run goes: each launch and library call timed, as a Chrome/Perfetto trace and by kernel."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hlo_opt.analysis.memory.traffic import distinct_bytes
from hlo_opt.codegen.kernel import Kernel
from hlo_opt.fusion.state import FusionState
from hlo_opt.ir import Instruction, Module, Shape
from hlo_opt.ir.values import Array
from hlo_opt.ops.sets import fused, tuple_elements
from hlo_opt.runtime.executable import entry_inputs
from hlo_opt.runtime.measure.bench import Clock, clock_of
from hlo_opt.runtime.numpy import Reference
from hlo_opt.runtime.schedule import Schedule, build_schedule
from hlo_opt.runtime.schedule.executor import Executor
from hlo_opt.runtime.schedule.ops import CallOp, LaunchOp
from hlo_opt.runtime.schedule.stretch import BackendDevice
from hlo_opt.text.frames import source_location

MOST_EVENTS = 200_000
"""Launches in a trace; later ones run, but are not timed."""
AT_A_TIME = 256
"""Launches that queue up behind one wait: a GPU takes some thousand entries, and a launch has a mark on both sides."""
_SLOWER = 1.5
"""How much longer than in the run before the host may take for launches before the GPU waits for it."""


@dataclass(frozen=True)
class ProfiledCall:
    """A launch or a library call.

    `start` and `duration` are microseconds, from the start of the run. `count` is the bytes read and written, `source`
    the instruction's Python line, `est_us` its estimate on the device that the module was fused for. If `sharing`
    instructions use the same kernel, the first stands for all.
    """

    name: str
    kind: str
    instruction: str
    start: float
    duration: float
    count: float
    source: str = ""
    sharing: int = 1
    est_us: float = 0.0


@dataclass(frozen=True)
class ProfileRow:
    """All launches of a kernel, or calls of a library operation.

    `microseconds` and `count` (bytes) are totals. `instruction` is the first of its instructions, `others` the number
    of the rest, `source` its Python line. `est_us` is for one launch.
    """

    name: str
    kind: str
    instruction: str
    others: int
    source: str
    launches: int
    microseconds: float
    count: float
    est_us: float = 0.0

    @property
    def bandwidth(self) -> float:
        """Bytes per second."""
        return self.count / (self.microseconds * 1e-6) if self.microseconds > 0 else 0.0


@dataclass(frozen=True)
class RunProfile:
    """A profiled run.

    copy_bandwidth  bytes per second, read plus written, of a plain copy of a large array on the device
    left_out        launches beyond `MOST_EVENTS`
    """

    module: str
    backend: str
    device: str
    copy_bandwidth: float
    events: tuple[ProfiledCall, ...]
    left_out: int = 0

    @property
    def microseconds(self) -> float:
        """From the start of the first event to the end of the last."""
        return max((e.start + e.duration for e in self.events), default=0.0)

    def rows(self) -> list[ProfileRow]:
        """One row per kernel, the longest total first."""
        by_kernel: dict[tuple[str, str], list[ProfiledCall]] = {}
        for event in self.events:
            by_kernel.setdefault((event.name, event.kind), []).append(event)
        rows = [
            ProfileRow(
                name,
                kind,
                events[0].instruction,
                max(events[0].sharing, len({e.instruction for e in events})) - 1,
                events[0].source,
                len(events),
                sum(e.duration for e in events),
                sum(e.count for e in events),
                events[0].est_us,
            )
            for (name, kind), events in by_kernel.items()
        ]
        return sorted(rows, key=lambda row: (-row.microseconds, row.name))

    def share(self, row: ProfileRow) -> float:
        """Bandwidth relative to the copy's."""
        return row.bandwidth / self.copy_bandwidth if self.copy_bandwidth else 0.0

    def trace(self) -> dict[str, Any]:
        """The trace-event format of chrome://tracing and ui.perfetto.dev. Names of the dump appear only as JSON
        strings."""
        tracks = {"kernel": 1, "library": 2}
        events: list[dict[str, Any]] = [
            {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": f"{self.module} on {self.device}"}}
        ]
        for kind, track in tracks.items():
            events.append({"ph": "M", "pid": 1, "tid": track, "name": "thread_name", "args": {"name": kind}})
        for e in self.events:
            arguments = {"instruction": e.instruction, "bytes": e.count}
            if e.duration > 0:
                arguments["GB/s"] = round(e.count / e.duration / 1e3, 3)
            events.append(
                {
                    "ph": "X",
                    "pid": 1,
                    "tid": tracks[e.kind],
                    "name": e.name,
                    "cat": e.kind,
                    "ts": round(e.start, 3),
                    "dur": round(e.duration, 3),
                    "args": arguments,
                }
            )
        rows = [
            {
                "name": r.name,
                "kind": r.kind,
                "instruction": r.instruction,
                "other_instructions": r.others,
                "source": r.source,
                "launches": r.launches,
                "microseconds": round(r.microseconds, 3),
                "est_us": round(r.est_us, 3),
                "bytes": r.count,
                "gb_per_s": round(r.bandwidth / 1e9, 3),
                "share_of_copy": round(self.share(r), 4),
            }
            for r in self.rows()
        ]
        other = {"backend": self.backend, "device": self.device, "copy_gb_per_s": round(self.copy_bandwidth / 1e9, 3)}
        return {"displayTimeUnit": "ns", "traceEvents": events, "otherData": other, "kernels": rows}


class TimedDevice:
    """A device that marks the time before and after each launch and call of another device."""

    def __init__(self, device: BackendDevice, clock: Clock, schedule: Schedule) -> None:
        self._device = device
        self._clock = clock
        self._module = schedule.module
        self._prices = FusionState(schedule.module, schedule.target).prices
        self._launched: dict[str, list[Instruction]] = {}
        self._bytes: dict[Instruction, float] = {}
        self._taken: list[tuple[str, str, Instruction, Any, Any]] = []
        self._waits: list[tuple[int, object, object]] = []  # launches before, and marks around
        self._host_us = 0.0
        self.left_out = 0
        for _, op in schedule.ops():
            if isinstance(op, LaunchOp):
                self._launched.setdefault(op.kernel.symbol, []).append(op.instruction)

    def upload(self, array: Array, shape: Shape) -> Array:
        return self._device.upload(array, shape)

    def download(self, memory: Array, shape: Shape) -> Array:
        return self._device.download(memory, shape)

    def allocate(self, shape: Shape) -> Array:
        return self._device.allocate(shape)

    def copy(self, memory: Array) -> Array:
        return self._device.copy(memory)

    def view(self, memory: Array, shape: Shape) -> Array:
        return self._device.view(memory, shape)

    def relayout(self, memory: Array, shape: Shape, target: Shape) -> Array:
        return self._device.relayout(memory, shape, target)

    def launch(self, kernel: Kernel, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        before = self._mark()
        self._device.launch(kernel, inputs, outputs)
        self._note(kernel.symbol, "kernel", self._launched[kernel.symbol][0], before)

    def call(self, op: CallOp, inputs: Sequence[Array], shapes: Sequence[Shape]) -> list[Array]:
        before = self._mark()
        outputs = self._device.call(op, inputs, shapes)
        self._note(op.call, "library", op.instruction, before)
        return outputs

    def _mark(self) -> Any:
        if len(self._taken) >= MOST_EVENTS:
            self.left_out += 1
            return None
        if self._host_us and self._taken and len(self._taken) % AT_A_TIME == 0:
            before = self._clock.mark()
            self._wait()
            self._waits.append((len(self._taken), before, self._clock.mark()))
        return self._clock.mark()

    def _wait(self) -> None:
        """Let the next launches queue up, or the marks would time the launches from Python."""
        self._clock.hold(self._host_us * AT_A_TIME * _SLOWER)

    def _note(self, name: str, kind: str, instruction: Instruction, before: Any) -> None:
        if before is not None:
            self._taken.append((name, kind, instruction, before, self._clock.mark()))

    def begin(self, host_us: float) -> None:
        """Drop all events of a run that took the host so long, and wait until launches of the next have queued up; 0
        for a run without waits."""
        self._host_us = host_us / max(1, len(self._taken))
        self._taken.clear()
        self._waits.clear()
        self.left_out = 0
        if host_us:
            self._wait()

    def events(self, start: Any) -> tuple[ProfiledCall, ...]:
        """All timed events, relative to a mark, without the waits."""
        events, waited, waits = [], 0.0, iter([*self._waits, (len(self._taken), None, None)])
        number, begin, end = next(waits)
        for k, (name, kind, i, before, after) in enumerate(self._taken):
            if k == number:
                waited += self._clock.between(begin, end)
                number, begin, end = next(waits)
            if i not in self._bytes:
                self._bytes[i] = distinct_bytes(i)
            first = self._clock.between(start, before) - waited
            sharing = len(dict.fromkeys(self._launched[name])) if kind == "kernel" else 1
            took, source = self._clock.between(before, after), line_of(self._module, i)
            events.append(
                ProfiledCall(name, kind, i.name, first, took, self._bytes[i], source, sharing, self._prices.of(i).us)
            )
        return tuple(events)


def line_of(module: Module, instruction: Instruction) -> str:
    """The Python line of an instruction; a fusion without one uses its root's. Empty if the dump has none."""
    while not (location := source_location(module, instruction)) and (body := fused(instruction)) is not None:
        instruction = body.root
        if elements := tuple_elements(instruction):
            instruction = elements[0]
    return location


def _device(schedule: Schedule, backend: str, *, precise: bool) -> BackendDevice:
    if backend == "cupy":
        from hlo_opt.runtime.cupy.device import CupyDevice

        return CupyDevice(schedule, precise=precise)
    from hlo_opt.runtime.host.library import HostDevice, HostLibrary

    return HostDevice(HostLibrary(schedule.kernels), Reference(schedule.module))


def profile(
    module: Module,
    backend: str,
    inputs: Sequence[Sequence[Array]],
    *,
    max_steps: int | None = None,
    precise: bool = False,
) -> tuple[list[list[Array]], RunProfile]:
    """The outputs of a module on each of its devices, and where the time went: two warm-up runs, and one that is timed.

    `backend` is `host` or `cupy`; `inputs` are per device; `precise` as for `compile`. Raises what `compile` raises.
    """
    schedule = build_schedule(module)
    clock = clock_of(backend)
    device = TimedDevice(_device(schedule, backend, precise=precise), clock, schedule)
    executor = Executor(schedule, device, max_steps)
    memory = [executor.upload(entry_inputs(module, own)) for own in inputs]

    def run() -> list[list[Array]]:
        return [executor.run_resident(memory[0])] if len(memory) == 1 else executor.run_devices_resident(memory)

    run()
    device.begin(0.0)
    began = time.perf_counter()
    run()
    device.begin((time.perf_counter() - began) * 1e6)
    start = clock.mark()
    outputs = [executor.outputs(results) for results in run()]
    events = device.events(start)
    profile = RunProfile(module.name, backend, clock.device, clock.copy_bandwidth(), events, device.left_out)
    return outputs, profile
