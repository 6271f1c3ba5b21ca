"""The host's own factorizations: LU, Cholesky, QR and LAPACK's triangular systems, against the NumPy evaluators."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt
from hlo_opt.runtime.host.library import has_compiler

pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")

OWN = "a factorization of the host's own (host_factorization.h)"


def called(target: str, operands: list[str], result: str, config: str = "") -> str:
    parameters = "".join(f"  p{k} = {shape} parameter({k})\n" for k, shape in enumerate(operands))
    names = ", ".join(f"p{k}" for k in range(len(operands)))
    return (
        f"HloModule m\n\nENTRY e {{\n{parameters}  ROOT r = {result} custom-call({names}), "
        f'custom_call_target="lapack_{target}_ffi", api_version=API_VERSION_TYPED_FFI, backend_config={{{config}}}\n}}\n'
    )


def agrees(text: str, *inputs: np.ndarray, tolerance: float = 2e-6, own: str = OWN) -> list[np.ndarray]:
    module = hlo_opt.parse(text)
    executable = hlo_opt.compile(module)
    given = [value.copy() for value in inputs]
    got, want = executable(*inputs), hlo_opt.evaluate(module, list(inputs))
    for value, copy in zip(inputs, given, strict=True):
        np.testing.assert_array_equal(value, copy)
    assert list(executable.report()["routines"].values()) == [[own]]
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
    return got


def drawn(kind: str, *dimensions: int) -> np.ndarray:
    dtype = np.float32 if kind == "f32" else np.float64
    return np.random.default_rng(7).standard_normal(dimensions).astype(dtype)


def positive(kind: str, *dimensions: int) -> np.ndarray:
    a = drawn(kind, *dimensions)
    result: np.ndarray = a @ np.swapaxes(a, -1, -2) + np.eye(dimensions[-1], dtype=a.dtype)
    return result


@pytest.mark.parametrize(("kind", "letter"), [("f32", "s"), ("f64", "d")])
@pytest.mark.parametrize("sizes", [(1, 1), (3, 3), (5, 3), (3, 5), (40, 40)])
@pytest.mark.parametrize("batch", [(), (7,), (2, 3)])
def test_elimination(kind: str, letter: str, sizes: tuple[int, int], batch: tuple[int, ...]) -> None:
    matrix, lead = drawn(kind, *batch, *sizes), ",".join(map(str, batch))
    shape = ",".join(map(str, (*batch, *sizes)))
    pivots = ",".join(map(str, (*batch, min(sizes))))
    result = f"({kind}[{shape}], s32[{pivots}], s32[{lead}])"
    agrees(called(f"{letter}getrf", [f"{kind}[{shape}]"], result), matrix)


def test_columns_first_and_a_batch_that_comes_last() -> None:
    text = called("sgetrf", ["f32[4,3]"], "(f32[4,3]{0,1}, s32[3], s32[])")
    agrees(text, drawn("f32", 4, 3))
    text = called("sgetrf", ["f32[5,4,3]{0,1,2}"], "(f32[5,4,3]{1,2,0}, s32[5,3]{0,1}, s32[5])")
    agrees(text, drawn("f32", 5, 4, 3))


def test_pivots_that_are_zero_or_no_number() -> None:
    text = called("dgetrf", ["f64[4,3,3]"], "(f64[4,3,3], s32[4,3], s32[4])")
    matrices = drawn("f64", 4, 3, 3)
    matrices[0], matrices[1, :, 0], matrices[2, 1, 0] = 0, 0, np.nan
    *_, state = agrees(text, matrices)
    assert state.tolist()[:2] == [1, 1] and state[3] == 0


@pytest.mark.parametrize("lower", ["true", "false"])
@pytest.mark.parametrize("size", [1, 4, 33])
def test_the_opcode_of_cholesky(lower: str, size: int) -> None:
    shape = f"f32[3,{size},{size}]"
    text = f"HloModule m\n\nENTRY e {{\n  p = {shape} parameter(0)\n  ROOT c = {shape} cholesky(p), lower={lower}\n}}\n"
    matrices = positive("f32", 3, size, size)
    at = np.triu_indices(size, 1) if lower == "true" else np.tril_indices(size, -1)
    matrices[0][at], matrices[1] = np.nan, -matrices[1]
    (got,) = agrees(text, matrices, tolerance=2e-5)
    assert np.isnan(got[1]).all() and not np.isnan(got[::2]).any()


@pytest.mark.parametrize("uplo", "LU")
def test_the_routine_of_cholesky_keeps_the_other_triangle(uplo: str) -> None:
    text = called("dpotrf", ["f64[3,5,5]"], "(f64[3,5,5], s32[3])", f"uplo = {ord(uplo)} : ui8")
    matrices = positive("f64", 3, 5, 5)
    at = np.triu_indices(5, 1) if uplo == "L" else np.tril_indices(5, -1)
    matrices[0][at], matrices[1, 2, 2] = 9.0, -1.0
    factors, state = agrees(text, matrices)
    assert state.tolist() == [0, 3, 0] and (factors[0][at] == 9.0).all()


@pytest.mark.parametrize("sizes", [(1, 1), (4, 4), (6, 3), (3, 6), (30, 20)])
def test_reflections_and_their_product(sizes: tuple[int, int]) -> None:
    rows, columns = sizes
    steps = min(sizes)
    a, f = f"f32[2,{rows},{columns}]", f"f32[2,{steps}]"
    matrix = drawn("f32", 2, *sizes)
    matrix[1, 1:, 0] = 0  # nothing to reflect
    packed, factors = agrees(called("sgeqrf", [a], f"({a}, {f})"), matrix)
    if rows >= columns:
        (q,) = agrees(called("sorgqr", [a, f], f"{a}{{1,2,0}}"), packed, factors)
        np.testing.assert_allclose(q @ np.triu(packed)[:, :columns], matrix, atol=1e-5)


@pytest.mark.parametrize("side", "LR")
@pytest.mark.parametrize("uplo", "LU")
@pytest.mark.parametrize("turned", "NT")
def test_triangular_systems_of_lapack(side: str, uplo: str, turned: str) -> None:
    config = f"diag = 78 : ui8, side = {ord(side)} : ui8, trans_x = {ord(turned)} : ui8, uplo = {ord(uplo)} : ui8"
    sides = "f32[2,6,4]" if side == "L" else "f32[2,4,6]"
    text = called("strsm", ["f32[2,6,6]", sides], sides, config)
    right = drawn("f32", *((2, 6, 4) if side == "L" else (2, 4, 6)))
    own = "a substitution of the host's own (host_substitution.h)"
    agrees(text, drawn("f32", 2, 6, 6) + 6 * np.eye(6, dtype=np.float32), right, own=own)


def test_what_is_complex_or_large_goes_to_numpy() -> None:
    text = called("zgetrf", ["c128[3,3]"], "(c128[3,3], s32[3], s32[])")
    agrees(text, drawn("f64", 3, 3) + 1j * drawn("f64", 3, 3), own="NumPy")
    text = called("dpotrf", ["f64[300,300]"], "(f64[300,300], s32[])", "uplo = 76 : ui8")
    agrees(text, positive("f64", 300, 300), own="NumPy")
