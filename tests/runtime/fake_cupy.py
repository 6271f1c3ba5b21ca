"""A stand-in for CuPy where there is no GPU: arrays are NumPy arrays, and a CUDA text is built for the CPU by the host
backend.

It has what emitted drivers and `hlo_opt.runtime` use, nothing more. `import_as_cupy` makes it importable as `cupy`.
NVRTC's machine code is the text itself; cuBLAS multiplies what lies at the pointers that it gets.

Memory comes from a pool. A graph knows addresses only, and runs what it captured in another order each time, as far as
streams and events leave it open; memory must be allocated at that time, and kernels must have run before they are
captured.
"""

import contextlib
import ctypes
import dataclasses
import functools
import re
import sys
import types
import weakref
from pathlib import Path
from typing import Any

import numpy

from hlo_opt.codegen.emit import ALIGNMENT
from hlo_opt.ir import ELEMENT_TYPES, Shape
from hlo_opt.library.arrays import raw_dtype
from hlo_opt.plans.plan import Launch
from hlo_opt.runtime.cupy.conditional import DECISION
from hlo_opt.runtime.host.library import HostLibrary
from hlo_opt.runtime.schedule.lifetimes import Arena

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1])]  # programs of their own import this file too
import fake_cublas
import fake_cublaslt
from fake_cudnn import Cudnn
from fake_streams import CudaError, Event, Stream, capturing, conditions, current, forbidden_in_capture
from fake_streams import Driver as Driver  # for tests, as the next three
from fake_streams import Graph as Graph
from fake_streams import captured as captured
from fake_streams import graphs as graphs
from written_kernels import of_text

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
_SIGNATURE = re.compile(
    r'extern "C" __global__ void (?:__cluster_dims__\((?P<cluster>\d+), 1, 1\) )?'
    r"(?:__launch_bounds__\((?P<bound>\d+)(?:, \d+)?\) )?(?P<symbol>\w+)\((?P<parameters>[^)]*)\)"
)
ALWAYS = ("-fmad=false", "--std=c++17")
OPTIONS = ((*ALWAYS, "-prec-div=false", "-prec-sqrt=false"), (*ALWAYS, "-DHLO_PRECISE"))

launched: list[str] = []
"""The symbols of all launches, in order."""
compilations: list[str] = []
"""What NVRTC compiled: the names of the programs."""
gemms: list[tuple[int, ...]] = []
"""Types of operands and result, whether each is transposed, and the type to add in, of cuBLAS calls."""
listed_gemms: list[tuple[int, ...]] = []
"""The same of products by lists of addresses."""
allocated: list[int] = []
"""Bytes of all allocations, in order."""


class Array(numpy.ndarray):
    """A NumPy array with the pointer where CuPy has it, and made as CuPy's: of a pointer, or of memory."""

    def __new__(cls, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None) -> "Array":
        memory = memptr.bytes_to_end() if isinstance(memptr, _Pointer) else memptr
        return super().__new__(cls, shape, dtype, memory, 0, strides)

    @property
    def data(self) -> Any:  # type: ignore[override]
        return _Pointer(self)

    @property
    def __cuda_array_interface__(self) -> Any:
        return self.__array_interface__

    def get(self) -> numpy.ndarray:
        return numpy.array(self)

    def copy(self, order: Any = "C") -> "Array":
        made = empty(self.shape, self.dtype)
        made[...] = self
        return made

    def astype(self, dtype: Any, *rest: Any, **more: Any) -> Any:
        return _pooled(numpy.asarray(self).astype(dtype, *rest, **more))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **more: Any) -> Any:
        """CuPy compiles its own kernels with -ftz=true; cuBLAS is none of them."""
        flushes = method == "__call__" and ufunc is not numpy.matmul
        given = [i.view(numpy.ndarray) if isinstance(i, Array) else i for i in inputs]
        given = [_flushed(i) if flushes and isinstance(i, numpy.ndarray) else i for i in given]
        if out is not None:
            more["out"] = tuple(o.view(numpy.ndarray) if isinstance(o, Array) else o for o in out)
        made = getattr(ufunc, method)(*given, **more)
        if out is not None:
            return out[0] if len(out) == 1 else out
        if made is None or isinstance(made, tuple):
            return made
        return _pooled(_flushed(numpy.asarray(made)) if flushes else numpy.asarray(made))


class _Pointer:
    def __init__(self, array: numpy.ndarray) -> None:
        self.array, self.ptr = array, array.__array_interface__["data"][0]

    def copy_from_device_async(self, source: "_Pointer", size: int) -> None:
        assert size == source.array.nbytes == self.array.nbytes
        _do(lambda to, what: numpy.copyto(to, what), [self.array, source.array])

    def bytes_to_end(self) -> numpy.ndarray:
        return self.array.view(numpy.ndarray).reshape(-1).view(numpy.uint8)

    def __add__(self, offset: int) -> "_Pointer":
        return _Pointer(self.bytes_to_end()[offset:])


_arena = Arena()
_memory = numpy.empty(1 << 32, numpy.uint8)  # of which the system gives what is used
_alive: dict[int, int] = {}


def _take(size: int) -> Any:
    """Memory of `size` bytes, which goes back to the pool with the last array in it. What is free comes together
    again, as in CuPy's pool."""
    forbidden_in_capture()
    allocated.append(size)
    offset = _arena.take(-(-max(size, 1) // 512) * 512)
    assert _arena.size <= _memory.size
    address = _memory.__array_interface__["data"][0] + offset
    _alive[address] = size
    lease = (ctypes.c_char * size).from_address(address)
    weakref.finalize(lease, _give_back, address, offset)
    return lease


def _give_back(address: int, offset: int) -> None:
    del _alive[address]
    _arena.give_back(offset)


def _is_freed(address: int, size: int) -> bool:
    first = _memory.__array_interface__["data"][0]
    if not size or not first <= address < first + _memory.size:
        return False
    return not any(a <= address and address + size <= a + held for a, held in _alive.items())


def _do(work: Any, buffers: Any) -> None:
    """Work on buffers: now, or as a node of the graph that the current stream captures."""
    capture = current[-1].capture
    assert capture is not None or not capturing, "work on a stream that is not captured, while another one is"
    if capture is None:
        work(*buffers)
        return
    places = [(b.__array_interface__["data"][0], b.size, b.dtype) for b in buffers]

    def later() -> None:
        assert not any(_is_freed(address, n * t.itemsize) for address, n, t in places), "memory of a graph was freed"
        work(
            *(
                numpy.ndarray(n, dtype, (ctypes.c_char * (n * dtype.itemsize)).from_address(address))
                for address, n, dtype in places
            )
        )

    capture.nodes.append((later, frozenset(current[-1].tail)))
    current[-1].tail = {len(capture.nodes) - 1}


ndarray = Array


_MODULES = frozenset({"fft", "lib", "linalg", "stride_tricks"})


class _Functions:
    """Functions of a module of NumPy, as CuPy has them: on arrays of the GPU, to arrays of the GPU."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.module, name)
        if name in _MODULES:
            return _Functions(found)
        return _on_gpu(found) if callable(found) and not isinstance(found, type) else found


def _pooled(array: numpy.ndarray) -> Array:
    """An array in memory of the pool; what is there stays where it is."""
    if 0 <= array.__array_interface__["data"][0] - _memory.__array_interface__["data"][0] < _memory.size:
        return array.view(Array)
    made = empty(array.shape, array.dtype)
    made[...] = array
    return made


def _on_gpu(function: Any) -> Any:
    def called(*arguments: Any, **more: Any) -> Any:
        given = list(arguments)
        for argument in given:  # as CuPy, which takes arrays of NumPy in no function but `asarray`
            if isinstance(argument, list | tuple):
                given += argument
            assert not isinstance(argument, numpy.ndarray) or isinstance(argument, Array), "an array of the CPU"
        assert current[-1].capture is None and not capturing, "a function of CuPy during a capture"
        made = function(*arguments, **more)
        if isinstance(made, numpy.ndarray | numpy.generic):
            return _pooled(numpy.asarray(made))
        return [_pooled(m) for m in made] if isinstance(made, list) else made

    if hasattr(function, "at"):
        called.at = function.at  # type: ignore[attr-defined]
    return functools.update_wrapper(called, function)


def __getattr__(name: str) -> Any:
    """The rest of the array interface is NumPy's."""
    return getattr(_Functions(numpy), name)


def asnumpy(array: numpy.ndarray) -> numpy.ndarray:
    forbidden_in_capture()
    return numpy.array(array)


def asarray(values: Any) -> Array:
    if isinstance(values, Array):
        return values
    given = numpy.asarray(values)
    made = empty(given.shape, given.dtype)
    made[...] = given
    return made


def ascontiguousarray(values: Any) -> Array:
    return _pooled(numpy.ascontiguousarray(values))


def empty(count: Any, dtype: Any) -> Array:
    """Memory that nobody has written yet: full of a pattern that is wrong in every type."""
    dtype = numpy.dtype(dtype)
    dimensions = (count,) if isinstance(count, int | numpy.integer) else tuple(count)
    size = int(numpy.prod(dimensions, dtype=numpy.int64)) * dtype.itemsize
    lease = _take(size)
    ctypes.memset(lease, 0xA5, size)
    return Array(dimensions, dtype, lease)


def zeros(count: int, dtype: Any) -> Array:
    """Memory that is there from the start: no capture may make it."""
    forbidden_in_capture()
    made = empty(count, dtype)
    made[...] = 0
    return made


class RawModule:
    """Compiled with -ftz=true, which CuPy adds behind all other options (cupy/cuda/compiler.py,
    _compile_with_cache_cuda)."""

    def __init__(self, code: str, options: tuple[str, ...] = ()) -> None:
        self.code = code
        assert options == ("--std=c++17",) if "hlo_opt_delay" in code else options in OPTIONS

    def get_function(self, symbol: str) -> Any:
        return (lambda *_: None) if symbol == "hlo_opt_delay" else _Function(self.code, symbol, flushes=True)


def _compile_using_nvrtc(source: str, options: tuple[str, ...] = ()) -> tuple[bytes, None]:
    """As CuPy's, which adds the architecture but not -ftz=true."""
    assert options in OPTIONS
    compilations.append(source)
    return source.encode(), None


def _flushed(array: numpy.ndarray) -> numpy.ndarray:
    """Without denormal numbers, which arithmetic under -ftz=true takes for zeros and makes zeros of."""
    if array.dtype == numpy.float32:
        tiny = numpy.abs(array) < numpy.finfo(numpy.float32).tiny
        return numpy.where(tiny, numpy.copysign(numpy.float32(0), array), array)
    return array


class _Module:
    def load(self, code: bytes) -> None:
        self.code = code.decode()

    def get_function(self, symbol: str) -> Any:
        return _Decision() if symbol == DECISION.symbol else _Function(self.code, symbol)


def _element(parameter: str) -> str:
    """The type of what a pointer points to."""
    return re.sub(r"^const ", "", parameter.rpartition("*")[0]).strip()


class _Function:
    def __init__(self, code: str, symbol: str, flushes: bool = False) -> None:
        self.code, self.flushes = code, flushes
        found = [m for m in _SIGNATURE.finditer(code) if m["symbol"] == symbol]
        assert len(found) == 1, f"{len(found)} definitions of {symbol}"
        self.bound, self.cluster = int(found[0]["bound"] or 1024), int(found[0]["cluster"] or 1)
        self.symbol = symbol
        self.is_loaded = self.cooperative = False
        self.ptr = len(_functions) + 1
        _functions.append(self)
        self.parameters = [p.replace("__restrict__", "").strip() for p in found[0]["parameters"].split(",")]

    def __call__(
        self,
        grid: tuple[int],
        block: tuple[int],
        buffers: tuple[numpy.ndarray, ...],
        *,
        enable_cooperative_groups: bool = False,
    ) -> None:
        self.cooperative = enable_cooperative_groups
        assert self.cooperative == ("hlo_meet_grid(&" in self.code), "blocks wait for each other in other launches"
        assert len(buffers) == len(self.parameters) and block[0] <= self.bound
        assert isinstance(grid, tuple) and isinstance(block, tuple) and 0 < grid[0] < 2**31 and block[0] > 0
        assert grid[0] % self.cluster == 0, "CUDA launches whole clusters only"
        for buffer in buffers:
            assert isinstance(buffer, Array), f"{type(buffer)} is no array of the GPU"
            assert buffer.flags.c_contiguous and (not buffer.size or buffer.data.ptr % ALIGNMENT == 0), "misaligned"
        if capturing and not self.is_loaded:
            raise CudaError("cudaErrorStreamCaptureUnsupported: a kernel is loaded when it is first launched")
        self.is_loaded = True
        _do(lambda *arrays: self._run(grid, block, arrays), buffers)

    def _run(self, grid: tuple[int], block: tuple[int], buffers: tuple[numpy.ndarray, ...]) -> None:
        shapes = []
        for parameter, buffer in zip(self.parameters, buffers, strict=True):
            element_type = ELEMENT_TYPES[_TYPES[_element(parameter)]]
            assert buffer.dtype.itemsize == element_type.bytes, (parameter, buffer.dtype)
            shapes.append(Shape(element_type, (buffer.size,)))
        inputs = sum(p.startswith("const ") for p in self.parameters)
        launch = Launch(grid[0], block[0], cooperative=self.cooperative, cluster=self.cluster)
        outputs = shapes[inputs:]
        kernel = of_text(self.symbol, self.code, launch, shapes[:inputs], outputs)
        # a text does not say which outputs hold something before, nor whether the order of threads matters
        kernel = dataclasses.replace(kernel, own=tuple(range(len(outputs))), in_order=True)
        library = _LIBRARIES.get(self.symbol)
        if library is None:
            library = _LIBRARIES[self.symbol] = HostLibrary([kernel], form="plain")
        if self.flushes:
            buffers = (*map(_flushed, buffers[:inputs]), *buffers[inputs:])
        library.launch(kernel, buffers[:inputs], buffers[inputs:])
        for made in buffers[inputs:] if self.flushes else ():
            made[...] = _flushed(made)
        launched.append(self.symbol)


class _Decision:
    """The kernel that decides whether the body of a conditional node runs again."""

    def __init__(self) -> None:
        self.is_loaded = False
        self.ptr = len(_functions) + 1
        _functions.append(self)

    def launch(self, parameters: int) -> None:
        if capturing and not self.is_loaded:
            raise CudaError("cudaErrorStreamCaptureUnsupported: a kernel is loaded when it is first launched")
        self.is_loaded = True
        places = (ctypes.c_uint64 * 5).from_address(parameters)
        more, counts, handle, most, begins = (ctypes.c_uint64.from_address(p).value for p in places)

        def decide(*_: Any) -> None:
            rounds = (ctypes.c_uint64 * 2).from_address(counts)
            rounds[0] = 0 if begins else rounds[0] + 1
            goes_on = rounds[0] < most and (not more or ctypes.c_uint8.from_address(more).value != 0)
            rounds[1] += goes_on
            conditions[handle] = int(goes_on)

        if counts:
            _do(decide, [_at(counts, numpy.uint64)])


_functions: list[Any] = []
_LIBRARIES: dict[str, HostLibrary] = {}


def _at(address: int, dtype: Any) -> Array:
    """The memory at an address, up to the end of what was allocated."""
    ends = (first + held for first, held in _alive.items() if first <= address < first + held)
    dtype = numpy.dtype(dtype)
    count = (next(ends, address + dtype.itemsize) - address) // dtype.itemsize
    return Array(count, dtype, (ctypes.c_char * (count * dtype.itemsize)).from_address(address))


def _launch_kernel(
    function: int,
    x: int,
    y: int,
    z: int,
    a: int,
    b: int,
    c: int,
    shared: int,
    stream: int,
    parameters: int,
    *extra: int,
) -> None:
    """As the driver's, which reads the parameters at once."""
    assert y == z == b == c == 1 and not shared and stream == current[-1].ptr and extra in ((), (0,))
    called = _functions[function - 1]
    if isinstance(called, _Decision):
        called.launch(parameters)
        return
    places = (ctypes.c_uint64 * len(called.parameters)).from_address(parameters)
    types = [ELEMENT_TYPES[_TYPES[_element(p)]] for p in called.parameters]
    buffers = [
        _at(ctypes.c_uint64.from_address(place).value, raw_dtype(t.dtype))
        for place, t in zip(places, types, strict=True)
    ]
    how = {} if extra else {"enable_cooperative_groups": True}
    called((x,), (a,), tuple(buffers), **how)


def _copy_bytes(target: int, source: int, size: int, kind: int, stream: int) -> None:
    assert kind == 3 and stream == current[-1].ptr
    both = [Array(size, numpy.uint8, (ctypes.c_char * size).from_address(address)) for address in (target, source)]
    _do(lambda to, what: numpy.copyto(to, what), both)


class _NvrtcError(RuntimeError):
    """CuPy's NVRTCError."""


class _OutOfMemoryError(MemoryError):
    """CuPy's OutOfMemoryError."""


def _compile(program: tuple[str, str], options: tuple[str, ...]) -> None:
    assert options[0] in ("-arch=sm_90", "-arch=compute_90") and options[1:] in OPTIONS
    _targets[program] = options[0]
    compilations.append(program[1])


_targets: dict[tuple[str, str], str] = {}


def _code(program: tuple[str, str], kind: str) -> bytes:
    assert _targets[program] == f"-arch={kind}_90"
    return program[0].encode()


def _gemm(handle: int, *numbers: int) -> None:
    gemms.append(fake_cublas.multiply(handle, *numbers))


_POINTER, _NUMBER, _LONG = ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong
_OPERAND = [_POINTER, _NUMBER, _NUMBER, _LONG]
_GEMM = [_POINTER, *[_NUMBER] * 5, _POINTER, *_OPERAND, *_OPERAND, _POINTER, *_OPERAND, *[_NUMBER] * 3]
"""The types of what cublasGemmStridedBatchedEx takes (cublas_api.h)."""
_LISTED = _OPERAND[:-1]
_LISTED_GEMM = [_POINTER, *[_NUMBER] * 5, _POINTER, *_LISTED, *_LISTED, _POINTER, *_LISTED, *[_NUMBER] * 3]
"""The types of what cublasGemmBatchedEx takes."""


class Cublas:
    """The library itself, as `ctypes` loads it: what it multiplies may be a node of a graph."""

    def __init__(self) -> None:
        self.stream: int | None = None
        self.workspace: int | None = None
        self.workspaces: list[tuple[int, int]] = []
        self.cublasCreate_v2 = self._create
        self.cublasDestroy_v2 = _destroy
        self.cublasSetStream_v2 = self._use
        self.cublasSetWorkspace_v2 = self._work_in
        self.cublasGemmStridedBatchedEx = self._multiply
        self.cublasGemmBatchedEx = self._multiply_listed

    def _create(self, handle: Any) -> int:
        handle._obj.value = 7
        return 0

    def _use(self, handle: int, stream: int) -> int:
        self.stream, self.workspace = stream, None
        return 0

    def _work_in(self, handle: int, workspace: int, size: int) -> int:
        assert not _is_freed(workspace, size) and size >= 1 << 22
        self.workspace = workspace
        return 0

    def _numbers(self, arguments: Any, types: list[Any]) -> list[int]:
        assert [type(a) for a in arguments] == types, "arguments that ctypes would have to convert"
        assert self.stream is not None and self.stream == current[-1].ptr and self.workspace is not None
        self.workspaces.append((self.stream, self.workspace))
        return [a.value for a in arguments]

    def _multiply_listed(self, *arguments: Any) -> int:
        handle, *numbers = self._numbers(arguments, _LISTED_GEMM)
        lists = [numpy.ndarray(1, "uint64", (ctypes.c_char * 8).from_address(numbers[n])) for n in (6, 9, 13)]
        _do(lambda *_: listed_gemms.append(fake_cublas.multiply_listed(handle, *numbers)), lists)
        return 0

    def _multiply(self, *arguments: Any) -> int:
        handle, *numbers = self._numbers(arguments, _GEMM)
        (b, b_type), (a, a_type), (c, c_type) = numbers[6:8], numbers[10:12], numbers[15:17]
        of_type = ((a, a_type), (b, b_type), (c, c_type))
        firsts = [numpy.ndarray(1, fake_cublas.DTYPES[t], (ctypes.c_char * 16).from_address(p)) for p, t in of_type]
        _do(lambda *_: _gemm(handle, *numbers), firsts)
        return 0


def _destroy(handle: int) -> int:
    return 0


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
            CUDARuntimeError=CudaError,
            memcpyAsync=_copy_bytes,
            streamIsCapturing=lambda stream: current[-1].ptr == stream and current[-1].capture is not None,
            memGetInfo=lambda: (1 << 32, 1 << 32),
        ),
        driver=space(CUDADriverError=CudaError, launchKernel=_launch_kernel, launchCooperativeKernel=_launch_kernel),
        memory=space(OutOfMemoryError=_OutOfMemoryError),
        nvrtc=space(
            getVersion=lambda: (13, 0),
            getSupportedArchs=lambda: [80, 90, 100],
            createProgram=lambda source, name, headers, names: (source, name),
            compileProgram=_compile,
            getProgramLog=lambda program: f"{program[1]}(1): error: no\nmore",
            getCUBIN=lambda program: _code(program, "sm"),
            getPTX=lambda program: _code(program, "compute"),
            destroyProgram=lambda program: None,
            NVRTCError=_NvrtcError,
        ),
        compiler=space(compile_using_nvrtc=_compile_using_nvrtc),
        function=space(Module=_Module),
        cublas=space(gemmStridedBatchedEx=_gemm),
        device=space(get_cublas_handle=lambda: 7),
        Device=lambda *_: device,
        Stream=Stream,
        Event=Event,
        alloc=lambda size: empty(size, "uint8").data,
        MemoryPool=_Pool,
        set_allocator=lambda allocator: None,
        using_allocator=lambda allocator: contextlib.nullcontext(),
        get_current_stream=lambda: current[-1],
        get_elapsed_time=lambda first, second: (second.time - first.time) * 1e3,
    )
    module.__name__ = "cupy"
    module.cudnn = Cudnn(module)  # type: ignore[attr-defined]
    module.cublaslt = fake_cublaslt.CublasLt(_do, lambda: current[-1].ptr)  # type: ignore[attr-defined]
    cupyx = types.ModuleType("cupyx")
    cupyx.errstate = lambda linalg: contextlib.nullcontext()  # type: ignore[attr-defined]
    linalg = types.ModuleType("cupyx.scipy.linalg")
    linalg.solve_triangular = _solve  # type: ignore[attr-defined]
    found = {"cupy": module, "cupyx": cupyx, "cupyx.scipy": types.ModuleType("cupyx.scipy")}
    sys.modules.update({**found, "cupyx.scipy.linalg": linalg})
    return module
