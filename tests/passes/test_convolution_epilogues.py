"""What follows a convolution becomes part of its call: which operations, where that saves something, and the values."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt
from hlo_opt.analysis.targets import DeviceTarget, InLanes
from hlo_opt.evaluate.inputs import module_inputs
from hlo_opt.ir import Module
from tests.small_modules import H100

X, WHOLE = "f32[2,8,8,4]{3,2,1,0}", "f32[2,8,8,6]{3,2,1,0}"
AROUND = "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"
BIAS = f"s = {WHOLE} broadcast(b), dimensions={{3}}\n  v1 = {WHOLE} add(v0, s)"
SIDE = f"v2 = {WHOLE} add(r, v1)"
RELU = f"z = f32[] constant(0)\n  zs = {WHOLE} broadcast(z), dimensions={{}}\n  v3 = {WHOLE} maximum(v2, zs)"
SQUARE = "f32[6,6,3,3]{3,2,1,0}"
NEXT = f"v4 = {WHOLE} convolution(v3, l), window={{size=3x3 pad=1_1x1_1}}, dim_labels=b01f_oi01->b01f"


def module_of(*lines: str) -> Module:
    """A convolution `v0` and lines after it, the last one the result."""
    *before, last = "\n  ".join((f"v0 = {WHOLE} convolution(x, k), {AROUND}", *lines)).split("\n  ")
    body = "\n  ".join([*before, f"ROOT {last}"])
    return hlo_opt.parse(
        f"HloModule m\nENTRY e {{\n  x = {X} parameter(0)\n  k = f32[3,3,4,6]{{3,2,1,0}} parameter(1)\n"
        f"  b = f32[6]{{0}} parameter(2)\n  r = {WHOLE} parameter(3)\n  l = {SQUARE} parameter(4)\n  {body}\n}}\n"
    )


def rewritten(module: Module, target: DeviceTarget = H100) -> Module:
    made, _ = hlo_opt.fuse(module, passes="convolution-epilogues,dce", simplify="never", target=target)
    hlo_opt.verify(made)
    return made


def without(name: str, line: str, by: str) -> str:
    """A line that reads another value, since the line before it is left out."""
    assert name in line
    return line.replace(name, by)


@pytest.mark.parametrize(
    ("lines", "operands", "config"),
    [
        ((BIAS,), 3, '"activation_mode":"kNone","conv_result_scale":1,"side_input_scale":0'),
        ((BIAS, without("v2", RELU, "v1")), 3, '"activation_mode":"kRelu","conv_result_scale":1,"side_input_scale":0'),
        ((without("v1", SIDE, "v0"),), 4, '"activation_mode":"kNone","conv_result_scale":1,"side_input_scale":1'),
        ((without("v2", RELU, "v0"),), 3, '"activation_mode":"kRelu","conv_result_scale":1,"side_input_scale":0'),
        ((BIAS, SIDE, RELU), 4, '"activation_mode":"kRelu","conv_result_scale":1,"side_input_scale":1'),
        (
            (without("v1", SIDE, "v0"), BIAS.replace("v1", "v5").replace("v0", "v2"), without("v2", RELU, "v5")),
            4,
            '"activation_mode":"kRelu","conv_result_scale":1,"side_input_scale":1',
        ),
        ((BIAS, SIDE, RELU, NEXT), 4, '"activation_mode":"kRelu","conv_result_scale":1,"side_input_scale":1'),
    ],
    ids=["bias", "bias and relu", "side", "relu", "all", "side before bias", "a convolution reads it"],
)
def test_one_call(lines: tuple[str, ...], operands: int, config: str) -> None:
    module = module_of(*lines)
    made = rewritten(module)
    calls = [i for i in made.entry.instructions if i.opcode == "custom-call"]
    assert [len(call.operands) for call in calls] == [operands] and config in str(made)
    assert not {"add", "maximum"} & {i.opcode for i in made.entry.instructions}
    inputs = module_inputs(module, seed=1)
    for got, want in zip(hlo_opt.evaluate(made, inputs), hlo_opt.evaluate(module, inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert str(rewritten(made)) == str(made)


TANH = f"t = {WHOLE} tanh(v1)"
TWICE = f"t = {WHOLE} add(v0, v0)"
OTHER_DIMENSION = BIAS.replace("broadcast(b), dimensions={3}", "broadcast(a), dimensions={1}")
SHARED = f"{BIAS}\n  t = {WHOLE} multiply(v0, v1)"
SIX = RELU.replace("constant(0)", "constant(6)").replace("v2", "v0")


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ((BIAS, TANH), "a kernel computes more of it anyway"),
        ((TWICE,), "twice the convolution is no side input"),
        (("a = f32[8]{0} slice(o), slice={[0:8]}", OTHER_DIMENSION), "the bias is not of the features"),
        ((SHARED,), "the convolution is read besides"),
        ((SIX,), "the maximum with another number"),
    ],
)
def test_what_stays(lines: tuple[str, ...], why: str) -> None:
    if "slice(o)" in lines[0]:
        lines = ("o = f32[9]{0} iota(), iota_dimension=0", *lines)
    module = module_of(*lines)
    assert "custom-call" not in str(rewritten(module)), why


def test_a_processor_keeps_its_convolution() -> None:
    assert "custom-call" not in str(rewritten(module_of(BIAS, SIDE, RELU), InLanes.of(H100)))


def test_the_default_preset_has_one_kernel_less() -> None:
    module = module_of(BIAS, SIDE, RELU)
    made, _ = hlo_opt.fuse(module, target=H100)
    assert [i.opcode for i in made.entry.instructions if i.parameter_number is None] == [
        "custom-call",
        "get-tuple-element",
    ]
    inputs = module_inputs(module, seed=1)
    (got,), (want,) = hlo_opt.compile(made, "numpy")(*inputs), hlo_opt.evaluate(module, inputs)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
