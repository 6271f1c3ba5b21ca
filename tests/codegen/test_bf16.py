"""Sums, differences and products of bf16: pairs on a GPU, rounded once."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hlo_opt
from hlo_opt.codegen.options import compile_options
from hlo_opt.runtime.executable import compile
from hlo_opt.runtime.host.library import KernelForm, has_compiler
from hlo_opt.runtime.schedule import build_schedule

MEANINGS = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply}
LEAST_NORMAL = 2.0**-126


def text_of(opcode: str, n: int) -> str:
    shape = f"bf16[{n}]{{0}}"
    return f"HloModule m\nENTRY e {{\n  x = {shape} parameter(0)\n  y = {shape} parameter(1)\n  ROOT r = {shape} {opcode}(x, y)\n}}\n"


def numbers() -> tuple[Any, Any]:
    """Pairs of all kinds of bf16: every exponent, subnormal numbers, zeros of both signs, infinities, NaN."""
    draw = np.random.default_rng(7)
    bits = draw.integers(0, 1 << 16, (2, 1 << 15)).astype(np.uint16)
    bits[1, ::2] = bits[0, ::2] ^ draw.integers(0, 1 << 9, 1 << 14).astype(np.uint16)  # near each other
    odd = np.array([0x0000, 0x8000, 0x0001, 0x8001, 0x007F, 0x0080, 0x7F7F, 0x7F80, 0xFF80, 0x7FC0, 0x3F80], np.uint16)
    x, y = (np.concatenate([a, b.ravel()]) for a, b in zip(bits, np.meshgrid(odd, odd), strict=True))
    return x.view(ml_dtypes.bfloat16), y.view(ml_dtypes.bfloat16)


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
@pytest.mark.parametrize("opcode", MEANINGS)
@pytest.mark.parametrize("form", ["plain", "lanes"])
def test_they_are_those_of_f32_rounded(opcode: str, form: KernelForm) -> None:
    x, y = numbers()
    (got,) = compile(hlo_opt.parse(text_of(opcode, len(x))), "host", form=form)(x, y)
    with np.errstate(all="ignore"):
        wide = MEANINGS[opcode](x.astype(np.float32), y.astype(np.float32))
        wanted = wide.astype(ml_dtypes.bfloat16)
    clear = (np.abs(wide) >= LEAST_NORMAL) | (wide == 0) | np.isnan(wide) | (opcode != "multiply")
    np.testing.assert_array_equal(got[clear].astype(np.float32), wanted[clear].astype(np.float32))
    np.testing.assert_array_equal(np.signbit(got)[~np.isnan(wide)], np.signbit(wanted)[~np.isnan(wide)])
    apart = np.abs(got[~clear].view(np.uint16).astype(int) - wanted[~clear].view(np.uint16).astype(int))
    assert apart.max(initial=0) <= 1


@pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
def test_a_product_below_the_normal_numbers_is_rounded_once_by_the_text_for_gpus() -> None:
    x, y = numbers()
    (got,) = compile(hlo_opt.parse(text_of("multiply", len(x))), "host", form="plain")(x, y)
    with np.errstate(all="ignore"):
        exact = x.astype(np.float64) * y.astype(np.float64)
    low = np.flatnonzero((np.abs(exact) < LEAST_NORMAL) & (exact != 0))
    assert len(low) > 1000
    for k in low:
        units = Fraction(float(exact[k])) * 2**133
        assert Fraction(float(got[k])) * 2**133 == round(units)  # to nearest, ties to even


@pytest.mark.parametrize("opcode", MEANINGS)
def test_a_gpu_computes_them_in_one_instruction(opcode: str) -> None:
    pytest.importorskip("cupy")
    from cupy.cuda import nvrtc

    (kernel,) = build_schedule(hlo_opt.parse(text_of(opcode, 1 << 22))).kernels
    program = nvrtc.createProgram(kernel.source, "k.cu", (), ())
    nvrtc.compileProgram(program, ("-arch=compute_80", *compile_options(precise=False)))
    text = nvrtc.getPTX(program)
    text = text.decode() if isinstance(text, bytes) else text
    assert text.count("fma.rn.bf16x2") == 8
    assert "cvt.rn.bf16x2.f32" not in text and f"{opcode[:3]}.f32" not in text
