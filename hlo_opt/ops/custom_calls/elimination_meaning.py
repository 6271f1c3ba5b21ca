"""The NumPy meaning of elimination: LU, Cholesky, triangular and tridiagonal systems. Everything is computed in f64 or c128 and rounded once; batches are leading dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from hlo_opt.ir import Instruction
from hlo_opt.library.elimination import eliminated, swapped_order
from hlo_opt.ops.call_config import configuration, is_true, letter
from hlo_opt.ops.custom_calls.lapack import adjoint, hermitian, is_lower, returned, wide
from hlo_opt.ops.linalg.meaning import solve_triangular
from hlo_opt.ops.spec import Evaluator

Array = Any
Value = Any


def getrf(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """PA = LU: (L and U, rows swapped in turn counted from 1, the first zero pivot counted from 1 or 0)."""
    a = wide(values[0])
    batch, steps = a.shape[:-2], min(a.shape[-2:])
    made, pivots, state = eliminated(np, a.reshape(-1, *a.shape[-2:]).copy())
    return returned(instruction, [made.reshape(a.shape), pivots.reshape(*batch, steps), state.reshape(batch)])


def potrf(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """A = L L^H or U^H U: (the factor over the operand's triangle, the first minor that is not positive counted from 1 or 0)."""
    a = wide(values[0])
    made, state = _cholesky(a, lower=is_lower(instruction))
    return returned(instruction, [made, state])


def cusolver_cholesky(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """What XLA:GPU writes in place of `cholesky`: (factor, workspace, state). The configuration is CholeskyOptions as JSON."""
    a = wide(values[0])
    made, state = _cholesky(a, lower=configuration(instruction).get("lower") is True)
    leaves = list(instruction.shape.leaves())
    return returned(instruction, [made, np.zeros(leaves[1].dimensions), state])


def _cholesky(a: Array, *, lower: bool) -> tuple[Array, Array]:
    """The factor; where there is none the operand is left as it is, as far as anybody may rely on it."""
    full = hermitian(a, lower=lower).reshape(-1, *a.shape[-2:])
    flat = a.reshape(full.shape).copy()
    state = np.zeros(len(flat), np.int32)
    for number, matrix in enumerate(flat):
        try:
            factor = np.linalg.cholesky(full[number])
        except np.linalg.LinAlgError:
            state[number] = _failing_minor(full[number])
            continue
        flat[number] = factor + np.triu(matrix, 1) if lower else adjoint(factor) + np.tril(matrix, -1)
    return flat.reshape(a.shape), state.reshape(a.shape[:-2])


def _failing_minor(matrix: Array) -> int:
    for size in range(1, len(matrix) + 1):
        try:
            np.linalg.cholesky(matrix[:size, :size])
        except np.linalg.LinAlgError:
            return size
    return len(matrix)


def lu_pivots_to_permutation(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """The rows' order after swapping row k with row pivots[k], counted from 0, for each k in turn."""
    pivots = np.asarray(values[0])
    shape = next(instruction.shape.leaves())
    return returned(instruction, [swapped_order(np, pivots.reshape(-1, pivots.shape[-1]), shape.dimensions[-1])])


def trsm(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """The solution x of op(A) x = B or x op(A) = B for triangular A."""
    names = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}
    x = solve_triangular(
        wide(values[0]),
        wide(values[1]),
        left=letter(instruction, "side", "L") == "L",
        lower=letter(instruction, "uplo", "L") == "L",
        transpose=names[letter(instruction, "trans_x", "N")],
        unit_diagonal=letter(instruction, "diag", "N") == "U",
    )
    return returned(instruction, [x])


def gtsv(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """(lower, middle and upper diagonal as LAPACK leaves them, the solution, the first zero pivot counted from 1 or 0).

    Row k reads lower[k] x[k-1] + middle[k] x[k] + upper[k] x[k+1] = right[k]; elimination exchanges neighbouring rows where the lower element is greater.
    """
    lower, middle, upper, right = (wide(value).copy() for value in values)
    n = middle.shape[-1]
    below = lower[..., 1:]  # a view: LAPACK counts from the second row
    for k in range(n - 1):
        swap = _size(middle[..., k]) < _size(below[..., k])
        pivot = np.where(swap, below[..., k], middle[..., k])
        factor = np.where(swap, middle[..., k], below[..., k]) / np.where(pivot == 0, 1, pivot)
        kept = np.where(swap, middle[..., k + 1], upper[..., k])
        middle[..., k + 1] = np.where(swap, upper[..., k], middle[..., k + 1]) - factor * kept
        middle[..., k], upper[..., k] = pivot, kept
        if k < n - 2:
            below[..., k] = np.where(swap, upper[..., k + 1], 0)
            upper[..., k + 1] = np.where(swap, -factor * upper[..., k + 1], upper[..., k + 1])
        one, two = right[..., k, :].copy(), right[..., k + 1, :].copy()
        exchanged = swap[..., None]
        right[..., k, :] = np.where(exchanged, two, one)
        right[..., k + 1, :] = np.where(exchanged, one, two) - factor[..., None] * right[..., k, :]
    zero = middle == 0
    state = np.where(zero.any(-1), zero.argmax(-1) + 1, 0)
    safe = np.where(zero, 1, middle)
    for k in range(n - 1, -1, -1):
        if k < n - 1:
            right[..., k, :] -= upper[..., k, None] * right[..., k + 1, :]
        if k < n - 2:
            right[..., k, :] -= below[..., k, None] * right[..., k + 2, :]
        right[..., k, :] /= safe[..., k, None]
    return returned(instruction, [lower, middle, upper, right, state])


def _size(value: Array) -> Array:
    """The magnitude by which LAPACK chooses pivots."""
    return np.abs(value.real) + np.abs(value.imag)


def gtsv2(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """cuSPARSE's tridiagonal solver gives the solution alone. Raises ValueError for a singular matrix."""
    n = np.shape(values[1])[-1]
    made = np.zeros(np.shape(values[3]), wide(values[3]).dtype).reshape(-1, *np.shape(values[3])[-2:])
    diagonals = [wide(value).reshape(-1, n) for value in values[:3]]
    for number, right in enumerate(wide(values[3]).reshape(made.shape)):
        lower, middle, upper = (d[number] for d in diagonals)
        matrix = np.diag(middle) + np.diag(lower[1:], -1) + np.diag(upper[:-1], 1)
        made[number] = np.linalg.solve(matrix, right)
    return returned(instruction, [made])


def syrk(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """alpha A A^T + beta C, or with A^T A."""
    a, c, alpha, beta = (wide(value) for value in values)
    turned = np.swapaxes(a, -1, -2)
    product = turned @ a if is_true(instruction, "transpose") else a @ turned
    return returned(instruction, [alpha * product + beta * c])
