"""Matrix products by cuBLAS into memory that is there already, so that they may be part of a CUDA graph.

CuPy refuses its own calls of cuBLAS while a stream is captured (`setStream` of its module cublas), because cuBLAS then
allocates a workspace. So these calls go to the library that CuPy has loaded, by a handle and workspaces of our own:
one workspace per stream, as calls on one stream do not overlap. XLA:GPU, too, hands cuBLAS its workspace.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType

from hlo_opt.ir.values import Array
from hlo_opt.library.arrays import Described
from hlo_opt.ops.calls.call import DeviceCall
from hlo_opt.runtime.schedule.stretch import span_of

WORKSPACE = 1 << 25
"""Bytes of a workspace: what cuBLAS recommends for compute capability 9 (cuBLAS manual, cublasSetWorkspace)."""
_MOST = 2**31 - 1
"""cuBLAS counts rows, columns and leading dimensions in 32 bits."""
MOST_CALLS = 8
"""The most calls for one dot, whose batch dimensions do not follow one another in some array."""
_TYPES = {"f32": 0, "f64": 1, "f16": 2, "c64": 4, "c128": 5, "bf16": 14}
"""cudaDataType."""
_BYTES = {"f32": 4, "f64": 8, "f16": 2, "c64": 8, "c128": 16, "bf16": 2}
_FLOAT, _DOUBLE, _TF32 = 68, 70, 77
"""CUBLAS_COMPUTE_32F, without TF32; CUBLAS_COMPUTE_64F; CUBLAS_COMPUTE_32F_FAST_TF32."""
_DEFAULT = -1
"""CUBLAS_GEMM_DEFAULT."""


class CublasError(RuntimeError):
    """A status of cuBLAS other than success."""


@dataclass(frozen=True)
class _Axis:
    """Dimensions of an array that one index walks: their elements, and elements from one to the next."""

    size: int
    step: int


@dataclass(frozen=True)
class _Matrix:
    """How cuBLAS reads a matrix: as it stands row by row (or column by column), with elements between them, and between
    those of the batch."""

    is_turned: bool
    step: int
    batch: int


@dataclass(frozen=True)
class Product:
    """[batch, m, k] x [batch, k, n] -> [batch, m, n], row by row, as calls of cublasGemmStridedBatchedEx.

    is_swapped  a call multiplies the transposed operands in the other order, because the result lies column by column;
                then `left` is the second operand
    is_rounded  operands of f32 are rounded to TF32
    starts      of each call, the elements before those of the left matrix, the right one and the result
    """

    types: tuple[str, str]
    batch: int
    sizes: tuple[int, int, int]
    left: _Matrix
    right: _Matrix
    step: int
    step_of_batch: int
    is_swapped: bool
    is_rounded: bool
    starts: tuple[tuple[int, int, int], ...]


def product_of(call: DeviceCall) -> Product | None:
    """A dot as a few calls of cuBLAS on its operands as they lie; None where one of them must be copied first, and for
    other calls."""
    if call.function != "gemm_call":
        return None
    left, right, result = call.shapes
    (left_batch, right_batch), (left_sum, right_sum), *precision = call.arguments
    left_free = [d for d in range(len(left[2])) if d not in left_batch and d not in left_sum]
    right_free = [d for d in range(len(right[2])) if d not in right_batch and d not in right_sum]
    batch, rows, columns = len(left_batch), len(left_free), len(right_free)
    out = range(batch + rows + columns)
    arrays = (left, left_batch), (right, right_batch), (result, out[:batch])
    row, column, length = (
        _axes((left, left_free), (result, out[batch : batch + rows])),
        _axes((right, right_free), (result, out[batch + rows :])),
        _axes((left, left_sum), (right, right_sum)),
    )
    if row is None or column is None or length is None:
        return None
    (m, m_out), (n, n_out), (k, k_right) = row, column, length
    for apart in (None, *sorted(range(batch), key=lambda at: left[2][left_batch[at]])):
        within = [(shape, [d for at, d in enumerate(dimensions) if at != apart]) for shape, dimensions in arrays]
        alone = [(shape, [] if apart is None else [dimensions[apart]]) for shape, dimensions in arrays]
        axes, outer = _axes(*within), _axes(*alone)
        if axes is not None and outer is not None and outer[0].size <= MOST_CALLS:
            break
    else:
        return None
    b, b_right, b_out = axes
    if 0 in (b.size, m.size, n.size, k.size, outer[0].size):
        return None
    one, other, target = _matrix(m, k, b), _matrix(k_right, n, b_right), _matrix(m_out, n_out, b_out)
    steps = [axis.step for axis in outer]
    is_swapped = target is not None and target.is_turned
    if is_swapped:  # the transposed product, row by row
        one, other = _matrix(n, k_right, b_right), _matrix(k, m, b)
        m, n = n, m
        steps = [steps[1], steps[0], steps[2]]
    if one is None or other is None or target is None or max(b.size, m.size, n.size, k.size) > _MOST:
        return None
    starts = tuple((at * steps[0], at * steps[1], at * steps[2]) for at in range(outer[0].size))
    types, sizes = (left[0], result[0]), (m.size, n.size, k.size)
    return Product(types, b.size, sizes, one, other, target.step, target.batch, is_swapped, bool(precision), starts)


def _axes(*of: tuple[Described, Sequence[int]]) -> tuple[_Axis, ...] | None:
    """The same dimensions of several arrays as one axis of each; None where they do not follow one another in all."""
    lists = []
    for (_, _, sizes, minor_to_major), dimensions in of:
        steps, step = {}, 1
        for d in minor_to_major:
            steps[d] = step
            step *= sizes[d]
        lists.append([_Axis(sizes[d], steps[d]) for d in dimensions])
    total = math.prod(axis.size for axis in lists[0])
    places = [n for n, axis in enumerate(lists[0]) if axis.size > 1]
    places.sort(key=lambda n: -lists[0][n].step)
    merged = []
    for axes in lists:
        for outer, inner in itertools.pairwise(places):
            if total and axes[outer].step != axes[inner].step * axes[inner].size:
                return None
        merged.append(_Axis(total, axes[places[-1]].step if places else 1))
    return tuple(merged)


def _matrix(rows: _Axis, columns: _Axis, batch: _Axis) -> _Matrix | None:
    """How cuBLAS reads it; None where neither rows nor columns are contiguous."""
    across = batch.step if batch.size > 1 else 0
    for is_turned, outer, inner in ((False, rows, columns), (True, columns, rows)):
        step = outer.step if outer.size > 1 else inner.size
        if (inner.size == 1 or inner.step == 1) and inner.size <= step <= _MOST:
            return _Matrix(is_turned, step, across)
    return None


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

    def __init__(self, handle: int | None, product: Product) -> None:
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
        bytes_of = (_BYTES[product.types[0]], _BYTES[product.types[0]], _BYTES[product.types[1]])
        self.offsets = [[n * size for n, size in zip(before, bytes_of, strict=True)] for before in product.starts]

    def calls(self, pointers: Sequence[int]) -> list[tuple[object, ...]]:
        """The arguments of each call, for the addresses of the left matrix, the right one and the result."""
        calls: list[tuple[object, ...]] = []
        for offsets in self.offsets:
            left, right, target = (_Pointer(p + n) for p, n in zip(pointers, offsets, strict=True))
            calls.append((*self.begin, right, *self.right, left, *self.left, self.between, target, *self.end))
        return calls


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
        self._workspaces: dict[int, Array] = {}
        self._prepared: dict[Product, _Prepared] = {}
        self._end = weakref.finalize(self, self.library.cublasDestroy_v2, self.handle)

    def reserve(self, stream: int) -> None:
        """Allocate the workspace of a stream, which no capture allows."""
        if stream not in self._workspaces:
            self._workspaces[stream] = self.cupy.empty(WORKSPACE, "uint8")

    def start_of(self, product: Product, left: Array, right: Array, target: Array) -> Callable[[], None]:
        """A product of buffers, to be started on the stream that is current then."""
        first, second = (right, left) if product.is_swapped else (left, right)
        if product not in self._prepared:
            self._prepared[product] = _Prepared(self.handle, product)
        prepared, multiply = self._prepared[product], self.library.cublasGemmStridedBatchedEx
        calls = prepared.calls([span_of(memory)[0] for memory in (first, second, target)])

        def start(_: object = prepared) -> None:  # whose scalars the calls read
            self._use(int(self.cupy.cuda.get_current_stream().ptr))
            for arguments in calls:
                status = multiply(*arguments)
                if status:
                    _check(status, "cublasGemmStridedBatchedEx")

        return start

    def _use(self, stream: int) -> None:
        if stream != self.stream:
            self.reserve(stream)
            workspace = self._workspaces[stream]
            self.stream = None
            _check(self.library.cublasSetStream_v2(self.handle, stream), "cublasSetStream")  # forgets the workspace
            _check(
                self.library.cublasSetWorkspace_v2(self.handle, span_of(workspace)[0], WORKSPACE),
                "cublasSetWorkspace",
            )
            self.stream = stream


def _check(status: int, function: str) -> None:
    if status:
        raise CublasError(f"{function} returns status {status}")
