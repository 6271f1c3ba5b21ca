"""The NumPy evaluators of custom calls: CHLO functions, static and dynamic sizes, cuBLAS products with epilogues,
block-scaled products, sorts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from hlo_opt.ir import Attribute, Called, Instruction, Shape
from hlo_opt.ir.values import Array
from hlo_opt.ops.call_config import configuration, descends, is_true, number, option
from hlo_opt.ops.contraction.meaning import matrices
from hlo_opt.ops.contraction.table import DotDimensions
from hlo_opt.ops.control.meaning import zeros
from hlo_opt.ops.linalg.meaning import solve_triangular
from hlo_opt.ops.ordering.meaning import first_of, sort, total_order_key
from hlo_opt.ops.spec import Evaluator, find
from hlo_opt.ops.values import Dynamic, Value, packed, parts, whole


def wide(value: Array) -> Array:
    """The value in f64 or c128."""
    array = np.asarray(value)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def elementwise(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """Evaluate the opcode of the same name."""
    evaluate = find(instruction.word("custom_call_target").removeprefix("mhlo.")).evaluate  # type: ignore[union-attr]
    assert evaluate is not None
    return evaluate(evaluator, instruction, values)


def pad_to_static(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    """(the array at its bound, zero-padded; its sizes)"""
    dynamic = values[0] if isinstance(values[0], Dynamic) else whole(values[0])
    padded = np.zeros(dynamic.padded.shape, dynamic.padded.dtype)
    padded[tuple(map(slice, dynamic.shape))] = dynamic.used
    return (padded, *(np.asarray(size, np.int32) for size in dynamic.shape))


def slice_to_dynamic(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Dynamic:
    """The leading elements of each dimension, in the given sizes. Raises ValueError for sizes that do not fit."""
    array, sizes = np.asarray(values[0]), tuple(int(size) for size in values[1:])
    if len(sizes) != array.ndim or any(not 0 <= size <= bound for size, bound in zip(sizes, array.shape, strict=True)):
        raise ValueError(f"sizes {sizes} do not fit {array.shape}")
    return Dynamic(array, sizes)


# ---- products


def _numbers(config: dict[str, Any], name: str) -> tuple[int, ...]:
    return tuple(int(number) for number in config.get(name, ()))


def _dimensions(config: dict[str, Any], lhs: Array, rhs: Array) -> DotDimensions:
    """The dimension numbers of the configuration; those of a plain matrix product where it has none."""
    numbers = config.get("dot_dimension_numbers")
    if not isinstance(numbers, dict):
        batch = tuple(range(lhs.ndim - 2))
        return DotDimensions(batch, batch, (lhs.ndim - 1,), (rhs.ndim - 2,))
    return DotDimensions(
        *(_numbers(numbers, f"{side}_batch_dimensions") for side in ("lhs", "rhs")),
        *(_numbers(numbers, f"{side}_contracting_dimensions") for side in ("lhs", "rhs")),
    )


_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "DEFAULT": lambda value: value,
    "RELU": lambda value: np.maximum(value, 0),
    # the tanh approximation
    "GELU": lambda value: 0.5 * value * (1 + np.tanh(math.sqrt(2 / math.pi) * (value + 0.044715 * value**3))),
    "SILU": lambda value: value / (1 + np.exp(-value)),
}


@dataclass(frozen=True)
class _Operands:
    """The operands: lhs, rhs; C where beta is not 0; scales of lhs and rhs (f8); bias; scale of the result (f8
    results)."""

    lhs: Array
    rhs: Array
    matrix: Array | None
    bias: Array | None
    scale: float
    result_scale: float

    @classmethod
    def of(cls, values: list[Array], beta: float, has_bias: bool, is_f8: bool, gives_f8: bool) -> _Operands:
        """Raises ValueError for a wrong number of operands, and for scales that are not scalars."""
        rest = [wide(value) for value in values]
        wanted = 2 + (beta != 0) + 2 * is_f8 + has_bias
        # a result scale of 1 may be omitted
        scaled = is_f8 and gives_f8 and len(rest) == wanted + 1
        if len(rest) != wanted + scaled:
            raise ValueError(f"{len(rest)} operands, expected {wanted}")
        values_left = iter(rest)
        lhs, rhs = next(values_left), next(values_left)
        matrix = next(values_left) if beta else None
        scale = _scalar(next(values_left)) * _scalar(next(values_left)) if is_f8 else 1.0
        bias = next(values_left) if has_bias else None
        return cls(lhs, rhs, matrix, bias, scale, _scalar(next(values_left)) if scaled else 1.0)


def _scalar(value: Array) -> float:
    if value.size != 1:
        raise ValueError(f"a scale of shape {value.shape} is not a scalar")
    return float(value.reshape(()))


def gemm(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """activation(alpha lhs rhs + beta C + bias); with AUX also the input of the activation. Workspaces are zero.

    f8 operands are multiplied by their scales, and an f8 result by its own before saturating rounding; `damax_output`
    is the largest magnitude before that scale. Computed in f64 and rounded once. Raises ValueError for an unknown
    epilogue or operands that do not fit.
    """
    config = configuration(instruction, "gemm_backend_config")
    leaves = list(instruction.shape.elements or (instruction.shape,))
    epilogue = str(config.get("epilogue", "DEFAULT"))
    has_bias, keeps = epilogue.startswith("BIAS"), epilogue.endswith("_AUX")
    activation = _ACTIVATIONS.get(epilogue.removeprefix("BIAS").removesuffix("_AUX").strip("_") or "DEFAULT")
    if activation is None:
        raise ValueError(f"unknown epilogue {epilogue[:50]!r}")
    beta, is_f8 = number(config, "beta", 0.0), instruction.word("custom_call_target").endswith("$f8")
    operands = _Operands.of(values, beta, has_bias, is_f8, leaves[0].type.bits == 8)
    left, right, sizes = matrices(_dimensions(config, operands.lhs, operands.rhs), operands.lhs, operands.rhs)
    alpha = complex(number(config, "alpha_real", 1.0), number(config, "alpha_imag", 0.0))
    product = np.matmul(left, right).reshape(sizes) * ((alpha if alpha.imag else alpha.real) * operands.scale)
    if operands.matrix is not None:
        product = product + beta * operands.matrix.reshape(product.shape)
    if operands.bias is not None:
        product = product + operands.bias
    with np.errstate(over="ignore"):
        results = [activation(product), *([product] if keeps else [])]
    if config.get("damax_output") is True:
        results.append(np.abs(results[0]).max(initial=0.0))
    results[0] = results[0] * operands.result_scale
    return returned(instruction, results)


def returned(instruction: Instruction, results: list[Array]) -> Value:
    """The results in the declared types; further declared elements are workspace, zeros. Raises ValueError for too few
    elements."""
    leaves = list(instruction.shape.elements or (instruction.shape,))
    if len(leaves) < len(results):
        raise ValueError(f"{len(results)} results for {instruction.shape}")
    elements: list[Value] = [_rounded(result, leaf) for result, leaf in zip(results, leaves, strict=False)]
    elements += [zeros(leaf) for leaf in leaves[len(results) :]]
    return packed(instruction, elements)


def _rounded(value: Array, leaf: Shape) -> Array:
    """The value in a leaf's type. f8 saturates, as in library calls; a complex value becomes its real part for a real
    type."""
    dtype, value = leaf.type.dtype, np.asarray(value)
    value = value.real if value.dtype.kind == "c" and dtype.kind != "c" else value
    if leaf.type.is_float and leaf.type.bits == 8:
        most = float(ml_dtypes.finfo(dtype).max)
        value = np.clip(value, -most, most)  # NaN stays NaN
    return value.astype(dtype).reshape(leaf.dimensions)


def triangular_solve_call(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """The solution of a x = b or x a = b, as of `triangular-solve`, and workspace."""
    config = configuration(instruction)
    left, lower, unit = (config.get(name) is True for name in ("left_side", "lower", "unit_diagonal"))
    how = left, lower, str(config.get("transpose_a", "NO_TRANSPOSE")), unit
    return returned(instruction, [solve_triangular(wide(values[0]), wide(values[1]), how)])


def block_scaled_dot(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """lhs [batch.., m, k] times rhs [batch.., n, k]^T, with scales for blocks along k, and an optional fifth operand as
    a global scale."""
    lhs, rhs = (_scaled(wide(value), wide(scale)) for value, scale in zip(values[:2], values[2:4], strict=True))
    product = np.matmul(lhs, np.swapaxes(rhs, -1, -2))
    if len(values) > 4:
        product = product * wide(values[4])
    return returned(instruction, [product])


def dequantize(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Array:
    """Values times the scales of their blocks along the last dimension."""
    return _rounded(_scaled(wide(values[0]), wide(values[1])), instruction.shape)


def _scaled(value: Array, scale: Array) -> Array:
    """Multiply by scales per block. Rows or blocks beyond the value's are padding of the scales."""
    size = value.shape[-1]
    block = -(-size // scale.shape[-1])
    block = 1 << (block - 1).bit_length() if block > 1 else 1
    spread = np.repeat(scale, block, axis=-1)[..., : value.shape[-2], :size]
    if spread.shape != value.shape:
        raise ValueError(f"scales {scale.shape} do not fit {value.shape}")
    return value * spread


# ---- sorts


def top_k(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """The first k elements along the last dimension and their positions; stable."""
    assert instruction.shape.elements is not None
    value_shape, position_shape = instruction.shape.elements
    value, t = np.asarray(values[0]), instruction.operands[0].shape.type
    top, order = first_of(value, t, value_shape.dimensions[-1], largest=descends(instruction))
    return top, order.astype(position_shape.type.dtype)


def best(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """The first elements under the called comparator along a dimension, as many as the result holds; initial values
    beyond them.

    Operands come first, then an initial value for each. The call permits an approximation; this evaluation is exact.
    """
    count = len(values) // 2
    arrays = [np.asarray(value) for value in values[:count]]
    axis = int(option(instruction, "reduction_dim", str(arrays[0].ndim - 1)))
    comparator = next(instruction.called(), None)
    leaves = list(instruction.shape.leaves())
    if comparator is None or not 0 <= axis < arrays[0].ndim or len(leaves) != count or len(values) != 2 * count:
        raise ValueError("operands, initial values and a comparator do not fit together")
    operands = instruction.operands[:count]
    shape = Shape.tuple_of(*(operand.shape.without_layout() for operand in operands))
    attributes: dict[str, Attribute | Called] = {
        "dimensions": Attribute.of((axis,)),
        "is_stable": Attribute.of(True),
        "to_apply": Called(comparator),
    }
    ordered = sort(evaluator, Instruction("sort", "sort", shape, operands, attributes), arrays)
    results = []
    for line, initial, leaf in zip(parts(ordered), values[count:], leaves, strict=True):
        array = np.asarray(line)
        kept = np.take(array, range(min(leaf.dimensions[axis], array.shape[axis])), axis=axis)
        result = np.full(leaf.dimensions, initial, leaf.type.dtype)
        result[tuple(map(slice, kept.shape))] = kept
        results.append(result)
    return tuple(results)


def radix_sort(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """Keys along the last dimension and their payloads, ascending or descending; stable. Workspace is zero.

    Orders by bits, as XLA's total order, except that -0 equals +0 (cub/block/radix_rank_sort_operations.cuh).
    """
    keys = np.asarray(values[0])
    even = np.where(keys == 0, np.zeros((), keys.dtype), keys)
    key = total_order_key(even, instruction.operands[0].shape.type)
    order = np.argsort(~key if is_true(instruction, "descending") else key, axis=-1, kind="stable")
    ordered = [np.take_along_axis(np.asarray(value), order, axis=-1) for value in values]
    leaves = list(instruction.shape.elements or (instruction.shape,))
    return (*ordered, *(zeros(leaf) for leaf in leaves[len(ordered) :]))
