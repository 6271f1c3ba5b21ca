"""Streams, events and graphs of the stand-in for CuPy: what is captured runs in another order each time, as far as streams
and events leave it open."""

import random
import time
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
        captured.append(self)

    def launch(self, stream: Any = None) -> None:
        graphs.append(len(self.nodes))
        choose = random.Random(len(graphs)).choice
        done: set[int] = set()
        while len(done) < len(self.nodes):
            ready = [n for n, (_, after) in enumerate(self.nodes) if n not in done and after <= done]
            node = max(ready) if len(graphs) % 3 == 0 else choose(ready)
            self.nodes[node][0]()
            done.add(node)


class Stream:
    def __init__(self, *_: Any, **__: Any) -> None:
        self.ptr = id(self)
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
        capture = self.capture
        assert capture is not None and capture.streams[0] is self
        capturing.remove(capture)
        joined = capture.behind(self.tail)
        for stream in capture.streams:
            stream.capture = None
        if len(joined) < len(capture.nodes):
            raise CudaError("cudaErrorStreamCaptureUnjoined")
        return Graph(capture)

    def synchronize(self) -> None:
        forbidden_in_capture()


current: list[Stream] = [Stream()]
"""The streams of the `with` statements under way, the default one first."""
