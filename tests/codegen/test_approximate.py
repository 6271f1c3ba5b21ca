"""Cheaper functions on a GPU: which results they are for, how far they may be off, and that the host and precise
kernels have the functions themselves."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hlo_opt.codegen.device_code import helpers
from hlo_opt.codegen.options import compile_options
from hlo_opt.ir import ELEMENT_TYPES
from hlo_opt.ops import find, table
from hlo_opt.runtime.host.library import find_compiler, has_compiler
from tests.codegen.conftest import Array

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
def test_what_nvrtc_makes_of_them(opcode: str, element_type: str, precise: bool, planner: Any) -> None:
    pytest.importorskip("cupy")
    from cupy.cuda import nvrtc

    shape = f"{element_type}[512]{{0}}"
    made = planner.kernel(f"HloModule m\nENTRY e {{\n  x = {shape} parameter(0)\n  ROOT r = {shape} {opcode}(x)\n}}\n")
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
def test_one_of_the_operands_is_not_rounded_again(opcode: str, planner: Any) -> None:
    operands = {"select": "p, x, y", "clamp": "x, y, x", "maximum": "x, y", "minimum": "x, y"}.get(opcode, "x")

    def source(kind: str) -> str:
        shape = f"{kind}[512]{{0}}"
        body = f"  p = pred[512]{{0}} parameter(0)\n  x = {shape} parameter(1)\n  y = {shape} parameter(2)\n"
        return str(
            planner.kernel(f"HloModule m\nENTRY e {{\n{body}  ROOT r = {shape} {opcode}({operands})\n}}\n").source
        )

    assert "hlo_round_" not in source("bf16") and "hlo_round_" not in source("f16")
    moves = opcode in ("select", "copy")  # which move the bits; f8e4m3fnuz has no -0
    assert ("hlo_round_f8e4m3fnuz" in source("f8e4m3fnuz")) is not moves


_CODE = """#include <math.h>
#define __CUDA_ARCH__ 900
#define __device__
#define __forceinline__ inline
static float flushed(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x; }
static float ptx(const char* name, float x) {
  x = flushed(x);
  return flushed(name[0] == 'r' ? 1.0f / x : (float)exp2((double)x));
}
#define HLO_PTX_1(name, result, of_result, a, of_a) result = ptx(name, a)
#define HLO_PTX_2(...)
#define HLO_PTX_3(...)
#define HLO_PTX_JOIN(...)
#define HLO_PTX_SPLIT(...)
"""


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_narrow_division_and_exponential_are_right_at_all_sizes(name: str, tmp_path: Path) -> None:
    """With instructions that flush what is no normal number: of all numbers, and divided by those that have no normal
    reciprocal."""
    text = _CODE + helpers(["hlo_divide_narrow", "hlo_exp_narrow"])
    text += 'extern "C" float quotient(float a, float b) { return hlo_divide_narrow(a, b); }\n'
    text += 'extern "C" float power(float x) { return hlo_exp_narrow(x); }\n'
    (tmp_path / "k.cpp").write_text(text)
    command = [
        *find_compiler(),
        "-O1",
        "-ffp-contract=off",
        "-shared",
        "-fPIC",
        str(tmp_path / "k.cpp"),
        "-o",
        str(tmp_path / "k.so"),
    ]
    subprocess.run(command, check=True, capture_output=True)
    library = ctypes.CDLL(str(tmp_path / "k.so"))
    for function, count in ((library.quotient, 2), (library.power, 1)):
        function.restype, function.argtypes = ctypes.c_float, [ctypes.c_float] * count
    kind = ELEMENT_TYPES[{"bfloat16": "bf16", "float16": "f16"}[name]].dtype
    every = np.arange(1 << 16, dtype=np.uint16).view(kind).astype(np.float32)
    with np.errstate(all="ignore"):
        _near([library.power(x) for x in every], np.exp(every.astype(np.float64)), kind)
        some = every[:: 611 if name == "bfloat16" else 409]
        pairs = [(a, b) for a in some for b in some]
        quotients = [np.float64(a) / np.float64(b) for a, b in pairs]
        _near([library.quotient(a, b) for a, b in pairs], np.array(quotients), kind)


def _near(got: list[float], want: Array, kind: np.dtype[Any]) -> None:
    """Rounded, they are the same, or neighbours where the number is about between two."""
    one, other = np.array(got, np.float32).astype(kind), want.astype(np.float32).astype(kind)
    nan = np.isnan(other.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(one.astype(np.float32)), nan)
    bits = [x[~nan].view(np.int16).astype(np.int32) for x in (one, other)]
    apart = np.abs(bits[0] - bits[1])
    assert apart.max() <= 1 and np.count_nonzero(apart) <= 1e-3 * len(apart)
