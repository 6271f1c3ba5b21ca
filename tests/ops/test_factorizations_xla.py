"""Factorizations as JAX writes them for the CPU, evaluated here and run by XLA:CPU on LAPACK."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hlo_opt
from hlo_opt.ops.custom_calls.targets import find_custom_call

jax = pytest.importorskip("jax")
linalg = pytest.importorskip("jax._src.lax.linalg")

TYPES = ("float32", "float64", "complex64", "complex128")
SOME = ("float32", "complex128")
"""Each routine is one function for all types: a real and a complex one show what it does."""


def draw(dtype: str, *shape: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    value = generator.normal(size=shape) + (1j * generator.normal(size=shape) if "complex" in dtype else 0)
    return np.asarray(value).astype(dtype)


def symmetric(dtype: str, *shape: int) -> np.ndarray:
    value = draw(dtype, *shape)
    return value + np.conj(np.swapaxes(value, -1, -2))


def positive(dtype: str, *shape: int) -> np.ndarray:
    value = draw(dtype, *shape)
    return value @ np.conj(np.swapaxes(value, -1, -2)) + np.eye(shape[-1], dtype=dtype)


def triangular(dtype: str, *shape: int) -> np.ndarray:
    return draw(dtype, *shape) + 4 * np.eye(shape[-1], dtype=dtype)


def both(function: Callable[..., Any], *inputs: np.ndarray, wanted: str) -> tuple[list[Any], list[Any]]:
    """What we give and what XLA:CPU gives; the module must call the wanted target, so that the test is about it."""
    with jax.enable_x64(True):
        compiled = jax.jit(function)
        text = compiled.lower(*inputs).compiler_ir(dialect="hlo").as_hlo_text()
        expected = [np.asarray(leaf) for leaf in jax.tree.leaves(compiled(*inputs))]
    assert f'"lapack_{letter(inputs[0])}{wanted}_ffi"' in text
    return hlo_opt.evaluate(hlo_opt.parse(text), list(inputs)), expected


def letter(value: np.ndarray) -> str:
    return dict(zip(TYPES, "sdcz", strict=True))[value.dtype.name]


def close(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == theirs.dtype
        tolerance = 2e-4 if theirs.dtype.itemsize <= 8 and theirs.dtype in (np.float32, np.complex64) else 1e-9
        np.testing.assert_allclose(ours, theirs, tolerance, tolerance)


def unitary(dtype: str) -> str:
    return "un" if "complex" in dtype else "or"


def householder(dtype: str) -> str:
    return "he" if "complex" in dtype else "sy"


CASES: dict[str, tuple[Callable[..., Any], Callable[[str], tuple[np.ndarray, ...]], str]] = {
    "qr": (linalg.geqrf, lambda t: (draw(t, 2, 5, 3),), "geqrf"),
    "wide qr": (linalg.geqrf, lambda t: (draw(t, 3, 5),), "geqrf"),
    "q": (
        lambda a: linalg.householder_product(*linalg.geqrf(a)),
        lambda t: (draw(t, 2, 5, 3),),
        "{unitary}gqr",
    ),
    "pivoted qr": (
        lambda a: linalg.geqp3(a, np.zeros((2, 4), np.int32)),
        lambda t: (draw(t, 2, 5, 4),),
        "geqp3",
    ),
    "cholesky": (linalg.cholesky, lambda t: (positive(t, 2, 4, 4),), "potrf"),
    "lu": (linalg.lu, lambda t: (draw(t, 2, 4, 4),), "getrf"),
    "tall lu": (linalg.lu, lambda t: (draw(t, 5, 3),), "getrf"),
    "hessenberg": (linalg.hessenberg, lambda t: (draw(t, 2, 5, 5),), "gehrd"),
    "tridiagonal": (linalg.tridiagonal, lambda t: (symmetric(t, 2, 5, 5),), "{householder}trd"),
    "upper tridiagonal": (
        lambda a: linalg.tridiagonal(a, lower=False),
        lambda t: (symmetric(t, 5, 5),),
        "{householder}trd",
    ),
    "singular values": (
        lambda a: linalg.svd(a, compute_uv=False),
        lambda t: (draw(t, 2, 4, 3),),
        "gesdd",
    ),
    "eigenvalues": (
        lambda a: linalg.eigh(a)[1],
        lambda t: (symmetric(t, 2, 4, 4),),
        "{householder}evd",
    ),
    "triangular solve": (
        lambda a, b: linalg.triangular_solve(a, b, left_side=False, lower=True, transpose_a=True, conjugate_a=True),
        lambda t: (triangular(t, 3, 3), draw(t, 4, 3, seed=1)),
        "trsm",
    ),
    "unit triangular solve": (
        lambda a, b: linalg.triangular_solve(a, b, left_side=True, unit_diagonal=True),
        lambda t: (triangular(t, 2, 3, 3), draw(t, 2, 3, 2, seed=1)),
        "trsm",
    ),
}


@pytest.mark.parametrize("dtype", SOME)
@pytest.mark.parametrize("case", CASES)
def test_against_lapack(case: str, dtype: str) -> None:
    function, inputs, target = CASES[case]
    close(*both(function, *inputs(dtype), wanted=target.format(unitary=unitary(dtype), householder=householder(dtype))))


@pytest.mark.parametrize("dtype", SOME)
@pytest.mark.parametrize("sides", [(True, False), (True, True), (False, False), (False, True)])
def test_products_with_q(sides: tuple[bool, bool], dtype: str) -> None:
    left, turned = sides
    with jax.enable_x64(True):
        a, factors = (np.asarray(part) for part in jax.jit(linalg.geqrf)(draw(dtype, 4, 4)))
    c = draw(dtype, *((4, 3) if left else (3, 4)), seed=1)
    found, expected = both(
        lambda a, factors, c: linalg.ormqr(a, factors, c, left=left, transpose=turned),
        *(a, factors, c),
        wanted=f"{unitary(dtype)}mqr",
    )
    close(found, expected)


@pytest.mark.parametrize("dtype", SOME)
@pytest.mark.parametrize("middle", [4.0, 0.1], ids=["dominant", "pivots"])
def test_tridiagonal_systems(middle: float, dtype: str) -> None:
    lower, upper = draw(dtype, 2, 5), draw(dtype, 2, 5, seed=1)
    diagonal, right = draw(dtype, 2, 5, seed=2) * 0.1 + np.asarray(middle, dtype), draw(dtype, 2, 5, 3, seed=3)
    close(*both(linalg.tridiagonal_solve, lower, diagonal, upper, right, wanted="gtsv"))


@pytest.mark.parametrize("dtype", SOME)
def test_eigenvectors_fit_their_values(dtype: str) -> None:
    """They are determined up to a factor, so that they are checked by what they promise."""
    matrix = draw(dtype, 4, 4)
    (w, left, right), expected = both(lambda a: linalg.eig(a), matrix, wanted="geev")
    tolerance = 1e-4 if dtype in ("float32", "complex64") else 1e-10
    np.testing.assert_allclose(np.sort_complex(w), np.sort_complex(expected[0]), tolerance, tolerance)
    np.testing.assert_allclose(matrix @ right, right * w, 1e-3, tolerance)
    np.testing.assert_allclose(left.conj().T @ matrix, w[:, None] * left.conj().T, 1e-3, tolerance)
    for ours, theirs in ((left, expected[1]), (right, expected[2])):
        np.testing.assert_allclose(np.linalg.norm(ours, axis=0), 1, 1e-5)
        np.testing.assert_allclose(np.abs(ours), np.abs(theirs), 1e-3, 1e-4)


@pytest.mark.parametrize("dtype", SOME)
@pytest.mark.parametrize("whole", [True, False])
def test_singular_vectors_fit_their_values(whole: bool, dtype: str) -> None:
    matrix = draw(dtype, 2, 5, 3)
    function = lambda a: linalg.svd(a, full_matrices=whole)  # noqa: E731
    (u, singular, v), expected = both(function, matrix, wanted="gesdd")
    assert [u.shape, v.shape] == [expected[0].shape, expected[2].shape]
    np.testing.assert_allclose((u[..., :3] * singular[:, None]) @ v, matrix, 1e-4, 1e-5)
    np.testing.assert_allclose(
        np.conj(np.swapaxes(u, -1, -2)) @ u, np.broadcast_to(np.eye(u.shape[-1]), (2, *u.shape[-1:] * 2)), 0, 1e-5
    )


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_the_other_types(dtype: str) -> None:
    """Three routines in one module: LU, Householder's reflections and their product."""
    close(
        *both(
            lambda a: (*linalg.lu(a), linalg.householder_product(*linalg.geqrf(a))),
            draw(dtype, 2, 4, 4),
            wanted="getrf",
        )
    )


def test_every_routine_of_lapack_that_jaxlib_has_is_known_or_named_here() -> None:
    lapack = pytest.importorskip("jaxlib.cpu._lapack")
    unknown = {name for name in lapack.registrations() if find_custom_call(name) is None}
    assert unknown == {*(f"lapack_{kind}gees_ffi" for kind in "sdcz"), "tridiagonal_solve_perturbed_ffi"}
