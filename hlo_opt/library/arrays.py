"""Conversion between flat device buffers and arrays of an array module `xp`: CuPy, or a module with its interface.

Emitted drivers contain the source of these functions, so they use only their arguments. Buffers are flat and hold raw
bits where CuPy lacks the type: bf16 is `uint16`, f8 is `uint8`. Elements of less than a byte are packed in device
memory, the first in the lowest bits (xla/util.h, PackIntN and UnpackIntN), and are `unpacked` to one per byte here.
Padding bits in the last byte are 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from hlo_opt.ir.values import Array, DType

Described = tuple[str, str, tuple[int, ...], tuple[int, ...]]
"""A buffer: (type, stored dtype, dimensions, minor-to-major layout)."""


def raw_dtype(dtype: DType) -> DType:
    """The dtype that stores values of `dtype`: itself, or for a type of ml_dtypes the unsigned integer of its width."""
    return dtype if dtype.kind in "biufc" and dtype.isbuiltin == 1 else np.dtype(f"uint{8 * dtype.itemsize}")


def widened(xp: ModuleType, memory: Array, type_name: str) -> Array:
    """The values of a buffer in a type that CuPy computes with. bf16 becomes float32, exactly."""
    if type_name == "bf16":
        return (memory.astype(xp.uint32) << xp.uint32(16)).view(xp.float32)
    return memory


def narrowed(xp: ModuleType, values: Array, type_name: str, dtype_name: str) -> Array:
    """Values rounded to the type of a buffer: to nearest, ties to even; NaN stays NaN."""
    if type_name == "bf16":
        bits = xp.ascontiguousarray(values.astype(xp.float32)).view(xp.uint32)
        rounded = (bits + xp.uint32(0x7FFF) + ((bits >> xp.uint32(16)) & xp.uint32(1))) >> xp.uint32(16)
        quiet = (bits >> xp.uint32(16)) | xp.uint32(0x40)
        return xp.where((bits & xp.uint32(0x7FFFFFFF)) > xp.uint32(0x7F800000), quiet, rounded).astype(xp.uint16)
    if type_name == "pred":
        return values != 0
    return values.astype(dtype_name)


def logical(memory: Array, dimensions: Sequence[int], minor_to_major: Sequence[int]) -> Array:
    """The array of shape `dimensions` in a flat buffer with this layout."""
    order = tuple(reversed(minor_to_major))
    dense = memory.reshape([dimensions[d] for d in order])
    return dense.transpose([order.index(d) for d in range(len(order))]) if order else dense


def flat(xp: ModuleType, array: Array, minor_to_major: Sequence[int]) -> Array:
    """The flat buffer of an array, in this layout."""
    order = tuple(reversed(minor_to_major))
    return xp.ascontiguousarray(array.transpose(order) if order else array).reshape(-1)


def operand(xp: ModuleType, memory: Array, shape: Described, table: str) -> Array:
    """The array in a buffer, in a type that CuPy computes with.

    `table` decodes types of one byte such as f8: the float32 values of all 256 bytes, in hexadecimal. It is empty for
    other types.
    """
    if table:
        import numpy

        memory = xp.asarray(numpy.frombuffer(bytes.fromhex(table), "float32"))[memory]
    return logical(widened(xp, memory, shape[0]), shape[2], shape[3])


def rounded_result(xp: ModuleType, values: Array, shape: Described, table: Any) -> Array:
    """The buffer of a result.

    `table` encodes floats of one byte; it is empty for other types. Its two hexadecimal strings hold thresholds in the
    total order of float32 bits, and the byte that begins at each.
    """
    if not table:
        return narrowed(xp, flat(xp, values, shape[3]), shape[0], shape[1])
    import numpy

    firsts, codes = (
        xp.asarray(numpy.frombuffer(bytes.fromhex(t), d)) for t, d in zip(table, ("int32", "uint8"), strict=True)
    )
    bits = xp.ascontiguousarray(flat(xp, values, shape[3]).astype("float32")).view("int32")
    order = xp.where(bits < 0, bits ^ xp.int32(0x7FFFFFFF), bits)  # -NaN < -inf < ... < -0 < +0 < ... < inf < NaN
    return codes[xp.searchsorted(firsts, order, side="right")]


def alone_call(
    xp: ModuleType, buffers: Sequence[Array], shapes: Sequence[Described], count: int, sources: Any
) -> list[Array]:
    """For each result, operand number `sources[i]` cut or zero-padded to its shape; zeros where that is None."""
    results = []
    for number, result in zip(sources, shapes[count:], strict=True):
        values = xp.zeros(result[2], result[1])
        if number is not None:
            source = shapes[number]
            common = tuple(slice(min(a, b)) for a, b in zip(source[2], result[2], strict=True))
            values[common] = logical(buffers[number], source[2], source[3])[common]
        results.append(flat(xp, values, result[3]))
    return results


def packed(xp: ModuleType, values: Array, bits: int) -> Array:
    """The bytes that hold elements of `bits` bits. `values` is flat, one element per byte."""
    per_byte = 8 // bits
    elements = values.view(xp.uint8) & xp.uint8((1 << bits) - 1)
    if elements.size % per_byte:
        elements = xp.concatenate([elements, xp.zeros(per_byte - elements.size % per_byte, xp.uint8)])
    words = elements.view(f"uint{8 * per_byte}")  # little-endian: the first element is in the lowest byte
    bytes_ = words.copy()
    for k in range(1, per_byte):
        bytes_ |= words >> words.dtype.type((8 - bits) * k)
    return bytes_.astype(xp.uint8)


def unpacked(xp: ModuleType, memory: Array, bits: int, count: int) -> Array:
    """The first `count` elements of packed bytes, in a flat array, one per byte."""
    per_byte = 8 // bits
    words = memory.astype(f"uint{8 * per_byte}")
    spread = words.copy()
    for k in range(1, per_byte):
        spread |= words << words.dtype.type((8 - bits) * k)
    elements = spread.view(xp.uint8)[:count]
    elements &= xp.uint8((1 << bits) - 1)
    return elements
