"""Layouts of loops and branches: what does not fit is copied, and fusing can be proved."""

from __future__ import annotations

import numpy as np
import pytest

import hlo_opt

LOOP = """HloModule m

body {
  s = (s32[], f32[3,3]{1,0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[3,3]{1,0} get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  t = f32[3,3]{LAYOUT} transpose(x), dimensions={1,0}
  n = f32[3,3]{LAYOUT} add(t, t)
  ROOT r = (s32[], f32[3,3]{LAYOUT}) tuple(next, n)
}

condition {
  s = (s32[], f32[3,3]{1,0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  three = s32[] constant(3)
  ROOT c = pred[] compare(i, three), direction=LT
}

ENTRY e {
  x = f32[3,3]{1,0} parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[3,3]{1,0}) tuple(zero, x)
  loop = (s32[], f32[3,3]{1,0}) while(start), condition=condition, body=body
  ROOT r = f32[3,3]{1,0} get-tuple-element(loop), index=1
}
"""


@pytest.mark.parametrize(("layout", "copies"), [("1,0", 0), ("0,1", 1)])
def test_a_round_gives_what_it_takes(layout: str, copies: int) -> None:
    module = hlo_opt.parse(LOOP.replace("LAYOUT", layout))
    found, _ = hlo_opt.fuse(module, passes="layout-fitting", simplify="never")
    hlo_opt.verify(found)
    assert sum(i.opcode == "copy" for c in found.computations for i in c.instructions) == copies
    given = np.arange(9, dtype=np.float32).reshape(3, 3)
    fused, _ = hlo_opt.fuse(module)
    for made in (found, fused):
        assert np.array_equal(hlo_opt.evaluate(made, [given])[0], given.T * 8)
