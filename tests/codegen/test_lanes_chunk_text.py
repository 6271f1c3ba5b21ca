"""Loops in which lanes read a row a round."""

from __future__ import annotations

import numpy as np
import pytest

from hlo_opt.runtime.host.library import has_compiler
from tests.host_text import run_on_host

pytestmark = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")

SOFTMAX = """larger {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] maximum(a, b)
}

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}

ENTRY e {
  p = f32[64,512] parameter(0)
  z = f32[] constant(-inf)
  m = f32[512] reduce(p, z), dimensions={0}, to_apply=larger
  b = f32[64,512] broadcast(m), dimensions={1}
  d = f32[64,512] subtract(p, b)
  x = f32[64,512] exponential(d)
  o = f32[] constant(0)
  t = f32[512] reduce(x, o), dimensions={0}, to_apply=sum
  c = f32[64,512] broadcast(t), dimensions={1}
  ROOT r = f32[64,512] divide(x, c)
}
"""


def test_a_loop_over_rows_goes_around_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a lane it would read memory row by row for each few of them, and two loops in a lane are no vectors."""
    x = np.random.default_rng(0).standard_normal((64, 512)).astype(np.float32)
    found, text = run_on_host(SOFTMAX, x, monkeypatch=monkeypatch)
    lines = text.splitlines()
    over_rows = [n for n, line in enumerate(lines) if line.startswith("for (int step") and "< 64" in line]
    assert len(over_rows) == 3
    assert all(lines[n + 1] == "#pragma omp simd" for n in over_rows)
    exact = np.exp(x - x.max(0, keepdims=True), dtype=np.float64)
    np.testing.assert_allclose(found, exact / exact.sum(0, keepdims=True), rtol=1e-5)
