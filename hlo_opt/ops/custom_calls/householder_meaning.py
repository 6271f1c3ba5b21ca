"""The NumPy meaning of factorizations by Householder's reflections, as LAPACK does and stores them: H = I - factor v v^H with v[0] = 1."""

from __future__ import annotations

import numpy as np

from hlo_opt.ir import Instruction
from hlo_opt.ir.values import Array
from hlo_opt.ops.call_config import is_true, option
from hlo_opt.ops.custom_calls.lapack import hermitian, is_lower, no_fault, returned, wide
from hlo_opt.ops.spec import Evaluator
from hlo_opt.ops.values import Value


def reflector(x: Array) -> tuple[Array, Array, Array]:
    """(beta, factor, v) for columns [.., n] with H^H x = (beta, 0, ..), beta real: LAPACK's larfg. Nothing is turned (factor 0) where that holds already."""
    alpha = x[..., 0]
    below = np.sum(np.abs(x[..., 1:]) ** 2, axis=-1)
    norm = np.sqrt(np.abs(alpha) ** 2 + below)
    still = (below == 0) & (alpha.imag == 0)
    beta = np.where(still, alpha.real, np.where(alpha.real < 0, norm, -norm))
    factor = np.where(still, 0, (beta - alpha) / np.where(still, 1, beta))
    v = x / np.where(still, 1, alpha - beta)[..., None]
    v[..., 0] = 1
    v[..., 1:] = np.where(still[..., None], 0, v[..., 1:])
    return beta, factor, v


def from_left(a: Array, factor: Array, v: Array) -> Array:
    """H a for H = I - factor v v^H."""
    return a - factor[..., None, None] * v[..., :, None] * np.einsum("...i,...ij->...j", v.conj(), a)[..., None, :]


def from_right(a: Array, factor: Array, v: Array) -> Array:
    """a H."""
    return a - factor[..., None, None] * np.einsum("...ij,...j->...i", a, v)[..., :, None] * v.conj()[..., None, :]


def householder(a: Array) -> tuple[Array, Array]:
    """R above and the reflectors' vectors below the diagonal, and their factors, as LAPACK's geqrf gives them."""
    a = a.copy()
    steps = min(a.shape[-2:])
    factors = np.zeros((*a.shape[:-2], steps), a.dtype)
    for k in range(steps):
        beta, factors[..., k], v = reflector(a[..., k:, k])
        a[..., k:, k + 1 :] = from_left(a[..., k:, k + 1 :], factors[..., k].conj(), v)
        a[..., k, k] = beta
        a[..., k + 1 :, k] = v[..., 1:]
    return a, factors


def geqrf(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """A = QR: (R and the reflectors, their factors)."""
    return returned(instruction, list(householder(wide(values[0]))))


def geqp3(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """A P = QR: (R and the reflectors, the columns of A in their new order counted from 1, the factors). The column with the greatest rest comes next.

    Raises ValueError where columns are to be kept at the front.
    """
    a = wide(values[0])
    if np.any(values[1]):
        raise ValueError("columns that are fixed at the front are not known")
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
            beta, factor[k], v = reflector(matrix[k:, k])
            matrix[k:, k + 1 :] = from_left(matrix[k:, k + 1 :], factor[k].conj(), v)
            matrix[k, k], matrix[k + 1 :, k] = beta, v[1:]
    batch = a.shape[:-2]
    return returned(
        instruction, [flat.reshape(a.shape), order.reshape(*batch, columns), factors.reshape(*batch, steps)]
    )


def orgqr(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """The first columns of Q from reflectors and factors: the product of all H."""
    a, factors = wide(values[0]), wide(values[1])
    q = np.broadcast_to(np.eye(*a.shape[-2:], dtype=a.dtype), a.shape).copy()
    for k in range(factors.shape[-1] - 1, -1, -1):
        q[..., k:, :] = from_left(q[..., k:, :], factors[..., k], _stored(a, k))
    return returned(instruction, [q])


def _stored(a: Array, k: int) -> Array:
    """The vector of reflector k."""
    v = a[..., k:, k].copy()
    v[..., 0] = 1
    return v


def ormqr(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """Q C, Q^H C, C Q or C Q^H for the whole Q of the reflectors."""
    a, factors, c = wide(values[0]), wide(values[1]), wide(values[2]).copy()
    left, turned = is_true(instruction, "left", True), is_true(instruction, "transpose")
    steps = range(factors.shape[-1])
    for k in steps if left == turned else reversed(steps):
        factor, v = factors[..., k], _stored(a, k)
        factor = factor.conj() if turned else factor
        if left:
            c[..., k:, :] = from_left(c[..., k:, :], factor, v)
        else:
            c[..., :, k:] = from_right(c[..., :, k:], factor, v)
    return returned(instruction, [c])


def gehrd(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """A = Q H Q^H: (H and, below its first subdiagonal, the reflectors, their factors, 0). Raises ValueError for a part of the matrix."""
    a = wide(values[0]).copy()
    n = a.shape[-1]
    if (option(instruction, "low", "1"), option(instruction, "high", str(n))) != ("1", str(n)):
        raise ValueError("the Hessenberg form of a part of a matrix is not known")
    factors = np.zeros((*a.shape[:-2], max(n - 1, 0)), a.dtype)
    for k in range(n - 1):
        beta, factors[..., k], v = reflector(a[..., k + 1 :, k])
        a[..., :, k + 1 :] = from_right(a[..., :, k + 1 :], factors[..., k], v)
        a[..., k + 1 :, k + 1 :] = from_left(a[..., k + 1 :, k + 1 :], factors[..., k].conj(), v)
        a[..., k + 1, k] = beta
        a[..., k + 2 :, k] = v[..., 1:]
    return returned(instruction, [a, factors, no_fault(a)])


def sytrd(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """A = Q T Q^H with T real and tridiagonal: (T's triangle with the reflectors, its diagonal, its off-diagonal, the factors, 0)."""
    given = wide(values[0])
    lower = is_lower(instruction)
    a, made = hermitian(given, lower=lower), given.copy()
    n = a.shape[-1]
    off = np.zeros((*a.shape[:-2], max(n - 1, 0)))
    factors = np.zeros(off.shape, a.dtype)
    for step in range(n - 1):
        # below the diagonal from the left, above it from the right, where the vector ends in its 1
        k = step if lower else n - 2 - step
        rest = np.s_[..., k + 1 :, k] if lower else np.s_[..., : k + 1, k + 1]
        column = a[rest] if lower else a[rest][..., ::-1]
        beta, factor, v = reflector(column)
        off[..., k], factors[..., k] = beta, factor
        vector = v if lower else v[..., ::-1]
        block = np.s_[..., k + 1 :, k + 1 :] if lower else np.s_[..., : k + 1, : k + 1]
        a[block] = from_left(from_right(a[block], factor, vector), factor.conj(), vector)
        made[rest] = vector
        made[..., *((k + 1, k) if lower else (k, k + 1))] = beta
    diagonal = np.diagonal(a, axis1=-2, axis2=-1).real
    made[..., range(n), range(n)] = diagonal
    return returned(instruction, [made, diagonal, off, factors, no_fault(a)])
