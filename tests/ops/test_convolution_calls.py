"""cuDNN's convolutions: forward against XLA:CPU, gradients against JAX's own, epilogues against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hlo_opt import EvaluationError, evaluate, parse
from hlo_opt.ops.shapes import flops_of

KINDS = {"float32": "f32", "float64": "f64", "float16": "f16", "int8": "s8", "int32": "s32"}


def typed(value: Any) -> str:
    return f"{KINDS[value.dtype.name]}[{','.join(map(str, value.shape))}]"


def module(target: str, result: str, attributes: str, *inputs: np.ndarray) -> Any:
    lines = [f"  p{k} = {typed(a)} parameter({k})" for k, a in enumerate(inputs)]
    names = ", ".join(f"p{k}" for k in range(len(inputs)))
    lines.append(f'  ROOT r = ({result}, u8[0]) custom-call({names}), custom_call_target="{target}", {attributes}')
    return parse("HloModule m\n\nENTRY e {\n" + "\n".join(lines) + "\n}\n")


def call(target: str, result: str, attributes: str, *inputs: np.ndarray) -> np.ndarray:
    out, workspace = evaluate(module(target, result, attributes, *inputs), list(inputs))
    assert workspace.shape == (0,)
    return out


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


CASES = [
    # labels, input, kernel, strides, padding, dilation, groups
    ("b01f_o01i->b01f", (2, 6, 5, 4), (3, 3, 2, 4), (1, 1), (1, 1), (1, 1), 1),
    ("b01f_01io->b01f", (2, 7, 6, 4), (3, 2, 4, 5), (2, 1), (1, 0), (1, 2), 1),
    ("bf01_oi01->bf01", (1, 6, 8, 7), (9, 2, 3, 3), (2, 3), (1, 1), (1, 1), 3),
    ("fb01_i01o->f01b", (4, 2, 6, 6), (1, 3, 3, 8), (1, 2), (0, 1), (2, 1), 4),
    ("b0f_0oi->b0f", (2, 9, 3), (4, 2, 3), (2,), (2,), (1,), 1),
]
"""In `fb01` and `f01b` feature and batch have changed places, as cuDNN's own layouts never have."""


def reference(labels: str, strides: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """The forward convolution, as JAX has it."""
    lax = pytest.importorskip("jax.lax")
    left, right = labels.split("_")
    names = left.upper(), *right.upper().split("->")
    numbers = tuple(n.replace("B", "N").replace("F", "C") for n in names)
    return lambda x, w: lax.conv_general_dilated(
        x,
        w,
        strides,
        [(p, p) for p in padding],
        rhs_dilation=dilation,
        dimension_numbers=numbers,
        feature_group_count=groups,
        precision="highest",
    )


def window(labels: str, kernel: tuple[int, ...], strides: Any, padding: Any, dilation: Any, groups: int) -> str:
    right = labels.split("_")[1].split("->")[0]
    sizes = [kernel[right.index(str(k))] for k in range(len(strides))]
    text = f"size={'x'.join(map(str, sizes))} stride={'x'.join(map(str, strides))}"
    text += f" pad={'x'.join(f'{p}_{p}' for p in padding)} rhs_dilate={'x'.join(map(str, dilation))}"
    grouped = f", feature_group_count={groups}" if groups > 1 else ""
    return f"window={{{text}}}, dim_labels={labels}{grouped}"


@pytest.mark.parametrize("case", CASES, ids=[c[0] for c in CASES])
def test_each_of_the_three_arrays_from_the_two_others(case: Any) -> None:
    jax = pytest.importorskip("jax")
    labels, source, kernel, *rest = case
    forward = reference(labels, *rest)
    x, w = draw(*source), draw(*kernel, seed=1)
    attributes = window(labels, kernel, *rest)
    expected, gradients = jax.vjp(forward, x, w)
    out = call("__cudnn$convForward", typed(expected), attributes, x, w)
    np.testing.assert_allclose(out, expected, 1e-4, 1e-4)
    dy = draw(*expected.shape, seed=2)
    dx, dw = gradients(dy)
    found = call("__cudnn$convBackwardInput", typed(x), attributes, dy, w)
    np.testing.assert_allclose(found, dx, 1e-4, 1e-4)
    found = call("__cudnn$convBackwardFilter", typed(w), attributes, x, dy)
    np.testing.assert_allclose(found, dw, 1e-4, 1e-4)


PLAIN = "window={size=1x1}, dim_labels=b01f_o01i->b01f"
X, W, BIAS, SIDE = draw(2, 3, 3, 4), draw(5, 1, 1, 4, seed=1), draw(5, seed=2), draw(2, 3, 3, 5, seed=3)
SUMS = np.einsum("byxi,oi->byxo", X.astype(np.float64), W[:, 0, 0])


@pytest.mark.parametrize(
    ("mode", "function"),
    [
        ('"kNone"', lambda v: v),
        ('"kRelu"', lambda v: np.maximum(v, 0)),
        ('"2"', lambda v: np.maximum(v, 0)),
        ('"kRelu6"', lambda v: np.clip(v, 0, 6)),
        ('"kElu"', lambda v: np.where(v > 0, v, np.expm1(v))),
        ('"kLeakyRelu"', lambda v: np.where(v > 0, v, 0.25 * v)),
        ('"kSigmoid"', lambda v: 1 / (1 + np.exp(-v))),
        ('"kTanh"', np.tanh),
    ],
)
def test_activations(mode: str, function: Any) -> None:
    config = f'{{"cudnn_conv_backend_config":{{"activation_mode":{mode},"conv_result_scale":2,"side_input_scale":0,"leakyrelu_alpha":0.25}}}}'
    target = "__cudnn$convBiasActivationForward"
    out = call(target, "f32[2,3,3,5]", f"{PLAIN}, backend_config={config}", X, W, BIAS)
    np.testing.assert_allclose(out, function(2 * SUMS + BIAS), 1e-5, 1e-5)


def test_side_input() -> None:
    config = '{"cudnn_conv_backend_config":{"activation_mode":"kRelu","conv_result_scale":1,"side_input_scale":0.5}}'
    inputs = (X, W, BIAS, SIDE)
    out = call("__cudnn$convBiasActivationForward", "f32[2,3,3,5]", f"{PLAIN}, backend_config={config}", *inputs)
    np.testing.assert_allclose(out, np.maximum(SUMS + BIAS + 0.5 * SIDE, 0), 1e-5, 1e-5)


def test_integers_add_up_exactly_and_saturate() -> None:
    x, w = np.full((1, 2, 2, 64), 127, np.int8), np.full((3, 1, 1, 64), -128, np.int8)
    assert (call("__cudnn$convForward", "s32[1,2,2,3]", PLAIN, x, w) == 64 * 127 * -128).all()
    bias = np.array([64 * 127 * 128 + 7.75, 0, 4e6], np.float32)
    out = call("__cudnn$convBiasActivationForward", "s8[1,2,2,3]", PLAIN, x, w, bias)
    assert out[0, 0, 0].tolist() == [7, -128, 127]


@pytest.mark.parametrize(
    ("target", "attributes", "inputs", "message"),
    [
        ("Forward", f'{PLAIN}, backend_config={{"conv_result_scale":2}}', (X, W), "takes no scale"),
        ("Forward", PLAIN, (X, W, BIAS), "takes 2 operands, not 3"),
        ("ForwardGraph", f'{PLAIN}, backend_config={{"serialized_graph":"1:[f32]conv();"}}', (X, W),
            "serialized graph"),
        ("Forward", f'{PLAIN}, backend_config={{"reordered_int8_nchw_vect":true}}', (X, W), "reordered filter"),
        ("Forward", "window={size=1x1 stride=2x2}, dim_labels=b01f_o01i->b01f", (X, W), "3 elements have 2 windows"),
        ("Forward", PLAIN, (X, draw(5, 1, 1, 3)), "4 features for kernels of 3"),
        ("Forward", PLAIN, (X, draw(5, 2, 1, 4)), "size 1 in spatial dimension 0, the kernel not"),
        ("Forward", PLAIN, (X, draw(6, 1, 1, 4)), r"gives f32\[2,3,3,6\], not"),
        ("Forward", f'{PLAIN}, backend_config="{{conv_result_scale:1}}"', (X, W), "backend_config is no JSON"),
        ("Forward", f'{PLAIN}, backend_config={{"conv_result_scale":"nan"}}', (X, W), "conv_result_scale is nan"),
        ("BiasActivationForward", f'{PLAIN}, backend_config={{"activation_mode":"kBandPass"}}', (X, W, BIAS),
            "kBandPass"),
        ("BiasActivationForward", f'{PLAIN}, backend_config={{"side_input_scale":1}}', (X, W, BIAS), "not an operand"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused(target: str, attributes: str, inputs: Any, message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        call(f"__cudnn$conv{target}", "f32[2,3,3,5]", attributes, *inputs)


def test_flops_are_those_of_the_forward_convolution() -> None:
    x, w, dy = draw(2, 6, 6, 4), draw(8, 3, 3, 4), draw(2, 4, 4, 8)
    attributes = "window={size=3x3}, dim_labels=b01f_o01i->b01f"
    counts = {
        flops_of(module(f"__cudnn$conv{target}", typed(result), attributes, *inputs).entry.root)
        for target, result, inputs in (
            ("Forward", dy, (x, w)),
            ("BackwardInput", x, (dy, w)),
            ("BackwardFilter", w, (x, dy)),
        )
    }
    assert counts == {2.0 * dy.size * 3 * 3 * 4}
