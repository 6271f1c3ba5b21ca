"""Matrix products by cuBLAS and cuBLASLt into memory that is there already, so that they may be part of a CUDA graph.

CuPy refuses its own calls of cuBLAS while a stream is captured (`setStream` of its module cublas), because cuBLAS then
allocates a workspace. So these calls go to the library that CuPy has loaded, by a handle and workspaces of our own:
one workspace per stream, as calls on one stream do not overlap. XLA:GPU, too, hands cuBLAS its workspace.
"""

from __future__ import annotations

import contextlib
import ctypes
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import ModuleType

import numpy as np

from hlo_opt.ir import ELEMENT_TYPES
from hlo_opt.ir.values import Array
from hlo_opt.ops.calls.strided import FEW_BITS, LISTED_ALIGNMENT, StridedProduct
from hlo_opt.runtime.cupy.cublaslt import ALIGNED, WORTH, Algorithm, CublasLt, LtError, milliseconds
from hlo_opt.runtime.schedule.stretch import Start, span_of

WORKSPACE = 1 << 25
"""Bytes of a workspace: what cuBLAS recommends for compute capability 9 (cuBLAS manual, cublasSetWorkspace)."""
MOST_TABLES = 1024
"""Lists of addresses that are kept: of products whose addresses keep changing, each matrix is a call of its own."""
_TYPES = {"f32": 0, "f64": 1, "f16": 2, "c64": 4, "c128": 5, "bf16": 14}
"""cudaDataType."""
_FLOAT, _DOUBLE, _TF32 = 68, 70, 77
"""CUBLAS_COMPUTE_32F, without TF32; CUBLAS_COMPUTE_64F; CUBLAS_COMPUTE_32F_FAST_TF32."""
_DEFAULT = -1
"""CUBLAS_GEMM_DEFAULT."""


class CublasError(RuntimeError):
    """A status of cuBLAS other than success, or a product that it does not have."""


@dataclass(frozen=True)
class _Choice:
    """The algorithm of cuBLASLt that is the fastest, None where cuBLAS's own choice is; and its milliseconds, infinite
    where there was no memory to run it."""

    algorithm: Algorithm | None
    ms: float = float("inf")


_CHOSEN: dict[tuple[int, StridedProduct], _Choice] = {}
"""What this process measured, by device."""


def library_of(cupy: ModuleType) -> ctypes.CDLL:
    """The functions of the cuBLAS that CuPy uses. Raises OSError where the library is not found by its name."""
    number = int(cupy.cuda.cublas.getVersion(cupy.cuda.device.get_cublas_handle()))
    library = ctypes.CDLL(f"libcublas.so.{number // 10000}")  # already loaded, so that no path is searched
    pointer = ctypes.c_void_p
    library.cublasCreate_v2.argtypes = [ctypes.POINTER(pointer)]
    library.cublasDestroy_v2.argtypes = [pointer]
    library.cublasSetStream_v2.argtypes = [pointer, pointer]
    library.cublasSetWorkspace_v2.argtypes = [pointer, pointer, ctypes.c_size_t]  # of products, arguments are C's
    return library


_Pointer, _Int, _Long = ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong


class _Prepared:
    """The calls of a product, but for the addresses: all that does not depend on them is converted for C once."""

    def __init__(self, handle: int | None, product: StridedProduct) -> None:
        operand, result = (_TYPES[t] for t in product.types)
        narrow = _TF32 if product.is_rounded else _FLOAT
        compute = _DOUBLE if product.types[1] in ("f64", "c128") else narrow
        number = ctypes.c_double if compute == _DOUBLE else ctypes.c_float
        self.scalars = one, zero = (number * 2)(1, 0), (number * 2)(0, 0)  # complex types take both
        rows, columns, length = product.sizes
        # columns first: the transposed product of the transposed operands
        is_turned = (product.right.is_turned, product.left.is_turned)
        self.begin = (
            _Pointer(handle),
            *map(_Int, (*is_turned, columns, rows, length)),
            _Pointer(ctypes.addressof(one)),
        )
        self.right, self.left = (
            (_Int(operand), _Int(matrix.step), _Long(matrix.batch)) for matrix in (product.right, product.left)
        )
        self.between = _Pointer(ctypes.addressof(zero))
        self.end = (
            *(_Int(result), _Int(product.step), _Long(product.step_of_batch)),
            *map(_Int, (product.batch, compute, _DEFAULT)),
        )
        self.offsets = product.bytes_before
        self.listed = _Listed(self, product) if product.is_listed else None

    def calls(self, pointers: Sequence[int]) -> list[tuple[object, ...]]:
        """The arguments of each call, for the addresses of the left matrix, the right one and the result."""
        calls: list[tuple[object, ...]] = []
        for offsets in self.offsets:
            left, right, target = (_Pointer(p + n) for p, n in zip(pointers, offsets, strict=True))
            calls.append((*self.begin, right, *self.right, left, *self.left, self.between, target, *self.end))
        return calls


class _Listed:
    """A product as one call, by the addresses of all its matrices: the offsets of these, and what the call takes beside
    their lists."""

    def __init__(self, prepared: _Prepared, product: StridedProduct) -> None:
        steps = product.left.batch, product.right.batch, product.step_of_batch
        sizes = [ELEMENT_TYPES[name].bytes for name in (product.types[0], *product.types)]
        numbers = np.arange(product.batch, dtype=np.uint64)
        within = [numbers * np.uint64(step * size) for step, size in zip(steps, sizes, strict=True)]
        self.offsets = np.array(
            [[np.uint64(n) + of for n, of in zip(b, within, strict=True)] for b in product.bytes_before], np.uint64
        )  # of each call, of the left matrix, the right one and the result, of each matrix of the batch
        self.count = len(product.starts) * product.batch
        self.right, self.left = prepared.right[:2], prepared.left[:2]
        result, step, _, _, compute, algorithm = prepared.end
        self.end = (result, step, _Int(self.count), compute, algorithm)

    def addresses(self, pointers: Sequence[int]) -> Array:
        """The lists of addresses, one behind the other: left matrices, right ones, results."""
        from_first = self.offsets.transpose(1, 0, 2).reshape(3, self.count)
        return (from_first + np.array(pointers, np.uint64)[:, None]).reshape(-1)

    def call(self, prepared: _Prepared, table: int) -> tuple[object, ...]:
        """The arguments of the call, for the address of the lists."""
        left, right, target = (_Pointer(table + n * self.count * 8) for n in range(3))
        return (*prepared.begin, right, *self.right, left, *self.left, prepared.between, target, *self.end)


class _Workspaces:
    """A workspace per stream, which cuBLAS and cuBLASLt share. This refers to neither: there is no cycle, and both
    handles end with their last user."""

    def __init__(self, cupy: ModuleType) -> None:
        self.cupy = cupy
        self._of: dict[int, Array] = {}

    def reserve(self, stream: int) -> None:
        if stream not in self._of:
            self._of[stream] = self.cupy.empty(WORKSPACE, "uint8")

    def at(self, stream: int) -> int:
        """The address of a stream's workspace."""
        self.reserve(stream)
        return span_of(self._of[stream])[0]


class Cublas:
    """A handle of cuBLAS on the current device, with a workspace per stream."""

    def __init__(self, cupy: ModuleType) -> None:
        """Raises OSError where the library is not found, CublasError where it has no handle for us."""
        self.cupy = cupy
        self.library = library_of(cupy)
        handle = ctypes.c_void_p()
        _check(self.library.cublasCreate_v2(ctypes.byref(handle)), "cublasCreate")
        self.handle = handle.value
        self.stream: int | None = None
        self._workspaces = _Workspaces(cupy)
        self._prepared: dict[StridedProduct, _Prepared] = {}
        self._tables: dict[tuple[object, ...], Array] = {}
        self._algorithms: dict[StridedProduct, Algorithm | None] = {}
        self._end = weakref.finalize(self, self.library.cublasDestroy_v2, self.handle)
        self.lt: CublasLt | None = None
        with contextlib.suppress(OSError, AttributeError, LtError):
            self.lt = CublasLt(cupy, self._workspaces.at, WORKSPACE)

    def reserve(self, stream: int) -> None:
        """Allocate the workspace of a stream, which no capture allows."""
        self._workspaces.reserve(stream)

    def choose(self, product: StridedProduct) -> str:
        """Find the fastest way to compute a product; returns the name of the function that does it. Raises CublasError
        where there is none: what follows a product is only in cuBLASLt."""
        algorithm = self._choice(product).algorithm
        if algorithm is None and product.epilogue:
            raise CublasError(f"cuBLASLt has no {product.epilogue} for it")
        self._algorithms[product] = algorithm
        if algorithm is not None:
            return "cublasLtMatmul"
        return "cublasGemmBatchedEx" if product.is_listed else "cublasGemmStridedBatchedEx"

    def saves(self, product: StridedProduct, kernel_us: float) -> bool:
        """Whether a product with its epilogue takes less time than the product alone and a kernel of `kernel_us`
        microseconds after it."""
        together, alone = self._choice(product), self._choice(replace(product, epilogue=""))
        return together.algorithm is not None and together.ms < alone.ms + kernel_us / 1e3

    def _choice(self, product: StridedProduct) -> _Choice:
        key = (int(self.cupy.cuda.runtime.getDevice()), product)
        if key not in _CHOSEN:
            _CHOSEN[key] = self._fastest(product)
        return _CHOSEN[key]

    def _fastest(self, product: StridedProduct) -> _Choice:
        if self.lt is None or len(product.starts) > 1 or product.types[0] not in FEW_BITS:
            return _Choice(None)
        try:
            algorithms = self.lt.algorithms(product)
        except LtError:
            return _Choice(None)
        best = _Choice(algorithms[0] if product.epilogue else None)
        with contextlib.suppress(self.cupy.cuda.memory.OutOfMemoryError):
            memory = [self.cupy.empty(size, "uint8") for size in (*product.bytes, product.bytes_of_bias)]
            left, right, target, bias = (span_of(array)[0] for array in memory)
            pointers = (left, right, *([bias] if product.has_bias else ()), target)
            if not product.epilogue:
                best = _Choice(None, milliseconds(self.cupy, self.start_by_cublas(product, pointers)))
            for algorithm in algorithms:
                with contextlib.suppress(LtError):
                    ms = milliseconds(self.cupy, self.lt.ready(product, algorithm).start_of(pointers))
                    if ms < best.ms * (WORTH if best.algorithm is None else 1):
                        best = _Choice(algorithm, ms)
        return best

    def binding(self, product: StridedProduct) -> Callable[[Sequence[Array], Sequence[Array]], Start]:
        """From buffers of operands and results to the start of a product on the stream that is current then."""
        algorithm, lt, is_swapped = self._algorithms.get(product), self.lt, product.is_swapped
        ready = None if lt is None or algorithm is None else lt.ready(product, algorithm)
        prepared = None if product.epilogue else self._prepared_of(product)
        least = ELEMENT_TYPES[product.types[0]].bytes

        def start_of(inputs: Sequence[Array], outputs: Sequence[Array]) -> Start:
            (left, right, *bias), (target, *_) = inputs, outputs  # what else there is, is a workspace
            first, second = (right, left) if is_swapped else (left, right)
            pointers = [span_of(memory)[0] for memory in (first, second, *bias, target)]
            if ready is not None and not any(p % ALIGNED for p in pointers):
                return ready.start_of(pointers)
            if prepared is not None:
                return self._start(prepared, pointers)
            assert lt is not None
            (unaligned,) = lt.algorithms(product, 1, aligned=least)
            return lt.ready(product, unaligned).start_of(pointers)

        return start_of

    def _prepared_of(self, product: StridedProduct) -> _Prepared:
        if product not in self._prepared:
            self._prepared[product] = _Prepared(self.handle, product)
        return self._prepared[product]

    def start_by_cublas(self, product: StridedProduct, pointers: Sequence[int], *, is_listed: bool = True) -> Start:
        """A product by cuBLAS's own choice, for the addresses of the left matrix, the right one and the result.
        `is_listed`: as one call, where it is one by a list of addresses."""
        return self._start(self._prepared_of(product), pointers, is_listed=is_listed)

    def _start(self, prepared: _Prepared, pointers: Sequence[int], *, is_listed: bool = True) -> Start:
        table = self._table_of(prepared, pointers) if is_listed else None
        if prepared.listed is None or table is None:
            function, calls = "cublasGemmStridedBatchedEx", prepared.calls(pointers)
        else:
            function, calls = "cublasGemmBatchedEx", [prepared.listed.call(prepared, span_of(table)[0])]
        multiply = getattr(self.library, function)

        def start(_: object = prepared) -> None:  # whose scalars the calls read
            self._use(int(self.cupy.cuda.get_current_stream().ptr))
            for arguments in calls:
                status = multiply(*arguments)
                if status:
                    _check(status, function)

        return start

    def _table_of(self, prepared: _Prepared, pointers: Sequence[int]) -> Array | None:
        """The lists of addresses of a product on the device, which graphs read as long as they live; None where
        addresses suit none, a new list cannot be written while a stream is captured, or there are too many."""
        if prepared.listed is None or any(p % LISTED_ALIGNMENT for p in pointers):
            return None
        key = (prepared, *pointers)
        if key not in self._tables:
            stream = self.cupy.cuda.get_current_stream()
            if len(self._tables) >= MOST_TABLES or self.cupy.cuda.runtime.streamIsCapturing(stream.ptr):
                return None
            self._tables[key] = self.cupy.asarray(prepared.listed.addresses(pointers))
            stream.synchronize()  # other streams read it
        return self._tables[key]

    def _use(self, stream: int) -> None:
        if stream != self.stream:
            workspace = self._workspaces.at(stream)
            self.stream = None
            _check(self.library.cublasSetStream_v2(self.handle, stream), "cublasSetStream")  # forgets the workspace
            _check(
                self.library.cublasSetWorkspace_v2(self.handle, workspace, WORKSPACE),
                "cublasSetWorkspace",
            )
            self.stream = stream


def _check(status: int, function: str) -> None:
    if status:
        raise CublasError(f"{function} returns status {status}")
