"""Fourier transforms and triangular factors on a GPU: cuFFT, cuSOLVER and cuBLAS through CuPy. Written as `library.arrays` says."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from hlo_opt.ir.values import Array
from hlo_opt.library.arrays import Described, flat, logical, narrowed, widened


def fft_call(
    xp: ModuleType, buffers: Sequence[Array], shapes: Sequence[Described], function: str, lengths: Sequence[int]
) -> list[Array]:
    """`fft` on buffers, over the innermost dimensions; `function` is the one of `xp.fft`. The input is cut or filled with zeros to the lengths."""
    source, result = shapes
    value = logical(buffers[0], source[2], source[3])
    axes = tuple(range(value.ndim - len(lengths), value.ndim))
    made = getattr(xp.fft, function)(xp.ascontiguousarray(value), s=lengths, axes=axes)
    return [flat(xp, made, result[3]).astype(result[1], copy=False)]


def cholesky_factors(xp: ModuleType, full: Array) -> Array:
    """The lower factors of matrices [batch, n, n]; NaN for those that are not positive definite."""
    import contextlib

    guard: Any = contextlib.nullcontext()
    if xp.__name__ == "cupy":
        import cupyx

        guard = cupyx.errstate(linalg="raise")
    with guard:
        try:
            return xp.linalg.cholesky(full)
        except xp.linalg.LinAlgError:
            made = xp.full(full.shape, xp.nan, full.dtype)
            for number in range(len(full)):
                with contextlib.suppress(xp.linalg.LinAlgError):
                    made[number] = xp.linalg.cholesky(full[number])
    return made


def cholesky_call(xp: ModuleType, buffers: Sequence[Array], shapes: Sequence[Described], lower: bool) -> list[Array]:
    """`cholesky` on buffers. Reads the chosen triangle only; a matrix that is not positive definite gives NaN, the other triangle is zero."""
    source, result = shapes
    value = logical(widened(xp, buffers[0], source[0]), source[2], source[3])
    value = value.astype("float32") if value.dtype.name == "float16" else value
    half = xp.tril(value) if lower else xp.conj(xp.swapaxes(xp.triu(value), -1, -2))
    full = half + xp.conj(xp.swapaxes(xp.tril(half, -1), -1, -2))
    full = xp.ascontiguousarray(full.reshape(-1, *value.shape[-2:]))
    made = cholesky_factors(xp, full).reshape(value.shape)
    made = made if lower else xp.conj(xp.swapaxes(made, -1, -2))
    return [narrowed(xp, flat(xp, made, result[3]), result[0], result[1])]


def triangular_solve_call(
    xp: ModuleType,
    buffers: Sequence[Array],
    shapes: Sequence[Described],
    left: bool,
    lower: bool,
    transpose: str,
    unit_diagonal: bool,
) -> list[Array]:
    """`triangular-solve` on buffers: one matrix after the other. The other triangle is not read, nor a unit diagonal."""
    from cupyx.scipy.linalg import solve_triangular

    a, b = (logical(widened(xp, m, s[0]), s[2], s[3]) for m, s in zip(buffers, shapes[:2], strict=True))
    if a.dtype.name == "float16":
        a, b = a.astype("float32"), b.astype("float32")
    if transpose != "NO_TRANSPOSE":
        a, lower = xp.swapaxes(a, -1, -2), not lower
        a = xp.conj(a) if transpose == "ADJOINT" else a
    if not left:  # x a = b is a' x' = b'
        a, b, lower = xp.swapaxes(a, -1, -2), xp.swapaxes(b, -1, -2), not lower
    a = xp.ascontiguousarray(a).reshape(-1, *a.shape[-2:])
    x = xp.array(b, order="C")  # the operand stays as it is
    rows = x.reshape(-1, *x.shape[-2:])
    for number in range(len(a)):
        rows[number] = solve_triangular(a[number], rows[number], lower=lower, unit_diagonal=unit_diagonal)
    x = x if left else xp.swapaxes(x, -1, -2)
    return [narrowed(xp, flat(xp, x, shapes[2][3]), shapes[2][0], shapes[2][1])]
