"""The CUDA graphs of a module on a GPU: those of its loops, and those of its stretches.

A stretch is launched kernel by kernel the first time that it meets some addresses, is captured the second time, and from then on its graph is launched while the addresses
are the same: those of what it reads, of what it makes for others, and of the block for the rest. CuPy's pool gives equal requests equal memory, so a program that runs again
mostly finds the same. XLA:GPU does the same with its command buffers, which it captures after a first run and updates where an address has changed
(xla/backends/gpu/runtime/command_buffer_thunk.cc). Library calls are never captured: they may allocate and wait.

Where body and condition of a loop are stretches, one launch per iteration does both. The state that the body changes lies in two fixed sets of buffers; one graph runs the body from the
first to the second, another one back. What else they make lies in one block, which both use. Each half runs kernel by kernel the first time, and is captured the second time.
Where the number of iterations is known, they are all launched without the condition, whose predicate is read once, at the end. Else each half ends with the condition, and one
byte is read per iteration. Iterations count as where a loop runs kernel by kernel, because it cannot be captured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hlo_opt.diag import BackendError
from hlo_opt.ir import Shape
from hlo_opt.ir.values import Array
from hlo_opt.runtime.cupy.capture import Capturer, Graph, address, streams_wished
from hlo_opt.runtime.cupy.device import CupyDevice
from hlo_opt.runtime.schedule import Schedule
from hlo_opt.runtime.schedule.lifetimes import peak_of
from hlo_opt.runtime.schedule.ops import Constant, Loop, Routine
from hlo_opt.runtime.schedule.stretch import NOTHING, BoundLaunch, Stretch, first_decision, stretch_of, stretches


class CannotCaptureError(Exception):
    """There are no graphs of a loop: it does more than launch kernels."""


LEAST = 3
"""Iterations, where their number is known, from which on graphs are worth their two sets of buffers."""
Constants = Callable[[Constant, Sequence[Shape]], list[Array]]
"""The buffers of a constant, given the shapes of its routine."""


@dataclass
class _Half:
    """The body from a set to another one (no body where there is no source), then, if it `tests`, the condition there. `own` is the memory of what the condition makes;
    `launches` lasts for one run, `graph` stays once there is one."""

    source: int | None
    target: int
    tests: bool
    own: dict[int, Array]
    kernels: int
    launches: list[BoundLaunch] | None = None
    was_launched: bool = False
    graph: Graph | None = None


def whole(routine: Routine) -> Stretch:
    """A routine as one stretch. Raises CannotCaptureError where it does more than launch kernels."""
    other = first_decision(routine)
    if other is not None:
        raise CannotCaptureError(f"{other.instruction.opcode} {other.instruction.name} is no kernel")
    return stretch_of(routine, 0, len(routine.ops))


class LoopGraph:
    """A loop that is captured with what its body leaves alone where it lies."""

    def __init__(
        self,
        capturer: Capturer,
        op: Loop,
        halves: tuple[Stretch, Stretch],
        state: Sequence[Array],
        constants: Constants,
    ) -> None:
        """`halves` are body and condition. Raises BackendError where there is no memory for the sets, CannotCaptureError where the state is not what kernels write."""
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
        self.given: Sequence[Array] = ()
        shapes = [routine.shapes[self.roots[k]] for k in self.carried]
        first = [self.device.allocate(shape) for shape in shapes]
        second = [
            m if k in self.updated else self.device.allocate(shape)
            for k, m, shape in zip(self.carried, first, shapes, strict=True)
        ]
        self.sets = [first, second]
        size = max(self.body.bytes, self.condition.bytes)
        self.block = self.device.block(size) if size else None
        self.tests = [self._half(None, n, True) for n in (0, 1)]
        self.tested = [self._half(n, 1 - n, True) for n in (0, 1)]
        self.plain = [self._half(n, 1 - n, False) for n in (0, 1)]
        self.halves = [*self.tests, *self.tested, *self.plain]

    def _half(self, source: int | None, target: int, tests: bool) -> _Half:
        shapes = self.condition.routine.shapes
        own = {b: self.device.allocate(shapes[b]) for b in self.condition.kept} if tests else {}
        kernels = (self.condition.launches if tests else 0) + (0 if source is None else self.body.launches)
        return _Half(source, target, tests, own, kernels)

    def _roots(self) -> dict[int, int]:
        """For each element that the body changes, the buffer of a kernel whose memory its result is, or the element itself where it is updated in place."""
        routine = self.body.routine
        roots: dict[int, int] = {}
        for k in self.carried:
            b = self.body.root[routine.results[k]]
            made = b == routine.inputs[k] if k in self.updated else b in self.body.kept
            if not made or b in roots.values():
                raise CannotCaptureError(f"element {k} of the state is not what one kernel writes")
            roots[k] = b
        return roots

    def _state(self, number: int) -> list[Array]:
        """The state in one of the two sets, as the body's parameters are shaped."""
        found = list(self.given)
        routine = self.body.routine
        for k, memory in zip(self.carried, self.sets[number], strict=True):
            found[k] = self.device.view(memory, routine.shapes[routine.inputs[k]])
        return found

    def _predicate(self, half: _Half) -> Array:
        memory = self._memory(self.condition, self._state(half.target), half.own)
        return self.condition.found(self.device, memory, self.condition.routine.results[0])

    def _launches(self, half: _Half) -> list[BoundLaunch]:
        """The launches of a half in the memory of this run."""
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
        """What a stretch finds: its inputs, constants, and memory of its own for what others read."""
        routine = stretch.routine
        memory: list[Array] = [NOTHING] * len(routine.shapes)
        for b, value in (*zip(routine.inputs, inputs, strict=True), *own.items()):
            memory[b] = value
        for op in stretch.constants:
            for b, value in zip(op.outputs, self.constants(op, routine.shapes), strict=True):
                memory[b] = value
        return memory

    def fits(self, state: Sequence[Array]) -> bool:
        """Whether what the body leaves alone lies where it lay when the graphs were captured."""
        return [address(state[k]) for k in self.fixed] == self.addresses

    def run(self, state: Sequence[Array], trips: int | None, count: Callable[[int], None]) -> tuple[list[Array], int]:
        """As `RunGraphs.run_loop`. The state is let go of afterwards, so that the next one may lie in the same place."""
        self.given = state
        try:
            return self._run(state, trips, count)
        finally:
            self.given = ()
            for half in self.halves:
                half.launches = None

    def _run(self, state: Sequence[Array], trips: int | None, count: Callable[[int], None]) -> tuple[list[Array], int]:
        for k, target in self._changed(0):
            target[...] = state[k]
        current, done, launches, unread = 0, 0, 0, trips or 0
        predicate: Any = None  # of the state as it is now, once it has been tested
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
        results = list(state)
        for k, memory in self._changed(current):
            results[k] = memory.copy()  # the sets belong to the graphs
        return results, launches

    def _start(self, half: _Half) -> int:
        """Start a half, and tell how many kernels it launches."""
        if half.graph is None and half.launches is None:
            half.launches = self._launches(half)
        if half.graph is None and half.was_launched and self.op not in self.capturer.refused:
            half.graph = self.capturer.capture(half.launches or (), self.op)
        half.was_launched = True
        self.capturer.start(half.graph, half.launches or ())
        return half.kernels

    def _changed(self, number: int) -> list[tuple[int, Array]]:
        found = self._state(number)
        return [(k, found[k]) for k in self.carried]


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
        self, op: Loop, state: Sequence[Array], trips: int | None, constants: Constants, count: Callable[[int], None]
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
