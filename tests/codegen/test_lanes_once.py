"""Elements that lanes under a condition read alike, and conditions of a few rows, as in a step of waves with a
source."""

from __future__ import annotations

import numpy as np
import pytest

from hlo_opt.runtime.host.library import has_compiler
from tests.host_text import run_on_host

STEP = """ENTRY e {
  x = f32[6,32] parameter(0)
  u = f32[1,1] parameter(1)
  first = f32[6,1] slice(x), slice={[0:6], [0:1]}
  rest = f32[6,31] slice(x), slice={[0:6], [1:32]}
  ring = f32[6,32] concatenate(rest, first), dimensions={1}
  top = f32[1,32] slice(x), slice={[0:1], [0:32]}
  others = f32[5,32] slice(x), slice={[1:6], [0:32]}
  below = f32[6,32] concatenate(others, top), dimensions={0}
  n = f32[6,32] subtract(below, ring)
  three = s32[] parameter(2)
  s = f32[1,1] sine(u)
  ROOT y = f32[6,32] dynamic-update-slice(n, s, three, three)
}
"""


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
def test_what_few_lanes_need_keeps_others_in_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first element of a row is read before its lanes: under the mask of one lane compilers have no vector code for
    it. The condition on rows is taken out of one on rows and lanes."""
    x = np.random.default_rng(0).standard_normal((6, 32), np.float32)
    at = np.int32(3)
    found, text = run_on_host(STEP, x, np.full((1, 1), 0.5, np.float32), at, monkeypatch=monkeypatch)
    wanted = np.roll(x, -1, 0) - np.roll(x, -1, 1)
    wanted[3, 3] = np.sin(np.float32(0.5))
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert "31 < hlo_live ? in0[" in text and "const bool hlo_holds0" in text


WAVES = """body {
  s = (s32[], f32[400]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[400] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  t = f32[] convert(i)
  wave = f32[] sine(t)
  at = s32[] constant(200)
  read = f32[1] dynamic-slice(x, at), dynamic_slice_sizes={1}
  there = f32[1] reshape(wave)
  sum = f32[1] add(read, there)
  written = f32[400] dynamic-update-slice(x, sum, at)
  turned = f32[400] reverse(written), dimensions={0}
  ROOT r = (s32[], f32[400]) tuple(next, turned)
}

condition {
  s = (s32[], f32[400]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(20)
  ROOT r = pred[] compare(i, n), direction=LT
}

ENTRY e {
  x = f32[400] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[400]) tuple(zero, x)
  loop = (s32[], f32[400]) while(start), condition=condition, body=body
  ROOT r = f32[400] get-tuple-element(loop), index=1
}
"""


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
def test_a_value_that_one_lane_needs_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sine of a loop's counter, which goes to one element: it stands before the lanes, whose vector code would find
    it for each of them."""
    x = np.random.default_rng(0).standard_normal(400, np.float32)
    found, text = run_on_host(WAVES, x, monkeypatch=monkeypatch)
    for round_ in range(20):
        x[200] += np.sin(np.float32(round_))
        x = x[::-1].copy()
    np.testing.assert_allclose(found, x, rtol=1e-5, atol=1e-6)
    lines = text.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("const float sine"))
    assert lines[at + 1].startswith("const float add") and "#pragma omp simd" in lines[at + 2]
