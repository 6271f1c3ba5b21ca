"""Matrix products as cuBLAS does them, with their epilogues."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hlo_opt import EvaluationError, evaluate, parse

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
    ("rest", "message"), [(',"epilogue":"TANH"', "epilogue 'TANH' is not known"), (',"beta":1', "2 operands for beta")]
)
def test_what_is_not_known_is_refused(rest: str, message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        gemm(config(rest), "f32[3,5]", A, B)


def test_block_scaled_dot() -> None:
    lhs, rhs = np.ones((2, 64), np.float32), np.ones((3, 64), np.float32)
    scale = np.array([[1, 2], [3, 4]], np.float32)
    (out,) = gemm("{}", "f32[2,3]", lhs, rhs, scale, np.ones((3, 2), np.float32), target="__op$block_scaled_dot")
    assert out.tolist() == [[96.0] * 3, [224.0] * 3]
