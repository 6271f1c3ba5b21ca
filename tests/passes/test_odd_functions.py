"""Signs that are taken out of odd functions."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt
from hlo_opt.analysis.targets import target
from hlo_opt.ir import Module
from hlo_opt.ops.sets import ODD
from hlo_opt.passes.for_kernels import IN_LANES, expanded

H100 = target("h100_sxm")


def of(*lines: str) -> Module:
    body = "\n  ".join(lines)
    return hlo_opt.parse(
        f"HloModule m\nENTRY e {{\n  x = f32[64] parameter(0)\n  y = f32[64] parameter(1)\n  {body}\n}}\n"
    )


def count(module: Module, opcode: str) -> int:
    return sum(i.opcode == opcode for c in module.computations for i in c.instructions)


@pytest.mark.parametrize("opcode", sorted(ODD))
def test_of_a_number_and_its_opposite_a_function_is_computed_once(opcode: str) -> None:
    module = of(
        "n = f32[64] negate(x)",
        "a = f32[64] divide(n, y)",
        "b = f32[64] divide(x, y)",
        f"f = f32[64] {opcode}(a)",
        f"g = f32[64] {opcode}(b)",
        "ROOT r = (f32[64], f32[64]) tuple(f, g)",
    )
    made = expanded(module, H100, IN_LANES)
    assert count(module, opcode) == 2 and count(made, opcode) == 1 and count(made, "divide") == 1
    generator = np.random.default_rng(0)
    inputs = [generator.uniform(0, 0.9, 64).astype(np.float32), generator.uniform(1, 2, 64).astype(np.float32)]
    inputs[0][:2] = 0.0, -0.0
    for got, want in zip(hlo_opt.evaluate(made, inputs), hlo_opt.evaluate(module, inputs), strict=True):
        np.testing.assert_array_equal(got.view(np.int32), want.view(np.int32))


def test_a_sign_that_saves_nothing_stays() -> None:
    module = of("n = f32[64] negate(x)", "f = f32[64] erf(n)", "ROOT r = f32[64] add(f, y)")
    assert expanded(module, H100, IN_LANES) is module


def test_what_a_function_of_both_signs_is_asked_for_stays() -> None:
    module = of("n = f32[64] negate(x)", "f = f32[64] cosine(n)", "g = f32[64] cosine(x)", "ROOT r = f32[64] add(f, g)")
    assert expanded(module, H100, IN_LANES) is module
