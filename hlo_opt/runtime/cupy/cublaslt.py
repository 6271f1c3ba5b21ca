"""Products by cuBLASLt, which has several algorithms for each and adds a bias and an activation in the same call.

Its heuristics name algorithms for a product (cuBLAS manual, "cublasLtMatmulAlgoGetHeuristic"; constants of
`cublasLt.h`). The first few run a few times beside the call of cuBLAS, as XLA:GPU's autotuner does, and the fastest
is taken; a process asks once for each product. Workspaces are those of cuBLAS.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from hlo_opt.ops.calls.strided import StridedProduct

TRIED = 8
"""Algorithms that run before one of them is taken."""
RUNS = 3
"""Runs of which the fastest counts, after one that loads the kernel."""
WORTH = 0.97
"""Another algorithm is used where it takes at most this share of the time of cuBLAS's own choice."""
ALIGNED = 16
"""The addresses of all arrays must be multiples of this; otherwise cuBLAS computes the product."""

_TYPES = {"f32": 0, "f16": 2, "bf16": 14}
"""cudaDataType."""
_FLOAT, _TF32 = 68, 77
"""CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32."""
_EPILOGUES = {"": 1, "RELU": 2, "BIAS": 4, "BIAS_RELU": 6, "GELU": 32, "BIAS_GELU": 36}
"""cublasLtEpilogue_t. GELU is the approximation by tanh."""
_BATCHES, _STEP_OF_BATCH = 5, 6
"""CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT and _STRIDED_BATCH_OFFSET."""
_TURNS_A, _TURNS_B, _EPILOGUE, _BIAS, _BIAS_TYPE = 3, 4, 7, 8, 26
"""cublasLtMatmulDescAttributes_t."""
_MOST_BYTES, _REDUCTIONS, _ALIGNMENTS = 1, 3, (5, 6, 7, 8)
"""CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, _REDUCTION_SCHEME_MASK, and of A, B, C and D _MIN_ALIGNMENT_BYTES."""
_IN_COMPUTED_TYPE = 2
"""CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE: parts of a sum are added in f32, in the same order each time."""

_Pointer, _Int, _Unsigned, _Long, _Size = (
    ctypes.c_void_p,
    ctypes.c_int32,
    ctypes.c_uint32,
    ctypes.c_int64,
    ctypes.c_size_t,
)


class LtError(RuntimeError):
    """A status of cuBLASLt other than success, or no algorithm for a product."""


def library_of(cupy: ModuleType) -> ctypes.CDLL:
    """The functions of the cuBLASLt beside the cuBLAS that CuPy uses. Raises OSError where there is none."""
    number = int(cupy.cuda.cublas.getVersion(cupy.cuda.device.get_cublas_handle()))
    library = ctypes.CDLL(f"libcublasLt.so.{number // 10000}")  # already loaded, as cuBLAS needs it
    pointer = ctypes.POINTER(_Pointer)
    library.cublasLtCreate.argtypes = [pointer]
    library.cublasLtMatmulDescCreate.argtypes = [pointer, _Int, _Int]
    library.cublasLtMatrixLayoutCreate.argtypes = [pointer, _Int, ctypes.c_uint64, ctypes.c_uint64, _Long]
    library.cublasLtMatmulPreferenceCreate.argtypes = [pointer]
    for kind in ("MatmulDesc", "MatrixLayout", "MatmulPreference"):
        getattr(library, f"cublasLt{kind}SetAttribute").argtypes = [_Pointer, _Int, _Pointer, _Size]
        getattr(library, f"cublasLt{kind}Destroy").argtypes = [_Pointer]
    library.cublasLtDestroy.argtypes = [_Pointer]
    library.cublasLtMatmulAlgoGetHeuristic.argtypes = [*[_Pointer] * 7, _Int, _Pointer, ctypes.POINTER(_Int)]
    return library


class _Result(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", _Size),
        ("state", _Int),
        ("waves", ctypes.c_float),
        ("reserved", _Int * 4),
    )


@dataclass(frozen=True)
class Algorithm:
    """How cuBLASLt computes a product: its own description, and bytes of the workspace."""

    words: tuple[int, ...]
    workspace: int


class _Object:
    """A descriptor of cuBLASLt, destroyed with this object."""

    def __init__(self, library: ctypes.CDLL, kind: str, *arguments: int) -> None:
        self.kind, pointer = kind, _Pointer()
        _check(getattr(library, f"cublasLt{kind}Create")(ctypes.byref(pointer), *arguments), f"cublasLt{kind}Create")
        self.pointer = pointer.value
        self._set = getattr(library, f"cublasLt{kind}SetAttribute")
        self._end = weakref.finalize(self, getattr(library, f"cublasLt{kind}Destroy"), self.pointer)

    def set(self, attribute: int, value: Any) -> _Object:
        """Set an attribute to a number as C has it."""
        status = self._set(self.pointer, attribute, ctypes.addressof(value), ctypes.sizeof(value))
        _check(status, f"cublasLt{self.kind}SetAttribute of attribute {attribute}")
        return self


class _Described:
    """A product as cuBLASLt knows it: columns first, the transposed product of the transposed operands."""

    def __init__(self, library: ctypes.CDLL, product: StridedProduct) -> None:
        self.library, self.product = library, product
        self.one, self.zero = ctypes.c_float(1), ctypes.c_float(0)
        rows, columns, length = product.sizes
        left, right = product.left, product.right
        operand, result = (_TYPES[name] for name in product.types)
        self.layouts = [
            self._layout(operand, (columns, length), right.is_turned, right.step, right.batch),
            self._layout(operand, (length, rows), left.is_turned, left.step, left.batch),
            self._layout(result, (columns, rows), False, product.step, product.step_of_batch),
        ]
        self.operation = self.operation_with(None)

    def _layout(self, number: int, sizes: tuple[int, int], is_turned: bool, step: int, batch: int) -> _Object:
        layout = _Object(self.library, "MatrixLayout", number, *(reversed(sizes) if is_turned else sizes), step)
        return layout.set(_BATCHES, _Int(self.product.batch)).set(_STEP_OF_BATCH, _Long(batch))

    def operation_with(self, bias: int | None) -> _Object:
        """The operation, with the address of its bias."""
        product = self.product
        operation = _Object(self.library, "MatmulDesc", _TF32 if product.is_rounded else _FLOAT, _TYPES["f32"])
        operation.set(_TURNS_A, _Int(product.right.is_turned)).set(_TURNS_B, _Int(product.left.is_turned))
        operation.set(_EPILOGUE, _Unsigned(_EPILOGUES[product.epilogue]))
        if product.has_bias:
            operation.set(_BIAS_TYPE, _Int(_TYPES[product.types[1]]))
        if bias is not None:
            operation.set(_BIAS, _Pointer(bias))
        return operation


class CublasLt:
    """A handle of cuBLASLt on the current device. `workspace_of` is the address of a stream's workspace, which has
    `most` bytes. Raises OSError where the library is not found, LtError where it has no handle for us."""

    def __init__(self, cupy: ModuleType, workspace_of: Callable[[int], int], most: int) -> None:
        self.cupy, self.workspace_of, self.most = cupy, workspace_of, most
        self.library = library_of(cupy)
        handle = _Pointer()
        _check(self.library.cublasLtCreate(ctypes.byref(handle)), "cublasLtCreate")
        self.handle = handle.value
        self._described: dict[StridedProduct, _Described] = {}
        self._end = weakref.finalize(self, self.library.cublasLtDestroy, self.handle)

    def algorithms(self, product: StridedProduct, most: int = TRIED, *, aligned: int = ALIGNED) -> list[Algorithm]:
        """The algorithms that cuBLASLt's heuristics name for a product of arrays whose addresses are multiples of
        `aligned` bytes, the best first. Raises LtError where they name none."""
        described = self._of(product)
        preference = _Object(self.library, "MatmulPreference").set(_MOST_BYTES, _Size(self.most))
        preference.set(_REDUCTIONS, _Unsigned(_IN_COMPUTED_TYPE))
        for attribute in _ALIGNMENTS:
            preference.set(attribute, _Unsigned(aligned))
        results, count = (_Result * most)(), _Int()
        right, left, result = (layout.pointer for layout in described.layouts)
        status = self.library.cublasLtMatmulAlgoGetHeuristic(
            *(self.handle, described.operation.pointer, right, left, result, result, preference.pointer),
            *(most, ctypes.addressof(results), ctypes.byref(count)),
        )
        _check(status, "cublasLtMatmulAlgoGetHeuristic")
        named = [Algorithm(tuple(r.algorithm), int(r.workspace)) for r in results[: count.value] if not r.state]
        if not named:
            raise LtError("cuBLASLt has no algorithm for it")
        return named

    def _of(self, product: StridedProduct) -> _Described:
        if product not in self._described:
            self._described[product] = _Described(self.library, product)
        return self._described[product]

    def ready(self, product: StridedProduct, algorithm: Algorithm) -> Ready:
        """A product by an algorithm, but for the addresses."""
        return Ready(self, self._of(product), algorithm)


class Ready:
    """A product by an algorithm, but for the addresses: all that does not depend on them is converted for C once."""

    def __init__(self, lt: CublasLt, described: _Described, algorithm: Algorithm) -> None:
        self.lt, self.described = lt, described
        self.words = (ctypes.c_uint64 * 8)(*algorithm.words)
        self.handle, self.size = _Pointer(lt.handle), _Size(algorithm.workspace)
        self.right, self.left, self.result = (_Pointer(layout.pointer) for layout in described.layouts)
        self.one, self.zero, self.algorithm = (
            _Pointer(ctypes.addressof(value)) for value in (described.one, described.zero, self.words)
        )

    def start_of(self, pointers: Sequence[int]) -> Callable[[], None]:
        """The product for the addresses of the left matrix, the right one, the bias if there is one, and the result. It
        starts on the stream that is current then."""
        left, right, *bias, result = map(_Pointer, pointers)
        described, lt = self.described, self.lt
        operation = described.operation_with(bias[0].value) if bias else described.operation
        operands = (right, self.right, left, self.left, self.zero, result, self.result, result, self.result)
        arguments = (self.handle, _Pointer(operation.pointer), self.one, *operands, self.algorithm)
        matmul, size, cuda = lt.library.cublasLtMatmul, self.size, lt.cupy.cuda

        def start(_: object = (self, operation)) -> None:  # which the arguments point to
            stream = int(cuda.get_current_stream().ptr)
            status = matmul(*arguments, _Pointer(lt.workspace_of(stream)), size, _Pointer(stream))
            if status:
                _check(status, "cublasLtMatmul")

        return start


def milliseconds(cupy: ModuleType, start: Callable[[], None]) -> float:
    """The time of a run on the current stream, the shortest of a few."""
    times = []
    for _ in range(1 + RUNS):
        first, last = cupy.cuda.Event(), cupy.cuda.Event()
        first.record()
        start()
        last.record()
        last.synchronize()
        times.append(float(cupy.cuda.get_elapsed_time(first, last)))
    return min(times[1:])


def _check(status: int, function: str) -> None:
    if status:
        raise LtError(f"{function} returns status {status}")
