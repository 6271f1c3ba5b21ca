"""Convolutions by cuDNN 9 into memory that is there already, so that they may be part of a CUDA graph.

CuPy has no cuDNN of its own any more, so the library is called through `ctypes`, by its graph API (cuDNN manual,
"Backend API"; constants of `cudnn_graph_v9.h`): a convolution is a graph of one operation, heuristics name engines for
it, and an engine that is ready to run is a plan. The best few plans are run a few times, as XLA:GPU's autotuner does,
and the fastest is taken; a process asks once for each convolution. A handle has a workspace per stream, as calls on one
stream do not overlap; it also holds what is moved before and after.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.codegen import emit_kernel
from hlo_opt.codegen.kernel import Kernel
from hlo_opt.diag import Reason
from hlo_opt.ir.values import Array
from hlo_opt.ops.calls.convolutions import DATA, FILTER, FORWARD, ROLES, Convolution, Epilogue, Tensor
from hlo_opt.plans import region_of
from hlo_opt.plans.choose import plan
from hlo_opt.runtime.schedule.stretch import Start, span_of
from hlo_opt.text import parse

NAME = "libcudnn.so.9"
WORKSPACE = 1 << 28
"""The most bytes of a plan's workspace."""
TRIED = 5
"""Plans that are run before one of them is taken, of each way to describe the convolution."""
RUNS = 3
"""Runs of which the fastest counts, after one that loads the kernels."""
_ALIGNMENT = 256
_SHOWN = 200
"""Bytes of cuDNN's own message."""
_ALIGNED = 16
"""Bytes that addresses of arrays are multiples of."""

_DATA_TYPES = {"f32": 0, "f64": 1, "f16": 2, "bf16": 9}
"""cudnnDataType_t."""
_CROSS_CORRELATION = 1
_HEURISTIC, _FALLBACK = 3, 2
"""CUDNN_HEUR_MODE_A, and CUDNN_HEUR_MODE_FALLBACK: any engine that can."""
_TENSOR_CORE, _DOWN_CONVERTS, _REDUCED_SUMS, _VARIES, _WINOGRAD = 0, 1, 2, 4, 5
"""cudnnBackendNumericalNote_t."""
_COMPILES = 0
"""CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION: it takes about a second for each convolution."""
_HANDLE, _DATA_TYPE, _BOOLEAN, _INT64, _FLOAT, _DOUBLE, _POINTER, _MODE, _HEUR, _NOTE = 0, 1, 2, 3, 4, 5, 6, 7, 8, 11
_POINTWISE_MODE, _DESCRIPTOR, _BEHAVIOR = 14, 15, 19
"""cudnnBackendAttributeType_t."""
_POINTWISE, _CONVOLUTION, _ENGINE, _ENGINE_CONFIG, _HEURISTICS, _PLAN = range(6)
_POINTWISE_OPERATION, _GRAPH, _PACK, _TENSOR = 13, 15, 16, 17
"""cudnnBackendDescriptorType_t."""
_OPERATIONS = {
    FORWARD: (10, {"alpha": 700, "beta": 701, "how": 702, "kernel": 703, "image": 704, "output": 705}),
    DATA: (12, {"alpha": 706, "beta": 707, "how": 708, "kernel": 709, "image": 710, "output": 711}),
    FILTER: (11, {"alpha": 712, "beta": 713, "how": 714, "kernel": 715, "image": 716, "output": 717}),
}
"""The descriptor of each operation, and its attributes."""
_IDS = {"image": 1, "kernel": 2, "output": 3}
_BIAS, _SIDE, _BETWEEN = 4, 5, 6
"""The numbers of bias and side input, and the first of what is in no memory."""
_ADD, _RELU = 0, 100
"""cudnnPointwiseMode_t."""
_C_TYPES: dict[int, Any] = {
    **dict.fromkeys((_HANDLE, _POINTER, _DESCRIPTOR), ctypes.c_void_p),
    **dict.fromkeys((_DATA_TYPE, _MODE, _HEUR, _NOTE, _BEHAVIOR, _POINTWISE_MODE), ctypes.c_int),
    _BOOLEAN: ctypes.c_bool,
    _INT64: ctypes.c_int64,
    _FLOAT: ctypes.c_float,
    _DOUBLE: ctypes.c_double,
}


class CudnnError(RuntimeError):
    """A status of cuDNN other than success, or no plan for a convolution."""


class StartingDevice(Protocol):
    """A device that compiles and starts kernels."""

    cupy: ModuleType

    def start_at(self, kernel: Kernel, values: Array) -> Start:
        """A launch with parameters of 8 bytes each, which it reads when it starts."""


def library_of() -> ctypes.CDLL:
    """cuDNN 9: the one that is loaded already, else that of NVIDIA's wheel on Python's path, else the system's. Raises
    OSError where there is none."""
    library = next(_libraries())
    pointer, long = ctypes.c_void_p, ctypes.c_int64
    library.cudnnCreate.argtypes = [ctypes.POINTER(pointer)]
    library.cudnnDestroy.argtypes = [pointer]
    library.cudnnSetStream.argtypes = [pointer, pointer]
    library.cudnnBackendCreateDescriptor.argtypes = [ctypes.c_int, ctypes.POINTER(pointer)]
    library.cudnnBackendDestroyDescriptor.argtypes = [pointer]
    library.cudnnBackendFinalize.argtypes = [pointer]
    library.cudnnBackendSetAttribute.argtypes = [pointer, ctypes.c_int, ctypes.c_int, long, pointer]
    library.cudnnBackendGetAttribute.argtypes = [pointer, ctypes.c_int, ctypes.c_int, long, pointer, pointer]
    library.cudnnGetLastErrorString.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    library.cudnnBackendExecute.argtypes = [pointer, pointer, pointer]
    return library


def _libraries() -> Iterator[ctypes.CDLL]:
    with contextlib.suppress(OSError):
        yield ctypes.CDLL(NAME, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    for folder in sys.path:
        path = Path(folder or ".") / "nvidia" / "cudnn" / "lib" / NAME
        if path.is_file():
            with contextlib.suppress(OSError):
                yield ctypes.CDLL(str(path))
    yield ctypes.CDLL(NAME)


class _Descriptor:
    """A descriptor of cuDNN, destroyed with this object."""

    def __init__(self, library: ctypes.CDLL, kind: int) -> None:
        self.library = library
        pointer = ctypes.c_void_p()
        status = library.cudnnBackendCreateDescriptor(kind, ctypes.byref(pointer))
        _check(library, status, "cudnnBackendCreateDescriptor")
        self.pointer = pointer.value
        self._parts: list[_Descriptor] = []
        self._end = weakref.finalize(self, library.cudnnBackendDestroyDescriptor, self.pointer)

    def set(self, attribute: int, kind: int, *values: _Descriptor | float | None) -> _Descriptor:
        """Set an attribute. Descriptors among the values live as long as this one."""
        self._parts += [v for v in values if isinstance(v, _Descriptor)]
        array = (_C_TYPES[kind] * len(values))(*(v.pointer if isinstance(v, _Descriptor) else v for v in values))
        status = self.library.cudnnBackendSetAttribute(self.pointer, attribute, kind, len(values), array)
        _check(self.library, status, f"cudnnBackendSetAttribute of {attribute}")
        return self

    def finalized(self) -> _Descriptor:
        _check(self.library, self.library.cudnnBackendFinalize(self.pointer), "cudnnBackendFinalize")
        return self

    def numbers(self, attribute: int, kind: int, most: int) -> list[int]:
        """The numbers of an attribute, at most `most` of them."""
        count, array = ctypes.c_int64(), (_C_TYPES[kind] * most)()
        status = self.library.cudnnBackendGetAttribute(
            self.pointer, attribute, kind, most, ctypes.addressof(count), array
        )
        _check(self.library, status, f"cudnnBackendGetAttribute of {attribute}")
        return [int(n) for n in array[: count.value]]

    def count(self, attribute: int) -> int:
        """How many descriptors an attribute has."""
        count = ctypes.c_int64()
        status = self.library.cudnnBackendGetAttribute(
            self.pointer, attribute, _DESCRIPTOR, 0, ctypes.addressof(count), None
        )
        _check(self.library, status, f"cudnnBackendGetAttribute of {attribute}")
        return count.value

    def fill(self, attribute: int, descriptors: Sequence[_Descriptor]) -> int:
        """Write the descriptors of an attribute into these; returns how many there were."""
        count = ctypes.c_int64()
        array = (ctypes.c_void_p * len(descriptors))(*(d.pointer for d in descriptors))
        status = self.library.cudnnBackendGetAttribute(
            self.pointer, attribute, _DESCRIPTOR, len(descriptors), ctypes.addressof(count), array
        )
        _check(self.library, status, f"cudnnBackendGetAttribute of {attribute}")
        return count.value


@dataclass(frozen=True)
class CudnnEngine:
    """A plan for a convolution: its number among those that the heuristics name, and bytes of its workspace."""

    number: int
    plan: _Descriptor
    workspace: int


@dataclass
class Prepared:
    """A convolution that is ready to run: in a workspace lie the arrays that are moved, then the plan's own memory.

    kernels  that move the operands and the result; None for what lies as cuDNN wants it
    offsets  of these arrays and of the plan's memory
    """

    convolution: Convolution
    engine: CudnnEngine
    kernels: tuple[Kernel | None, ...]
    offsets: tuple[int, ...]
    bytes: int


@dataclass
class _Choice:
    """The way to describe a convolution and the engine that were taken; None where cuDNN refuses, for this reason."""

    convolution: Convolution | None
    number: int = 0
    reason: str = ""


_CHOSEN: dict[tuple[int, tuple[Convolution, ...]], _Choice] = {}
"""What this process found, by device."""


@dataclass
class Cudnn:
    """A handle of cuDNN on the current device, with a workspace per stream. Raises OSError where the library is not
    found, CudnnError where it has no handle for us."""

    device: StartingDevice
    target: DeviceTarget
    stream: int | None = None
    most: int = 1
    _workspaces: dict[int, Array] = field(default_factory=dict)
    _prepared: dict[tuple[Convolution, ...], Prepared] = field(default_factory=dict)
    _former: list[Array] = field(default_factory=list)
    """Workspaces that graphs may still use."""

    def __post_init__(self) -> None:
        self.cupy = self.device.cupy
        self.library = library_of()
        handle = ctypes.c_void_p()
        _check(self.library, self.library.cudnnCreate(ctypes.byref(handle)), "cudnnCreate")
        self.handle = handle.value
        self._end = weakref.finalize(self, self.library.cudnnDestroy, self.handle)

    def prepared(self, ways: tuple[Convolution, ...]) -> Prepared:
        """A convolution that may be described in these ways, by the fastest of a few plans. Raises CudnnError where
        none can run it."""
        if ways not in self._prepared:
            self._prepared[ways] = self._prepare(ways)
        return self._prepared[ways]

    def _prepare(self, ways: tuple[Convolution, ...]) -> Prepared:
        key = (int(self.cupy.cuda.runtime.getDevice()), ways)
        known = _CHOSEN.get(key)
        if known is None:
            known = _CHOSEN[key] = self._chosen(ways)
        if known.convolution is None:
            raise CudnnError(known.reason)
        engine = next((e for e in self.engines(known.convolution) if e.number == known.number), None)
        if engine is None:
            raise CudnnError("cuDNN no longer has the plan that was the fastest")
        prepared = self._ready(known.convolution, engine)
        self.most = max(self.most, prepared.bytes)
        return prepared

    def _chosen(self, ways: Sequence[Convolution]) -> _Choice:
        best, least, refusals = None, float("inf"), ["cuDNN cannot run its plans"]
        for way, number, ms in self.tried(ways, refusals):
            if ms < least:
                best, least = _Choice(way, number), ms
        return best or _Choice(None, reason=refusals[-1])

    def tried(self, ways: Sequence[Convolution], refusals: list[str]) -> Iterator[tuple[Convolution, int, float]]:
        """Ways, numbers of engines, and the milliseconds that they take; what cuDNN refuses is added to
        `refusals`."""
        for way in ways:
            try:
                for _, engine in zip(range(TRIED), self.engines(way), strict=False):
                    yield way, engine.number, self._time_of(self._ready(way, engine))
            except (CudnnError, self.cupy.cuda.memory.OutOfMemoryError) as error:
                refusals.append(str(error))

    def _time_of(self, prepared: Prepared) -> float:
        """Milliseconds of a run on memory of its own; infinite where cuDNN fails."""
        convolution = prepared.convolution
        further = [tensor.bytes for tensor in convolution.further]
        sizes = (*convolution.bytes, *further, max(1, prepared.bytes))
        memory = [self.cupy.empty(size, "uint8") for size in sizes]
        *addresses, workspace = (span_of(array)[0] for array in memory)
        event = self.cupy.cuda.Event
        times = []
        try:
            self._use(int(self.cupy.cuda.get_current_stream().ptr))
            start = self._bound(prepared, addresses, workspace)
            for _ in range(1 + RUNS):
                first, last = event(), event()
                first.record()
                start()
                last.record()
                last.synchronize()
                times.append(float(self.cupy.cuda.get_elapsed_time(first, last)))
        except CudnnError:
            return float("inf")
        return min(times[1:])

    def _ready(self, convolution: Convolution, engine: CudnnEngine) -> Prepared:
        offsets, end = [], 0
        for size in convolution.moved_bytes:
            offsets.append(end)
            end += -(-size // _ALIGNMENT) * _ALIGNMENT
        kernels = tuple(None if move is None else kernel_of(move.text, self.target) for move in convolution.moves)
        return Prepared(convolution, engine, kernels, (*offsets, end), end + engine.workspace)

    def engines(self, convolution: Convolution) -> Iterator[CudnnEngine]:
        """Plans for a convolution that compute as it asks, in the order of the heuristics."""
        graph = self._graph(convolution)
        number, refusal = -1, ""
        for mode in (_HEURISTIC, _FALLBACK):
            heuristics = _Descriptor(self.library, _HEURISTICS).set(201, _DESCRIPTOR, graph).set(200, _HEUR, mode)
            try:
                count = heuristics.finalized().count(202)
            except CudnnError as error:
                refusal = str(error)
                continue
            configs = [_Descriptor(self.library, _ENGINE_CONFIG) for _ in range(count)]
            any_found = False
            for config in configs[: heuristics.fill(202, configs)]:
                number += 1
                try:
                    engine = self._engine(convolution, config, number)
                except CudnnError as error:
                    refusal = str(error)
                    continue
                if engine is not None:
                    any_found = True
                    yield engine
            if any_found:
                return
        raise CudnnError("cuDNN has no plan for it" + (f": {refusal}" if refusal else ""))

    def _engine(self, convolution: Convolution, config: _Descriptor, number: int) -> CudnnEngine | None:
        """The plan of an engine's configuration; None where it does not suit. Raises CudnnError where there is none."""
        if not _suits(convolution, config):
            return None
        plan = _Descriptor(self.library, _PLAN).set(400, _HANDLE, self.handle).set(401, _DESCRIPTOR, config)
        (size,) = plan.finalized().numbers(402, _INT64, 1)
        return CudnnEngine(number, plan, size) if size <= WORKSPACE else None

    def _graph(self, convolution: Convolution) -> _Descriptor:
        kind, attributes = _OPERATIONS[convolution.direction]
        double = convolution.image.type_name == "f64"
        wide = "f64" if double else "f32"
        epilogue = convolution.epilogue
        whole = epilogue if epilogue is not None and not epilogue.is_apart else None
        how = _Descriptor(self.library, _CONVOLUTION)
        how.set(100, _DATA_TYPE, _DATA_TYPES[wide])
        how.set(101, _MODE, _CROSS_CORRELATION).set(106, _INT64, len(convolution.strides))
        how.set(102, _INT64, *convolution.dilations).set(103, _INT64, *convolution.strides)
        how.set(105, _INT64, *convolution.before).set(104, _INT64, *convolution.after)
        tensors = {role: self._tensor(getattr(convolution, role), _IDS[role]) for role in ("image", "kernel")}
        output = self._tensor(convolution.output, _IDS["output"])
        between = [self._between(convolution.output, wide, _BETWEEN + k) for k in range(3)] if whole else []
        tensors["output"] = between[0] if whole else output
        operation = _Descriptor(self.library, kind)
        for role, tensor in tensors.items():
            operation.set(attributes[role], _DESCRIPTOR, tensor)
        operation.set(attributes["how"], _DESCRIPTOR, how.finalized())
        for name, value in (("alpha", 1.0), ("beta", 0.0)):
            operation.set(attributes[name], _DOUBLE if double else _FLOAT, value)
        operations = [operation.finalized()]
        if whole is not None:
            operations += self._pointwise(convolution, whole, output, between)
        graph = _Descriptor(self.library, _GRAPH).set(800, _HANDLE, self.handle)
        return graph.set(801, _DESCRIPTOR, *operations).finalized()

    def _pointwise(
        self, convolution: Convolution, epilogue: Epilogue, output: _Descriptor, between: Sequence[_Descriptor]
    ) -> list[_Descriptor]:
        """The operations after a convolution, in the order that cuDNN has kernels for: side input, bias, activation."""
        parts, last = [], between[0]
        scale = epilogue.scale

        def add(to: _Descriptor, other: _Descriptor | None, factors: Sequence[float]) -> None:
            how = _Descriptor(self.library, _POINTWISE)
            how.set(0, _POINTWISE_MODE, _RELU if other is None else _ADD).set(1, _DATA_TYPE, _DATA_TYPES["f32"])
            operation = _Descriptor(self.library, _POINTWISE_OPERATION).set(750, _DESCRIPTOR, how.finalized())
            operation.set(751, _DESCRIPTOR, last).set(753, _DESCRIPTOR, to)
            if other is not None:
                operation.set(752, _DESCRIPTOR, other)
            for attribute, factor in zip((754, 755), factors, strict=False):
                operation.set(attribute, _FLOAT, factor)
            parts.append(operation.finalized())

        if epilogue.side_scale:
            side = self._tensor(convolution.output, _SIDE)
            add(between[1], side, (scale, epilogue.side_scale))
            last, scale = between[1], 1.0
        bias = self._tensor(convolution.further[0], _BIAS)
        add(between[2] if epilogue.is_relu else output, bias, (scale, 1.0))
        if epilogue.is_relu:
            last = between[2]
            add(output, None, (1.0,))
        return parts

    def _tensor(self, tensor: Tensor, number: int) -> _Descriptor:
        return self._described(tensor, tensor.type_name, number).finalized()

    def _between(self, tensor: Tensor, type_name: str, number: int) -> _Descriptor:
        """What lies as a tensor would, of another type, if it lay in memory."""
        return self._described(tensor, type_name, number).set(907, _BOOLEAN, True).finalized()

    def _described(self, tensor: Tensor, type_name: str, number: int) -> _Descriptor:
        described = _Descriptor(self.library, _TENSOR).set(901, _DATA_TYPE, _DATA_TYPES[type_name])
        described.set(902, _INT64, *tensor.sizes).set(903, _INT64, *tensor.strides)
        return described.set(906, _INT64, number).set(900, _INT64, _ALIGNED)

    def reserve(self, stream: int) -> None:
        """Allocate the workspace of a stream, which no capture allows."""
        known = self._workspaces.get(stream)
        if known is None or known.nbytes < self.most:
            if known is not None:
                self._former.append(known)
            self._workspaces[stream] = self.cupy.empty(self.most, "uint8")

    def start_of(self, prepared: Prepared, inputs: Sequence[Array], outputs: Sequence[Array]) -> Start:
        """A convolution of buffers, to be started on the stream that is current then."""
        operands = [span_of(memory)[0] for memory in inputs]
        addresses = [*operands[:2], span_of(outputs[0])[0], *operands[2:]]
        bound: dict[int, Start] = {}

        def start() -> None:
            stream = int(self.cupy.cuda.get_current_stream().ptr)
            self.reserve(stream)
            workspace = span_of(self._workspaces[stream])[0]
            if workspace not in bound:
                bound[workspace] = self._bound(prepared, addresses, workspace)
            self._use(stream)
            bound[workspace]()

        return start

    def _use(self, stream: int) -> None:
        if stream != self.stream:
            self.stream = None
            _check(self.library, self.library.cudnnSetStream(self.handle, stream), "cudnnSetStream")
            self.stream = stream

    def _bound(self, prepared: Prepared, addresses: Sequence[int], workspace: int) -> Start:
        """Moves and the convolution between them, for these addresses: of two operands, the result, and further
        operands."""
        here = [workspace + offset for offset in prepared.offsets]
        used = [there if k is None else at for k, there, at in zip(prepared.kernels, addresses, here, strict=False)]
        further = addresses[3:]
        moves: list[Start | None] = []
        for number, kernel in enumerate(prepared.kernels):
            ends = [addresses[number], here[number]] if number < 2 else [here[2], *further, addresses[2]]
            moves.append(None if kernel is None else self.device.start_at(kernel, np.array(ends, np.uint64)))
        convolution, ids = prepared.convolution, [_IDS[role] for role in ROLES[prepared.convolution.direction]]
        epilogue = convolution.epilogue
        if epilogue is not None and not epilogue.is_apart:
            used += further
            ids += [_BIAS, _SIDE][: len(further)]
        pack = _Descriptor(self.library, _PACK).set(1000, _INT64, *ids)
        pack.set(1001, _POINTER, *used).set(1003, _POINTER, here[-1]).finalized()
        *before, after = moves
        library, plan, handle = self.library, prepared.engine.plan, self.handle
        execute = library.cudnnBackendExecute

        def start() -> None:
            for move in before:
                if move is not None:
                    move()
            _check(library, execute(handle, plan.pointer, pack.pointer), "cudnnBackendExecute")
            if after is not None:
                after()

        return start


def _suits(convolution: Convolution, config: _Descriptor) -> bool:
    """Whether an engine computes what is asked for: it rounds operands to TF32 only where that is allowed, adds in f32,
    gives the same bits each time, and is there without a compiler."""
    engine = _Descriptor(config.library, _ENGINE)
    config.fill(300, [engine])
    notes = set(engine.numbers(1303, _NOTE, 10))
    refused = {_DOWN_CONVERTS, _REDUCED_SUMS, _VARIES}
    if convolution.image.type_name == "f32" and not convolution.is_rounded:
        refused |= {_TENSOR_CORE, _WINOGRAD}
    return not notes & refused and _COMPILES not in engine.numbers(1305, _BEHAVIOR, 5)


@functools.lru_cache(maxsize=256)
def kernel_of(text: str, target: DeviceTarget) -> Kernel:
    """The kernel of a module of one fusion with one result. Raises CudnnError where it has none, or needs more than its
    arrays."""
    module = parse(text)
    entry = module.entry
    planned = plan(region_of(module, entry.root), target)
    if isinstance(planned, Reason):
        raise CudnnError(f"no kernel moves an array: {planned.message}")
    kernel = emit_kernel(planned)
    if kernel.kept or len(kernel.inputs) != len(entry.parameters) or len(kernel.outputs) != 1:
        raise CudnnError("the kernel that moves an array needs further memory")
    return kernel


def _check(library: ctypes.CDLL, status: int, function: str) -> None:
    if status:
        why = ctypes.create_string_buffer(_SHOWN)
        library.cudnnGetLastErrorString(why, _SHOWN)
        said = why.value.decode("utf-8", "replace")
        raise CudnnError(f"{function} returns status {status}" + (f" ({said})" if said else ""))
