"""Nodes of CUDA graphs that run their body again and again, until the GPU itself finds that it was enough (CUDA C++
Programming Guide, "Conditional While Nodes"; CUDA 12.4).

CuPy has no calls for them: these go to the driver that it has loaded. A node is added in the middle of a capture, which
goes on behind it; its body is captured on streams of its own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np


@dataclass(frozen=True)
class Text:
    """A kernel in CUDA C++."""

    symbol: str
    source: str


DECISION = Text(
    "hlo_opt_go_on",
    """extern "C" __device__ void cudaGraphSetConditional(unsigned long long, unsigned int);

extern "C" __global__ void hlo_opt_go_on(const unsigned char* more, unsigned long long* rounds,
                                         unsigned long long handle, unsigned long long most,
                                         unsigned long long begins) {
  if (rounds == nullptr) return;
  const unsigned long long done = begins ? 0 : rounds[0] + 1;
  const bool goes_on = done < most && (more == nullptr || *more);
  rounds[0] = done;
  rounds[1] += goes_on;
  cudaGraphSetConditional(handle, goes_on);
}
""",
)
"""Decides whether the body runs again: while fewer than `most` rounds are done and `more`, if there is any, is true.

rounds  of this launch of the graph that are done, and those of all launches that were begun
begins  the first decision, before the node; the others are made at the end of the body
"""
ENDLESS = 2**64 - 1
"""A number of rounds that no loop reaches."""

_ACTIVE = 1
"""CU_STREAM_CAPTURE_STATUS_ACTIVE."""
_SET = 1
"""CU_STREAM_SET_CAPTURE_DEPENDENCIES."""
_RELAXED = 2
"""CU_STREAM_CAPTURE_MODE_RELAXED, which CuPy uses, too."""
_CONDITIONAL, _WHILE = 13, 1
"""CU_GRAPH_NODE_TYPE_CONDITIONAL, CU_GRAPH_COND_TYPE_WHILE."""
_ASSIGN_DEFAULT = 1
"""CU_GRAPH_COND_ASSIGN_DEFAULT: each launch of the graph begins with the default."""


class ConditionError(RuntimeError):
    """The driver has no conditional nodes, or refuses one."""


class NodeParams(ctypes.Structure):
    """CUgraphNodeParams of a conditional node (cuda.h)."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("reserved0", ctypes.c_int * 3),
        ("handle", ctypes.c_ulonglong),
        ("kind", ctypes.c_int),
        ("size", ctypes.c_uint),
        ("bodies", ctypes.POINTER(ctypes.c_void_p)),
        ("context", ctypes.c_void_p),
        ("reserved1", ctypes.c_longlong * 25),
        ("reserved2", ctypes.c_longlong),
    )


class CudaDriver:
    """What CuPy lacks of the driver."""

    def __init__(self) -> None:
        """Raises ConditionError where the driver is too old."""
        pointer, number = ctypes.c_void_p, ctypes.c_uint
        to = ctypes.POINTER
        pointers, size = to(pointer), ctypes.c_size_t
        try:
            library = ctypes.CDLL("libcuda.so.1")  # already loaded
            self._calls = {
                name: getattr(library, name)
                for name in (
                    "cuCtxGetCurrent",
                    "cuStreamGetCaptureInfo_v3",
                    "cuGraphConditionalHandleCreate",
                    "cuGraphAddNode_v2",
                    "cuStreamUpdateCaptureDependencies_v2",
                    "cuStreamBeginCaptureToGraph",
                    "cuStreamEndCapture",
                )
            }
        except (OSError, AttributeError) as error:
            raise ConditionError(f"the driver has no conditional nodes ({error})") from None
        takes: dict[str, tuple[type, ...]] = {
            "cuCtxGetCurrent": (pointers,),
            "cuStreamGetCaptureInfo_v3": (
                pointer,
                to(ctypes.c_int),
                to(ctypes.c_ulonglong),
                pointers,
                to(pointers),
                pointers,
                to(size),
            ),
            "cuGraphConditionalHandleCreate": (to(ctypes.c_ulonglong), pointer, pointer, number, number),
            "cuGraphAddNode_v2": (pointers, pointer, pointers, pointer, size, to(NodeParams)),
            "cuStreamUpdateCaptureDependencies_v2": (pointer, pointers, pointer, size, number),
            "cuStreamBeginCaptureToGraph": (pointer, pointer, pointers, pointer, size, ctypes.c_int),
            "cuStreamEndCapture": (pointer, pointers),
        }
        for name, types in takes.items():
            self._calls[name].argtypes = types

    def _call(self, name: str, *arguments: object) -> None:
        status = self._calls[name](*arguments)
        if status:
            raise ConditionError(f"{name} returns {status}")

    def _context(self) -> int | None:
        context = ctypes.c_void_p()
        self._call("cuCtxGetCurrent", ctypes.byref(context))
        return context.value

    def _front(self, stream: int) -> tuple[int | None, Sequence[int]]:
        """The graph that a stream captures, and the nodes that the next one waits for."""
        status, number, graph = ctypes.c_int(), ctypes.c_ulonglong(), ctypes.c_void_p()
        nodes, edges, count = ctypes.POINTER(ctypes.c_void_p)(), ctypes.c_void_p(), ctypes.c_size_t()
        of = (status, number, graph, nodes, edges, count)
        self._call("cuStreamGetCaptureInfo_v3", stream, *map(ctypes.byref, of))
        if status.value != _ACTIVE:
            raise ConditionError("the stream does not capture")
        return graph.value, [nodes[n] or 0 for n in range(count.value)]

    def handle(self, stream: int) -> int:
        """The variable of a node that is to come, in the graph that a stream captures: 0 until it is set."""
        graph, _ = self._front(stream)
        handle = ctypes.c_ulonglong()
        self._call("cuGraphConditionalHandleCreate", ctypes.byref(handle), graph, self._context(), 0, _ASSIGN_DEFAULT)
        return handle.value

    def add_while(self, stream: int, handle: int) -> int:
        """Add a node behind all that a stream has captured, which then waits for it. Returns the graph of its body,
        which is empty."""
        graph, before = self._front(stream)
        node, nodes = ctypes.c_void_p(), (ctypes.c_void_p * max(1, len(before)))(*before)
        params = NodeParams(type=_CONDITIONAL, handle=handle, kind=_WHILE, size=1, context=self._context())
        place = ctypes.byref(node)
        self._call("cuGraphAddNode_v2", place, graph, nodes, None, len(before), ctypes.byref(params))
        body = params.bodies[0] if params.bodies else None
        if body is None:
            raise ConditionError("the node has no body")
        self._call("cuStreamUpdateCaptureDependencies_v2", stream, place, None, 1, _SET)
        return int(body)

    def begin(self, stream: int, graph: int) -> None:
        """Capture what a stream does into a graph."""
        self._call("cuStreamBeginCaptureToGraph", stream, graph, None, None, 0, _RELAXED)

    def end(self, stream: int) -> None:
        """The end of such a capture."""
        self._call("cuStreamEndCapture", stream, ctypes.byref(ctypes.c_void_p()))


class LoadedFunction(Protocol):
    """A loaded kernel, by what CUDA calls it."""

    ptr: int


class Conditions:
    """Decisions of the GPU, in graphs under capture."""

    def __init__(self, driver: CudaDriver, launch: Callable[..., None], function: LoadedFunction) -> None:
        """`launch` is `launchKernel` of CuPy's driver, `function` the kernel `DECISION`."""
        self.driver = driver
        self._launch = launch
        self._function = function  # which keeps its module loaded

    def load(self, stream: int) -> None:
        """Start the kernel on a stream, to decide nothing: CUDA may load it at its first launch, which a capture
        forbids."""
        self.decide(stream, 0, 0, 0, 0, begins=True)

    def decide(self, stream: int, handle: int, rounds: int, more: int, most: int, *, begins: bool) -> None:
        """Start the kernel on a stream; see `DECISION`. `rounds` and `more` are addresses or 0."""
        values = np.array([more, rounds, handle, most, begins], np.uint64)
        places = values.ctypes.data + values.itemsize * np.arange(values.size, dtype=np.uint64)
        self._launch(self._function.ptr, 1, 1, 1, 1, 1, 1, 0, stream, int(places.ctypes.data), 0)


def driver_of() -> CudaDriver:
    """The driver. Raises ConditionError where it is too old."""
    return CudaDriver()
