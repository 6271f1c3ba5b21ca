"""FFT, triangular solve and factorizations of batches of matrices over an array module `xp`: cuFFT, cuSOLVER and cuBLAS
on a GPU.

See `library.arrays` for the conventions. Factorizations behind custom calls compute in float64 or complex128 and round
once; the NumPy meaning of these calls runs the same functions. Reflections and pivots advance column by column, over
all matrices of a batch at once; eigenvalues and singular values come from cuSOLVER.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from hlo_opt.ir.values import Array
from hlo_opt.library.arrays import Described, flat, logical, narrowed, widened


def fft_call(
    xp: ModuleType, buffers: Sequence[Array], shapes: Sequence[Described], function: str, lengths: Sequence[int]
) -> list[Array]:
    """`fft` over the innermost dimensions. `function` names one of `xp.fft`; the input is cut or zero-padded to
    `lengths`."""
    source, result = shapes
    value = logical(buffers[0], source[2], source[3])
    axes = tuple(range(value.ndim - len(lengths), value.ndim))
    transformed = getattr(xp.fft, function)(xp.ascontiguousarray(value), s=lengths, axes=axes)
    return [flat(xp, transformed, result[3]).astype(result[1], copy=False)]


def cholesky_factors(xp: ModuleType, full: Array) -> Array:
    """The lower Cholesky factors of matrices [batch, n, n]; NaN in all places for a matrix that is not positive
    definite, as one that holds NaN."""
    import contextlib

    guard: Any = contextlib.nullcontext()
    if xp.__name__ == "cupy":
        import cupyx

        guard = cupyx.errstate(linalg="raise")
    with guard:
        try:
            factors = xp.linalg.cholesky(full)
        except xp.linalg.LinAlgError:
            factors = xp.full(full.shape, xp.nan, full.dtype)
            for number in range(len(full)):
                with contextlib.suppress(xp.linalg.LinAlgError):
                    factors[number] = xp.linalg.cholesky(full[number])
    factors[xp.isnan(factors).any(axis=(-1, -2))] = xp.nan  # LAPACK leaves what stands before the first NaN
    return factors


def cholesky_call(xp: ModuleType, buffers: Sequence[Array], shapes: Sequence[Described], lower: bool) -> list[Array]:
    """`cholesky` on buffers. Reads one triangle and zeroes the other; NaN for a matrix that is not positive
    definite."""
    source, result = shapes
    value = logical(widened(xp, buffers[0], source[0]), source[2], source[3])
    value = value.astype("float32") if value.dtype.name == "float16" else value
    half = xp.tril(value) if lower else xp.conj(xp.swapaxes(xp.triu(value), -1, -2))
    full = half + xp.conj(xp.swapaxes(xp.tril(half, -1), -1, -2))
    full = xp.ascontiguousarray(full.reshape(-1, *value.shape[-2:]))
    factors = cholesky_factors(xp, full).reshape(value.shape)
    factors = factors if lower else xp.conj(xp.swapaxes(factors, -1, -2))
    return [narrowed(xp, flat(xp, factors, result[3]), result[0], result[1])]


def triangular_solve_call(
    xp: ModuleType,
    buffers: Sequence[Array],
    shapes: Sequence[Described],
    left: bool,
    lower: bool,
    transpose: str,
    unit_diagonal: bool,
) -> list[Array]:
    """`triangular-solve` on buffers, one matrix at a time. Does not read the other triangle, nor a unit diagonal."""
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
    x = xp.array(b, order="C")  # a copy: the operand must not change
    rows = x.reshape(-1, *x.shape[-2:])
    for number in range(len(a)):
        rows[number] = solve_triangular(a[number], rows[number], lower=lower, unit_diagonal=unit_diagonal)
    x = x if left else xp.swapaxes(x, -1, -2)
    return [narrowed(xp, flat(xp, x, shapes[2][3]), shapes[2][0], shapes[2][1])]


def eliminated(xp: ModuleType, matrices: Array) -> tuple[Array, Array, Array]:
    """LU with partial pivoting of matrices [batch, rows, columns], in place.

    Returns (L and U in one array, the row swapped with row k counted from 1, the first zero pivot counted from 1, or
    0).
    """
    batch, rows, columns = matrices.shape
    steps = min(rows, columns)
    pivots = xp.zeros((batch, steps), "int32")
    state = xp.zeros(batch, "int32")
    every = xp.arange(batch)
    for k in range(steps):
        column = matrices[:, k:, k]
        chosen = k + xp.argmax(xp.abs(column.real) + xp.abs(column.imag), axis=1)
        pivots[:, k] = chosen + 1
        swapped = matrices[every, chosen].copy()
        matrices[every, chosen] = matrices[:, k].copy()
        matrices[:, k] = swapped
        zero = matrices[:, k, k] == 0
        state = xp.where((state == 0) & zero, k + 1, state)
        matrices[:, k + 1 :, k] /= xp.where(zero, 1, matrices[:, k, k])[:, None]
        matrices[:, k + 1 :, k + 1 :] -= matrices[:, k + 1 :, k, None] * matrices[:, None, k, k + 1 :]
    return matrices, pivots, state


def swapped_order(xp: ModuleType, pivots: Array, count: int) -> Array:
    """The order of `count` rows after row k is swapped with row pivots[k] (from 0), for each k in turn; pivots [batch,
    swaps]."""
    pivots = pivots.astype("int64")
    order = xp.zeros((len(pivots), count), "int64") + xp.arange(count)
    every = xp.arange(len(pivots))
    for k in range(pivots.shape[1]):
        swapped = order[every, pivots[:, k]].copy()
        order[every, pivots[:, k]] = order[:, k].copy()
        order[:, k] = swapped
    return order


def wide_operand(xp: ModuleType, memory: Array, shape: Described) -> Array:
    """A copy of a buffer's array in the type that factorizations compute in: float64 or complex128."""
    array = logical(widened(xp, memory, shape[0]), shape[2], shape[3])
    return xp.array(array.astype("complex128" if array.dtype.kind == "c" else "float64"), order="C")


def declared(xp: ModuleType, shapes: Sequence[Described], results: Sequence[Array]) -> list[Array]:
    """The buffers of the results, in the declared types. Further declared results (workspace) are zeros."""
    outputs = []
    for number, shape in enumerate(shapes):
        if number < len(results):
            value = results[number]
            value = value.real if value.dtype.kind == "c" and xp.dtype(shape[1]).kind != "c" else value
            outputs.append(narrowed(xp, flat(xp, value.reshape(shape[2]), shape[3]), shape[0], shape[1]))
        else:
            outputs.append(xp.zeros(shape[2], shape[1]).reshape(-1))
    return outputs


def hermitian(xp: ModuleType, a: Array, lower: bool) -> Array:
    """The Hermitian matrices of which one triangle is stored; the imaginary part of the diagonal is ignored."""
    half = xp.tril(a) if lower else xp.conj(xp.swapaxes(xp.triu(a), -1, -2))
    strict = xp.tril(half, -1)
    return strict + xp.conj(xp.swapaxes(strict, -1, -2)) + half.real * xp.eye(a.shape[-1])


def reflected(xp: ModuleType, a: Array, factor: Array, v: Array) -> Array:
    """H a for H = I - factor v v^H."""
    return a - factor[..., None, None] * v[..., :, None] * xp.matmul(xp.conj(v)[..., None, :], a)


def reflector(xp: ModuleType, x: Array) -> tuple[Array, Array, Array]:
    """(beta, factor, v) for columns [.., n] with H^H x = (beta, 0, ..) and beta real, as LAPACK's larfg.

    `factor` is 0, so H is the identity, where x has that form already.
    """
    alpha = x[..., 0].copy()
    below = (xp.abs(x[..., 1:]) ** 2).sum(axis=-1)
    norm = xp.sqrt(xp.abs(alpha) ** 2 + below)
    still = (below == 0) & (alpha.imag == 0)
    beta = xp.where(still, alpha.real, xp.where(alpha.real < 0, norm, -norm))
    factor = xp.where(still, 0, (beta - alpha) / xp.where(still, 1, beta))
    v = xp.where(still[..., None], 0, x / xp.where(still, 1, alpha - beta)[..., None])
    v[..., 0] = 1
    return beta, factor, v


def geqrf_call(xp: ModuleType, buffers: Sequence[Array], shapes: Sequence[Described]) -> list[Array]:
    """QR as LAPACK's geqrf: R above the diagonal, below it the vectors of H = I - factor v v^H with v[0] = 1; and the
    factors."""
    a = wide_operand(xp, buffers[0], shapes[0])
    steps = min(a.shape[-2:])
    factors = xp.zeros((*a.shape[:-2], steps), a.dtype)
    for k in range(steps):
        beta, factors[..., k], v = reflector(xp, a[..., k:, k])
        a[..., k:, k + 1 :] = reflected(xp, a[..., k:, k + 1 :], xp.conj(factors[..., k]), v)
        a[..., k, k] = beta
        a[..., k + 1 :, k] = v[..., 1:]
    return declared(xp, shapes[1:], [a, factors])


def stored_vector(a: Array, k: int) -> Array:
    """The vector of reflection k, from below the diagonal."""
    v = a[..., k:, k].copy()
    v[..., 0] = 1
    return v


def orgqr_call(xp: ModuleType, buffers: Sequence[Array], shapes: Sequence[Described]) -> list[Array]:
    """The first columns of Q, the product of all reflections, as LAPACK's orgqr."""
    a, factors = (wide_operand(xp, b, s) for b, s in zip(buffers, shapes[:2], strict=True))
    q = xp.zeros(a.shape, a.dtype) + xp.eye(*a.shape[-2:])
    for k in range(factors.shape[-1] - 1, -1, -1):
        q[..., k:, :] = reflected(xp, q[..., k:, :], factors[..., k], stored_vector(a, k))
    return declared(xp, shapes[2:], [q])


def ormqr_call(
    xp: ModuleType, buffers: Sequence[Array], shapes: Sequence[Described], left: bool, turned: bool
) -> list[Array]:
    """Q C, or Q^H C where `turned`; C Q or C Q^H where not `left`. As LAPACK's ormqr."""
    a, factors, c = (wide_operand(xp, b, s) for b, s in zip(buffers, shapes[:3], strict=True))
    c = c if left else xp.conj(xp.swapaxes(c, -1, -2)).copy()  # C Q is (Q^H C^H)^H
    adjoint = turned if left else not turned
    steps = range(factors.shape[-1])
    for k in steps if adjoint else reversed(steps):
        factor = xp.conj(factors[..., k]) if adjoint else factors[..., k]
        c[..., k:, :] = reflected(xp, c[..., k:, :], factor, stored_vector(a, k))
    return declared(xp, shapes[3:], [c if left else xp.conj(xp.swapaxes(c, -1, -2))])


def getrf_call(xp: ModuleType, buffers: Sequence[Array], shapes: Sequence[Described]) -> list[Array]:
    """LU as LAPACK's getrf: (L and U, the row swapped with row k counted from 1, the first zero pivot counted from 1,
    or 0)."""
    a = wide_operand(xp, buffers[0], shapes[0])
    return declared(xp, shapes[1:], eliminated(xp, a.reshape(-1, *a.shape[-2:])))


def pivots_call(xp: ModuleType, buffers: Sequence[Array], shapes: Sequence[Described]) -> list[Array]:
    """The row order after row k is swapped with row pivots[k] (from 0), for each k in turn."""
    pivots = logical(buffers[0], shapes[0][2], shapes[0][3])
    order = swapped_order(xp, pivots.reshape(-1, pivots.shape[-1]), shapes[1][2][-1])
    return declared(xp, shapes[1:], [order])


def potrf_call(
    xp: ModuleType, buffers: Sequence[Array], shapes: Sequence[Described], lower: bool, has_workspace: bool
) -> list[Array]:
    """A = L L^H or U^H U, as LAPACK's potrf.

    Returns (the operand with the factor in its triangle, [workspace,] the order of the first minor that is not
    positive, or 0).
    """
    a = wide_operand(xp, buffers[0], shapes[0])
    matrices = a.reshape(-1, *a.shape[-2:])
    full = hermitian(xp, matrices, lower)
    factors = cholesky_factors(xp, full)
    failed = xp.isnan(factors.real).any(axis=(-1, -2))
    state = [0] * len(full)
    for number in [n for n, value in enumerate(failed.tolist()) if value]:
        minors = range(1, full.shape[-1] + 1)
        wrong = (
            m for m in minors if bool(xp.isnan(cholesky_factors(xp, full[number : number + 1, :m, :m]).real).any())
        )
        state[number] = next(wrong, full.shape[-1])
    over = factors + xp.triu(matrices, 1) if lower else xp.conj(xp.swapaxes(factors, -1, -2)) + xp.tril(matrices, -1)
    result = xp.where(failed[:, None, None], matrices, over)
    between = [xp.zeros(shapes[2][2], shapes[2][1])] if has_workspace else []
    return declared(xp, shapes[1:], [result, *between, xp.asarray(state)])


def syevd_call(xp: ModuleType, buffers: Sequence[Array], shapes: Sequence[Described], lower: bool) -> list[Array]:
    """(eigenvectors in columns, eigenvalues in ascending order, 0), as cuSOLVER's syevd."""
    a = wide_operand(xp, buffers[0], shapes[0])
    eigenvalues, vectors = xp.linalg.eigh(a, UPLO="L" if lower else "U")
    return declared(xp, shapes[1:], [vectors, eigenvalues])


def gesvd_call(
    xp: ModuleType, buffers: Sequence[Array], shapes: Sequence[Described], kind: str, is_whole: bool, is_turned: bool
) -> list[Array]:
    """(operand buffer, singular values, U, V^H, or V where `kind` is V, 0), as LAPACK's gesvd.

    No vectors where `kind` is empty. `is_turned`: V^H comes before U.
    """
    a = wide_operand(xp, buffers[0], shapes[0])
    if not kind:
        singular = xp.linalg.svd(a, compute_uv=False)
        return declared(xp, shapes[1:], [a, singular])
    u, singular, v = xp.linalg.svd(a, full_matrices=is_whole)
    v = xp.conj(xp.swapaxes(v, -1, -2)) if kind == "V" else v
    return declared(xp, shapes[1:], [a, singular, *((v, u) if is_turned else (u, v))])
