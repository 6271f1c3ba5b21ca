"""Launches, copies and calls of cuBLAS as one CUDA graph, with independent launches on several streams; some of them
may repeat until the GPU itself finds that it was enough.

A launch waits for the last writer of what it reads, and for all readers and writers of what it overwrites: reused
memory orders launches just as values do. XLA:GPU orders the commands of a command buffer by the same conflicts
(xla/backends/gpu/runtime/command_executor.cc).

The other streams fork from the captured one and join it by events, so the graph has an edge only where one launch
must wait for another, and the whole graph is a unit of work on the stream that launches it. Nothing is allocated
during capture. The memory of the launches must live as long as the graph.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from hlo_opt.codegen.kernel import Kernel
from hlo_opt.diag import BackendError
from hlo_opt.evaluate.threads import positive
from hlo_opt.fusion.overlap import STREAMS
from hlo_opt.ir.values import Array
from hlo_opt.runtime.cupy.conditional import ENDLESS, ConditionError, Conditions
from hlo_opt.runtime.schedule.ops import Op
from hlo_opt.runtime.schedule.stretch import BoundLaunch, PlacingDevice, Stretch, span_of

AddressRange = tuple[int, int]
"""The addresses of the first byte and behind the last byte."""


@dataclass(frozen=True)
class LaunchAccess:
    """The memory that a launch reads and writes."""

    reads: tuple[AddressRange, ...]
    writes: tuple[AddressRange, ...]


@dataclass(frozen=True)
class StreamStart:
    """The stream of a launch, and the launches on other streams that it waits for."""

    stream: int
    waits: tuple[int, ...]


@dataclass
class _Region:
    """The last writer of some memory (a launch, or -1 for none of these), and its readers since."""

    span: AddressRange
    writer: int
    readers: list[int] = field(default_factory=list)


def dependencies(accesses: Sequence[LaunchAccess]) -> list[Set[int]]:
    """For each launch, the earlier ones that must finish before it starts."""
    regions: list[_Region] = []
    waits_for: list[Set[int]] = []
    for number, access in enumerate(accesses):
        after: set[int] = set()
        for span in access.reads:
            after.update(r.writer for r in regions if _meet(r.span, span))
        for span in access.writes:
            for r in regions:
                if _meet(r.span, span):
                    after.update((r.writer, *r.readers))
        for span in dict.fromkeys(access.reads):
            same = next((r for r in regions if r.span == span), None)
            if same is None:
                regions.append(_Region(span, -1, [number]))
            else:
                same.readers.append(number)
        for first, last in dict.fromkeys(access.writes):
            regions = [r for r in regions if not (first <= r.span[0] and r.span[1] <= last)]
            regions.append(_Region((first, last), number))
        waits_for.append(after - {-1, number})
    return waits_for


def _meet(one: AddressRange, other: AddressRange) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def starts(after: Sequence[Set[int]], streams: int) -> list[StreamStart]:
    """A stream for each launch, and what it must wait for; waits implied by others are left out.

    Preferred is the stream where its dependencies ran last, then one that it waits for anyway, then a new one, then the
    least recently used.
    """
    starts: list[StreamStart] = []
    last: list[int] = []  # the last launch of each stream
    known: list[list[int]] = []  # for each launch, the last launch of each stream that is known to precede it
    for number, before in enumerate(after):
        seen = [-1] * streams
        for n in before:
            seen = [max(a, b) for a, b in zip(seen, known[n], strict=True)]
        stream = _stream(before, last, seen, streams)
        if stream == len(last):
            last.append(-1)
        behind = known[last[stream]] if last[stream] >= 0 else [-1] * streams
        waits = []
        for n in sorted(before, reverse=True):
            if n > behind[starts[n].stream]:
                waits.append(n)
                behind = [max(a, b) for a, b in zip(behind, known[n], strict=True)]
        starts.append(StreamStart(stream, tuple(sorted(waits))))
        known.append([number if s == stream else b for s, b in enumerate(behind)])
        last[stream] = number
    return starts


def _stream(before: Set[int], last: Sequence[int], seen: Sequence[int], streams: int) -> int:
    follows = [(n, s) for s, n in enumerate(last) if n in before]
    if follows:
        return max(follows)[1]
    free = [(n, s) for s, n in enumerate(last) if n <= seen[s]]
    if free:
        return max(free)[1]
    if len(last) < streams:
        return len(last)
    return min((n, s) for s, n in enumerate(last))[1]


class CudaEvent(Protocol):
    """An event of CuPy."""

    ptr: int


class CudaGraph(Protocol):
    """A graph of CuPy."""

    def launch(self) -> None: ...


class CudaStream(contextlib.AbstractContextManager["CudaStream"], Protocol):
    """A stream of CuPy."""

    ptr: int

    def begin_capture(self) -> None: ...

    def end_capture(self) -> CudaGraph: ...

    def record(self, event: CudaEvent) -> CudaEvent: ...

    def wait_event(self, event: CudaEvent) -> None: ...


class CapturingDevice(PlacingDevice, Protocol):
    """A device whose launches can be captured."""

    def conditions(self) -> Conditions:
        """How the GPU decides whether launches repeat. Raises ConditionError where it cannot."""


MOST_STREAMS = 32


@dataclass
class CapturedGraph:
    """A captured graph, its numbers of kernel launches and streams, and the kept memory of its launches, which nothing
    else may use."""

    graph: CudaGraph
    launches: int
    streams: int
    kept: Sequence[Array]


COUNTS = 24
"""Bytes of the counts of `RepeatedLaunches`."""


@dataclass(frozen=True)
class RepeatedLaunches:
    """Launches that a graph repeats: at most so often, and while there is `more`, a byte that they write.

    `counts` are numbers of 8 bytes: rounds of the last launch of the graph, rounds of all its launches, and one for the
    owner.
    """

    launches: Sequence[BoundLaunch]
    counts: Array
    more: Array | None = None
    most: int = ENDLESS


@dataclass
class Capturer:
    """Captures launches on a device as graphs, and starts graphs.

    most_streams  the most streams of a graph
    replayed      launches by graphs in the current run
    refused       why a loop or a stretch has no graph; it then runs kernel by kernel
    apart         why a loop is no graph of its own, but one of each iteration
    """

    cupy: Any
    device: CapturingDevice
    most_streams: int = STREAMS
    replayed: int = 0
    refused: dict[Op | Stretch, str] = field(default_factory=dict)
    apart: dict[Op, str] = field(default_factory=dict)
    _conditions: Conditions | None = None
    _streams: dict[int, list[CudaStream]] = field(default_factory=dict)
    """The streams to capture on, by the number of the stream that launches the graph: kernels and calls keep memory
    per stream, which graphs launched on one stream may share."""
    _events: list[CudaEvent] = field(default_factory=list)

    def capture(self, launches: Sequence[BoundLaunch], owner: Op | Stretch) -> CapturedGraph | None:
        """A graph of the launches of a loop or a stretch; None where CUDA refuses.

        All kernels must have been launched before, because CUDA may load a kernel at its first launch, which a capture
        forbids.
        """
        try:
            return self._captured(launches)
        except (BackendError, self.cupy.cuda.runtime.CUDARuntimeError) as error:
            self.refused[owner] = str(error)
            return None

    def capture_rounds(
        self, before: Sequence[BoundLaunch], rounds: RepeatedLaunches, owner: Op
    ) -> CapturedGraph | None:
        """A graph of launches, and of others that repeat behind them; None where CUDA refuses, or has no such graphs.

        All kernels must have been launched before.
        """
        cuda = self.cupy.cuda
        try:
            if self._conditions is None:
                self._conditions = self._tried()
            return self._captured(before, rounds, self._conditions)
        except (BackendError, ConditionError, cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError) as error:
            self.apart[owner] = str(error)
            return None

    def _tried(self) -> Conditions:
        """The decisions of the GPU, once it has counted to three. Raises ConditionError where it does not."""
        conditions = self.device.conditions()
        conditions.load(self.current())
        counts = self.device.zeros(COUNTS)
        self.device.replay(self._captured((), RepeatedLaunches((), counts, most=3), conditions).graph)
        pair = self.cupy.asnumpy(counts).view(np.uint64)[:2].tolist()
        if pair != [3, 3]:
            raise ConditionError(f"a graph of 3 rounds counts {pair}")
        return conditions

    def _captured(
        self,
        launches: Sequence[BoundLaunch],
        rounds: RepeatedLaunches | None = None,
        conditions: Conditions | None = None,
    ) -> CapturedGraph:
        """Raises BackendError, ConditionError, or what CuPy raises."""
        parts = [launches] if rounds is None else [launches, rounds.launches]
        orders = [starts(dependencies([access_of(w) for w in part]), self.most_streams) for part in parts]
        used = [1 + max((s.stream for s in order), default=0) for order in orders]
        current = self.current()
        streams = self._streams.setdefault(current, [])
        try:
            while len(streams) < sum(used):
                streams.append(self.cupy.cuda.Stream(non_blocking=True))
            for stream in streams[: sum(used)]:
                self.device.reserve(int(stream.ptr))
            zeros = [[self.device.zeros(w.kept if isinstance(w, Kernel) else 0) for w, _, _ in part] for part in parts]
            origin = streams[0]
            with origin:
                origin.begin_capture()
                try:
                    self._record(launches, zeros[0], orders[0], streams[: used[0]])
                    if rounds is not None and conditions is not None:
                        own = streams[used[0] : sum(used)]
                        self._repeat(rounds, conditions, zeros[1], orders[1], origin, own)
                except BaseException:
                    with contextlib.suppress(Exception):
                        origin.end_capture()
                    raise
                graph = origin.end_capture()
        except BaseException:
            del self._streams[current]  # a capture that failed may have left them in capture mode
            raise
        finally:
            self._events.clear()
        kept = [memory for of_part in zeros for memory in of_part]
        if rounds is not None:
            kept.append(rounds.counts)
        return CapturedGraph(graph, sum(isinstance(work, Kernel) for work, _, _ in launches), max(used), kept)

    def _repeat(
        self,
        rounds: RepeatedLaunches,
        conditions: Conditions,
        kept: Sequence[Array],
        order: Sequence[StreamStart],
        origin: CudaStream,
        streams: Sequence[CudaStream],
    ) -> None:
        """Capture launches as the body of a node behind what is captured on `origin`, on streams of their own."""
        driver, counts, more = conditions.driver, address(rounds.counts), address(rounds.more)
        handle = driver.handle(origin.ptr)
        conditions.decide(origin.ptr, handle, counts, more, rounds.most, begins=True)
        body = driver.add_while(origin.ptr, handle)
        inner = streams[0]
        with inner:
            driver.begin(inner.ptr, body)
            try:
                self._record(rounds.launches, kept, order, streams)
                conditions.decide(inner.ptr, handle, counts, more, rounds.most, begins=False)
            except BaseException:
                with contextlib.suppress(Exception):
                    driver.end(inner.ptr)
                raise
            driver.end(inner.ptr)

    def current(self) -> int:
        """CUDA's number of the current stream."""
        return int(self.cupy.cuda.get_current_stream().ptr)

    def start(self, graph: CapturedGraph | None, launches: Sequence[BoundLaunch]) -> None:
        """Start a graph; without one, start the launches one by one."""
        if graph is None:
            self.device.start_all([self.device.start_of(launch) for launch in launches], launches)
        else:
            self.device.replay(graph.graph)
            self.replayed += graph.launches

    def _record(
        self,
        launches: Sequence[BoundLaunch],
        kept: Sequence[Array],
        order: Sequence[StreamStart],
        streams: Sequence[CudaStream],
    ) -> None:
        """Start launches on streams, of which the first one captures, and waits for the others in the end."""
        origin, *others = streams
        fork = self._event(origin) if others else None
        awaited = {n for start in order for n in start.waits}
        events: dict[int, CudaEvent] = {}
        joined: set[int] = {0}
        for number, (launch, start) in enumerate(zip(launches, order, strict=True)):
            stream = streams[start.stream]
            if start.stream not in joined and fork is not None:
                joined.add(start.stream)
                stream.wait_event(fork)
            for n in start.waits:
                stream.wait_event(events[n])
            with stream:
                self.device.start_all([self.device.start_of(launch, kept[number])], [launch])
            if number in awaited:
                events[number] = self._event(stream)
        for stream in others:
            origin.wait_event(self._event(stream))

    def _event(self, stream: CudaStream) -> CudaEvent:
        event: CudaEvent = self.cupy.cuda.Event(disable_timing=True)
        stream.record(event)
        self._events.append(event)
        return event


def access_of(launch: BoundLaunch) -> LaunchAccess:
    """The memory that a launch reads and writes."""
    _, inputs, outputs = launch
    return LaunchAccess(tuple(map(span_of, inputs)), tuple(map(span_of, outputs)))


def streams_wished() -> int:
    """The most streams of a graph: `$HLO_OPT_STREAMS`, else `STREAMS`; 0 means no graphs. Raises UsageError unless it
    is a number."""
    wish = positive("HLO_OPT_STREAMS", least=0)
    return STREAMS if wish is None else min(wish, MOST_STREAMS)


def address(memory: Any) -> int:
    """The address of a buffer; 0 for a token."""
    return 0 if memory is None else int(memory.data.ptr)
