"""f64 that are rounded to f32 and then f64 again: GCC 12 leaves both conversions out where it makes vectors of neighbours,
those behind the last whole vector of a loop for one."""

from __future__ import annotations

import numpy as np
import pytest

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
    assert "hlo_rounded_to_f32" in text


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
    assert "hlo_rounded_to_f32" not in text
