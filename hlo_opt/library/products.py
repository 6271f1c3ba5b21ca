"""Matrix products and convolutions on a GPU: cuBLAS through CuPy. See `library.arrays` for the conventions."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from hlo_opt.ir.values import Array
from hlo_opt.library.arrays import Described, flat, logical, narrowed, operand, rounded_result, widened


def gemm_operand(xp: ModuleType, array: Array) -> tuple[Any, bool, int, int]:
    """[batch, rows, columns] in a form that cuBLAS reads, without a copy where the strides allow it.

    Returns (array, is transposed, leading dimension, batch stride).
    """
    size = array.dtype.itemsize
    batch, rows, columns = array.shape
    steps = [step // size for step in array.strides]
    if any(step % size or step < 0 for step in array.strides):
        steps = [0, 0, 0]
    row_step = steps[1] if rows > 1 else columns
    column_step = steps[2] if columns > 1 else 1
    if column_step == 1 and columns <= row_step < 2**31:
        return array, False, row_step, steps[0] if batch > 1 else 0
    column_step = steps[2] if columns > 1 else rows
    row_step = steps[1] if rows > 1 else 1
    if row_step == 1 and rows <= column_step < 2**31:
        return array, True, column_step, steps[0] if batch > 1 else 0
    return xp.ascontiguousarray(array), False, columns, rows * columns


def gemm(xp: ModuleType, left: Array, right: Array, types: Sequence[str], precision: str = "") -> Array:
    """[batch, m, k] x [batch, k, n] by one cuBLAS call on raw buffers. `types` are the operands' type and the result's.

    cuBLAS is column-major, so it computes the transposed product of the transposed operands. f16 and bf16 accumulate in
    f32; with the precision "tf32", operands of f32 are rounded to 10 bits of mantissa.
    """
    import numpy

    numbers = {"f32": 0, "f64": 1, "f16": 2, "c64": 4, "c128": 5, "bf16": 14}  # cudaDataType
    stored = {"f32": "float32", "f64": "float64", "f16": "float16", "c64": "complex64", "c128": "complex128"}
    double = types[1] in ("f64", "c128")
    one_type = stored[types[1]] if types[1] in ("c64", "c128") else "float64" if double else "float32"
    one, zero = numpy.ones(1, one_type), numpy.zeros(1, one_type)
    (batch, rows, _), columns = left.shape, right.shape[2]
    product = xp.empty((batch, rows, columns), stored.get(types[1], "uint16"))
    a, a_turned, a_step, a_batch = gemm_operand(xp, left)
    b, b_turned, b_step, b_batch = gemm_operand(xp, right)
    xp.cuda.cublas.gemmStridedBatchedEx(
        xp.cuda.device.get_cublas_handle(),
        int(b_turned),
        int(a_turned),
        columns,
        rows,
        left.shape[2],
        one.ctypes.data,
        b.data.ptr,
        numbers[types[0]],
        b_step,
        b_batch,
        a.data.ptr,
        numbers[types[0]],
        a_step,
        a_batch,
        zero.ctypes.data,
        product.data.ptr,
        numbers[types[1]],
        columns,
        rows * columns,
        batch,
        70 if double else 77 if precision else 68,  # CUBLAS_COMPUTE_64F, _32F_FAST_TF32, _32F
        -1,  # CUBLAS_GEMM_DEFAULT
    )
    return product


def matrices(
    lhs: Array, rhs: Array, batch: Sequence[Sequence[int]], contracting: Sequence[Sequence[int]]
) -> tuple[Array, Array, list[int]]:
    """The operands of a dot as [batch, m, k] and [batch, k, n], and the dimensions of the result."""
    (lhs_batch, rhs_batch), (lhs_sum, rhs_sum) = batch, contracting
    lhs_free = [d for d in range(lhs.ndim) if d not in lhs_batch and d not in lhs_sum]
    rhs_free = [d for d in range(rhs.ndim) if d not in rhs_batch and d not in rhs_sum]
    sizes = [1, 1, 1, 1]
    for place, (array, dims) in enumerate(((lhs, lhs_batch), (lhs, lhs_free), (lhs, lhs_sum), (rhs, rhs_free))):
        for d in dims:
            sizes[place] *= array.shape[d]
    left = lhs.transpose([*lhs_batch, *lhs_free, *lhs_sum]).reshape(sizes[0], sizes[1], sizes[2])
    right = rhs.transpose([*rhs_batch, *rhs_sum, *rhs_free]).reshape(sizes[0], sizes[2], sizes[3])
    dimensions = [*(lhs.shape[d] for d in (*lhs_batch, *lhs_free)), *(rhs.shape[d] for d in rhs_free)]
    return left, right, dimensions


def dot(
    xp: ModuleType,
    lhs: Array,
    rhs: Array,
    batch: Sequence[Sequence[int]],
    contracting: Sequence[Sequence[int]],
    dtype_name: str,
) -> Array:
    """HLO's dot, computed and accumulated in `dtype_name`. Result: batch, then free lhs, then free rhs dimensions."""
    left, right, dimensions = matrices(lhs, rhs, batch, contracting)
    if 0 in (*left.shape, *right.shape):
        return xp.zeros(dimensions, dtype_name)
    product = xp.matmul(left.astype(dtype_name, copy=False), right.astype(dtype_name, copy=False))
    return product.reshape(dimensions)


def gemm_call(
    xp: ModuleType,
    buffers: Sequence[Array],
    shapes: Sequence[Described],
    batch: Sequence[Sequence[int]],
    contracting: Sequence[Sequence[int]],
    precision: str = "",
    epilogue: str = "",
) -> list[Array]:
    """`dot` on buffers whose types cuBLAS multiplies directly; `precision` as for `gemm`. What follows: a bias for the
    last dimensions, and an activation. Further results are workspaces."""
    left, right = shapes[:2]
    count = 2 + epilogue.startswith("BIAS")
    result, *workspaces = shapes[count:]
    rest = [xp.zeros(shape[2], shape[1]).reshape(-1) for shape in workspaces]
    lhs = logical(buffers[0], left[2], left[3])
    rhs = logical(buffers[1], right[2], right[3])
    a, b, dimensions = matrices(lhs, rhs, batch, contracting)
    if 0 in (*a.shape, *b.shape):
        product = xp.zeros(dimensions, result[1])
    else:
        product = gemm(xp, a, b, (left[0], result[0]), precision).reshape(dimensions)
    if epilogue:
        product = finished(xp, product, buffers[2:count], shapes[2:count], result, epilogue)
    return [flat(xp, product, result[3]), *rest]


def finished(
    xp: ModuleType,
    product: Array,
    biases: Sequence[Array],
    shapes: Sequence[Described],
    result: Described,
    epilogue: str,
) -> Array:
    """A product, as it is stored, with its bias and its activation."""
    value = widened(xp, product, result[0])
    value = value.astype("float32") if result[0] == "f16" else value
    for bias, shape in zip(biases, shapes, strict=True):
        value = value + operand(xp, bias, shape, "")
    if epilogue.endswith("RELU"):
        value = xp.maximum(value, 0)
    if epilogue.endswith("GELU"):
        value = 0.5 * value * (1 + xp.tanh(0.7978845608028654 * (value + 0.044715 * value * value * value)))
    return narrowed(xp, value, result[0], result[1])


def dot_call(
    xp: ModuleType,
    buffers: Sequence[Array],
    shapes: Sequence[Described],
    batch: Sequence[Sequence[int]],
    contracting: Sequence[Sequence[int]],
    dtype_name: str,
    tables: Sequence[str] = ("", "", ""),
) -> list[Array]:
    """`dot` on buffers of any type, computed in `dtype_name`. `tables` are those of `operand` (twice) and
    `rounded_result`."""
    left, right, result = shapes
    lhs, rhs = operand(xp, buffers[0], left, tables[0]), operand(xp, buffers[1], right, tables[1])
    product = dot(xp, lhs, rhs, batch, contracting, dtype_name)
    return [rounded_result(xp, product, result, tables[2])]


def convolution_call(
    xp: ModuleType,
    buffers: Sequence[Array],
    shapes: Sequence[Described],
    positions: Sequence[tuple[int, int, Sequence[int]]],
    window: Sequence[tuple[int, int, int, int, int, int, bool]],
    groups: Sequence[int],
    dtype_name: str,
    tables: Sequence[str] = ("", "", ""),
    precision: str = "",
) -> list[Array]:
    """`convolution` on buffers, computed in `dtype_name`. `tables` are those of `dot_call`; the rest goes to
    `convolution`. With the precision "tf32", operands of f32 may have 10 bits of mantissa; here they keep all."""
    source, weights, result = shapes
    value, kernel = operand(xp, buffers[0], source, tables[0]), operand(xp, buffers[1], weights, tables[1])
    output = convolution(xp, value, kernel, result[2], positions, window, groups, dtype_name)
    return [rounded_result(xp, output, result, tables[2])]


def convolution(
    xp: ModuleType,
    value: Array,
    kernel: Array,
    dimensions: Sequence[int],
    positions: Sequence[tuple[int, int, Sequence[int]]],
    window: Sequence[tuple[int, int, int, int, int, int, bool]],
    groups: Sequence[int],
    dtype_name: str,
    most: int = 2**30,
) -> Array:
    """HLO's convolution as im2col and one matrix product per group. `dimensions` are those of the result.

    The windows of as many batch elements are copied at a time as `most` bytes hold.

    positions  of input, kernel and output: (batch or output feature, feature, spatial dimensions)
    window     per spatial dimension: (size, stride, low padding, high padding, lhs dilation, rhs dilation, reversed)
    groups     feature groups, batch groups
    """
    dtype = xp.dtype(dtype_name)
    value = value.transpose([positions[0][0], *positions[0][2], positions[0][1]])
    kernel = kernel.transpose([*positions[1][2], positions[1][1], positions[1][0]]).astype(dtype)
    sizes = list(value.shape)
    source, to = [slice(None)], [slice(None)]
    for k, (_, _, low, high, dilate, _, is_reversed) in enumerate(window):
        kernel = xp.flip(kernel, k) if is_reversed else kernel
        size = value.shape[1 + k]
        sizes[1 + k] = max(((size - 1) * dilate + 1 if size else 0) + low + high, 0)
        first = 0 if low >= 0 else -(low // dilate)
        start = low + first * dilate
        length = max(min(size - first, -(-(sizes[1 + k] - start) // dilate)), 0)
        source.append(slice(first, first + length))
        to.append(slice(start, start + length * dilate, dilate))
    spread = xp.zeros(sizes, dtype)
    spread[tuple(to)] = value[tuple(source)]
    count = max(groups)
    if groups[1] > 1:
        spread = spread.reshape([count, sizes[0] // count, *sizes[1:]])
    else:
        spread = xp.moveaxis(spread.reshape([*sizes[:-1], count, sizes[-1] // count]), -2, 0)
    spread = xp.ascontiguousarray(spread)
    batch, features, steps = spread.shape[1], spread.shape[-1], spread.strides
    outputs = kernel.shape[-1] // count
    out = [dimensions[d] for d in positions[2][2]]
    windows = xp.lib.stride_tricks.as_strided(
        spread,
        [count, batch, *out, *(w[0] for w in window), features],
        [
            *steps[:2],
            *(step * w[1] for step, w in zip(steps[2:], window, strict=False)),
            *(step * w[5] for step, w in zip(steps[2:], window, strict=False)),
            steps[-1],
        ],
    )
    length, places = features, 1
    for w, size in zip(window, out, strict=True):
        length, places = length * w[0], places * size
    matrix = xp.moveaxis(kernel.reshape(length, count, outputs), 1, 0)
    output = xp.empty((count, batch, places, outputs), dtype)
    step = max(1, most // max(1, count * places * length * dtype.itemsize))
    for at in range(0, batch, step):
        part = windows[:, at : at + step]
        laid = part.reshape(count, part.shape[1] * places, length)
        output[:, at : at + step] = xp.matmul(laid, matrix).reshape(count, part.shape[1], places, outputs)
    output = xp.moveaxis(output, 0, 2).reshape([batch, *out, count * outputs])
    order = [positions[2][0], *positions[2][2], positions[2][1]]
    return output.transpose([order.index(d) for d in range(len(order))])
