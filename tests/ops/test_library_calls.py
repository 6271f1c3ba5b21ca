"""Matrix products as cuBLAS does them, with their epilogues."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from hlo_opt import EvaluationError, evaluate, parse
from hlo_opt.ops.shapes import flops_of

GENERATOR = np.random.default_rng(0)
A, B, C = (GENERATOR.normal(size=s).astype(np.float32) for s in ((3, 4), (4, 5), (3, 5)))
BIAS = np.linspace(-1, 1, 5, dtype=np.float32)
PRODUCT = A.astype(np.float64) @ B


def gemm(config: str, results: str, *inputs: np.ndarray, target: str = "__cublas$lt$matmul") -> list[np.ndarray]:
    lines = [f"  p{k} = f32[{','.join(map(str, a.shape))}] parameter({k})" for k, a in enumerate(inputs)]
    names = ", ".join(f"p{k}" for k in range(len(inputs)))
    lines.append(f'  ROOT r = {results} custom-call({names}), custom_call_target="{target}", backend_config={config}')
    return evaluate(parse("HloModule m\n\nENTRY e {\n" + "\n".join(lines) + "\n}\n"), list(inputs))


NUMBERS = '"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}'


def config(rest: str) -> str:
    return f'{{"gemm_backend_config":{{{NUMBERS}{rest}}}}}'


def test_alpha_beta_and_workspace() -> None:
    out, workspace = gemm(config(',"alpha_real":2,"beta":0.5'), "(f32[3,5], s8[16])", A, B, C, target="__cublas$gemm")
    np.testing.assert_allclose(out, 2 * PRODUCT + 0.5 * C, 1e-6)
    assert workspace.shape == (16,)


@pytest.mark.parametrize(
    ("epilogue", "expected"),
    [
        ("DEFAULT", PRODUCT),
        ("RELU", np.maximum(PRODUCT, 0)),
        ("SILU", PRODUCT / (1 + np.exp(-PRODUCT))),
        ("BIAS", PRODUCT + BIAS),
        ("BIAS_RELU", np.maximum(PRODUCT + BIAS, 0)),
        ("GELU", PRODUCT * 0.5 * (1 + np.vectorize(math.erf)(PRODUCT / math.sqrt(2)))),
    ],
)
def test_epilogues(epilogue: str, expected: np.ndarray) -> None:
    inputs = [A, B, BIAS] if epilogue.startswith("BIAS") else [A, B]
    (out,) = gemm(config(f',"epilogue":"{epilogue}"'), "f32[3,5]", *inputs)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=2e-3 if epilogue == "GELU" else 1e-6)


def test_aux_is_what_goes_into_the_activation() -> None:
    _, aux = gemm(config(',"epilogue":"BIAS_GELU_AUX"'), "(f32[3,5], f32[3,5])", A, B, BIAS)
    np.testing.assert_allclose(aux, PRODUCT + BIAS, 1e-5)


@pytest.mark.parametrize(
    ("rest", "message"),
    [(',"epilogue":"TANH"', "unknown epilogue 'TANH'"), (',"beta":1', "2 operands, expected 3")],
)
def test_what_is_not_known_is_refused(rest: str, message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        gemm(config(rest), "f32[3,5]", A, B)


def test_block_scaled_dot() -> None:
    lhs, rhs = np.ones((2, 64), np.float32), np.ones((3, 64), np.float32)
    scale = np.array([[1, 2], [3, 4]], np.float32)
    (out,) = gemm("{}", "f32[2,3]", lhs, rhs, scale, np.ones((3, 2), np.float32), target="__op$block_scaled_dot")
    assert out.tolist() == [[96.0] * 3, [224.0] * 3]


def f8(values: np.ndarray, dtype: type = ml_dtypes.float8_e4m3fn) -> np.ndarray:
    return values.astype(dtype)


def gemm_f8(rest: str, results: str, *inputs: np.ndarray) -> list[np.ndarray]:
    kinds = {"float32": "f32", "float8_e4m3fn": "f8e4m3fn", "float8_e5m2": "f8e5m2", "bfloat16": "bf16"}
    lines = [
        f"  p{k} = {kinds[a.dtype.name]}[{','.join(map(str, a.shape))}] parameter({k})" for k, a in enumerate(inputs)
    ]
    names = ", ".join(f"p{k}" for k in range(len(inputs)))
    target = '"__cublas$lt$matmul$f8"'
    lines.append(
        f"  ROOT r = {results} custom-call({names}), custom_call_target={target}, backend_config={config(rest)}"
    )
    return evaluate(parse("HloModule m\n\nENTRY e {\n" + "\n".join(lines) + "\n}\n"), list(inputs))


SCALES = np.float32(3.0), np.float32(0.5)
F8_PRODUCT = 1.5 * f8(A).astype(np.float64) @ f8(B, ml_dtypes.float8_e5m2).astype(np.float64)


def test_f8_products_are_scaled() -> None:
    sides = f8(A), f8(B, ml_dtypes.float8_e5m2)
    (out,) = gemm_f8("", "f32[3,5]", *sides, *SCALES)
    np.testing.assert_allclose(out, F8_PRODUCT, 1e-6)
    (out,) = gemm_f8(',"beta":2,"epilogue":"BIAS_RELU"', "f32[3,5]", *sides, C, *SCALES, BIAS)
    np.testing.assert_allclose(out, np.maximum(F8_PRODUCT + 2 * C + BIAS, 0), 1e-5, 1e-6)


def test_f8_results_are_scaled_and_saturate_and_the_greatest_is_told() -> None:
    sides = f8(A), f8(B, ml_dtypes.float8_e5m2)
    results = "(f8e4m3fn[3,5], f32[], s8[32])"
    out, greatest, _ = gemm_f8(',"damax_output":true', results, *sides, *SCALES, np.float32(4))
    assert greatest == np.float32(np.abs(F8_PRODUCT).max())
    assert np.array_equal(out.astype(np.float32), f8(4 * F8_PRODUCT).astype(np.float32))
    (out, _) = gemm_f8("", "(f8e4m3fn[3,5], s8[32])", *sides, *SCALES, np.float32(1e6))
    assert set(np.abs(out.astype(np.float32)).ravel()) == {448.0}, "as far as the type reaches, not NaN"


def test_f8_scales_are_scalars() -> None:
    with pytest.raises(EvaluationError, match="is not a scalar"):
        gemm_f8("", "f32[3,5]", f8(A), f8(B), np.ones(3, np.float32), SCALES[1])
    with pytest.raises(EvaluationError, match="2 operands, expected 4"):
        gemm_f8("", "f32[3,5]", f8(A), f8(B))


@pytest.mark.parametrize("adjoint", ["NO_TRANSPOSE", "TRANSPOSE"])
@pytest.mark.parametrize("left", [True, False])
def test_triangular_solve(left: bool, adjoint: str) -> None:
    a = (np.tril(GENERATOR.normal(size=(4, 4))) + 4 * np.eye(4)).astype(np.float32)
    b = B if left else A
    given = f'{{"left_side":{str(left).lower()},"lower":true,"unit_diagonal":false,"transpose_a":"{adjoint}"}}'
    shape = "f32[4,5]" if left else "f32[3,4]"
    x, _ = gemm(given, f"({shape}, s8[8])", a, b, target="__cublas$triangularSolve")
    matrix = a.T if adjoint == "TRANSPOSE" else a
    np.testing.assert_allclose(matrix @ x if left else x @ matrix, b, 1e-5, 1e-5)


def test_dequantize() -> None:
    scale = np.array([[1, 2], [3, 4]], np.float32)
    (out,) = gemm("{}", "f32[2,4]", np.ones((2, 4), np.float32), scale, target="__op$dequantize")
    assert out.tolist() == [[1, 1, 2, 2], [3, 3, 4, 4]]


def test_flops_of_a_product() -> None:
    lines = (
        "  p = f32[2,3,4] parameter(0)\n  q = f32[2,4,5] parameter(1)\n  ROOT r = (f32[2,3,5], s8[1]) custom-call(p, "
        'q), custom_call_target="__cublas$gemm", '
    )
    numbers = '"lhs_batch_dimensions":["0"],"lhs_contracting_dimensions":["2"]'
    text = f'HloModule m\nENTRY e {{\n{lines}backend_config={{"gemm_backend_config":{{"dot_dimension_numbers":{{{numbers}}}}}}}\n}}\n'
    assert flops_of(parse(text).entry.root) == 2 * 2 * 3 * 4 * 5
