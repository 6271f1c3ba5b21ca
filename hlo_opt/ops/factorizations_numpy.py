"""The NumPy meaning of matrix factorizations. Everything is computed in f64 or c128 and rounded once; batches are leading dimensions."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from hlo_opt.ir import Instruction
from hlo_opt.ops.spec import Evaluator

Array = Any
Value = Any

_OPTION = r"{name}\s*=\s*(\w+)"


def _option(instruction: Instruction, name: str, default: str) -> str:
    """A one-letter option of the call's configuration, which writes it as the number of the letter: `uplo = 76 : ui8`. Booleans: true, false."""
    written = instruction.attributes.get("backend_config")
    found = None if written is None else re.search(_OPTION.format(name=name), written.text)
    if found is None:
        return default
    return chr(int(found[1])) if found[1].isdigit() and 32 <= int(found[1]) < 127 else found[1]


def _wide(value: Array) -> Array:
    array = np.asarray(value)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _returned(instruction: Instruction, made: list[Array]) -> Value:
    """The first results that the call declares, in its types; what else it declares (workspace) is zero."""
    leaves = [leaf for leaf in instruction.shape.leaves() if leaf.is_array]
    found = []
    for number, leaf in enumerate(leaves):
        if number < len(made):
            value = np.asarray(made[number])
            real = leaf.type.dtype.kind != "c" and value.dtype.kind == "c"
            found.append((value.real if real else value).astype(leaf.type.dtype).reshape(leaf.dimensions))
        else:
            found.append(np.zeros(leaf.dimensions, leaf.type.dtype))
    return tuple(found) if instruction.shape.is_tuple else found[0]


def householder(a: Array) -> tuple[Array, Array]:
    """R above and the reflectors' vectors below the diagonal, and their factors, as LAPACK's geqrf gives them."""
    a = a.copy()
    rows, columns = a.shape[-2:]
    steps = min(rows, columns)
    factors = np.zeros((*a.shape[:-2], steps), a.dtype)
    for k in range(steps):
        alpha = a[..., k, k].copy()
        below = np.sum(np.abs(a[..., k + 1 :, k]) ** 2, axis=-1)
        norm = np.sqrt(np.abs(alpha) ** 2 + below)
        beta = -np.where(alpha.real < 0, -norm, norm)
        still = (below == 0) & (alpha.imag == 0)
        beta = np.where(still, alpha.real, beta)
        divisor = np.where(still, 1, beta)
        factor = np.where(still, 0, (beta - alpha) / divisor)
        vector = a[..., k:, k] / np.where(still, 1, alpha - beta)[..., None]
        vector[..., 0] = 1
        vector[..., 1:] = np.where(still[..., None], 0, vector[..., 1:])
        factors[..., k] = factor
        rest = a[..., k:, k + 1 :]
        projected = np.einsum("...i,...ij->...j", vector.conj(), rest)
        a[..., k:, k + 1 :] = rest - factor.conj()[..., None, None] * vector[..., :, None] * projected[..., None, :]
        a[..., k, k] = beta
        a[..., k + 1 :, k] = vector[..., 1:]
    return a, factors


def geqrf(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """A = QR: (R and the reflectors, their factors)."""
    return _returned(instruction, list(householder(_wide(values[0]))))


def orgqr(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """The first columns of Q from reflectors and factors: the product of I - factor v v^H."""
    a, factors = _wide(values[0]), _wide(values[1])
    rows, columns = a.shape[-2:]
    q = np.broadcast_to(np.eye(rows, columns, dtype=a.dtype), a.shape).copy()
    for k in range(factors.shape[-1] - 1, -1, -1):
        vector = a[..., k:, k].copy()
        vector[..., 0] = 1
        rest = q[..., k:, :]
        projected = np.einsum("...i,...ij->...j", vector.conj(), rest)
        q[..., k:, :] = rest - factors[..., k, None, None] * vector[..., :, None] * projected[..., None, :]
    return _returned(instruction, [q])


def getrf(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """PA = LU: (L and U, rows swapped in turn counted from 1, the first zero pivot counted from 1 or 0)."""
    a = _wide(values[0])
    rows, columns = a.shape[-2:]
    flat = a.reshape(-1, rows, columns).copy()
    steps = min(rows, columns)
    pivots = np.zeros((len(flat), steps), np.int32)
    state = np.zeros(len(flat), np.int32)
    every = np.arange(len(flat))
    for k in range(steps):
        column = flat[:, k:, k]
        chosen = k + np.argmax(np.abs(column.real) + np.abs(column.imag), axis=1)
        pivots[:, k] = chosen + 1
        swapped = flat[every, chosen].copy()
        flat[every, chosen] = flat[:, k]
        flat[:, k] = swapped
        zero = flat[:, k, k] == 0
        state = np.where((state == 0) & zero, k + 1, state)
        flat[:, k + 1 :, k] /= np.where(zero, 1, flat[:, k, k])[:, None]
        flat[:, k + 1 :, k + 1 :] -= flat[:, k + 1 :, k, None] * flat[:, None, k, k + 1 :]
    batch = a.shape[:-2]
    return _returned(instruction, [flat.reshape(a.shape), pivots.reshape(*batch, steps), state.reshape(batch)])


def potrf(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """A = L L^H or U^H U: (the factor over the operand's triangle, the first minor that is not positive counted from 1 or 0)."""
    a = _wide(values[0])
    upper = _option(instruction, "uplo", "L") == "U"
    flat = a.reshape(-1, *a.shape[-2:]).copy()
    state = np.zeros(len(flat), np.int32)
    for number, matrix in enumerate(flat):
        lower = matrix.conj().T if upper else matrix
        full = np.tril(lower) + np.tril(lower, -1).conj().T
        try:
            factor = np.linalg.cholesky(full)
        except np.linalg.LinAlgError:
            state[number] = _failing_minor(full)
            continue
        flat[number] = np.triu(factor.conj().T) + np.tril(matrix, -1) if upper else factor + np.triu(matrix, 1)
    return _returned(instruction, [flat.reshape(a.shape), state.reshape(a.shape[:-2])])


def _failing_minor(matrix: Array) -> int:
    for size in range(1, len(matrix) + 1):
        try:
            np.linalg.cholesky(matrix[:size, :size])
        except np.linalg.LinAlgError:
            return size
    return len(matrix)


def syevd(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """(eigenvectors in columns, eigenvalues in rising order, 0)"""
    a = _wide(values[0])
    lower = _option(instruction, "uplo", _option(instruction, "lower", "L")) in ("L", "true")
    eigenvalues, vectors = np.linalg.eigh(a, UPLO="L" if lower else "U")
    return _returned(instruction, [vectors, eigenvalues, np.zeros(a.shape[:-2], np.int32)])


def gesdd(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """(the operand's memory, singular values, U, V^H, 0); U and V^H are whole or cut as the declared shapes say."""
    a = _wide(values[0])
    leaves = list(instruction.shape.leaves())
    if len(leaves) < 5:
        raise ValueError(f"a singular value decomposition gives 5 results, not {len(leaves)}")
    whole = leaves[2].dimensions[-1] == a.shape[-2] and leaves[3].dimensions[-2] == a.shape[-1]
    u, singular, v = np.linalg.svd(a, full_matrices=whole)
    if leaves[2].dimensions != u.shape or leaves[3].dimensions != v.shape:  # only the values are asked for
        u, v = np.zeros(leaves[2].dimensions), np.zeros(leaves[3].dimensions)
    return _returned(instruction, [a, singular, u, v, np.zeros(a.shape[:-2], np.int32)])


def lu_pivots_to_permutation(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """The rows' order after swapping row k with row pivots[k], counted from 0, for each k in turn."""
    pivots = np.asarray(values[0])
    shape = next(instruction.shape.leaves())
    flat = pivots.reshape(-1, pivots.shape[-1])
    order = np.tile(np.arange(shape.dimensions[-1]), (len(flat), 1))
    every = np.arange(len(flat))
    for k in range(flat.shape[1]):
        chosen = flat[:, k].astype(np.int64)
        swapped = order[every, chosen].copy()
        order[every, chosen] = order[:, k]
        order[:, k] = swapped
    return _returned(instruction, [order])
