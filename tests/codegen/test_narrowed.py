"""f64 that are rounded to f32 and then f64 again: GCC 12 leaves both conversions out where it makes vectors of neighbours,
those behind the last whole vector of a loop for one. What is between the two may be nothing to the compiler: a copy, a
choice of the same, what undoes itself, the parameter of another computation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlo_opt
from hlo_opt.runtime.host.library import has_compiler
from tests.host_text import run_on_host

pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")


@pytest.mark.parametrize("size", [2, 7, 33, 495])
def test_a_rounding_stays(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    body = f"""ENTRY e {{
  x = f64[{size}] parameter(0)
  near = f32[{size}] convert(x)
  high = f64[{size}] convert(near)
  low = f64[{size}] subtract(x, high)
  turned = f32[{size}] reverse(near), dimensions={{0}}
  moved = f64[{size}] convert(turned)
  ROOT parts = (f64[{size}], f64[{size}], f64[{size}]) tuple(high, low, moved)
}}
"""
    x = np.random.default_rng(0).standard_normal(size)
    (high, low, moved), text = run_on_host(body, x, monkeypatch=monkeypatch)
    near = x.astype(np.float32).astype(np.float64)
    np.testing.assert_array_equal(high, near)
    np.testing.assert_array_equal(low, x - near)
    np.testing.assert_array_equal(moved, near[::-1])
    assert "hlo_rounded" in text


def test_parts_of_complex_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    body = """ENTRY e {
  x = c128[7] parameter(0)
  near = c64[7] convert(x)
  all = c128[7] convert(near)
  real = f32[7] real(near)
  wide = f64[7] convert(real)
  ROOT parts = (c128[7], f64[7]) tuple(all, wide)
}
"""
    x = np.random.default_rng(0).standard_normal((7, 2)).view(np.complex128)[:, 0]
    (found, wide), _ = run_on_host(body, x, monkeypatch=monkeypatch)
    near = x.astype(np.complex64).astype(np.complex128)
    np.testing.assert_array_equal(found, near)
    np.testing.assert_array_equal(wide, near.real)


SAME = {
    "copy": "v = f32[7] copy(near)",
    "negated twice": "a = f32[7] negate(near)\n  v = f32[7] negate(a)",
    "bits": "a = s32[7] bitcast-convert(near)\n  v = f32[7] bitcast-convert(a)",
    "times one": "a = f32[] constant(1)\n  b = f32[7] broadcast(a), dimensions={}\n  v = f32[7] multiply(near, b)",
    "chosen": "a = pred[7] is-finite(x)\n  v = f32[7] select(a, near, near)",
    "whole": "v = f32[7] reduce-precision(near), exponent_bits=8, mantissa_bits=23",
    "padded": "a = f32[] constant(0)\n  v = f32[7] pad(near, a), padding=0_0",
    "updated": "a = s32[] constant(0)\n  b = f32[1] slice(near), slice={[0:1]}\n"
    "  v = f32[7] dynamic-update-slice(near, b, a)",
}


@pytest.mark.parametrize("between", SAME)
def test_whatever_is_between(between: str) -> None:
    text = f"""HloModule m

ENTRY e {{
  x = f64[7] parameter(0)
  near = f32[7] convert(x)
  {SAME[between]}
  w = f64[7] convert(v)
  ROOT parts = (f64[7], f32[7]) tuple(w, v)
}}
"""
    x = np.random.default_rng(0).standard_normal(7)
    wide, near = _found(text, x)
    np.testing.assert_array_equal(wide, x.astype(np.float32).astype(np.float64))
    np.testing.assert_array_equal(wide, near)


def test_a_computation_of_its_own_widens() -> None:
    text = """HloModule m

widen {
  a = f32[] parameter(0)
  ROOT b = f64[] convert(a)
}

ENTRY e {
  x = f64[7] parameter(0)
  near = f32[7] convert(x)
  w = f64[7] map(near), dimensions={0}, to_apply=widen
  ROOT parts = (f64[7], f32[7]) tuple(w, near)
}
"""
    x = np.random.default_rng(0).standard_normal(7)
    np.testing.assert_array_equal(_found(text, x)[0], x.astype(np.float32).astype(np.float64))


def test_a_state_of_a_loop_is_rounded() -> None:
    text = """HloModule m

body {
  p = (s32[], f32[7], f64[7]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  near = f32[7] get-tuple-element(p), index=1
  x = f64[7] get-tuple-element(p), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  wide = f64[7] convert(near)
  sum = f64[7] add(x, wide)
  rounded = f32[7] convert(sum)
  ROOT t = (s32[], f32[7], f64[7]) tuple(next, rounded, sum)
}

more {
  p = (s32[], f32[7], f64[7]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  count = s32[] constant(4)
  ROOT c = pred[] compare(i, count), direction=LT
}

ENTRY e {
  x = f64[7] parameter(0)
  i = s32[] constant(0)
  zero = f32[] constant(0)
  zeros = f32[7] broadcast(zero), dimensions={}
  t = (s32[], f32[7], f64[7]) tuple(i, zeros, x)
  ROOT w = (s32[], f32[7], f64[7]) while(t), condition=more, body=body
}
"""
    x = np.random.default_rng(0).standard_normal(7)
    near = np.zeros(7, np.float32)
    _, _, found = _found(text, x)
    for _ in range(4):
        x = x + near.astype(np.float64)
        near = x.astype(np.float32)
    np.testing.assert_array_equal(found, x)


@pytest.mark.parametrize("exponent", ["3", "-2", "1.5"])
def test_powers_are_rounded_too(exponent: str) -> None:
    text = f"""HloModule m

ENTRY e {{
  x = f32[7] parameter(0)
  n = f32[] constant({exponent})
  ns = f32[7] broadcast(n), dimensions={{}}
  y = f32[7] power(x, ns)
  w = f64[7] convert(y)
  ROOT parts = (f64[7], f32[7]) tuple(w, y)
}}
"""
    wide, near = _found(text, np.random.default_rng(0).uniform(1, 2, 7).astype(np.float32))
    np.testing.assert_array_equal(wide, near)


def test_a_nan_keeps_its_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    body = """ENTRY e {
  x = f64[7] parameter(0)
  ROOT near = f32[7] convert(x)
}
"""
    bits = np.array([0x7FF8000020000000, 0xFFF8000040000000] * 3 + [0x8000000000000000], np.uint64)
    found, _ = run_on_host(body, bits.view(np.float64), monkeypatch=monkeypatch)
    np.testing.assert_array_equal(found.view(np.uint32), [0x7FC00001, 0xFFC00002] * 3 + [0x80000000])


def _found(text: str, x: np.ndarray[Any, np.dtype[Any]]) -> Any:
    module = hlo_opt.parse(text)
    return hlo_opt.compile(hlo_opt.fuse(module, simplify="never")[0], backend="host")(x)


def test_what_was_f32_before_is_only_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    body = """ENTRY e {
  x = f32[33] parameter(0)
  y = f32[33] multiply(x, x)
  ROOT z = f64[33] convert(y)
}
"""
    x = np.random.default_rng(0).standard_normal(33).astype(np.float32)
    found, text = run_on_host(body, x, monkeypatch=monkeypatch)
    np.testing.assert_array_equal(found, (x * x).astype(np.float64))
    assert "hlo_rounded" not in text
