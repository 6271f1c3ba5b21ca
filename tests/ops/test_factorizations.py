"""Custom calls to LAPACK against jaxlib's own kernels and against what they promise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hlo_opt import evaluate, parse

MATRIX = np.random.default_rng(0).normal(size=(2, 4, 3))
SQUARE = np.random.default_rng(1).normal(size=(2, 4, 4))


def call(target: str, results: str, *inputs: np.ndarray, config: str = "") -> list[np.ndarray]:
    kinds = {"float64": "f64", "float32": "f32", "int32": "s32", "complex128": "c128"}
    lines = [
        f"  p{k} = {kinds[a.dtype.name]}[{','.join(map(str, a.shape))}] parameter({k})" for k, a in enumerate(inputs)
    ]
    names = ", ".join(f"p{k}" for k in range(len(inputs)))
    given = f', backend_config="{config}"' if config else ""
    lines.append(f'  ROOT r = {results} custom-call({names}), custom_call_target="{target}"{given}')
    return evaluate(parse("HloModule m\n\nENTRY e {\n" + "\n".join(lines) + "\n}\n"), list(inputs))


@pytest.mark.parametrize("imaginary", [False, True])
def test_qr(imaginary: bool) -> None:
    matrix, kind, letter = (MATRIX + 1j * MATRIX[::-1], "c128", "z") if imaginary else (MATRIX, "f64", "d")
    packed, factors = call(f"lapack_{letter}geqrf_ffi", f"({kind}[2,4,3], {kind}[2,3])", matrix)
    orgqr = f"lapack_{letter}{'un' if imaginary else 'or'}gqr_ffi"
    (q,) = call(orgqr, f"{kind}[2,4,3]", packed, factors)
    r = np.triu(packed[:, :3])
    np.testing.assert_allclose(q @ r, matrix, atol=1e-12)
    np.testing.assert_allclose(q.conj().transpose(0, 2, 1) @ q, np.broadcast_to(np.eye(3), (2, 3, 3)), atol=1e-12)
    whole, reduced = np.linalg.qr(matrix[0])
    np.testing.assert_allclose(q[0], whole, atol=1e-12)
    np.testing.assert_allclose(r[0], reduced, atol=1e-12)


def test_lu() -> None:
    packed, pivots, state = call("lapack_dgetrf_ffi", "(f64[2,4,4], s32[2,4], s32[2])", SQUARE)
    (order,) = call("cu_lu_pivots_to_permutation", "s32[2,4]", pivots - 1)
    lower, upper = np.tril(packed, -1) + np.eye(4), np.triu(packed)
    np.testing.assert_allclose(lower @ upper, np.take_along_axis(SQUARE, order[..., None], 1), atol=1e-12)
    assert np.abs(np.tril(packed, -1)).max() <= 1 and state.tolist() == [0, 0]
    assert call("lapack_dgetrf_ffi", "(f64[2,2], s32[2], s32[])", np.array([[1.0, 2.0], [2.0, 4.0]]))[2] == 2


@pytest.mark.parametrize(("letter", "number"), [("L", 76), ("U", 85)])
def test_cholesky(letter: str, number: int) -> None:
    positive = SQUARE @ SQUARE.transpose(0, 2, 1)
    factor, state = call("lapack_dpotrf_ffi", "(f64[2,4,4], s32[2])", positive, config=f"{{uplo = {number} : ui8}}")
    half = np.tril(factor) if letter == "L" else np.triu(factor).transpose(0, 2, 1)
    np.testing.assert_allclose(half @ half.transpose(0, 2, 1), positive, atol=1e-12)
    rest = (np.triu if letter == "L" else np.tril)(factor, 1 if letter == "L" else -1)
    assert np.array_equal(rest, (np.triu if letter == "L" else np.tril)(positive, 1 if letter == "L" else -1))
    bad = np.diag([1.0, -1.0, 1.0])
    assert call("lapack_dpotrf_ffi", "(f64[3,3], s32[])", bad)[1] == 2 and state.tolist() == [0, 0]


def test_eigenvalues_and_singular_values() -> None:
    symmetric = SQUARE + SQUARE.transpose(0, 2, 1)
    vectors, eigenvalues, state = call("lapack_dsyevd_ffi", "(f64[2,4,4], f64[2,4], s32[2])", symmetric)
    np.testing.assert_allclose(symmetric @ vectors, vectors * eigenvalues[:, None], atol=1e-12)
    assert (np.diff(eigenvalues) >= 0).all() and state.tolist() == [0, 0]
    results = "(f64[2,4,3], f64[2,3], f64[2,4,3], f64[2,3,3], s32[2])"
    _, singular, u, v, _ = call("lapack_dgesdd_ffi", results, MATRIX)
    np.testing.assert_allclose(u * singular[:, None] @ v, MATRIX, atol=1e-12)


def test_xlas_own_qr_inverts(family: Any) -> None:
    q_and_r, factors = call("Qr", "(f32[4,4], f32[4])", SQUARE[0].astype(np.float32))
    (q,) = call("ProductOfElementaryHouseholderReflectors", "f32[4,4]", q_and_r, factors)
    np.testing.assert_allclose(q @ np.triu(q_and_r), SQUARE[0], atol=1e-5)
