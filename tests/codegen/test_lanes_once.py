"""Elements that lanes under a condition read alike, and conditions of a few rows, as in a step of waves with a
source."""

from __future__ import annotations

import numpy as np
import pytest

from hlo_opt.runtime.host.library import has_compiler
from tests.host_text import run_on_host

STEP = """ENTRY e {
  x = f32[6,64] parameter(0)
  u = f32[1,1] parameter(1)
  first = f32[6,1] slice(x), slice={[0:6], [0:1]}
  rest = f32[6,63] slice(x), slice={[0:6], [1:64]}
  ring = f32[6,64] concatenate(rest, first), dimensions={1}
  top = f32[1,64] slice(x), slice={[0:1], [0:64]}
  others = f32[5,64] slice(x), slice={[1:6], [0:64]}
  below = f32[6,64] concatenate(others, top), dimensions={0}
  n = f32[6,64] subtract(below, ring)
  three = s32[] constant(3)
  s = f32[1,1] sine(u)
  ROOT y = f32[6,64] dynamic-update-slice(n, s, three, three)
}
"""


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
def test_what_few_lanes_need_keeps_others_in_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first element of a row is read before its lanes: under the mask of one lane compilers have no vector code for
    it. The condition on rows is taken out of one on rows and lanes."""
    x = np.random.default_rng(0).standard_normal((6, 64), np.float32)
    found, text = run_on_host(STEP, x, np.full((1, 1), 0.5, np.float32), monkeypatch=monkeypatch)
    wanted = np.roll(x, -1, 0) - np.roll(x, -1, 1)
    wanted[3, 3] = np.sin(np.float32(0.5))
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert "63 < hlo_live ? in0[" in text and "const bool hlo_holds0" in text
