"""What the NumPy meanings of LAPACK's routines share: wide operands, and results as the call declares them."""

from __future__ import annotations

import numpy as np

from hlo_opt.ir import Instruction
from hlo_opt.ir.values import Array
from hlo_opt.ops.call_config import is_true, letter
from hlo_opt.ops.values import Value


def wide(value: Array) -> Array:
    """In f64 or c128."""
    array = np.asarray(value)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def no_fault(a: Array) -> Array:
    """A state of 0 for each matrix of a batch."""
    return np.zeros(a.shape[:-2], np.int32)


def returned(instruction: Instruction, made: list[Array]) -> Value:
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


def is_lower(instruction: Instruction) -> bool:
    """Whether the lower triangle is meant: `uplo` is L (LAPACK), or `lower` is true (the GPU's kernels)."""
    return letter(instruction, "uplo", "L" if is_true(instruction, "lower", True) else "U") == "L"


def adjoint(a: Array) -> Array:
    """Conjugated and transposed."""
    return np.conj(np.swapaxes(a, -1, -2))


def hermitian(a: Array, *, lower: bool) -> Array:
    """The whole matrix of which one triangle is given; the diagonal is real."""
    half = np.tril(a) if lower else adjoint(np.triu(a))
    full = half + adjoint(np.tril(half, -1))
    n = a.shape[-1]
    full[..., range(n), range(n)] = full[..., range(n), range(n)].real
    return full
