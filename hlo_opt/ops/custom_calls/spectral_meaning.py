"""The NumPy meaning of eigenvalues and singular values. NumPy asks LAPACK itself, in f64 or c128; vectors are determined up to a factor of magnitude 1."""

from __future__ import annotations

import numpy as np

from hlo_opt.ir import Instruction, Shape
from hlo_opt.ir.values import Array
from hlo_opt.ops.call_config import is_true, letter
from hlo_opt.ops.custom_calls.lapack import adjoint, is_lower, no_fault, returned, wide
from hlo_opt.ops.spec import Evaluator
from hlo_opt.ops.values import Value


def syevd(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """(eigenvectors in columns, eigenvalues in rising order, 0)"""
    a = wide(values[0])
    eigenvalues, vectors = np.linalg.eigh(a, UPLO="L" if is_lower(instruction) else "U")
    return returned(instruction, [vectors, eigenvalues, no_fault(a)])


def geev(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """(eigenvalues: real and imaginary parts apart for a real matrix; left and right eigenvectors in columns, 0). What is not asked for is zero.

    Vectors have length 1. Raises ValueError for left vectors of a matrix without a full set of right ones.
    """
    a = wide(values[0])
    eigenvalues, right = np.linalg.eig(a)
    left = np.zeros_like(right)
    if letter(instruction, "compute_left", "N") == "V":
        try:
            left = adjoint(np.linalg.inv(right))
        except np.linalg.LinAlgError:
            raise ValueError("the matrix has too few eigenvectors") from None
        left = _turned(left / np.linalg.norm(left, axis=-2, keepdims=True))
    if letter(instruction, "compute_right", "N") != "V":
        right = np.zeros_like(right)
    parts = [eigenvalues] if a.dtype.kind == "c" else [eigenvalues.real, eigenvalues.imag]
    return returned(instruction, [*parts, left, right, no_fault(a)])


def _turned(vectors: Array) -> Array:
    """Each column times a factor that makes its greatest component real, which is how geev leaves complex vectors."""
    greatest = np.take_along_axis(vectors, np.argmax(np.abs(vectors), axis=-2)[..., None, :], -2)
    return vectors * np.conj(greatest) / np.abs(greatest) if np.iscomplexobj(vectors) else vectors


def _decomposed(instruction: Instruction, a: Array, columns: int, rows: int) -> tuple[Array, Array, Array]:
    """U, the singular values and V^H for results that declare so many columns of U and rows of V^H. Raises ValueError for any other number."""
    whole, steps = (a.shape[-2], a.shape[-1]), min(a.shape[-2:])
    if (columns, rows) not in (whole, (steps, steps)):
        raise ValueError(f"U with {columns} columns and V^H with {rows} rows are neither whole nor cut")
    u, singular, v = np.linalg.svd(a, full_matrices=(columns, rows) == whole)
    return u, singular, v


def gesdd(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """(the operand's memory, singular values, U, V^H, 0); U and V^H are whole or cut as the declared shapes say. A `transposed` call declares V^H first."""
    a = wide(values[0])
    turned = is_true(instruction, "transposed")
    leaves = _five(instruction)
    first, second = (leaves[3], leaves[2]) if turned else (leaves[2], leaves[3])
    if first.rank < 2 or not is_true(instruction, "compute_uv", True) or letter(instruction, "mode", "S") == "N":
        singular = np.linalg.svd(a, compute_uv=False)
        both = [np.zeros(leaf.dimensions) for leaf in leaves[2:4]]  # only the values are asked for
    else:
        u, singular, v = _decomposed(instruction, a, first.dimensions[-1], second.dimensions[-2])
        both = [v, u] if turned else [u, v]
    return returned(instruction, [a, singular, *both, no_fault(a)])


def gesvdj(evaluator: Evaluator, instruction: Instruction, values: list[Array]) -> Value:
    """(the operand's memory, singular values, U, V (not V^H), 0), by Jacobi's method or by polar decomposition."""
    a = wide(values[0])
    leaves = _five(instruction)
    u, singular, v = _decomposed(instruction, a, leaves[2].dimensions[-1], leaves[3].dimensions[-1])
    return returned(instruction, [a, singular, u, adjoint(v), no_fault(a)])


def _five(instruction: Instruction) -> list[Shape]:
    leaves = list(instruction.shape.leaves())
    if len(leaves) < 5:
        raise ValueError(f"a singular value decomposition gives 5 results, not {len(leaves)}")
    return leaves
