"""The CUDA graphs of a module on a GPU: those of its loops, and those of its stretches.

A stretch runs launch by launch the first time it meets a set of addresses, is captured the second time, and from then
on runs as a graph while the addresses stay the same: those of its inputs, of its outputs, and of the block for
temporaries. CuPy's pool reuses memory for equal requests, so repeated runs mostly see the same addresses. XLA:GPU
treats its command buffers alike: it captures after a first run, and updates where an address has changed
(xla/backends/gpu/runtime/command_buffer_thunk.cc). Products by cuBLAS are part of a stretch (`runtime.cupy.products`);
other library calls are never captured: they may allocate and wait.

Where body and condition of a loop are stretches, one graph launch runs both per iteration. The loop's changing state
alternates between two fixed sets of buffers: one graph runs the body from the first to the second, another one back.
All temporaries share one block. The first run goes kernel by kernel. From the second one on all iterations are one
graph, whose body the GPU repeats on its own decision (`runtime.cupy.conditional`): with a known trip count, a few
iterations at a time; otherwise one, which ends with the condition and copies the state back to the first set.

Where iterations are counted, or the driver has no such graphs, each half is one. It runs kernel by kernel first, and is
captured the second time. With a known trip count, all iterations are launched without the condition, whose predicate is
read once, at the end; otherwise each half ends with the condition, and one byte is read per iteration. Iterations are
counted as in kernel-by-kernel runs.

Loops of few iterations, whose number is known, are no loops here: they come in line (`runtime.schedule.in_line`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from hlo_opt.diag import BackendError
from hlo_opt.ir import Shape
from hlo_opt.ir.values import Array
from hlo_opt.runtime.cupy.addressed import AddressedLaunches, AddressedMemory
from hlo_opt.runtime.cupy.capture import COUNTS, CapturedGraph, Capturer, RepeatedLaunches, address, streams_wished
from hlo_opt.runtime.cupy.device import CupyDevice
from hlo_opt.runtime.cupy.whole import WholeRun, whole_run
from hlo_opt.runtime.schedule import Schedule
from hlo_opt.runtime.schedule.in_line import in_line
from hlo_opt.runtime.schedule.lifetimes import buffer_bytes, peak_of
from hlo_opt.runtime.schedule.ops import ConstantOp, LaunchOp, LoopOp, Routine
from hlo_opt.runtime.schedule.stretch import (
    ALIGNMENT,
    NOTHING,
    BoundLaunch,
    PlacingDevice,
    Stretch,
    first_decision,
    span_of,
    stretch_of,
    stretches,
)


class CannotCaptureError(Exception):
    """A loop cannot have graphs because it does more than launch kernels."""


MOST_COPIED = 1 << 24
"""Bytes of the state that a loop of an unknown trip count may copy in each iteration, where all are one graph."""
NODES_TOGETHER = 64
"""The approximate number of a loop's kernels, calls and copies that run before the GPU decides whether to continue: a
decision takes about as long as a small kernel."""
LEAST = 3
"""The smallest known trip count at which graphs are worth their two sets of buffers."""
Constants = Callable[[ConstantOp, Sequence[Shape]], list[Array]]
"""The buffers of a constant, given the shapes of its routine."""


@dataclass
class _Half:
    """The body from one set of buffers to the other (no body if `source` is None), then the condition, if `tests`.

    `own` is memory for the condition's outputs. `launches` last for one run; `graph` stays once captured.
    """

    source: int | None
    target: int
    tests: bool
    own: dict[int, Array]
    kernels: int
    launches: list[BoundLaunch] | None = None
    was_launched: bool = False
    graph: CapturedGraph | None = None


def whole(routine: Routine, device: PlacingDevice) -> Stretch:
    """A routine as one stretch. Raises CannotCaptureError if it does more than launch kernels and multiply."""
    other = first_decision(routine, device.places)
    if other is not None:
        raise CannotCaptureError(f"{other.instruction.opcode} {other.instruction.name} is no kernel")
    return stretch_of(routine, 0, len(routine.ops))


class LoopGraph:
    """A captured loop, for fixed addresses of the state that its body does not change."""

    def __init__(
        self,
        capturer: Capturer,
        op: LoopOp,
        halves: tuple[Stretch, Stretch],
        state: Sequence[Array],
        constants: Constants,
    ) -> None:
        """`halves` are body and condition. Raises BackendError for want of memory, CannotCaptureError where the state
        is not written by kernels."""
        self.capturer = capturer
        self.op = op
        self.device = capturer.device
        self.constants = constants
        self.body, self.condition = halves
        routine = self.body.routine
        self.carried = [k for k, (a, b) in enumerate(zip(routine.inputs, routine.results, strict=True)) if a != b]
        self.updated = set(op.updated)
        self.roots = self._roots()
        self.fixed = [k for k in range(len(state)) if k not in set(self.carried)]
        self.addresses = [address(state[k]) for k in self.fixed]
        self.start_state: Sequence[Array] = ()
        shapes = {k: routine.shapes[self.roots[k]] for k in self.carried}
        in_place = {k: self.device.allocate(shapes[k]) for k in self.carried if k in self.updated}
        offsets, end = {}, 0
        for k in self.carried:
            if k not in in_place:
                offsets[k], end = end, end + -(-max(buffer_bytes(shapes[k]), 1) // ALIGNMENT) * ALIGNMENT
        self.blocks = [self.device.block(end) if end else NOTHING for _ in range(2)]
        self.sets = [
            [in_place[k] if k in in_place else self.device.part(block, offsets[k], shapes[k]) for k in self.carried]
            for block in self.blocks
        ]
        size = max(self.body.bytes, self.condition.bytes)
        self.block = self.device.block(size) if size else None
        self.tests = [self._half(None, n, True) for n in (0, 1)]
        self.tested = [self._half(n, 1 - n, True) for n in (0, 1)]
        self.plain = [self._half(n, 1 - n, False) for n in (0, 1)]
        self.halves = [*self.tests, *self.tested, *self.plain]
        self.counts = self.device.zeros(COUNTS)
        self.graph: CapturedGraph | None = None
        self.decides = False  # whether the GPU decides how often the body runs

    def _half(self, source: int | None, target: int, tests: bool) -> _Half:
        shapes = self.condition.routine.shapes
        own = {b: self.device.allocate(shapes[b]) for b in self.condition.kept} if tests else {}
        kernels = (self.condition.launches if tests else 0) + (0 if source is None else self.body.launches)
        return _Half(source, target, tests, own, kernels)

    def _roots(self) -> dict[int, int]:
        """For each state element that the body changes, the buffer that its result is in, or the element itself if
        updated in place."""
        routine = self.body.routine
        roots: dict[int, int] = {}
        for k in self.carried:
            b = self.body.root[routine.results[k]]
            is_written = b == routine.inputs[k] if k in self.updated else b in self.body.kept
            if not is_written or b in roots.values():
                raise CannotCaptureError(f"element {k} of the state is not what one kernel writes")
            roots[k] = b
        return roots

    def _state(self, number: int) -> list[Array]:
        """The state in one of the two sets, shaped as the body's parameters."""
        arrays = list(self.start_state)
        routine = self.body.routine
        for k, memory in zip(self.carried, self.sets[number], strict=True):
            arrays[k] = self.device.view(memory, routine.shapes[routine.inputs[k]])
        return arrays

    def _predicate(self, half: _Half) -> Array:
        memory = self._memory(self.condition, self._state(half.target), half.own)
        return self.condition.buffer_at(self.device, memory, self.condition.routine.results[0])

    def _launches(self, half: _Half) -> list[BoundLaunch]:
        """The launches of a half, bound to this run's memory."""
        launches: list[BoundLaunch] = []
        if half.source is not None:
            placed = {self.roots[k]: m for k, m in zip(self.carried, self.sets[half.target], strict=True)}
            memory = self._memory(self.body, self._state(half.source), placed)
            launches += self.body.bound(self.device, memory, self.block)
        if half.tests:
            memory = self._memory(self.condition, self._state(half.target), half.own)
            launches += self.condition.bound(self.device, memory, self.block)
        return launches

    def _memory(self, stretch: Stretch, inputs: Sequence[Array], own: Mapping[int, Array]) -> list[Array]:
        """The buffers of a stretch: its inputs, constants, and memory for what others read."""
        routine = stretch.routine
        memory: list[Array] = [NOTHING] * len(routine.shapes)
        for b, value in (*zip(routine.inputs, inputs, strict=True), *own.items()):
            memory[b] = value
        for op in stretch.constants:
            for b, value in zip(op.outputs, self.constants(op, routine.shapes), strict=True):
                memory[b] = value
        return memory

    def fits(self, state: Sequence[Array]) -> bool:
        """Whether the unchanged state still has the addresses of the capture."""
        return [address(state[k]) for k in self.fixed] == self.addresses

    def run(
        self, state: Sequence[Array], trips: int | None, count: Callable[[int], None], *, is_counted: bool
    ) -> tuple[list[Array], int]:
        """As `RunGraphs.run_loop`. The state is released afterwards, so that the next one may get the same
        addresses. `is_counted`: `count` does something."""
        self.start_state = state
        try:
            for k, target in self._changed(0):
                self.device.start_of((None, [state[k]], [target]))()
            if self.graph is None and not is_counted and self.op not in self.capturer.apart and self._was_launched:
                self.graph = self._all(trips)
            if self.graph is None:
                return self._run(state, trips, count)
            self.capturer.start(self.graph, ())
            return self._results(0), self.graph.launches
        finally:
            self.start_state = ()
            for half in self.halves:
                half.launches = None

    @property
    def _was_launched(self) -> bool:
        """Whether all kernels were launched before."""
        return all(any(half.was_launched for half in of) for of in ([*self.tested, *self.plain], self.halves[:4]))

    def _all(self, trips: int | None) -> CapturedGraph | None:
        """All iterations as one graph, from the first set of buffers to the first; None where there is none."""
        refused = self._refused(trips)
        if refused is not None:
            self.capturer.apart[self.op] = refused
            return None
        self.decides = trips is None
        turns = [self._launches(half) for half in self.plain]
        copies: list[BoundLaunch] = [] if self.blocks[0] is NOTHING else [(None, self.blocks[1:], self.blocks[:1])]
        if trips is None:
            test, more = self._launches(self.tests[0]), self._predicate(self.tests[0])
            return self.capturer.capture_rounds(
                test, RepeatedLaunches([*turns[0], *copies, *test], self.counts, more), self.op
            )
        together = 2 * max(1, NODES_TOGETHER // (2 * max(1, len(turns[0]))))
        first = trips % together
        before = [launch for n in range(first) for launch in turns[n % 2]] + (copies if first % 2 else [])
        body = [launch for n in range(together) for launch in turns[n % 2]]
        graph = self.capturer.capture_rounds(
            before, RepeatedLaunches(body, self.counts, most=trips // together), self.op
        )
        if graph is not None:
            graph.launches = trips * self.body.launches
        return graph

    def _refused(self, trips: int | None) -> str | None:
        """Why the GPU does not run all iterations alone."""
        for op in (*self.body.work, *self.condition.work):
            if isinstance(op, LaunchOp) and op.kernel.launch.cooperative:
                return f"the blocks of {op.kernel.symbol} wait for each other, which no graph repeats"
        size = 0 if self.blocks[0] is NOTHING else int(self.blocks[0].nbytes)
        if trips is None and size > MOST_COPIED:
            return f"each iteration would copy {size} bytes"
        return None

    def begin(self) -> None:
        """Start a run: its iterations are counted from here on."""
        if self.graph is not None:
            first, last = span_of(self.counts)
            every, before = (cast("Array", AddressedMemory(at, 8)) for at in (first + 8, last - 8))
            self.device.start_of((None, [every], [before]))()

    @property
    def unread(self) -> int:
        """Kernels that the GPU has launched since `begin` on decisions of its own."""
        if self.graph is None or not self.decides:
            return 0
        _, every, before = self.capturer.cupy.asnumpy(self.counts).view(np.uint64).tolist()
        return (every - before) * (self.body.launches + self.condition.launches)

    def _results(self, number: int) -> list[Array]:
        """The state in one of the sets, as memory that the next run leaves alone."""
        results = list(self.start_state)
        for k, memory in self._changed(number):
            results[k] = memory.copy()
        return results

    def _run(self, state: Sequence[Array], trips: int | None, count: Callable[[int], None]) -> tuple[list[Array], int]:
        current, done, launches, unread = 0, 0, 0, trips or 0
        predicate: Any = None  # of the current state, once tested
        while True:
            if unread <= 0:
                if predicate is None:
                    launches += self._start(self.tests[current])
                    predicate = self._predicate(self.tests[current])
                if not bool(self.capturer.cupy.asnumpy(predicate)[0]):
                    break
            count(done)
            half = (self.plain if unread > 0 else self.tested)[current]
            launches += self._start(half)
            predicate = self._predicate(half) if half.tests else None
            current, unread, done = 1 - current, unread - 1, done + 1
        return self._results(current), launches

    def _start(self, half: _Half) -> int:
        """Start a half, and return how many kernels it launches."""
        if half.graph is None and half.launches is None:
            half.launches = self._launches(half)
        if half.graph is None and half.was_launched and self.op not in self.capturer.refused:
            half.graph = self.capturer.capture(half.launches or (), self.op)
        half.was_launched = True
        self.capturer.start(half.graph, half.launches or ())
        return half.kernels

    def _changed(self, number: int) -> list[tuple[int, Array]]:
        state = self._state(number)
        return [(k, state[k]) for k in self.carried]


MOST_KNOWN = 8
"""Sets of addresses to remember per stretch."""
MOST_CAPTURES = 24
"""The most captures per stretch. Where addresses keep changing, capturing costs more than it saves."""

_Key = tuple[int, ...]


@dataclass
class StretchGraphs:
    """The graphs of a stretch by its addresses (None: met once), and the number of captures."""

    capturer: Capturer
    stretch: Stretch
    graphs: dict[_Key, CapturedGraph | None] = field(default_factory=dict)
    captures: int = 0
    lacks_memory: bool = False
    launches: AddressedLaunches | None = None

    def run(self, memory: list[Any]) -> bool:
        """Start all launches; False, with nothing started, if the stretch does not fit into memory at once.

        `memory` has the stretch's inputs, constants included, and receives what others read of it.
        """
        capturer, stretch, shapes = self.capturer, self.stretch, self.stretch.routine.shapes
        if self.lacks_memory:
            return False
        device = capturer.device
        try:
            block = device.block(stretch.bytes) if stretch.bytes else None
            own = {b: device.allocate(shapes[b]) for b in stretch.kept}
        except BackendError as error:
            capturer.refused[stretch] = error.message
            self.lacks_memory = True
            return False
        for b, array in own.items():
            memory[b] = array
        self.start([*(address(memory[b]) for b in (*stretch.existing, *stretch.kept)), address(block)])
        for b in stretch.seen:
            memory[b] = stretch.buffer_at(device, memory, b)
        return True

    def start(self, addresses: Sequence[int]) -> None:
        """Start all launches, for addresses as `AddressedLaunches` takes them."""
        capturer, stretch = self.capturer, self.stretch
        launches = self.launches
        if launches is None:
            launches = self.launches = AddressedLaunches(capturer.device, stretch)
        if len(launches) < LEAST_LAUNCHES or not capturer.most_streams:
            launches.start(addresses)
            return
        key = (capturer.current(), *addresses)
        was_met = key in self.graphs
        graph = self.graphs.pop(key, None)
        if graph is None and was_met and self.captures < MOST_CAPTURES and stretch not in capturer.refused:
            self.captures += 1
            graph = capturer.capture(launches.bound(addresses), stretch)
        self.graphs[key] = graph  # most recently used last
        if len(self.graphs) > MOST_KNOWN:
            del self.graphs[next(iter(self.graphs))]
        if graph is None:
            launches.start(addresses)
        else:
            capturer.start(graph, ())


LEAST_LAUNCHES = 2
"""The fewest kernels and calls of a captured stretch: a launch from Python takes about as long as that of a graph."""
MOST_LAUNCHES = 512
"""The most kernels and calls of one graph; longer stretches are split."""
MOST_BYTES = 1 << 33
"""Bytes that a captured stretch may allocate, all before it starts. Where there is less, it runs step by step."""
MOST_LOOPS = 2
"""Sets of graphs kept per loop, by the addresses of the unchanged state."""


@dataclass
class RunGraphs:
    """The graphs of a schedule. `has_stretches` is False if graphs of stretches would exceed the memory limit, or no
    graphs are wished. `is_limited`: there is a limit. `is_counted`: each iteration of a loop is counted before it
    starts."""

    capturer: Capturer
    schedule: Schedule
    has_stretches: bool = True
    is_limited: bool = False
    is_counted: bool = False
    _in_line: dict[Routine, Routine] = field(default_factory=dict)
    _stretches_of: dict[Routine, dict[int, Stretch]] = field(default_factory=dict)
    _stretches: dict[Stretch, StretchGraphs] = field(default_factory=dict)
    _loops: dict[LoopOp, list[LoopGraph]] = field(default_factory=dict)
    _whole_runs: list[weakref.ref[WholeRun]] = field(default_factory=list)

    def begin(self) -> None:
        """Start a run."""
        self.capturer.replayed = 0
        for loop in self._every_loop():
            loop.begin()

    def _every_loop(self) -> list[LoopGraph]:
        return [loop for loops in self._loops.values() for loop in loops]

    @property
    def unread(self) -> int:
        """Kernels of the current run that the GPU has launched on decisions of its own; waits for it, if there are
        any."""
        return sum(loop.unread for loop in self._every_loop())

    def in_line(self, routine: Routine) -> Routine:
        """The routine with calls and small loops in line, as far as graphs of them are wished, memory is not limited,
        and nobody counts iterations."""
        if self.is_limited or self.is_counted or not self.has_stretches:
            return routine
        known = self._in_line.get(routine)
        if known is None:
            known = self._in_line[routine] = in_line(routine, self.schedule.routines, self.capturer.device.places)
            self._in_line[known] = known
        return known

    def stretches_of(self, routine: Routine) -> Mapping[int, Stretch]:
        """The stretches of a routine that are small enough, by the position of their first op."""
        known = self._stretches_of.get(routine)
        if known is None:
            places = self.capturer.device.places
            parts = stretches(routine, LEAST_LAUNCHES, MOST_LAUNCHES, places) if self.has_stretches else ()
            known = self._stretches_of[routine] = {
                stretch.first: stretch for stretch in parts if stretch.allocated_bytes <= MOST_BYTES
            }
        return known

    def run_stretch(self, stretch: Stretch, memory: list[Array]) -> bool:
        """Run a stretch on the buffers of its routine, constants included; False if it must run kernel by kernel."""
        return self._stretches.setdefault(stretch, StretchGraphs(self.capturer, stretch)).run(memory)

    def run_loop(
        self, op: LoopOp, state: Sequence[Array], trips: int | None, constants: Constants, count: Callable[[int], None]
    ) -> tuple[list[Array], int] | None:
        """The final state and the number of kernels launched; None if the loop must run kernel by kernel.

        `trips` is the trip count if known. `count` is called before each iteration with the number of finished ones,
        and may raise.
        """
        if not self.capturer.most_streams or op in self.capturer.refused or (trips is not None and trips < LEAST):
            return None
        loops = self._loops.setdefault(op, [])
        loop = next((known for known in loops if known.fits(state)), None)
        if loop is None:
            try:
                body, condition = (
                    whole(self.in_line(self.schedule.routines[key]), self.capturer.device)
                    for key in (op.body, op.condition)
                )
                loop = LoopGraph(self.capturer, op, (body, condition), state, constants)
            except (CannotCaptureError, BackendError) as error:
                self.capturer.refused[op] = str(error)
                return None
            loops.append(loop)
            del loops[:-MOST_LOOPS]
        return loop.run(state, trips, count, is_counted=self.is_counted)

    def whole_stretch(self, routine: Routine) -> StretchGraphs | None:
        """A routine as one stretch; None where that needs decisions or other library calls in between, or memory is
        limited."""
        routine = self.in_line(routine)
        if self.is_limited or first_decision(routine, self.capturer.device.places) is not None:
            return None
        stretch = stretch_of(routine, 0, len(routine.ops))
        return self._stretches.setdefault(stretch, StretchGraphs(self.capturer, stretch))

    def whole_run(self, routine: Routine, inputs: Sequence[Array], constants: Constants) -> Callable[[], int] | None:
        """A run of a routine with these inputs, which starts it and returns how many kernels it launches. None where
        that needs decisions or other library calls in between, or more memory than there is or may be."""
        routine = self.in_line(routine)
        if self.is_limited or first_decision(routine, self.capturer.device.places) is not None:
            return None

        def buffers(stretch: Stretch) -> dict[int, Array]:
            every = ((op.outputs, constants(op, routine.shapes)) for op in stretch.constants)
            return {b: array for outputs, arrays in every for b, array in zip(outputs, arrays, strict=True)}

        stretch = stretch_of(routine, 0, len(routine.ops))
        try:
            run = whole_run(self.capturer, stretch, inputs, buffers)
        except BackendError:
            return None
        self._whole_runs.append(weakref.ref(run))
        return run

    @property
    def most_bytes(self) -> int:
        """The most bytes that any stretch allocates before it starts."""
        parts = (
            stretch for routine in self.schedule.routines.values() for stretch in self.stretches_of(routine).values()
        )
        return max((stretch.allocated_bytes for stretch in parts), default=0)

    def report(self) -> dict[str, Any]:
        """What `Executable.report` says; nothing if no graphs are wished.

        loops, stretches   how many have a graph
        runs               how many of `Executable.resident` are one
        replayed           launches by graphs in the last call
        streams            the most streams of any graph
        refused            why a loop or a stretch has none, or a loop is not one graph, without repetition
        """
        if not self.capturer.most_streams:
            return {}
        of_loops = [
            [graph for loop in loops for graph in (loop.graph, *(half.graph for half in loop.halves))]
            for loops in self._loops.values()
        ]
        of_stretches = [list(known.graphs.values()) for known in self._stretches.values()]
        runs = [run for run in (of() for of in self._whole_runs) if run is not None]
        of_runs = [run.graph for run in runs]
        graphs = [graph for graphs in (*of_loops, *of_stretches, of_runs) for graph in graphs if graph]
        return {
            "loops": sum(map(any, of_loops)),
            "stretches": sum(map(any, of_stretches)),
            "runs": sum(map(bool, of_runs)),
            "replayed": self.capturer.replayed + self.unread,
            "streams": max((graph.streams for graph in graphs), default=0),
            "refused": sorted({*self.capturer.refused.values(), *self.capturer.apart.values()}),
        }


def graphs_of(
    schedule: Schedule,
    device: CupyDevice,
    memory_limit: int | None,
    *,
    wished: bool = True,
    counted: bool = False,
) -> RunGraphs:
    """The graphs of a schedule, none captured yet; there will be none if `$HLO_OPT_STREAMS` is 0 or unless `wished`.
    `counted`: the iterations of loops are.

    A stretch allocates all its memory before it starts; stretches are not captured if that could exceed the limit.
    """
    streams = streams_wished() if wished else 0
    is_limited = memory_limit is not None
    graphs = RunGraphs(Capturer(device.cupy, device, streams), schedule, bool(streams), is_limited, counted)
    kept = 0 if memory_limit is None else graphs.most_bytes
    if memory_limit is not None and kept and peak_of(schedule).bytes + kept > memory_limit:
        return RunGraphs(graphs.capturer, schedule, has_stretches=False, is_limited=True)
    return graphs
