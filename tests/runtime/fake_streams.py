"""Streams, events and graphs of the stand-in for CuPy: what is captured runs in another order each time, as far as streams
and events leave it open."""

import random
import time
import weakref
from typing import Any

graphs: list[int] = []
"""How many launches each graph that was run replayed."""
captured: list["Graph"] = []
"""All graphs."""
capturing: list["Capture"] = []
"""The captures under way."""


class CudaError(RuntimeError):
    """CuPy's CUDARuntimeError."""


def forbidden_in_capture() -> None:
    if capturing:
        raise CudaError("cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing")


class Event:
    def __init__(self, *_: Any, **__: Any) -> None:
        self.time = 0.0
        self.capture: Capture | None = None
        self.tail: set[int] = set()

    def record(self, stream: Any = None) -> None:
        self.time = time.perf_counter()

    def synchronize(self) -> None:
        forbidden_in_capture()


class Capture:
    """What streams record: nodes with the earlier nodes that they wait for, and the streams that take part."""

    def __init__(self) -> None:
        self.nodes: list[tuple[Any, frozenset[int]]] = []
        self.streams: list[Stream] = []
        self.handles: list[int] = []

    def behind(self, tail: Any) -> set[int]:
        """These nodes and all that they wait for."""
        found, todo = set(), list(tail)
        while todo:
            node = todo.pop()
            if node not in found:
                found.add(node)
                todo.extend(self.nodes[node][1])
        return found


class Graph:
    def __init__(self, capture: Capture) -> None:
        self.nodes = capture.nodes
        self.ancestors = [capture.behind(after) for _, after in capture.nodes]
        self.streams = len(capture.streams)
        self.handles = capture.handles
        captured.append(self)

    def launch(self, stream: Any = None) -> None:
        graphs.append(len(self.nodes))
        conditions.update(dict.fromkeys(self.handles, 0))
        _play(self.nodes)


def _play(nodes: list[tuple[Any, frozenset[int]]]) -> None:
    """Run nodes in some order that they allow."""
    choose = random.Random(len(graphs)).choice
    done: set[int] = set()
    while len(done) < len(nodes):
        ready = [n for n, (_, after) in enumerate(nodes) if n not in done and after <= done]
        node = max(ready) if len(graphs) % 3 == 0 else choose(ready)
        nodes[node][0]()
        done.add(node)


conditions: dict[int, int] = {}
"""The variables of conditional nodes, by their handles."""
bodies: list[Capture] = []


class Driver:
    """`hlo_opt.runtime.cupy.conditional.Driver`."""

    def handle(self, stream: int) -> int:
        capture = _streams[stream].capture
        assert capture is not None
        conditions[len(conditions) + 1] = 0
        capture.handles.append(len(conditions))
        return len(conditions)

    def add_while(self, stream: int, handle: int) -> int:
        outer, body = _streams[stream], Capture()
        assert outer.capture is not None and handle in outer.capture.handles
        bodies.append(body)

        def run() -> None:
            while conditions[handle]:
                _play(body.nodes)

        outer.capture.nodes.append((run, frozenset(outer.tail)))
        outer.tail = {len(outer.capture.nodes) - 1}
        return len(bodies)

    def begin(self, stream: int, graph: int) -> None:
        _streams[stream]._join(bodies[graph - 1])
        capturing.append(bodies[graph - 1])

    def end(self, stream: int) -> None:
        _streams[stream].finished()


_streams: weakref.WeakValueDictionary[int, "Stream"] = weakref.WeakValueDictionary()


class Stream:
    def __init__(self, *_: Any, **__: Any) -> None:
        self.ptr = id(self)
        _streams[self.ptr] = self
        self.capture: Capture | None = None
        self.tail: set[int] = set()

    def __enter__(self) -> "Stream":
        current.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        assert current.pop() is self

    def begin_capture(self, mode: Any = None) -> None:
        assert self.capture is None and self is not current[0]
        self._join(Capture())
        assert self.capture is not None
        capturing.append(self.capture)

    def _join(self, capture: Capture) -> None:
        self.capture, self.tail = capture, set()
        capture.streams.append(self)

    def record(self, event: Event | None = None) -> None:
        assert event is not None
        event.capture, event.tail = self.capture, set(self.tail)

    def wait_event(self, event: Event) -> None:
        if event.capture is not None and self.capture is None:
            self._join(event.capture)
        assert event.capture is self.capture
        self.tail |= event.tail

    def end_capture(self) -> Graph:
        return Graph(self.finished())

    def finished(self) -> Capture:
        """What was captured, in which no more is recorded."""
        capture = self.capture
        assert capture is not None and capture.streams[0] is self
        capturing.remove(capture)
        joined = capture.behind(self.tail)
        for stream in capture.streams:
            stream.capture = None
        if len(joined) < len(capture.nodes):
            raise CudaError("cudaErrorStreamCaptureUnjoined")
        return capture

    def synchronize(self) -> None:
        forbidden_in_capture()


current: list[Stream] = [Stream()]
"""The streams of the `with` statements under way, the default one first."""
