"""Custom calls to LAPACK against jaxlib's own kernels and against what they promise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hlo_opt import EvaluationError, evaluate, parse

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


@pytest.mark.parametrize("lower", ["true", "false"])
def test_gpu_spellings_of_cholesky(lower: str) -> None:
    """The other triangle is not read."""
    positive = SQUARE @ SQUARE.transpose(0, 2, 1)
    half = (np.tril if lower == "true" else np.triu)(positive)
    factor, state = call("cusolver_potrf_ffi", "(f64[2,4,4], s32[2])", half, config=f"{{lower = {lower}}}")
    factor = np.tril(factor) if lower == "true" else np.triu(factor).transpose(0, 2, 1)
    np.testing.assert_allclose(factor @ factor.transpose(0, 2, 1), positive, atol=1e-12)
    config = f'{{\\"lower\\":{lower}}}'
    made, workspace, info = call("__cusolver$cholesky", "(f64[2,4,4], f64[7], s32[2])", half, config=config)
    made = np.tril(made) if lower == "true" else np.triu(made).transpose(0, 2, 1)
    np.testing.assert_array_equal(made, factor)
    assert info.tolist() == state.tolist() == [0, 0] and workspace.shape == (7,)


@pytest.mark.parametrize("target", ["cusolver_gesvdj_ffi", "cusolver_gesvdp_ffi", "hipsolver_gesvdj_ffi"])
def test_jacobis_method_gives_v_itself(target: str) -> None:
    results = "(f64[2,4,4], f64[2,4], f64[2,4,4], f64[2,4,4], s32[2])"
    _, singular, u, v, _ = call(target, results, SQUARE)
    np.testing.assert_allclose(u * singular[:, None] @ v.transpose(0, 2, 1), SQUARE, atol=1e-12)


def test_wide_matrices_are_decomposed_transposed_on_a_gpu() -> None:
    wide = MATRIX.transpose(0, 2, 1)
    results = "(f64[2,3,4], f64[2,3], f64[2,3,4], f64[2,3,3], s32[2])"
    config = "{compute_uv = true, full_matrices = false, transposed = true}"
    _, singular, v, u, _ = call("cusolver_gesvd_ffi", results, wide, config=config)
    np.testing.assert_allclose(u * singular[:, None] @ v, wide, atol=1e-12)


def test_singular_values_alone() -> None:
    results = "(f64[2,4,3], f64[2,3], f64[], f64[], s32[2])"
    _, singular, u, _, _ = call("cusolver_gesvd_ffi", results, MATRIX, config="{compute_uv = false}")
    np.testing.assert_allclose(np.prod(singular, -1) ** 2, np.linalg.det(MATRIX.transpose(0, 2, 1) @ MATRIX))
    assert u == 0


def test_vectors_are_whole_or_cut() -> None:
    with pytest.raises(EvaluationError, match="U with 2 columns and V"):
        call("lapack_dgesdd_ffi", "(f64[4,3], f64[3], f64[4,2], f64[3,3], s32[])", MATRIX[0])


def test_tridiagonal_systems_on_a_gpu() -> None:
    lower, middle, upper = (np.random.default_rng(k).normal(size=(2, 5)) for k in range(3))
    right = np.random.default_rng(3).normal(size=(2, 5, 2))
    (x,) = call("cusparse_gtsv2_ffi", "f64[2,5,2]", lower, middle, upper, right)
    for k in range(5):
        found = middle[:, k, None] * x[:, k]
        found += lower[:, k, None] * x[:, k - 1] if k > 0 else 0
        found += upper[:, k, None] * x[:, k + 1] if k < 4 else 0
        np.testing.assert_allclose(found, right[:, k], atol=1e-9)


@pytest.mark.parametrize(("transpose", "size"), [("false", 4), ("true", 3)])
def test_symmetric_products(transpose: str, size: int) -> None:
    a, c = MATRIX, np.random.default_rng(5).normal(size=(2, size, size))
    inputs = a, c, np.float64(2), np.float64(-1)
    (made,) = call("cusolver_syrk_ffi", f"f64[2,{size},{size}]", *inputs, config=f"{{transpose = {transpose}}}")
    product = np.einsum("bij,bkj->bik", a, a) if transpose == "false" else np.einsum("bji,bjk->bik", a, a)
    np.testing.assert_allclose(made, 2 * product - c, atol=1e-12)


def test_calls_before_the_foreign_function_interface() -> None:
    packed, factors, info, work = call("cusolver_geqrf", "(f64[4,3], f64[3], s32[], f64[9])", MATRIX[0])
    (q, *_) = call("cusolver_orgqr", "(f64[4,3], s32[], f64[9])", packed, factors)
    np.testing.assert_allclose(q @ np.triu(packed[:3]), MATRIX[0], atol=1e-12)
    assert info == 0 and work.shape == (9,)


@pytest.mark.parametrize(
    ("target", "results", "inputs", "config", "message"),
    [
        ("geqp3", "(f64[4,3], s32[3], f64[3])", (MATRIX[0], np.array([1, 0, 0], np.int32)), "", "fixed at the front"),
        ("gehrd", "(f64[4,4], f64[3], s32[])", (SQUARE[0],), "{high = 3 : i32, low = 1 : i32}", "part of a matrix"),
        ("gesdd", "(f64[4,4], f64[4], f64[4,4])", (SQUARE[0],), "", "5 results, not 3"),
    ],
)
def test_what_is_not_known_is_refused(target: str, results: str, inputs: Any, config: str, message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        call(f"lapack_d{target}_ffi", results, *inputs, config=config)
