"""CHLO's functions as custom calls, and the steps between static and dynamic sizes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import hlo_opt
from hlo_opt import EvaluationError, VerifyError, evaluate, parse
from hlo_opt.ops.custom_calls.table import FUNCTIONS


def module(name: str, kind: str = "f32", result: str = "f32") -> hlo_opt.ir.Module:
    call = f'{result}[64] custom-call(p), custom_call_target="mhlo.{name}"'
    return parse(f"HloModule m\nENTRY e {{\n  p = {kind}[64] parameter(0)\n  ROOT r = {call}\n}}\n")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_against_jax(name: str) -> None:
    jax = pytest.importorskip("jax")
    value = (
        np.linspace(1, 3, 64, dtype=np.float32) if name == "acosh" else np.linspace(-0.95, 0.95, 64, dtype=np.float32)
    )
    function = jax.lax.erf if name == "erf" else getattr(jax.lax, name)
    (found,) = evaluate(module(name), [value])
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, function(value), 3e-6, 1e-6)


def test_results_are_rounded_once() -> None:
    value = np.linspace(0, 1, 64).astype(ml_dtypes.bfloat16)
    (found,) = evaluate(module("asin", "bf16", "bf16"), [value])
    assert np.array_equal(found, np.arcsin(value.astype(np.float64)).astype(ml_dtypes.bfloat16))


def test_a_function_keeps_shape_and_type() -> None:
    with pytest.raises(VerifyError, match="declared bf16"):
        hlo_opt.verify(module("sinh", "f32", "bf16"))


DYNAMIC = """HloModule m
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
ENTRY e {
  p = f32[3,4] parameter(0)
  rows = s32[] parameter(1)
  columns = s32[] parameter(2)
  dynamic = f32[<=3,<=4] custom-call(p, rows, columns), custom_call_target="SliceToDynamic"
  zero = f32[] constant(0)
  sum = f32[] reduce(dynamic, zero), dimensions={0,1}, to_apply=add
  twice = f32[<=3,<=4] add(dynamic, dynamic)
  static = (f32[3,4], s32[], s32[]) custom-call(twice), custom_call_target="PadToStatic"
  ROOT all = (f32[], (f32[3,4], s32[], s32[])) tuple(sum, static)
}
"""


def test_sizes_become_dynamic_and_static_again() -> None:
    value = np.arange(12, dtype=np.float32).reshape(3, 4)
    total, padded, rows, columns = evaluate(parse(DYNAMIC), [value, np.int32(2), np.int32(3)])
    assert (total, rows, columns) == (value[:2, :3].sum(), 2, 3)
    expected = np.zeros_like(value)
    expected[:2, :3] = 2 * value[:2, :3]
    np.testing.assert_array_equal(padded, expected)


def test_sizes_lie_within_the_bound() -> None:
    with pytest.raises(EvaluationError, match=r"sizes \(4, 3\) do not fit"):
        evaluate(parse(DYNAMIC), [np.zeros((3, 4), np.float32), np.int32(4), np.int32(3)])
