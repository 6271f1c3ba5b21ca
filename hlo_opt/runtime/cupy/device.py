"""Buffers and kernels on an NVIDIA GPU through CuPy, which is imported only here, and only for this backend.

Compiled kernels are cached on disk by source, options, device and NVRTC version. An entry is machine code with its
own hash in front; damaged or truncated entries are compiled again. The folder belongs to the user
(`hlo_opt.runtime.host.library.cache_directory`), and files are renamed into place when complete.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy as np

from hlo_opt.codegen.depthwise import depthwise_kernel
from hlo_opt.codegen.kernel import Kernel
from hlo_opt.codegen.options import compile_options
from hlo_opt.diag import BackendError
from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir.values import Array
from hlo_opt.library import arrays
from hlo_opt.library.arrays import raw_dtype
from hlo_opt.ops.calls.call import DeviceCall
from hlo_opt.ops.calls.collectives import device_call
from hlo_opt.ops.calls.epilogues import cudnn_ways
from hlo_opt.ops.calls.strided import product_of
from hlo_opt.ops.collective.module_devices import counts, exchanges
from hlo_opt.plans.depthwise import depthwise_plan
from hlo_opt.runtime.cupy.conditional import DECISION, Conditions, driver_of
from hlo_opt.runtime.cupy.cudnn import Cudnn, CudnnError, kernel_of
from hlo_opt.runtime.cupy.products import Cublas
from hlo_opt.runtime.host.compiler import cache_directory
from hlo_opt.runtime.numpy import WORD, from_memory, held_dtype, to_memory
from hlo_opt.runtime.schedule.ops import CallOp, LaunchOp
from hlo_opt.runtime.schedule.stretch import NOTHING, BoundLaunch, Start, span_of

if TYPE_CHECKING:
    from hlo_opt.runtime.schedule import Schedule


_SHOWN = 200  # characters of NVRTC's first error message


def architecture(nvrtc: Any, capability: str) -> str:
    """The newest architecture that NVRTC knows and the device runs, such as `sm_90`.

    `capability` is the device's compute capability without a dot: `90`. Machine code runs only on devices of its own
    major version (CUDA C++ Programming Guide, "Binary Compatibility"); for newer ones, `compute_90` gives PTX, which
    the driver translates. Raises BackendError (HLO524) for a device older than anything this NVRTC compiles for.
    """
    known = sorted(int(a) for a in nvrtc.getSupportedArchs())
    fitting = [a for a in known if a <= int(capability)]
    if not fitting:
        raise BackendError(
            f"backend cupy: NVRTC {version(nvrtc)} compiles for no device as old as this one (compute "
            f"capability {capability})",
            code="HLO524",
            hint="install the extra cuda12, or choose --backend host",
        )
    is_same = fitting[-1] // 10 == int(capability) // 10
    return f"{'sm' if is_same else 'compute'}_{fitting[-1]}"


def version(nvrtc: Any) -> str:
    """NVRTC's version: `13.0`."""
    return ".".join(map(str, nvrtc.getVersion()))


def entry_name(source: str, arch: str, nvrtc_version: str, options: Sequence[str]) -> str:
    """The name of a kernel's file in the cache."""
    parts = ("cubin", nvrtc_version, arch, *options, source)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40] + ".cubin"


def read_entry(path: Path) -> bytes | None:
    """The machine code of a cache entry; None if it is missing, damaged or not the user's own."""
    try:
        with path.open("rb") as stream:
            owner = os.fstat(stream.fileno())
            if hasattr(os, "getuid") and (owner.st_uid != os.getuid() or owner.st_mode & 0o022):
                return None
            data = stream.read()
    except OSError:
        return None
    digest, code = data[:32], data[32:]
    return code if code and hashlib.sha256(code).digest() == digest else None


def write_entry(path: Path, code: bytes) -> None:
    """Write a cache entry. A read-only folder or a full disk is not an error: the kernel is compiled again next
    time."""
    partial = path.with_name(f".{path.name}.{os.urandom(6).hex()}.partial")
    try:
        with contextlib.suppress(OSError):
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(hashlib.sha256(code).digest() + code)
            partial.replace(path)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def compiled(
    nvrtc: Any, kernels: Sequence[Kernel], arch: str, folder: Path, options: Sequence[str]
) -> Mapping[str, bytes]:
    """The machine code (or PTX, see `architecture`) of kernels by symbol: from the cache, or compiled in parallel.

    Raises BackendError (HLO522) when NVRTC rejects a kernel.
    """
    codes: dict[str, bytes] = {}
    missing = []
    paths = {k.symbol: folder / entry_name(k.source, arch, version(nvrtc), options) for k in kernels}
    for kernel in {k.symbol: k for k in kernels}.values():
        code = read_entry(paths[kernel.symbol])
        if code is None:
            missing.append(kernel)
        else:
            codes[kernel.symbol] = code
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        for kernel, code in zip(missing, pool.map(lambda k: _compile(nvrtc, k, arch, options), missing), strict=True):
            write_entry(paths[kernel.symbol], code)
            codes[kernel.symbol] = code
    return codes


class _Text(Protocol):
    """A kernel, as much of it as NVRTC needs."""

    @property
    def symbol(self) -> str: ...

    @property
    def source(self) -> str: ...


def _compile(nvrtc: Any, kernel: _Text, arch: str, options: Sequence[str]) -> bytes:
    program = nvrtc.createProgram(kernel.source, f"{kernel.symbol}.cu", (), ())
    try:
        try:
            nvrtc.compileProgram(program, (f"-arch={arch}", *options))
        except nvrtc.NVRTCError as error:
            lines = [line.strip() for line in nvrtc.getProgramLog(program).splitlines() if line.strip()]
            first = next((line for line in lines if "error" in line), lines[0] if lines else str(error))
            raise BackendError(f"NVRTC refuses kernel {kernel.symbol}: {first[:_SHOWN]}", code="HLO522") from None
        code: bytes = nvrtc.getCUBIN(program) if arch.startswith("sm_") else nvrtc.getPTX(program)
        return code
    finally:
        nvrtc.destroyProgram(program)


__all__ = ["CupyDevice", "has_gpu", "import_cupy", "refuse_what_cupy_lacks"]

MOST_BLOCKS = 2**31 - 1
"""Blocks of a one-dimensional grid (CUDA C++ Programming Guide, table of technical specifications)."""

_TO_DEVICE = 3
"""cudaMemcpyDeviceToDevice."""

_COMPILED: dict[tuple[int, tuple[str, ...], str], Any] = {}
"""Loaded functions of this process by device, options and source."""


def import_cupy() -> Any:
    """CuPy, if it has a GPU. Raises BackendError that says whether CuPy or the GPU is missing."""
    try:
        import cupy
    except ImportError as error:
        raise BackendError(
            f"backend cupy: CuPy cannot be imported ({error})",
            code="HLO520",
            hint="pip install 'hlo-opt[cuda13]' (or cuda12), or choose --backend host",
        ) from None
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise BackendError(
            f"backend cupy: there is no usable GPU ({error})", code="HLO521", hint="choose --backend host or numpy"
        ) from None
    if count == 0:
        raise BackendError("backend cupy: there is no GPU", code="HLO521", hint="choose --backend host or numpy")
    return cupy


def has_gpu() -> bool:
    """Whether CuPy is installed and sees a GPU."""
    try:
        import_cupy()
    except BackendError:
        return False
    return True


def refuse_what_cupy_lacks(schedule: Schedule) -> None:
    """Check that CuPy can run a schedule.

    Raises BackendError for the first instruction with neither a kernel nor a CuPy call (HLO523), or whose launch
    exceeds the grid of a GPU (HLO525): nothing moves to the CPU silently. Only collectives between simulated devices
    run in NumPy.
    """
    several = math.prod(counts(schedule.module)) > 1
    for _, op in schedule.ops():
        module, i = schedule.module, op.instruction
        if (
            isinstance(op, CallOp)
            and op.kind != "empty"
            and device_call(i) is None
            and i.opcode != "after-all"
            and not (several and exchanges(i))
        ):
            raise BackendError(
                f"backend cupy: neither a kernel nor CuPy computes {i.opcode} {i.name}"
                + (f" ({op.call})" if op.call != i.opcode else ""),
                code="HLO523",
                span=module.span(i),
                hint="--backend host evaluates it in NumPy",
            )
    refuse_large_grids(schedule, "backend cupy", "choose --backend host, or split the array")


def refuse_large_grids(schedule: Schedule, who: str, hint: str) -> None:
    """Raises BackendError (HLO525) for the first launch that needs more blocks than a GPU supports."""
    for _, op in schedule.ops():
        if isinstance(op, LaunchOp) and op.kernel.launch.grid > MOST_BLOCKS:
            raise BackendError(
                f"{who}: {op.instruction.name} needs {op.kernel.launch.grid} blocks, and a GPU takes {MOST_BLOCKS}",
                code="HLO525",
                span=schedule.module.span(op.instruction),
                hint=hint,
            )


_Binding = Callable[[Sequence[Array], Sequence[Array]], Start]
"""From operands and results to the start of a library call."""


class _AtCuda(Protocol):
    """A stream or a function, by what CUDA calls it."""

    ptr: int


class CupyDevice:
    """Memory is a flat CuPy array; types that CuPy lacks are held as raw bits."""

    def __init__(self, schedule: Schedule, *, precise: bool = False) -> None:
        refuse_what_cupy_lacks(schedule)
        self.cupy = import_cupy()
        self._precise = precise
        self.module = schedule.module
        self.notes: dict[str, str] = {}
        self._calls: dict[Instruction, DeviceCall] = {}
        self._target = schedule.target
        self._library_calls = [op for _, op in schedule.ops() if isinstance(op, CallOp) and op.kind == "library"]
        self._bindings: dict[Instruction, _Binding | None] = {}
        self._cublas: Cublas | None = None
        self._cudnn: Cudnn | None = None
        self._kept: dict[tuple[str, int], Array] = {}
        self._conditions: Conditions | None = None
        self._current_stream: Callable[[], _AtCuda] = self.cupy.cuda.get_current_stream
        self._threads = threading.local()
        self._options = compile_options(precise=precise)
        self._functions = self._load(schedule.kernels)
        self._launched_by = {
            kernel.symbol: op.instruction
            for _, op in schedule.ops()
            if isinstance(op, LaunchOp)
            for kernel in (op.kernel, schedule.apart.get(op.kernel, op.kernel))
        }

    def _load(self, kernels: Sequence[Kernel]) -> dict[str, _AtCuda]:
        options = self._options
        device = int(self.cupy.cuda.runtime.getDevice())
        missing = [k for k in kernels if (device, options, k.source) not in _COMPILED]
        if missing:
            nvrtc = self.cupy.cuda.nvrtc
            arch = architecture(nvrtc, str(self.cupy.cuda.Device().compute_capability))
            for symbol, code in compiled(nvrtc, missing, arch, cache_directory(), options).items():
                kernel = next(k for k in missing if k.symbol == symbol)
                with self._naming_errors_of(None, f"loading kernel {symbol}"):
                    module = self.cupy.cuda.function.Module()
                    module.load(code)
                    _COMPILED[device, options, kernel.source] = module.get_function(symbol)
        return {k.symbol: _COMPILED[device, options, k.source] for k in kernels}

    @contextmanager
    def _naming_errors_of(self, instruction: Instruction | None, doing: str) -> Iterator[None]:
        """Turn errors of CUDA and its libraries into BackendErrors that name the instruction.

        Launches are asynchronous: a kernel's fault surfaces at the next call that waits, perhaps for another
        instruction.
        """
        try:
            yield
        except Exception as error:
            self.fail(error, instruction, doing)

    def fail(self, error: Exception, instruction: Instruction | None, doing: str) -> NoReturn:
        """Raise an error that was caught, in our words where it is one of CUDA and its libraries."""
        cuda = self.cupy.cuda
        known = (cuda.memory.OutOfMemoryError, cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError)
        kind = type(error).__name__
        is_known = isinstance(error, known) or kind in _LIBRARY_ERRORS
        if isinstance(error, BackendError) or not (
            is_known or isinstance(error, (ValueError, TypeError, NotImplementedError, ImportError))
        ):
            raise error
        is_memory = isinstance(error, cuda.memory.OutOfMemoryError)
        span = None if instruction is None else self.module.span(instruction)
        at = "" if instruction is None else f" at {instruction.opcode} {instruction.name}"
        first = next(iter(str(error).splitlines()), "")[:200]
        raise BackendError(
            f"backend cupy: {doing}{at}: {kind}: {first}",
            code="HLO527" if is_memory else "HLO526",
            span=span,
            hint="run says with --memory-limit what a module would need" if is_memory else None,
        ) from error

    def upload(self, array: Array, shape: Shape) -> Array:
        flat = to_memory(array, shape)
        with self._naming_errors_of(None, "copying to the GPU"):
            return self.cupy.asarray(flat.view(raw_dtype(flat.dtype)))

    def download(self, memory: Array, shape: Shape) -> Array:
        with self._naming_errors_of(None, "copying from the GPU"):
            flat: Array = self.cupy.asnumpy(memory).view(held_dtype(shape))
        return np.array(from_memory(flat, shape), order="C")

    def allocate(self, shape: Shape) -> Array:
        try:  # for each output of each call: a context manager would take as long
            if shape.type.per_byte > 1:  # whole words, because kernels update single elements atomically by words
                return self.cupy.empty(-(-shape.stored_bytes // WORD) * WORD, "uint8")[: shape.stored_bytes]
            return self.cupy.empty(shape.element_count, raw_dtype(shape.type.dtype))
        except Exception as error:
            self.fail(error, None, "allocating")

    def copy(self, memory: Array) -> Array:
        with self._naming_errors_of(None, "copying"):  # by the driver: `memory.copy()` may take longer
            copy: Array = self.cupy.empty_like(memory)
            (source, end), (target, _) = span_of(memory), span_of(copy)
            self.copy_bytes(source, target, end - source)
            return copy

    def view(self, memory: Array, shape: Shape) -> Array:
        return memory.view(raw_dtype(held_dtype(shape)))

    def block(self, size: int) -> Array:
        with self._naming_errors_of(None, "allocating"):
            return self.cupy.empty(size, "uint8")

    def part(self, block: Array, offset: int, shape: Shape) -> Array:
        return block[offset : offset + shape.stored_bytes].view(raw_dtype(held_dtype(shape)))

    def replay(self, graph: Any) -> None:
        with self._naming_errors_of(None, "launching a graph"):
            graph.launch()

    def relayout(self, memory: Array, shape: Shape, target: Shape) -> Array:
        values = memory
        if shape.type.per_byte > 1:
            values = arrays.unpacked(self.cupy, memory, shape.type.bits, shape.element_count)
        array = arrays.logical(values, shape.dimensions, shape.minor_to_major)
        moved = arrays.flat(self.cupy, array, target.minor_to_major)
        return arrays.packed(self.cupy, moved, shape.type.bits) if shape.type.per_byte > 1 else moved

    def launch(self, kernel: Kernel, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        with self._naming_errors_of(self._launched_by.get(kernel.symbol), "launching"):
            self._start_of_kernel(kernel, inputs, outputs, NOTHING)()

    def start_of(self, launch: BoundLaunch, kept: Array = NOTHING) -> Start:
        work, inputs, outputs = launch
        if work is None:
            (source, end), (target, _) = span_of(inputs[0]), span_of(outputs[0])
            return partial(self.copy_bytes, source, target, end - source)
        if isinstance(work, Kernel):
            return self._start_of_kernel(work, inputs, outputs, kept)
        binding = self._bindings[work.instruction]
        assert binding is not None
        return binding(inputs, outputs)

    def copy_bytes(self, source: int, target: int, size: int) -> None:
        """Copy bytes from one address to another, on the current stream."""
        self.cupy.cuda.runtime.memcpyAsync(target, source, size, _TO_DEVICE, self._current_stream().ptr)

    def _start_of_kernel(self, kernel: Kernel, inputs: Sequence[Array], outputs: Sequence[Array], kept: Array) -> Start:
        if not kernel.launch.grid:
            return _nothing
        memory = [*inputs, *outputs]
        if kernel.kept:
            memory.append(self.kept_by(kernel) if kept is NOTHING else kept)
        values = np.array([*(span_of(m)[0] for m in memory), *([kernel.size] if kernel.size else ())], np.uint64)
        return self.start_at(kernel, values)

    def start_at(self, kernel: Kernel, values: Array) -> Start:
        """A launch with parameters of 8 bytes each, which it reads when it starts: addresses, and perhaps a size.

        CuPy's own call of a function makes an object per parameter, which for a kernel of hundreds of arrays takes
        longer than the kernel.
        """
        if not kernel.launch.grid:
            return _nothing
        places = values.ctypes.data + values.itemsize * np.arange(values.size, dtype=np.uint64)
        if kernel.symbol not in self._functions:  # of the schedule's `apart`, which not every caller needs
            self._functions |= self._load([kernel])
        driver, function, launch = self.cupy.cuda.driver, self._functions[kernel.symbol], kernel.launch
        how = (function.ptr, launch.grid, 1, 1, launch.block, 1, 1, 0)
        parameters = int(places.ctypes.data)
        current, threads, enter = self._current_stream, self._threads, self._enter_thread
        # cooperative: CUDA refuses a launch whose blocks cannot all be resident, instead of hanging
        call, rest = (driver.launchCooperativeKernel, ()) if launch.cooperative else (driver.launchKernel, (0,))

        def start(_: tuple[Array, Array] = (values, places)) -> None:  # which live as long as this does
            if not hasattr(threads, "has_context"):
                enter()
            call(*how, current().ptr, parameters, *rest)

        return start

    def _enter_thread(self) -> None:
        """Let the driver know the device in a thread that has not used it: the first call of the runtime does."""
        self.cupy.cuda.runtime.memGetInfo()
        self._threads.has_context = True

    def start_all(self, starts: Sequence[Start], launches: Sequence[BoundLaunch]) -> None:
        started = 0
        try:
            for start in starts:
                start()
                started += 1
        except Exception as error:
            work = launches[started][0]
            instruction = self._launched_by.get(work.symbol) if isinstance(work, Kernel) else None
            self.fail(error, work.instruction if isinstance(work, CallOp) else instruction, "launching")

    def places(self, op: CallOp) -> bool:
        return self._binding(op) is not None

    def _binding(self, op: CallOp) -> _Binding | None:
        """How a call starts that our own handles of cuBLAS and cuDNN do; None for other calls, and where there is no
        handle."""
        if op.instruction not in self._bindings:
            call = self._device_call(op.instruction) if op.kind == "library" else None
            self._bindings[op.instruction] = None if call is None else self._bound_call(op, call)
        return self._bindings[op.instruction]

    def _bound_call(self, op: CallOp, call: DeviceCall) -> _Binding | None:
        product, ways = product_of(call), cudnn_ways(op.instruction, call)
        try:
            if (planned := depthwise_plan(call, self._target)) is not None:
                self.notes.setdefault(op.call, "a kernel of its own")
                return partial(self._start_alone, depthwise_kernel(planned))
            if product is not None:
                self._cublas = self._cublas or Cublas(self.cupy)
                does = {self._cublas.choose(product), *filter(None, self.notes.get(op.call, "").split(", "))}
                self.notes[op.call] = ", ".join(sorted(does))
                return self._cublas.binding(product)
            if ways:
                self._cudnn = self._cudnn or self._begin_convolutions()
                prepared = self._cudnn.prepared(tuple(ways))
                self.notes.setdefault(op.call, "cudnnBackendExecute")
                return partial(self._cudnn.start_of, prepared)
        except (OSError, AttributeError, ImportError, RuntimeError) as error:  # of the loader and the libraries
            if ways:  # CuPy computes the call for us, outside graphs
                self.notes[op.call] = f"{call.does}, as cuDNN does not: {error}"
        return None

    def _start_alone(self, kernel: Kernel, inputs: Sequence[Array], outputs: Sequence[Array]) -> Start:
        return self._start_of_kernel(kernel, inputs, outputs, NOTHING)

    def _begin_convolutions(self) -> Cudnn:
        """A handle of cuDNN. The kernels that move arrays for it are compiled all at once, as the module's own are."""
        cudnn = Cudnn(self, self._target)
        calls = ((op.instruction, self._device_call(op.instruction)) for op in self._library_calls)
        ways = (way for instruction, call in calls if call is not None for way in cudnn_ways(instruction, call))
        kernels = []
        for move in {move for way in ways for move in way.moves if move is not None}:
            with contextlib.suppress(CudnnError):  # told where the convolution is prepared
                kernels.append(kernel_of(move.text, self._target))
        self._functions |= self._load(kernels)
        return cudnn

    def _device_call(self, instruction: Instruction) -> DeviceCall | None:
        call = device_call(instruction)
        return call.precise if call is not None and self._precise else call

    def reserve(self, stream: int) -> None:
        with self._naming_errors_of(None, "allocating"):
            for library in (self._cublas, self._cudnn):
                if library is not None:
                    library.reserve(stream)

    def kept_by(self, kernel: Kernel) -> Array:
        """The kept memory of a kernel on the current stream: launches on one stream do not overlap."""
        of = f"{kernel.symbol} at {kernel.size}" if kernel.size else kernel.symbol  # its places depend on the size
        key = (of, int(self._current_stream().ptr))
        if key not in self._kept:
            self._kept[key] = self.zeros(kernel.kept)
        return self._kept[key]

    def conditions(self) -> Conditions:
        """How the GPU decides whether launches repeat. Raises ConditionError where its driver is too old, BackendError
        where it refuses the kernel."""
        if self._conditions is None:
            driver, cuda = driver_of(), self.cupy.cuda
            arch = architecture(cuda.nvrtc, str(cuda.Device().compute_capability))
            with self._naming_errors_of(None, f"loading kernel {DECISION.symbol}"):
                module = cuda.function.Module()
                module.load(_compile(cuda.nvrtc, DECISION, arch, self._options))
                function = module.get_function(DECISION.symbol)
            self._conditions = Conditions(driver, cuda.driver.launchKernel, function)
        return self._conditions

    def zeros(self, size: int) -> Array:
        with self._naming_errors_of(None, "allocating"):
            return self.cupy.zeros(size, "uint8") if size else NOTHING

    def call(self, op: CallOp, inputs: Sequence[Array], shapes: Sequence[Shape]) -> list[Array]:
        if self._binding(op) is not None:
            outputs = [self.allocate(leaf) for leaf in op.instruction.shape.leaves()]
            with self._naming_errors_of(op.instruction, self.notes[op.call]):
                self.start_of((op, list(inputs), outputs))()
            return outputs
        call = self._calls.get(op.instruction)
        if call is None:
            if op.instruction.opcode == "after-all":
                return [NOTHING]
            call = self._device_call(op.instruction)
            assert call is not None, op.instruction.name
            self._calls[op.instruction] = call
            self.notes.setdefault(op.call, call.does)
        with self._naming_errors_of(op.instruction, call.does):
            return call.run(self.cupy, inputs)


def _nothing() -> None:
    """The start of a kernel without blocks."""


_LIBRARY_ERRORS = frozenset(
    {
        "CUBLASError",
        "CudnnError",
        "CublasError",
        "CUFFTError",
        "CUSOLVERError",
        "CUSPARSEError",
        "DynamicLibNotFoundError",
        "LinAlgError",
        "LtError",
    }
)
"""Errors of NVIDIA's libraries, by name: importing their modules would load libraries that may be absent."""
