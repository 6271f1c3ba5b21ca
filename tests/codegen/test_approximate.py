"""Cheaper functions on a GPU: which results they are for, how far they may be off, and that the host and precise kernels have the functions themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hlo_opt.codegen.device_code import helpers
from hlo_opt.codegen.options import compile_options
from hlo_opt.ir import ELEMENT_TYPES
from hlo_opt.ops import find, table

ROUNDED_AWAY = {"bf16": 2.0**15, "f16": 2.0**12}
"""ULP of f32 in half an ULP of the type."""
FUNCTIONS = {
    ("tanh", "bf16"): "tanh.approx.f32",
    ("exponential", "bf16"): "ex2.approx.ftz.f32",
    ("exponential", "f16"): "ex2.approx.ftz.f32",
    ("log", "bf16"): "lg2.approx.f32",
    ("logistic", "bf16"): "ex2.approx.ftz.f32",
    ("rsqrt", "f32"): "rsqrt.approx.f32",
}


@pytest.mark.parametrize("element_type", ROUNDED_AWAY)
def test_what_they_are_off_is_below_half_an_ulp(element_type: str) -> None:
    for spec in table():
        kind = ELEMENT_TYPES[element_type]
        if spec.tolerance is not None and kind in spec.element_types:
            assert spec.ulp(kind, precise=False) - spec.ulp(kind) < ROUNDED_AWAY[element_type], spec.opcode


def test_wider_types_have_the_functions_themselves() -> None:
    for opcode in ("tanh", "exponential", "log"):
        spec = find(opcode)
        assert spec is not None
        for name in ("f32", "f64"):
            assert spec.ulp(ELEMENT_TYPES[name]) == spec.ulp(ELEMENT_TYPES[name], precise=False)


@pytest.mark.parametrize(("opcode", "element_type"), FUNCTIONS)
@pytest.mark.parametrize("precise", [False, True])
def test_what_nvrtc_makes_of_them(opcode: str, element_type: str, precise: bool, tool: Any) -> None:
    pytest.importorskip("cupy")
    from cupy.cuda import nvrtc

    shape = f"{element_type}[512]{{0}}"
    made = tool.kernel(f"HloModule m\nENTRY e {{\n  x = {shape} parameter(0)\n  ROOT r = {shape} {opcode}(x)\n}}\n")
    program = nvrtc.createProgram(made.source, "k.cu", (), ())
    nvrtc.compileProgram(program, ("-arch=compute_90", *compile_options(precise=precise)))
    text = nvrtc.getPTX(program)
    text = text.decode() if isinstance(text, bytes) else text
    wanted = FUNCTIONS[opcode, element_type]
    if opcode in ("tanh", "log", "rsqrt"):
        assert (wanted in text) is not precise
    elif precise:  # expf scales its argument with fused multiply-adds
        assert "fma.rn" in text
    else:
        assert wanted in text and "fma.rn" not in text


@pytest.mark.parametrize(("opcode", "element_type"), FUNCTIONS)
def test_the_host_has_the_functions_themselves(opcode: str, element_type: str, tool: Any) -> None:
    shape = f"{element_type}[512]{{0}}"
    text = f"HloModule m\nENTRY e {{\n  x = {shape} parameter(0)\n  ROOT r = {shape} {opcode}(x)\n}}\n"
    dtype = ELEMENT_TYPES[element_type].dtype
    x = np.exp(np.random.default_rng(0).uniform(-3, 2, 512)).astype(dtype)
    tool.agrees(text, inputs=[x], relative=2e-6 if element_type == "f32" else 1e-2)


def test_a_helper_stands_alone() -> None:
    assert "hlo_bit_cast" not in helpers(["hlo_tanh_bf16"]) and "HLO_PTX_1" in helpers(["hlo_tanh_bf16"])


@pytest.mark.parametrize("opcode", ["maximum", "minimum", "negate", "abs", "select", "clamp", "copy"])
def test_one_of_the_operands_is_not_rounded_again(opcode: str, tool: Any) -> None:
    operands = {"select": "p, x, y", "clamp": "x, y, x", "maximum": "x, y", "minimum": "x, y"}.get(opcode, "x")

    def source(kind: str) -> str:
        shape = f"{kind}[512]{{0}}"
        body = f"  p = pred[512]{{0}} parameter(0)\n  x = {shape} parameter(1)\n  y = {shape} parameter(2)\n"
        return str(tool.kernel(f"HloModule m\nENTRY e {{\n{body}  ROOT r = {shape} {opcode}({operands})\n}}\n").source)

    assert "hlo_round_" not in source("bf16") and "hlo_round_" not in source("f16")
    assert "hlo_round_f8e4m3fnuz" in source("f8e4m3fnuz")  # which has no -0
