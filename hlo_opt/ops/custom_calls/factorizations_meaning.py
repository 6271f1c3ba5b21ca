"""The NumPy evaluators of LAPACK-like calls that `hlo_opt.library` lacks. They compute in f64 or c128 and round once;
batch dimensions lead.

Reflections follow LAPACK: H = I - factor v v^H with v[0] = 1. Eigenvectors are unique up to a factor of magnitude 1.
"""

from __future__ import annotations

import numpy as np

from hlo_opt.ir import Instruction
from hlo_opt.ir.values import Array
from hlo_opt.library.linear import hermitian, reflected, reflector
from hlo_opt.ops.call_config import is_lower, is_true, letter, option, solved_by_trsm
from hlo_opt.ops.custom_calls.meaning import returned, wide
from hlo_opt.ops.linalg.meaning import solve_triangular
from hlo_opt.ops.spec import Evaluator
from hlo_opt.ops.values import Value


def _success(a: Array) -> Array:
    """A status of 0, no fault, for each matrix of a batch."""
    return np.zeros(a.shape[:-2], np.int32)


def trsm(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """The solution x of op(A) x = B or x op(A) = B for triangular A."""
    x = solve_triangular(wide(values[0]), wide(values[1]), solved_by_trsm(instruction))
    return returned(instruction, [x])


def gtsv(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """(lower, middle and upper diagonal as LAPACK leaves them, the solution, the first zero pivot counted from 1, or
    0).

    Row k is lower[k] x[k-1] + middle[k] x[k] + upper[k] x[k+1] = right[k]. Elimination swaps neighbouring rows where
    the lower element is larger.
    """
    lower, middle, upper, right = (wide(value).copy() for value in values)
    n = middle.shape[-1]
    below = lower[..., 1:]  # a view: LAPACK's lower diagonal starts in the second row
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
    size: Array = np.abs(value.real) + np.abs(value.imag)
    return size


def gtsv2(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """cuSPARSE's tridiagonal solver, which returns only the solution. Raises numpy.linalg.LinAlgError for a singular
    matrix."""
    n = np.shape(values[1])[-1]
    solution = np.zeros(np.shape(values[3]), wide(values[3]).dtype).reshape(-1, *np.shape(values[3])[-2:])
    diagonals = [wide(value).reshape(-1, n) for value in values[:3]]
    for number, right in enumerate(wide(values[3]).reshape(solution.shape)):
        lower, middle, upper = (d[number] for d in diagonals)
        matrix = np.diag(middle) + np.diag(lower[1:], -1) + np.diag(upper[:-1], 1)
        solution[number] = np.linalg.solve(matrix, right)
    return returned(instruction, [solution])


def syrk(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """alpha A A^T + beta C, or with A^T A."""
    a, c, alpha, beta = (wide(value) for value in values)
    transposed = np.swapaxes(a, -1, -2)
    product = transposed @ a if is_true(instruction, "transpose") else a @ transposed
    return returned(instruction, [alpha * product + beta * c])


def _from_right(a: Array, factor: Array, v: Array) -> Array:
    """a H."""
    product: Array = (
        a - factor[..., None, None] * np.einsum("...ij,...j->...i", a, v)[..., :, None] * v.conj()[..., None, :]
    )
    return product


def geqp3(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """QR with column pivoting: (R and the reflectors, the column order counted from 1, the factors).

    The column with the largest remaining norm comes next. Raises ValueError where columns are fixed at the front.
    """
    a = wide(values[0])
    if np.any(values[1]):
        raise ValueError("columns fixed at the front are not supported")
    rows, columns = a.shape[-2:]
    flat = a.reshape(-1, rows, columns).copy()
    steps = min(rows, columns)
    factors = np.zeros((len(flat), steps), a.dtype)
    order = np.tile(np.arange(1, columns + 1), (len(flat), 1))
    for matrix, factor, names in zip(flat, factors, order, strict=True):
        for k in range(steps):
            chosen = k + int(np.argmax(np.linalg.norm(matrix[k:, k:], axis=0)))
            matrix[:, [k, chosen]] = matrix[:, [chosen, k]]
            names[[k, chosen]] = names[[chosen, k]]
            beta, factor[k], v = reflector(np, matrix[k:, k])
            matrix[k:, k + 1 :] = reflected(np, matrix[k:, k + 1 :], factor[k].conj(), v)
            matrix[k, k], matrix[k + 1 :, k] = beta, v[1:]
    batch = a.shape[:-2]
    return returned(
        instruction, [flat.reshape(a.shape), order.reshape(*batch, columns), factors.reshape(*batch, steps)]
    )


def gehrd(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """A = Q H Q^H: (H with the reflectors below its first subdiagonal, their factors, 0). Raises ValueError for a part
    of a matrix."""
    a = wide(values[0]).copy()
    n = a.shape[-1]
    if (option(instruction, "low", "1"), option(instruction, "high", str(n))) != ("1", str(n)):
        raise ValueError("the Hessenberg form of a part of a matrix is not supported")
    factors = np.zeros((*a.shape[:-2], max(n - 1, 0)), a.dtype)
    for k in range(n - 1):
        beta, factors[..., k], v = reflector(np, a[..., k + 1 :, k])
        a[..., :, k + 1 :] = _from_right(a[..., :, k + 1 :], factors[..., k], v)
        a[..., k + 1 :, k + 1 :] = reflected(np, a[..., k + 1 :, k + 1 :], factors[..., k].conj(), v)
        a[..., k + 1, k] = beta
        a[..., k + 2 :, k] = v[..., 1:]
    return returned(instruction, [a, factors, _success(a)])


def sytrd(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """A = Q T Q^H with T real and tridiagonal: (T's triangle with the reflectors, its diagonal, its off-diagonal, the
    factors, 0)."""
    stored = wide(values[0])
    lower = is_lower(instruction)
    a, reduced = hermitian(np, stored, lower), stored.copy()
    n = a.shape[-1]
    off = np.zeros((*a.shape[:-2], max(n - 1, 0)))
    factors = np.zeros(off.shape, a.dtype)
    for step in range(n - 1):
        # the lower form eliminates columns from the left, the upper one from the right, where v ends in 1
        k = step if lower else n - 2 - step
        rest = np.s_[..., k + 1 :, k] if lower else np.s_[..., : k + 1, k + 1]
        column = a[rest] if lower else a[rest][..., ::-1]
        beta, factor, v = reflector(np, column)
        off[..., k], factors[..., k] = beta, factor
        vector = v if lower else v[..., ::-1]
        block = np.s_[..., k + 1 :, k + 1 :] if lower else np.s_[..., : k + 1, : k + 1]
        a[block] = reflected(np, _from_right(a[block], factor, vector), factor.conj(), vector)
        reduced[rest] = vector
        reduced[..., *((k + 1, k) if lower else (k, k + 1))] = beta
    diagonal = np.diagonal(a, axis1=-2, axis2=-1).real
    reduced[..., range(n), range(n)] = diagonal
    return returned(instruction, [reduced, diagonal, off, factors, _success(a)])


def geev(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """(eigenvalues, or real and imaginary parts for a real matrix; left and right eigenvectors in columns; 0).

    Vectors that are not requested are zero, others have length 1. Raises ValueError for left vectors of a defective
    matrix.
    """
    a = wide(values[0])
    eigenvalues, right = np.linalg.eig(a)
    left = np.zeros_like(right)
    if letter(instruction, "compute_left", "N") == "V":
        try:
            left = np.conj(np.swapaxes(np.linalg.inv(right), -1, -2))
        except np.linalg.LinAlgError:
            raise ValueError("the matrix has too few eigenvectors") from None
        left = _with_real_largest(left / np.linalg.norm(left, axis=-2, keepdims=True))
    if letter(instruction, "compute_right", "N") != "V":
        right = np.zeros_like(right)
    parts = [eigenvalues] if a.dtype.kind == "c" else [eigenvalues.real, eigenvalues.imag]
    return returned(instruction, [*parts, left, right, _success(a)])


def _with_real_largest(vectors: Array) -> Array:
    """Scale each column so that its largest component is real, as geev leaves complex vectors."""
    greatest = np.take_along_axis(vectors, np.argmax(np.abs(vectors), axis=-2)[..., None, :], -2)
    return vectors * np.conj(greatest) / np.abs(greatest) if np.iscomplexobj(vectors) else vectors
