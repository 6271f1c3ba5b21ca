"""cholesky, triangular-solve, fft and the batch normalisations."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import hlo_opt

FFTS = [
    "c64[3,8] fft(c64[3,8]), fft_type=FFT, fft_length={8}",
    "c64[4,6] fft(c64[4,6]), fft_type=IFFT, fft_length={4,6}",
    "c64[3,5] fft(f32[3,8]), fft_type=RFFT, fft_length={8}",
    "f32[3,8] fft(c64[3,5]), fft_type=IRFFT, fft_length={8}",
    "c128[8] fft(c128[8]), fft_type=FFT, fft_length={8}",
]
NORMS = [
    "(f32[4,3,5], f32[3], f32[3]) batch-norm-training(f32[4,3,5], f32[3], f32[3]), epsilon=0.001, feature_index=1",
    "f32[4,3] batch-norm-inference(f32[4,3], f32[3], f32[3], f32[3], f32[3]), epsilon=20, feature_index=1",
    "(f32[4,3], f32[3], f32[3]) batch-norm-grad(f32[4,3], f32[3], f32[3], f32[3], f32[4,3]), epsilon=20, "
    "feature_index=1",
]


@pytest.mark.parametrize("text", [*FFTS, *NORMS])
def test_shapes(family: Any, text: str) -> None:
    family.infers(text)


def test_xla_agrees(family: Any) -> None:
    family.agrees_with_xla([*FFTS, *NORMS], tolerance=1e-4)


def spd(n: int, batch: int) -> np.ndarray[Any, Any]:
    """Symmetric positive definite matrices."""
    a = np.random.default_rng(n).normal(size=(batch, n, n))
    return (a @ np.swapaxes(a, 1, 2) + n * np.eye(n)).astype(np.float32)


@pytest.mark.parametrize("lower", [True, False])
def test_cholesky_reads_one_triangle_and_clears_the_other(family: Any, lower: bool) -> None:
    value = spd(5, 2)
    dirty = np.tril(value) + 9 * np.triu(value, 1) if lower else np.triu(value) + 9 * np.tril(value, -1)
    (got,) = family.run(f"f32[2,5,5] cholesky(f32[2,5,5]), lower={str(lower).lower()}", dirty.astype(np.float32))
    product = got @ np.swapaxes(got, 1, 2) if lower else np.swapaxes(got, 1, 2) @ got
    np.testing.assert_allclose(product, value, 1e-4)
    assert not (np.triu(got, 1) if lower else np.tril(got, -1)).any()


def test_cholesky_of_an_indefinite_matrix_is_nan_for_that_one_only(family: Any) -> None:
    odd = np.array([[1, 0], [np.nan, 1]])
    for values in ([np.eye(2), -np.eye(2)], [np.eye(2), odd]):
        value = np.stack(values).astype(np.float32)
        (got,) = family.run("f32[2,2,2] cholesky(f32[2,2,2]), lower=true", value)
        assert np.array_equal(got[0], np.eye(2)) and np.isnan(got[1]).all()


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("transpose", ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
@pytest.mark.parametrize("unit", [True, False])
def test_triangular_solve(family: Any, left: bool, lower: bool, transpose: str, unit: bool) -> None:
    generator = np.random.default_rng(0)
    a = (generator.normal(size=(2, 4, 4)) + 1j * generator.normal(size=(2, 4, 4)) + 4 * np.eye(4)).astype(np.complex64)
    b = generator.normal(size=(2, 4, 3) if left else (2, 3, 4)).astype(np.complex64)
    shape = f"c64[{','.join(map(str, b.shape))}]"
    attributes = f"left_side={str(left).lower()}, lower={str(lower).lower()}, unit_diagonal={str(unit).lower()}"
    (x,) = family.run(f"{shape} triangular-solve(c64[2,4,4], {shape}), {attributes}, transpose_a={transpose}", a, b)
    used = np.tril(a) if lower else np.triu(a)
    if unit:
        used = used - used * np.eye(4) + np.eye(4)
    if transpose != "NO_TRANSPOSE":
        used = np.swapaxes(used, 1, 2)
        used = np.conj(used) if transpose == "ADJOINT" else used
    np.testing.assert_allclose(used @ x if left else x @ used, b, 1e-3, 1e-3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("f32[2,3] cholesky(f32[2,3])", "square"),
        ("s32[2,2] cholesky(s32[2,2])", "takes float"),
        ("f32[2,3] triangular-solve(f32[3,3], f32[2,3]), left_side=true", "does not fit"),
        ("c64[8] fft(f32[8]), fft_type=FFT, fft_length={8}", "FFT of f32"),
        ("c64[8] fft(c64[8]), fft_type=DCT, fft_length={8}", "not one of"),
        (NORMS[1].replace("feature_index=1", "feature_index=2"), "is not a dimension"),
        (NORMS[0].replace("(f32[4,3,5], f32[3], f32[3]),", "(f32[4,3,5], f32[3], f32[4]),"), "expected"),
    ],
)
def test_refused(family: Any, text: str, message: str) -> None:
    family.refuses(text, message)


@pytest.mark.parametrize(("kind", "size", "length"), [("FFT", 33, 32), ("IFFT", 8, 16)])
def test_a_complex_transform_of_another_length_than_its_input_has_is_an_error(
    kind: str, size: int, length: int
) -> None:
    text = (
        f"HloModule m\nENTRY e {{\n  p = c64[2,{size}] parameter(0)\n"
        f"  ROOT f = c64[2,{size}] fft(p), fft_type={kind}, fft_length={{{length}}}\n}}\n"
    )
    module = hlo_opt.parse(text)
    wanted = re.escape(f"fft_length={{{length}}} over dimensions of sizes {size}")
    for run in (hlo_opt.evaluate, lambda m, inputs: hlo_opt.compile(m, "numpy")(*inputs)):
        with pytest.raises(hlo_opt.EvaluationError, match=wanted):
            run(module, [np.zeros((2, size), np.complex64)])


@pytest.mark.parametrize(("sizes", "lengths"), [("1,0", "1"), ("1,1", "0,1")])
def test_a_transform_of_nothing_is_zeros(sizes: str, lengths: str) -> None:
    text = f"HloModule m\nENTRY e {{\n  p = c64[{sizes}] parameter(0)\n  ROOT f = c64[{sizes}] fft(p), fft_type=FFT, fft_length={{{lengths}}}\n}}\n"
    shape = tuple(map(int, sizes.split(",")))
    (made,) = hlo_opt.evaluate(hlo_opt.parse(text), [np.ones(shape, np.complex64)])
    assert made.shape == shape and not made.any()
