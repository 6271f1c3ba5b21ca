"""A stand-in for CuPy where there is no GPU: arrays are NumPy arrays, and a CUDA text is built for the CPU by the host backend.

It has what emitted drivers and `hlo_opt.runtime` use, nothing more. `import_as_cupy` makes it importable as `cupy`. NVRTC's machine code is the text itself;
cuBLAS multiplies what lies at the pointers that it gets.
"""

import contextlib
import ctypes
import re
import sys
import time
import types
from typing import Any

import numpy

from hlo_opt.codegen.kernel import Kernel
from hlo_opt.ir import ELEMENT_TYPES, Shape
from hlo_opt.plans.plan import Launch
from hlo_opt.runtime.host import HostLibrary

_TYPES = {
    "unsigned char": "u8",
    "signed char": "s8",
    "unsigned short": "u16",
    "short": "s16",
    "unsigned int": "u32",
    "int": "s32",
    "unsigned long long": "u64",
    "long long": "s64",
    "float": "f32",
    "double": "f64",
    "hlo_complex<float>": "c64",
    "hlo_complex<double>": "c128",
}
_SIGNATURE = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\((\d+)\) )?(\w+)\(([^)]*)\)')
OPTIONS = ("-fmad=false", "--std=c++17")

launched: list[str] = []
"""The symbols of all launches, in order."""
compilations: list[str] = []
"""What NVRTC compiled: the names of the programs."""
gemms: list[tuple[int, ...]] = []
"""Types of operands and result, whether each is transposed, and the type to add in, of cuBLAS calls."""
graphs: list[int] = []
"""How many launches each graph that was run replayed."""
_capturing: list[list[Any]] = []


class Array(numpy.ndarray):
    """A NumPy array with the pointer where CuPy has it."""

    @property
    def data(self) -> Any:  # type: ignore[override]
        return _Pointer(self)


class _Pointer:
    def __init__(self, array: numpy.ndarray) -> None:
        self.array, self.ptr = array, array.__array_interface__["data"][0]

    def copy_from_device_async(self, source: "_Pointer", size: int) -> None:
        assert size == source.array.nbytes == self.array.nbytes
        if _capturing:
            _capturing[-1].append(lambda: numpy.copyto(self.array, source.array))
        else:
            numpy.copyto(self.array, source.array)


ndarray = Array


def __getattr__(name: str) -> Any:
    """The rest of the array interface is NumPy's."""
    return getattr(numpy, name)


def _forbidden_in_capture() -> None:
    if _capturing:
        raise _RuntimeError("cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing")


def asnumpy(array: numpy.ndarray) -> numpy.ndarray:
    _forbidden_in_capture()
    return numpy.array(array)


def asarray(values: Any) -> Array:
    return numpy.asarray(values).view(Array)


def ascontiguousarray(values: Any) -> Array:
    return numpy.ascontiguousarray(values).view(Array)


def empty(count: Any, dtype: Any) -> Array:
    """Memory that nobody has written yet: full of a pattern that is wrong in every type."""
    made = numpy.empty(count, dtype)
    made.view(numpy.uint8).fill(0xA5) if made.ndim else None
    return made.view(Array)


class RawModule:
    def __init__(self, code: str, options: tuple[str, ...] = ()) -> None:
        self.code = code
        assert options == (("--std=c++17",) if "hlo_opt_delay" in code else OPTIONS)

    def get_function(self, symbol: str) -> Any:
        return (lambda *_: None) if symbol == "hlo_opt_delay" else _Function(self.code, symbol)


class _Module:
    def load(self, code: bytes) -> None:
        self.code = code.decode()

    def get_function(self, symbol: str) -> "_Function":
        return _Function(self.code, symbol)


class _Function:
    def __init__(self, code: str, symbol: str) -> None:
        self.code = code
        found = [m for m in _SIGNATURE.finditer(code) if m[2] == symbol]
        assert len(found) == 1, f"{len(found)} definitions of {symbol}"
        self.bound = int(found[0][1] or 1024)
        self.symbol = symbol
        self.parameters = [p.replace("__restrict__", "").strip() for p in found[0][3].split(",")]

    def __call__(self, grid: tuple[int], block: tuple[int], buffers: tuple[numpy.ndarray, ...]) -> None:
        assert len(buffers) == len(self.parameters) and block[0] <= self.bound
        if _capturing:
            _capturing[-1].append(lambda: self._run(grid, block, buffers))
        else:
            self._run(grid, block, buffers)

    def _run(self, grid: tuple[int], block: tuple[int], buffers: tuple[numpy.ndarray, ...]) -> None:
        shapes = []
        for parameter, buffer in zip(self.parameters, buffers, strict=True):
            name = re.sub(r"^const ", "", parameter.rpartition("*")[0]).strip()
            element_type = ELEMENT_TYPES[_TYPES[name]]
            assert buffer.dtype.itemsize == element_type.bytes, (parameter, buffer.dtype)
            shapes.append(Shape(element_type, (buffer.size,)))
        inputs = sum(p.startswith("const ") for p in self.parameters)
        kernel = Kernel(
            self.symbol, self.code, Launch(grid[0], block[0]), tuple(shapes[:inputs]), tuple(shapes[inputs:]), "loop"
        )
        library = _LIBRARIES.setdefault(self.symbol, HostLibrary([kernel]))
        library.launch(kernel, buffers[:inputs], buffers[inputs:])
        launched.append(self.symbol)


_LIBRARIES: dict[str, HostLibrary] = {}


class _RuntimeError(RuntimeError):
    """CuPy's CUDARuntimeError."""


class _NvrtcError(RuntimeError):
    """CuPy's NVRTCError."""


class _OutOfMemoryError(MemoryError):
    """CuPy's OutOfMemoryError."""


def _compile(program: tuple[str, str], options: tuple[str, ...]) -> None:
    assert options == ("-arch=sm_90", *OPTIONS)
    compilations.append(program[1])


_DTYPES = {0: "float32", 1: "float64", 2: "float16", 4: "complex64", 5: "complex128", 14: "uint16"}


def _matrix(pointer: int, number: int, rows: int, columns: int, step: int) -> numpy.ndarray:
    """A matrix that cuBLAS counts columns first, in `step` elements each."""
    dtype = numpy.dtype(_DTYPES[number])
    size = ((columns - 1) * step + rows) * dtype.itemsize
    raw = numpy.frombuffer((ctypes.c_char * size).from_address(pointer), dtype)
    return numpy.lib.stride_tricks.as_strided(raw, (rows, columns), (dtype.itemsize, step * dtype.itemsize))


def _wide(matrix: numpy.ndarray, number: int) -> numpy.ndarray:
    if number == 14:
        return (matrix.astype(numpy.uint32) << 16).view(numpy.float32)
    return matrix.astype(numpy.float32) if number == 2 else matrix


def _gemm(handle: int, *numbers: int) -> None:
    (b_turned, a_turned, n, m, k, _, b, b_type, b_step, b_batch, a, a_type, a_step, a_batch) = numbers[:14]
    (_, c, c_type, c_step, c_batch, batch, compute, algorithm) = numbers[14:]
    assert handle == 7 and algorithm == -1 and a_type == b_type and n <= c_step
    assert (n if not b_turned else k) <= b_step and (k if not a_turned else m) <= a_step
    gemms.append((a_type, c_type, a_turned, b_turned, compute))
    item = {t: numpy.dtype(d).itemsize for t, d in _DTYPES.items()}
    for number in range(batch):
        left = _matrix(b + number * b_batch * item[b_type], b_type, *((k, n) if b_turned else (n, k)), b_step)
        right = _matrix(a + number * a_batch * item[a_type], a_type, *((m, k) if a_turned else (k, m)), a_step)
        left, right = _wide(left.T if b_turned else left, b_type), _wide(right.T if a_turned else right, a_type)
        made = left @ right
        target = _matrix(c + number * c_batch * item[c_type], c_type, n, m, c_step)
        if c_type == 14:
            bits = numpy.ascontiguousarray(made).view(numpy.uint32)
            target[...] = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16)
        else:
            target[...] = made


class _Event:
    def __init__(self, *_: Any, **__: Any) -> None:
        self.time = 0.0

    def record(self, stream: Any = None) -> None:
        self.time = time.perf_counter()

    def synchronize(self) -> None:
        pass


class _Graph:
    def __init__(self, actions: list[Any]) -> None:
        self.actions = actions

    def launch(self, stream: Any = None) -> None:
        graphs.append(len(self.actions))
        for action in self.actions:
            action()


class _Stream:
    ptr = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        self.actions: list[Any] = []

    def __enter__(self) -> "_Stream":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin_capture(self, mode: Any = None) -> None:
        self.actions = []
        _capturing.append(self.actions)

    def end_capture(self) -> _Graph:
        _capturing.remove(self.actions)
        return _Graph(self.actions)

    def synchronize(self) -> None:
        _forbidden_in_capture()


class _Pool:
    def malloc(self, size: int) -> None:
        raise AssertionError("NumPy allocates")

    def free_all_blocks(self) -> None:
        pass

    def used_bytes(self) -> int:
        return 0


def _solve(a: numpy.ndarray, b: numpy.ndarray, lower: bool = False, unit_diagonal: bool = False) -> numpy.ndarray:
    triangle = numpy.tril(a) if lower else numpy.triu(a)
    if unit_diagonal:
        numpy.fill_diagonal(triangle, 1)
    return numpy.linalg.solve(triangle, b)


def import_as_cupy(devices: int = 1) -> types.ModuleType:
    """This module under the name `cupy`, with `devices` GPUs."""
    module = sys.modules[__name__]
    space = types.SimpleNamespace
    device = space(compute_capability="90", synchronize=lambda: None, id=0)
    module.cuda = space(  # type: ignore[attr-defined]
        runtime=space(
            getDeviceCount=lambda: devices,
            getDevice=lambda: 0,
            getDeviceProperties=lambda number: {"name": b"Stand-in GPU", "l2CacheSize": 1 << 20},
            runtimeGetVersion=lambda: 13000,
            driverGetVersion=lambda: 13000,
            CUDARuntimeError=_RuntimeError,
        ),
        driver=space(CUDADriverError=_RuntimeError),
        memory=space(OutOfMemoryError=_OutOfMemoryError),
        nvrtc=space(
            getVersion=lambda: (13, 0),
            getSupportedArchs=lambda: [80, 90, 100],
            createProgram=lambda source, name, headers, names: (source, name),
            compileProgram=_compile,
            getProgramLog=lambda program: f"{program[1]}(1): error: no\nmore",
            getCUBIN=lambda program: program[0].encode(),
            destroyProgram=lambda program: None,
            NVRTCError=_NvrtcError,
        ),
        function=space(Module=_Module),
        cublas=space(gemmStridedBatchedEx=_gemm),
        device=space(get_cublas_handle=lambda: 7),
        Device=lambda *_: device,
        Stream=_Stream,
        Event=_Event,
        MemoryPool=_Pool,
        using_allocator=lambda allocator: contextlib.nullcontext(),
        get_current_stream=_Stream,
        get_elapsed_time=lambda first, second: (second.time - first.time) * 1e3,
    )
    module.__name__ = "cupy"
    cupyx = types.ModuleType("cupyx")
    cupyx.errstate = lambda linalg: contextlib.nullcontext()  # type: ignore[attr-defined]
    linalg = types.ModuleType("cupyx.scipy.linalg")
    linalg.solve_triangular = _solve  # type: ignore[attr-defined]
    found = {"cupy": module, "cupyx": cupyx, "cupyx.scipy": types.ModuleType("cupyx.scipy")}
    sys.modules.update({**found, "cupyx.scipy.linalg": linalg})
    return module
