"""The NumPy evaluators of cholesky, triangular-solve, fft and the batch normalizations."""

from __future__ import annotations

from typing import Any

import numpy as np

from hlo_opt.ir import Instruction
from hlo_opt.ir.values import Array
from hlo_opt.library.linear import cholesky_factors
from hlo_opt.ops.call_config import Solved
from hlo_opt.ops.linalg.table import solved
from hlo_opt.ops.shapes import flag, integer
from hlo_opt.ops.spec import Evaluator
from hlo_opt.ops.values import Value


def _wide(value: Array) -> Array:
    """Narrow floats as f32, since NumPy's linear algebra does not take them."""
    value = np.asarray(value)
    return value if value.dtype.kind == "c" or value.dtype in (np.float32, np.float64) else value.astype(np.float32)


def cholesky(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Array:
    """Reads one triangle and zeroes the other; NaN for a matrix that is not positive definite."""
    value = _wide(values[0])
    lower = flag(instruction, "lower")
    half = np.tril(value) if lower else np.conj(np.swapaxes(np.triu(value), -1, -2))
    full = half + np.conj(np.swapaxes(np.tril(half, -1), -1, -2))
    factors = cholesky_factors(np, full.reshape(-1, *value.shape[-2:])).reshape(value.shape)
    return (factors if lower else np.conj(np.swapaxes(factors, -1, -2))).astype(instruction.shape.type.dtype)


def triangular_solve(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Array:
    x = solve_triangular(_wide(values[0]), _wide(values[1]), solved(instruction))
    return x.astype(instruction.shape.type.dtype)


def solve_triangular(a: Array, b: Array, how: Solved) -> Array:
    """Substitution row by row, for all batch elements and right sides at once. Does not read the other triangle, nor a
    unit diagonal."""
    left, lower, transpose, unit_diagonal = how
    if transpose in ("TRANSPOSE", "ADJOINT"):
        a, lower = np.swapaxes(a, -1, -2), not lower
        a = np.conj(a) if transpose == "ADJOINT" else a
    if not left:  # x a = b is a' x' = b'
        a, b, lower = np.swapaxes(a, -1, -2), np.swapaxes(b, -1, -2), not lower
    x = np.array(b)
    n = a.shape[-1]
    for row in range(n) if lower else range(n - 1, -1, -1):
        done = np.s_[:row] if lower else np.s_[row + 1 :]
        total = b[..., row, :] - np.einsum("...k,...kn->...n", a[..., row, done], x[..., done, :])
        x[..., row, :] = total if unit_diagonal else total / a[..., row, row, None]
    return x if left else np.swapaxes(x, -1, -2)


def fft(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Array:
    """FFT over the innermost dimensions, in double precision.

    The input of a real transform is cut or zero-padded to the length. A complex transform of another length than its
    input is undefined (XLA:CPU reads out of bounds). Raises ValueError for that.
    """
    value, lengths = np.asarray(values[0]), instruction.ints("fft_length")
    axes = tuple(range(value.ndim - len(lengths), value.ndim))
    kind = instruction.word("fft_type")
    function: Any = {"FFT": np.fft.fftn, "IFFT": np.fft.ifftn, "RFFT": np.fft.rfftn, "IRFFT": np.fft.irfftn}[kind]
    wide = value.astype(np.complex128 if value.dtype.kind == "c" else np.float64)
    if 0 in (*instruction.shape.dimensions, *value.shape, *lengths):
        return np.zeros(instruction.shape.dimensions, instruction.shape.type.dtype)
    if kind in ("FFT", "IFFT") and tuple(lengths) != value.shape[value.ndim - len(lengths) :]:
        sizes = ", ".join(map(str, value.shape[value.ndim - len(lengths) :]))
        raise ValueError(
            f"fft_length={{{', '.join(map(str, lengths))}}} over dimensions of sizes {sizes} is not defined"
        )
    return function(wide, s=lengths, axes=axes).astype(instruction.shape.type.dtype)


def _normal(instruction: Instruction, value: Array) -> tuple[Array, tuple[int, ...], list[int], float]:
    """The operand in double precision, the axes to reduce, the shape that broadcasts features to it, and epsilon."""
    index = integer(instruction, "feature_index")
    axes = tuple(d for d in range(value.ndim) if d != index)
    spread = [-1 if d == index else 1 for d in range(value.ndim)]
    # XLA stores epsilon as f32 (xla/hlo/ir/hlo_instructions.h, HloBatchNormInstruction)
    return value.astype(np.float64), axes, spread, float(np.float32(str(instruction.value("epsilon", 0.0))))


def _narrowed(instruction: Instruction, arrays: list[Array]) -> tuple[Array, ...]:
    leaves = list(instruction.shape.leaves())
    return tuple(a.astype(leaf.type.dtype) for a, leaf in zip(arrays, leaves, strict=True))


def batch_norm_training(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """(normalized, mean, variance), with the variance as E[x^2] - E[x]^2."""
    x, axes, spread, epsilon = _normal(instruction, np.asarray(values[0]))
    scale, offset = (np.asarray(v).astype(np.float64).reshape(spread) for v in values[1:3])
    mean = x.mean(axis=axes)
    variance = (x * x).mean(axis=axes) - mean * mean
    y = (x - mean.reshape(spread)) / np.sqrt(variance.reshape(spread) + epsilon) * scale + offset
    return _narrowed(instruction, [y, mean, variance])


def batch_norm_inference(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Array:
    x, _, spread, epsilon = _normal(instruction, np.asarray(values[0]))
    scale, offset, mean, variance = (np.asarray(v).astype(np.float64).reshape(spread) for v in values[1:5])
    return _narrowed(instruction, [(x - mean) / np.sqrt(variance + epsilon) * scale + offset])[0]


def batch_norm_grad(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """(gradient of the operand, of the scale, of the offset)"""
    x, axes, spread, epsilon = _normal(instruction, np.asarray(values[0]))
    scale, mean, variance = (np.asarray(v).astype(np.float64).reshape(spread) for v in values[1:4])
    g = np.asarray(values[4]).astype(np.float64)
    count = max(x.size // max(scale.size, 1), 1)
    inverse = 1.0 / np.sqrt(variance + epsilon)
    centred = x - mean
    total = g.sum(axis=axes)
    product = (g * centred).sum(axis=axes)
    correction = centred * product.reshape(spread) / (variance + epsilon)
    grad = scale * inverse / count * (count * g - total.reshape(spread) - correction)
    return _narrowed(instruction, [grad, product * inverse.reshape(-1), total])
